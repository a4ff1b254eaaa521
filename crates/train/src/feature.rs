//! Node features of a part as input rows, in the row order of a plan or of a batch.

use crate::run::Features;
use crate::tape::{Buffer, Input, Matrix, SparseMatrix};
use archipelago_graph::Part;
use archipelago_graph::store::PartFeatures;
use std::sync::Arc;

/// What a stored row is multiplied by.
fn factor(scaling: Features, row: &[f32]) -> f32 {
    match (scaling, row.iter().sum::<f32>()) {
        (Features::AsIs, _) | (Features::RowNormalized, 0.0) => 1.0,
        (Features::RowNormalized, sum) => 1.0 / sum,
    }
}

/// The features of these owned rows of `part`, in this order. A part without features gives rows of one 1, so
/// that a model can still learn from the structure.
pub fn rows(part: &Part, wanted: &[u32], scaling: Features) -> Input {
    match part.features() {
        PartFeatures::None => dense(1, wanted, Features::AsIs, |_| &[1.0]),
        PartFeatures::Dense { width, values } => {
            dense(width, wanted, scaling, |row| &values[row * width..][..width])
        }
        PartFeatures::Sparse { width, offsets, columns, values } => {
            sparse(width, offsets, columns, values, wanted, scaling)
        }
    }
}

/// How wide the rows that [`rows`] gives are.
pub fn width(part: &Part) -> usize {
    part.feature_width().max(1)
}

fn dense<'a>(width: usize, wanted: &[u32], scaling: Features, row: impl Fn(usize) -> &'a [f32]) -> Input {
    let mut values = Buffer::zeros(wanted.len() * width);
    for (slot, &node) in values.chunks_exact_mut(width).zip(wanted) {
        let row = row(node as usize);
        slot.copy_from_slice(row);
        let scale = factor(scaling, row);
        if scale != 1.0 {
            slot.iter_mut().for_each(|value| *value *= scale);
        }
    }
    Input::Dense(Arc::new(Matrix { rows: wanted.len(), cols: width, values }))
}

fn sparse(
    width: usize,
    offsets: &[u64],
    columns: &[u32],
    values: &[f32],
    wanted: &[u32],
    scaling: Features,
) -> Input {
    let mut made = SparseMatrix { cols: width, offsets: vec![0], columns: Vec::new(), values: Vec::new() };
    for &row in wanted {
        let stored = offsets[row as usize] as usize..offsets[row as usize + 1] as usize;
        let scale = factor(scaling, &values[stored.clone()]);
        made.columns.extend_from_slice(&columns[stored.clone()]);
        made.values.extend(values[stored].iter().map(|value| value * scale));
        made.offsets.push(made.columns.len() as u64);
    }
    Input::Sparse(Arc::new(made))
}
