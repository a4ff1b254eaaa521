//! PowerGraph's greedy placement: an edge goes where its ends already are.
//!
//! Gonzalez, Low, Gu, Bickson, Guestrin, "PowerGraph: Distributed Graph-Parallel Computation on Natural Graphs", OSDI
//! 2012. With `A(v)` the parts in which `v` has a copy, an edge `(u, v)` goes to the least loaded part (ties: the
//! lower number) of the first of these sets that is not empty:
//! 1. `A(u) & A(v)`: no new copy; 2. `A(u) | A(v)`, both or one of them not empty: one new copy; 3. all parts.
//!
//! Where both ends have copies but never in the same part, the paper prefers the end with more edges to come, which
//! needs degrees; like its code, and the comparisons that followed, we take the least loaded part of either end.
//! Loads are balanced only where there is a choice: a stream in breadth-first order ends up in few parts (with `hdrf`
//! and its `lambda` above 2 it does not). One pass; O(1) per edge if the least loaded part is in the set, else O(parts in it).
//! Memory: P bits per node.

use super::by_edges::place_each;
use super::loads::Loads;
use super::passes::{Passing, small_nodes};
use super::replicas::Replicas;
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "greedy",
    summary: "edges where their ends already have copies, else where there are fewest",
    paper: "Gonzalez et al., PowerGraph: Distributed Graph-Parallel Computation on Natural Graphs, OSDI 2012",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[],
    build: || Box::new(ByEdges(Greedy)),
};

/// PowerGraph's greedy placement.
#[derive(Debug, Clone, Copy)]
pub struct Greedy;

impl EdgePartitioner for Greedy {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        let mut replicas = Replicas::new(small_nodes(dataset, request)?, request.parts);
        let mut loads = Loads::new(request.parts);
        place_each(dataset, progress, sink, |edge| {
            let [source, target] = edge.ends().map(|node| node as usize);
            replicas.prefetch(edge.later(Passing::AHEAD));
            let part = choose(&replicas, &loads, source, target);
            replicas.add(source, part);
            replicas.add(target, part);
            loads.add(part);
            part
        })
    }
}

#[inline]
fn choose(replicas: &Replicas, loads: &Loads, source: usize, target: usize) -> u32 {
    let words = replicas.words();
    loads
        .least_of(words, |word| replicas.word(source, word) & replicas.word(target, word))
        .or_else(|| loads.least_of(words, |word| replicas.word(source, word) | replicas.word(target, word)))
        .unwrap_or_else(|| loads.least())
}
