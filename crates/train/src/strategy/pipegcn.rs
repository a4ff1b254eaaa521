//! PipeGCN: full batch in which rows and their gradients are read one step late, so that nobody waits for them.
//!
//! Bytes are those of `full`; what is saved is waiting. The first step is exact; how late rows are kept and smoothed is
//! told in `boundary/late.rs`. Where we differ from the paper: static inputs of the first layer cross once, and
//! evaluation is exact.

use super::shared_batch::{SharedBatch, check};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::boundary::{Late, Memory};
use crate::worker::Worker;
use std::rc::Rc;

pub(super) const ENTRY: Entry = Entry {
    name: "pipegcn",
    summary: "full batch, rows and their gradients arrive one step late",
    paper: "Wan et al., ICLR 2022",
    behavior: Behavior { exact: false, global_batch: true, distributed: true, ranks_equal: true },
    check,
    build: |worker| {
        let boundary = Late::new(&worker.config, Rc::clone(&worker.comm))?;
        Ok(Box::new(PipeGcn(SharedBatch::at_home(worker, boundary)?)))
    },
};

struct PipeGcn(SharedBatch<Late>);

impl Strategy for PipeGcn {
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
