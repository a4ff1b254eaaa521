//! From clusters to parts with the edges on disk: what a stream order spoilt, further passes over the nodes mend.
//!
//! Label propagation over the clusters (each node joins the cluster of most of its neighbours that has room), then the
//! graph of clusters, which is small, is partitioned in memory by a multilevel method ([`Multilevel`]), then, from these
//! parts or from those the caller has, whichever cut less, label propagation over the parts. Sizes stay within bounds
//! throughout (Akhremtsev, Sanders & Schulz, (Semi-)External Algorithms for Graph Partitioning and Clustering, 2014).
//!
//! Memory: 36 bytes per node, at most 24 per pair of adjacent clusters, of which there may be [`PAIRS`] per node (where
//! there are more, the caller's parts are taken), and the buffer of [`Neighbors`].

use super::Assignment;
use super::coarse::{Multilevel, Pairs};
use super::moving::{Level, renumber};
use super::neighbors::Neighbors;
use super::packing::room;
use super::restream::Restream;
use super::tally::Tally;
use crate::Result;
use crate::progress::Progress;
use crate::random::Key;

/// Pairs of adjacent clusters per node that are held in memory.
const PAIRS: usize = 2;
/// Pairs that are held however few nodes there are: 10 MB.
const ALWAYS: usize = 1 << 18;
/// The largest cluster, as a share of a part.
const SHARE: u32 = 24;

/// How to make parts.
pub(super) struct Plan {
    /// How many.
    pub parts: u32,
    /// How much larger than the mean a part may get, as a share.
    pub slack: f64,
    /// Passes over the nodes, of each kind.
    pub passes: u64,
    /// For what is drawn.
    pub key: Key,
}

/// The most nodes that a cluster should have when parts have `room`.
pub(super) fn largest(room: u32) -> u32 {
    room / SHARE
}

/// Parts from clusters, or from `start` if that cuts less. `clusters` name the cluster of each node by a node, finer
/// ones first; the first whose graph is small enough are taken.
pub(super) fn partition(
    neighbors: &Neighbors,
    clusters: [Vec<u32>; 2],
    start: Assignment,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<Assignment> {
    let [fine, coarse] = clusters;
    let found = match by_clusters(neighbors, fine, plan, progress)? {
        Some(part_of) => Some(part_of),
        None => by_clusters(neighbors, coarse, plan, progress)?,
    };
    let part_of = match found {
        Some(part_of) if cut(neighbors, &part_of, progress)? <= cut(neighbors, &start.part_of, progress)? => {
            part_of
        }
        _ => start.part_of,
    };
    let mut stream = Restream::new(neighbors, part_of, plan.parts, plan.slack);
    for _ in 0..plan.passes {
        let moved = stream.pass("moving nodes between parts", progress, |count, _| f64::from(count))?;
        if moved * 500 < neighbors.nodes() {
            break;
        }
    }
    Ok(stream.finish())
}

/// The part of every node by a partition of the graph of clusters, unless that is too large.
fn by_clusters(
    neighbors: &Neighbors,
    labels: Vec<u32>,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<Option<Vec<u32>>> {
    let (nodes, room) = (labels.len(), room(labels.len(), plan.parts, plan.slack));
    let mut cluster_of = propagate(neighbors, labels, room / u64::from(SHARE), plan.passes, progress)?;
    let clusters = renumber(&mut cluster_of, nodes);
    let Some(coarse) = contract(neighbors, &cluster_of, clusters, progress)? else { return Ok(None) };
    let method = Multilevel { parts: plan.parts, room, key: plan.key, progress };
    let part_of_cluster = method.run(&coarse)?;
    Ok(Some(cluster_of.iter().map(|&cluster| part_of_cluster[cluster as usize]).collect()))
}

/// How many list entries name a neighbour in another part.
fn cut(neighbors: &Neighbors, part_of: &[u32], progress: &dyn Progress) -> Result<u64> {
    let mut cut = 0;
    neighbors.each("comparing cuts", progress, |node, list| {
        let home = part_of[node as usize];
        cut += list.iter().filter(|&&other| part_of[other as usize] != home).count() as u64;
    })?;
    Ok(cut)
}

/// Every node joins the cluster of most of its neighbours, as long as that has at most `most` nodes.
fn propagate(
    neighbors: &Neighbors,
    mut labels: Vec<u32>,
    most: u64,
    passes: u64,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    let mut filled = vec![0u32; labels.len()];
    labels.iter().for_each(|&label| filled[label as usize] += 1);
    let mut tally = Tally::new(labels.len());
    for _ in 0..passes {
        let mut moved = 0;
        neighbors.each("moving nodes between clusters", progress, |node, list| {
            let own = labels[node as usize];
            list.iter().for_each(|&other| tally.add(labels[other as usize], 1));
            let best = most_of(&mut tally, own, |label| u64::from(filled[label as usize]) < most);
            if best != own {
                filled[own as usize] -= 1;
                filled[best as usize] += 1;
                labels[node as usize] = best;
                moved += 1;
            }
        })?;
        if moved * 50 < neighbors.nodes() {
            break;
        }
    }
    Ok(labels)
}

/// The label with most neighbours among `own` and those that `fit`; ties go to `own`, then to the lowest.
fn most_of(tally: &mut Tally, own: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let mut best = (tally.of(own), own);
    for (label, count) in tally.drain() {
        let better = count > best.0 || (count == best.0 && best.1 != own && label < best.1);
        if better && fits(label) {
            best = (count, label);
        }
    }
    best.1
}

/// The graph of clusters, unless it has too many edges to hold.
fn contract(
    neighbors: &Neighbors,
    cluster_of: &[u32],
    clusters: usize,
    progress: &dyn Progress,
) -> Result<Option<Level>> {
    let mut sizes = vec![0u32; clusters];
    let mut pairs = Pairs::default();
    let most = (PAIRS * cluster_of.len()).max(ALWAYS);
    neighbors.each("joining clusters", progress, |node, list| {
        let own = cluster_of[node as usize];
        sizes[own as usize] += 1;
        for other in list.iter().map(|&other| cluster_of[other as usize]).filter(|&other| own < other) {
            if pairs.len() <= most {
                pairs.add(own, other, 1);
            }
        }
    })?;
    let small = pairs.len() <= most;
    Ok(small.then(|| pairs.level(sizes)))
}
