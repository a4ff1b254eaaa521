//! Writing the files of one folder of a store, with length and checksum taken on the way.

use super::manifest::FileEntry;
use crate::{Error, Result};
use bytemuck::Pod;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use xxhash_rust::xxh3::Xxh3;

/// A folder being filled.
pub(super) struct Output {
    folder: PathBuf,
    /// The files written so far.
    pub files: BTreeMap<String, FileEntry>,
}

impl Output {
    /// Prepares to write into `folder`, made if it is not there.
    pub fn create(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        Ok(Self { folder, files: BTreeMap::new() })
    }

    /// Writes `items` as the file `name`.
    pub fn array<T: Pod>(&mut self, name: &str, items: &[T]) -> Result<()> {
        self.stream(name, |file| file.put(items))
    }

    /// Writes the file `name` piece by piece.
    pub fn stream(&mut self, name: &str, fill: impl FnOnce(&mut Pieces) -> Result<()>) -> Result<()> {
        let mut pieces = self.open(name)?;
        fill(&mut pieces)?;
        self.close(name, pieces)
    }

    /// Begins the file `name`; [`close`](Self::close) ends it.
    pub fn open(&self, name: &str) -> Result<Pieces> {
        let path = self.folder.join(name);
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        let hashed = Hashed { file, hash: Xxh3::new(), bytes: 0 };
        Ok(Pieces { writer: BufWriter::with_capacity(1 << 20, hashed), path })
    }

    /// Ends the file `name`.
    pub fn close(&mut self, name: &str, mut pieces: Pieces) -> Result<()> {
        pieces.writer.flush().map_err(Error::io("write", &pieces.path))?;
        let hashed = pieces.writer.get_ref();
        let entry = FileEntry { bytes: hashed.bytes, xxh3: format!("{:016x}", hashed.hash.digest()) };
        self.files.insert(name.to_owned(), entry);
        Ok(())
    }
}

/// A file being written.
pub(super) struct Pieces {
    writer: BufWriter<Hashed>,
    path: PathBuf,
}

impl Pieces {
    /// Appends `items`.
    pub fn put<T: Pod>(&mut self, items: &[T]) -> Result<()> {
        self.writer.write_all(bytemuck::cast_slice(items)).map_err(Error::io("write", &self.path))
    }
}

/// A file whose contents are hashed as they are written.
struct Hashed {
    file: File,
    hash: Xxh3,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
