//! Plain mini-batches on one part: targets are shuffled and cut into batches, neighbours are sampled.
//!
//! The same blocks, views and layers as the full batch: only who is computed differs (Hamilton et al., NeurIPS
//! 2017). GCN's normalisation uses whole-graph degrees and scales a sampled neighbourhood up to the whole one.

use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::boundary::Isolated;
use crate::feature;
use crate::model::Pass;
use crate::run::RunConfig;
use crate::view::{Layout, Routes};
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result, plan};
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::{self, Sampler};
use archipelago_graph::{Batch, Part};
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    name: "mini",
    summary: "neighbour-sampled mini-batches on one part",
    paper: "Hamilton et al., NeurIPS 2017",
    behavior: Behavior { exact: false, global_batch: false, distributed: false, ranks_equal: true },
    check,
    build: |worker| Ok(Box::new(Mini::new(worker)?)),
};

struct Mini {
    sampler: Box<dyn Sampler>,
    targets: Vec<u32>,
    shuffled: Vec<u32>,
}

impl Mini {
    fn new(worker: &Worker) -> Result<Self> {
        let targets = worker.order[..worker.targets].to_vec();
        let fanouts =
            worker.config.train.fanouts.iter().map(|&fanout| fanout.clamp(-1, i64::from(i32::MAX)) as i32);
        let options = sample::Options { fanouts: fanouts.collect() };
        let sampler = (sample::find("neighbor")?.build)(&options)?;
        Ok(Self { sampler, shuffled: targets.clone(), targets })
    }
}

fn check(config: &RunConfig, parts: u32) -> Result<()> {
    if parts > 1 {
        let message = format!("expected 1 with strategy `mini`, found `{parts}`");
        return Err(Error::config(config.place("data.parts"), "data.parts", message)
            .with_hint("use strategy `full` on several parts"));
    }
    let (fanouts, layers) = (config.train.fanouts.len(), config.model.layers);
    if fanouts != layers {
        let message = format!("expected one fan-out per layer ({layers}), found {fanouts}");
        return Err(Error::config(config.place("train.fanouts"), "train.fanouts", message)
            .with_hint("fan-outs count from the targets outward; -1 takes all neighbours"));
    }
    Ok(())
}

impl Strategy for Mini {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let train = &worker.config.train;
        let (seed, size) = (train.seed, train.batch_size);
        // From the same order every epoch, so that an epoch depends on nothing but its number.
        self.shuffled.copy_from_slice(&self.targets);
        Key::new(seed, Purpose::Shuffle).with(epoch).shuffle(&mut self.shuffled);
        let mut outcome = EpochOutcome { loss: 0.0, steps: 0 };
        for targets in self.shuffled.chunks(size) {
            let key = Key::new(seed, Purpose::Sample).with(epoch).with(outcome.steps);
            let batch = self.sampler.sample(&worker.part, targets, key);
            let loss = batch_step(worker, &batch, targets, epoch, outcome.steps)?;
            outcome.steps += 1;
            worker.update(epoch, step + outcome.steps)?;
            outcome.loss += loss * targets.len() as f64 / worker.all_targets.max(1) as f64;
        }
        Ok(outcome)
    }
}

/// Forward and backward of one batch; returns its mean loss.
fn batch_step(worker: &mut Worker, batch: &Batch, targets: &[u32], epoch: u64, step: u64) -> Result<f64> {
    let layouts = layouts(&worker.part, batch);
    let features = feature::rows(&worker.part, &batch.inputs, worker.config.data.features);
    worker.tape.begin_step(worker.config.train.seed, epoch as usize, step as usize);
    let input = worker.tape.constant(&features, features.rows());
    let pass = Pass { layouts: &layouts, input, statics: None, keep_embeddings: false };
    let scores = worker.model.forward(&mut worker.tape, &mut Isolated, pass)?.output;
    let labels = TargetLabels::of(&worker.part, targets);
    let weight = worker.loss_weight(targets.len() as u64);
    let loss = worker.tape.loss(scores, labels.goal(), weight);
    worker.tape.backward(&mut Isolated)?;
    Ok(loss)
}

/// The layouts of a sampled batch. Rows of a later layer are the first rows of the input, so they share its ids.
fn layouts(part: &Part, batch: &Batch) -> Vec<Arc<Layout>> {
    let nodes = Arc::new(batch.inputs.iter().map(|&row| part.original()[row as usize]).collect::<Vec<u64>>());
    let degrees: Vec<f32> =
        batch.inputs.iter().map(|&row| plan::weighted_degree(part, row as usize)).collect();
    let layout = |block: &Arc<archipelago_graph::Block>| {
        let degrees = degrees[..block.sources()].to_vec();
        Arc::new(Layout::new(Arc::clone(block), Arc::clone(&nodes), degrees, Routes::default()))
    };
    batch.blocks.iter().map(layout).collect()
}
