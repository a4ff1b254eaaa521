//! GraphTheta (VLDB 2022): one batch at a time, computed by all ranks together.
//!
//! A batch is a view of the graph: its targets, and layer by layer what they read, found by a search against the edges in
//! the index that every rank has (`crate::index`). Each rank computes those rows of a batch that it owns and sends each
//! other rank those that it reads, so no row is computed twice and no neighbour needs to be sampled away: the work of an
//! epoch does not grow with the ranks, as it does where each computes the neighbourhood of a batch of its own.
//! `train.batch` says what a batch is:
//!
//! - `global`: all training nodes, as `full`.
//! - `mini`: `train.batch_size` of them for each part, drawn anew in every epoch, with all neighbours in all hops. A node
//!   draws its batch by itself, so sizes differ a little, and what a batch holds depends on how many there are, not on who
//!   owns what.
//! - `cluster`: the training nodes of `train.clusters` clusters of the graph, which see their clusters only, with
//!   `train.boundary_hops` hops around; degrees are those inside (but for the counts by type of `rgcn`).
//!
//! Several batches may be under way (`agree.in_flight`), each with the weights that it began with ([`lanes`]).
//!
//! Differs from the paper: lists of neighbours of a view are numbered anew (4 bytes per edge of the batch, both ways);
//! features, weights and values of edges are read where they are.
//!
//! Messages per step and rank: two per layer and neighbouring rank, requests for rows of each layer, one all-reduce.

mod deal;
mod lanes;

use super::shared_batch::{self, SharedBatch};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::boundary::{Boundary, Exact};
use crate::index::{Active, Index, Wanted, Within};
use crate::model::{Model, Pass};
use crate::run::{BatchKind, Norm, RunConfig};
use crate::tape::Tape;
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result, feature};
use archipelago_comm::Phase;
use archipelago_graph::Part;
use archipelago_graph::store::CLUSTER_METHODS;
use deal::{Deal, Dealer};
use lanes::Lanes;
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    name: "graphtheta",
    summary: "one batch (global, mini or clusters) computed by all ranks together, all neighbours, exact",
    paper: "GraphTheta, VLDB 2022",
    behavior: Behavior { exact: true, any_batch: true, ..Behavior::SHARED },
    preset: &[("train.batch", "global")],
    reads: &[
        "train.batch",
        "train.clusters",
        "train.cluster_method",
        "train.cluster_count",
        "train.boundary_hops",
        "exchange.placement",
        "agree.in_flight",
        "agree.updates",
    ],
    check,
    build,
};

fn check(config: &RunConfig, parts: u32) -> Result<()> {
    shared_batch::check(config, parts)?;
    if config.train.fanouts != RunConfig::default().train.fanouts
        && config.train.fanouts.iter().any(|&count| count >= 0)
    {
        let message = format!("expected none with strategy `graphtheta`, found {:?}", config.train.fanouts);
        return Err(Error::config(config.place("train.fanouts"), "train.fanouts", message)
            .with_hint("its batches have all neighbours; `distdgl` and `bytegnn` sample them"));
    }
    if config.train.batch == BatchKind::Cluster {
        config.check_name("train.cluster_method", CLUSTER_METHODS)?;
    }
    let (per_batch, all) = (config.train.clusters, config.train.cluster_count);
    if config.train.batch == BatchKind::Cluster && per_batch > all {
        let message = format!("expected at most `train.cluster_count` ({all}), found {per_batch}");
        return Err(Error::config(config.place("train.clusters"), "train.clusters", message).with_hint(
            "a batch is made of that many clusters; with one batch of all, use `train.batch = \"global\"`",
        ));
    }
    let (flight, norm) = (config.agree.in_flight, config.model.norm);
    if flight > 1 && norm == Norm::Batch {
        let message = format!("expected 1 with batch norm, found {flight}");
        return Err(Error::config(config.place("agree.in_flight"), "agree.in_flight", message)
            .with_hint("its running statistics follow one batch after the other; `layer` norm has none"));
    }
    if flight > 1 && config.train.batch == BatchKind::Global {
        let message = format!("expected 1 with global batches, found {flight}");
        return Err(Error::config(config.place("agree.in_flight"), "agree.in_flight", message)
            .with_hint("an epoch is one batch; set `train.batch` to \"mini\" or \"cluster\""));
    }
    Ok(())
}

fn build(worker: &Worker) -> Result<Box<dyn Strategy>> {
    if worker.config.train.batch == BatchKind::Global {
        return Ok(Box::new(SharedBatch::exact(worker)?));
    }
    let boundary = Exact::of(&worker.config, Arc::clone(&worker.comm))?;
    let (dealer, flight) = (Dealer::agree(worker)?, worker.config.agree.in_flight);
    let lanes = if flight > 1 { Some(Lanes::new(worker, flight)?) } else { None };
    Ok(Box::new(GraphTheta { dealer, boundary, lanes }))
}

/// Batches that are views, one after the other or several at a time.
struct GraphTheta {
    dealer: Dealer,
    boundary: Exact,
    lanes: Option<Lanes>,
}

/// Which batch of which epoch.
#[derive(Debug, Clone, Copy)]
struct Moment {
    epoch: u64,
    step: u64,
    batch: usize,
    /// Its targets on this rank.
    count: usize,
    weight: Weight,
}

/// How much a target counts.
#[derive(Debug, Clone, Copy)]
struct Weight {
    /// In the loss that a step goes down.
    in_step: f32,
    /// The share that the loss of the step has in the epoch's mean loss.
    in_epoch: f64,
}

impl Weight {
    /// That of each of `targets` targets that make a step.
    fn of(worker: &Worker, targets: u64) -> Self {
        let in_epoch = targets as f64 / worker.all_targets.max(1) as f64;
        Self { in_step: worker.loss_weight(targets), in_epoch }
    }
}

/// What a batch is computed with, besides weights.
#[derive(Clone, Copy)]
struct Setting<'a> {
    model: &'a Model,
    part: &'a Part,
    config: &'a RunConfig,
}

impl Setting<'_> {
    /// Adds the gradient of a batch to those of the tape's weights, one of which the tape may [owe](Tape::backward_owing); returns
    /// this rank's share of the epoch's mean loss.
    fn learn(&self, tape: &mut Tape, boundary: &mut Exact, active: &Active, now: Moment) -> Result<f64> {
        let Moment { epoch, step, batch, count, weight } = now;
        tape.begin_step(self.config.train.seed, epoch as usize, batch);
        boundary.begin(epoch, step);
        let input = feature::constant(tape, self.part, &active.order, self.config.data.features);
        let pass = Pass { layouts: &active.layers, input, statics: None, keep_embeddings: false };
        let scores = self.model.forward(tape, boundary, pass)?.output;
        let labels = TargetLabels::of(self.part, &active.order[..count]);
        let loss = tape.loss(scores, labels.goal(), weight.in_step);
        tape.backward_owing(boundary)?;
        Ok(loss * weight.in_epoch)
    }
}

impl GraphTheta {
    /// All batches of an epoch.
    fn batches(
        &mut self,
        worker: &mut Worker,
        index: &mut Index,
        deal: &Deal,
        epoch: u64,
        step: u64,
    ) -> Result<EpochOutcome> {
        let mut outcome = EpochOutcome::default();
        for (batch, targets) in deal.batches() {
            let weight = Weight::of(worker, targets);
            let (step, count) = (step + outcome.steps + 1, deal.rows(batch).len());
            let now = Moment { epoch, step, batch, count, weight };
            let active = view(worker, index, &self.dealer, deal, now)?;
            let place = Phase { epoch: epoch as usize, step: now.step as usize, layer: 0, what: "step" };
            worker.comm.enter(place);
            let setting = Setting { model: &worker.model, part: &worker.part, config: &worker.config };
            outcome.loss += setting.learn(&mut worker.tape, &mut self.boundary, &active, now)?;
            worker.update(epoch, now.step)?;
            outcome.steps += 1;
        }
        outcome.toll = self.boundary.toll();
        Ok(outcome)
    }
}

/// What a batch computes in each layer.
fn view(worker: &Worker, index: &mut Index, dealer: &Dealer, deal: &Deal, now: Moment) -> Result<Active> {
    let (epoch, step) = (now.epoch as usize, now.step as usize);
    worker.comm.enter(Phase { epoch, step, layer: 0, what: "view" });
    let inside = dealer.inside(worker, index, deal, now.batch)?;
    let within = inside.as_ref().map(|(inside, degrees)| Within { inside, degrees });
    let (targets, layers) = (deal.rows(now.batch), worker.config.model.layers);
    // A batch norm's statistics are over all nodes of the clusters, as they are over all nodes of the graph.
    let all_hidden_rows = worker.config.model.norm == Norm::Batch && within.is_some();
    index.batch(&worker.comm, Wanted { targets, layers, all_hidden_rows, within, places: None })
}

impl Strategy for GraphTheta {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let deal = self.dealer.deal(worker, epoch)?;
        let Some(mut index) = worker.index.take() else { return Ok(EpochOutcome::default()) };
        let outcome = match &mut self.lanes {
            Some(lanes) => lanes.epoch(worker, &deal, epoch, step, |worker, now| {
                view(worker, &mut index, &self.dealer, &deal, now)
            }),
            None => self.batches(worker, &mut index, &deal, epoch, step),
        };
        worker.index = Some(index);
        outcome
    }

    fn steps(&self, _: &Worker) -> u64 {
        let together = self.lanes.as_ref().map_or(1, Lanes::together);
        self.dealer.batches().div_ceil(together) as u64
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        let lanes = self.lanes.as_ref().map_or(0, |lanes| lanes.bytes(worker));
        self.dealer.bytes() as u64 + lanes
    }
}
