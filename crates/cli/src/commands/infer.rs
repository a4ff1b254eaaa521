//! `archi infer`: what a trained model says of every node, or of pairs of nodes, in original ids and order.

use super::evaluate::{self, Trained};
use super::session::Which;
use super::{Outcome, team};
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_comm::Job;
use archipelago_graph::links::{self, Known, Pair};
use archipelago_graph::predictions::{self, Columns, Format, Subject, Table, Values};
use archipelago_graph::{Error, Store};
use archipelago_train::infer::{Predictions, Work};
use archipelago_train::metric::argmax;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `archi infer`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi infer run --out predictions.csv
  archi infer run --scores --out scores.parquet
  archi infer run --embeddings --out embeddings.npy
  archi infer run --links pairs.csv --out scores.csv

.csv and .parquet hold a column `node` (its id, or its name where the dataset has names), the predicted
class (its number, or the word that it was in the dataset; for several labels a 0/1 column each) and what
else is asked for. .npy holds one array: the numbers of the classes, or the scores, or the embeddings.
Row i is node i.

A run that predicts links gives the final row of every node: `embedding_0`, `embedding_1`, … With
--links it gives `source`, `target` and `score` of every pair, in the order of the file (.npy: the
scores). Lines of the file are `source,target` or `source,target,type`, in ids, or in names where
the dataset has names.")]
pub struct Args {
    /// Folder of the run
    pub run: PathBuf,
    /// File to write: .npy, .parquet or .csv
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Another store to predict on
    #[arg(long, value_name = "STORE")]
    data: Option<PathBuf>,
    /// Write the score of every class
    #[arg(long)]
    scores: bool,
    /// Write what the last layer read; of a run that predicts links, the final rows
    #[arg(long)]
    embeddings: bool,
    /// Write how likely a link is for each pair of nodes in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scores", "embeddings"])]
    links: Option<PathBuf>,
    /// Which weights
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

/// Predicts.
pub fn run(args: Args) -> Outcome {
    let format = predictions::format_of(&args.out)?;
    interrupt::exit_at_once()?;
    let trained = Trained::open(args.run, args.data, args.checkpoint)?;
    refuse_mismatch(trained.predicts_links(), args.links.is_some(), args.scores)?;
    let job = Job::join()?;
    let written = match &args.links {
        Some(file) => write_links(&trained, job, file, &args.out)?,
        None => {
            let run = trained.run(job);
            evaluate::state_need(&run, Work::Infer { embeddings: args.embeddings })?;
            let found = run.infer(&trained.checkpoint, args.embeddings)?;
            let chosen = Asked { scores: args.scores, embeddings: args.embeddings };
            found.map(|found| write_nodes(&trained, &found, chosen, format, &args.out)).transpose()?
        }
    };
    if let Some(rows) = written {
        let (file, epoch) = (args.out.display(), trained.checkpoint.state.epoch);
        terminal::say(format_args!("wrote `{file}`: {rows}, weights of epoch {epoch}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what a run of the other task would give.
fn refuse_mismatch(predicts_links: bool, links: bool, scores: bool) -> Result<(), Error> {
    let (message, hint) = match predicts_links {
        false if links => {
            ("--links: the run predicts classes of nodes, not links", "train with `train.task = \"link\"`")
        }
        true if scores => (
            "--scores: the run predicts links, not classes of nodes",
            "give pairs of nodes to score with --links FILE",
        ),
        _ => return Ok(()),
    };
    Err(Error::usage(message).with_hint(hint))
}

/// What is wanted of every node besides its class.
struct Asked {
    scores: bool,
    embeddings: bool,
}

/// Writes a row for every node; says how many.
fn write_nodes(
    trained: &Trained,
    found: &Predictions,
    asked: Asked,
    format: &Format,
    out: &Path,
) -> anyhow::Result<String> {
    let wanted = !trained.predicts_links() && (!format.single || !(asked.scores || asked.embeddings));
    let chosen = wanted.then(|| Chosen::new(found, trained.store.manifest().labels.is_multi()));
    let classes = trained.store.class_names()?;
    let mut columns: Vec<_> = chosen.iter().map(|chosen| chosen.columns(classes.as_deref())).collect();
    if asked.scores {
        let values = Values::Float(&found.scores);
        columns.push(Columns { name: "score", width: Some(found.classes), values });
    }
    if let Some((width, rows)) = &found.embeddings {
        columns.push(Columns { name: "embedding", width: Some(*width), values: Values::Float(rows) });
    }
    let (rows, names) = (found.nodes, trained.store.names()?);
    predictions::write(
        &Table { rows, subjects: &Subject::EVERY_NODE, names: names.as_deref(), columns },
        out,
    )?;
    Ok(units::counted(rows as u64, "node"))
}

/// Writes a score for every pair in `file`, at the first process, which alone reads it; says how many.
fn write_links(trained: &Trained, job: Job, file: &Path, out: &Path) -> anyhow::Result<Option<String>> {
    let names = trained.store.names()?;
    let read = |store: &Store| -> anyhow::Result<Vec<Pair>> {
        let manifest = store.manifest();
        let kinds = manifest.edge_columns.types;
        Ok(links::asked(file, Known { nodes: manifest.nodes, names: names.as_deref(), kinds })?)
    };
    let pairs = team::together(&job, trained.deadline(), |comm| {
        Ok(comm.led_by_first(|| read(&trained.store))?.unwrap_or_default())
    })?;
    let Some(scores) = trained.run(job).score_links(&trained.checkpoint, &pairs)? else { return Ok(None) };
    let sources: Vec<u64> = pairs.iter().map(|pair| pair.source).collect();
    let targets: Vec<u64> = pairs.iter().map(|pair| pair.target).collect();
    let columns = vec![Columns { name: "score", width: None, values: Values::Float(&scores) }];
    let subjects = Subject::links(&sources, &targets);
    let table = Table { rows: pairs.len(), subjects: &subjects, names: names.as_deref(), columns };
    predictions::write(&table, out)?;
    Ok(Some(units::counted(pairs.len() as u64, "pair")))
}

/// What the scores come to.
enum Chosen {
    /// The class with the highest score.
    Class(Vec<i64>),
    /// Every label whose score is above 0, that is, whose probability is above a half.
    Labels(usize, Vec<u8>),
}

impl Chosen {
    fn new(found: &Predictions, multi: bool) -> Self {
        if multi {
            let flags = found.scores.iter().map(|&score| u8::from(score > 0.0)).collect();
            return Self::Labels(found.classes, flags);
        }
        let rows = found.scores.chunks_exact(found.classes.max(1));
        Self::Class(rows.map(|scores| argmax(scores) as i64).collect())
    }

    /// The classes by the user's own `names`, if there are any.
    fn columns<'a>(&'a self, names: Option<&'a [String]>) -> Columns<'a> {
        match self {
            Self::Class(classes) => {
                let values = names.map_or(Values::Int(classes), |names| Values::Named(classes, names));
                Columns { name: "class", width: None, values }
            }
            Self::Labels(width, flags) => {
                Columns { name: "label", width: Some(*width), values: Values::Flag(flags) }
            }
        }
    }
}
