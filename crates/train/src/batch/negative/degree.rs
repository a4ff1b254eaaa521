//! Nodes are likely by their in-degree: what is often linked to is a hard false target (Mikolov et al., NIPS 2013, with
//! exponent 1).
//!
//! Drawn from a list of nodes that all ranks make together for every epoch, in which a node stands in proportion to
//! its in-degree.

use super::uniform::false_targets;
use super::{Entry, Negatives, NodeSpace, key_of};
use archipelago_graph::Link;
use archipelago_graph::random::Key;

pub(super) const ENTRY: Entry = Entry {
    name: "degree",
    summary: "false targets are nodes, likely by their in-degree",
    paper: "Mikolov et al., Distributed Representations of Words and Phrases, NIPS 2013",
    build: || Box::new(Degree),
};

struct Degree;

/// Draws after which a link settles for any other node: its target is nearly all that is linked to.
const TRIES: u64 = 16;

impl Negatives for Degree {
    fn draw(&self, space: NodeSpace<'_>, positives: &[Link], each: usize, key: Key) -> Vec<u64> {
        let mut drawn = Vec::with_capacity(positives.len() * each);
        for link in positives {
            let mut any = false_targets(link, space.nodes, each, key);
            let key = key_of(link, key);
            for counter in 0..each as u64 {
                let candidate = |attempt| {
                    let place = key.with(attempt).below(counter, space.by_degree.len().max(1) as u64);
                    space.by_degree.get(place as usize).copied().filter(|&node| node != link.target)
                };
                drawn.push((0..TRIES).find_map(candidate).or(any.next()).unwrap_or(link.target));
            }
        }
        drawn
    }

    fn needs_degrees(&self) -> bool {
        true
    }
}
