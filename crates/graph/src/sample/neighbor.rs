//! Neighbour sampling: a few in-edges per node and layer, drawn without replacement, all equally likely.
//!
//! Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017. From the targets
//! outward, each node keeps `min(degree, fanout)` of its in-edges, uniformly (Floyd's subset algorithm: Bentley &
//! Floyd, A sample of brilliance, CACM 1987); fan-out -1 keeps all. Edges are drawn, so a neighbour joined by
//! two edges may be kept twice.
//!
//! Cost: O(1) per drawn edge; whether a position was drawn already is told by a bit, or by a stamp where lists are long.

use super::seen::Stamped;
use super::{Drawn, Entry, Hop, Lists, Sampler, Scratch};
use crate::random::Key;

/// The table line of this sampler.
pub(super) const ENTRY: Entry = Entry {
    name: "neighbor",
    summary: "a fixed number of in-edges per node and layer, without replacement",
    paper: "Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017",
    build: |options| Ok(Box::new(Neighbor { fanouts: options.counts()? })),
};

/// Up to this many draws of a list share random bits.
const FEW: usize = 16;

/// Lists that are found together, so that reads from all over the part overlap.
const TOGETHER: usize = 32;

/// Neighbour sampling with a fan-out per layer, from the targets outward; `None` = all.
struct Neighbor {
    fanouts: Vec<Option<usize>>,
}

impl Sampler for Neighbor {
    fn hops(&self) -> usize {
        self.fanouts.len()
    }

    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, scratch: &mut Scratch, drawn: &mut Drawn) {
        let fanout = self.fanouts[hop.number].unwrap_or(usize::MAX);
        drawn.counts.reserve(rows.len());
        let mut found = [List::default(); TOGETHER];
        let later = rows.chunks(TOGETHER).skip(1).chain([&[][..]]);
        for (rows, later) in rows.chunks(TOGETHER).zip(later) {
            later.iter().for_each(|&row| lists.expect(row));
            for (list, &row) in found.iter_mut().zip(rows) {
                let edges = lists.edges_of(row);
                *list = List { start: edges.start, end: edges.end, original: lists.original(row) };
                lists.expect_edges(edges);
            }
            for (list, &row) in found.iter().zip(rows) {
                if list.degree() <= fanout {
                    drawn.take_all(lists, row);
                    continue;
                }
                list.draw(lists, fanout, hop.key, scratch, &mut drawn.edges);
                drawn.counts.push(fanout as u32);
            }
        }
    }

    fn expected(&self, rows: usize, hop: usize) -> usize {
        rows.saturating_mul(self.fanouts[hop].unwrap_or(100))
    }
}

/// An in-edge list of which some are drawn.
#[derive(Clone, Copy, Default)]
struct List {
    start: u64,
    end: u64,
    /// The original id of its target.
    original: u64,
}

impl List {
    fn degree(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Remembers what was drawn in the least that has room for it.
    fn draw(&self, lists: &Lists<'_>, count: usize, hop: Key, scratch: &mut Scratch, edges: &mut Vec<u64>) {
        let key = hop.with(self.original);
        match self.degree() {
            0..=64 => self.draw_with(lists, count, key, &mut Bits([0; 1]), edges),
            65..=1024 => self.draw_with(lists, count, key, &mut Bits([0; 16]), edges),
            degree => {
                scratch.drawn.begin(degree);
                self.draw_with(lists, count, key, &mut scratch.drawn, edges);
            }
        }
    }

    /// Floyd's algorithm: the `last`-th draw is among `0..=last`, and `last` itself where that was drawn before.
    ///
    /// Two of few draws share 64 random bits where lists are short: a position is then off its chance by less than 2^-16.
    #[inline(always)]
    fn draw_with(
        &self,
        lists: &Lists<'_>,
        count: usize,
        key: Key,
        taken: &mut impl Taken,
        edges: &mut Vec<u64>,
    ) {
        let degree = self.degree();
        let share = count <= FEW && degree < 1 << 16;
        let mut bits = 0;
        edges.extend((degree - count..degree).enumerate().map(|(drawn, last)| {
            let candidate = match share {
                true => {
                    bits = if drawn % 2 == 0 { key.bits(drawn as u64) } else { bits >> 32 };
                    (((bits & 0xffff_ffff) * (last as u64 + 1)) >> 32) as u32
                }
                false => key.below(last as u64, last as u64 + 1) as u32,
            };
            lists.edge_from(self.start, taken.take(candidate, last as u32) as usize)
        }));
    }
}

/// Which positions of a list were drawn.
trait Taken {
    /// Takes `position`, or `instead` where that was taken already, and says which.
    fn take(&mut self, position: u32, instead: u32) -> u32;
}

/// A bit per position; positions are below `64 WORDS`.
struct Bits<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Taken for Bits<WORDS> {
    #[inline(always)]
    fn take(&mut self, position: u32, instead: u32) -> u32 {
        let word = |position: u32| position as usize / 64 % WORDS;
        let twice = self.0[word(position)] >> (position % 64) & 1 == 1;
        let taken = if twice { instead } else { position };
        self.0[word(taken)] |= 1 << (taken % 64);
        taken
    }
}

impl Taken for Stamped {
    fn take(&mut self, position: u32, instead: u32) -> u32 {
        let taken = if self.get(position).is_some() { instead } else { position };
        self.insert(taken, 0);
        taken
    }
}
