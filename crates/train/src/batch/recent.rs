//! The last batch, of which the next one takes over rows that other ranks own: consecutive batches meet many of the same
//! nodes.
//!
//! Which rows a batch can take from here is known when the rows of the batch before it have been asked for, whether or
//! not they have come; so what is pulled depends on the batches alone, and never on who was faster. Nothing is copied:
//! the batch waits for training, or is trained on, while the next one is filled.

use crate::ops::isa::{Plain, Simd};
use crate::tape::{Arena, Input, Matrix, Values};
use crate::view::Layout;
use std::sync::Arc;

/// The input rows of one batch.
#[derive(Debug)]
pub(super) struct Table {
    /// The first layer, which reads all rows.
    layout: Arc<Layout>,
    input: Input,
}

impl Table {
    /// The rows that `layout` reads from `input`.
    pub fn new(layout: Arc<Layout>, input: Input) -> Self {
        Self { layout, input }
    }

    /// Gives the memory back, unless training still reads it.
    pub fn retire(self, arena: &mut Arena) {
        retire(self.input, arena);
    }

    /// The original id of row `at`.
    pub fn original(&self, at: usize) -> u64 {
        self.layout.nodes[at]
    }

    /// The weighted degree of row `at`.
    pub fn degree(&self, at: usize) -> f32 {
        self.layout.degrees[at]
    }

    /// The numbers of row `at` of dense rows.
    pub fn dense(&self, at: usize) -> &[f32] {
        match &self.input {
            Input::Dense(matrix) => &matrix.values[at * matrix.cols..][..matrix.cols],
            Input::Sparse(_) => &[],
        }
    }

    /// Asks for the cache lines of row `at` of dense rows, which will be read soon.
    pub fn expect_dense(&self, at: usize) {
        let row = self.dense(at);
        row.iter().step_by(16).for_each(|line| Plain::prefetch(line));
    }

    /// Columns and numbers of row `at` of sparse rows.
    pub fn sparse(&self, at: usize) -> (&[u32], &[f32]) {
        match &self.input {
            Input::Sparse(matrix) => matrix.row(at),
            Input::Dense(_) => (&[], &[]),
        }
    }
}

/// Gives the memory of an input back, if nobody else holds on to it.
pub(super) fn retire(input: Input, arena: &mut Arena) {
    if let Input::Dense(matrix) = input
        && let Some(Matrix { values: Values::Own(buffer), .. }) = Arc::into_inner(matrix)
    {
        arena.give(buffer);
    }
}
