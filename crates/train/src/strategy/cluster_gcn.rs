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
use crate::island::{Islands, Reach, Wish};
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
    reads: &["residency.resident", "agree.correction", "train.batch", "train.clusters"],
    check: |config, _| on_island::check(config),
    build: |worker| Ok(Box::new(ClusterGcn { clusters: worker.config.train.clusters })),
};

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

    /// Targets that each of `ranks` ranks has of these parts, which are dealt out to all of them.
    fn counts(&self, islands: &Islands, dealt: &[u32], ranks: usize) -> Vec<usize> {
        let count = |parts: &[u32]| parts.iter().map(|&part| islands.targets[part as usize] as usize).sum();
        let mut counts: Vec<usize> = dealt.chunks(self.clusters).map(count).collect();
        counts.resize(ranks, 0);
        counts
    }

    /// Trains on the parts that are dealt out for a step, of which each rank has some.
    fn train(&self, worker: &mut Worker, dealt: &[u32], epoch: u64, step: u64) -> Result<EpochOutcome> {
        let (started, rank) = (Instant::now(), worker.comm.rank());
        let manner = Manner { correction: worker.config.agree.correction, summed: true };
        let mine = dealt.chunks(self.clusters).nth(rank).unwrap_or_default();
        let mut mine: Vec<PartId> = mine.iter().map(|&part| PartId(part)).collect();
        mine.sort_unstable();
        let wish = Wish { parts: &mine, trained: mine.len(), hops: 0, features: true, exchange: false };
        let isle = islands(worker)?.isle(wish)?;
        let counts = self.counts(islands(worker)?, dealt, worker.comm.size());
        let mut trainable = Trainable::new(worker, isle, worker.config.train.batch, counts, rank, false)?;
        let secs = started.elapsed().as_secs_f64();
        let mut outcome = trainable.epoch(worker, manner, epoch, step, &mut |_| {})?;
        islands(worker)?.give_back(trainable.into_part());
        outcome.landing.secs = secs;
        outcome.landing.made = u64::from(!mine.is_empty());
        outcome.landing.switches = outcome.landing.made;
        Ok(outcome)
    }
}

impl Strategy for ClusterGcn {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let parts = islands(worker)?.turns.parts();
        let mut all = EpochOutcome::default();
        for dealt in Self::order(worker, parts, epoch).chunks(worker.comm.size() * self.clusters) {
            all.add(&self.train(worker, dealt, epoch, step + all.steps)?);
        }
        Ok(all)
    }

    /// Those of the first epoch: others deal the parts out in another way.
    fn steps(&self, worker: &Worker) -> u64 {
        let Some(islands) = &worker.islands else { return 0 };
        let (ranks, batch) = (worker.comm.size(), worker.config.train.batch_size);
        let order = Self::order(worker, islands.turns.parts(), 1);
        let most = |dealt: &[u32]| self.counts(islands, dealt, ranks).into_iter().max().unwrap_or(0);
        order.chunks(ranks * self.clusters).map(|dealt| most(dealt).div_ceil(batch) as u64).sum()
    }

    fn reach(&self) -> Option<Reach> {
        Some(Reach { parts: self.clusters, hops: 0 })
    }
}
