//! Clusters of a graph that is in memory become parts that keep neighbouring clusters together.
//!
//! Parts grow one after the other, from the largest cluster that is left, by the cluster that fits and has the largest
//! share of its edges into the part (greedy graph growing, Karypis & Kumar 1998, on clusters; by shares rather than
//! numbers, which large clusters would win wherever they belong). Then clusters move to the part with most of their
//! edges, then nodes do. What fits nowhere falls apart into nodes, which [`follow`] their neighbours. Ties: the lower
//! cluster, the lower part. Memory: the graph of clusters and about 30 bytes per node.

use super::Assignment;
use super::adjacency::Adjacency;
use super::moving::{Level, Moving};
use super::tally::Tally;
use crate::Result;
use crate::progress::Progress;
use crate::random::Key;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The part of what has none.
pub(super) const NONE: u32 = u32::MAX;

/// The most nodes that a part may have: `1 + slack` times its equal share, and never less than that share.
pub(super) fn room(nodes: usize, parts: u32, slack: f64) -> u64 {
    let share = (nodes as u64).div_ceil(u64::from(parts));
    share.max((share as f64 * (1.0 + slack)) as u64)
}

/// How clusters become parts.
pub(super) struct Packing {
    /// How many parts there are.
    pub parts: u32,
    /// The most nodes that a part may have.
    pub room: u64,
    /// How often all nodes may be visited to improve the parts.
    pub rounds: u64,
    /// The order of these visits.
    pub key: Key,
}

impl Packing {
    /// The part of every node of `finest`, whose clusters are numbered below `clusters`.
    pub fn run(
        &self,
        finest: &Level,
        cluster_of: &[u32],
        clusters: usize,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let coarse = finest.contracted(cluster_of, clusters);
        let mut part_of_cluster = self.grow(&coarse);
        if !part_of_cluster.contains(&NONE) {
            self.refine(&coarse, &mut part_of_cluster, progress)?;
        }
        let mut part_of: Vec<u32> =
            cluster_of.iter().map(|&cluster| part_of_cluster[cluster as usize]).collect();
        drop(coarse);
        follow(&finest.graph, &mut part_of, self.parts, self.room);
        self.refine(finest, &mut part_of, progress)?;
        Ok(Assignment { parts: self.parts, part_of })
    }

    fn refine(&self, level: &Level, part_of: &mut [u32], progress: &dyn Progress) -> Result<()> {
        let moving = Moving { cap: self.room, resolution: 0.0, rounds: self.rounds, key: self.key };
        moving.run(level, part_of, self.parts as usize, progress)
    }

    /// The part of every cluster, [`NONE`] for one that fits nowhere.
    fn grow(&self, coarse: &Level) -> Vec<u32> {
        let mut order: Vec<u32> = (0..coarse.nodes() as u32).collect();
        order.sort_by_key(|&cluster| (Reverse(coarse.sizes[cluster as usize]), cluster));
        let leaving = |cluster: u32| coarse.graph.of(cluster).map(|(_, weight)| u64::from(weight)).sum();
        let mut growth = Growth {
            coarse,
            part_of: vec![NONE; order.len()],
            leaving: (0..coarse.nodes() as u32).map(leaving).collect(),
            pulls: Tally::new(order.len()),
            order,
        };
        let mut left: u64 = coarse.sizes.iter().map(|&size| u64::from(size)).sum();
        for part in 0..self.parts {
            let share = left.div_ceil(u64::from(self.parts - part));
            left -= growth.fill(part, share, self.room);
        }
        growth.part_of
    }
}

/// Parts that grow cluster by cluster.
struct Growth<'a> {
    coarse: &'a Level,
    part_of: Vec<u32>,
    /// Clusters in descending size.
    order: Vec<u32>,
    /// The edges that leave each cluster.
    leaving: Vec<u64>,
    /// The edges of each cluster into the part that grows.
    pulls: Tally,
}

impl Growth<'_> {
    /// Fills `part` with about `share` nodes, at most `room`; how many it got.
    fn fill(&mut self, part: u32, share: u64, room: u64) -> u64 {
        let (mut filled, mut seeds, mut near) = (0, 0, BinaryHeap::new());
        while filled < share {
            let nearest = near.pop().map(|(_, Reverse(cluster))| cluster);
            let Some(cluster) = nearest.or_else(|| self.seed(&mut seeds, room - filled)) else { break };
            let size = u64::from(self.coarse.sizes[cluster as usize]);
            if self.part_of[cluster as usize] != NONE || filled + size > room {
                continue;
            }
            self.part_of[cluster as usize] = part;
            filled += size;
            for (other, weight) in self.coarse.graph.of(cluster) {
                self.pulls.add(other, u64::from(weight));
                if self.part_of[other as usize] == NONE {
                    near.push((self.affinity(other), Reverse(other)));
                }
            }
        }
        self.pulls.clear();
        filled
    }

    /// Of the edges that leave `cluster`, the share that ends in the part that grows, in units of 2^-32.
    fn affinity(&self, cluster: u32) -> u128 {
        (u128::from(self.pulls.of(cluster)) << 32) / u128::from(self.leaving[cluster as usize])
    }

    /// The largest cluster without a part that has at most `room` nodes, among those from place `seeds` on.
    fn seed(&self, seeds: &mut usize, room: u64) -> Option<u32> {
        let size = |cluster: u32| u64::from(self.coarse.sizes[cluster as usize]);
        let fits = self.order.partition_point(|&cluster| size(cluster) > room);
        *seeds = fits.max(*seeds);
        let rest = &self.order[*seeds..];
        let place = rest.iter().position(|&cluster| self.part_of[cluster as usize] == NONE)?;
        *seeds += place + 1;
        Some(rest[place])
    }
}

/// Gives each node without a part the one that has most of its edges among those with room, or else the part with
/// the fewest nodes. Nodes are taken breadth first from the lowest id, so that they find neighbours before them.
pub(super) fn follow(graph: &Adjacency, part_of: &mut [u32], parts: u32, room: u64) {
    let mut sizes = vec![0u64; parts as usize];
    part_of.iter().filter(|&&part| part != NONE).for_each(|&part| sizes[part as usize] += 1);
    let mut least: BinaryHeap<_> = (0..parts).map(|part| Reverse((sizes[part as usize], part))).collect();
    let mut tally = Tally::new(parts as usize);
    let mut queued: Vec<bool> = part_of.iter().map(|&part| part != NONE).collect();
    let mut queue = VecDeque::new();
    for start in 0..part_of.len() as u32 {
        if !std::mem::replace(&mut queued[start as usize], true) {
            queue.push_back(start);
        }
        while let Some(node) = queue.pop_front() {
            for (other, weight) in graph.of(node) {
                if part_of[other as usize] != NONE {
                    tally.add(part_of[other as usize], u64::from(weight));
                } else if !std::mem::replace(&mut queued[other as usize], true) {
                    queue.push_back(other);
                }
            }
            let open = tally.drain().filter(|sum| sizes[sum.0 as usize] < room);
            let most = open.max_by_key(|&(part, weight)| (weight, Reverse(part)));
            let part = most.map_or_else(|| least_filled(&mut least, &sizes), |(part, _)| part);
            part_of[node as usize] = part;
            sizes[part as usize] += 1;
        }
    }
}

/// The part with the fewest nodes; `heap` holds every part once, with a size that it had at some time.
fn least_filled(heap: &mut BinaryHeap<Reverse<(u64, u32)>>, sizes: &[u64]) -> u32 {
    while let Some(mut top) = heap.peek_mut() {
        let (known, part) = top.0;
        let size = sizes[part as usize];
        if known == size {
            return part;
        }
        top.0.0 = size;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;
    use crate::progress::Silent;
    use crate::random::Purpose;
    use crate::synthetic::small;

    fn packing(parts: u32, room: u64) -> Packing {
        Packing { parts, room, rounds: 0, key: Key::new(0, Purpose::Partition) }
    }

    fn path(nodes: u64) -> Level {
        let dataset = &mut small::path(nodes);
        Level::finest(Adjacency::read(dataset, &Request::new(1, 0), &Silent).unwrap())
    }

    #[test]
    fn neighbouring_clusters_share_a_part() {
        let assignment = packing(3, 4).run(&path(12), &[0, 0, 3, 3, 1, 1, 4, 4, 2, 2, 5, 5], 6, &Silent);
        assert_eq!(assignment.unwrap().part_of, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn a_cluster_that_fits_nowhere_falls_apart_and_no_part_exceeds_its_room() {
        let assignment = packing(2, 3).run(&path(6), &[0, 0, 0, 0, 0, 0], 1, &Silent).unwrap();
        assert_eq!(assignment.part_of, [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn nodes_without_a_part_follow_their_neighbours_while_there_is_room() {
        let mut part_of = [NONE, 1, NONE, NONE, NONE, NONE];
        follow(&path(6).graph, &mut part_of, 3, 2);
        assert_eq!(part_of, [1, 1, 0, 0, 2, 2]);
    }

    #[test]
    fn room_is_never_less_than_the_equal_share() {
        assert_eq!((room(10, 3, 0.0), room(10, 3, 0.5), room(0, 3, 0.5), room(2, 9, 0.0)), (4, 6, 0, 1));
    }
}
