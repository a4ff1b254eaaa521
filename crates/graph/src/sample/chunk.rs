//! Which source nodes send in a step: Emma's source-node-centric chunks.
//!
//! In each sweep a random order of all nodes, by their original ids, is cut into equal chunks. The chunk of a node is a
//! function of the seed, the sweep and its id, so every rank knows it without a message, whoever owns the node.

use crate::random::{Key, Purpose};

/// The chunks of one sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    count: u64,
    nodes: u64,
    order: Key,
}

impl Chunks {
    /// `count` chunks of the original ids `0..nodes`, in the order of `sweep`.
    pub fn new(count: usize, nodes: u64, seed: u64, sweep: u64) -> Self {
        Self { count: count as u64, nodes, order: Key::new(seed, Purpose::Chunk).with(sweep) }
    }

    /// The chunk in which `node` sends.
    pub fn of(&self, node: u64) -> usize {
        let place = self.order.place(node, self.nodes);
        (u128::from(place) * u128::from(self.count) / u128::from(self.nodes.max(1))) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_node_sends_once_a_sweep_and_chunks_are_equal(nodes in 1u64..3000, count in 1usize..40, seed: u64) {
            let chunks = Chunks::new(count, nodes, seed, 3);
            let mut sizes = vec![0u64; count];
            (0..nodes).for_each(|node| sizes[chunks.of(node)] += 1);
            let smallest = nodes / count as u64;
            prop_assert!(sizes.iter().all(|&size| size == smallest || size == smallest + 1), "{sizes:?}");
        }
    }

    #[test]
    fn sweeps_and_seeds_have_chunks_of_their_own() {
        let of = |seed, sweep| {
            let chunks = Chunks::new(10, 1000, seed, sweep);
            (0..1000).map(|node| chunks.of(node)).collect::<Vec<_>>()
        };
        let together = |a: &[usize], b: &[usize]| a.iter().zip(b).filter(|(a, b)| a == b).count();
        let first = of(1, 1);
        assert_eq!(first, of(1, 1));
        for other in [of(1, 2), of(2, 1)] {
            assert!((60..140).contains(&together(&first, &other)), "chunks hang together");
        }
    }
}
