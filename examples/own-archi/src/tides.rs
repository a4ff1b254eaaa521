//! Full batches with tides: at flood rows cross as in `full`, at ebb every part computes with what it has.
//!
//! The first epoch is one of flood; then nothing crosses in `exchange.stale_epochs` epochs, and so on. At ebb layers are
//! without their halo, and sums and means are scaled by the neighbours that are there; gradients of the weights are summed over
//! ranks as ever, so weights stay equal. What a first layer sums up of node features never changes, and is exact throughout.
//!
//! With 0 it is `full`, bit for bit. Bytes of rows: those of `full`, divided by `exchange.stale_epochs + 1`. Memory: a second
//! set of lists without the edges that cross. The gradient leans towards edges inside parts, the more the longer the ebb.

use archipelago::train::Result;
use archipelago::train::boundary::{Boundary, Exact};
use archipelago::train::strategy::shared_batch::{self, Moment, SharedBatch};
use archipelago::train::strategy::{Behavior, Entry, EpochOutcome, Strategy};
use archipelago::train::view::{Layout, Scales, Thinning};
use archipelago::train::worker::Worker;
use std::sync::Arc;

/// The table line of this strategy.
pub const ENTRY: Entry = Entry {
    name: "tides",
    summary: "full batch, rows cross in one epoch and then not for some (exchange.stale_epochs)",
    paper: "",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: &["exchange.stale_epochs"],
    check: shared_batch::check,
    build: |worker| {
        let boundary = Exact::of(&worker.config, Arc::clone(&worker.comm))?;
        Ok(Box::new(Tides { batch: SharedBatch::new(worker, boundary), ebb: at_ebb(worker) }))
    },
};

struct Tides {
    batch: SharedBatch<Exact>,
    /// The layers of a step in which nothing crosses.
    ebb: Vec<Arc<Layout>>,
}

impl Strategy for Tides {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let flood = (epoch - 1).is_multiple_of(worker.config.exchange.stale_epochs + 1);
        let layers = if flood { None } else { Some(&self.ebb[..]) };
        let loss = self.batch.step(worker, layers, Moment { epoch, step: step + 1, round: 0 })?;
        let toll = self.batch.boundary.toll();
        Ok(EpochOutcome { loss, steps: 1, toll, ..EpochOutcome::default() })
    }

    fn kept_bytes(&self, _: &Worker) -> u64 {
        self.ebb.iter().map(|layout| 2 * layout.block.bytes() as u64).sum()
    }
}

/// Layers without their halo; a first layer whose sum is known already stays as it is.
fn at_ebb(worker: &Worker) -> Vec<Arc<Layout>> {
    let (known, computed) = worker.layers.split_at(usize::from(worker.first_is_static()));
    known.iter().cloned().chain(computed.iter().map(|layout| Arc::new(without_halo(layout)))).collect()
}

fn without_halo(layout: &Layout) -> Layout {
    let stays: Vec<bool> = (0..layout.block.sources()).map(|row| row < layout.block.local).collect();
    let sends = vec![false; stays.len()];
    layout.thinned(Thinning {
        stays: &stays,
        sends: &sends,
        halo_weight: 1.0,
        scales: Scales::OfRest,
        loops: false,
    })
}
