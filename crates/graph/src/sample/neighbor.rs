//! Neighbour sampling: a few in-edges per node and layer, drawn without replacement, all equally likely.
//!
//! Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017. From the targets
//! outward, each node keeps `min(degree, fanout)` of its in-edges, uniformly (Floyd's subset algorithm: Bentley &
//! Floyd, A sample of brilliance, CACM 1987); fan-out -1 keeps all. Edges are drawn, so a neighbour joined by
//! two edges may be kept twice.
//!
//! Cost: O(1) per drawn edge; whether a position was drawn already is found by looking through a short list, or by a
//! stamp per position of a long one.

use super::{Drawn, Entry, Hop, Lists, Sampler, Scratch};
use crate::random::Key;

/// The table line of this sampler.
pub(super) const ENTRY: Entry = Entry {
    name: "neighbor",
    summary: "a fixed number of in-edges per node and layer, without replacement",
    paper: "Hamilton, Ying & Leskovec, Inductive Representation Learning on Large Graphs, NIPS 2017",
    build: |options| Ok(Box::new(Neighbor { fanouts: options.counts()? })),
};

/// Up to this many draws are compared with each other.
const FEW: usize = 16;

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
        for &row in rows {
            let degree = lists.degree(row);
            if degree <= fanout {
                drawn.take_all(lists, row);
                continue;
            }
            let key = hop.key.with(lists.original(row));
            match fanout <= FEW {
                true => draw_few(lists, row, degree, fanout, key, &mut drawn.edges),
                false => draw_many(lists, row, degree, fanout, key, scratch, &mut drawn.edges),
            }
            drawn.counts.push(fanout as u32);
        }
    }

    fn expected(&self, rows: usize, hop: usize) -> usize {
        rows.saturating_mul(self.fanouts[hop].unwrap_or(100))
    }
}

/// Floyd's algorithm: the `last`-th draw is among `0..=last`, and `last` itself where that was drawn before.
///
/// Two draws share 64 random bits where lists are short: a position is then off its chance by less than 2^-16.
fn draw_few(lists: &Lists<'_>, row: u32, degree: usize, count: usize, key: Key, edges: &mut Vec<u64>) {
    let mut positions = [u32::MAX; FEW];
    let short = degree < 1 << 16;
    let mut bits = 0;
    for (drawn, last) in (degree - count..degree).enumerate() {
        let candidate = match short {
            true => {
                bits = if drawn % 2 == 0 { key.bits(drawn as u64) } else { bits >> 32 };
                (((bits & 0xffff_ffff) * (last as u64 + 1)) >> 32) as u32
            }
            false => key.below(last as u64, last as u64 + 1) as u32,
        };
        // All places are compared, without a branch for each.
        let twice = positions.iter().fold(false, |found, &position| found | (position == candidate));
        let position = if twice { last as u32 } else { candidate };
        positions[drawn] = position;
        edges.push(lists.edge(row, position as usize));
    }
}

fn draw_many(
    lists: &Lists<'_>,
    row: u32,
    degree: usize,
    count: usize,
    key: Key,
    scratch: &mut Scratch,
    edges: &mut Vec<u64>,
) {
    scratch.drawn.begin(degree);
    for last in degree - count..degree {
        let candidate = key.below(last as u64, last as u64 + 1) as u32;
        let twice = scratch.drawn.get(candidate).is_some();
        let position = if twice { last as u32 } else { candidate };
        scratch.drawn.insert(position, 0);
        edges.push(lists.edge(row, position as usize));
    }
}
