//! SANCUS: full batch in which a part's rows are sent again only when they have become too old; and its relatives.
//!
//! `cagnet` sends everything every time (a bound of 0), `skipg` skips gradients of rows instead of rows. What is sent
//! when is told in `boundary/stale.rs`. Gradients may be clipped where they arise (`agree.clip_local`).
//!
//! Messages per step and rank: as in `full`, most of them empty: with bound e, 1 of e + 1 carries rows.
//! Memory: the halo rows of every layer after the first, and the part's own rows. The first layer's inputs are static:
//! they cross once per run.

use super::shared_batch::{SharedBatch, check};
use super::{Behavior, Entry, Strategy};
use crate::boundary::{Skips, Stale};
use crate::run::{RunConfig, Staleness};
use crate::worker::Worker;
use crate::{Error, Result};
use std::sync::Arc;

/// What all three go by.
const READS: &[&str] = &[
    "exchange.staleness",
    "exchange.stale_epochs",
    "exchange.stale_change",
    "exchange.own_block",
    "exchange.backward",
    "exchange.broadcast",
];

pub(super) const ENTRY: Entry = Entry {
    name: "sancus",
    summary: "full batch, rows are sent again when they are too old (exchange.staleness)",
    paper: "Peng et al., VLDB 2022",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: READS,
    check,
    build: |worker| build(worker, Skips::Rows),
};

pub(super) const CAGNET: Entry = Entry {
    name: "cagnet",
    summary: "full batch, every part's rows are sent to all that read them (sancus with bound 0)",
    paper: "Tripathy et al., SC 2020",
    behavior: Behavior { exact: true, ..Behavior::SHARED },
    preset: &[],
    reads: READS,
    check,
    build: |worker| build(worker, Skips::Nothing),
};

pub(super) const SKIPG: Entry = Entry {
    name: "skipg",
    summary: "full batch, gradients of rows are sent again when they are too old",
    paper: "a baseline of SANCUS",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: READS,
    check: check_skipg,
    build: |worker| build(worker, Skips::Gradients),
};

/// Sender and receiver of gradients must know alike whether they come.
fn check_skipg(config: &RunConfig, parts: u32) -> Result<()> {
    let key = "exchange.staleness";
    if config.exchange.staleness != Staleness::Epochs {
        let found = config.exchange.staleness.word();
        let message = format!("expected `epochs` with strategy `skipg`, found `{found}`");
        return Err(Error::config(config.place(key), key, message)
            .with_hint("gradients are skipped by all parts together; `sancus` knows the other rules"));
    }
    check(config, parts)
}

fn build(worker: &Worker, skips: Skips) -> Result<Box<dyn Strategy>> {
    let boundary = Stale::new(&worker.config, Arc::clone(&worker.comm), skips, &worker.layers)?;
    Ok(Box::new(SharedBatch::at_home(worker, boundary)?))
}
