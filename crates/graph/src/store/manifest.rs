//! What a store says about itself: format version, counts, checksums.
//!
//! An unknown format or version is refused by name before anything else in the file is looked at.

use super::layout;
use crate::dataset::{Dataset, EdgeColumns, Features, Labels};
use crate::quality::Quality;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The format's name, first thing in every manifest.
pub const FORMAT: &str = "archipelago-store";
/// The version of the format that this program writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// The contents of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The dataset's name.
    pub dataset: String,
    /// Nodes of the whole graph.
    pub nodes: u64,
    /// Directed edges of the whole graph, duplicates counted.
    pub edges: u64,
    /// Whether every edge is held in both directions.
    pub undirected: bool,
    /// What accompanies each edge.
    pub edge_columns: EdgeColumns,
    /// Kind and width of the node features.
    pub features: FeatureKind,
    /// Kind and number of the labels.
    pub labels: LabelKind,
    /// How nodes were assigned to parts.
    pub partition: PartitionKind,
    /// Files at the root.
    pub files: BTreeMap<String, FileEntry>,
    /// Each part.
    pub parts: Vec<PartEntry>,
    /// How good the assignment is.
    pub quality: Quality,
}

/// How node features are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum FeatureKind {
    /// There are none.
    None,
    /// Row-major.
    Dense {
        /// Numbers per node.
        width: usize,
    },
    /// Compressed sparse rows.
    Sparse {
        /// Columns of the matrix.
        width: usize,
    },
}

/// How labels are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum LabelKind {
    /// There are none.
    None,
    /// One class per node.
    Classes {
        /// How many classes there are.
        classes: usize,
    },
    /// A 0/1 row per node.
    Multi {
        /// How many labels there are.
        classes: usize,
    },
}

/// How nodes were assigned to parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionKind {
    /// Name of the partitioner.
    pub method: String,
    /// Its seed.
    pub seed: u64,
    /// Its settings, defaults included; stores made before methods had settings say none.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// What it balanced besides nodes.
    #[serde(default)]
    pub balance: Vec<String>,
}

/// Counts and files of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEntry {
    /// Nodes that it owns.
    pub owned: u64,
    /// Remote sources of its in-edges.
    pub halo: u64,
    /// Its in-edges.
    pub in_edges: u64,
    /// Stored numbers of its sparse features, 0 for dense ones.
    pub feature_values: u64,
    /// Its training nodes.
    pub train: u64,
    /// Its validation nodes.
    pub valid: u64,
    /// Its test nodes.
    pub test: u64,
    /// Its files.
    pub files: BTreeMap<String, FileEntry>,
}

/// Length and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its length.
    pub bytes: u64,
    /// XXH3-64 of its contents, 16 hexadecimal digits.
    pub xxh3: String,
}

impl From<&Features> for FeatureKind {
    fn from(features: &Features) -> Self {
        match features {
            Features::None => Self::None,
            Features::Dense { width, .. } => Self::Dense { width: *width },
            Features::Sparse { width, .. } => Self::Sparse { width: *width },
        }
    }
}

impl From<&Labels> for LabelKind {
    fn from(labels: &Labels) -> Self {
        match labels {
            Labels::None => Self::None,
            Labels::Classes { classes, .. } => Self::Classes { classes: *classes },
            Labels::Multi { classes, .. } => Self::Multi { classes: *classes },
        }
    }
}

impl FeatureKind {
    /// Numbers per node, 0 when there are none.
    pub fn width(self) -> usize {
        match self {
            Self::None => 0,
            Self::Dense { width } | Self::Sparse { width } => width,
        }
    }
}

impl LabelKind {
    /// How many classes or labels there are, 0 when there is nothing to predict.
    pub fn classes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Classes { classes } | Self::Multi { classes } => classes,
        }
    }

    /// Whether a node may have several labels.
    pub fn is_multi(self) -> bool {
        matches!(self, Self::Multi { .. })
    }
}

impl Manifest {
    /// The manifest of a store of `dataset` with these `parts`.
    pub(super) fn new(dataset: &Dataset, partition: PartitionKind, quality: Quality) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            dataset: dataset.name.clone(),
            nodes: dataset.nodes,
            edges: dataset.edges.len(),
            undirected: dataset.undirected,
            edge_columns: dataset.edge_columns,
            features: (&dataset.features).into(),
            labels: (&dataset.labels).into(),
            partition,
            files: BTreeMap::new(),
            parts: Vec::new(),
            quality,
        }
    }

    /// Reads and checks the manifest of the store at `store`.
    pub fn read(store: &Path) -> Result<Self> {
        let file = store.join(layout::MANIFEST);
        if !file.is_file() {
            return Err(Error::input(store, "", "a store", format!("no `{}` in it", layout::MANIFEST))
                .with_hint("make one with `archi partition`"));
        }
        let text = std::fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        let json = |error: serde_json::Error| {
            let place = format!("line {}, column {}", error.line(), error.column());
            Error::input(&file, place, "a store manifest", format!("`{error}`"))
        };
        let head: Head = serde_json::from_str(&text).map_err(json)?;
        head.check(&file)?;
        let manifest: Self = serde_json::from_str(&text).map_err(json)?;
        manifest.check_totals(&file)?;
        Ok(manifest)
    }

    /// First global id of each part, and the number of nodes.
    pub fn starts(&self) -> Vec<u64> {
        let mut starts = vec![0u64; self.parts.len() + 1];
        for (part, entry) in self.parts.iter().enumerate() {
            starts[part + 1] = starts[part].saturating_add(entry.owned);
        }
        starts
    }

    /// Every file of the store: where it is, and what the manifest says of it.
    pub fn files<'a>(&'a self, store: &'a Path) -> impl Iterator<Item = (PathBuf, &'a FileEntry)> {
        let root = self.files.iter().map(|(name, entry)| (store.join(name), entry));
        let parts = self.parts.iter().enumerate().flat_map(move |(part, entry)| {
            let folder = store.join(layout::part_folder(part as u32));
            entry.files.iter().map(move |(name, entry)| (folder.join(name), entry))
        });
        root.chain(parts)
    }

    /// Checks that every file is there with its length, and that it has room for the nodes it should hold.
    pub(super) fn check_lengths(&self, store: &Path) -> Result<()> {
        for (id, part) in self.parts.iter().enumerate() {
            let bytes = part.files.get(layout::ORIGINAL).map_or(0, |entry| entry.bytes);
            if part.owned.checked_mul(8) != Some(bytes) {
                let place = format!("part {id}");
                let expected = format!("ids of {} owned nodes", part.owned);
                let file = store.join(layout::MANIFEST);
                return Err(damaged(Error::input(file, place, expected, format!("{bytes} bytes of them"))));
            }
        }
        for (file, entry) in self.files(store) {
            let found = std::fs::metadata(&file).map_err(Error::io("open", &file))?.len();
            if found != entry.bytes {
                let expected = format!("{} bytes", entry.bytes);
                return Err(damaged(Error::input(&file, "", expected, format!("{found} bytes"))));
            }
        }
        Ok(())
    }

    /// Checks that the parts add up to the whole, and that rows of every part fit 32 bits.
    fn check_totals(&self, file: &Path) -> Result<()> {
        let sum = |count: fn(&PartEntry) -> u64| {
            self.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(count(part)))
        };
        let wrong = |what: &str, expected: u64, found: Option<u64>| {
            let found = found.map_or("more than 2^64".to_owned(), |found| found.to_string());
            damaged(Error::input(file, "parts", format!("{expected} {what} in all"), found))
        };
        match (sum(|part| part.owned), sum(|part| part.in_edges)) {
            (nodes, _) if nodes != Some(self.nodes) => Err(wrong("owned nodes", self.nodes, nodes)),
            (_, edges) if edges != Some(self.edges) => Err(wrong("in-edges", self.edges, edges)),
            _ if self.parts.is_empty() => Err(Error::input(file, "parts", "at least 1 part", "0")),
            _ => Ok(()),
        }
    }
}

/// The two fields that every version has.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    format: String,
    #[serde(default)]
    version: u32,
}

impl Head {
    fn check(&self, file: &Path) -> Result<()> {
        if self.format != FORMAT {
            let found = format!("`{}`", self.format);
            return Err(Error::input(file, "field `format`", format!("`{FORMAT}`"), found));
        }
        if self.version != VERSION {
            let found = format!("version {}", self.version);
            let error =
                Error::input(file, "field `version`", format!("store format version {VERSION}"), found);
            return Err(error.with_hint("partition the dataset again with this version of archi"));
        }
        Ok(())
    }
}

/// The error with the remedy for a store that does not hold what was written to it.
pub(super) fn damaged(error: Error) -> Error {
    error.with_hint("the store is damaged: partition the dataset again")
}
