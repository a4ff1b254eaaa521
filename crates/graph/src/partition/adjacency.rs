//! The whole graph in memory, for methods that must walk it: undirected neighbour lists.
//!
//! Directions are forgotten, self-loops dropped, and parallel edges merged into one whose weight is their number (so
//! an edge that is held in both directions weighs 2). Lists are ascending. Memory: 8 bytes per directed edge while
//! the lists are filled, 8 per distinct pair of neighbours and direction after.

use super::passes::{each_edge, small_nodes};
use super::tally::Tally;
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

    /// Makes of lists in any order, that of node `v` in `offsets[v]..offsets[v + 1]`, ascending ones.
    pub fn of_lists(offsets: Vec<usize>, mut entries: Vec<(u32, u32)>) -> Self {
        each_list(&offsets, &mut entries, &|list: &mut [(u32, u32)]| list.sort_unstable());
        let weights = entries.iter().map(|entry| entry.1).collect();
        // Written over the entries.
        let mut neighbors: Vec<u32> = entries.into_iter().map(|entry| entry.0).collect();
        neighbors.shrink_to_fit();
        Self { offsets, neighbors, weights }
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

    /// Each cluster as one node: the edges between two clusters are merged, those inside one are dropped.
    pub fn contracted(&self, cluster_of: &[u32], clusters: usize) -> Self {
        let (starts, members) = grouped(cluster_of, clusters);
        let mut coarse = Self { offsets: vec![0], neighbors: Vec::new(), weights: Vec::new() };
        let mut tally = Tally::new(clusters);
        for cluster in 0..clusters {
            for &node in &members[starts[cluster]..starts[cluster + 1]] {
                self.of(node).for_each(|(other, weight)| {
                    tally.add(cluster_of[other as usize], u64::from(weight));
                });
            }
            tally.sort();
            for (other, weight) in tally.drain().filter(|sum| sum.0 as usize != cluster) {
                coarse.neighbors.push(other);
                coarse.weights.push(u32::try_from(weight).unwrap_or(u32::MAX));
            }
            coarse.offsets.push(coarse.neighbors.len());
        }
        coarse
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

/// The nodes of each cluster, ascending: those of cluster `c` are `members[starts[c]..starts[c + 1]]`.
pub(crate) fn grouped(cluster_of: &[u32], clusters: usize) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0usize; clusters + 1];
    cluster_of.iter().for_each(|&cluster| starts[cluster as usize + 1] += 1);
    (0..clusters).for_each(|cluster| starts[cluster + 1] += starts[cluster]);
    let (mut next, mut members) = (starts.clone(), vec![0u32; cluster_of.len()]);
    for (node, &cluster) in cluster_of.iter().enumerate() {
        members[next[cluster as usize]] = node as u32;
        next[cluster as usize] += 1;
    }
    (starts, members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;

    fn lists(graph: &Adjacency) -> Vec<Vec<(u32, u32)>> {
        (0..graph.nodes() as u32).map(|node| graph.of(node).collect()).collect()
    }

    fn read(nodes: u64, pairs: &[(u64, u64)]) -> Adjacency {
        Adjacency::read(&mut small::bare("test", nodes, pairs), &Request::new(2, 0), &Silent).unwrap()
    }

    #[test]
    fn directions_are_forgotten_parallel_edges_merged_and_self_loops_dropped() {
        let graph = read(5, &[(3, 0), (0, 1), (1, 0), (0, 1), (2, 2), (0, 3), (3, 1), (2, 2)]);
        let expected: [&[(u32, u32)]; 5] =
            [&[(1, 3), (3, 2)], &[(0, 3), (3, 1)], &[], &[(0, 2), (1, 1)], &[]];
        assert_eq!(lists(&graph), expected);
        assert_eq!(graph.neighbors.len(), graph.weights.len());
    }

    #[test]
    fn a_graph_without_edges_or_nodes_has_empty_lists() {
        assert_eq!(lists(&read(2, &[])), [vec![], vec![]]);
        assert_eq!(read(0, &[]).nodes(), 0);
    }

    #[test]
    fn contraction_sums_the_edges_between_clusters_and_drops_those_inside() {
        let graph = read(6, &[(0, 1), (1, 2), (2, 1), (0, 3), (3, 4), (4, 5), (5, 0)]);
        let coarse = graph.contracted(&[0, 0, 2, 2, 1, 1], 3);
        assert_eq!(lists(&coarse), [vec![(1, 1), (2, 3)], vec![(0, 1), (2, 1)], vec![(0, 3), (1, 1)]]);
    }

    #[test]
    fn members_of_clusters_are_ascending() {
        assert_eq!(grouped(&[1, 0, 1, 3], 4), (vec![0, 1, 3, 3, 4], vec![1, 0, 2, 3]));
    }
}
