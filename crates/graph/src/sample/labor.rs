//! Layer-neighbour sampling (LABOR-0): nodes of a layer share their luck, so that neighbourhoods overlap.
//!
//! Balin & Catalyurek, Layer-Neighbor Sampling - Defusing Neighborhood Explosion in GNNs, NeurIPS 2023. Each
//! possible source `t` draws one uniform number `r_t` per layer, the same for all who could read it; node `s` of
//! degree `d` keeps `t` when `r_t < min(1, k / d)`. Each edge is kept with the same chance as by neighbour sampling
//! with fan-out `k`, and `k` edges are kept on average, but a source that is kept by one node is likely kept by
//! others, so a batch reads fewer nodes. The number of edges of a node varies; one that would keep none keeps the
//! luckiest, so that no neighbourhood is empty (this differs from the paper, with chance `(1 - k/d)^d < e^-k`).
//!
//! Cost: O(degree) per node.

use super::{Drawn, Entry, Hop, Lists, Sampler, Scratch};

/// The table line of this sampler.
pub(super) const ENTRY: Entry = Entry {
    name: "labor",
    summary: "about a fixed number of in-edges per node, chosen by numbers that the nodes of a layer share",
    paper: "Balin & Catalyurek, Layer-Neighbor Sampling, NeurIPS 2023",
    build: |options| Ok(Box::new(Labor { fanouts: options.counts()? })),
};

struct Labor {
    fanouts: Vec<Option<usize>>,
}

impl Sampler for Labor {
    fn hops(&self) -> usize {
        self.fanouts.len()
    }

    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, _: &mut Scratch, drawn: &mut Drawn) {
        let fanout = self.fanouts[hop.number].unwrap_or(usize::MAX);
        for &row in rows {
            let degree = lists.degree(row);
            if degree <= fanout {
                drawn.take_all(lists, row);
                continue;
            }
            let share = fanout as f64 / degree as f64;
            let first = drawn.edges.len();
            let mut luckiest = (f64::INFINITY, 0);
            for position in 0..degree {
                let edge = lists.edge(row, position);
                let luck = hop.key.with(lists.original(lists.source(edge))).unit(0);
                if luck < share {
                    drawn.edges.push(edge);
                }
                if luck < luckiest.0 {
                    luckiest = (luck, edge);
                }
            }
            if drawn.edges.len() == first {
                drawn.edges.push(luckiest.1);
            }
            drawn.counts.push((drawn.edges.len() - first) as u32);
        }
    }

    fn expected(&self, rows: usize, hop: usize) -> usize {
        rows.saturating_mul(self.fanouts[hop].unwrap_or(100))
    }
}
