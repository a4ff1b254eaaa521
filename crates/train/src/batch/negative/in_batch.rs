//! The targets of the other links of a batch: they are computed anyway, so they cost nothing to fetch.
//!
//! They are likely by how often they are linked to, and depend on how links fall into batches.

use super::uniform::false_targets;
use super::{Entry, Negatives, NodeSpace, key_of};
use archipelago_graph::Link;
use archipelago_graph::random::Key;

pub(super) const ENTRY: Entry = Entry {
    name: "in-batch",
    summary: "false targets are those of the other links of the batch",
    paper: "Chen et al., On Sampling Strategies for Neural Network-based Collaborative Filtering, KDD 2017",
    build: || Box::new(InBatch),
};

struct InBatch;

impl Negatives for InBatch {
    fn draw(&self, space: NodeSpace<'_>, positives: &[Link], each: usize, key: Key) -> Vec<u64> {
        let mut drawn = Vec::with_capacity(positives.len() * each);
        for link in positives {
            let mut any = false_targets(link, space.nodes, each, key);
            let key = key_of(link, key);
            for counter in 0..each as u64 {
                // From a place of its own, the first link with another target.
                let start = key.below(counter, positives.len() as u64) as usize;
                let others = positives[start..].iter().chain(&positives[..start]);
                let other = others.map(|other| other.target).find(|&target| target != link.target);
                drawn.push(other.or(any.next()).unwrap_or(link.target));
            }
        }
        drawn
    }
}
