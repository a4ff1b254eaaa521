//! SANCUS: full batch in which a part's rows are sent again only when they have become too old; and its relatives.
//!
//! `cagnet` sends everything every time (a bound of 0), `skipg` skips gradients of rows instead of rows. What is sent
//! when is told in `boundary/stale.rs`. Gradients may be clipped where they arise (`agree.clip_local`).
//!
//! Messages per step and rank: as in `full`, most of them empty: with bound e, 1 of e + 1 carries rows.
//! Memory: the halo rows of every layer after the first, and the part's own rows. The first layer's inputs are static:
//! they cross once per run.

use super::shared_batch::{SharedBatch, check};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::boundary::{Memory, Skips, Stale};
use crate::worker::Worker;
use std::rc::Rc;

const BEHAVIOR: Behavior =
    Behavior { exact: false, global_batch: true, distributed: true, ranks_equal: true };

pub(super) const ENTRY: Entry = Entry {
    name: "sancus",
    summary: "full batch, rows are sent again when they are too old (exchange.staleness)",
    paper: "Peng et al., VLDB 2022",
    behavior: BEHAVIOR,
    check,
    build: |worker| build(worker, Skips::Rows),
};

pub(super) const CAGNET: Entry = Entry {
    name: "cagnet",
    summary: "full batch, every part's rows are sent to all that read them (sancus with bound 0)",
    paper: "Tripathy et al., SC 2020",
    behavior: Behavior { exact: true, ..BEHAVIOR },
    check,
    build: |worker| build(worker, Skips::Nothing),
};

pub(super) const SKIPG: Entry = Entry {
    name: "skipg",
    summary: "full batch, gradients of rows are sent again when they are too old",
    paper: "a baseline of SANCUS",
    behavior: BEHAVIOR,
    check,
    build: |worker| build(worker, Skips::Gradients),
};

fn build(worker: &Worker, skips: Skips) -> Result<Box<dyn Strategy>> {
    let boundary = Stale::new(&worker.config, Rc::clone(&worker.comm), skips, &worker.layers)?;
    Ok(Box::new(Sancus(SharedBatch::at_home(worker, boundary)?)))
}

struct Sancus(SharedBatch<Stale>);

impl Strategy for Sancus {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        self.0.epoch(worker, epoch, step)
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        self.0.kept_bytes(worker)
    }

    fn save(&mut self) -> Result<Memory> {
        self.0.save()
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        self.0.restore(memory)
    }
}
