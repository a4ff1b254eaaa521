//! Full batch: one exact step per epoch on the whole graph, computed by all ranks together.
//!
//! Each layer exchanges exactly the rows that its neighbours on other ranks read, forward and backward, and only
//! rows that the loss depends on are computed. Weight gradients are summed. The step equals that of one process
//! on the whole graph but for the order of sums.
//!
//! Messages per step and rank: two per layer after the first and neighbouring rank, and one all-reduce. Sparse features cross
//! once, dense ones that are only aggregated as well; other first layers exchange what they transform. Where edges are not
//! with the owners of their targets (`exchange.placement`), partial aggregates cross besides or instead.

use super::shared_batch::{SharedBatch, check};
use super::{Behavior, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "full",
    summary: "full batch, exact exchange in every layer, summed gradients",
    paper: "the baseline of all seven systems",
    behavior: Behavior { exact: true, ..Behavior::SHARED },
    preset: &[],
    reads: &["exchange.placement"],
    check,
    build: |worker| Ok(Box::new(SharedBatch::exact(worker)?)),
};
