//! K-hop blocks around the nodes that are trained on, validated and tested, spread so that every part gets its share
//! of each (Zheng et al., ByteGNN: Efficient graph neural network training at large scale, VLDB 2022).
//!
//! Blocks: a breadth-first search from every node of a split at once, `hops` deep; a node belongs to the block that
//! reaches it first, and to that of the lowest id among several. Blocks go, those with most nodes of one split first
//! (ties: the larger, then the lower id), to the part with the highest
//!
//! `(CE + eps) * max(BS, 0)`, where `CE = edges between block and part / max(1, nodes of the part)` and
//! `BS = 1 - alpha * train / C_train - beta * valid / C_valid - gamma * test / C_test`,
//!
//! a part's training nodes over its equal share of them, and so on; a split without nodes has no term. Ties: the part
//! with fewer nodes, then the lower number. Unreached nodes follow most of their neighbours, or else go to the part
//! with the fewest nodes.
//!
//! Where we differ: `eps` and `max` (without them the first block has no best part, and being far from a block would
//! be good for an overfull part), and no part takes more than `1 + slack` times its share of a split while another has
//! room, nor of nodes if the splits leave a choice. Directions of edges are forgotten. Cost: O(edges + blocks * parts). Memory: the graph (see `Adjacency`) and about 50 bytes per
//! node.

use super::adjacency::{Adjacency, grouped};
use super::label_propagation::SLACK;
use super::packing::{NONE, follow, room};
use super::settings::{Setting, Values};
use super::tally::Tally;
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::{Dataset, Splits};
use crate::progress::Progress;
use std::cmp::Reverse;
use std::collections::VecDeque;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "bytegnn",
    summary: "K-hop blocks around the nodes of the splits, spread by edges and shares of the splits",
    paper: "Zheng et al., ByteGNN: Efficient graph neural network training at large scale, VLDB 2022",
    memory: Memory::Graph,
    needs_file: false,
    balances: false,
    settings: &[
        Setting {
            name: "hops",
            default: "2",
            about: "how far a block reaches from its centre",
            values: Values::Count(0, 1000),
        },
        weight("alpha", "how much training nodes count for the balance"),
        weight("beta", "how much validation nodes count for the balance"),
        weight("gamma", "how much test nodes count for the balance"),
        Setting {
            name: "eps",
            default: "1e-6",
            about: "what a part without edges to a block is worth",
            values: Values::Number(0.0, 1e6),
        },
        SLACK,
    ],
    build: || Box::new(ByteGnn),
};

const fn weight(name: &'static str, about: &'static str) -> Setting {
    Setting { name, default: "0.3333333333333333", about, values: Values::Number(0.0, 1e6) }
}

/// K-hop blocks.
#[derive(Debug, Clone, Copy)]
pub struct ByteGnn;

impl Partitioner for ByteGnn {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let hops = request.count(&ENTRY, "hops")?;
        let mut spread = Spread::new(dataset, request)?;
        let graph = Adjacency::read(dataset, request, progress)?;
        let marks = marks(&dataset.splits, graph.nodes());
        let blocks = Blocks::around(&graph, &marks, hops);
        progress.begin("placing blocks", blocks.order.len() as u64, "blocks");
        for block in &blocks.order {
            spread.place(&graph, &marks, blocks.members(*block));
            progress.tick(1)?;
        }
        follow(&graph, &mut spread.part_of, request.parts, spread.room);
        Ok(Assignment { parts: request.parts, part_of: spread.part_of })
    }
}

/// Which splits each node is in: bit 0 = train, 1 = valid, 2 = test.
fn marks(splits: &Splits, nodes: usize) -> Vec<u8> {
    let mut marks = vec![0; nodes];
    for (bit, (_, split)) in splits.named().iter().enumerate() {
        for &node in *split {
            marks[node as usize] |= 1 << bit;
        }
    }
    marks
}

/// How many of `nodes` are in each split.
fn in_splits(marks: &[u8], nodes: &[u32]) -> [u64; 3] {
    let mut counts = [0; 3];
    for &node in nodes {
        for (bit, count) in counts.iter_mut().enumerate() {
            *count += u64::from(marks[node as usize] >> bit & 1);
        }
    }
    counts
}

/// Disjoint neighbourhoods of the marked nodes.
struct Blocks {
    /// The nodes of block `b` are `nodes[starts[b]..starts[b + 1]]`.
    starts: Vec<usize>,
    nodes: Vec<u32>,
    /// Blocks in the order in which they are placed.
    order: Vec<u32>,
}

impl Blocks {
    /// Grows a block around every marked node; the last group holds the unreached and is no block.
    fn around(graph: &Adjacency, marks: &[u8], hops: u64) -> Self {
        let centres: Vec<u32> = (0..marks.len() as u32).filter(|&node| marks[node as usize] != 0).collect();
        let unreached = centres.len() as u32;
        let mut block_of = vec![unreached; marks.len()];
        (0..).zip(&centres).for_each(|(block, &centre)| block_of[centre as usize] = block);
        // A queue that starts in the order of ids meets the nodes of every depth in the order of their blocks' ids.
        let mut queue: VecDeque<(u32, u64)> = centres.iter().map(|&centre| (centre, 0)).collect();
        while let Some((node, depth)) = queue.pop_front().filter(|reached| reached.1 < hops) {
            for (other, _) in graph.of(node) {
                if block_of[other as usize] == unreached {
                    block_of[other as usize] = block_of[node as usize];
                    queue.push_back((other, depth + 1));
                }
            }
        }
        let (starts, nodes) = grouped(&block_of, centres.len() + 1);
        let mut blocks = Self { starts, nodes, order: Vec::new() };
        blocks.order = blocks.ordered(marks, unreached);
        blocks
    }

    fn members(&self, block: u32) -> &[u32] {
        &self.nodes[self.starts[block as usize]..self.starts[block as usize + 1]]
    }

    fn ordered(&self, marks: &[u8], blocks: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..blocks).collect();
        order.sort_by_cached_key(|&block| {
            let members = self.members(block);
            (Reverse(in_splits(marks, members).into_iter().max()), Reverse(members.len()), block)
        });
        order
    }
}

/// Parts that blocks are spread over.
struct Spread {
    part_of: Vec<u32>,
    sizes: Vec<u64>,
    /// Nodes of each split in each part.
    splits: Vec<[u64; 3]>,
    /// What one node of a split costs a part in balance: its weight over the equal share of that split.
    costs: [f64; 3],
    eps: f64,
    /// The most nodes of a part, and the most of each split.
    room: u64,
    split_rooms: [u64; 3],
    tally: Tally,
}

impl Spread {
    fn new(dataset: &Dataset, request: &Request) -> Result<Self> {
        let nodes = super::passes::small_nodes(dataset, request)?;
        let (parts, slack) = (request.parts as usize, request.number(&ENTRY, SLACK.name)?);
        let mut costs = [0.0; 3];
        for ((cost, name), (_, split)) in
            costs.iter_mut().zip(["alpha", "beta", "gamma"]).zip(dataset.splits.named())
        {
            let weight = request.number(&ENTRY, name)?;
            *cost = if split.is_empty() { 0.0 } else { weight * parts as f64 / split.len() as f64 };
        }
        Ok(Self {
            part_of: vec![NONE; nodes],
            sizes: vec![0; parts],
            splits: vec![[0; 3]; parts],
            costs,
            eps: request.number(&ENTRY, "eps")?,
            room: room(nodes, request.parts, slack),
            split_rooms: dataset.splits.named().map(|(_, split)| room(split.len(), request.parts, slack)),
            tally: Tally::new(parts),
        })
    }

    /// Puts the nodes of one block into the part with the highest score.
    fn place(&mut self, graph: &Adjacency, marks: &[u8], members: &[u32]) {
        for &node in members {
            for (other, weight) in graph.of(node) {
                let part = self.part_of[other as usize];
                if part != NONE {
                    self.tally.add(part, u64::from(weight));
                }
            }
        }
        let counts = in_splits(marks, members);
        let part = self.choose(members.len() as u64, &counts);
        self.tally.clear();
        members.iter().for_each(|&node| self.part_of[node as usize] = part as u32);
        self.sizes[part] += members.len() as u64;
        self.splits[part].iter_mut().zip(counts).for_each(|(held, more)| *held += more);
    }

    /// The best part for a block of `size` nodes, of which `counts` are in each split. A part that is full of a split
    /// is passed over while another is not, and one that is full of nodes if the splits leave a choice.
    fn choose(&self, size: u64, counts: &[u64; 3]) -> usize {
        let rank = |part: usize| {
            let held = self.splits[part].iter().zip(counts).zip(&self.split_rooms);
            let splits_fit = held.fold(true, |fit, ((held, more), room)| fit && held + more <= *room);
            (splits_fit, splits_fit && self.sizes[part] + size <= self.room, self.score(part))
        };
        let mut best = (rank(0), 0);
        for part in 1..self.sizes.len() {
            let rank = rank(part);
            if rank > best.0 || (rank == best.0 && self.sizes[part] < self.sizes[best.1]) {
                best = (rank, part);
            }
        }
        best.1
    }

    fn score(&self, part: usize) -> f64 {
        let edges = self.tally.of(part as u32) as f64 / self.sizes[part].max(1) as f64;
        let held = self.splits[part].iter().zip(self.costs);
        let balance = 1.0 - held.map(|(&nodes, cost)| nodes as f64 * cost).sum::<f64>();
        (edges + self.eps) * balance.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted::{assign, communities, cuts_below_random, with};
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;

    /// 0-1-2-3-4-5-6-7-8-9 with centres 1 and 7.
    fn path() -> Dataset {
        let mut dataset = small::path(10);
        dataset.splits.train = vec![7, 1];
        dataset
    }

    fn blocks(dataset: &mut Dataset, hops: u64) -> Vec<Vec<u32>> {
        let graph = Adjacency::read(dataset, &Request::new(2, 0), &Silent).unwrap();
        let blocks = Blocks::around(&graph, &marks(&dataset.splits, graph.nodes()), hops);
        blocks.order.iter().map(|&block| blocks.members(block).to_vec()).collect()
    }

    #[test]
    fn blocks_reach_their_hops_are_disjoint_and_the_lowest_centre_wins_ties() {
        assert_eq!(blocks(&mut path(), 0), [[1], [7]]);
        assert_eq!(blocks(&mut path(), 2), [vec![5, 6, 7, 8, 9], vec![0, 1, 2, 3]]);
        assert_eq!(blocks(&mut path(), 9), [vec![0, 1, 2, 3, 4], vec![5, 6, 7, 8, 9]]);
    }

    #[test]
    fn a_block_stays_together_and_unreached_nodes_follow_their_neighbours() {
        let part_of = assign("bytegnn", &mut path(), &Request::new(2, 5)).part_of;
        assert_eq!(part_of, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn every_split_is_shared_equally_and_the_cut_is_below_that_of_random_parts() {
        let mut dataset = communities();
        dataset.splits.train.truncate(100);
        dataset.splits.valid.truncate(100);
        dataset.splits.test.truncate(100);
        let figures = cuts_below_random("bytegnn", &mut dataset, &Request::new(4, 5), 0.9);
        for balance in [figures.balance_train, figures.balance_valid, figures.balance_test] {
            assert!(balance < 1.06, "{figures:?}");
        }
        assert!(figures.balance_nodes < 1.3, "{figures:?}");
    }

    #[test]
    fn without_splits_nodes_follow_their_neighbours_into_equal_parts() {
        let mut dataset = communities();
        dataset.splits = Splits::default();
        let figures = cuts_below_random("bytegnn", &mut dataset, &with(4, "slack", "0"), 0.9);
        assert_eq!(figures.balance_nodes, 1.0);
    }
}
