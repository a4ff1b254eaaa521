//! The partitioned graph on disk: written once, memory-mapped by every rank, verified on request.
//!
//! A store is a folder: `manifest.json` says what it is (format version, counts, checksums), and one folder per
//! part holds raw little-endian arrays ([`layout`] names them). Nodes are relabelled so that part `p` owns the
//! contiguous range `starts[p]..starts[p + 1]` of [`GlobalId`](crate::GlobalId)s; a part's rows are its owned nodes in ascending
//! original id, then its halo in ascending global id. A store appears whole or not at all and is never modified.

#[cfg(target_endian = "big")]
compile_error!("stores are little-endian and mapped without conversion");

pub mod layout;
pub mod manifest;
pub mod write;
mod bucket;
mod lists;
mod columns;
mod output;
pub mod part;
pub mod island;
pub mod traffic;
pub mod edges;
pub mod clusters;
pub mod verify;

pub use clusters::{METHODS as CLUSTER_METHODS, clusters};
pub use edges::StoreEdges;
pub use island::{Guests, Island};
pub use manifest::Manifest;
pub use part::{InEdges, Part, PartFeatures, PartLabels};
pub use traffic::Traffic;
pub use verify::{VerifyReport, verify};
pub use write::{Meta, write};

use crate::progress::Silent;
use crate::{Error, PartId, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An opened store.
#[derive(Debug, Clone)]
pub struct Store {
    path: PathBuf,
    manifest: Arc<Manifest>,
    starts: Arc<[u64]>,
}

impl Store {
    /// Opens the store at `path`: reads its manifest and checks that every file has the length it should have.
    pub fn open(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path)?;
        manifest.check_lengths(path)?;
        let starts = manifest.starts().into();
        Ok(Self { path: path.to_path_buf(), manifest: Arc::new(manifest), starts })
    }

    /// What the store says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many parts it has.
    pub fn parts(&self) -> u32 {
        self.manifest.parts.len() as u32
    }

    /// First global id of each part, and the number of nodes: `parts + 1` of them.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Maps part `id` into memory and checks everything that later code indexes with.
    pub fn part(&self, id: PartId) -> Result<Part> {
        if id.0 >= self.parts() {
            return Err(Error::usage(format!(
                "`{}` has {} parts: there is no part {id}",
                self.path.display(),
                self.parts()
            )));
        }
        Part::open(&self.path, &self.manifest, self.starts.clone(), id)
    }

    /// Recomputes the checksums of the files of part `id`: what a run reads is what was written.
    pub fn verify_part(&self, id: PartId) -> Result<()> {
        let Some(part) = self.manifest.parts.get(id.0 as usize) else { return Ok(()) };
        let folder = self.path.join(layout::part_folder(id.0));
        part.files.iter().try_for_each(|(name, entry)| verify::check_sum(&folder.join(name), entry, &Silent))
    }

    /// The user's own node names by original id, if the dataset had any.
    pub fn names(&self) -> Result<Option<Vec<String>>> {
        self.lines(layout::NAMES, self.manifest.nodes)
    }

    /// The user's own class names, if labels were words.
    pub fn class_names(&self) -> Result<Option<Vec<String>>> {
        self.lines(layout::CLASS_NAMES, self.manifest.labels.classes() as u64)
    }

    /// The names in `file`, if there is one: so many.
    fn lines(&self, file: &str, count: u64) -> Result<Option<Vec<String>>> {
        if !self.manifest.files.contains_key(file) {
            return Ok(None);
        }
        let file = self.path.join(file);
        let text = std::fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        let names: Vec<String> = text.lines().map(str::to_owned).collect();
        if names.len() as u64 == count {
            return Ok(Some(names));
        }
        Err(Error::input(&file, "", format!("{count} names"), format!("{}", names.len())))
    }
}
