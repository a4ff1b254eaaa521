//! PipeGCN: full batch in which rows and their gradients are read one step late, so that nobody waits for them.
//!
//! Bytes are those of `full`; what is saved is waiting. The first step is exact; how late rows are kept and smoothed is
//! told in `boundary/late.rs`. Where we differ from the paper: static inputs of the first layer cross once, and
//! evaluation is exact.

use super::shared_batch::{SharedBatch, check};
use super::{Behavior, Entry};
use crate::boundary::Late;
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    name: "pipegcn",
    summary: "full batch, rows and their gradients arrive one step late",
    paper: "Wan et al., ICLR 2022",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: &["exchange.smooth_rows", "exchange.smooth_gradients"],
    check,
    build: |worker| {
        let boundary = Late::new(&worker.config, Arc::clone(&worker.comm))?;
        Ok(Box::new(SharedBatch::at_home(worker, boundary)?))
    },
};
