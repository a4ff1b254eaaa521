//! BNS-GCN: full batch in which a random share of the boundary nodes sends in a step, standing for all of them.
//!
//! Each boundary node is drawn with probability r (`exchange.boundary_rate`) for all layers of a step, by a number that
//! depends on the step and its original id: sender and receiver need no message to agree. Its edges across the border
//! weigh 1/r, so sums and means are right on average; an attention takes its softmax over the nodes that are there.
//!
//! Bytes per step: r times those of `full`. Static aggregates of the first layer are exact.

use super::shared_batch::{Moment, SharedBatch, check};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::boundary::{Boundary, Exact};
use crate::view::{Layout, Scales, Thinning};
use crate::worker::Worker;
use archipelago_graph::random::{Key, Purpose};
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    name: "bns",
    summary: "full batch, a random share of the boundary nodes sends in a step (exchange.boundary_rate)",
    paper: "Wan et al., MLSys 2022",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: &["exchange.boundary_rate"],
    check,
    build: |worker| {
        let boundary = Exact::of(&worker.config, Arc::clone(&worker.comm))?;
        Ok(Box::new(Bns(SharedBatch::new(worker, boundary))))
    },
};

struct Bns(SharedBatch<Exact>);

impl Strategy for Bns {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let draws = Key::new(worker.config.train.seed, Purpose::Boundary).with(step + 1);
        let rate = worker.config.exchange.boundary_rate;
        // Of a first layer whose aggregate is static nothing is read but its targets.
        let (whole, drawn) = worker.layers.split_at(usize::from(worker.first_is_static()));
        let thinned = drawn.iter().map(|layout| Arc::new(sampled(layout, draws, rate)));
        let layers: Vec<_> = whole.iter().cloned().chain(thinned).collect();
        let loss = self.0.step(worker, Some(&layers), Moment { epoch, step: step + 1, round: 0 })?;
        let toll = self.0.boundary.toll();
        Ok(EpochOutcome { loss, steps: 1, toll, ..EpochOutcome::default() })
    }

    /// The thinned layers of a step.
    fn kept_bytes(&self, worker: &Worker) -> u64 {
        worker.layers.iter().map(|layout| 2 * layout.block.bytes() as u64).sum()
    }
}

/// The layer with a share of its halo.
fn sampled(layout: &Layout, draws: Key, rate: f64) -> Layout {
    let (local, sources) = (layout.block.local, layout.block.sources());
    let mut stays = vec![true; sources];
    for (stays, &node) in stays[local..].iter_mut().zip(&layout.nodes[local..]) {
        *stays = draws.with(node).unit(0) < rate;
    }
    // What others read of us, by the same draws.
    let mut sends = stays.clone();
    sends[..local].iter_mut().zip(&layout.nodes[..]).for_each(|(s, &n)| *s = draws.with(n).unit(0) < rate);
    layout.thinned(Thinning {
        stays: &stays,
        sends: &sends,
        halo_weight: (1.0 / rate) as f32,
        scales: Scales::OfAll,
        loops: false,
    })
}
