//! Numbers that wait on disk for their next use: rows of layers and of guests that do not fit into memory.
//!
//! The file has no name once it is open, so nothing is left behind, whatever ends the process.

use crate::Result;
use archipelago_graph::Error;
use bytemuck::Pod;
use std::fs::{self, File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A nameless file of numbers.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    folder: PathBuf,
    end: u64,
}

/// Where some numbers stand in a [`Scratch`].
#[derive(Debug, Clone, Copy)]
pub struct Span<T> {
    offset: u64,
    len: usize,
    element: PhantomData<T>,
}

impl Scratch {
    /// An empty one in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
        let name =
            format!(".archi-scratch-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = opened.map_err(Error::io("create", &path))?;
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        Ok(Self { file, folder: folder.to_path_buf(), end: 0 })
    }

    /// Writes `values` behind all others.
    pub fn put<T: Pod>(&mut self, values: &[T]) -> Result<Span<T>> {
        let span = Span { offset: self.end, len: values.len(), element: PhantomData };
        let bytes = bytemuck::cast_slice(values);
        self.file.write_all_at(bytes, self.end).map_err(Error::io("write", &self.folder))?;
        self.end += bytes.len() as u64;
        Ok(span)
    }

    /// Reads all numbers of a span.
    pub fn get<T: Pod>(&self, span: Span<T>) -> Result<Vec<T>> {
        let mut values = vec![T::zeroed(); span.len];
        self.read(span, 0, &mut values)?;
        Ok(values)
    }

    /// Reads as many numbers of a span as `values` takes, from the one at `start` on.
    pub fn read<T: Pod>(&self, span: Span<T>, start: usize, values: &mut [T]) -> Result<()> {
        debug_assert!(start + values.len() <= span.len);
        let offset = span.offset + (start * size_of::<T>()) as u64;
        let bytes = bytemuck::cast_slice_mut(values);
        Ok(self.file.read_exact_at(bytes, offset).map_err(Error::io("read", &self.folder))?)
    }

    /// Forgets everything.
    pub fn clear(&mut self) -> Result<()> {
        self.end = 0;
        Ok(self.file.set_len(0).map_err(Error::io("write", &self.folder))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_no_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::new(folder.path()).unwrap();
        let floats = scratch.put(&[1.5f32, 2.5, 3.5]).unwrap();
        let words = scratch.put(&[u64::MAX, 7]).unwrap();
        assert_eq!(scratch.get(words).unwrap(), [u64::MAX, 7]);
        assert_eq!(scratch.get(floats).unwrap(), [1.5, 2.5, 3.5]);
        let mut two = [0f32; 2];
        scratch.read(floats, 1, &mut two).unwrap();
        assert_eq!(two, [2.5, 3.5]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        scratch.clear().unwrap();
        let again = scratch.put(&[9u32]).unwrap();
        assert_eq!(scratch.get(again).unwrap(), [9]);
    }
}
