//! What a sampler reads and what it gives: the in-edge lists of a part, and the edges that were chosen.

use super::seen::Stamped;
use crate::array::prefetch;
use crate::store::Part;
use std::ops::Range;

/// The in-edge lists of a part, as samplers see them: every list in the order of its sources' original ids.
#[derive(Clone, Copy)]
pub struct Lists<'a> {
    /// The part itself.
    pub part: &'a Part,
    originals: &'a [u64],
    offsets: &'a [u64],
    sources: &'a [u32],
    order: Option<&'a [u32]>,
    weights: Option<&'a [f32]>,
}

impl<'a> Lists<'a> {
    /// The lists of `part`; `originals` holds the original id of every row, the halo included.
    pub fn new(part: &'a Part, originals: &'a [u64]) -> Self {
        debug_assert!(originals.len() >= part.owned());
        Self {
            part,
            originals,
            offsets: part.offsets(),
            sources: part.sources(),
            order: part.order(),
            weights: part.weights(),
        }
    }

    /// How many in-edges `row` has.
    pub fn degree(&self, row: u32) -> usize {
        let edges = self.edges_of(row);
        (edges.end - edges.start) as usize
    }

    /// The edge at `position` of the list of `row`, counted in the order of original ids.
    pub fn edge(&self, row: u32, position: usize) -> u64 {
        self.edge_from(self.offsets[row as usize], position)
    }

    /// The edge at `position` of the list that begins at `start`.
    #[inline]
    pub(super) fn edge_from(&self, start: u64, position: usize) -> u64 {
        match self.order {
            Some(order) => start + u64::from(order[start as usize + position]),
            None => start + position as u64,
        }
    }

    /// The row at the other end of an edge.
    pub fn source(&self, edge: u64) -> u32 {
        self.sources[edge as usize]
    }

    /// The weight of an edge; 1 where edges have none.
    pub fn weight(&self, edge: u64) -> f32 {
        self.weights.map_or(1.0, |weights| weights[edge as usize])
    }

    /// The original id of a row, which may be in the halo.
    pub fn original(&self, row: u32) -> u64 {
        self.originals[row as usize]
    }

    /// Says that the list of `row` will be looked up soon.
    #[inline]
    pub(super) fn expect(&self, row: u32) {
        prefetch(self.offsets, row as usize);
        prefetch(self.originals, row as usize);
    }

    /// Says that some of these edges will be drawn now, and their sources looked up soon.
    #[inline]
    pub(super) fn expect_edges(&self, edges: Range<u64>) {
        /// Edges whose sources share a cache line.
        const LINE: usize = 16;
        /// Lines that are asked for: the lists of most nodes are no longer.
        const LINES: usize = 4;
        for line in (edges.start as usize..edges.end as usize).step_by(LINE).take(LINES) {
            prefetch(self.sources, line);
            if let Some(order) = self.order {
                prefetch(order, line);
            }
        }
    }

    /// Places of the in-edges of `row`.
    pub fn edges_of(&self, row: u32) -> Range<u64> {
        self.offsets[row as usize]..self.offsets[row as usize + 1]
    }
}

/// Chosen in-edges of some rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drawn {
    /// How many edges were chosen for each row.
    pub counts: Vec<u32>,
    /// The edges of all rows, one after the other: places in the part.
    pub edges: Vec<u64>,
    pub(super) sources: Vec<u32>,
}

impl Drawn {
    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.counts.clear();
        self.edges.clear();
        self.sources.clear();
    }

    /// Looks up the sources of all edges: many at once, so that reads from all over the part overlap.
    pub fn look_up(&mut self, lists: &Lists<'_>) {
        self.sources.clear();
        self.sources.extend(self.edges.iter().map(|&edge| lists.sources[edge as usize]));
    }

    /// The rows at the other ends of the edges, once they were [looked up](Self::look_up).
    pub fn sources(&self) -> &[u32] {
        &self.sources
    }

    /// Adds one row, all of whose edges are taken.
    pub fn take_all(&mut self, lists: &Lists<'_>, row: u32) {
        let degree = lists.degree(row);
        self.edges.extend((0..degree).map(|position| lists.edge(row, position)));
        self.counts.push(degree as u32);
    }
}

/// Memory that samplers use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Positions of a list that were drawn.
    pub(super) drawn: Stamped,
    /// Positions with the number that decides about them.
    pub keyed: Vec<(f64, u32)>,
}
