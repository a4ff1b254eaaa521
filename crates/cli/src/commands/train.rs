//! `archi train`: a run file, flags or both become a trained model.

use super::Outcome;
use super::session::{Folder, cut_of, is_store};
use crate::{failure, terminal};
use archipelago_graph::partition::PARTITIONERS;
use archipelago_graph::{Error, Store};
use archipelago_train::model;
use archipelago_train::run::RunConfig;
use archipelago_train::strategy;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    /// How many processes
    #[arg(long, value_name = "N", default_value_t = 1)]
    processes: u64,
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
        if self.processes != 1 {
            return Err(Error::usage(format!("expected 1 process, found {}", self.processes))
                .with_hint("this version runs in one process, one rank per part; raise `--parts` and `--threads` instead")
                .into());
        }
        self.strategy.as_deref().map(strategy::find).transpose()?;
        self.model.as_deref().map(model::find).transpose()?;
        let config = RunConfig::from_sources(self.file.as_deref(), &self.assignments())?;
        config.check_name("data.partitioner", &PARTITIONERS.iter().map(|e| e.name).collect::<Vec<_>>())?;
        Ok(config)
    }
}

/// Trains.
pub fn run(args: Args) -> Outcome {
    let mut config = args.config()?;
    if args.print_config {
        terminal::print(config.to_toml().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let out = PathBuf::from(&config.output.path);
    if config.output.path.is_empty() {
        return Err(missing("a folder for the results", "--out RUN", "output.path"));
    }
    Folder { path: out.clone() }.refuse_taken()?;
    resolve_data(&mut config)?;
    if !is_store(Path::new(&config.data.path)) {
        cut_of(&config, &out)?;
    }
    strategy::check(&config, config.data.parts as u32)?;
    let folder = Folder::create(&out, &config)?;
    let code = folder.train(args.json).inspect_err(|error| {
        // Bad input leaves nothing behind, so that the same command works once it is mended.
        if failure::is_bad_input(error) {
            let _ = std::fs::remove_dir_all(&out);
        }
    })?;
    if code == ExitCode::SUCCESS {
        terminal::say(format_args!("results are in `{}`; next, for example:", out.display()));
        terminal::say(format_args!("  archi infer {} --out predictions.csv", out.display()));
    }
    Ok(code)
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
