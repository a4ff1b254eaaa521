//! In-edges drawn one after the other without replacement, the later their source the likelier.
//!
//! For graphs whose ids grow with time, such as papers or users in the order in which they came. Of the `d` in-edges of a
//! node, in the order of their sources' ids, the one that stands `a`-th from the end has weight `1/a`. As in the sampler
//! `weighted`, each gets the number `ln(u) a` with a uniform `u` of its own, and the `fanout` highest are kept.
//!
//! What is drawn is a function of the hop's key, the node's original id and the place in its list: it depends neither on
//! the parts nor on who asks. Averages lean towards late sources; that is what one asks for. Cost: O(degree) per node.

use archipelago::graph::sample::{Drawn, Entry, Hop, Lists, Sampler, Scratch};

/// The table line of this sampler.
pub const ENTRY: Entry = Entry {
    name: "latest",
    summary: "a fixed number of in-edges per node and layer, sources with the highest ids most likely",
    paper: "",
    build: |options| Ok(Box::new(Latest { fanouts: options.counts()? })),
};

struct Latest {
    fanouts: Vec<Option<usize>>,
}

impl Sampler for Latest {
    fn hops(&self) -> usize {
        self.fanouts.len()
    }

    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, scratch: &mut Scratch, drawn: &mut Drawn) {
        let fanout = self.fanouts[hop.number].unwrap_or(usize::MAX);
        for &row in rows {
            let degree = lists.degree(row);
            if degree <= fanout {
                drawn.take_all(lists, row);
                continue;
            }
            let key = hop.key.with(lists.original(row));
            let keyed = &mut scratch.keyed;
            keyed.clear();
            keyed.extend((0..degree).map(|place| {
                let from_end = (degree - place) as f64;
                // 1 - u is never 0, so that no edge gets minus infinity.
                ((1.0 - key.unit(place as u64)).ln() * from_end, place as u32)
            }));
            keyed.select_nth_unstable_by(fanout, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            keyed.truncate(fanout);
            keyed.sort_unstable_by_key(|&(_, place)| place);
            drawn.edges.extend(keyed.iter().map(|&(_, place)| lists.edge(row, place as usize)));
            drawn.counts.push(fanout as u32);
        }
    }

    fn expected(&self, rows: usize, hop: usize) -> usize {
        rows.saturating_mul(self.fanouts[hop].unwrap_or(100))
    }
}
