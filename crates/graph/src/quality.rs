//! How good is an assignment? Cut, halo, replication and balance of any of them.
//!
//! One pass over the edges; memory is a bit per node and part (which remote sources a part has met) and
//! O(parts). The destination owns the edge, so an edge counts for the part of its target. The store computes the
//! same figures part by part while it writes; both end in [`Quality::from_parts`].
//! Placements of edges have figures of their own, [`EdgeQuality`], collected while edges are placed.

use crate::Result;
use crate::dataset::{Dataset, EdgeChunk, Splits};
use crate::partition::Assignment;
use crate::partition::replicas::Replicas;
use crate::progress::Progress;
use serde::{Deserialize, Serialize};

/// The figures of one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartQuality {
    /// Nodes that it owns.
    pub owned: u64,
    /// Of these, training nodes.
    pub train: u64,
    /// Of these, validation nodes.
    pub valid: u64,
    /// Of these, test nodes.
    pub test: u64,
    /// Edges whose destination it owns.
    pub in_edges: u64,
    /// Of these, edges whose source is elsewhere.
    pub cut_in_edges: u64,
    /// Distinct sources of its cut in-edges.
    pub halo: u64,
}

/// The figures of an assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Directed edges whose ends lie in different parts.
    pub cut_edges: u64,
    /// Of all edges, the share that is cut; 0 without edges.
    pub cut_fraction: f64,
    /// Copies of a node on average: sum over parts of owned + halo, over the number of nodes; 1 without nodes.
    pub replication_factor: f64,
    /// Owned nodes: largest over mean; 1 when there are none.
    pub balance_nodes: f64,
    /// In-edges: largest over mean.
    pub balance_edges: f64,
    /// Training nodes: largest over mean.
    pub balance_train: f64,
    /// Validation nodes: largest over mean.
    pub balance_valid: f64,
    /// Test nodes: largest over mean.
    pub balance_test: f64,
    /// Each part.
    pub parts: Vec<PartQuality>,
}

impl Quality {
    /// The whole from the figures of its parts.
    pub fn from_parts(parts: Vec<PartQuality>) -> Self {
        let total = |count: fn(&PartQuality) -> u64| parts.iter().map(count).sum::<u64>();
        let cut_edges = total(|part| part.cut_in_edges);
        Self {
            cut_edges,
            cut_fraction: ratio(cut_edges, total(|part| part.in_edges)).unwrap_or(0.0),
            replication_factor: ratio(total(|part| part.owned + part.halo), total(|part| part.owned))
                .unwrap_or(1.0),
            balance_nodes: balance(&parts, |part| part.owned),
            balance_edges: balance(&parts, |part| part.in_edges),
            balance_train: balance(&parts, |part| part.train),
            balance_valid: balance(&parts, |part| part.valid),
            balance_test: balance(&parts, |part| part.test),
            parts,
        }
    }
}

/// Measures `assignment` on the edges and splits of `dataset`.
pub fn measure(dataset: &mut Dataset, assignment: &Assignment, progress: &dyn Progress) -> Result<Quality> {
    assignment.check(dataset.nodes)?;
    let mut parts = vec![PartQuality::default(); assignment.parts as usize];
    for (part, size) in parts.iter_mut().zip(assignment.sizes()) {
        part.owned = size;
    }
    count_splits(&mut parts, &dataset.splits, assignment);
    count_edges(&mut parts, dataset, assignment, progress)?;
    Ok(Quality::from_parts(parts))
}

fn count_splits(parts: &mut [PartQuality], splits: &Splits, assignment: &Assignment) {
    let part_of = |node: &u64| assignment.part_of.get(*node as usize).map(|&part| part as usize);
    splits.train.iter().filter_map(part_of).for_each(|part| parts[part].train += 1);
    splits.valid.iter().filter_map(part_of).for_each(|part| parts[part].valid += 1);
    splits.test.iter().filter_map(part_of).for_each(|part| parts[part].test += 1);
}

fn count_edges(
    parts: &mut [PartQuality],
    dataset: &mut Dataset,
    assignment: &Assignment,
    progress: &dyn Progress,
) -> Result<()> {
    let mut met = Replicas::new(assignment.part_of.len(), assignment.parts);
    let mut chunk = EdgeChunk::default();
    progress.begin("measuring", dataset.edges.len(), "edges");
    dataset.edges.rewind()?;
    while dataset.edges.next_chunk(&mut chunk)? {
        for (&source, &target) in chunk.sources.iter().zip(&chunk.targets) {
            let home = assignment.part_of[target as usize] as usize;
            parts[home].in_edges += 1;
            if assignment.part_of[source as usize] as usize != home {
                parts[home].cut_in_edges += 1;
                parts[home].halo += u64::from(met.add(source as usize, home as u32));
            }
        }
        progress.tick(chunk.len() as u64)?;
    }
    Ok(())
}

/// The figures of a placement of edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EdgeQuality {
    /// Parts in which a node has an edge, on average over nodes that have any; 1 without edges.
    pub replication_factor: f64,
    /// Edges: largest over mean; 1 without edges.
    pub balance_edges: f64,
    /// Edges of each part.
    pub edges: Vec<u64>,
}

/// Collects the [`EdgeQuality`] of edges as they are placed (see [`EdgeSink`](crate::partition::EdgeSink)).
#[derive(Debug)]
pub struct EdgeMeter {
    nodes: usize,
    met: Replicas,
    copies: u64,
    edges: Vec<u64>,
}

impl EdgeMeter {
    /// No edges yet.
    pub fn new(nodes: usize, parts: u32) -> Self {
        Self { nodes, met: Replicas::new(nodes, parts), copies: 0, edges: vec![0; parts as usize] }
    }

    /// Takes note of placed edges.
    pub fn count(&mut self, chunk: &EdgeChunk, parts: &[u32]) {
        for ((&source, &target), &part) in chunk.sources.iter().zip(&chunk.targets).zip(parts) {
            self.edges[part as usize] += 1;
            self.copies += u64::from(self.met.add(source as usize, part));
            self.copies += u64::from(self.met.add(target as usize, part));
        }
    }

    /// The figures of all edges so far.
    pub fn finish(self) -> EdgeQuality {
        let ends = (0..self.nodes).filter(|&node| self.met.any(node)).count() as u64;
        EdgeQuality {
            replication_factor: ratio(self.copies, ends).unwrap_or(1.0),
            balance_edges: largest_over_mean(&self.edges),
            edges: self.edges,
        }
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Largest over mean of one figure of the parts.
fn balance(parts: &[PartQuality], count: fn(&PartQuality) -> u64) -> f64 {
    largest_over_mean(&parts.iter().map(count).collect::<Vec<_>>())
}

/// Largest over mean; 1 when every part has none.
fn largest_over_mean(counts: &[u64]) -> f64 {
    let largest = counts.iter().copied().max().unwrap_or(0);
    ratio(largest * counts.len() as u64, counts.iter().sum()).unwrap_or(1.0)
}
