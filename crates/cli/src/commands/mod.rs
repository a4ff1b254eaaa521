//! Every command of `archi`, one file each: its flags, and what it does with them.

mod quickstart;
mod list;
mod generate;
mod check;
mod convert;
mod partition;
mod inspect;
mod verify;
mod plan;
mod train;
mod resume;
mod evaluate;
mod infer;
mod launch;
mod dataset;
mod session;
mod team;

use archipelago_comm::Job;
use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// What a command comes to: an exit code, or an error that `main` reports.
pub type Outcome = anyhow::Result<ExitCode>;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Distributed training of graph neural networks on ordinary CPU machines.
#[derive(Parser)]
#[command(name = "archi", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = "New here? `archi quickstart` takes two minutes and needs nothing.")]
pub struct Archi {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Where `archi launch` wants the logs of its processes.
    #[arg(long, hide = true, value_name = "FOLDER")]
    log_folder: Option<PathBuf>,
}

impl Archi {
    /// Does what the command line says.
    pub fn run(self) -> Outcome {
        if let (Some(folder), Some(process)) = (&self.log_folder, Job::marked_process()) {
            launch::write_own_log(folder, process)?;
        }
        self.command.run()
    }
}

/// The commands, in the order in which a user meets them.
#[derive(Subcommand)]
pub enum Command {
    /// Take the two-minute tour: make a graph, partition it, train on 4 ranks, evaluate
    Quickstart(quickstart::Args),
    /// Show what there is to choose from: strategies, models, partitioners, …
    List(list::Args),
    /// Make a synthetic graph
    Generate(generate::Args),
    /// Look for mistakes in a dataset, and say what would be assumed
    Check(check::Args),
    /// Turn any readable format into a dataset folder
    Convert(convert::Args),
    /// Cut a dataset into parts: a store to train on
    Partition(partition::Args),
    /// Say what a file or folder is
    Inspect(inspect::Args),
    /// Recompute the checksums and invariants of a store
    Verify(verify::Args),
    /// Say what every strategy would cost: memory, bytes and seconds of an epoch
    Plan(plan::Args),
    /// Train a model
    Train(train::Args),
    /// Continue an interrupted run to the end
    Resume(resume::Args),
    /// Score a trained model on every split
    Evaluate(evaluate::Args),
    /// Write the predictions of a trained model
    Infer(infer::Args),
    /// Start a command as the processes of an MPI job, on one host or several
    Launch(launch::Args),
}

impl Command {
    fn run(self) -> Outcome {
        match self {
            Self::Quickstart(args) => quickstart::run(args),
            Self::List(args) => list::run(args),
            Self::Generate(args) => generate::run(args),
            Self::Check(args) => check::run(args),
            Self::Convert(args) => convert::run(args),
            Self::Partition(args) => partition::run(args),
            Self::Inspect(args) => inspect::run(args),
            Self::Verify(args) => verify::run(args),
            Self::Plan(args) => plan::run(args),
            Self::Train(args) => train::run(args),
            Self::Resume(args) => resume::run(args),
            Self::Evaluate(args) => evaluate::run(args),
            Self::Infer(args) => infer::run(args),
            Self::Launch(args) => launch::run(args),
        }
    }
}
