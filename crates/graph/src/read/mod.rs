//! Files in, a [`Dataset`] out: which format is this, and how is it opened?
//!
//! One file per format, one line per format in [`FORMATS`]; detection, `--from`, help and the conformance tests
//! loop over that table. A reader checks before it allocates and before it believes a header, names file and
//! place in every error, and notes in [`Dataset::notes`] whatever it had to assume. It never prints and never
//! holds all edges of a text file in memory.

mod npy;
mod npz;
mod text;
mod columns;
mod edges;
mod names;
mod node_table;
mod folder;
mod ogb;
mod graphbolt;
mod saint;
mod parquet;
mod metis;
mod edge_list;
mod link_file;
mod pair_file;

use crate::dataset::Dataset;
use crate::progress::{Progress, Silent};
use crate::{Error, Result};
use std::path::Path;

pub(crate) use link_file::read_link_file;
pub use metis::read_part_file;
pub(crate) use pair_file::read_pair_file;

/// What a user may ask of every reader.
#[derive(Clone)]
pub struct ReadOptions<'a> {
    /// Add the reverse of every edge (a self-loop is its own reverse and is not repeated).
    pub undirected: bool,
    /// Which of several splits to read: `alt` for `alt_train_idx` …, the folder below `split/` for OGB.
    pub split: Option<String>,
    /// Take the third column of an edge list without header as the weight of the edge.
    pub weights: bool,
    /// Who watches the passes over the files.
    pub progress: &'a dyn Progress,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        Self { undirected: false, split: None, weights: false, progress: &Silent }
    }
}

/// A format that can be read.
pub struct Format {
    /// What users call it.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    /// Whether `path` looks like it. Looks at names only, never fails.
    pub detect: fn(&Path) -> bool,
    /// Opens it.
    pub open: fn(&Path, &ReadOptions) -> Result<Dataset>,
}

/// Every format, in the order in which they are tried.
pub const FORMATS: &[Format] = &[
    folder::FORMAT,
    graphbolt::FORMAT,
    saint::FORMAT,
    ogb::FORMAT,
    parquet::FORMAT,
    metis::FORMAT,
    edge_list::FORMAT,
];

/// Opens `path` as the format named `from`, or as the first format that recognises it.
pub fn open(path: &Path, from: Option<&str>, options: &ReadOptions) -> Result<Dataset> {
    std::fs::metadata(path).map_err(Error::io("open", path))?;
    let format = match from {
        Some(name) => named(name)?,
        None => detected(path)?,
    };
    let dataset = (format.open)(path, options)?;
    if options.undirected { edges::make_undirected(dataset, options.progress) } else { Ok(dataset) }
}

fn named(name: &str) -> Result<&'static Format> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| Error::Unknown {
        kind: "format",
        name: name.to_owned(),
        known: FORMATS.iter().map(|format| format.name).collect(),
    })
}

fn detected(path: &Path) -> Result<&'static Format> {
    FORMATS.iter().find(|format| (format.detect)(path)).ok_or_else(|| {
        let looked_for: Vec<_> = FORMATS.iter().map(|f| format!("{} ({})", f.name, f.summary)).collect();
        Error::input(path, "", format!("one of: {}", looked_for.join("; ")), "none of them")
            .with_hint("name the format with `--from FORMAT`, or check the path")
    })
}

/// The last component of `path` without what follows its first dot: what to call a dataset that has no name.
fn name_of(path: &Path) -> String {
    let absolute = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.split_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name,
    }
}

/// Refuses a node count that nothing in the files supports, before anyone allocates by it.
///
/// `evidence` is how many things (edges, ids in splits) the files really hold. Isolated nodes are fine, a
/// number out of all proportion is a damaged header.
fn plausible_nodes(file: &Path, claimed: u64, evidence: u64) -> Result<u64> {
    let most = evidence.saturating_mul(64).saturating_add(1 << 20);
    if claimed <= most {
        return Ok(claimed);
    }
    Err(Error::input(
        file,
        "number of nodes",
        format!("at most {most}, given that the files hold {evidence} edges"),
        format!("`{claimed}`"),
    )
    .with_hint("if that many isolated nodes are meant, give them features or labels"))
}
