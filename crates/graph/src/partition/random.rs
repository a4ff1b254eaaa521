//! Balanced random parts: a seeded permutation of the nodes cut into shares that differ by one node at most.
//!
//! The baseline every other method is measured against: perfect balance, the worst cut (an edge stays inside a
//! part with probability 1/P). No edge is read. Memory: 12 bytes per node.

use super::{Assignment, Entry, Memory, Partitioner, Request, checked_nodes};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "random",
    summary: "equal shares of a random permutation: perfect balance, no locality",
    paper: "",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[],
    build: || Box::new(Random),
};

/// Balanced random assignment.
#[derive(Debug, Clone, Copy)]
pub struct Random;

impl Partitioner for Random {
    fn assign(&self, dataset: &mut Dataset, request: &Request, _: &dyn Progress) -> Result<Assignment> {
        let nodes = checked_nodes(dataset, request)?;
        let mut order: Vec<u64> = (0..nodes as u64).collect();
        Key::new(request.seed, Purpose::Partition).shuffle(&mut order);
        let mut part_of = vec![0u32; nodes];
        for (position, &node) in order.iter().enumerate() {
            part_of[node as usize] = share(position, nodes, request.parts);
        }
        Ok(Assignment { parts: request.parts, part_of })
    }
}

/// The share that holds `position` when `0..nodes` is cut into `parts` stretches as equal as possible.
fn share(position: usize, nodes: usize, parts: u32) -> u32 {
    (position as u128 * u128::from(parts) / nodes as u128) as u32
}
