//! From parts of edges to parts of nodes.
//!
//! Vertex-cut methods place edges, and a node has a copy wherever one of its edges lies. Training needs one owner
//! with the complete list of in-neighbours, so a node is owned by the part that holds most of its edges (ties: the
//! part with fewer nodes, then the lower number), and the store completes its list. Nodes without edges go to the
//! smallest part. Memory: 4 bytes per node and part.

use super::{Assignment, Partitioner, Request, checked_nodes};
use crate::Result;
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;

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
        for (ends, &part) in chunk.sources.iter().zip(&chunk.targets).zip(parts) {
            for node in [*ends.0, *ends.1] {
                let count = &mut self.counts[node as usize * width + part as usize];
                *count = count.saturating_add(1);
            }
        }
    }

    /// The owner of every node.
    pub fn choose(&self) -> Assignment {
        let mut sizes = vec![0u64; self.parts as usize];
        let owner = |counts: &[u32]| {
            let best =
                (0..counts.len()).min_by_key(|&part| (std::cmp::Reverse(counts[part]), sizes[part], part));
            let best = best.unwrap_or(0);
            sizes[best] += 1;
            best as u32
        };
        let part_of = self.counts.chunks_exact(self.parts as usize).map(owner).collect();
        Assignment { parts: self.parts, part_of }
    }
}
