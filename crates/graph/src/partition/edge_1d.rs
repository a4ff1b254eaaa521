//! One-dimensional edge placement: an edge lies with its source (or its target).
//!
//! GraphTheta's default (Liu et al., 2022, section 5.4, `1D-edge partition`): all out-edges of a node are together,
//! so edge attributes and attention are computed without messages. The paper hashes nodes to parts, which balances
//! nodes. Here nodes are cut into P contiguous stretches of ids with nearly equal numbers of out-edges (off by less
//! than the largest degree), which balances edges and keeps whatever locality ids have.
//! A node's owner is, as for every method that places edges, the part with most of its edges.
//! Two passes; memory: 4 bytes per node.

use super::by_edges::place_each;
use super::passes::{Passing, each_edge, prefetch, small_nodes};
use super::settings::{Setting, Values};
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

const BY: Setting = Setting {
    name: "by",
    default: "source",
    about: "which end an edge lies with",
    values: Values::Words(&["source", "target"]),
};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "edge-1d",
    summary: "edges with their source: stretches of ids with equal numbers of out-edges",
    paper: "Liu et al., GraphTheta: A Distributed Graph Neural Network Learning System With Flexible Training \
            Strategy, 2022",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[BY],
    build: || Box::new(ByEdges(Edge1d)),
};

/// Edges with one of their ends.
#[derive(Debug, Clone, Copy)]
pub struct Edge1d;

impl EdgePartitioner for Edge1d {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        let by_target = request.is(&ENTRY, BY.name, "target")?;
        let mut counts = vec![0u32; small_nodes(dataset, request)?];
        let end = |ends: [u32; 2]| ends[usize::from(by_target)] as usize;
        each_edge(dataset, "counting edges", progress, |source, target| {
            let count = &mut counts[end([source, target])];
            *count = count.saturating_add(1);
        })?;
        let part_of = stretches(counts, request.parts);
        place_each(dataset, progress, sink, |edge| {
            prefetch(&part_of, end(edge.later(Passing::AHEAD)));
            part_of[end(edge.ends())]
        })
    }
}

/// The stretch of every node, in place of its number of edges: that in which the middle one of its edges falls.
fn stretches(mut counts: Vec<u32>, parts: u32) -> Vec<u32> {
    let total: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    let mut before = 0;
    for count in &mut counts {
        let edges = u128::from(*count);
        let share = (2 * before + edges) * u128::from(parts) / (2 * total).max(1);
        *count = (share as u32).min(parts - 1);
        before += edges;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_contiguous_and_equal_up_to_a_node() {
        assert_eq!(stretches(vec![1, 1, 1, 1, 4, 0, 2, 2], 3), [0, 0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(stretches(vec![0, 9, 0], 2), [0, 1, 1]);
        assert_eq!(stretches(vec![0, 0], 5), [0, 0]);
    }
}
