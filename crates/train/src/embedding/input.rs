//! Features and embeddings side by side: the input rows of a step and of an evaluation.
//!
//! A layer reads one variable, so sparse features become dense here: a second term of the first layer would have to
//! be known to every layer and residual. Batches are small; what an evaluation takes is in the stated memory.
//!
//! Every verb here is the plain one where a run has no embeddings.

use super::Embeddings;
use crate::run::RunConfig;
use crate::tape::{Input, Tape, Var};
use crate::worker::Worker;
use crate::{Result, feature};
use archipelago_graph::Part;

/// Numbers per input row of a model: features, or a 1 where there is nothing else, and embeddings.
pub fn input_width(part: &Part, config: &RunConfig) -> usize {
    match config.model.embedding {
        0 => feature::width(part),
        width => part.feature_width() + width,
    }
}

/// The input rows of a batch of `nodes` (global ids) with these features. All ranks ask together.
pub fn step_input(worker: &mut Worker, features: &Input, nodes: &[u64]) -> Result<Var> {
    let Worker { comm, part, tape, embeddings, .. } = worker;
    let Some(embeddings) = embeddings else { return Ok(tape.constant(features, features.rows())) };
    let pulled = embeddings.pull(comm, part, nodes)?;
    Ok(side_by_side(tape, features, part.feature_width(), &pulled, embeddings.width()))
}

/// Moves the embeddings of `nodes` along the gradient of the `input` that [`step_input`] gave, after backward.
pub fn learn(worker: &mut Worker, nodes: &[u64], input: Var) -> Result<()> {
    let Worker { comm, part, tape, embeddings, .. } = worker;
    let Some(embeddings) = embeddings else { return Ok(()) };
    // Nothing depends on the rows of a batch without targets.
    let Some(gradient) = tape.take_gradient(input) else { return embeddings.push(comm, part, &[], &[]) };
    let (cols, width) = (tape.cols(input), embeddings.width());
    let learned = gradient.chunks_exact(cols).flat_map(|row| &row[cols - width..]).copied();
    embeddings.push(comm, part, nodes, &learned.collect::<Vec<_>>())?;
    tape.arena.give(gradient);
    Ok(())
}

/// Makes all updates that are under way, so that whoever reads rows next sees every one. Ends an epoch.
pub fn settle(worker: &mut Worker) -> Result<()> {
    let Worker { comm, embeddings, .. } = worker;
    embeddings.as_mut().map_or(Ok(()), |embeddings| embeddings.settle(comm))
}

/// The input rows of all owned nodes as they are now, in the order of the part.
pub fn all_input(worker: &mut Worker) -> Var {
    let Worker { part, tape, statics, order, embeddings, .. } = worker;
    match embeddings {
        None => tape.constant(&statics.features, order.len()),
        Some(Embeddings { rows, width, .. }) => {
            debug_assert!(order.iter().zip(0..).all(|(&row, at)| row == at), "batches have no order of rows");
            side_by_side(tape, &statics.features, part.feature_width(), rows, *width)
        }
    }
}

/// The embeddings of all nodes, in the user's order; at rank 0. `None` elsewhere, and where there are none.
pub fn gather_rows(worker: &Worker) -> Result<Option<Vec<f32>>> {
    let Some(embeddings) = &worker.embeddings else { return Ok(None) };
    super::kept::gather(&worker.comm, &worker.part, embeddings.rows(), embeddings.width())
}

/// Rows of `features`, of which the first `columns` count, each followed by its row of `learned`. The gradient of the
/// whole is there after backward, until it is taken.
fn side_by_side(tape: &mut Tape, features: &Input, columns: usize, learned: &[f32], width: usize) -> Var {
    let (rows, cols) = (features.rows(), columns + width);
    let mut joined = tape.arena.take(rows * cols);
    for (row, (slot, learned)) in joined.chunks_exact_mut(cols).zip(learned.chunks_exact(width)).enumerate() {
        let (given, own) = slot.split_at_mut(columns);
        own.copy_from_slice(learned);
        match features {
            Input::Dense(matrix) => given.copy_from_slice(&matrix.values[row * matrix.cols..][..columns]),
            Input::Sparse(matrix) => {
                given.fill(0.0);
                let (columns, values) = matrix.row(row);
                columns.iter().zip(values).for_each(|(&column, value)| given[column as usize] += value);
            }
        }
    }
    tape.computed(rows, cols, joined, true)
}
