//! From clusters to parts with the edges on disk: what a stream order spoilt, further passes over the nodes mend.
//!
//! Label propagation over the clusters (each node joins the cluster of most of its neighbours that has room), then the
//! graph of clusters, which is small, is partitioned in memory by a multilevel method ([`Multilevel`]), then label
//! propagation over the parts. Sizes stay within bounds throughout (Akhremtsev, Sanders & Schulz, (Semi-)External
//! Algorithms for Graph Partitioning and Clustering, 2014).
//!
//! Memory: 12 bytes per node and 12 per cluster, 40 per pair of adjacent clusters, of which there may be [`PAIRS`] per
//! node (where there are more, the caller makes the parts), and the buffer of [`Neighbors`].

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
use std::ops::ControlFlow;

/// Pairs of adjacent clusters per node that are held in memory.
const PAIRS: usize = 2;
/// Pairs that are held however few nodes there are: at most 12 MB.
const ALWAYS: usize = 1 << 18;
/// The largest cluster, as a share of a part.
const SHARE: u64 = 24;

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

/// Clusters of nodes: the number of each node's, all numbers below that of the clusters being given to some node.
#[derive(Clone)]
pub(super) struct Labels {
    /// The cluster of each node.
    pub of: Vec<u32>,
    /// How many clusters there are.
    pub count: usize,
}

/// Parts from clusters, by way of the graph of clusters, or if that is too large as `otherwise` makes them.
pub(super) fn partition(
    neighbors: &Neighbors,
    mut clusters: Labels,
    plan: &Plan,
    otherwise: impl FnOnce(Labels) -> Result<Assignment>,
    progress: &dyn Progress,
) -> Result<Assignment> {
    let room = room(clusters.of.len(), plan.parts, plan.slack);
    let most = (PAIRS * clusters.of.len()).max(ALWAYS);
    // A graph with so few edges has no more pairs of clusters: only with more is there need for what propagation changes.
    let original = (neighbors.edges() > most as f64).then(|| clusters.clone());
    propagate(neighbors, &mut clusters, room / SHARE, plan.passes, progress)?;
    let start = match contract(neighbors, &clusters, most, progress)? {
        Some(coarse) => {
            drop(original);
            let part_of_cluster =
                Multilevel { parts: plan.parts, room, key: plan.key, progress }.run(&coarse)?;
            clusters.of.iter_mut().for_each(|cluster| *cluster = part_of_cluster[*cluster as usize]);
            clusters.of
        }
        None => otherwise(original.unwrap_or(clusters))?.part_of,
    };
    let mut stream = Restream::new(neighbors, start, plan.parts, plan.slack);
    stream.mend(plan.passes, progress)?;
    Ok(stream.finish())
}

/// Every node joins the cluster of most of its neighbours, as long as that has at most `most` nodes.
fn propagate(
    neighbors: &Neighbors,
    clusters: &mut Labels,
    most: u64,
    passes: u64,
    progress: &dyn Progress,
) -> Result<()> {
    let mut near = Vec::new();
    for _ in 0..passes {
        let labels = &mut clusters.of;
        let mut filled = vec![0u32; clusters.count];
        labels.iter().for_each(|&label| filled[label as usize] += 1);
        let mut tally = Tally::new(clusters.count);
        let mut moved = 0;
        neighbors.each("moving nodes between clusters", progress, |node, list| {
            let own = labels[node as usize];
            // Labels come from all over memory: they are all asked for before the first is looked at.
            near.clear();
            near.extend(list.iter().map(|&other| labels[other as usize]));
            if near.iter().all(|&label| label == own) {
                return;
            }
            near.iter().for_each(|&label| tally.add(label, 1));
            let best = most_of(&mut tally, own, |label| u64::from(filled[label as usize]) < most);
            if best != own {
                filled[own as usize] -= 1;
                filled[best as usize] += 1;
                labels[node as usize] = best;
                moved += 1;
            }
        })?;
        // Fewer numbers are nearer together; their order, which decides ties, stays.
        clusters.count = renumber(labels, clusters.count);
        if moved * 10 < neighbors.nodes() {
            break;
        }
    }
    Ok(())
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

/// The graph of clusters, unless it has more than `most` pairs of neighbours.
fn contract(
    neighbors: &Neighbors,
    clusters: &Labels,
    most: usize,
    progress: &dyn Progress,
) -> Result<Option<Level>> {
    let mut sizes = vec![0u32; clusters.count];
    let mut pairs = Pairs::new(clusters.count, most);
    let mut full = false;
    neighbors.each_until("joining clusters", progress, |node, list| {
        let own = clusters.of[node as usize];
        sizes[own as usize] += 1;
        let mut others = list.iter().map(|&other| clusters.of[other as usize]).filter(|&other| own < other);
        full = !others.all(|other| pairs.add(own, other, 1));
        if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok((!full).then(|| pairs.level(sizes)))
}
