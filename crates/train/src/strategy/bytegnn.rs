//! ByteGNN (Zheng et al., PVLDB 2022): sampling as DAGs of small tasks, begun when processors have time for them.
//!
//! The same batches as [`distdgl`](super::distdgl), to the bit. What differs is when they are drawn: a DAG is begun
//! when `T_gap f(C) balance` reaches the score of the three settings `train.launch_gap_ms`, `train.launch_cpu` and
//! `train.launch_balance` (see [`Score`]), several are under way at once, and at most `train.prefetch` are under
//! way or wait. Tasks of an earlier batch run first, of one batch the cheaper.

use super::own_batch::{self, OwnBatch, Summed};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::batch::launcher::Score;
use crate::worker::Worker;

pub(super) const ENTRY: Entry = Entry {
    name: "bytegnn",
    summary: "own mini-batches, their sampling scheduled as DAGs of tasks; summed gradients",
    paper: "Zheng et al., ByteGNN, PVLDB 2022",
    behavior: Behavior::OWN,
    preset: &[],
    reads: &[],
    check: |config, _| own_batch::check(config),
    build: |worker| Ok(Box::new(ByteGnn(OwnBatch::new(worker)?))),
};

struct ByteGnn(OwnBatch);

impl Strategy for ByteGnn {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let train = &worker.config.train;
        let mut launcher =
            Score::new(train.launch_gap_ms, train.launch_cpu, train.launch_balance, train.prefetch);
        self.0.epoch(worker, epoch, step, Some(&mut launcher), &mut Summed)
    }
}
