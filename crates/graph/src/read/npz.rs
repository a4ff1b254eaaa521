//! Arrays by name: from the members of an `.npz` archive, or from the `.npy` files of a folder.
//!
//! A member is unpacked into anonymous memory of the size its own header declares, and only when that size is in
//! proportion to the packed bytes: a small file cannot ask for all memory of the machine.

use super::npy::{Header, NpyArray, read_fully};
use crate::{Error, Result};
use memmap2::MmapMut;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zip::ZipArchive;

/// A member may always unpack to this many bytes …
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// … and beyond that to this many times its packed size (bag-of-words matrices reach 200).
const LARGEST_RATIO: u64 = 300;

/// Where named arrays are found.
pub(super) enum Arrays {
    /// `<folder>/<name>.npy`
    Folder(PathBuf),
    /// Members of an archive.
    Archive(Archive),
}

impl Arrays {
    /// The array `name`, if it is there.
    pub(super) fn get(&self, name: &str) -> Result<Option<NpyArray>> {
        match self {
            Self::Folder(folder) => {
                let file = folder.join(format!("{name}.npy"));
                if file.is_file() { NpyArray::open(&file).map(Some) } else { Ok(None) }
            }
            Self::Archive(archive) => archive.get(name),
        }
    }

    /// The array `name`, or an error that says where it was looked for.
    pub(super) fn require(&self, name: &str) -> Result<NpyArray> {
        self.get(name)?.ok_or_else(|| match self {
            Self::Folder(folder) => {
                Error::input(folder, "", format!("a file `{name}.npy`"), "none of that name")
            }
            Self::Archive(archive) => {
                let known = archive.names().join(", ");
                Error::input(&archive.file, "", format!("an array `{name}`"), format!("only: {known}"))
            }
        })
    }

    /// The names of all arrays, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        match self {
            Self::Archive(archive) => archive.names(),
            Self::Folder(folder) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let mut names: Vec<String> = entries
                    .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".npy")?.to_owned()))
                    .collect();
                names.sort();
                names
            }
        }
    }

    /// The first of `names` that is there.
    pub(super) fn first(&self, names: &[String]) -> Result<Option<NpyArray>> {
        for name in names {
            if let Some(array) = self.get(name)? {
                return Ok(Some(array));
            }
        }
        Ok(None)
    }
}

/// The most bytes that the packed `file` may unpack to in memory.
pub(super) fn most_unpacked(file: &Path) -> Result<u64> {
    let packed = std::fs::metadata(file).map_err(Error::io("open", file))?.len();
    Ok(packed.saturating_mul(LARGEST_RATIO).max(ALWAYS_ALLOWED))
}

/// An open `.npz`.
pub(super) struct Archive {
    file: PathBuf,
    zip: RefCell<ZipArchive<BufReader<File>>>,
}

impl Archive {
    /// Reads the directory of the archive `file`.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let opened = File::open(file).map_err(Error::io("open", file))?;
        let zip = ZipArchive::new(BufReader::new(opened)).map_err(|error| {
            Error::input(file, "", "an .npz (zip) archive", format!("{error}"))
                .with_hint("the file is damaged or was not copied to its end")
        })?;
        Ok(Self { file: file.to_path_buf(), zip: RefCell::new(zip) })
    }

    fn names(&self) -> Vec<String> {
        let zip = self.zip.borrow();
        let mut names: Vec<String> =
            zip.file_names().filter_map(|name| Some(name.ok()?.strip_suffix(".npy")?.to_owned())).collect();
        names.sort();
        names
    }

    fn get(&self, name: &str) -> Result<Option<NpyArray>> {
        let place = format!("array {name}");
        let mut zip = self.zip.borrow_mut();
        let mut member = match zip.by_name(&format!("{name}.npy")) {
            Ok(member) => member,
            Err(zip::result::ZipError::FileNotFound) => return Ok(None),
            Err(error) => {
                return Err(Error::input(&self.file, place, "a readable member", format!("{error}")));
            }
        };
        let packed = member.compressed_size();
        let header = Header::read(&mut member, &self.file, &place)?;
        self.check_size(&place, header.bytes as u64, packed)?;
        let mut map =
            MmapMut::map_anon(header.bytes.max(1)).map_err(Error::io("make room for", &self.file))?;
        read_fully(&mut member, &mut map[..header.bytes], &self.file, &place)?;
        self.check_end(&place, &mut member)?;
        let map = map.make_read_only().map_err(Error::io("unpack", &self.file))?;
        Ok(Some(NpyArray::from_parts(&self.file, name, header, Arc::new(map), 0)))
    }

    fn check_size(&self, place: &str, unpacked: u64, packed: u64) -> Result<()> {
        let most = packed.saturating_mul(LARGEST_RATIO).max(ALWAYS_ALLOWED).min(most_unpacked(&self.file)?);
        if unpacked <= most {
            return Ok(());
        }
        Err(Error::input(
            &self.file,
            place,
            format!("at most {most} bytes out of {packed} packed ones"),
            format!("a header that declares `{unpacked}`"),
        )
        .with_hint("if the array is as large as it says, unpack the archive to plain .npy files"))
    }

    /// Reads past the last element: there must be nothing, and the checksum of the member must hold.
    fn check_end(&self, place: &str, member: &mut dyn Read) -> Result<()> {
        match member.read(&mut [0; 1]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(Error::input(&self.file, place, "nothing after the last element", "more bytes")),
            Err(error) => Err(Error::input(&self.file, place, "undamaged data", format!("{error}"))),
        }
    }
}
