//! Writing so that a reader, or a machine that loses power, sees either the old state or the new one.

use crate::{Error, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempDir};

/// Writes `file` through `fill`: to a temporary name beside it, synced, then renamed over it.
pub fn write_file(file: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let folder = parent(file);
    let temporary = new_file(&folder).map_err(Error::io("write into", &folder))?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file());
    fill(&mut writer)?;
    writer.flush().map_err(Error::io("write", file))?;
    drop(writer);
    temporary.as_file().sync_all().map_err(Error::io("sync", file))?;
    temporary.persist(file).map_err(|e| Error::io("rename into place", file)(e.error))?;
    sync_folder(&folder)
}

/// A temporary file that will be as readable as any file the user makes.
fn new_file(folder: &Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder)
}

/// A folder that appears under its name only when it is whole.
///
/// Files are written into [`path`](Self::path); [`commit`](Self::commit) syncs and renames. Dropped without a
/// commit, it leaves nothing behind.
#[derive(Debug)]
pub struct NewFolder {
    staging: TempDir,
    target: PathBuf,
}

impl NewFolder {
    /// Prepares to write `target`, which must not exist yet unless it is an empty folder.
    pub fn create(target: &Path) -> Result<Self> {
        let taken = fs::read_dir(target).map(|mut entries| entries.next().is_some());
        if taken.unwrap_or(target.exists()) {
            return Err(Error::usage(format!("`{}` exists already", target.display()))
                .with_hint("choose another name, or remove it first"));
        }
        let folder = parent(target);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let staging = tempfile::Builder::new()
            .prefix(".archi-")
            .suffix(".tmp")
            .tempdir_in(&folder)
            .map_err(Error::io("write into", &folder))?;
        Ok(Self { staging, target: target.to_path_buf() })
    }

    /// Where to put the files for now.
    pub fn path(&self) -> &Path {
        self.staging.path()
    }

    /// Syncs every file and moves the folder to its name.
    pub fn commit(self) -> Result<()> {
        sync_tree(self.staging.path())?;
        if self.target.is_dir() {
            fs::remove_dir(&self.target).map_err(Error::io("replace", &self.target))?;
        }
        let staging = self.staging.keep();
        open_permissions(&staging)?;
        fs::rename(&staging, &self.target).map_err(Error::io("rename into place", &self.target))?;
        sync_folder(&parent(&self.target))
    }
}

/// Temporary folders are private; a dataset or a store is as readable as any folder the user makes.
fn open_permissions(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(Error::io("open up", folder))
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn sync_tree(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        } else {
            sync_folder(&path)?;
        }
    }
    sync_folder(folder)
}

fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::io("sync", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        write_file(&file, |w| w.write_all(b"old").map_err(Error::io("write", "a"))).unwrap();
        let failed = write_file(&file, |w| {
            w.write_all(b"half").map_err(Error::io("write", "a"))?;
            Err(Error::Interrupted)
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("store");
        let dropped = NewFolder::create(&target).unwrap();
        fs::write(dropped.path().join("x"), "1").unwrap();
        drop(dropped);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);

        let made = NewFolder::create(&target).unwrap();
        fs::write(made.path().join("x"), "1").unwrap();
        made.commit().unwrap();
        assert_eq!(fs::read(target.join("x")).unwrap(), b"1");
        assert!(NewFolder::create(&target).unwrap_err().to_string().contains("exists already"));
    }
}
