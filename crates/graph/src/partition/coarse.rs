//! A small weighted graph, and a good partition of it: multilevel, in memory.
//!
//! Nodes stand for clusters of nodes. Coarsening by size-constrained label propagation, recursive until a few nodes
//! per part are left; there several greedy growths are tried and the best is kept; on the way back every level is
//! refined by moves that cut less (Meyerhenke, Sanders & Schulz, Partitioning Complex Networks via Size-Constrained
//! Clustering, 2014). Memory and time: O(edges of the small graph) per level.

use crate::random::Key;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// A graph whose nodes and edges have weights.
pub(super) struct Coarse {
    /// How many nodes of the graph below each node stands for.
    pub sizes: Vec<u32>,
    offsets: Vec<usize>,
    neighbors: Vec<u32>,
    weights: Vec<u64>,
}

/// Nodes per part at which coarsening ends.
const FEW: usize = 24;
/// The largest cluster of a level, as a share of a part.
const SHARE: u64 = 12;
/// Greedy growths that are tried on the coarsest level.
const TRIES: u64 = 8;
/// Passes of label propagation and of refinement on each level, at most.
const ROUNDS: usize = 8;

impl Coarse {
    /// The graph of nodes with these `sizes` and undirected edges `(a, b, weight)`, `a != b`, each given once.
    pub fn new(sizes: Vec<u32>, edges: impl Iterator<Item = (u32, u32, u64)> + Clone) -> Self {
        let mut offsets = vec![0usize; sizes.len() + 1];
        for (a, b, _) in edges.clone() {
            offsets[a as usize + 1] += 1;
            offsets[b as usize + 1] += 1;
        }
        (0..sizes.len()).for_each(|node| offsets[node + 1] += offsets[node]);
        let mut next = offsets.clone();
        let mut entries = vec![(0u32, 0u64); offsets[sizes.len()]];
        for (a, b, weight) in edges {
            for (node, other) in [(a, b), (b, a)] {
                entries[next[node as usize]] = (other, weight);
                next[node as usize] += 1;
            }
        }
        // Edges may come out of a hash map: their order must not matter.
        offsets.windows(2).for_each(|list| entries[list[0]..list[1]].sort_unstable());
        let (neighbors, weights) = entries.into_iter().unzip();
        Self { sizes, offsets, neighbors, weights }
    }

    fn nodes(&self) -> usize {
        self.sizes.len()
    }

    fn of(&self, node: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        let list = self.offsets[node as usize]..self.offsets[node as usize + 1];
        self.neighbors[list.clone()].iter().copied().zip(self.weights[list].iter().copied())
    }

    /// The graph in which every cluster is one node.
    fn contract(&self, cluster_of: &[u32], clusters: usize) -> Self {
        let mut sizes = vec![0u32; clusters];
        let mut pairs = Pairs::default();
        for node in 0..self.nodes() as u32 {
            let own = cluster_of[node as usize];
            sizes[own as usize] += self.sizes[node as usize];
            for (other, weight) in self.of(node).map(|(other, weight)| (cluster_of[other as usize], weight)) {
                if own < other {
                    pairs.add(own, other, weight);
                }
            }
        }
        Self::new(sizes, pairs.iter())
    }

    /// Assigns nodes to `parts` parts of at most `room` nodes of the graph below, if they can be had.
    pub fn partition(&self, parts: u32, room: u64, key: Key) -> Vec<u32> {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        let most = (room / SHARE).max(u64::from(largest));
        let (cluster_of, clusters) = self.propagate(most, key);
        let coarsened = self.nodes() > FEW * parts as usize && clusters * 10 <= self.nodes() * 9;
        let mut part_of = if coarsened {
            let above = self.contract(&cluster_of, clusters).partition(parts, room, key.with(1));
            cluster_of.iter().map(|&cluster| above[cluster as usize]).collect()
        } else {
            self.grow_best(parts, room, key)
        };
        self.refine(&mut part_of, parts, room);
        part_of
    }

    /// Label propagation: every node joins the cluster to which it has most weight and in which there is room.
    fn propagate(&self, most: u64, key: Key) -> (Vec<u32>, usize) {
        let mut order: Vec<u32> = (0..self.nodes() as u32).collect();
        key.shuffle(&mut order);
        let mut labels: Vec<u32> = (0..self.nodes() as u32).collect();
        let mut filled: Vec<u64> = self.sizes.iter().map(|&size| u64::from(size)).collect();
        let mut tally = Tally::new(self.nodes());
        for _ in 0..ROUNDS {
            let mut moved = 0;
            for &node in &order {
                let (own, size) = (labels[node as usize], u64::from(self.sizes[node as usize]));
                tally.clear();
                self.of(node).for_each(|(other, weight)| tally.add(labels[other as usize], weight));
                let best = tally.best(own, |label| filled[label as usize] + size <= most);
                if best != own {
                    filled[own as usize] -= size;
                    filled[best as usize] += size;
                    labels[node as usize] = best;
                    moved += 1;
                }
            }
            if moved * 50 < self.nodes() {
                break;
            }
        }
        renumber(labels)
    }

    /// The growth of several with the smallest cut, those within `room` first.
    fn grow_best(&self, parts: u32, room: u64, key: Key) -> Vec<u32> {
        let tried = (0..TRIES).map(|attempt| {
            let mut part_of = self.grow(parts, key.with(2 + attempt));
            self.refine(&mut part_of, parts, room);
            let over = self.filled(&part_of, parts).iter().map(|size| size.saturating_sub(room)).sum::<u64>();
            (over, self.cut(&part_of), part_of)
        });
        tried.min_by_key(|(over, cut, _)| (*over, *cut)).map(|best| best.2).unwrap_or_default()
    }

    /// Parts that grow one after the other from a random node, always by the node with most weight into the part.
    fn grow(&self, parts: u32, key: Key) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.nodes() as u32).collect();
        key.shuffle(&mut order);
        let mut part_of = vec![parts; self.nodes()];
        let mut left: u64 = self.sizes.iter().map(|&size| u64::from(size)).sum();
        let mut seeds = order.iter().copied();
        for part in 0..parts {
            let share = left / u64::from(parts - part);
            let (mut size, mut pull, mut queue) = (0, HashMap::new(), BinaryHeap::new());
            while size < share {
                // Entries of the queue that are out of date name a node that is taken, or taken since.
                let pulled = std::iter::from_fn(|| queue.pop()).map(|(_, node): (u64, u32)| node);
                let Some(node) = pulled.chain(&mut seeds).find(|&node| part_of[node as usize] == parts)
                else {
                    break;
                };
                part_of[node as usize] = part;
                size += u64::from(self.sizes[node as usize]);
                for (other, weight) in self.of(node).filter(|(other, _)| part_of[*other as usize] == parts) {
                    let pull = pull.entry(other).or_insert(0);
                    *pull += weight;
                    queue.push((*pull, other));
                }
            }
            left -= size;
        }
        part_of.iter_mut().filter(|part| **part == parts).for_each(|part| *part = parts - 1);
        part_of
    }

    /// Moves nodes to where they have most weight while that cuts less, or empties a part that is over `room`.
    fn refine(&self, part_of: &mut [u32], parts: u32, room: u64) {
        let mut filled = self.filled(part_of, parts);
        let mut weights = vec![0u64; parts as usize];
        for _ in 0..ROUNDS {
            let mut moved = 0;
            for node in 0..self.nodes() as u32 {
                let (home, size) = (part_of[node as usize] as usize, u64::from(self.sizes[node as usize]));
                weights.fill(0);
                self.of(node).for_each(|(other, weight)| weights[part_of[other as usize] as usize] += weight);
                let fits = |part: &usize| *part != home && filled[*part] + size <= room;
                let best = (0..parts as usize)
                    .filter(fits)
                    .max_by_key(|&part| (weights[part], std::cmp::Reverse(filled[part])));
                let Some(best) = best else { continue };
                let gains = weights[best] > weights[home]
                    || (weights[best] == weights[home] && filled[best] + size < filled[home]);
                if gains || filled[home] > room {
                    filled[home] -= size;
                    filled[best] += size;
                    part_of[node as usize] = best as u32;
                    moved += 1;
                }
            }
            if moved == 0 {
                break;
            }
        }
    }

    fn filled(&self, part_of: &[u32], parts: u32) -> Vec<u64> {
        let mut filled = vec![0u64; parts as usize];
        part_of.iter().zip(&self.sizes).for_each(|(&part, &size)| filled[part as usize] += u64::from(size));
        filled
    }

    fn cut(&self, part_of: &[u32]) -> u64 {
        let outward = |node: u32| {
            let home = part_of[node as usize];
            self.of(node)
                .filter(|(other, _)| part_of[*other as usize] != home)
                .map(|(_, weight)| weight)
                .sum::<u64>()
        };
        (0..self.nodes() as u32).map(outward).sum()
    }
}

/// Weights of pairs of nodes.
#[derive(Default)]
pub(super) struct Pairs {
    weights: HashMap<u64, u64, BuildHasherDefault<Mixed>>,
}

impl Pairs {
    /// `weight` more between `a` and `b`.
    #[inline]
    pub fn add(&mut self, a: u32, b: u32, weight: u64) {
        *self.weights.entry(u64::from(a) << 32 | u64::from(b)).or_default() += weight;
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Every pair with its weight, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> + Clone + '_ {
        self.weights.iter().map(|(&pair, &weight)| ((pair >> 32) as u32, pair as u32, weight))
    }
}

/// A hash of one number: nobody chooses these keys to harm us, so a multiplication will do.
#[derive(Default)]
pub(super) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

/// Numbers the labels in use from 0, in the order in which they first occur; how many there are.
pub(super) fn renumber(mut labels: Vec<u32>) -> (Vec<u32>, usize) {
    let mut numbers = vec![u32::MAX; labels.len()];
    let mut count = 0;
    for label in &mut labels {
        let number = &mut numbers[*label as usize];
        if *number == u32::MAX {
            *number = count;
            count += 1;
        }
        *label = *number;
    }
    (labels, count as usize)
}

/// How much weight a node has to each label, for one node at a time.
pub(super) struct Tally {
    weights: Vec<u64>,
    met: Vec<u32>,
}

impl Tally {
    /// Nothing yet; labels will be below `labels`.
    pub fn new(labels: usize) -> Self {
        Self { weights: vec![0; labels], met: Vec::new() }
    }

    /// Forgets the last node.
    pub fn clear(&mut self) {
        self.met.drain(..).for_each(|label| self.weights[label as usize] = 0);
    }

    /// `weight` more to `label`.
    #[inline]
    pub fn add(&mut self, label: u32, weight: u64) {
        let sum = &mut self.weights[label as usize];
        if *sum == 0 {
            self.met.push(label);
        }
        *sum += weight;
    }

    /// The label with most weight among `own` and those that `fit`; ties go to `own`, then to the lowest.
    pub fn best(&self, own: u32, fits: impl Fn(u32) -> bool) -> u32 {
        let mut best = (self.weights[own as usize], own);
        for &label in &self.met {
            let weight = self.weights[label as usize];
            let better = weight > best.0 || (weight == best.0 && best.1 != own && label < best.1);
            if better && fits(label) {
                best = (weight, label);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    /// A ring of `cliques` cliques of `size` nodes; every node stands for three.
    fn ring(cliques: u32, size: u32) -> Coarse {
        let inside = (0..cliques).flat_map(move |c| {
            (0..size).flat_map(move |a| (0..a).map(move |b| (c * size + a, c * size + b, 5)))
        });
        let between = (0..cliques).map(move |c| (c * size, (c + 1) % cliques * size + 1, 1));
        Coarse::new(vec![3; (cliques * size) as usize], inside.chain(between).collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn a_ring_of_cliques_is_cut_between_them_and_into_arcs() {
        let graph = ring(64, 12);
        let part_of = graph.partition(4, 64 * 12 * 3 / 4 * 21 / 20, Key::new(1, Purpose::Partition));
        assert!(part_of.chunks(12).all(|clique| clique.iter().all(|part| part == &clique[0])), "{part_of:?}");
        // Four arcs cut four edges, each counted from both ends; a part may have come out as two arcs.
        assert!(graph.cut(&part_of) <= 2 * 8, "{}", graph.cut(&part_of));
        let filled = graph.filled(&part_of, 4);
        assert!(filled.iter().all(|&size| size <= 64 * 12 * 3 / 4 * 21 / 20), "{filled:?}");
    }

    #[test]
    fn a_partition_does_not_depend_on_the_order_of_the_edges() {
        let edges: Vec<(u32, u32, u64)> = (0..300)
            .map(|i| (i * 7 % 100, (i * 13 + 1) % 100, 1 + u64::from(i % 3)))
            .filter(|e| e.0 != e.1)
            .collect();
        let key = Key::new(1, Purpose::Partition);
        let forward = Coarse::new(vec![1; 100], edges.iter().copied()).partition(3, 36, key);
        let backward = Coarse::new(vec![1; 100], edges.iter().rev().copied()).partition(3, 36, key);
        assert_eq!(forward, backward);
    }
}
