//! Weighted neighbour sampling: in-edges drawn one after the other without replacement, likely by their weight.
//!
//! Efraimidis & Spirakis, Weighted random sampling with a reservoir, IPL 2006: every edge gets the number
//! `ln(u) / w` with its own uniform `u`, and the `fanout` highest are kept, which is the same as drawing one at a
//! time with chances in proportion to the weights that are left. Edges of weight 0 are never kept. Without weights all
//! edges weigh 1.
//!
//! Cost: O(degree) per node: every weight is looked at.

use super::{Drawn, Entry, Hop, Lists, Sampler, Scratch};

/// The table line of this sampler.
pub(super) const ENTRY: Entry = Entry {
    name: "weighted",
    summary: "a fixed number of in-edges per node and layer, likely by edge weight, without replacement",
    paper: "Efraimidis & Spirakis, Weighted random sampling with a reservoir, IPL 2006",
    build: |options| Ok(Box::new(Weighted { fanouts: options.counts()? })),
};

struct Weighted {
    fanouts: Vec<Option<usize>>,
}

impl Sampler for Weighted {
    fn hops(&self) -> usize {
        self.fanouts.len()
    }

    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, scratch: &mut Scratch, drawn: &mut Drawn) {
        let fanout = self.fanouts[hop.number].unwrap_or(usize::MAX);
        for &row in rows {
            let key = hop.key.with(lists.original(row));
            let keyed = &mut scratch.keyed;
            keyed.clear();
            keyed.extend((0..lists.degree(row)).filter_map(|position| {
                let weight = f64::from(lists.weight(lists.edge(row, position)));
                // 1 - u is never 0, so that no edge gets minus infinity.
                (weight > 0.0).then(|| ((1.0 - key.unit(position as u64)).ln() / weight, position as u32))
            }));
            if keyed.len() > fanout {
                keyed.select_nth_unstable_by(fanout, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
                keyed.truncate(fanout);
            }
            keyed.sort_unstable_by_key(|&(_, position)| position);
            drawn.edges.extend(keyed.iter().map(|&(_, position)| lists.edge(row, position as usize)));
            drawn.counts.push(keyed.len() as u32);
        }
    }

    fn expected(&self, rows: usize, hop: usize) -> usize {
        rows.saturating_mul(self.fanouts[hop].unwrap_or(100))
    }
}
