//! Opening a dataset and cutting it: the steps that several commands share.

use crate::terminal;
use crate::terminal::passes::Passes;
use archipelago_graph::partition::{self, Balance, Entry, Request, Setting};
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
    #[arg(long, visible_alias = "add-reverse")]
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
    pub entry: &'static Entry,
    /// What is asked of it.
    pub request: Request,
}

impl Cut {
    /// A cut by `method`, or by a file if the request has one, or by the usual method; refuses what the method cannot understand.
    pub fn new(method: Option<&str>, request: Request) -> Result<Self> {
        let entry = match (method, &request.file) {
            (Some(method), _) => partition::find(method)?,
            (None, Some(_)) => &partition::file::ENTRY,
            (None, None) => &partition::spring::ENTRY,
        };
        if entry.needs_file && request.file.is_none() {
            return Err(Error::usage(format!(
                "the partitioner `{}` needs a file of part numbers",
                entry.name
            ))
            .with_hint("name one with --part-file"));
        }
        entry.check(&request)?;
        Ok(Self { entry, request })
    }

    /// What a store says about how it was made: the settings that the method had, defaults included.
    pub fn meta(&self) -> Meta {
        let given = &self.request.settings;
        let value =
            |setting: &Setting| given.get(setting.name).map_or(setting.default, String::as_str).to_owned();
        let balanced = Balance::NAMED.iter().filter(|named| self.request.balance.contains(&named.1));
        Meta {
            method: self.entry.name.to_owned(),
            seed: self.request.seed,
            settings: self.entry.settings.iter().map(|s| (s.name.to_owned(), value(s))).collect(),
            balance: balanced.map(|named| named.0.to_owned()).collect(),
        }
    }

    /// Cuts `dataset` into a new store at `out`.
    pub fn write(&self, dataset: &mut Dataset, out: &Path, passes: &Passes) -> Result<Manifest> {
        let assignment = (self.entry.build)().assign(dataset, &self.request, passes)?;
        store::write(dataset, &assignment, &self.meta(), out, passes)
    }
}

/// The folder in which `out` will be, for temporary files: large data may not fit into the system's own.
pub fn beside(out: &Path) -> Option<PathBuf> {
    let folder =
        out.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    folder.filter(|folder| folder.is_dir()).map(PathBuf::from)
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
