//! What the strategies share in which every rank computes a batch of its own and gradients are summed.

use super::EpochOutcome;
use super::on_island::islands;
use crate::batch::launcher::Launcher;
use crate::batch::operators::Operators;
use crate::batch::{Batches, LinkBatch, Prepared, Shares, negative};
use crate::boundary::Pulled;
use crate::decoder::{DECODERS, Pairs};
use crate::island::Isle;
use crate::links::LinkTask;
use crate::model::Pass;
use crate::run::RunConfig;
use crate::tape::{Goal, Tape, Var};
use crate::worker::Worker;
use crate::{Error, Result, embedding};
use archipelago_comm::{Comm, Phase};
use archipelago_graph::sample;
use std::sync::Arc;

/// Refuses fan-outs that do not fit the model, and samplers that nobody knows.
pub fn check(config: &RunConfig) -> Result<()> {
    let (fanouts, layers) = (config.train.fanouts.len(), config.model.layers);
    if fanouts != layers {
        let message = format!("expected one fan-out per layer ({layers}), found {fanouts}");
        return Err(Error::config(config.place("train.fanouts"), "train.fanouts", message)
            .with_hint("fan-outs count from the targets outward; -1 takes all neighbours"));
    }
    let samplers: Vec<_> = sample::samplers().map(|entry| entry.name).collect();
    let decoders: Vec<_> = DECODERS.iter().map(|entry| entry.name).collect();
    let negatives: Vec<_> = negative::NEGATIVES.iter().map(|entry| entry.name).collect();
    config.check_name("train.sampler", &samplers)?;
    config.check_name("train.decoder", &decoders)?;
    config.check_name("train.negative_sampler", &negatives)
}

/// What strategies do differently in a step on a batch of a rank's own.
pub trait Rules {
    /// How often the loss of each target counts; once where nothing is said.
    fn weights(&mut self, _prepared: &Prepared) -> Option<Vec<f32>> {
        None
    }

    /// Moves the weights along the gradient of a batch.
    fn update(&mut self, worker: &mut Worker, _prepared: &Prepared, epoch: u64, step: u64) -> Result<()> {
        worker.update(epoch, step)
    }
}

/// Gradients are summed as they are.
pub struct Summed;

impl Rules for Summed {}

/// One rank's batches, and the step that is made of each.
pub struct OwnBatch {
    batches: Batches,
    /// Among whom edges and features are asked for.
    comm: Arc<Comm>,
}

impl OwnBatch {
    /// Batches of this rank's share of the training nodes (or links). All ranks agree on shares together.
    pub fn new(worker: &Worker) -> Result<Self> {
        let batches = Batches::agree(worker, operators(worker)?)?;
        Ok(Self { batches, comm: Arc::clone(&worker.comm) })
    }

    /// Batches of an island, of which others are asked nothing: `counts` targets are on the islands that make steps
    /// together, of which this is the one at `seat`.
    pub fn on_island(worker: &Worker, isle: &Isle, counts: Vec<usize>, seat: usize) -> Result<Self> {
        let batches = Batches::on_island(worker, isle, Shares::kept(counts), seat, operators(worker)?)?;
        Ok(Self { batches, comm: Arc::clone(&islands(worker)?.alone) })
    }

    /// One epoch; without a launcher each batch is drawn when the last one is done, which only a rank that is alone
    /// can do.
    pub fn epoch(
        &self,
        worker: &mut Worker,
        epoch: u64,
        step: u64,
        launcher: Option<&mut dyn Launcher>,
        rules: &mut dyn Rules,
    ) -> Result<EpochOutcome> {
        let comm = Arc::clone(&self.comm);
        let mut outcome = EpochOutcome::default();
        let train = |prepared: Prepared| {
            outcome.loss += self.step(worker, &prepared, epoch, rules)?;
            outcome.steps += 1;
            rules.update(worker, &prepared, epoch, step + outcome.steps)?;
            self.batches.retire(prepared);
            Ok(())
        };
        let loading = match launcher {
            Some(launcher) => self.batches.epoch(&comm, epoch, launcher, train)?,
            None => self.batches.epoch_in_place(&comm, epoch, train)?,
        };
        embedding::settle(worker)?;
        Ok(EpochOutcome { loading, ..outcome })
    }

    /// Forward and backward of one batch; returns this rank's share of the epoch's mean loss.
    fn step(
        &self,
        worker: &mut Worker,
        prepared: &Prepared,
        epoch: u64,
        rules: &mut dyn Rules,
    ) -> Result<f64> {
        let step = prepared.step as usize;
        worker.comm.enter(Phase { epoch: epoch as usize, step, layer: 0, what: "step" });
        worker.tape.begin_step(worker.config.train.seed, epoch as usize, step);
        let input = embedding::step_input(worker, &prepared.input, &prepared.nodes)?;
        let mut boundary = Pulled::new(Arc::clone(&self.comm));
        let pass = Pass { layouts: &prepared.layouts, input, statics: None, keep_embeddings: false };
        let scores = worker.model.forward(&mut worker.tape, &mut boundary, pass)?.output;
        let count = self.batches.in_step(prepared.step);
        let loss = match (self.batches.labels(prepared), &worker.links, &prepared.links) {
            (Some(labels), ..) => {
                let weights = rules.weights(prepared);
                let goal = Goal { weights: weights.as_deref(), ..labels.goal() };
                worker.tape.loss(scores, goal, worker.loss_weight(count))
            }
            (None, Some(task), Some(links)) => link_loss(&mut worker.tape, task, links, scores, count),
            _ => 0.0,
        };
        worker.tape.backward(&mut boundary)?;
        embedding::learn(worker, &prepared.nodes, input)?;
        worker.tape.reset();
        Ok(loss * count as f64 / worker.all_targets.max(1) as f64)
    }
}

/// The operators that the batches of a run are drawn with.
fn operators(worker: &Worker) -> Result<Operators> {
    match &worker.operators {
        Some(operators) => Ok(operators.clone()),
        None => Operators::of(&worker.config),
    }
}

/// The loss of the links of a batch, whose ends are `rows`; there are `count` true ones on all ranks.
fn link_loss(tape: &mut Tape, task: &LinkTask, links: &LinkBatch, rows: Var, count: u64) -> f64 {
    let pairs = Pairs { left: &links.left, right: &links.right, kinds: &links.kinds };
    let scores = task.scorer.scores(tape, rows, pairs);
    let weight = (1.0 / count.max(1) as f64) as f32;
    tape.link_loss(scores, links.positives, links.negatives, task.loss, weight)
}
