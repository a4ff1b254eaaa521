//! Which links are false? The operator that draws, for every true link of a batch, nodes that stand in for its target.
//!
//! A draw is a function of the key of the epoch and of the link, never of the batch or the rank (except for negatives
//! from the batch itself). A false link may happen to be true: in a large graph that is rare, and nobody is asked. A
//! new way is one file here and one line in [`NEGATIVES`].

mod uniform;
mod degree;
mod in_batch;

use crate::{Error, Result};
use archipelago_graph::Link;
use archipelago_graph::random::Key;

/// The nodes that negatives are drawn from.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpace<'a> {
    /// Nodes of the whole graph: global ids are below.
    pub nodes: u64,
    /// Nodes drawn from the whole graph for this epoch, each likely by its in-degree; empty where nobody needs them.
    pub by_degree: &'a [u64],
}

/// A way to draw false targets.
pub trait Negatives: Send + Sync {
    /// `each` nodes (global ids) for every one of `positives`, in their order; `key` is that of the epoch.
    fn draw(&self, space: NodeSpace<'_>, positives: &[Link], each: usize, key: Key) -> Vec<u64>;

    /// Whether it reads [`NodeSpace::by_degree`].
    fn needs_degrees(&self) -> bool {
        false
    }
}

/// A row of the table of negative samplers.
pub struct Entry {
    /// What users call it.
    pub name: &'static str,
    /// One line for `archi list`.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Makes it.
    pub build: fn() -> Box<dyn Negatives>,
}

/// Every way to draw false links.
pub const NEGATIVES: &[Entry] = &[uniform::ENTRY, degree::ENTRY, in_batch::ENTRY];

/// The one called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    NEGATIVES.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        kind: "negative sampler",
        name: name.to_owned(),
        known: NEGATIVES.iter().map(|entry| entry.name).collect(),
    })
}

/// The stream of draws of one link in an epoch.
fn key_of(link: &Link, epoch: Key) -> Key {
    epoch.with(link.source).with(link.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_graph::random::Purpose;
    use std::collections::BTreeMap;

    fn links(count: u64) -> Vec<Link> {
        (0..count).map(|i| Link::new(i, (7 * i) % 50, 0)).collect()
    }

    fn draws(name: &str, space: NodeSpace<'_>, links: &[Link], each: usize, epoch: u64) -> Vec<u64> {
        let sampler = (find(name).unwrap().build)();
        sampler.draw(space, links, each, Key::new(1, Purpose::Negative).with(epoch))
    }

    #[test]
    fn every_link_gets_its_negatives_and_never_its_own_target() {
        let by_degree: Vec<u64> = (0..50).collect();
        let space = NodeSpace { nodes: 50, by_degree: &by_degree };
        for entry in NEGATIVES {
            let links = links(40);
            let found = draws(entry.name, space, &links, 3, 1);
            assert_eq!(found.len(), 120, "{}", entry.name);
            for (link, negatives) in links.iter().zip(found.chunks(3)) {
                assert!(negatives.iter().all(|&node| node < 50 && node != link.target), "{}", entry.name);
            }
            assert_ne!(found, draws(entry.name, space, &links, 3, 2), "{}: epochs differ", entry.name);
        }
    }

    #[test]
    fn uniform_negatives_are_even_and_those_by_degree_are_not() {
        let by_degree: Vec<u64> = (0..1000).map(|i| if i % 4 == 0 { 3 } else { 5 + i % 40 }).collect();
        let space = NodeSpace { nodes: 50, by_degree: &by_degree };
        let count = |name| {
            let mut counts = BTreeMap::new();
            for epoch in 0..200 {
                let found = draws(name, space, &links(40), 2, epoch);
                found.into_iter().for_each(|node| *counts.entry(node).or_insert(0u32) += 1);
            }
            counts
        };
        let uniform = count("uniform");
        assert_eq!(uniform.len(), 50);
        assert!(uniform.values().all(|&n| (240..=400).contains(&n)), "{uniform:?}");
        let share = f64::from(count("degree")[&3]) / 16_000.0;
        assert!((0.22..0.28).contains(&share), "{share}");
    }

    #[test]
    fn negatives_of_a_batch_are_its_own_targets() {
        let space = NodeSpace { nodes: 1 << 40, by_degree: &[] };
        let links = links(10);
        let targets: Vec<u64> = links.iter().map(|link| link.target).collect();
        assert!(draws("in-batch", space, &links, 5, 3).iter().all(|node| targets.contains(node)));
        // A batch of one target has nothing to offer: nodes of the whole graph stand in.
        assert_eq!(draws("in-batch", space, &links[..1], 5, 3).len(), 5);
    }
}
