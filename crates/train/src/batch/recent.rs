//! Remote rows of the last batch, kept for the next one: consecutive batches meet many of the same nodes.
//!
//! Which rows a batch can take from here is known when the rows of the batch before it have been asked for, whether or
//! not they have come; so what is pulled depends on the batches alone, and never on who was faster. Memory: the remote
//! rows of one batch.

use crate::tape::{Input, SparseMatrix};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Where nodes stand among the remote rows of a batch.
pub(super) type Index = HashMap<u64, u32, BuildHasherDefault<IdHash>>;

/// Spreads node ids, which are distinct but not random, over the bits that a table looks at.
#[derive(Default)]
pub(super) struct IdHash(u64);

impl Hasher for IdHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, id: u64) {
        let spread = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 29);
    }
}

/// The remote rows of one batch.
#[derive(Debug)]
pub(super) struct Table {
    originals: Vec<u64>,
    degrees: Vec<f32>,
    rows: Rows,
}

#[derive(Debug)]
enum Rows {
    Dense(usize, Vec<f32>),
    Sparse(SparseMatrix),
}

impl Table {
    /// Copies these `rows` of a batch, into the memory of a table that is not needed any more.
    pub fn of(input: &Input, originals: &[u64], degrees: &[f32], rows: &[u32], spent: Option<Self>) -> Self {
        let picked = rows.iter().map(|&row| row as usize);
        let copied = match input {
            Input::Dense(matrix) => {
                let width = matrix.cols;
                let mut values = match spent {
                    Some(Self { rows: Rows::Dense(_, values), .. }) => values,
                    _ => Vec::new(),
                };
                values.clear();
                values.reserve(rows.len() * width);
                picked
                    .clone()
                    .for_each(|row| values.extend_from_slice(&matrix.values[row * width..][..width]));
                Rows::Dense(width, values)
            }
            Input::Sparse(matrix) => {
                let mut made = SparseMatrix::empty(matrix.cols);
                for row in picked.clone() {
                    let (columns, values) = matrix.row(row);
                    made.push_row(columns, values.iter().copied());
                }
                Rows::Sparse(made)
            }
        };
        Self {
            originals: picked.clone().map(|row| originals[row]).collect(),
            degrees: picked.map(|row| degrees[row]).collect(),
            rows: copied,
        }
    }

    /// The original id of row `at`.
    pub fn original(&self, at: usize) -> u64 {
        self.originals[at]
    }

    /// The weighted degree of row `at`.
    pub fn degree(&self, at: usize) -> f32 {
        self.degrees[at]
    }

    /// The numbers of row `at` of dense rows.
    pub fn dense(&self, at: usize) -> &[f32] {
        match &self.rows {
            Rows::Dense(width, values) => &values[at * width..][..*width],
            Rows::Sparse(_) => &[],
        }
    }

    /// Columns and numbers of row `at` of sparse rows.
    pub fn sparse(&self, at: usize) -> (&[u32], &[f32]) {
        match &self.rows {
            Rows::Sparse(matrix) => matrix.row(at),
            Rows::Dense(..) => (&[], &[]),
        }
    }
}
