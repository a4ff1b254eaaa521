//! How much memory islands need, said from the store's manifest before the first is made ([`Extent`]).

use super::{drawn_batches, step_activations, widths};
use crate::Result;
use crate::cost::extent::Extent;
use crate::cost::held::{self, MPI, PROGRAM};
use crate::cost::net::Net;
use crate::event::MemoryNeed;
use crate::infer::Work;
use crate::island::Reach;
use crate::residency::Turns;
use crate::run::{BatchKind, RunConfig};
use crate::worker::Worker;
use archipelago_graph::store::Manifest;
use archipelago_graph::store::manifest::{FeatureKind, PartEntry};

/// The largest island of a run; an upper bound where parts have neighbours in common.
fn largest(manifest: &Manifest, reach: Reach) -> Extent {
    let most = |size: fn(&PartEntry) -> u64| {
        let mut sizes: Vec<u64> = manifest.parts.iter().map(size).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.iter().take(reach.parts).sum::<u64>()
    };
    let owned = most(|part| part.owned);
    let others = manifest.nodes - owned.min(manifest.nodes);
    let guests = match reach.hops {
        0 => 0,
        1 => most(|part| part.halo).min(others),
        _ => others,
    };
    let row = match manifest.features {
        FeatureKind::None => 0,
        FeatureKind::Dense { width } => 4 * width as u64,
        FeatureKind::Sparse { .. } => {
            let stored: u64 = manifest.parts.iter().map(|part| part.feature_values).sum();
            8 + (8 * stored).div_ceil(manifest.nodes.max(1))
        }
    };
    Extent {
        rows: owned + guests,
        guests,
        edges: if reach.hops > 1 { manifest.edges } else { most(|part| part.in_edges) },
        row,
        hops: reach.hops,
        weighted: manifest.edge_columns.weighted,
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
    let (extent, widths) = (largest(manifest, reach), widths(worker));
    let (batches, step) = match worker.config.train.batch {
        BatchKind::Mini => (drawn_batches(worker), step_activations(worker)),
        BatchKind::Global | BatchKind::Cluster => (extent.whole_batch(), extent.whole_step(&widths)),
    };
    let mut beside = extent.making().max(batches + step);
    if rotate {
        let stays = |item: &str| item == "weights" || item == "history";
        items.iter_mut().filter(|(item, _)| !stays(item)).for_each(|(_, bytes)| *bytes = 0);
        if worker.config.train.eval_every > 0 {
            let part = largest(manifest, Reach { parts: 1, hops: 1 });
            beside = beside.max(extent.beyond(&part, &widths));
        }
    }
    let activations = get(items, "activations");
    set(items, "cache", 0);
    set(items, "graph", get(items, "graph") + extent.index());
    set(items, "features", get(items, "features") + extent.features());
    set(items, "batches", batches.min(beside));
    set(items, "activations", activations.max(beside - batches.min(beside)));
}

/// Memory of the first of so many processes while a trained model runs on all parts in turns: the largest part on each
/// of its ranks, and what arrives at rank 0. Rows that wait on disk are not counted, though the system may hold some.
pub fn in_turns(
    config: &RunConfig,
    manifest: &Manifest,
    turns: Turns,
    processes: usize,
    work: Work,
) -> Result<MemoryNeed> {
    let (features, classes) = (manifest.features.width().max(1), manifest.labels.classes());
    let dense = !matches!(manifest.features, FeatureKind::Sparse { .. });
    let net = Net::of(config, features, classes, dense)?;
    let (part, ranks) = (largest(manifest, Reach { parts: 1, hops: 1 }), turns.ranks() as u64);
    let hosted = ranks.div_ceil(processes as u64);
    let mut need = MemoryNeed::default();
    need.add("program", PROGRAM);
    if processes > 1 {
        need.add("mpi", MPI);
    }
    need.add("graph", hosted * part.index());
    need.add("features", hosted * part.features());
    need.add("activations", hosted * part.beyond(&part, &net.widths));
    need.add("weights", hosted * held::weights(net.parameters) as u64);
    if let Work::Infer { embeddings } = work {
        let read = if embeddings { net.widths.shape.layer(net.layers() - 1).input } else { 0 };
        // A phase's rows and ids, as they are heard and as they are told. Later, when no part is held, every node's class,
        // or a byte for each of its labels: the one column of the output that is not on disk.
        let phase = 2 * ranks * (part.rows - part.guests) * (8 + 4 * (classes + read) as u64);
        let chosen = if manifest.labels.is_multi() { classes as u64 } else { 8 };
        need.add("predictions", phase.max(chosen * manifest.nodes));
    }
    Ok(need)
}

fn get(items: &[(&'static str, u64)], name: &str) -> u64 {
    items.iter().find(|(item, _)| *item == name).map_or(0, |(_, bytes)| *bytes)
}

fn set(items: &mut [(&'static str, u64)], name: &str, bytes: u64) {
    items.iter_mut().filter(|(item, _)| *item == name).for_each(|(_, slot)| *slot = bytes);
}
