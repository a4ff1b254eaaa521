//! Which part owns which node?
//!
//! A [`Partitioner`] reads a dataset and answers with an [`Assignment`]; the [`store`](crate::store) then writes
//! the parts. A method sees the dataset only through its edge stream and node columns, so a graph may be larger
//! than memory as long as O(nodes) numbers are not. Nothing here writes files or relabels nodes.
//!
//! Methods that place edges rather than nodes implement [`EdgePartitioner`]; [`ByEdges`] makes owners of nodes from
//! it. Adding a method: one file that ends in an `ENTRY`, its `mod` line, and its line in [`PARTITIONERS`]; from another
//! crate, [`add`].

pub mod auto;
pub mod settings;
pub mod by_edges;
pub mod arrays;
mod passes;
pub(crate) mod adjacency;
mod pack;
mod packing;
pub(crate) mod tally;
mod moving;
#[cfg(test)]
mod planted;
mod loads;
pub(crate) mod replicas;
mod neighbors;
mod restream;
mod coarse;
mod semi_external;
pub mod spring;
pub mod ldg;
pub mod fennel;
pub mod two_ps_l;
pub mod hdrf;
pub mod greedy;
pub mod dbh;
#[cfg(feature = "metis")]
pub mod metis;
pub mod louvain;
pub mod label_propagation;
pub mod bytegnn;
pub mod edge_1d;
pub mod vertex_cut_2d;
pub mod random;
pub mod hash;
pub mod file;

pub use by_edges::{ByEdges, EdgePartitioner, EdgeSink};
pub use passes::each_chunk;
pub use settings::Setting;

use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::registry::{Listed, Registry};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A way of assigning nodes to parts.
pub trait Partitioner: Send + Sync {
    /// Assigns every node of `dataset` to one of `request.parts` parts. The edge stream may be left anywhere.
    fn assign(&self, dataset: &mut Dataset, request: &Request, progress: &dyn Progress)
    -> Result<Assignment>;

    /// The method as one that places edges, if that is what it does.
    fn edges(&self) -> Option<&dyn EdgePartitioner> {
        None
    }
}

/// What is asked of a partitioner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// How many parts to make; some may stay empty.
    pub parts: u32,
    /// The seed of whatever the method draws.
    pub seed: u64,
    /// The file that a method with [`Entry::needs_file`] reads.
    pub file: Option<PathBuf>,
    /// What to balance besides nodes, for a method with [`Entry::balances`].
    pub balance: Vec<Balance>,
    /// Folder for temporary files, the system's if not given.
    pub scratch: Option<PathBuf>,
    /// Settings that differ from the method's defaults (see [`Entry::settings`]).
    pub settings: BTreeMap<String, String>,
}

impl Request {
    /// `parts` parts with this `seed`, everything else as the method has it by default.
    pub fn new(parts: u32, seed: u64) -> Self {
        Self { parts, seed, ..Self::default() }
    }
}

/// Something of which every part should have an equal share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// Training nodes.
    Train,
    /// Validation nodes.
    Valid,
    /// Test nodes.
    Test,
    /// In-edges.
    Edges,
}

impl Balance {
    /// Every kind with the name users type.
    pub const NAMED: [(&'static str, Self); 4] =
        [("train", Self::Train), ("valid", Self::Valid), ("test", Self::Test), ("edges", Self::Edges)];

    /// The kind called `name`.
    pub fn find(name: &str) -> Result<Self> {
        Self::NAMED.iter().find(|named| named.0 == name).map(|named| named.1).ok_or_else(|| Error::Unknown {
            kind: "balance",
            name: name.to_owned(),
            known: Self::NAMED.iter().map(|named| named.0).collect(),
        })
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
    /// What it may hold in memory.
    pub memory: Memory,
    /// Whether [`Request::file`] must be given.
    pub needs_file: bool,
    /// Whether [`Request::balance`] may be given.
    pub balances: bool,
    /// What can be set, with defaults.
    pub settings: &'static [Setting],
    /// Makes it.
    pub build: fn() -> Box<dyn Partitioner>,
}

/// What a method may hold in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A number of bytes per node, whatever the edges: the graph may be larger than memory.
    Nodes,
    /// The whole graph.
    Graph,
}

impl Entry {
    /// Refuses a request that this method cannot understand.
    pub fn check(&self, request: &Request) -> Result<()> {
        if request.parts == 0 {
            return Err(Error::usage("expected at least 1 part, found 0"));
        }
        if request.file.is_some() && !self.needs_file {
            return Err(Error::usage(format!("the partitioner `{}` reads no file of parts", self.name))
                .with_hint("leave out the method, or name it `file`"));
        }
        if !request.balance.is_empty() && !self.balances {
            let able: Vec<&str> = partitioners().filter(|e| e.balances).map(|e| e.name).collect();
            return Err(Error::usage(format!("the partitioner `{}` balances nodes only", self.name))
                .with_hint(format!("methods that balance more: {}", able.join(", "))));
        }
        settings::check(self, request)
    }
}

impl Listed for Entry {
    const KIND: &'static str = "partitioner";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// Every built-in method, in the order in which they are listed to users.
pub const PARTITIONERS: &[Entry] = &[
    random::ENTRY,
    hash::ENTRY,
    file::ENTRY,
    spring::ENTRY,
    two_ps_l::ENTRY,
    hdrf::ENTRY,
    greedy::ENTRY,
    dbh::ENTRY,
    ldg::ENTRY,
    fennel::ENTRY,
    #[cfg(feature = "metis")]
    metis::ENTRY,
    louvain::ENTRY,
    label_propagation::ENTRY,
    bytegnn::ENTRY,
    edge_1d::ENTRY,
    vertex_cut_2d::ENTRY,
];

static TABLE: Registry<Entry> = Registry::new(PARTITIONERS);

/// Every method that users can choose: built-in ones, then added ones.
pub fn partitioners() -> impl Iterator<Item = &'static Entry> {
    TABLE.entries()
}

/// Adds methods of one's own: once, before any was looked up (see [`registry`](crate::registry)).
pub fn add(partitioners: Vec<Entry>) -> Result<()> {
    TABLE.add(partitioners)
}

/// The method called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    TABLE.find(name)
}

/// The number of nodes as an index, after refusing requests that no method can meet.
pub fn checked_nodes(dataset: &Dataset, request: &Request) -> Result<usize> {
    if request.parts == 0 {
        return Err(Error::usage("expected at least 1 part, found 0"));
    }
    usize::try_from(dataset.nodes).map_err(|_| Error::usage("the dataset has more nodes than fit in memory"))
}

/// Calls `visit` with the items of every list, in parallel; list `k` is `offsets[k]..offsets[k + 1]`.
fn each_list<T: Send>(offsets: &[usize], items: &mut [T], visit: &(impl Fn(&mut [T]) + Sync)) {
    let lists = offsets.len() - 1;
    if lists <= 1 || items.len() < 1 << 14 {
        let mut rest = items;
        for list in offsets.windows(2) {
            let (first, others) = rest.split_at_mut(list[1] - list[0]);
            visit(first);
            rest = others;
        }
        return;
    }
    let middle = lists / 2;
    let (left, right) = items.split_at_mut(offsets[middle] - offsets[0]);
    rayon::join(
        || each_list(&offsets[..=middle], left, visit),
        || each_list(&offsets[middle..], right, visit),
    );
}
