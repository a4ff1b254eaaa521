//! Node features of a part as input rows: in the row order of a plan or of a batch, or all of them and those around it.

use crate::ops::Pool;
use crate::ops::isa::{Plain, Simd};
use crate::ops::pool::Shared;
use crate::run::Features;
use crate::tape::{Buffer, Input, Matrix, SparseMatrix, Tape, Values, Var};
use archipelago_graph::Part;
use archipelago_graph::store::{Guests, PartFeatures};
use std::sync::Arc;

/// Features of the owned rows of a part, scaled as the user asked for, read in place. A part without features has
/// rows of one 1, so that a model can still learn from the structure.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<'a> {
    stored: PartFeatures<'a>,
    scaling: Features,
}

impl<'a> Scaled<'a> {
    /// The features of `part`.
    pub fn of(part: &'a Part, scaling: Features) -> Self {
        Self { stored: part.features(), scaling }
    }

    /// Writes a row of dense features to `slot`.
    pub fn copy_dense(&self, row: usize, slot: &mut [f32]) {
        let PartFeatures::Dense { width, values } = self.stored else { return slot.fill(1.0) };
        let row = &values[row * width..][..width];
        slot.copy_from_slice(row);
        let scale = self.factor(row);
        if scale != 1.0 {
            slot.iter_mut().for_each(|value| *value *= scale);
        }
    }

    /// Asks for the cache lines of a row of dense features that will be copied soon. Any row is fine.
    pub fn expect_dense(&self, row: u64) {
        let PartFeatures::Dense { width, values } = self.stored else { return };
        let start = values.as_ptr().wrapping_add((row as usize).wrapping_mul(width));
        (0..width).step_by(16).for_each(|line| Plain::prefetch(start.wrapping_add(line)));
    }

    /// Columns, stored numbers and factor of a row of sparse features.
    pub fn sparse(&self, row: usize) -> (&'a [u32], &'a [f32], f32) {
        let PartFeatures::Sparse { offsets, columns, values, .. } = self.stored else {
            return (&[], &[], 1.0);
        };
        let stored = offsets[row] as usize..offsets[row + 1] as usize;
        let values = &values[stored.clone()];
        (&columns[stored], values, self.factor(values))
    }

    /// Adds a row of sparse features to `made`.
    fn add_sparse(&self, row: usize, made: &mut SparseMatrix) {
        let (columns, values, scale) = self.sparse(row);
        made.push_row(columns, values.iter().map(|value| value * scale));
    }

    /// What a stored row is multiplied by.
    fn factor(&self, row: &[f32]) -> f32 {
        match self.scaling {
            Features::AsIs => 1.0,
            Features::RowNormalized => match row.iter().sum::<f32>() {
                0.0 => 1.0,
                sum => 1.0 / sum,
            },
        }
    }
}

/// The features of these owned rows of `part`, in this order.
pub fn rows(part: &Part, wanted: &[u32], scaling: Features) -> Input {
    let features = Scaled::of(part, scaling);
    let Some(width) = dense_width(part) else { return sparse(part, &features, wanted) };
    let mut values = Buffer::zeros(wanted.len() * width);
    copy_rows(&Pool::default(), &mut values, width, |at, slot| {
        features.copy_dense(wanted[at] as usize, slot)
    });
    Input::Dense(Arc::new(Matrix { rows: wanted.len(), cols: width, values: values.into() }))
}

/// The same as a constant of one step: dense rows are in memory that `tape` uses again.
pub fn constant(tape: &mut Tape, part: &Part, wanted: &[u32], scaling: Features) -> Var {
    let features = Scaled::of(part, scaling);
    let Some(width) = dense_width(part) else {
        return tape.constant(&sparse(part, &features, wanted), wanted.len());
    };
    let mut values = tape.arena.take(wanted.len() * width);
    copy_rows(&tape.pool, &mut values, width, |at, slot| features.copy_dense(wanted[at] as usize, slot));
    tape.pinned(wanted.len(), width, values, false)
}

/// Has every row of `values` written, by all threads.
fn copy_rows(pool: &Pool, values: &mut [f32], width: usize, row: impl Fn(usize, &mut [f32]) + Sync) {
    /// Rows that a thread copies at a time.
    const GRAIN: usize = 1 << 9;
    let (rows, slots) = (values.len() / width, Shared::new(values));
    pool.for_ranges(rows, GRAIN, |range| {
        // SAFETY: ranges do not overlap, and `values` is borrowed until all are done.
        let slots = unsafe { slots.part(range.start * width, range.len() * width) };
        range.zip(slots.chunks_exact_mut(width)).for_each(|(at, slot)| row(at, slot));
    });
}

/// The features of all owned rows of `part`, in their order; read in place where nothing has to be done to them.
pub fn all_rows(part: &Part, scaling: Features) -> Input {
    match (part.features(), scaling) {
        (PartFeatures::Dense { width, .. }, Features::AsIs) => {
            let values = Values::Stored(part.feature_values());
            Input::Dense(Arc::new(Matrix { rows: part.owned(), cols: width, values }))
        }
        _ => rows(part, &(0..part.owned() as u32).collect::<Vec<_>>(), scaling),
    }
}

/// The features of all owned rows of `part`, in their order, and then of the `guests` around it.
pub fn with_guests(part: &Part, guests: &Guests, scaling: Features, pool: &Pool) -> Input {
    let (own, owned) = (Scaled::of(part, scaling), part.owned());
    let around = Scaled { stored: part.features_of(guests), scaling };
    let rows = owned + guests.ids.len();
    let Some(width) = dense_width(part) else {
        let mut made = SparseMatrix::empty(width(part));
        (0..owned).for_each(|row| own.add_sparse(row, &mut made));
        (0..guests.ids.len()).for_each(|row| around.add_sparse(row, &mut made));
        return Input::Sparse(Arc::new(made));
    };
    let mut values = Buffer::zeros(rows * width);
    copy_rows(pool, &mut values, width, |row, slot| match row.checked_sub(owned) {
        None => own.copy_dense(row, slot),
        Some(guest) => around.copy_dense(guest, slot),
    });
    Input::Dense(Arc::new(Matrix { rows, cols: width, values: values.into() }))
}

/// How wide the rows that [`rows`] gives are.
pub fn width(part: &Part) -> usize {
    part.feature_width().max(1)
}

/// How wide rows are where they are dense.
pub fn dense_width(part: &Part) -> Option<usize> {
    match part.features() {
        PartFeatures::Sparse { .. } => None,
        _ => Some(width(part)),
    }
}

fn sparse(part: &Part, features: &Scaled<'_>, wanted: &[u32]) -> Input {
    let mut made = SparseMatrix::empty(width(part));
    wanted.iter().for_each(|&row| features.add_sparse(row as usize, &mut made));
    Input::Sparse(Arc::new(made))
}
