//! `archi train`: a run file, flags or both become a trained model.

use super::Outcome;
use super::session::{Folder, cut_of, is_store};
use super::team;
use crate::{failure, terminal};
use archipelago_comm::{Comm, Job};
use archipelago_graph::partition::partitioners;
use archipelago_graph::{Error, Store};
use archipelago_train::model;
use archipelago_train::run::{RunConfig, Task};
use archipelago_train::strategy;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The largest number that a run file can hold.
const TOML_MAX: u64 = i64::MAX as u64;

/// Flags of `archi train`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi train --data cora-4 --model gcn --epochs 200 --out run
  archi train examples/cora-gcn.toml --seed 1 --out run-1
  archi train --data cora --parts 4 --set model.hidden=128 --set train.lr=0.005 --out run
  archi train examples/cora-gcn.toml --print-config

Flags and --set override the run file. Ctrl-C stops after the epoch with a checkpoint; `archi resume RUN`
continues, bit for bit as if never stopped.")]
pub struct Args {
    /// Run file (TOML)
    #[arg(value_name = "RUN.toml")]
    file: Option<PathBuf>,
    /// Store to train on, or a dataset, which is cut into parts first
    #[arg(long, value_name = "STORE|DATA")]
    data: Option<PathBuf>,
    /// How training uses the parts (`archi list strategies`)
    #[arg(long, value_name = "NAME")]
    strategy: Option<String>,
    /// Kind of layer (`archi list models`)
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// How many parts to cut a dataset into
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    parts: Option<u64>,
    /// How many processes of an MPI job share the work; `archi launch -n N` starts them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    processes: Option<u64>,
    /// Threads of a process; 0 for one per core
    #[arg(long, value_name = "T")]
    threads: Option<u64>,
    /// Passes over all training nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=TOML_MAX))]
    epochs: Option<u64>,
    /// Seed of weights, dropout, sampling and shuffles
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(..=TOML_MAX))]
    seed: Option<u64>,
    /// Give any key of the run file a value; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// Show the resolved run file and stop
    #[arg(long)]
    print_config: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Folder for results
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
}

impl Args {
    /// The flags as assignments to keys, so that they count as written by the user.
    fn assignments(&self) -> Vec<String> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let flags = [
            ("data.path", path(&self.data)),
            ("strategy.name", self.strategy.clone()),
            ("model.name", self.model.clone()),
            ("data.parts", number(self.parts)),
            ("train.threads", number(self.threads)),
            ("train.epochs", number(self.epochs)),
            ("train.seed", number(self.seed)),
            ("output.path", path(&self.out)),
        ];
        let flags = flags.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", value?)));
        self.sets.iter().cloned().chain(flags).collect()
    }

    fn config(&self) -> anyhow::Result<RunConfig> {
        self.strategy.as_deref().map(strategy::find).transpose()?;
        self.model.as_deref().map(model::find).transpose()?;
        let config = RunConfig::from_sources(self.file.as_deref(), &self.assignments())?;
        config.check_name("data.partitioner", &partitioners().map(|e| e.name).collect::<Vec<_>>())?;
        Ok(config)
    }
}

impl Args {
    /// Where the results go.
    pub fn out_folder(&self) -> anyhow::Result<PathBuf> {
        let config = self.config()?;
        match config.output.path.is_empty() {
            true => Err(missing("a folder for the results", "--out RUN", "output.path")),
            false => Ok(PathBuf::from(config.output.path)),
        }
    }

    /// Refuses `--processes` where the job has another number of them.
    fn check_processes(&self, job: &Job) -> anyhow::Result<()> {
        let found = job.processes() as u64;
        if self.processes.is_none_or(|wanted| wanted == found) {
            return Ok(());
        }
        let wanted = self.processes.unwrap_or(1);
        Err(Error::usage(format!("expected {wanted} processes, found {found}"))
            .with_hint(format!(
                "start them with `archi launch -n {wanted} -- train …`, or by `mpirun -n {wanted}`"
            ))
            .into())
    }
}

/// Trains.
pub fn run(args: Args) -> Outcome {
    let config = args.config()?;
    if args.print_config {
        terminal::print(config.to_toml().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = PathBuf::from(&config.output.path);
    if config.output.path.is_empty() {
        return Err(missing("a folder for the results", "--out RUN", "output.path"));
    }
    let job = Job::join()?;
    args.check_processes(&job)?;
    let deadline = Duration::from_secs(config.exchange.deadline_secs);
    team::together(&job, deadline, |comm| prepare(comm, &config, &out))?;
    let folder = Folder { path: out.clone() };
    let code = folder.train(args.json, job).inspect_err(|error| {
        // Bad input leaves nothing behind, so that the same command works once it is mended.
        if failure::is_bad_input(error) && job.leads() {
            let _ = std::fs::remove_dir_all(&out);
        }
    })?;
    if code == ExitCode::SUCCESS && job.leads() {
        terminal::say(format_args!("results are in `{}`; next, for example:", out.display()));
        let infer = match config.train.task {
            Task::Node => "--out predictions.csv",
            Task::Link => "--links pairs.csv --out scores.csv",
        };
        terminal::say(format_args!("  archi infer {} {infer}", out.display()));
    }
    Ok(code)
}

/// Checks everything that can be checked before anything is written, on every process of the job, and that all of
/// them mean the same run; then makes its folder.
fn prepare(comm: &Comm, config: &RunConfig, out: &Path) -> anyhow::Result<()> {
    let mut config = config.clone();
    if comm.rank() == 0 {
        Folder { path: out.to_path_buf() }.refuse_taken()?;
    }
    resolve_data(&mut config)?;
    if !is_store(Path::new(&config.data.path)) {
        cut_of(&config, out)?;
    }
    strategy::check(&config, config.data.parts as u32)?;
    team::enough_parts(comm.size(), config.data.parts)?;
    team::agree(comm, &config)?;
    comm.led_by_first(|| Folder::create(out, &config))?;
    Ok(())
}

/// Checks that the data is there, and writes down where it is and how many parts it has, whatever folder a resumed
/// run is started from.
pub fn resolve_data(config: &mut RunConfig) -> anyhow::Result<()> {
    if config.data.path.is_empty() {
        return Err(missing("data to train on", "--data STORE", "data.path"));
    }
    let path = PathBuf::from(&config.data.path);
    let absolute = path.canonicalize().map_err(Error::io("open", &path))?;
    config.data.path = absolute.display().to_string();
    config.output.path = std::path::absolute(&config.output.path)?.display().to_string();
    if !config.data.link_split.is_empty() {
        let file = PathBuf::from(&config.data.link_split);
        let absolute = file.canonicalize().map_err(Error::io("open", &file))?;
        config.data.link_split = absolute.display().to_string();
    }
    if is_store(&absolute) {
        let parts = Store::open(&absolute)?.parts() as usize;
        check_store(config, &path, parts)?;
        config.data.parts = parts;
    }
    Ok(())
}

/// Refuses settings that a store cannot follow any more.
fn check_store(config: &RunConfig, path: &Path, parts: usize) -> anyhow::Result<()> {
    let store = path.display();
    if config.is_set("data.parts") && config.data.parts != parts {
        let wanted = config.data.parts;
        return Err(Error::usage(format!("`{store}` is a store of {parts} parts, not of {wanted}"))
            .with_hint("train on the dataset itself, or partition it again")
            .into());
    }
    let settled = ["data.format", "data.partitioner", "data.partition_file", "data.partition_seed"];
    let more = ["data.partition_settings", "data.partition_balance", "data.undirected", "data.split"];
    for key in settled.into_iter().chain(more) {
        if config.is_set(key) {
            terminal::say(format_args!("note: `{key}` does not matter here: `{store}` is cut already"));
        }
    }
    Ok(())
}

fn missing(what: &str, flag: &str, key: &str) -> anyhow::Error {
    Error::usage(format!("expected {what}, found none"))
        .with_hint(format!("give `{flag}`, or `{key}` in the run file"))
        .into()
}
