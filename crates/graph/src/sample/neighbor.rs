//! Neighbour sampling: a few in-edges per node and layer, drawn without replacement.
//!
//! Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017. From the targets
//! outward, each node keeps `min(degree, fanout)` of its in-edges, uniformly (Floyd's subset algorithm: Bentley &
//! Floyd, A sample of brilliance, CACM 1987); fan-out -1 keeps all. Edges are drawn, so a neighbour joined by
//! two edges may be kept twice.
//!
//! Cost: O(1) per drawn edge plus the sorting of each short list; no hashing: rows and positions already met are
//! told by a stamp per row of the part and per position of the longest list. Memory: 8 bytes per row of the part.

use super::{Entry, Sampler};
use crate::block::{Adjacency, Batch, Block};
use crate::random::Key;
use crate::store::Part;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// The table line of this sampler.
pub const ENTRY: Entry = Entry {
    name: "neighbor",
    summary: "a fixed number of in-edges per node and layer, without replacement",
    paper: "Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017",
    build: |options| Ok(Box::new(Neighbor::new(&options.fanouts)?)),
};

/// Neighbour sampling with a fan-out per layer.
#[derive(Debug)]
pub struct Neighbor {
    /// From the targets outward; `None` = all.
    fanouts: Vec<Option<usize>>,
    /// Block row of each part row met in this call.
    rows: Stamped,
    /// Positions of a list drawn for this node.
    drawn: Stamped,
    /// Edges of the list at hand: block row of the source, and the edge's place in the part.
    list: Vec<(u32, usize)>,
}

impl Neighbor {
    /// A sampler that draws `fanouts[hop]` in-edges per node, hops counted from the targets; -1 = all.
    pub fn new(fanouts: &[i32]) -> Result<Self> {
        let fanout = |&fanout: &i32| match fanout {
            -1 => Ok(None),
            1.. => Ok(Some(fanout as usize)),
            _ => {
                Err(Error::usage(format!("expected fan-outs of 1 or more, or -1 for all, found `{fanout}`")))
            }
        };
        if fanouts.is_empty() {
            return Err(Error::usage("expected one fan-out per layer, found none"));
        }
        let fanouts = fanouts.iter().map(fanout).collect::<Result<_>>()?;
        Ok(Self { fanouts, rows: Stamped::default(), drawn: Stamped::default(), list: Vec::new() })
    }

    /// The in-edges of the nodes behind `inputs`, to whose end their new sources are appended.
    fn block(&mut self, lists: &Lists<'_>, inputs: &mut Vec<u32>, fanout: Option<usize>, key: Key) -> Block {
        let targets = inputs.len();
        let mut incoming = Adjacency { offsets: Vec::with_capacity(targets + 1), ..Adjacency::default() };
        incoming.offsets.push(0);
        for target in 0..targets {
            self.draw(lists, inputs[target], fanout, key);
            for (row, edge) in &mut self.list {
                *row = self.rows.get_or_insert(lists.sources[*edge], || {
                    inputs.push(lists.sources[*edge]);
                    inputs.len() as u32 - 1
                });
            }
            self.list.sort_unstable();
            incoming.neighbors.extend(self.list.iter().map(|&(row, _)| row));
            if let Some(weights) = lists.weights {
                incoming.weights.extend(self.list.iter().map(|&(_, edge)| weights[edge]));
            }
            incoming.offsets.push(incoming.neighbors.len() as u64);
        }
        Block::new(incoming, inputs.len(), 0)
    }

    /// Fills `self.list` with the drawn edges of part row `row`; their block rows are set by the caller.
    fn draw(&mut self, lists: &Lists<'_>, row: u32, fanout: Option<usize>, key: Key) {
        self.list.clear();
        let Some(edges) = lists.edges_of(row) else { return };
        let Some(count) = fanout.filter(|&count| count < edges.len()) else {
            self.list.extend(edges.map(|edge| (0, edge)));
            return;
        };
        let key = key.with(lists.original[row as usize]);
        self.drawn.begin(edges.len());
        for last in edges.len() - count..edges.len() {
            let candidate = key.below(last as u64, last as u64 + 1) as u32;
            let position = if self.drawn.contains(candidate) { last as u32 } else { candidate };
            self.drawn.insert(position, 0);
            self.list.push((0, edges.start + lists.in_order(&edges, position)));
        }
    }
}

impl Sampler for Neighbor {
    fn sample(&mut self, part: &Part, targets: &[u32], key: Key) -> Batch {
        let lists = Lists::of(part);
        let mut inputs = targets.to_vec();
        self.rows.begin(part.rows());
        for (row, &target) in (0..).zip(targets) {
            self.rows.get_or_insert(target, || row);
        }
        let mut blocks = Vec::with_capacity(self.fanouts.len());
        for hop in 0..self.fanouts.len() {
            let block = self.block(&lists, &mut inputs, self.fanouts[hop], key.with(hop as u64));
            blocks.push(Arc::new(block));
        }
        blocks.reverse();
        Batch { blocks, inputs }
    }
}

/// The in-edge lists of a part.
struct Lists<'a> {
    original: &'a [u64],
    offsets: &'a [u64],
    sources: &'a [u32],
    order: Option<&'a [u32]>,
    weights: Option<&'a [f32]>,
}

impl<'a> Lists<'a> {
    fn of(part: &'a Part) -> Self {
        Self {
            original: part.original(),
            offsets: part.offsets(),
            sources: part.sources(),
            order: part.order(),
            weights: part.weights(),
        }
    }

    /// The in-edges of `row`; `None` for a halo row, whose in-edges are elsewhere.
    fn edges_of(&self, row: u32) -> Option<Range<usize>> {
        let end = *self.offsets.get(row as usize + 1)?;
        Some(self.offsets[row as usize] as usize..end as usize)
    }

    /// Where in the list `edges` the edge stands that is at `position` by original id of the source.
    fn in_order(&self, edges: &Range<usize>, position: u32) -> usize {
        self.order.map_or(position, |order| order[edges.start + position as usize]) as usize
    }
}

/// A map from small numbers that is emptied by counting on.
#[derive(Debug, Default)]
struct Stamped {
    stamps: Vec<u32>,
    values: Vec<u32>,
    now: u32,
}

impl Stamped {
    /// Empties the map and makes room for the numbers `0..len`.
    fn begin(&mut self, len: usize) {
        if self.stamps.len() < len {
            self.stamps.resize(len, 0);
            self.values.resize(len, 0);
        }
        if self.now == u32::MAX {
            self.stamps.fill(0);
            self.now = 0;
        }
        self.now += 1;
    }

    fn contains(&self, number: u32) -> bool {
        self.stamps[number as usize] == self.now
    }

    fn insert(&mut self, number: u32, value: u32) {
        self.stamps[number as usize] = self.now;
        self.values[number as usize] = value;
    }

    fn get_or_insert(&mut self, number: u32, make: impl FnOnce() -> u32) -> u32 {
        if !self.contains(number) {
            self.insert(number, make());
        }
        self.values[number as usize]
    }
}
