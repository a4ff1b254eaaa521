//! Is this dataset fit to train on, and what would be assumed about it?
//!
//! One pass over the edges and one over each node column. Degrees take 24 bytes per node. Duplicate edges and
//! missing reverses are counted exactly by sorting the edges as pairs of ids, which takes 16 bytes per edge;
//! above [`LARGEST_EXACT`] edges this is not done and the report says so.

mod edges;
mod nodes;

use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use serde::Serialize;

/// The most edges (2^30, 16 GB as pairs) for which duplicates and reverses are counted.
pub const LARGEST_EXACT: u64 = 1 << 30;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Training works, but perhaps not as meant, or the dataset has nothing to learn from.
    Warning,
    /// Training on this would fail or be wrong.
    Error,
}

/// One thing that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What was found, as a sentence without its full stop.
    pub message: String,
}

/// Degrees of all nodes in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Degrees {
    /// The largest degree.
    pub max: u64,
    /// A node that has it.
    pub max_node: u64,
    /// The user's name of that node, where nodes have names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_name: Option<String>,
    /// The mean over all nodes.
    pub mean: f64,
}

/// What a check of the edges found.
#[derive(Debug, Clone, Serialize)]
pub struct EdgeReport {
    /// Edges from a node to itself.
    pub self_loops: u64,
    /// Edges beyond the first between the same source and destination; `None` = too many edges to tell.
    pub duplicates: Option<u64>,
    /// Distinct edges whose reverse is not there; `None` = too many edges to tell.
    pub without_reverse: Option<u64>,
    /// Nodes without any edge.
    pub isolated_nodes: u64,
    /// Edges that arrive at a node.
    pub in_degree: Degrees,
    /// Edges that leave a node.
    pub out_degree: Degrees,
}

/// Sizes of the three splits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SplitSizes {
    /// Training nodes.
    pub train: usize,
    /// Validation nodes.
    pub valid: usize,
    /// Test nodes.
    pub test: usize,
}

/// Everything a check found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The dataset.
    pub name: String,
    /// How many nodes it has.
    pub nodes: u64,
    /// How many directed edges it has.
    pub edges: u64,
    /// Features per node.
    pub features: usize,
    /// Classes or labels.
    pub classes: usize,
    /// Whether a node may have several labels.
    pub multilabel: bool,
    /// Nodes without a label; 0 for datasets without labels.
    pub unlabelled: u64,
    /// What was found about the edges.
    pub edge_report: EdgeReport,
    /// Sizes of the splits.
    pub splits: SplitSizes,
    /// Training nodes that have a label; without any, `archi train` can only learn to predict edges.
    pub learnable: u64,
    /// What was found, the most serious first.
    pub findings: Vec<Finding>,
    /// What the reader assumed.
    pub assumed: Vec<String>,
}

impl Report {
    /// The severity of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Checks `dataset` from end to end; it is left rewound.
pub fn check(dataset: &mut Dataset, progress: &dyn Progress) -> Result<Report> {
    let mut findings = Findings::default();
    let edge_report = edges::check(dataset, &mut findings, progress)?;
    nodes::check_features(&dataset.features, &mut findings);
    let unlabelled = nodes::check_labels(&dataset.labels, &mut findings);
    nodes::check_splits(&dataset.splits, &dataset.labels, dataset.nodes, &mut findings);
    let learnable = nodes::check_learnable(&dataset.splits.train, &dataset.labels, &mut findings);
    let splits = &dataset.splits;
    Ok(Report {
        name: dataset.name.clone(),
        nodes: dataset.nodes,
        edges: dataset.edges.len(),
        features: dataset.features.width(),
        classes: dataset.labels.classes(),
        multilabel: dataset.labels.is_multi(),
        unlabelled,
        edge_report,
        splits: SplitSizes { train: splits.train.len(), valid: splits.valid.len(), test: splits.test.len() },
        learnable,
        findings: findings.sorted(),
        assumed: dataset.notes.clone(),
    })
}

/// The list while it grows.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, message: String) {
        self.0.push(Finding { severity: Severity::Error, message });
    }

    fn warning(&mut self, message: String) {
        self.0.push(Finding { severity: Severity::Warning, message });
    }

    fn info(&mut self, message: String) {
        self.0.push(Finding { severity: Severity::Info, message });
    }

    fn sorted(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        self.0
    }
}
