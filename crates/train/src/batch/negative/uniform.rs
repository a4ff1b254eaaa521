//! All nodes are equally likely, but for the true target.

use super::{Entry, Negatives, NodeSpace, key_of};
use archipelago_graph::Link;
use archipelago_graph::random::Key;

pub(super) const ENTRY: Entry = Entry {
    name: "uniform",
    summary: "false targets are any nodes, equally likely",
    paper: "Kipf & Welling, Variational Graph Auto-Encoders, 2016",
    build: || Box::new(Uniform),
};

struct Uniform;

impl Negatives for Uniform {
    fn draw(&self, space: NodeSpace<'_>, positives: &[Link], each: usize, key: Key) -> Vec<u64> {
        positives.iter().flat_map(|link| false_targets(link, space.nodes, each, key)).collect()
    }
}

/// `each` nodes of the graph other than the target of `link`; its only node where there is no other.
pub(super) fn false_targets(link: &Link, nodes: u64, each: usize, epoch: Key) -> impl Iterator<Item = u64> {
    let (key, target, others) = (key_of(link, epoch), link.target, nodes.saturating_sub(1));
    (0..each as u64).map(move |counter| match others {
        0 => target,
        _ => {
            let node = key.below(counter, others);
            node + u64::from(node >= target)
        }
    })
}
