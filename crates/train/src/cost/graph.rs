//! What must be known of a graph before it is trained on? Counts, degrees, and how it is cut.

use super::degrees::Degrees;
use archipelago_graph::store::manifest::{FeatureKind, Manifest, PartEntry};

/// A graph and its cut, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphFacts {
    /// What users call it.
    pub name: String,
    /// Nodes.
    pub nodes: f64,
    /// Directed edges.
    pub edges: f64,
    /// Numbers per node.
    pub features: usize,
    /// Whether they are stored row by row; else only those that are not 0.
    pub dense: bool,
    /// Stored numbers of a row of features, on average.
    pub stored_features: f64,
    /// Classes or labels.
    pub classes: usize,
    /// Whether a node may have several labels.
    pub multilabel: bool,
    /// Whether edges have weights.
    pub weighted: bool,
    /// Labelled training nodes.
    pub train: f64,
    /// Parts.
    pub parts: u32,
    /// Share of the edges whose ends lie in different parts.
    pub cut: f64,
    /// Halo nodes of a part, on average.
    pub halo: f64,
    /// In-edges of the largest part over those of an average one.
    pub balance: f64,
    /// Bytes of all files of the parts.
    pub store_bytes: f64,
    /// Degrees.
    pub degrees: Degrees,
    /// What was assumed of all this, in words.
    pub assumed: Vec<String>,
}

impl GraphFacts {
    /// Those of a store, whose nodes have these `degrees`.
    pub fn of_store(manifest: &Manifest, degrees: Degrees) -> Self {
        let sum = |count: fn(&PartEntry) -> u64| manifest.parts.iter().map(count).sum::<u64>() as f64;
        let bytes = manifest.parts.iter().flat_map(|part| part.files.values()).map(|file| file.bytes);
        let (nodes, width) = (manifest.nodes as f64, manifest.features.width().max(1));
        let dense = !matches!(manifest.features, FeatureKind::Sparse { .. });
        Self {
            name: manifest.dataset.clone(),
            nodes,
            edges: manifest.edges as f64,
            features: width,
            dense,
            stored_features: if dense { width as f64 } else { sum(|p| p.feature_values) / nodes.max(1.0) },
            classes: manifest.labels.classes(),
            multilabel: manifest.labels.is_multi(),
            weighted: manifest.edge_columns.weighted,
            train: sum(|part| part.train),
            parts: manifest.parts.len() as u32,
            cut: manifest.quality.cut_fraction,
            halo: sum(|part| part.halo) / manifest.parts.len().max(1) as f64,
            balance: manifest.quality.balance_edges.max(1.0),
            store_bytes: bytes.sum::<u64>() as f64,
            degrees,
            assumed: Vec::new(),
        }
    }

    /// Those of a graph that there is none of yet: `cut` is the share of its edges that its cut cuts, and halo and files
    /// follow from it.
    pub fn expected(self) -> Self {
        let halo = self.halo_of(1.0, 1.0);
        let rows = self.nodes + f64::from(self.parts) * halo;
        let label = if self.multilabel { self.classes as f64 } else { 8.0 };
        // Original id and offset of a node, source and order of an edge, global id of a halo node.
        let index = 16.0 * self.nodes + 8.0 * (rows - self.nodes) + (4.0 + 4.0) * self.edges;
        let store_bytes = index + self.nodes * (4.0 * self.features as f64 + label) + 4.0 * self.train;
        Self { halo, store_bytes, ..self }
    }

    /// Halo nodes that one of `self.parts` parts reads if `active` of its in-edges are read, where a share `border` of the
    /// nodes of other parts is near enough to be met at all.
    fn halo_of(&self, active: f64, border: f64) -> f64 {
        let others = f64::from(self.parts) - 1.0;
        if others < 1.0 || border <= 0.0 {
            return 0.0;
        }
        let met = |degree: f64| 1.0 - self.degrees.missed(degree, active * self.cut / (others * border));
        let groups = self.degrees.groups.iter();
        let share = border * others / (others + 1.0);
        groups.map(|group| share * group.nodes * met(group.degree)).sum()
    }

    /// Share of the nodes of other parts that stand at the border of a part: the one with which the halo has the size it
    /// has.
    pub fn border(&self) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if self.halo_of(1.0, middle) < self.halo { low = middle } else { high = middle }
        }
        high
    }

    /// Halo nodes that a part reads if only `active` of its in-edges are read.
    pub fn halo_read(&self, active: f64) -> f64 {
        let border = self.border();
        let whole = self.halo_of(1.0, border);
        if whole > 0.0 { self.halo * self.halo_of(active, border) / whole } else { 0.0 }
    }

    /// Nodes of a part, on average.
    pub fn owned(&self) -> f64 {
        self.nodes / f64::from(self.parts)
    }

    /// In-edges of a part, on average.
    pub fn part_edges(&self) -> f64 {
        self.edges / f64::from(self.parts)
    }

    /// Bytes of a row of features as it is stored.
    pub fn feature_bytes(&self) -> f64 {
        if self.dense { 4.0 * self.features as f64 } else { 8.0 + 8.0 * self.stored_features }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An R-MAT graph of 2^16 nodes in 4 parts cut at random.
    pub fn rmat(parts: u32) -> GraphFacts {
        let (nodes, edges) = (65536.0, 2_097_152.0);
        let facts = GraphFacts {
            name: "rmat-16".into(),
            nodes,
            edges,
            features: 32,
            dense: true,
            stored_features: 32.0,
            classes: 16,
            multilabel: false,
            weighted: false,
            train: 0.1 * nodes,
            parts,
            cut: f64::from(parts - 1) / f64::from(parts),
            halo: 0.0,
            balance: 1.0,
            store_bytes: 0.0,
            degrees: Degrees::rmat(16, edges),
            assumed: Vec::new(),
        };
        facts.expected()
    }

    #[test]
    fn a_halo_grows_with_what_is_read_and_never_beyond_the_other_parts() {
        let facts = rmat(4);
        assert!(facts.halo > 0.3 * facts.nodes && facts.halo < 0.75 * facts.nodes, "{}", facts.halo);
        assert!((facts.halo_read(1.0) / facts.halo - 1.0).abs() < 1e-9);
        assert!(facts.halo_read(0.1) < facts.halo && facts.halo_read(0.1) > 0.1 * facts.halo);
        assert_eq!((rmat(1).halo, rmat(1).halo_read(1.0)), (0.0, 0.0));
    }

    #[test]
    fn a_small_halo_means_that_few_nodes_stand_at_the_border() {
        let whole = rmat(4);
        let facts = GraphFacts { halo: 0.2 * whole.halo, ..whole };
        let border = facts.border();
        assert!(border > 0.01 && border < 0.5, "{border}");
        assert!((facts.halo_of(1.0, border) / facts.halo - 1.0).abs() < 1e-6);
    }
}
