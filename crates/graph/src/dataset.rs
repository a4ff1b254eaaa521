//! A graph as the user brought it: edges as a stream, node columns as arrays, all in original ids.
//!
//! Every reader ends here and everything after reading starts here. Edges are only ever visited in chunks, so a
//! dataset may be larger than memory; node columns may be memory-mapped.

use crate::Result;
use crate::array::Array;
use serde::{Deserialize, Serialize};

/// Edges in chunks, any number of times.
///
/// One implementation per format. Ids are checked against the number of nodes by the reader, so whoever consumes
/// a stream may index with them.
pub trait EdgeStream: Send {
    /// How many edges a whole pass yields.
    fn len(&self) -> u64;

    /// Whether a pass yields no edge at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Back to the first edge.
    fn rewind(&mut self) -> Result<()>;

    /// Clears `chunk` and fills it with the next edges; `false` (and an empty chunk) at the end.
    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool>;
}

/// Some consecutive edges. Optional columns are empty when the dataset has none.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct EdgeChunk {
    /// Source of each edge, an original id.
    pub sources: Vec<u64>,
    /// Destination of each edge, an original id.
    pub targets: Vec<u64>,
    /// Weight of each edge.
    pub weights: Vec<f32>,
    /// Type of each edge.
    pub types: Vec<u32>,
    /// Attributes, `attribute_width` per edge.
    pub attributes: Vec<f32>,
}

impl EdgeChunk {
    /// How many edges a stream puts into one chunk.
    pub const EDGES: usize = 1 << 16;

    /// The number of edges in this chunk.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether the chunk holds no edge.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Forgets the edges, keeps the memory.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
        self.weights.clear();
        self.types.clear();
        self.attributes.clear();
    }
}

/// Edges that are all in memory.
#[derive(Debug, Clone)]
pub struct MemoryEdges {
    edges: EdgeChunk,
    attribute_width: usize,
    next: usize,
}

impl MemoryEdges {
    /// A stream of `edges`, whose attribute rows are `attribute_width` wide.
    pub fn new(edges: EdgeChunk, attribute_width: usize) -> Self {
        Self { edges, attribute_width, next: 0 }
    }
}

impl EdgeStream for MemoryEdges {
    fn len(&self) -> u64 {
        self.edges.len() as u64
    }

    fn rewind(&mut self) -> Result<()> {
        self.next = 0;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        let range = self.next..self.edges.len().min(self.next + EdgeChunk::EDGES);
        self.next = range.end;
        chunk.sources.extend_from_slice(&self.edges.sources[range.clone()]);
        chunk.targets.extend_from_slice(&self.edges.targets[range.clone()]);
        chunk.weights.extend_from_slice(self.edges.weights.get(range.clone()).unwrap_or_default());
        chunk.types.extend_from_slice(self.edges.types.get(range.clone()).unwrap_or_default());
        let wide = range.start * self.attribute_width..range.end * self.attribute_width;
        chunk.attributes.extend_from_slice(self.edges.attributes.get(wide).unwrap_or_default());
        Ok(!chunk.is_empty())
    }
}

/// What accompanies each edge of a dataset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeColumns {
    /// Edges carry a weight.
    pub weighted: bool,
    /// How many edge types there are; 0 = edges are not typed.
    pub types: u32,
    /// Width of the attribute row of an edge; 0 = none.
    pub attribute_width: usize,
}

/// Node features: one row per node.
#[derive(Debug, Clone)]
pub enum Features {
    /// The dataset has none.
    None,
    /// Row-major `[nodes, width]`.
    Dense {
        /// Numbers per node.
        width: usize,
        /// The numbers.
        values: Array<f32>,
    },
    /// Compressed sparse rows.
    Sparse {
        /// Columns of the matrix.
        width: usize,
        /// Row starts, `nodes + 1` of them.
        offsets: Array<u64>,
        /// Column of each stored number.
        columns: Array<u32>,
        /// The stored numbers.
        values: Array<f32>,
    },
}

impl Features {
    /// Numbers per node, 0 when there are none.
    pub fn width(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Dense { width, .. } | Self::Sparse { width, .. } => *width,
        }
    }
}

/// What is to be predicted.
#[derive(Debug, Clone)]
pub enum Labels {
    /// The dataset has none.
    None,
    /// One class per node; -1 = not labelled.
    Classes {
        /// How many classes there are.
        classes: usize,
        /// The class of each node.
        values: Array<i64>,
    },
    /// A 0/1 row per node.
    Multi {
        /// How many labels there are.
        classes: usize,
        /// Row-major `[nodes, classes]`.
        values: Array<u8>,
    },
}

impl Labels {
    /// Whether `node` has a label, or, where there are several to a node, may have.
    pub fn has(&self, node: u64) -> bool {
        match self {
            Self::None => false,
            Self::Classes { values, .. } => values.get(node as usize).is_some_and(|&class| class >= 0),
            Self::Multi { .. } => true,
        }
    }

    /// How many classes or labels there are, 0 when there is nothing to predict.
    pub fn classes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Classes { classes, .. } | Self::Multi { classes, .. } => *classes,
        }
    }

    /// Whether a node may have several labels.
    pub fn is_multi(&self) -> bool {
        matches!(self, Self::Multi { .. })
    }
}

/// Which nodes are trained on, chosen by, and reported. Original ids, in the user's order.
#[derive(Debug, Clone, Default)]
pub struct Splits {
    /// Training nodes.
    pub train: Vec<u64>,
    /// Validation nodes.
    pub valid: Vec<u64>,
    /// Test nodes.
    pub test: Vec<u64>,
}

impl Splits {
    /// Name and nodes of each split, in the order in which they are always shown.
    pub fn named(&self) -> [(&'static str, &[u64]); 3] {
        [("train", &self.train), ("valid", &self.valid), ("test", &self.test)]
    }
}

/// A graph as the user brought it.
pub struct Dataset {
    /// What to call it in output.
    pub name: String,
    /// How many nodes there are; original ids are `0..nodes`.
    pub nodes: u64,
    /// Whether the user says that every edge is held in both directions.
    pub undirected: bool,
    /// The edges.
    pub edges: Box<dyn EdgeStream>,
    /// What accompanies each edge.
    pub edge_columns: EdgeColumns,
    /// Node features.
    pub features: Features,
    /// Node labels.
    pub labels: Labels,
    /// Node splits.
    pub splits: Splits,
    /// The user's own name of each node where ids were not already `0..nodes`.
    pub names: Option<Vec<String>>,
    /// The user's own name of each class where labels were words.
    pub class_names: Option<Vec<String>>,
    /// Things the reader assumed and the user may want to know, one sentence each.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Dataset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dataset")
            .field("name", &self.name)
            .field("nodes", &self.nodes)
            .field("edges", &self.edges.len())
            .finish_non_exhaustive()
    }
}
