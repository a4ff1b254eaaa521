//! `archi resume`: an interrupted run goes on, bit for bit as if it had never stopped.

use super::Outcome;
use super::session::{self, Folder};
use crate::terminal;
use archipelago_comm::Job;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `archi resume`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  archi resume run")]
pub struct Args {
    /// Folder of the run
    pub run: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Resumes a run.
pub fn run(args: Args) -> Outcome {
    let folder = Folder::open(&args.run)?;
    let job = Job::join()?;
    if let Some(summary) = folder.summary()? {
        if !job.leads() {
            return Ok(ExitCode::SUCCESS);
        }
        terminal::say(format_args!("`{}` is finished already", args.run.display()));
        session::show(&summary, None, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    folder.train(args.json, job)
}
