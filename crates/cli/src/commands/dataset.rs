//! Opening a dataset and cutting it: the steps that several commands share.

use crate::terminal;
use crate::terminal::passes::Passes;
use archipelago_graph::partition::{self, Request};
use archipelago_graph::read::{self, ReadOptions};
use archipelago_graph::store::{self, Manifest, Meta};
use archipelago_graph::{Dataset, Error, Result};
use std::path::{Path, PathBuf};

/// Flags that say how to read a dataset.
#[derive(clap::Args, Default)]
pub struct Reading {
    /// Format of the dataset, when its files do not tell (`archi list formats`)
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<String>,
    /// Add the reverse of every edge
    #[arg(long)]
    pub undirected: bool,
    /// Which of several splits: `alt` for alt_train_idx …, the folder below split/ for OGB
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Take the third column of an edge list without header as the weight of the edge
    #[arg(long)]
    pub weights: bool,
}

impl Reading {
    /// Opens the dataset at `path`.
    pub fn open(&self, path: &Path, passes: &Passes) -> Result<Dataset> {
        let options = ReadOptions {
            undirected: self.undirected,
            split: self.split.clone(),
            weights: self.weights,
            progress: passes,
        };
        read::open(path, self.from.as_deref(), &options)
    }
}

/// Tells what a reader assumed.
pub fn tell_notes(dataset: &Dataset) {
    for note in &dataset.notes {
        terminal::say(format_args!("{}: {note}", terminal::bold("note")));
    }
}

/// How to cut a dataset.
pub struct Cut {
    /// The partitioner.
    pub method: String,
    /// Number of parts and seed, and the file of parts if there is one.
    pub request: Request,
}

impl Cut {
    /// A cut by `method`, or by `file` if there is one.
    pub fn new(method: Option<String>, file: Option<PathBuf>, parts: u32, seed: u64) -> Result<Self> {
        let method = match (method, &file) {
            (Some(method), _) => method,
            (None, Some(_)) => "file".to_owned(),
            (None, None) => return Err(Error::usage("expected a partitioner").with_hint("see --method")),
        };
        let entry = partition::find(&method)?;
        if file.is_some() && !entry.needs_file {
            return Err(Error::usage(format!("the partitioner `{method}` reads no file of parts"))
                .with_hint("leave out the method, or name it `file`"));
        }
        Ok(Self { method, request: Request { file, ..Request::new(parts, seed) } })
    }

    /// Cuts `dataset` into a new store at `out`.
    pub fn write(&self, dataset: &mut Dataset, out: &Path, passes: &Passes) -> Result<Manifest> {
        let partitioner = (partition::find(&self.method)?.build)();
        let assignment = partitioner.assign(dataset, &self.request, passes)?;
        let meta = Meta { method: self.method.clone(), seed: self.request.seed, ..Meta::default() };
        store::write(dataset, &assignment, &meta, out, passes)
    }
}

/// Refuses an output that is there already, before hours of work go into it.
pub fn refuse_existing(out: &Path) -> Result<()> {
    let empty = std::fs::read_dir(out).map(|mut entries| entries.next().is_none());
    if !out.exists() || empty.unwrap_or(false) {
        return Ok(());
    }
    Err(Error::usage(format!("`{}` exists already", out.display()))
        .with_hint("choose another name, or remove it first"))
}
