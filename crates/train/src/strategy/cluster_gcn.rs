//! Cluster-GCN (Chiang et al., KDD 2019): a batch is a few parts, drawn at random, and the edges between them.
//!
//! The store's parts are the clusters: cut a graph into many. An epoch deals all of them out once, `train.clusters` at
//! a time to each of `residency.resident` ranks; a step trains on all targets of such a batch with all neighbours in it,
//! and gradients are summed. With one cluster that covers the graph this is the full batch.
//!
//! As on every island, neighbourhoods are scaled up to the whole: the paper's renormalisation by the degrees that
//! are left, for means, and the same size as in the whole graph for normalised sums.

use super::on_island::{self, Manner, Trainable, islands};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::island::{Isle, Reach, Wish};
use crate::run::RunConfig;
use crate::worker::Worker;
use archipelago_graph::PartId;
use archipelago_graph::random::{Key, Purpose};
use std::time::Instant;

pub(super) const ENTRY: Entry = Entry {
    name: "cluster-gcn",
    summary: "a batch is a few parts and the edges between them, all neighbours there; summed gradients",
    paper: "Chiang et al., KDD 2019",
    behavior: Behavior::ISLANDS,
    preset: &[("train.batch", "global"), ("residency.resident", "1")],
    check: |config, _| check(config),
    build: |worker| Ok(Box::new(ClusterGcn { clusters: worker.config.train.clusters })),
};

fn check(config: &RunConfig) -> Result<()> {
    on_island::check(config)?;
    on_island::check_method(config, "sum-gradients", "`sdt` averages models")
}

struct ClusterGcn {
    clusters: usize,
}

impl ClusterGcn {
    /// All parts in the order of an epoch.
    fn order(worker: &Worker, parts: usize, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..parts as u32).collect();
        Key::new(worker.config.train.seed, Purpose::Cluster).with(epoch).shuffle(&mut order);
        order
    }
}

impl Strategy for ClusterGcn {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let manner = Manner { correction: worker.config.agree.correction, summed: true };
        let (ranks, batch) = (worker.comm.size(), worker.config.train.batch);
        let turns = islands(worker)?.turns;
        let order = Self::order(worker, turns.parts(), epoch);
        let mut all = EpochOutcome::default();
        for batches in order.chunks(ranks * self.clusters) {
            let started = Instant::now();
            let islands = islands(worker)?;
            let count =
                |parts: &[u32]| parts.iter().map(|&part| islands.targets[part as usize] as usize).sum();
            let mut counts: Vec<usize> = batches.chunks(self.clusters).map(count).collect();
            counts.resize(ranks, 0);
            let mine = batches.chunks(self.clusters).nth(worker.comm.rank()).unwrap_or_default();
            let mut mine: Vec<PartId> = mine.iter().map(|&part| PartId(part)).collect();
            mine.sort_unstable();
            let wish = Wish { parts: &mine, trained: mine.len(), hops: 0, features: true, exchange: false };
            let lot = mine.first().map_or(0, |part| u64::from(part.0));
            let isle = Isle::new(islands.make(wish)?, lot);
            let mut trainable = Trainable::new(worker, isle, batch, counts, worker.comm.rank(), false)?;
            let secs = started.elapsed().as_secs_f64();
            all.add(&trainable.epoch(worker, manner, epoch, step + all.steps, &mut |_| {})?);
            on_island::islands(worker)?.give_back(trainable.into_part());
            all.landing.secs += secs;
            all.landing.made += u64::from(!mine.is_empty());
            all.landing.switches += u64::from(!mine.is_empty());
        }
        Ok(all)
    }

    fn reach(&self) -> Option<Reach> {
        Some(Reach { parts: self.clusters, hops: 0 })
    }
}
