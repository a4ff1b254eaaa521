//! The whole graph in memory, for methods that must walk it: undirected neighbour lists.
//!
//! Directions are forgotten, self-loops dropped, and parallel edges merged into one whose weight is their number (so
//! an edge that is held in both directions weighs 2). Lists are ascending. Memory: 8 bytes per directed edge while
//! the lists are filled, 8 per distinct pair of neighbours and direction after.

use super::passes::{each_edge, small_nodes};
use super::{Request, each_list};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// Undirected neighbour lists.
pub(super) struct Adjacency {
    /// The list of node `v` is `offsets[v]..offsets[v + 1]`.
    pub offsets: Vec<usize>,
    /// Neighbours, ascending within a list.
    pub neighbors: Vec<u32>,
    /// How many edges join a node and its neighbour, by place in `neighbors`.
    pub weights: Vec<u32>,
}

impl Adjacency {
    /// Reads the edges of `dataset` twice.
    pub fn read(dataset: &mut Dataset, request: &Request, progress: &dyn Progress) -> Result<Self> {
        let nodes = small_nodes(dataset, request)?;
        let mut offsets = vec![0usize; nodes + 1];
        each_edge(dataset, "counting neighbours", progress, |source, target| {
            if source != target {
                offsets[source as usize + 1] += 1;
                offsets[target as usize + 1] += 1;
            }
        })?;
        (0..nodes).for_each(|node| offsets[node + 1] += offsets[node]);
        let mut next = offsets.clone();
        let mut neighbors = vec![0u32; offsets[nodes]];
        each_edge(dataset, "reading neighbours", progress, |source, target| {
            if source != target {
                for (node, other) in [(source, target), (target, source)] {
                    neighbors[next[node as usize]] = other;
                    next[node as usize] += 1;
                }
            }
        })?;
        drop(next);
        each_list(&offsets, &mut neighbors, &|list: &mut [u32]| list.sort_unstable());
        Ok(Self::merged(offsets, neighbors))
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Neighbours of `node` with the number of edges to each.
    pub fn of(&self, node: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.offsets[node as usize]..self.offsets[node as usize + 1];
        self.neighbors[range.clone()].iter().copied().zip(self.weights[range].iter().copied())
    }

    /// Squeezes equal neighbours of sorted lists together, in place.
    fn merged(mut offsets: Vec<usize>, mut neighbors: Vec<u32>) -> Self {
        let (mut weights, mut end, mut start) = (Vec::new(), 0, 0);
        for node in 0..offsets.len() - 1 {
            let list = start..offsets[node + 1];
            (start, offsets[node]) = (list.end, end);
            for place in list {
                let neighbor = neighbors[place];
                if end > offsets[node] && neighbors[end - 1] == neighbor {
                    weights[end - 1] += 1;
                } else {
                    neighbors[end] = neighbor;
                    weights.push(1);
                    end += 1;
                }
            }
        }
        if let Some(last) = offsets.last_mut() {
            *last = end;
        }
        neighbors.truncate(end);
        neighbors.shrink_to_fit();
        Self { offsets, neighbors, weights }
    }
}
