//! Graphs from nowhere: for tests, benchmarks, the demo and `archi generate`.
//!
//! Every generator is a function of its options and a seed, whatever the number of threads. Nothing here writes a
//! dataset; [`convert`](crate::convert) does.
//!
//! Adding a generator: one file that ends in an `ENTRY`, its `mod` line, and its line in [`GENERATORS`].

pub mod sbm;
pub mod rmat;
pub mod small;

use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::{Error, Result};
use std::path::PathBuf;

/// What is asked of a generator. What does not apply to one is refused or, where harmless, not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How many nodes.
    pub nodes: u64,
    /// How many directed edges; generators that cannot choose (star, path) do not look at it.
    pub edges: u64,
    /// Numbers per node; 0 = no features.
    pub features: usize,
    /// How many classes; 0 = no labels.
    pub classes: usize,
    /// Whether a node may have several labels.
    pub multilabel: bool,
    /// Width of edge attributes; 0 = none.
    pub edge_attributes: usize,
    /// The seed of every draw.
    pub seed: u64,
    /// Where to keep columns that are larger than memory while they are in use; the system's temporary folder
    /// when not given.
    pub scratch: Option<PathBuf>,
}

/// One line of the table of generators.
#[derive(Debug)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// What it makes, in one line.
    pub summary: &'static str,
    /// Where it comes from; empty when it has no source worth naming.
    pub paper: &'static str,
    /// What it makes when nothing is asked for.
    pub defaults: fn() -> Request,
    /// Makes it.
    pub generate: fn(&Request, &dyn Progress) -> Result<Dataset>,
}

/// Every generator, in the order in which they are listed to users.
pub const GENERATORS: &[Entry] = &[sbm::ENTRY, rmat::ENTRY, small::UNIFORM, small::STAR, small::PATH];

/// The generator called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    GENERATORS.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        kind: "generator",
        name: name.to_owned(),
        known: GENERATORS.iter().map(|entry| entry.name).collect(),
    })
}

/// Refuses what a generator without edge attributes or several labels cannot give.
fn refuse_extras(request: &Request, generator: &str) -> Result<()> {
    let extra = match request {
        Request { multilabel: true, .. } => "several labels per node",
        Request { edge_attributes: 1.., .. } => "edge attributes",
        _ => return Ok(()),
    };
    Err(Error::usage(format!("the generator `{generator}` cannot make {extra}")).with_hint("`sbm` can"))
}
