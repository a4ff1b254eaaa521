//! From clusters to parts with the edges on disk: what a stream order spoilt, further passes over the nodes mend.
//!
//! Label propagation over the clusters (each node joins the cluster of most of its neighbours that has room), then the
//! graph of clusters, which is small, is partitioned in memory by a multilevel method ([`Multilevel`]), then, from these
//! parts or from those the caller has, whichever cut less, label propagation over the parts. Sizes stay within bounds
//! throughout (Akhremtsev, Sanders & Schulz, (Semi-)External Algorithms for Graph Partitioning and Clustering, 2014).
//!
//! Memory: 12 bytes per node and 12 per cluster, 64 per pair of adjacent clusters, of which there may be [`PAIRS`] per
//! node (where there are more, the caller's parts are taken), and the buffer of [`Neighbors`].

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
/// Pairs that are held however few nodes there are: 16 MB.
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

/// Parts from clusters, or from `start` if that cuts less or the graph of clusters is too large.
pub(super) fn partition(
    neighbors: &Neighbors,
    clusters: Labels,
    start: Assignment,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<Assignment> {
    let part_of = match by_clusters(neighbors, clusters, plan, progress)? {
        Some(found) => better(neighbors, found, start.part_of, progress)?,
        None => start.part_of,
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
    mut clusters: Labels,
    plan: &Plan,
    progress: &dyn Progress,
) -> Result<Option<Vec<u32>>> {
    let room = room(clusters.of.len(), plan.parts, plan.slack);
    propagate(neighbors, &mut clusters, room / SHARE, plan.passes, progress)?;
    let Some(coarse) = contract(neighbors, &clusters, progress)? else { return Ok(None) };
    let method = Multilevel { parts: plan.parts, room, key: plan.key, progress };
    let part_of_cluster = method.run(&coarse)?;
    let mut part_of = clusters.of;
    part_of.iter_mut().for_each(|cluster| *cluster = part_of_cluster[*cluster as usize]);
    Ok(Some(part_of))
}

/// The one of two assignments that cuts fewer edges, the first if they are equal.
fn better(
    neighbors: &Neighbors,
    first: Vec<u32>,
    second: Vec<u32>,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    let mut cuts = [0; 2];
    neighbors.each("comparing cuts", progress, |node, list| {
        for (cut, part_of) in cuts.iter_mut().zip([&first, &second]) {
            let home = part_of[node as usize];
            *cut += list.iter().filter(|&&other| part_of[other as usize] != home).count() as u64;
        }
    })?;
    Ok(if cuts[0] <= cuts[1] { first } else { second })
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

/// The graph of clusters, unless it has too many edges to hold.
fn contract(neighbors: &Neighbors, clusters: &Labels, progress: &dyn Progress) -> Result<Option<Level>> {
    let mut sizes = vec![0u32; clusters.count];
    let mut pairs = Pairs::new((PAIRS * clusters.of.len()).max(ALWAYS));
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
