//! `archi launch`: an MPI job from one command, watched, and started again from its last checkpoint when it dies.

mod attempt;
mod logs;
mod mpirun;

use super::{Archi, Command, Outcome};
use crate::failure::{BAD_INPUT, INTERRUPTED};
use crate::{interrupt, terminal};
use archipelago_graph::Error;
use attempt::Attempt;
use clap::Parser;
use mpirun::Mpirun;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use logs::write_own_log;

/// Flags of `archi launch`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi launch -n 2 -- train --data store --epochs 100 --out run
  archi launch -n 8 --hosts hosts.txt --max-restarts 3 -- train run.toml --out run
  archi launch -n 4 -- resume run

Every process writes a log, RUN.logs/ATTEMPT/rank-N.log; what process 0 says is shown as well.
FILE names one host per line, as mpirun takes them (`node1 slots=2`). All hosts need this archi and
the store under the same paths, and RUN on a file system that they share. Ctrl-C stops after the
epoch with a checkpoint.")]
pub struct Args {
    /// How many processes; at most one per part
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// File that names the hosts
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
    /// How often a job that failed is started again from its last checkpoint
    #[arg(long, value_name = "R", default_value_t = 0)]
    max_restarts: u32,
    /// Folder for the logs (default: RUN.logs)
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// The program that starts MPI jobs
    #[arg(long, value_name = "COMMAND", default_value = "mpirun")]
    mpirun: String,
    /// What to run: train, resume, evaluate or infer, with its flags
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Launches.
pub fn run(args: Args) -> Outcome {
    let folder = run_folder(&args.command)?;
    let mpirun = Mpirun::find(&args.mpirun, args.processes, args.hosts.as_deref())?;
    let logs = args.logs.unwrap_or_else(|| PathBuf::from(format!("{}.logs", folder.display())));
    interrupt::answer_with("asking all processes to stop after this epoch")?;
    let mut command = args.command;
    for left in (0..=args.max_restarts).rev() {
        let attempt = Attempt::new(&mpirun, &command, &logs)?;
        let code = match attempt.run()? {
            done @ (0 | INTERRUPTED) => return Ok(ExitCode::from(done)),
            code => attempt.explain(code),
        };
        if code == BAD_INPUT || interrupt::requested() || left == 0 {
            return Ok(ExitCode::from(code));
        }
        command = again(command, &folder);
        let restart = args.max_restarts - left + 1;
        terminal::say(format_args!(
            "restart {restart} of {}: archi {}",
            args.max_restarts,
            command.join(" ")
        ));
    }
    Ok(ExitCode::FAILURE)
}

/// The folder of the run that `command` is about; refuses, before anything is started, what cannot be launched.
fn run_folder(command: &[String]) -> anyhow::Result<PathBuf> {
    let words = std::iter::once("archi").chain(command.iter().map(String::as_str));
    let parsed = Archi::try_parse_from(words).unwrap_or_else(|error| error.exit());
    match parsed.command {
        Command::Train(args) => args.out_folder(),
        Command::Resume(args) => Ok(args.run),
        Command::Evaluate(args) => Ok(args.run),
        Command::Infer(args) => Ok(args.run),
        _ => Err(Error::usage(format!("`{}` does not run as several processes", command[0]))
            .with_hint("launch `train`, `resume`, `evaluate` or `infer`")
            .into()),
    }
}

/// The command that goes on where `command` was when it died: training that has begun is resumed.
fn again(command: Vec<String>, folder: &Path) -> Vec<String> {
    let begun = command[0] == "train" && folder.join("run.toml").is_file();
    if !begun {
        return command;
    }
    let json = command.iter().any(|word| word == "--json");
    let resume = ["resume".to_owned(), folder.display().to_string()];
    resume.into_iter().chain(json.then(|| "--json".to_owned())).collect()
}
