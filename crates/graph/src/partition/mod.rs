//! Which part owns which node?
//!
//! A [`Partitioner`] reads a dataset and answers with an [`Assignment`]; the [`store`](crate::store) then writes
//! the parts. A method sees the dataset only through its edge stream and node columns, so a graph may be larger
//! than memory as long as O(nodes) numbers are not. Nothing here writes files or relabels nodes.
//!
//! Adding a method: one file that ends in an `ENTRY`, its `mod` line, and its line in [`PARTITIONERS`].

pub mod random;
pub mod hash;
pub mod file;

use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::{Error, Result};
use std::path::PathBuf;

/// A way of assigning nodes to parts.
pub trait Partitioner: Send + Sync {
    /// Assigns every node of `dataset` to one of `request.parts` parts. The edge stream may be left anywhere.
    fn assign(&self, dataset: &mut Dataset, request: &Request, progress: &dyn Progress)
    -> Result<Assignment>;
}

/// What is asked of a partitioner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How many parts to make; some may stay empty.
    pub parts: u32,
    /// The seed of whatever the method draws.
    pub seed: u64,
    /// The file that a method with [`Entry::needs_file`] reads.
    pub file: Option<PathBuf>,
}

impl Request {
    /// `parts` parts with this `seed`, from no file.
    pub fn new(parts: u32, seed: u64) -> Self {
        Self { parts, seed, file: None }
    }
}

/// Every node's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// How many parts there are; some may own no node.
    pub parts: u32,
    /// The part of each node, by original id.
    pub part_of: Vec<u32>,
}

impl Assignment {
    /// Refuses an assignment that does not give each of `nodes` nodes a part below `parts`.
    pub fn check(&self, nodes: u64) -> Result<()> {
        if self.parts == 0 {
            return Err(Error::usage("expected at least 1 part, found 0"));
        }
        if self.part_of.len() as u64 != nodes {
            return Err(Error::usage(format!(
                "the assignment covers {} nodes, but the dataset has {nodes}",
                self.part_of.len()
            )));
        }
        match self.part_of.iter().position(|&part| part >= self.parts) {
            None => Ok(()),
            Some(node) => Err(Error::usage(format!(
                "node {node} is assigned to part {}, but there are {} parts",
                self.part_of[node], self.parts
            ))
            .with_hint("parts are counted from 0")),
        }
    }

    /// How many nodes each part owns.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0; self.parts as usize];
        for &part in &self.part_of {
            sizes[part as usize] += 1;
        }
        sizes
    }
}

/// One line of the table of methods.
#[derive(Debug)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it comes from; empty when it has no source worth naming.
    pub paper: &'static str,
    /// Whether [`Request::file`] must be given.
    pub needs_file: bool,
    /// Makes it.
    pub build: fn() -> Box<dyn Partitioner>,
}

/// Every method, in the order in which they are listed to users.
pub const PARTITIONERS: &[Entry] = &[random::ENTRY, hash::ENTRY, file::ENTRY];

/// The method called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    PARTITIONERS.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        kind: "partitioner",
        name: name.to_owned(),
        known: PARTITIONERS.iter().map(|entry| entry.name).collect(),
    })
}

/// The number of nodes as an index, after refusing requests that no method can meet.
fn checked_nodes(dataset: &Dataset, request: &Request) -> Result<usize> {
    if request.parts == 0 {
        return Err(Error::usage("expected at least 1 part, found 0"));
    }
    usize::try_from(dataset.nodes).map_err(|_| Error::usage("the dataset has more nodes than fit in memory"))
}
