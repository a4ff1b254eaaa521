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
//!   draws its batch by itself, so sizes differ a little, and what a batch holds does not depend on the parts.
//! - `cluster`: the training nodes of `train.clusters` clusters of the graph, which see their clusters only, with
//!   `train.boundary_hops` hops around; degrees are those inside.
//!
//! Several batches may be under way (`agree.in_flight`), each with the weights that it began with ([`lanes`]).
//!
//! Differs from the paper: lists of neighbours of a view are numbered anew (4 bytes per edge of the batch, both ways);
//! features, weights and values of edges are read where they are.
//!
//! Messages per step and rank: two per layer and neighbouring rank, requests for rows of each layer, one all-reduce.

mod deal;

use super::shared_batch::{self, SharedBatch};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::boundary::{Boundary, Exact};
use crate::index::{Active, Index, Wanted, Within};
use crate::model::Pass;
use crate::run::{BatchKind, Norm, RunConfig};
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result, feature};
use archipelago_comm::Phase;
use archipelago_graph::store::CLUSTER_METHODS;
use deal::{Deal, Dealer};
use std::rc::Rc;

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
    ],
    check,
    build,
};

fn check(config: &RunConfig, parts: u32) -> Result<()> {
    shared_batch::check(config, parts)?;
    config.check_name("train.cluster_method", CLUSTER_METHODS)?;
    let (per_batch, all) = (config.train.clusters, config.train.cluster_count);
    if config.train.batch == BatchKind::Cluster && per_batch > all {
        let message = format!("expected at most `train.cluster_count` ({all}), found {per_batch}");
        return Err(Error::config(config.place("train.clusters"), "train.clusters", message).with_hint(
            "a batch is made of that many clusters; with one batch of all, use `train.batch = \"global\"`",
        ));
    }
    Ok(())
}

fn build(worker: &Worker) -> Result<Box<dyn Strategy>> {
    let boundary = Exact::of(&worker.config, Rc::clone(&worker.comm))?;
    match worker.config.train.batch {
        BatchKind::Global => Ok(Box::new(SharedBatch::new(worker, boundary))),
        BatchKind::Mini | BatchKind::Cluster => {
            Ok(Box::new(GraphTheta { dealer: Dealer::agree(worker)?, boundary }))
        }
    }
}

/// Batches that are views, one after the other.
struct GraphTheta {
    dealer: Dealer,
    boundary: Exact,
}

/// Which batch of which epoch, and how many targets it has on all ranks.
#[derive(Debug, Clone, Copy)]
struct Moment {
    epoch: u64,
    step: u64,
    batch: usize,
    targets: u64,
}

impl GraphTheta {
    /// One step; returns this rank's share of the epoch's mean loss.
    fn step(
        &mut self,
        worker: &mut Worker,
        active: &Active,
        labels: &TargetLabels,
        now: Moment,
    ) -> Result<f64> {
        let Moment { epoch, step, batch, targets } = now;
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "step" });
        worker.tape.begin_step(worker.config.train.seed, epoch as usize, batch);
        self.boundary.begin(epoch, step);
        let rows = feature::rows(&worker.part, &active.order, worker.config.data.features);
        let input = worker.tape.constant(&rows, active.order.len());
        let pass = Pass { layouts: &active.layers, input, statics: None, keep_embeddings: false };
        let scores = worker.model.forward(&mut worker.tape, &mut self.boundary, pass)?.output;
        let loss = worker.tape.loss(scores, labels.goal(), worker.loss_weight(targets));
        worker.tape.backward(&mut self.boundary)?;
        worker.update(epoch, step)?;
        Ok(loss * targets as f64 / worker.all_targets.max(1) as f64)
    }

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
            let now = Moment { epoch, step: step + outcome.steps + 1, batch, targets };
            let active = view(worker, index, &self.dealer, deal, now)?;
            let labels = TargetLabels::of(&worker.part, &active.order[..deal.rows(batch).len()]);
            outcome.loss += self.step(worker, &active, &labels, now)?;
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
    index.batch(&worker.comm, Wanted { targets, layers, all_hidden_rows, within })
}

impl Strategy for GraphTheta {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let deal = self.dealer.deal(worker, epoch)?;
        let Some(mut index) = worker.index.take() else { return Ok(EpochOutcome::default()) };
        let outcome = self.batches(worker, &mut index, &deal, epoch, step);
        worker.index = Some(index);
        outcome
    }

    fn steps(&self, _: &Worker) -> u64 {
        self.dealer.batches() as u64
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        worker.index.as_ref().map_or(0, |index| index.bytes() as u64) + self.dealer.bytes() as u64
    }
}
