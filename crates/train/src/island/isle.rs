//! An island as a rank trains on it, and what islands take.

use crate::worker::labelled_training_rows;
use archipelago_graph::Part;
use archipelago_graph::store::Island;
use std::sync::Arc;

/// An island with its targets.
#[derive(Debug)]
pub struct Isle {
    /// The piece of the graph, as if there was no more.
    pub part: Arc<Part>,
    /// Weighted in-degree of each row in the whole graph.
    pub degrees: Arc<Vec<f32>>,
    /// Rows of the targets.
    pub labelled: Vec<u32>,
    /// For each of them the share of its in-edges that are on the island.
    pub coverage: Vec<f32>,
    /// What tells its shuffles from those of other islands.
    pub lot: u64,
}

impl Isle {
    /// `island` as it is trained on.
    pub fn new(island: Island, lot: u64) -> Self {
        let labelled = labelled_training_rows(&island.part);
        let coverage = labelled.iter().map(|&row| island.coverage(row)).collect();
        Self { part: Arc::new(island.part), degrees: Arc::new(island.degrees), labelled, coverage, lot }
    }
}

/// How large the islands of a strategy are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Parts of an island.
    pub parts: usize,
    /// How far around them it reaches.
    pub hops: usize,
}

/// What the islands of an epoch took on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Landing {
    /// Targets that were trained on.
    pub targets: u64,
    /// The sum of their coverage.
    pub coverage: f64,
    /// Islands whose parts are others than the last time.
    pub switches: u64,
    /// Islands that were made.
    pub made: u64,
    /// Seconds that making them took.
    pub secs: f64,
}

impl Landing {
    /// Takes in what another stretch of an epoch took.
    pub fn add(&mut self, other: &Self) {
        self.targets += other.targets;
        self.coverage += other.coverage;
        self.switches += other.switches;
        self.made += other.made;
        self.secs += other.secs;
    }
}
