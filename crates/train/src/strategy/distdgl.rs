//! DistDGL (Zheng et al., IA3 2020): every rank computes mini-batches of its own, and pulls what it needs of others.
//!
//! A rank's targets are its share of the training nodes. Hop by hop the frontier is grouped by owner, every owner
//! samples in-edges of its own nodes, and the answers are stitched into blocks; features of remote nodes are pulled
//! in batches, each node once, except those that are kept (`exchange.cache`). Sampling and pulling run ahead of
//! computing by `train.prefetch` batches. Gradients are summed over ranks.
//!
//! Messages per step and rank: for every hop and every rank whose nodes were met, one question and one answer, and one
//! request and one answer for features; one all-reduce. Nothing is exchanged inside a layer.

use super::own_batch::{self, OwnBatch, Summed};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::batch::launcher::Ahead;
use crate::worker::Worker;

pub(super) const ENTRY: Entry = Entry {
    name: "distdgl",
    summary: "own mini-batches: distributed sampling, pulled features, prefetched; summed gradients",
    paper: "Zheng et al., DistDGL, IA3 2020",
    behavior: Behavior::OWN,
    preset: &[],
    reads: &[],
    check: |config, _| own_batch::check(config),
    build: |worker| Ok(Box::new(DistDgl(OwnBatch::new(worker)?))),
};

struct DistDgl(OwnBatch);

impl Strategy for DistDgl {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let mut launcher = Ahead(worker.config.train.prefetch);
        self.0.epoch(worker, epoch, step, Some(&mut launcher), &mut Summed)
    }
}
