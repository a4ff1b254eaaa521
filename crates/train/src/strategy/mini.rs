//! Plain mini-batches on one part: targets are shuffled and cut into batches, neighbours are sampled, one batch after
//! the other.
//!
//! The same blocks, views and layers as the full batch: only who is computed differs (Hamilton et al., NeurIPS
//! 2017). GCN's normalisation uses whole-graph degrees and scales a sampled neighbourhood up to the whole one.

use super::own_batch::{self, OwnBatch, Summed};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::run::RunConfig;
use crate::worker::Worker;
use crate::{Error, Result};

pub(super) const ENTRY: Entry = Entry {
    name: "mini",
    summary: "neighbour-sampled mini-batches on one part, one after the other",
    paper: "Hamilton et al., NeurIPS 2017",
    behavior: Behavior { distributed: false, ..Behavior::OWN },
    preset: &[],
    reads: &[],
    check,
    build: |worker| Ok(Box::new(Mini(OwnBatch::new(worker)?))),
};

struct Mini(OwnBatch);

fn check(config: &RunConfig, parts: u32) -> Result<()> {
    if parts > 1 {
        let message = format!("expected 1 with strategy `mini`, found `{parts}`");
        return Err(Error::config(config.place("data.parts"), "data.parts", message)
            .with_hint("use strategy `distdgl` or `bytegnn` on several parts"));
    }
    own_batch::check(config)
}

impl Strategy for Mini {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        self.0.epoch(worker, epoch, step, None, &mut Summed)
    }
}
