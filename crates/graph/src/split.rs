//! Random splits of nodes: of a generated graph, or of one that came without.

use crate::dataset::Splits;
use crate::random::{Key, Purpose};

/// Shares of the nodes that go to each split, in percent, 100 together at most; what they leave is in none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Training nodes.
    pub train: u64,
    /// Validation nodes.
    pub valid: u64,
    /// Test nodes.
    pub test: u64,
}

/// Exact shares of a random permutation of these nodes, each sorted.
pub fn permuted(nodes: impl Iterator<Item = u64>, seed: u64, shares: &Shares) -> Splits {
    let mut order: Vec<u64> = nodes.collect();
    Key::new(seed, Purpose::Split).shuffle(&mut order);
    let end = |percent: u64| (order.len() as u128 * u128::from(percent) / 100) as usize;
    let (train, valid) = (end(shares.train), end(shares.train + shares.valid));
    let sorted = |nodes: &[u64]| {
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        nodes
    };
    Splits {
        train: sorted(&order[..train]),
        valid: sorted(&order[train..valid]),
        test: sorted(&order[valid..end(shares.train + shares.valid + shares.test)]),
    }
}

/// Shares on average: each node draws its split, so no permutation of all nodes is held.
pub(crate) fn drawn(nodes: u64, seed: u64, shares: &Shares) -> Splits {
    let key = Key::new(seed, Purpose::Split);
    let mut splits = Splits::default();
    for node in 0..nodes {
        match key.below(node, 100) {
            draw if draw < shares.train => splits.train.push(node),
            draw if draw < shares.train + shares.valid => splits.valid.push(node),
            draw if draw < shares.train + shares.valid + shares.test => splits.test.push(node),
            _ => {}
        }
    }
    splits
}
