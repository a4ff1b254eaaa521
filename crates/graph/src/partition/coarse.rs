//! A good partition of a small weighted graph: multilevel, in memory.
//!
//! Coarsening by size-constrained label propagation, recursive until a few nodes per part are left; there several
//! greedy growths are tried and the best is kept; on the way back every level is refined by moves that cut less
//! (Meyerhenke, Sanders & Schulz, Partitioning Complex Networks via Size-Constrained Clustering, 2014). Memory and time:
//! O(edges of the small graph) per level.

use super::adjacency::Adjacency;
use super::moving::{Level, Moving, renumber};
use super::tally::{Tally, leads};
use crate::Result;
use crate::progress::Progress;
use crate::random::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nodes per part at which coarsening ends.
const FEW: usize = 24;
/// The largest cluster of a level, as a share of a part.
const SHARE: u64 = 12;
/// Greedy growths that are tried on the coarsest level.
const TRIES: u64 = 8;
/// Passes of label propagation and of refinement on each level, at most.
const ROUNDS: u64 = 8;

/// Parts of at most `room` nodes of the dataset, if they can be had.
pub(super) struct Multilevel<'a> {
    /// How many parts.
    pub parts: u32,
    /// The most nodes that a part should have.
    pub room: u64,
    /// For what is drawn.
    pub key: Key,
    /// Asked whether to go on.
    pub progress: &'a dyn Progress,
}

impl Multilevel<'_> {
    /// The part of every node of `level`.
    pub fn run(&self, level: &Level) -> Result<Vec<u32>> {
        let (cluster_of, clusters) = self.clusters(level)?;
        let coarser = level.nodes() > FEW * self.parts as usize && clusters * 10 <= level.nodes() * 9;
        let mut part_of = if coarser {
            let above =
                Self { key: self.key.with(1), ..*self }.run(&level.contracted(&cluster_of, clusters))?;
            cluster_of.iter().map(|&cluster| above[cluster as usize]).collect()
        } else {
            self.grow_best(level)
        };
        self.refine(level, &mut part_of);
        Ok(part_of)
    }

    fn clusters(&self, level: &Level) -> Result<(Vec<u32>, usize)> {
        let largest = level.sizes.iter().copied().max().unwrap_or(0);
        let cap = (self.room / SHARE).max(u64::from(largest));
        let mut labels: Vec<u32> = (0..level.nodes() as u32).collect();
        let moving = Moving { cap, resolution: 0.0, rounds: ROUNDS, key: self.key };
        moving.run(level, &mut labels, level.nodes(), self.progress)?;
        let clusters = renumber(&mut labels, level.nodes());
        Ok((labels, clusters))
    }

    /// The growth of several with the smallest cut, those within `room` first.
    fn grow_best(&self, level: &Level) -> Vec<u32> {
        let tried = (0..TRIES).map(|attempt| {
            let mut part_of = self.grow(level, self.key.with(2 + attempt));
            self.refine(level, &mut part_of);
            let over: u64 =
                self.filled(level, &part_of).iter().map(|size| size.saturating_sub(self.room)).sum();
            (over, cut(level, &part_of), part_of)
        });
        tried.min_by_key(|(over, cut, _)| (*over, *cut)).map(|best| best.2).unwrap_or_default()
    }

    /// Parts that grow one after the other from a random node, always by the node with most weight into the part.
    fn grow(&self, level: &Level, key: Key) -> Vec<u32> {
        let mut order: Vec<u32> = (0..level.nodes() as u32).collect();
        key.shuffle(&mut order);
        let (mut part_of, mut pulls) = (vec![self.parts; level.nodes()], Tally::new(level.nodes()));
        let mut left: u64 = level.sizes.iter().map(|&size| u64::from(size)).sum();
        let mut seeds = order.iter().copied();
        for part in 0..self.parts {
            let share = left / u64::from(self.parts - part);
            let (mut size, mut queue) = (0, BinaryHeap::new());
            while size < share {
                // Entries of the queue that are out of date name a node that is taken, or taken since.
                let pulled = std::iter::from_fn(|| queue.pop()).map(|(_, node): (u64, u32)| node);
                let free = |node: &u32| part_of[*node as usize] == self.parts;
                let Some(node) = pulled.chain(&mut seeds).find(free) else { break };
                part_of[node as usize] = part;
                size += u64::from(level.sizes[node as usize]);
                let free = |(other, _): &(u32, u32)| part_of[*other as usize] == self.parts;
                for (other, weight) in level.graph.of(node).filter(free) {
                    pulls.add(other, u64::from(weight));
                    queue.push((pulls.of(other), other));
                }
            }
            pulls.clear();
            left -= size;
        }
        part_of.iter_mut().filter(|part| **part == self.parts).for_each(|part| *part = self.parts - 1);
        part_of
    }

    /// Moves nodes to where they have most weight while that cuts less, or empties a part that is over `room`.
    fn refine(&self, level: &Level, part_of: &mut [u32]) {
        let mut filled = self.filled(level, part_of);
        let mut weights = vec![0u64; self.parts as usize];
        // Who has most weight at home wants to stay until a neighbour leaves.
        let mut settled = vec![false; level.nodes()];
        for _ in 0..ROUNDS {
            let mut moved = 0;
            for node in 0..level.nodes() as u32 {
                let (home, size) = (part_of[node as usize] as usize, u64::from(level.sizes[node as usize]));
                if settled[node as usize] && filled[home] <= self.room {
                    continue;
                }
                weights.fill(0);
                for (other, weight) in level.graph.of(node) {
                    weights[part_of[other as usize] as usize] += u64::from(weight);
                }
                settled[node as usize] = leads(&weights, home);
                let Some(best) = self.destination(&weights, &filled, home, size) else { continue };
                filled[home] -= size;
                filled[best] += size;
                part_of[node as usize] = best as u32;
                level.graph.of(node).for_each(|(other, _)| settled[other as usize] = false);
                settled[node as usize] = false;
                moved += 1;
            }
            if moved == 0 {
                break;
            }
        }
    }

    /// The part that a node of this `size` should leave `home` for, if there is one.
    fn destination(&self, weights: &[u64], filled: &[u64], home: usize, size: u64) -> Option<usize> {
        let fits = |part: &usize| *part != home && filled[*part] + size <= self.room;
        let most = |part: &usize| (weights[*part], Reverse(filled[*part]));
        let best = (0..weights.len()).filter(fits).max_by_key(most)?;
        let gains = weights[best] > weights[home]
            || (weights[best] == weights[home] && filled[best] + size < filled[home]);
        (gains || filled[home] > self.room).then_some(best)
    }

    fn filled(&self, level: &Level, part_of: &[u32]) -> Vec<u64> {
        let mut filled = vec![0u64; self.parts as usize];
        part_of.iter().zip(&level.sizes).for_each(|(&part, &size)| filled[part as usize] += u64::from(size));
        filled
    }
}

/// The weight of edges between parts, each counted from both ends.
fn cut(level: &Level, part_of: &[u32]) -> u64 {
    let outward = |node: u32| {
        let home = part_of[node as usize];
        let out = level.graph.of(node).filter(|(other, _)| part_of[*other as usize] != home);
        out.map(|(_, weight)| u64::from(weight)).sum::<u64>()
    };
    (0..level.nodes() as u32).map(outward).sum()
}

/// Weights of pairs of nodes, at most so many: a hash table with linear probing.
///
/// The table never has more slots than the most pairs need.
pub(super) struct Pairs {
    slots: Vec<Pair>,
    used: usize,
    most: usize,
}

/// Two nodes, the lower first, and the weight between them: 12 bytes.
#[derive(Clone, Copy)]
struct Pair {
    nodes: [u32; 2],
    weight: u32,
}

/// No pair: nobody is joined to themselves.
const EMPTY: Pair = Pair { nodes: [0; 2], weight: 0 };

impl Pair {
    #[inline]
    fn is_empty(&self) -> bool {
        self.nodes == EMPTY.nodes
    }
}

impl Pairs {
    /// Slots for each of the nodes to begin with: a sparse graph then has room without the table ever being made anew.
    const SLOTS: usize = 8;

    /// No pair of `nodes` nodes yet, and room for `most`.
    pub fn new(nodes: usize, most: usize) -> Self {
        let mut pairs = Self { slots: Vec::new(), used: 0, most };
        pairs.resize(Self::SLOTS * nodes.max(128));
        pairs
    }

    /// `weight` more between `a` and `b`, where always `a < b`; whether there was room.
    #[inline]
    pub fn add(&mut self, a: u32, b: u32, weight: u32) -> bool {
        let slot = self.slot([a, b]);
        let pair = &mut self.slots[slot];
        if pair.is_empty() {
            return self.insert(Pair { nodes: [a, b], weight });
        }
        pair.weight = pair.weight.saturating_add(weight);
        true
    }

    #[inline(never)]
    fn insert(&mut self, pair: Pair) -> bool {
        if self.used == self.most {
            return false;
        }
        // A quarter of the slots stays free, so that searches end soon.
        if self.used + self.used / 3 >= self.slots.len() - 1 {
            self.resize(2 * self.slots.len());
        }
        let slot = self.slot(pair.nodes);
        self.slots[slot] = pair;
        self.used += 1;
        true
    }

    fn resize(&mut self, slots: usize) {
        let slots = slots.min(self.most + self.most / 3 + 2);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; slots]);
        for pair in old.into_iter().filter(|pair| !pair.is_empty()) {
            let slot = self.slot(pair.nodes);
            self.slots[slot] = pair;
        }
    }

    /// Where the pair of `nodes` is, or would be. Nobody chooses these to harm us, so a multiplication mixes them well
    /// enough.
    #[inline]
    fn slot(&self, nodes: [u32; 2]) -> usize {
        let key = u64::from(nodes[0]) << 32 | u64::from(nodes[1]);
        let mixed = (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = ((u128::from(mixed) * self.slots.len() as u128) >> 64) as usize;
        while self.slots[slot].nodes != nodes && !self.slots[slot].is_empty() {
            slot = if slot + 1 == self.slots.len() { 0 } else { slot + 1 };
        }
        slot
    }

    /// The graph of nodes with these `sizes` that the pairs join; the order in which they were added does not matter.
    pub fn level(self, sizes: Vec<u32>) -> Level {
        let (offsets, entries) = self.lists(sizes.len());
        let graph = Adjacency::of_lists(offsets, entries);
        let degree = |node: u32| graph.of(node).map(|(_, weight)| u64::from(weight)).sum();
        let degrees = (0..sizes.len() as u32).map(degree).collect();
        Level { graph, sizes, degrees }
    }

    /// Where the list of each of `nodes` nodes starts, and all lists: the other ends of its pairs with their weights.
    fn lists(self, nodes: usize) -> (Vec<usize>, Vec<(u32, u32)>) {
        let mut pairs = self.slots;
        pairs.retain(|pair| !pair.is_empty());
        pairs.shrink_to_fit();
        let mut offsets = vec![0usize; nodes + 1];
        pairs.iter().flat_map(|pair| pair.nodes).for_each(|node| offsets[node as usize + 1] += 1);
        (0..nodes).for_each(|node| offsets[node + 1] += offsets[node]);
        let mut next = offsets.clone();
        let mut entries = vec![(0u32, 0u32); offsets[nodes]];
        for Pair { nodes: [a, b], weight } in pairs {
            for (node, other) in [(a, b), (b, a)] {
                entries[next[node as usize]] = (other, weight);
                next[node as usize] += 1;
            }
        }
        (offsets, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::random::Purpose;

    fn level(sizes: Vec<u32>, edges: impl Iterator<Item = (u32, u32, u32)>) -> Level {
        let mut pairs = Pairs::new(sizes.len(), 1 << 20);
        edges.for_each(|(a, b, weight)| assert!(pairs.add(a.min(b), a.max(b), weight)));
        pairs.level(sizes)
    }

    fn multilevel(parts: u32, room: u64) -> Multilevel<'static> {
        Multilevel { parts, room, key: Key::new(1, Purpose::Partition), progress: &Silent }
    }

    #[test]
    fn a_ring_of_cliques_is_cut_between_them_and_into_arcs() {
        // 64 cliques of 12 nodes, each of which stands for three.
        let inside =
            (0..64).flat_map(|c| (0..12).flat_map(move |a| (0..a).map(move |b| (c * 12 + a, c * 12 + b, 5))));
        let between = (0..64).map(|c| (c * 12, (c + 1) % 64 * 12 + 1, 1));
        let graph = level(vec![3; 64 * 12], inside.chain(between));
        let method = multilevel(4, 64 * 12 * 3 / 4 * 21 / 20);
        let part_of = method.run(&graph).unwrap();
        assert!(part_of.chunks(12).all(|clique| clique.iter().all(|part| part == &clique[0])), "{part_of:?}");
        // Four arcs cut four edges, each counted from both ends; a part may have come out as two arcs.
        assert!(cut(&graph, &part_of) <= 2 * 8, "{}", cut(&graph, &part_of));
        assert!(method.filled(&graph, &part_of).iter().all(|&size| size <= method.room));
    }

    #[test]
    fn pairs_are_summed_until_there_are_too_many() {
        let (mut pairs, most) = (Pairs::new(2, 5_000), 5_000);
        let pair = |i: u32| (i / 100, 100 + i % 100 * 7919);
        for round in 1..=3 {
            assert!((0..most).all(|i| pairs.add(pair(i).0, pair(i).1, round)));
        }
        assert!(!pairs.add(pair(most).0, pair(most).1, 1));
        assert!(pairs.add(pair(0).0, pair(0).1, 10), "a pair that is there can still grow");
        let level = pairs.level(vec![1; 800_000]);
        for node in 0..50 {
            let expected = (0..100).map(|i| (100 + i * 7919, if (node, i) == (0, 0) { 16 } else { 6 }));
            assert!(level.graph.of(node).eq(expected), "{node}");
        }
    }

    #[test]
    fn a_partition_does_not_depend_on_the_order_of_the_edges() {
        let edges: Vec<(u32, u32, u32)> =
            (0..300).map(|i| (i * 7 % 100, (i * 13 + 1) % 100, 1 + i % 3)).filter(|e| e.0 != e.1).collect();
        let forward = multilevel(3, 36).run(&level(vec![1; 100], edges.iter().copied())).unwrap();
        let backward = multilevel(3, 36).run(&level(vec![1; 100], edges.iter().rev().copied())).unwrap();
        assert_eq!(forward, backward);
    }
}
