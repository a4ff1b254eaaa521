//! `archi infer`: what a trained model says of every node, in original ids and order.

use super::Outcome;
use super::evaluate::Trained;
use super::session::Which;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_comm::Job;
use archipelago_graph::predictions::{self, Columns, Table, Values};
use archipelago_train::infer::Predictions;
use archipelago_train::metric::argmax;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `archi infer`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi infer run --out predictions.csv
  archi infer run --scores --out scores.parquet
  archi infer run --embeddings --out embeddings.npy

.csv and .parquet hold a column `node` (its id, or its name where the dataset has names), the predicted
class (or a 0/1 column per label) and what else is asked for. .npy holds one array: the classes, or the
scores, or the embeddings. Row i is node i.")]
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
    /// Write what the last layer read
    #[arg(long)]
    embeddings: bool,
    /// Which weights
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
}

/// Predicts.
pub fn run(args: Args) -> Outcome {
    let format = predictions::format_of(&args.out)?;
    interrupt::exit_at_once()?;
    let trained = Trained::open(args.run, args.data, args.checkpoint)?;
    let Some(found) = trained.run(Job::join()?).infer(&trained.checkpoint, args.embeddings)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let chosen = Chosen::new(&found, trained.store.manifest().labels.is_multi());
    let mut columns = Vec::new();
    if !format.single || !(args.scores || args.embeddings) {
        columns.push(chosen.columns());
    }
    if args.scores {
        let values = Values::Float(&found.scores);
        columns.push(Columns { name: "score", width: Some(found.classes), values });
    }
    if let Some((width, rows)) = &found.embeddings {
        columns.push(Columns { name: "embedding", width: Some(*width), values: Values::Float(rows) });
    }
    let names = trained.store.names()?;
    predictions::write(&Table { nodes: found.nodes, names: names.as_deref(), columns }, &args.out)?;
    let (file, nodes) = (args.out.display(), units::counted(found.nodes as u64, "node"));
    terminal::say(format_args!(
        "wrote `{file}`: {nodes}, weights of epoch {}",
        trained.checkpoint.state.epoch
    ));
    Ok(ExitCode::SUCCESS)
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

    fn columns(&self) -> Columns<'_> {
        match self {
            Self::Class(classes) => Columns { name: "class", width: None, values: Values::Int(classes) },
            Self::Labels(width, flags) => {
                Columns { name: "label", width: Some(*width), values: Values::Flag(flags) }
            }
        }
    }
}
