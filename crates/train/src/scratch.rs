//! Numbers that wait on disk for their next use: rows of layers and of guests that do not fit into memory.
//!
//! The file has no name once it is open, so nothing is left behind, whatever ends the process.

use crate::Result;
use archipelago_graph::Error;
use archipelago_graph::array::Array;
use bytemuck::Pod;
use memmap2::Mmap;
use std::fs::{self, File, OpenOptions};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A nameless file of numbers.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    folder: PathBuf,
    end: u64,
    /// Stretches that nobody uses any more: where they begin, and how long they are.
    free: Vec<(u64, u64)>,
}

/// Where some numbers stand in a [`Scratch`].
#[derive(Debug, Clone, Copy)]
pub struct Span<T> {
    offset: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Span<T> {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
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
        Ok(Self { file, folder: folder.to_path_buf(), end: 0, free: Vec::new() })
    }

    /// Writes `values` where there is room for them, or else behind all others.
    pub fn put<T: Pod>(&mut self, values: &[T]) -> Result<Span<T>> {
        let bytes = bytemuck::cast_slice(values);
        let offset = self.room(bytes.len() as u64);
        self.file.write_all_at(bytes, offset).map_err(Error::io("write", &self.folder))?;
        Ok(Span { offset, len: values.len(), element: PhantomData })
    }

    /// Where a stretch of so many bytes may begin; it is taken.
    fn room(&mut self, bytes: u64) -> u64 {
        if let Some((offset, len)) = self.free.iter_mut().find(|(_, len)| *len >= bytes && bytes > 0) {
            let start = *offset;
            (*offset, *len) = (start + bytes, *len - bytes);
            return start;
        }
        self.end += bytes;
        self.end - bytes
    }

    /// Leaves the room of a span to others.
    pub fn free<T>(&mut self, span: Span<T>) {
        self.free.retain(|(_, len)| *len > 0);
        self.free.push((span.offset, (span.len * size_of::<T>()) as u64));
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

    /// All numbers in the order in which they were put, all of one kind and nothing freed: read where they are, so that
    /// the system may take their memory back at any time.
    pub fn into_array<T: Pod>(self) -> Result<Array<T>> {
        if self.end == 0 {
            return Ok(Array::empty());
        }
        // SAFETY: the file has no name and this is its only handle, so nobody writes to it any more.
        let map = unsafe { Mmap::map(&self.file) }.map_err(Error::io("map a file in", &self.folder))?;
        let array = Array::mapped(Arc::new(map), 0, self.end as usize / size_of::<T>());
        Ok(array.ok_or_else(|| Error::usage("numbers of several kinds in one file: a defect of archi"))?)
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
        let end = scratch.end;
        scratch.free(floats);
        let again = scratch.put(&[9u32, 8]).unwrap();
        assert_eq!(scratch.get(again).unwrap(), [9, 8]);
        assert_eq!(scratch.get(words).unwrap(), [u64::MAX, 7]);
        assert_eq!(scratch.end, end, "room that was left is used again");
    }

    #[test]
    fn what_was_put_piece_by_piece_is_one_array() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::new(folder.path()).unwrap();
        scratch.put(&[1.5f32, 2.5]).unwrap();
        scratch.put(&[] as &[f32]).unwrap();
        scratch.put(&[3.5f32]).unwrap();
        assert_eq!(scratch.into_array::<f32>().unwrap()[..], [1.5, 2.5, 3.5]);
        assert!(Scratch::new(folder.path()).unwrap().into_array::<f32>().unwrap().is_empty());
    }
}
