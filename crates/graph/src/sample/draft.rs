//! A batch in the making: who must be asked for in-edges next, and how the answers become blocks.
//!
//! Hop by hop from the targets outward: [`question`](Draft::question) groups the frontier (all nodes met so far) by
//! owner, and [`stitch`](Draft::stitch) takes the owners' answers, in whatever order they came, and numbers the nodes
//! that are new in the order of the frontier. So the batch is a function of the answers alone. Nothing here
//! communicates or draws.
//!
//! Cost: O(1) per drawn edge. Nodes of this part and its halo are found by a stamp, others too, or by a
//! hash where the graph is much larger than the part.

use super::lists::Drawn;
use super::seen::{Met, Stamped};
use crate::block::{Adjacency, Batch, Block};
use crate::store::Part;
use crate::{GlobalId, PartId};
use std::ops::Range;
use std::sync::Arc;

/// A batch in the making. Keeps its memory from batch to batch.
#[derive(Debug, Default)]
pub struct Draft {
    /// Global id of each row.
    nodes: Vec<u64>,
    /// Rows of nodes of this part and its halo.
    near: Stamped,
    /// Rows of nodes that other parts own.
    far: Met,
    /// Blocks so far, from the targets outward.
    incoming: Vec<Adjacency>,
    /// Targets given again: the first row of such a node, and a later one.
    repeated: Vec<(u32, u32)>,
    /// Edges that must not be read, as target row and source, sorted.
    excluded: Vec<(u32, u64)>,
}

/// Who is asked for in-edges of which nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The part that owns each node of the frontier.
    owners: Vec<u32>,
    /// For each part: its rows that are asked for, in the order of the frontier.
    pub asked: Vec<Asked>,
}

/// What one part is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// Owned rows of that part.
    pub rows: Vec<u32>,
}

/// What one part answered: a list per row that it was asked for, in that order.
#[derive(Debug, Clone, Copy)]
pub enum Answer<'a> {
    /// This part drew these, in one or several pieces, and has looked up their sources.
    Here(&'a [Drawn]),
    /// Another part told us.
    There {
        /// How many edges each row has.
        counts: &'a [u32],
        /// Global ids of their sources.
        sources: Sources<'a>,
        /// Their weights; empty where edges have none.
        weights: &'a [f32],
    },
}

/// Global ids, as wide as they were told.
#[derive(Debug, Clone, Copy)]
pub enum Sources<'a> {
    /// Of a graph of fewer than 2^32 nodes.
    Narrow(&'a [u32]),
    /// Of any graph.
    Wide(&'a [u64]),
}

impl Sources<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
        }
    }

    fn slice(self, range: Range<usize>) -> Self {
        match self {
            Self::Narrow(ids) => Self::Narrow(&ids[range]),
            Self::Wide(ids) => Self::Wide(&ids[range]),
        }
    }
}

impl Draft {
    /// Starts a batch that computes `targets`, global ids; a repeated one gets a row each time.
    pub fn begin(&mut self, part: &Part, targets: &[u64]) {
        self.nodes.clear();
        self.near.begin(part.rows());
        self.far.begin(part);
        self.incoming.clear();
        self.repeated.clear();
        self.excluded.clear();
        let near = Near::of(part);
        for &target in targets {
            let row = self.nodes.len() as u32;
            let first = self.row(&near, target);
            if first != row {
                self.repeated.push((first, row));
                self.nodes.push(target);
            }
        }
        self.repeated.sort_unstable();
    }

    /// Leaves the edges `source -> target` (global ids, each target one of this batch) out of every block.
    pub fn exclude(&mut self, part: &Part, edges: impl IntoIterator<Item = (u64, u64)>) {
        let near = Near::of(part);
        for (source, target) in edges {
            let row = self.row(&near, target);
            self.excluded.push((row, source));
            let later = self.repeated.partition_point(|&(first, _)| first < row);
            let later = self.repeated[later..].iter().take_while(|&&(first, _)| first == row);
            self.excluded.extend(later.map(|&(_, again)| (again, source)));
        }
        self.excluded.sort_unstable();
    }

    /// Global id of each row so far.
    pub fn nodes(&self) -> &[u64] {
        &self.nodes
    }

    /// Hands over which rows the nodes of other parts have, once everything is stitched, for the memory of another map.
    pub fn swap_met(&mut self, other: &mut Met) {
        std::mem::swap(&mut self.far, other);
    }

    /// Whom to ask for the in-edges of every node so far.
    pub fn question(&self, part: &Part) -> Question {
        let mut asked = vec![Asked::default(); part.starts().len() - 1];
        let (own, here) = (part.range(), part.id().0);
        asked[here as usize].rows.reserve(self.nodes.len());
        let owners = self.nodes.iter().map(|&node| {
            let owner = if own.contains(&node) { PartId(here) } else { part.owner_of(GlobalId(node)) };
            asked[owner.index()].rows.push((node - part.starts()[owner.index()]) as u32);
            owner.0
        });
        Question { owners: owners.collect(), asked }
    }

    /// Makes a block of the answers, one per part (that of a part that was not asked is not read).
    pub fn stitch(&mut self, part: &Part, question: &Question, answers: &[Answer<'_>]) {
        let mut cursors: Vec<Cursor<'_>> = answers.iter().map(|&answer| Cursor::new(answer)).collect();
        let mut incoming = Adjacency {
            offsets: Vec::with_capacity(question.owners.len() + 1),
            neighbors: Vec::with_capacity(cursors.iter().map(Cursor::edges).sum()),
            ..Adjacency::default()
        };
        incoming.offsets.push(0);
        let near = Near::of(part);
        for (row, &owner) in question.owners.iter().enumerate() {
            match cursors[owner as usize].next() {
                List::Here(sources, edges) => self.add_own(&near, row as u32, sources, edges, &mut incoming),
                List::There(Sources::Narrow(told), weights) => {
                    let told = told.iter().map(|&source| u64::from(source));
                    self.add_told(&near, row as u32, told, weights, &mut incoming);
                }
                List::There(Sources::Wide(told), weights) => {
                    self.add_told(&near, row as u32, told.iter().copied(), weights, &mut incoming);
                }
            }
            incoming.offsets.push(incoming.neighbors.len() as u64);
        }
        self.incoming.push(incoming);
    }

    /// The whole batch. What the draft held of it is gone.
    pub fn finish(&mut self) -> Batch {
        let mut sizes: Vec<usize> = self.incoming.iter().skip(1).map(Adjacency::rows).collect();
        sizes.push(self.nodes.len());
        let blocks = self.incoming.drain(..).zip(sizes);
        let mut blocks: Vec<_> =
            blocks.map(|(incoming, local)| Arc::new(Block::new(incoming, local, 0))).collect();
        blocks.reverse();
        Batch { blocks, nodes: std::mem::take(&mut self.nodes) }
    }

    /// Adds edges of this part to the list at hand, which is that of `target`.
    fn add_own(
        &mut self,
        part: &Near<'_>,
        target: u32,
        sources: &[u32],
        edges: &[u64],
        incoming: &mut Adjacency,
    ) {
        if !self.excludes(target) && part.weights.is_none() {
            incoming.neighbors.extend(sources.iter().map(|&source| self.near_row(part, source)));
            return;
        }
        for (&source, &edge) in sources.iter().zip(edges) {
            if self.is_excluded(target, part.all.global(source)) {
                continue;
            }
            incoming.neighbors.push(self.near_row(part, source));
            incoming.weights.extend(part.weights.map(|weights| weights[edge as usize]));
        }
    }

    /// Adds edges that another part told us.
    fn add_told(
        &mut self,
        part: &Near<'_>,
        target: u32,
        sources: impl ExactSizeIterator<Item = u64>,
        weights: &[f32],
        incoming: &mut Adjacency,
    ) {
        if !self.excludes(target) && weights.is_empty() {
            incoming.neighbors.extend(sources.map(|source| self.row(part, source)));
            return;
        }
        for (place, source) in sources.enumerate() {
            if self.is_excluded(target, source) {
                continue;
            }
            incoming.neighbors.push(self.row(part, source));
            incoming.weights.extend(weights.get(place));
        }
    }

    /// The row of any node, which gets the next one if it is new.
    #[inline]
    fn row(&mut self, part: &Near<'_>, node: u64) -> u32 {
        match node.checked_sub(part.start) {
            Some(near) if near < part.owned as u64 => self.near_row(part, near as u32),
            _ => self.meet_far(node),
        }
    }

    /// The row of a node of this part or its halo, which gets the next one if it is new.
    #[inline]
    fn near_row(&mut self, part: &Near<'_>, near: u32) -> u32 {
        self.near.get(near).unwrap_or_else(|| self.meet_near(part, near))
    }

    /// A node of this part or its halo that was not found by its row there.
    fn meet_near(&mut self, part: &Near<'_>, near: u32) -> u32 {
        let row = match (near as usize).checked_sub(part.owned) {
            Some(halo) => self.meet_far(part.halo[halo]),
            None => {
                self.nodes.push(part.start + u64::from(near));
                self.nodes.len() as u32 - 1
            }
        };
        self.near.insert(near, row);
        row
    }

    fn meet_far(&mut self, node: u64) -> u32 {
        let next = self.nodes.len() as u32;
        let row = self.far.find_or_insert(node, next);
        if row == next {
            self.nodes.push(node);
        }
        row
    }

    fn excludes(&self, target: u32) -> bool {
        self.excluded.last().is_some_and(|&(last, _)| target <= last)
    }

    fn is_excluded(&self, target: u32, source: u64) -> bool {
        self.excluded.binary_search(&(target, source)).is_ok()
    }
}

/// What is read of a part for every edge, looked up once.
struct Near<'a> {
    all: &'a Part,
    start: u64,
    owned: usize,
    halo: &'a [u64],
    weights: Option<&'a [f32]>,
}

impl<'a> Near<'a> {
    fn of(part: &'a Part) -> Self {
        Self {
            all: part,
            start: part.range().start,
            owned: part.owned(),
            halo: part.halo(),
            weights: part.weights(),
        }
    }
}

/// How far an answer has been read.
struct Cursor<'a> {
    answer: Answer<'a>,
    piece: usize,
    row: usize,
    edge: usize,
}

/// The in-edges of one row.
enum List<'a> {
    Here(&'a [u32], &'a [u64]),
    There(Sources<'a>, &'a [f32]),
}

impl<'a> Cursor<'a> {
    fn new(answer: Answer<'a>) -> Self {
        Self { answer, piece: 0, row: 0, edge: 0 }
    }

    fn edges(&self) -> usize {
        match self.answer {
            Answer::Here(pieces) => pieces.iter().map(|piece| piece.edges.len()).sum(),
            Answer::There { sources, .. } => sources.len(),
        }
    }

    fn next(&mut self) -> List<'a> {
        match self.answer {
            Answer::Here(pieces) => {
                while self.row == pieces[self.piece].counts.len() {
                    (self.piece, self.row, self.edge) = (self.piece + 1, 0, 0);
                }
                let piece = &pieces[self.piece];
                let edges = self.step(&piece.counts);
                List::Here(&piece.sources[edges.clone()], &piece.edges[edges])
            }
            Answer::There { counts, sources, weights } => {
                let edges = self.step(counts);
                List::There(sources.slice(edges.clone()), weights.get(edges).unwrap_or_default())
            }
        }
    }

    fn step(&mut self, counts: &[u32]) -> Range<usize> {
        let start = self.edge;
        self.edge += counts[self.row] as usize;
        self.row += 1;
        start..self.edge
    }
}
