//! From parts of edges to parts of nodes.
//!
//! Vertex-cut methods place edges, and a node has a copy wherever one of its edges lies. Training needs one owner
//! with the complete list of in-neighbours, so a node is owned by the part that holds most of its edges (ties: the
//! part that owns fewer nodes so far, then the lower number), and the store completes its list. Nodes without edges
//! come last and go to the smallest part. Memory: 4 bytes per node and part.

use super::passes::{Passing, each_chunk, prefetch};
use super::{Assignment, Partitioner, Request, checked_nodes};
use crate::Result;
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;
use std::cmp::Reverse;

/// A way of placing edges.
pub trait EdgePartitioner: Send + Sync {
    /// Places every edge of `dataset` in the order of its stream: `sink` gets the edges chunk by chunk, each with
    /// its part.
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()>;
}

/// Takes some consecutive edges and the part of each.
pub type EdgeSink<'a> = dyn FnMut(&EdgeChunk, &[u32]) -> Result<()> + 'a;

/// Gives `sink` every edge with the part that `part` chooses for it, in the order of the stream.
pub(super) fn place_each(
    dataset: &mut Dataset,
    progress: &dyn Progress,
    sink: &mut EdgeSink,
    mut part: impl FnMut(Passing) -> u32,
) -> Result<()> {
    let mut parts = Vec::with_capacity(EdgeChunk::EDGES);
    each_chunk(dataset, "placing edges", progress, |chunk| {
        parts.clear();
        parts.extend(Passing::all(chunk).map(&mut part));
        sink(chunk, &parts)
    })
}

/// A method that places edges, as one that assigns nodes.
#[derive(Debug, Clone, Copy)]
pub struct ByEdges<E>(pub E);

impl<E: EdgePartitioner> Partitioner for ByEdges<E> {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let nodes = checked_nodes(dataset, request)?;
        let mut owners = Owners::new(nodes, request.parts);
        self.0.place(dataset, request, progress, &mut |chunk, parts| {
            owners.count(chunk, parts);
            Ok(())
        })?;
        Ok(owners.choose())
    }

    fn edges(&self) -> Option<&dyn EdgePartitioner> {
        Some(&self.0)
    }
}

/// How many edges of each node lie in each part.
pub struct Owners {
    parts: u32,
    counts: Vec<u32>,
}

impl Owners {
    /// No edges yet.
    pub fn new(nodes: usize, parts: u32) -> Self {
        Self { parts, counts: vec![0; nodes * parts as usize] }
    }

    /// Takes note of placed edges.
    pub fn count(&mut self, chunk: &EdgeChunk, parts: &[u32]) {
        let width = self.parts as usize;
        let place = |node: u32, part: u32| node as usize * width + part as usize;
        for (at, edge) in Passing::all(chunk).enumerate() {
            let soon = parts[(at + Passing::AHEAD).min(parts.len() - 1)];
            for node in edge.later(Passing::AHEAD) {
                prefetch(&self.counts, place(node, soon));
            }
            for node in edge.ends() {
                let count = &mut self.counts[place(node, parts[at])];
                *count = count.saturating_add(1);
            }
        }
    }

    /// The owner of every node.
    pub fn choose(&self) -> Assignment {
        let mut sizes = vec![0u64; self.parts as usize];
        let mut part_of = vec![0; self.counts.len() / self.parts as usize];
        for isolated in [false, true] {
            for (part, counts) in part_of.iter_mut().zip(self.counts.chunks_exact(self.parts as usize)) {
                if counts.iter().all(|&count| count == 0) == isolated {
                    *part = owner(counts, &sizes);
                    sizes[*part as usize] += 1;
                }
            }
        }
        Assignment { parts: self.parts, part_of }
    }
}

/// The part with most edges; ties: with fewer nodes, then the lower number.
fn owner(counts: &[u32], sizes: &[u64]) -> u32 {
    (0..counts.len()).min_by_key(|&part| (Reverse(counts[part]), sizes[part])).map_or(0, |part| part as u32)
}
