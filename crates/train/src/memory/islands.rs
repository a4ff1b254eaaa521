//! How much memory islands need, said from the store's manifest before the first is made.
//!
//! A rank holds one island at a time. While it is made, what was brought from around it and the pages of the files that
//! are being copied are held beside it; while it is trained on, batches and their rows; while a part is evaluated, the
//! rows of one layer. The largest of these three comes on top.

use super::{drawn_batches, step_activations};
use crate::island::Reach;
use crate::run::BatchKind;
use crate::worker::Worker;
use archipelago_graph::store::Manifest;
use archipelago_graph::store::manifest::PartEntry;

/// What the largest island of a run is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its nodes, guests included.
    pub rows: u64,
    /// Its guests.
    pub guests: u64,
    /// Its edges.
    pub edges: u64,
}

impl Extent {
    /// Of a store with this manifest; an upper bound where parts have neighbours in common.
    pub fn of(manifest: &Manifest, reach: Reach) -> Self {
        let largest = |size: fn(&PartEntry) -> u64| {
            let mut sizes: Vec<u64> = manifest.parts.iter().map(size).collect();
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            sizes.iter().take(reach.parts).sum::<u64>()
        };
        let owned = largest(|part| part.owned);
        let guests = match reach.hops {
            0 => 0,
            1 => largest(|part| part.halo).min(manifest.nodes - owned.min(manifest.nodes)),
            _ => manifest.nodes - owned.min(manifest.nodes),
        };
        let edges = if reach.hops > 1 { manifest.edges } else { largest(|part| part.in_edges) };
        Self { rows: owned + guests, guests, edges }
    }

    /// Bytes of its index: ids, offsets, degrees, labels, and in-edges.
    fn index(&self, weighted: bool) -> u64 {
        (8 + 8 + 8 + 8 + 4 + 4 + 8) * self.rows + (4 + 4 * u64::from(weighted)) * self.edges
    }
}

/// Adds what islands need to the items of a rank. Where parts take turns, nothing is held of a part but its island.
pub(super) fn add(
    items: &mut [(&'static str, u64)],
    worker: &Worker,
    manifest: &Manifest,
    reach: Reach,
    rotate: bool,
) {
    let extent = Extent::of(manifest, reach);
    let weighted = manifest.edge_columns.weighted;
    let width = crate::feature::width(&worker.part) as u64;
    let features = if manifest.features.width() > 0 { 4 * width * extent.rows } else { 0 };
    let index = extent.index(weighted);
    let guests = extent.guests * (4 * width + 20);
    // While an island is made: its guests, what others are told, and pages of lists that are being read.
    let making = 3 * guests + 8 * extent.edges + MAPPED;
    let (batches, step) = match worker.config.train.batch {
        BatchKind::Mini => (drawn_batches(worker), step_activations(worker)),
        BatchKind::Global => (12 * extent.edges + features, 3 * 4 * extent.rows * widest(worker)),
    };
    let mut evaluation = 0;
    if rotate {
        for item in ["graph", "features"] {
            set(items, item, 0);
        }
    }
    if rotate && worker.config.train.eval_every > 0 {
        // A part is evaluated when no island is held.
        evaluation = evaluated(worker, manifest, width).saturating_sub(index + features);
    }
    let beside = making.max(batches + step).max(evaluation);
    set(items, "graph", get(items, "graph") + index);
    set(items, "features", get(items, "features") + features);
    set(items, "batches", batches.min(beside));
    let activations = if rotate { 0 } else { get(items, "activations") };
    set(items, "activations", activations.max(beside - batches.min(beside)));
}

/// Pages of mapped files that are not given back at once.
const MAPPED: u64 = 16 << 20;

fn get(items: &[(&'static str, u64)], name: &str) -> u64 {
    items.iter().find(|(item, _)| *item == name).map_or(0, |(_, bytes)| *bytes)
}

fn set(items: &mut [(&'static str, u64)], name: &str, bytes: u64) {
    items.iter_mut().filter(|(item, _)| *item == name).for_each(|(_, slot)| *slot = bytes);
}

/// The widest rows between layers.
fn widest(worker: &Worker) -> u64 {
    let shape = worker.model.shape();
    (0..shape.layers).map(|layer| shape.layer(layer).output.max(shape.layer(layer).input)).max().unwrap_or(0)
        as u64
}

/// One part with its halo, in and out of a layer.
fn evaluated(worker: &Worker, manifest: &Manifest, width: u64) -> u64 {
    let extent = Extent::of(manifest, Reach { parts: 1, hops: 1 });
    let rows = extent.rows * 4 * (2 * widest(worker) + width);
    rows + 2 * extent.index(manifest.edge_columns.weighted)
}
