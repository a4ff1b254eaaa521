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

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago::graph::partition::Assignment;
    use archipelago::graph::progress::Silent;
    use archipelago::graph::random::{Key, Purpose};
    use archipelago::graph::sample::Options;
    use archipelago::graph::store::{self, Meta};
    use archipelago::graph::synthetic::small::bare;
    use archipelago::graph::{PartId, Store};

    #[test]
    fn the_chance_of_an_edge_falls_with_its_place_from_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let pairs: Vec<(u64, u64)> = (1..=5).map(|leaf| (leaf, 0)).collect();
        let whole = Assignment { parts: 1, part_of: vec![0; 6] };
        let path = folder.path().join("store");
        store::write(&mut bare("star", 6, &pairs), &whole, &Meta::default(), &path, &Silent).unwrap();
        let part = Store::open(&path).unwrap().part(PartId(0)).unwrap();
        let lists = Lists::new(&part, part.original());
        let sampler = (ENTRY.build)(&Options { fanouts: vec![1] }).unwrap();

        let (mut counts, mut scratch, draws) = ([0.0; 6], Scratch::default(), 20_000);
        for step in 0..draws {
            let mut drawn = Drawn::default();
            let hop = Hop::new(0, Key::new(step, Purpose::Sample));
            sampler.draw(&lists, &[0], hop, &mut scratch, &mut drawn);
            assert_eq!((drawn.counts.as_slice(), drawn.edges.len()), (&[1][..], 1));
            counts[lists.original(lists.source(drawn.edges[0])) as usize] += 1.0;
        }
        let weight = |leaf: usize| 1.0 / (6 - leaf) as f64;
        let all: f64 = (1..=5).map(weight).sum();
        for (leaf, count) in counts.iter().enumerate().skip(1) {
            let (found, expected) = (count / draws as f64, weight(leaf) / all);
            assert!((found - expected).abs() < 0.012, "leaf {leaf}: {found} instead of {expected}");
        }
    }
}
