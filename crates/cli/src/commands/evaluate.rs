//! `archi evaluate`: exact scores of a trained model on every split.

use super::Outcome;
use super::session::{Folder, Which};
use crate::terminal::table::facts;
use crate::terminal::{training, units};
use crate::{interrupt, terminal};
use archipelago_comm::Job;
use archipelago_graph::Store;
use archipelago_train::Run;
use archipelago_train::event::Evaluation;
use archipelago_train::infer::Work;
use archipelago_train::run::Task;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Flags of `archi evaluate`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  archi evaluate run\n  archi evaluate run --data other-store --checkpoint last"
)]
pub struct Args {
    /// Folder of the run
    pub run: PathBuf,
    /// Another store to evaluate on
    #[arg(long, value_name = "STORE")]
    data: Option<PathBuf>,
    /// Which weights
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Evaluates a run.
pub fn run(args: Args) -> Outcome {
    interrupt::exit_at_once()?;
    let trained = Trained::open(args.run, args.data, args.checkpoint)?;
    let job = Job::join()?;
    let run = trained.run(job);
    state_need(&run, Work::Evaluate)?;
    let found = run.evaluate(&trained.checkpoint)?;
    if !job.leads() {
        return Ok(ExitCode::SUCCESS);
    }
    if args.json {
        terminal::print_json(&found)?;
    } else {
        terminal::print(describe(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says how parts take turns and what that will need, before they do, where they do.
pub fn state_need(run: &Run<'_>, work: Work) -> anyhow::Result<()> {
    if let Some((turns, need)) = run.need_in_turns(work)?.filter(|_| run.job.leads()) {
        let (parts, ranks) = (turns.parts() as u64, turns.ranks() as u64);
        terminal::say(format_args!(
            "{}, in turn on {}; will need {}",
            units::counted(parts, "part"),
            units::counted(ranks, "rank"),
            training::need(&need),
        ));
    }
    Ok(())
}

/// The scores of all splits.
pub fn describe(found: &Evaluation) -> String {
    let how = if found.exact { "exact, every neighbour used" } else { "sampled" };
    facts([
        ("weights", format!("of epoch {}", found.epoch)),
        ("metric", format!("{} ({how})", units::metric(found.metric))),
        ("train", units::score(found.train)),
        ("valid", units::score(found.valid)),
        ("test", units::score(found.test)),
    ])
}

/// A trained model and the data to use it on.
pub struct Trained {
    folder: Folder,
    config: Arc<archipelago_train::run::RunConfig>,
    /// The data.
    pub store: Store,
    /// The weights.
    pub checkpoint: archipelago_train::checkpoint::Checkpoint,
}

impl Trained {
    /// Opens a run, with other data than it was trained on if given.
    pub fn open(run: PathBuf, data: Option<PathBuf>, which: Which) -> anyhow::Result<Self> {
        let folder = Folder::open(&run)?;
        let config = Arc::new(folder.config()?);
        let checkpoint = which.load(&folder.path)?;
        let store = match data {
            Some(data) => Store::open(&data)?,
            None => folder.store(&config)?,
        };
        Ok(Self { folder, config, store, checkpoint })
    }

    /// Whether it predicts links rather than classes of nodes.
    pub fn predicts_links(&self) -> bool {
        self.config.train.task == Task::Link
    }

    /// How long one process waits for another.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.config.exchange.deadline_secs)
    }

    /// The run that its weights are used in.
    pub fn run(&self, job: Job) -> Run<'_> {
        Run {
            config: Arc::clone(&self.config),
            store: &self.store,
            folder: Some(self.folder.path.clone()),
            observer: &(),
            stop: interrupt::stop_flag(),
            resume: None,
            job,
            operators: None,
        }
    }
}
