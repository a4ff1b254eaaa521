//! Parts by a hash of the node's id: nothing is remembered, so any machine can say where any node lives.
//!
//! `part(v) = hash(seed, v) mod P`. Shares are equal only on average (their sizes spread by about
//! `sqrt(nodes / P)`), the cut is that of a random assignment. No edge is read. Memory: the answer.

use super::{Assignment, Entry, Memory, Partitioner, Request, checked_nodes};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "hash",
    summary: "hash of the node id: no state, nearly equal shares, no locality",
    paper: "",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[],
    build: || Box::new(Hash),
};

/// Stateless assignment by hashed id.
#[derive(Debug, Clone, Copy)]
pub struct Hash;

impl Partitioner for Hash {
    fn assign(&self, dataset: &mut Dataset, request: &Request, _: &dyn Progress) -> Result<Assignment> {
        let nodes = checked_nodes(dataset, request)?;
        let key = Key::new(request.seed, Purpose::Partition);
        let part_of =
            (0..nodes as u64).map(|node| key.below(node, u64::from(request.parts)) as u32).collect();
        Ok(Assignment { parts: request.parts, part_of })
    }
}
