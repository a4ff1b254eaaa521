//! Replaces a folder of files so that a kill at any moment leaves the old one or the new one, whole.
//!
//! A folder cannot be renamed over another, but a symbolic link can: `checkpoint/last` points to
//! `checkpoint/last.7`; the next one is written as `last.8` (itself under a temporary name until it is whole and
//! synced), then a new link is renamed over the old one, then `last.7` is removed.

use super::hex;
use crate::error::{Error, Result};
use archipelago_graph::Error as GraphError;
use archipelago_graph::atomic::NewFolder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

const FORMAT: &str = "archipelago-checkpoint";
const VERSION: u32 = 3;
const MANIFEST: &str = "manifest.json";

/// `manifest.json`: what belongs to the folder.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    files: BTreeMap<String, FileFacts>,
    /// Digest of the lines above, so that damage to this file shows too.
    sha256: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct FileFacts {
    bytes: u64,
    sha256: String,
}

/// Replaces `run/checkpoint/name` by what `fill` writes into the folder it is given; returns its path.
pub(super) fn replace(run: &Path, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let home = run.join("checkpoint");
    fs::create_dir_all(&home).map_err(GraphError::io("create", &home))?;
    let version = format!("{name}.{}", 1 + versions(&home, name)?.into_iter().max().unwrap_or(0));
    let new = NewFolder::create(&home.join(&version))?;
    fill(new.path())?;
    write_manifest(new.path())?;
    new.commit()?;
    let link = home.join(name);
    point(&link, &version).map_err(GraphError::io("rename into place", &link))?;
    sweep(&home, name, &version)?;
    Ok(link)
}

/// The contents of the `wanted` files of a checkpoint `folder`, all checksums compared.
pub(super) fn read(folder: &Path, wanted: &[&str]) -> Result<Vec<Vec<u8>>> {
    let manifest = read_manifest(folder)?;
    wanted.iter().map(|name| read_file(folder, name, &manifest)).collect()
}

/// Whether a checkpoint `folder` says that it has a file called `name`.
pub(super) fn lists(folder: &Path, name: &str) -> Result<bool> {
    Ok(read_manifest(folder)?.files.contains_key(name))
}

fn read_file(folder: &Path, name: &str, manifest: &Manifest) -> Result<Vec<u8>> {
    let file = folder.join(name);
    let Some(expected) = manifest.files.get(name) else {
        return Err(damaged(&folder.join(MANIFEST), format!("does not list `{name}`")));
    };
    let bytes = fs::read(&file).map_err(GraphError::io("read", &file))?;
    let found = FileFacts::of(&bytes);
    if found == *expected {
        return Ok(bytes);
    }
    Err(damaged(
        &file,
        format!(
            "is damaged: expected {} bytes with sha256 {}, found {} with {}",
            expected.bytes, expected.sha256, found.bytes, found.sha256
        ),
    ))
}

fn read_manifest(folder: &Path) -> Result<Manifest> {
    let file = folder.join(MANIFEST);
    if !file.exists() {
        return Err(Error::checkpoint(folder, "is not a checkpoint: it has no `manifest.json`")
            .with_hint("a run writes its first checkpoint after `output.checkpoint_every` epochs"));
    }
    let text = fs::read(&file).map_err(GraphError::io("read", &file))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| damaged(&file, format!("is damaged: {error}")))?;
    if manifest.format != FORMAT || manifest.version != VERSION {
        let found = format!("found `{}` version {}", manifest.format, manifest.version);
        return Err(Error::checkpoint(&file, format!("expected `{FORMAT}` version {VERSION}, {found}")));
    }
    if manifest.sha256 != listing_digest(&manifest.files) {
        return Err(damaged(&file, "is damaged: its own checksum differs".into()));
    }
    Ok(manifest)
}

fn write_manifest(folder: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(GraphError::io("list", folder))? {
        let file = entry.map_err(GraphError::io("list", folder))?.path();
        let facts = FileFacts::of_file(&file).map_err(GraphError::io("read", &file))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, facts);
    }
    let manifest =
        Manifest { format: FORMAT.into(), version: VERSION, sha256: listing_digest(&files), files };
    let file = folder.join(MANIFEST);
    let text = serde_json::to_vec_pretty(&manifest).map_err(std::io::Error::from);
    text.and_then(|text| fs::write(&file, text)).map_err(GraphError::io("write", &file))?;
    Ok(())
}

impl FileFacts {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }

    /// In pieces: a strategy's memory may be large.
    fn of_file(file: &Path) -> std::io::Result<Self> {
        let (mut input, mut digest, mut bytes) = (File::open(file)?, Sha256::new(), 0);
        let mut piece = vec![0; 1 << 20];
        loop {
            let len = input.read(&mut piece)?;
            if len == 0 {
                return Ok(Self { bytes, sha256: hex(&digest.finalize()) });
            }
            digest.update(&piece[..len]);
            bytes += len as u64;
        }
    }
}

fn listing_digest(files: &BTreeMap<String, FileFacts>) -> String {
    let line = |(name, facts): (&String, &FileFacts)| format!("{name} {} {}\n", facts.bytes, facts.sha256);
    let listing: String = files.iter().map(line).collect();
    hex(&Sha256::digest(format!("{FORMAT} {VERSION}\n{listing}")))
}

/// Makes `link` point to its sibling `target`, in one step.
fn point(link: &Path, target: &str) -> std::io::Result<()> {
    let new = link.with_extension("new");
    if new.is_symlink() {
        fs::remove_file(&new)?;
    }
    std::os::unix::fs::symlink(target, &new)?;
    if link.is_dir() && !link.is_symlink() {
        // A copy that followed links left a plain folder: it becomes the oldest version.
        fs::rename(link, link.with_extension("0"))?;
    }
    fs::rename(&new, link)?;
    link.parent().map_or(Ok(()), |home| File::open(home)?.sync_all())
}

/// Removes versions that nothing points to any more, and what a killed run left half-written.
fn sweep(home: &Path, name: &str, current: &str) -> Result<()> {
    for entry in fs::read_dir(home).map_err(GraphError::io("list", home))? {
        let path = entry.map_err(GraphError::io("list", home))?.path();
        let found = path.file_name().unwrap_or_default().to_string_lossy();
        let stale = version_of(&found, name).is_some() && found != current;
        if stale || found.starts_with(".archi-") {
            fs::remove_dir_all(&path).map_err(GraphError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// The numbers of the versions of `name` that lie in `home`.
fn versions(home: &Path, name: &str) -> Result<Vec<u64>> {
    let entries = fs::read_dir(home).map_err(GraphError::io("list", home))?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    Ok(names.filter_map(|found| version_of(&found, name)).collect())
}

fn version_of(found: &str, name: &str) -> Option<u64> {
    found.strip_prefix(name)?.strip_prefix('.')?.parse().ok()
}

fn damaged(file: &Path, message: String) -> Error {
    Error::checkpoint(file, message)
        .with_hint("use the other checkpoint of the run (last or best), or start again")
}
