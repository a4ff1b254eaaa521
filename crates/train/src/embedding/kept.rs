//! What a checkpoint keeps of embeddings: all rows in the order of the user's nodes, so that any cut can read them.

use super::Embeddings;
use crate::checkpoint::{Checkpoint, Tensor};
use crate::infer::in_user_order;
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::Part;
use bytemuck::Pod;

/// What embeddings are called among the weights.
pub const NAME: &str = "embedding";

const FIRST: &str = "embedding.first";
const SECOND: &str = "embedding.second";
const STEPS: &str = "embedding.steps";

/// The embeddings of all nodes and what their optimiser remembers, in the user's order.
pub struct Kept {
    width: usize,
    rows: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    steps: Vec<u64>,
}

/// Gathers the embeddings of all ranks at rank 0. `None` elsewhere, and where there are none. All ranks keep together.
pub fn keep(worker: &Worker) -> Result<Option<Kept>> {
    let (comm, part) = (&worker.comm, &worker.part);
    let Some(Embeddings { width, rows, rule, .. }) = &worker.embeddings else { return Ok(None) };
    let rows = gather(comm, part, rows, *width)?;
    let first = gather(comm, part, &rule.first, *width)?;
    let second = gather(comm, part, &rule.second, *width)?;
    let steps = gather(comm, part, &rule.steps, 1)?;
    let (Some(rows), Some(first), Some(second), Some(steps)) = (rows, first, second, steps) else {
        return Ok(None);
    };
    Ok(Some(Kept { width: *width, rows, first, second, steps }))
}

/// `width` values for every owned node of every rank, in the user's order at rank 0; nothing where no rank has any.
pub(super) fn gather<T: Pod>(comm: &Comm, part: &Part, values: &[T], width: usize) -> Result<Option<Vec<T>>> {
    let nodes = if values.is_empty() { &[][..] } else { part.original() };
    let nodes = comm.gather(0, nodes, Kind::Control)?;
    let values = comm.gather(0, values, Kind::Weights)?;
    Ok(nodes.zip(values).map(|(nodes, values)| in_user_order(&nodes, &values, width)))
}

impl Kept {
    /// Writes them into a checkpoint: the rows among its weights.
    pub fn put(self, checkpoint: &mut Checkpoint) {
        let Self { width, rows, first, second, steps } = self;
        let tensor = Tensor { name: NAME.into(), rows: rows.len() / width, cols: width, values: rows };
        let place = checkpoint.weights.partition_point(|weight| weight.name.as_str() < NAME);
        checkpoint.weights.insert(place, tensor);
        checkpoint.floats.extend([(FIRST.into(), first), (SECOND.into(), second)]);
        checkpoint.words.insert(STEPS.into(), steps);
    }
}

impl Embeddings {
    /// Takes the rows of a checkpoint, which must be of as many nodes; for a model that is used as it is.
    pub fn restore_rows(&mut self, part: &Part, checkpoint: &Checkpoint) -> Result<()> {
        let kept = checkpoint.weights.iter().find(|weight| weight.name == NAME);
        take(part, &mut self.rows, self.width, kept.map(|kept| &kept.values))
    }

    /// The same with what the optimiser remembers, to go on learning.
    pub fn restore(&mut self, part: &Part, checkpoint: &Checkpoint) -> Result<()> {
        self.restore_rows(part, checkpoint)?;
        take(part, &mut self.rule.first, self.width, checkpoint.floats.get(FIRST))?;
        take(part, &mut self.rule.second, self.width, checkpoint.floats.get(SECOND))?;
        take(part, &mut self.rule.steps, 1, checkpoint.words.get(STEPS))
    }
}

/// Copies the values of owned nodes; none where this rule remembers none.
fn take<T: Pod>(part: &Part, values: &mut [T], width: usize, kept: Option<&Vec<T>>) -> Result<()> {
    if part.owned() == 0 {
        return Ok(());
    }
    let kept = kept.map_or(&[][..], Vec::as_slice);
    let nodes = part.starts().last().copied().unwrap_or(0) as usize;
    let wanted = if values.is_empty() { 0 } else { nodes * width };
    if kept.len() != wanted {
        let message =
            format!("expected {wanted} numbers of embeddings or their optimiser, found {}", kept.len());
        return Err(Error::checkpoint("weights.safetensors", message)
            .with_hint("the checkpoint is of another graph, another width or another optimiser"));
    }
    for (slot, &node) in values.chunks_exact_mut(width).zip(part.original()) {
        slot.copy_from_slice(&kept[node as usize * width..][..width]);
    }
    Ok(())
}
