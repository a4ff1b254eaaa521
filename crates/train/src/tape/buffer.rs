//! Memory for rows of numbers: aligned, in huge pages where large, and used again.
//!
//! Allocation and page faults are what tensor libraries lose their time to on graphs (a 100k x 128 activation is
//! 12,500 small pages). So large buffers come straight from the system with a request for huge pages, and an
//! [`Arena`] keeps every buffer for the next step: after the first step nothing is allocated.

use super::DropoutRows;
use crate::ops::sparse_linear::SparseRows;
use archipelago_graph::array::Array;
use bytemuck::{Pod, Zeroable};
use memmap2::{Advice, MmapMut};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// From here on a buffer is mapped on its own, in huge pages, rather than taken from the heap. Smaller ones would
/// waste most of their last huge page.
const MAPPED_FROM: usize = 8 << 20;

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; 16]);

enum Memory {
    Heap(Vec<Line>),
    Mapped(MmapMut),
}

/// A growable-once, 64-byte aligned `[f32]`. Reads and writes like a slice.
pub struct Buffer {
    memory: Memory,
    len: usize,
}

impl Buffer {
    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self::with_room(len, len)
    }

    /// `len` zeros, with room for `capacity`. Room that is never used costs address space, not memory.
    fn with_room(len: usize, capacity: usize) -> Self {
        let bytes = capacity * size_of::<f32>();
        let memory = match bytes >= MAPPED_FROM {
            true => map_huge(bytes).map_or_else(|| Memory::Heap(lines(capacity)), Memory::Mapped),
            false => Memory::Heap(lines(capacity)),
        };
        Self { memory, len }
    }

    /// How many numbers fit without new memory.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Heap(lines) => lines.len() * 16,
            Memory::Mapped(map) => map.len() / size_of::<f32>(),
        }
    }

    /// Makes the buffer `len` long; what it then holds is left over from its last use.
    fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len;
    }
}

fn lines(len: usize) -> Vec<Line> {
    vec![Line::zeroed(); len.div_ceil(16)]
}

fn map_huge(bytes: usize) -> Option<MmapMut> {
    let map = MmapMut::map_anon(bytes).ok()?;
    // Advice only: a system without huge pages goes on with small ones.
    let _ = map.advise(Advice::HugePage);
    Some(map)
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let all: &[f32] = match &self.memory {
            Memory::Heap(lines) => bytemuck::cast_slice(lines),
            Memory::Mapped(map) => bytemuck::cast_slice(&map[..map.len() & !3]),
        };
        &all[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let all: &mut [f32] = match &mut self.memory {
            Memory::Heap(lines) => bytemuck::cast_slice_mut(lines),
            Memory::Mapped(map) => {
                let whole = map.len() & !3;
                bytemuck::cast_slice_mut(&mut map[..whole])
            }
        };
        &mut all[..self.len]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} of {})", self.len, self.capacity())
    }
}

/// Buffers that wait for their next use.
#[derive(Debug, Default)]
pub struct Arena {
    free: Vec<Buffer>,
}

impl Arena {
    /// A buffer of `len` numbers whose contents are arbitrary; the tightest fit among the free ones.
    pub fn take(&mut self, len: usize) -> Buffer {
        if len == 0 {
            // Stands for a buffer that has been moved elsewhere: a small free one would be lost on it.
            return Buffer::zeros(0);
        }
        let fits = |buffer: &Buffer| buffer.capacity() >= len && buffer.capacity() <= 2 * len + 1024;
        let tightest =
            (0..self.free.len()).filter(|&i| fits(&self.free[i])).min_by_key(|&i| self.free[i].capacity());
        match tightest {
            Some(i) => {
                let mut buffer = self.free.swap_remove(i);
                buffer.set_len(len);
                buffer
            }
            // Batches differ by some per cent: the largest of them finds room where the first one was.
            None => Buffer::with_room(len, room(len + len / 8)),
        }
    }

    /// A buffer of `len` zeros.
    pub fn take_zeroed(&mut self, len: usize) -> Buffer {
        let mut buffer = self.take(len);
        buffer.fill(0.0);
        buffer
    }

    /// Keeps `buffer` for later.
    pub fn give(&mut self, buffer: Buffer) {
        if buffer.capacity() > 0 {
            self.free.push(buffer);
        }
    }

    /// Returns the memory of all free buffers to the system.
    pub fn clear(&mut self) {
        self.free.clear();
    }
}

/// `len` rounded up to two significant bits, so that a step and an evaluation, whose rows differ by some per cent,
/// share buffers.
fn room(len: usize) -> usize {
    let step = (len.max(4).next_power_of_two() / 4).max(1);
    len.div_ceil(step) * step
}

/// A row-major matrix that several steps (and several variables) read and nobody writes.
#[derive(Debug)]
pub struct Matrix {
    /// Number of rows.
    pub rows: usize,
    /// Numbers per row.
    pub cols: usize,
    /// The numbers.
    pub values: Values,
}

/// Where the numbers of a [`Matrix`] are.
#[derive(Debug)]
pub enum Values {
    /// In memory of our own.
    Own(Buffer),
    /// In the store that they come from, read in place.
    Stored(Array<f32>),
}

impl Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Own(buffer) => buffer,
            Self::Stored(array) => array,
        }
    }
}

impl From<Buffer> for Values {
    fn from(buffer: Buffer) -> Self {
        Self::Own(buffer)
    }
}

/// The sparse counterpart of [`Matrix`]: compressed rows.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseMatrix {
    /// Columns of the matrix.
    pub cols: usize,
    /// Row starts, one more than there are rows.
    pub offsets: Vec<u64>,
    /// Column of each stored number.
    pub columns: Vec<u32>,
    /// The stored numbers.
    pub values: Vec<f32>,
}

impl SparseMatrix {
    /// No rows yet, `cols` columns.
    pub fn empty(cols: usize) -> Self {
        Self { cols, offsets: vec![0], columns: Vec::new(), values: Vec::new() }
    }

    /// Columns and numbers of a row.
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let stored = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        (&self.columns[stored.clone()], &self.values[stored])
    }

    /// Adds a row of these columns and numbers.
    pub fn push_row(&mut self, columns: &[u32], values: impl Iterator<Item = f32>) {
        self.columns.extend_from_slice(columns);
        self.values.extend(values);
        self.offsets.push(self.columns.len() as u64);
    }

    /// The first `rows` rows, with some of their numbers dropped.
    pub fn first_rows<'a>(&'a self, rows: usize, dropout: Option<&'a DropoutRows>) -> SparseRows<'a> {
        SparseRows {
            offsets: &self.offsets[..rows + 1],
            columns: &self.columns,
            values: &self.values,
            width: self.cols,
            dropout: dropout.map(|dropout| dropout.kernel(rows)),
        }
    }
}

/// Input rows: node features in the order in which the rank's rows are numbered.
#[derive(Debug, Clone)]
pub enum Input {
    /// Every number is stored.
    Dense(Arc<Matrix>),
    /// Only the non-zero numbers are stored.
    Sparse(Arc<SparseMatrix>),
}

impl Input {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Dense(matrix) => matrix.rows,
            Self::Sparse(matrix) => matrix.offsets.len() - 1,
        }
    }

    /// Numbers per row.
    pub fn cols(&self) -> usize {
        match self {
            Self::Dense(matrix) => matrix.cols,
            Self::Sparse(matrix) => matrix.cols,
        }
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Dense(matrix) => 4 * matrix.values.len(),
            Self::Sparse(matrix) => 8 * matrix.offsets.len() + 8 * matrix.values.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_whatever_their_size() {
        for len in [0, 1, 17, 1 << 21, (1 << 21) + 3] {
            let buffer = Buffer::zeros(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
        }
    }

    #[test]
    fn an_arena_gives_back_the_tightest_buffer_that_fits() {
        let mut arena = Arena::default();
        arena.give(Buffer::zeros(1 << 20));
        arena.give(Buffer::zeros(700));
        assert_eq!(arena.take(600).capacity(), 704);
        assert_eq!(arena.take(90_000).capacity(), arena.take(97_000).capacity());
        assert_eq!(arena.take((1 << 20) - 5).capacity(), 1 << 20);
        assert_eq!(arena.take_zeroed(5)[..], [0.0; 5]);
    }
}
