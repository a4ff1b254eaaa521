//! The user's own names for nodes, numbered in the order of first appearance.
//!
//! A hash table of indices into the list of names: each name is stored once.

use xxhash_rust::xxh3::xxh3_64;

/// Names and their numbers.
#[derive(Debug, Default, Clone)]
pub(super) struct Names {
    names: Vec<String>,
    /// Open addressing: index of a name plus one, 0 = free. The length is a power of two.
    slots: Vec<u64>,
}

impl Names {
    /// The number of `name`, given now if it is new.
    pub(super) fn number(&mut self, name: &str) -> u64 {
        if 4 * (self.names.len() + 1) > 3 * self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(name);
        if self.slots[slot] == 0 {
            self.names.push(name.to_owned());
            self.slots[slot] = self.names.len() as u64;
        }
        self.slots[slot] - 1
    }

    /// The number of `name`, if it has one.
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        self.slots[self.slot_of(name)].checked_sub(1)
    }

    /// The names in order.
    pub(super) fn as_slice(&self) -> &[String] {
        &self.names
    }

    fn slot_of(&self, name: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = xxh3_64(name.as_bytes()) as usize & mask;
        while self.slots[slot] != 0 && self.names[self.slots[slot] as usize - 1] != name {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; (2 * self.slots.len()).max(16)];
        for index in 0..self.names.len() {
            let slot = self.slot_of(&self.names[index]);
            self.slots[slot] = index as u64 + 1;
        }
    }
}

/// How a file of edges refers to nodes.
#[derive(Debug)]
pub(super) enum Nodes {
    /// By number: ids are `0..count`.
    Numbered(u64),
    /// By name.
    Named(Names),
}

impl Nodes {
    /// How many nodes there are.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Numbered(count) => *count,
            Self::Named(names) => names.as_slice().len() as u64,
        }
    }

    /// The names, where nodes have some.
    pub(super) fn names(&self) -> Option<Vec<String>> {
        match self {
            Self::Numbered(_) => None,
            Self::Named(names) => Some(names.as_slice().to_vec()),
        }
    }
}

/// Whether integer ids up to `largest` are used as they are; else they are names that happen to be numbers.
pub(super) fn is_dense(largest: u64, edges: u64) -> bool {
    largest < edges.saturating_mul(8).max(1024)
}

/// What is noted when ids became names.
pub(super) fn naming_note(nodes: u64) -> String {
    format!("node ids are not 0, 1, 2, …: {nodes} distinct ids were numbered in order of first appearance")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_by_first_appearance_and_found_again() {
        let mut names = Names::default();
        for round in 0..2 {
            for i in 0..1000u64 {
                assert_eq!(names.number(&format!("node {i}")), i, "round {round}");
            }
        }
        assert_eq!((names.find("node 7"), names.find("7")), (Some(7), None));
        assert_eq!(names.as_slice()[999], "node 999");
    }
}
