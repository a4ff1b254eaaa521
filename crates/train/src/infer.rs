//! Predictions and scores of a trained model, exact, in the user's ids and order: of nodes, or of links.
//!
//! Where parts take turns in training they do so here ([`evaluate_turns`](crate::evaluate_turns)).

use crate::checkpoint::{Checkpoint, Slot};
use crate::evaluate_links::{OwnRows, in_part_order, score_pairs};
use crate::event::{Evaluation, MemoryNeed};
use crate::ops::Pool;
use crate::residency::Turns;
use crate::run::Task;
use crate::strategy::{self, Behavior};
use crate::trainer::{Run, threads};
use crate::worker::Worker;
use crate::{Error, Result, evaluate, infer_turns, memory};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::array::Array;
use archipelago_graph::links::Pair;
use bytemuck::Pod;
use std::path::Path;

/// What a model says of every node, row `i` being the user's node `i`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Predictions {
    /// How many nodes there are.
    pub nodes: usize,
    /// Scores per node: classes or labels; 0 where links are predicted.
    pub classes: usize,
    /// Row-major `[nodes, classes]`. In memory, or, where parts take turns, in a nameless file that is read in place.
    pub scores: Array<f32>,
    /// Width and rows of what the last layer read, where asked for; where links are predicted, always the rows that
    /// their scores are made of.
    pub embeddings: Option<(usize, Array<f32>)>,
}

/// What a trained model is run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Scores of splits.
    Evaluate,
    /// What it says of every node.
    Infer {
        /// With what the last layer read.
        embeddings: bool,
    },
}

impl Run<'_> {
    /// Scores of all splits with the weights of a checkpoint.
    pub fn evaluate(&self, checkpoint: &Checkpoint) -> Result<Evaluation> {
        let (behavior, turns) = self.turns()?;
        let behavior = Behavior { global_batch: false, ..behavior };
        let mut found = self.launch_ranks(turns.ranks(), |comm| {
            let mut worker = self.restored(comm, checkpoint, behavior)?;
            evaluate::evaluate(&mut worker, checkpoint.state.epoch)
        })?;
        Ok(found.swap_remove(0))
    }

    /// Predictions for all nodes with the weights of a checkpoint; `None` in all processes but the first. Where parts
    /// take turns they are those of all parts at once but for rounding: a sum over neighbours has another order.
    pub fn infer(&self, checkpoint: &Checkpoint, embeddings: bool) -> Result<Option<Predictions>> {
        let (behavior, turns) = self.turns()?;
        let mut found = self.launch_ranks(turns.ranks(), |comm| match turns.rotate() {
            true => {
                let mut worker = self.restored(comm, checkpoint, behavior)?;
                infer_turns::predict(&mut worker, embeddings, &self.scratch())
            }
            false => predict(&mut self.restored(comm, checkpoint, Behavior::OWN)?, embeddings),
        })?;
        Ok(found.swap_remove(0))
    }

    /// Where parts take turns: how, and the memory that the first process will need for this; no other needs more.
    pub fn need_in_turns(&self, work: Work) -> Result<Option<(Turns, MemoryNeed)>> {
        let (_, turns) = self.turns()?;
        if !turns.rotate() {
            return Ok(None);
        }
        let (manifest, processes) = (self.store.manifest(), self.job.processes());
        Ok(Some((turns, memory::in_turns(&self.config, manifest, turns, processes, work)?)))
    }

    /// How ranks behave in training, and the turns that parts take on them: where they did in training they do here.
    fn turns(&self) -> Result<(Behavior, Turns)> {
        let (behavior, parts) = (strategy::find(&self.config.strategy.name)?.behavior, self.store.parts());
        Ok((behavior, Turns::new(parts as usize, behavior.ranks(&self.config, parts))))
    }

    /// The decoder's score of each of `pairs`, in their order, with the weights of a checkpoint; `None` in all processes
    /// but the first, whose pairs count.
    pub fn score_links(&self, checkpoint: &Checkpoint, pairs: &[Pair]) -> Result<Option<Vec<f32>>> {
        let nodes = self.store.manifest().nodes;
        if let Some(pair) = pairs.iter().find(|pair| pair.source.max(pair.target) >= nodes) {
            let (source, target) = (pair.source, pair.target);
            let message = format!("expected node ids below {nodes}, found `{source}` and `{target}`");
            return Err(archipelago_graph::Error::usage(message).into());
        }
        if self.config.train.task != Task::Link {
            let message = "the run predicts classes of nodes, not links: its model has no decoder";
            return Err(Error::from(archipelago_graph::Error::usage(message))
                .with_hint("train with `train.task = \"link\"` to score links"));
        }
        let mut found = self.launch(|comm| {
            let mut worker = self.restored(comm, checkpoint, Behavior::OWN)?;
            score(&mut worker, pairs)
        })?;
        Ok(found.swap_remove(0))
    }

    fn restored(&self, comm: Comm, checkpoint: &Checkpoint, behavior: Behavior) -> Result<Worker> {
        let pool = Pool::new(threads(&self.config));
        let mut worker = self.worker(comm, &pool, behavior)?;
        checkpoint.restore_weights(&mut worker.tape.parameters)?;
        checkpoint.restore_buffers(&mut worker.tape.buffers)?;
        if let Some(embeddings) = &mut worker.embeddings {
            embeddings.restore_rows(&worker.part, checkpoint)?;
        }
        Ok(worker)
    }
}

/// The best checkpoint of a run, or the last where none was called best.
pub fn best_or_last(run: &Path) -> Result<Checkpoint> {
    match Slot::Best.path(run).exists() {
        true => Checkpoint::load(run, Slot::Best),
        false => Checkpoint::load(run, Slot::Last),
    }
}

/// Runs the model and scores pairs by its final rows, at rank 0.
fn score(worker: &mut Worker, pairs: &[Pair]) -> Result<Option<Vec<f32>>> {
    let outcome = evaluate::forward_all(worker, false)?;
    let width = worker.tape.cols(outcome.output);
    let values = in_part_order(&worker.order, worker.tape.value(outcome.output), width);
    let own = OwnRows { comm: &worker.comm, part: &worker.part, values: &values, width };
    match &worker.links {
        Some(task) => score_pairs(&mut worker.tape, &task.scorer, own, pairs),
        None => Ok(None),
    }
}

/// Runs the model and gathers its rows at rank 0.
fn predict(worker: &mut Worker, embeddings: bool) -> Result<Option<Predictions>> {
    let outcome = evaluate::forward_all(worker, embeddings)?;
    let nodes: Vec<u64> = worker.order.iter().map(|&row| worker.part.original()[row as usize]).collect();
    let nodes = worker.comm.gather(0, &nodes, Kind::Control)?;
    let scores = worker.comm.gather(0, worker.tape.value(outcome.output), Kind::Embeddings)?;
    let hidden = match outcome.embeddings {
        Some(rows) => {
            let width = worker.tape.cols(rows);
            let rows = worker.tape.dense(rows);
            let gathered = worker.comm.gather(0, worker.tape.value(rows), Kind::Embeddings)?;
            gathered.map(|rows| (width, rows))
        }
        None => None,
    };
    let (Some(nodes), Some(scores)) = (nodes, scores) else { return Ok(None) };
    let (count, width) = (nodes.iter().map(Vec::len).sum(), worker.tape.cols(outcome.output));
    let output = in_user_order(&nodes, &scores, width);
    if worker.links.is_some() {
        let embeddings = Some((width, output.into()));
        return Ok(Some(Predictions { nodes: count, embeddings, ..Predictions::default() }));
    }
    Ok(Some(Predictions {
        nodes: count,
        classes: width,
        scores: output.into(),
        embeddings: hidden.map(|(width, rows)| (width, in_user_order(&nodes, &rows, width).into())),
    }))
}

/// Puts the rows of all ranks where their nodes stand in the user's numbering.
pub(crate) fn in_user_order<T: Pod>(nodes: &[Vec<u64>], rows: &[Vec<T>], width: usize) -> Vec<T> {
    let count: usize = nodes.iter().map(Vec::len).sum();
    let mut ordered = vec![T::zeroed(); count * width];
    for (nodes, rows) in nodes.iter().zip(rows) {
        for (node, row) in nodes.iter().zip(rows.chunks_exact(width.max(1))) {
            ordered[*node as usize * width..][..width].copy_from_slice(row);
        }
    }
    ordered
}
