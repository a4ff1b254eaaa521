//! `archi plan`: what every strategy will cost on a graph, before anything is run.

mod calibrate;
mod graph;
mod report;

use super::Outcome;
use super::partition::parts;
use crate::terminal::{self, units};
use archipelago_graph::Error;
use archipelago_train::cost::{Cluster, Question, Rates};
use archipelago_train::model;
use archipelago_train::run::{RunConfig, Task};
use archipelago_train::trainer::threads;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `archi plan`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi plan --data cora-4 --model sage
  archi plan run.toml --workers 4 --memory 8G --bandwidth 1gbit
  archi plan --graph rmat --scale 30 --features 128 --parts 64 --workers 8 --memory 64G
  archi plan --calibrate run-1 run-2 --json

Memory, bytes and seconds are of an average epoch of each strategy; exact evaluation is shown apart. What is known of
the graph is counted (a store) or follows from the generator; docs/scale.md tells how.")]
pub struct Args {
    /// Run file (TOML)
    #[arg(value_name = "RUN.toml")]
    file: Option<PathBuf>,
    /// Store to train on
    #[arg(long, value_name = "STORE", conflicts_with_all = ["graph", "scale", "nodes"])]
    data: Option<PathBuf>,
    /// Kind of layer (`archi list models`)
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Which strategies to plan for (`archi list strategies`); all when not given
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Give any key of the run file a value; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    graph: graph::GraphFlags,
    /// How fast machines are: a file as the field `rates` of --json, some or all of them
    #[arg(long, value_name = "FILE.json")]
    rates: Option<PathBuf>,
    /// Learn how fast machines are from finished runs, and show what would have been predicted for them
    #[arg(long, value_name = "RUN", num_args = 1..)]
    calibrate: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Flags that say where training will run.
#[derive(clap::Args)]
#[command(next_help_heading = "Machines")]
struct ClusterFlags {
    /// How many workers (processes) will train
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Memory of a worker; what this machine has free when not given
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// What a worker sends over the network: 1gbit, 100mbit, 125MB/s
    #[arg(long, value_name = "RATE", default_value = "1gbit", value_parser = units::parse_rate)]
    bandwidth: f64,
    /// What a worker reads from disk
    #[arg(long, value_name = "RATE", default_value = "500MB/s", value_parser = units::parse_rate)]
    disk: f64,
}

impl ClusterFlags {
    fn cluster(&self, config: &RunConfig) -> anyhow::Result<Cluster> {
        let memory_bytes = match self.memory {
            Some(memory) => memory,
            None => parts::available()?,
        };
        Ok(Cluster {
            workers: self.workers,
            cores: threads(config) as u32,
            memory_bytes,
            network_bytes: self.bandwidth,
            disk_bytes: self.disk,
        })
    }
}

impl Args {
    fn config(&self) -> anyhow::Result<RunConfig> {
        self.model.as_deref().map(model::find).transpose()?;
        let path = self.data.as_ref().map(|path| format!("data.path={}", path.display()));
        let name = self.model.as_ref().map(|name| format!("model.name={name}"));
        let sets: Vec<String> = self.sets.iter().cloned().chain(path).chain(name).collect();
        let config = RunConfig::from_sources(self.file.as_deref(), &sets)?;
        config.check_name("model.name", &model::models().map(|entry| entry.name).collect::<Vec<_>>())?;
        if config.train.task == Task::Link {
            let message = "expected `train.task` = `node`, found `link`: plans are of node prediction so far";
            return Err(Error::usage(message).into());
        }
        Ok(config)
    }

    fn rates(&self) -> anyhow::Result<Rates> {
        self.rates.as_deref().map_or(Ok(Rates::default()), read_rates)
    }

    /// Whether there is a graph to plan for.
    fn has_graph(&self, config: &RunConfig) -> bool {
        self.graph.given() || !config.data.path.is_empty()
    }
}

fn read_rates(file: &Path) -> anyhow::Result<Rates> {
    let text = std::fs::read_to_string(file).map_err(Error::io("read", file))?;
    let rates: Rates = serde_json::from_str(&text).map_err(|error| {
        Error::input(file, "", "rates as `archi plan --json` prints them", format!("`{error}`"))
    })?;
    let work = [rates.drawn_edges, rates.copied_bytes, rates.gathered_bytes, rates.flops, rates.island_bytes];
    match work.iter().chain([&rates.busy]).all(|rate| *rate > 0.0) {
        true => Ok(rates),
        false => Err(Error::input(file, "", "rates above 0", "one that is not").into()),
    }
}

/// Plans.
pub fn run(args: Args) -> Outcome {
    let config = args.config()?;
    let prior = args.rates()?;
    let calibrated = match args.calibrate.is_empty() {
        true => None,
        false => Some(calibrate::calibrate(&args.calibrate, &prior)?),
    };
    let rates = calibrated.as_ref().map_or(prior, |calibrated| calibrated.rates);
    if !args.has_graph(&config) && calibrated.is_none() {
        return Err(Error::usage("expected a graph to plan for, found none")
            .with_hint("give `--data STORE`, or `--graph rmat --scale 24`, or `--nodes N --edges E`")
            .into());
    }
    let plan = match args.has_graph(&config) {
        true => Some(plan(&args, &config, &rates)?),
        false => None,
    };
    match args.json {
        true => terminal::print_json(&report::json(&rates, calibrated.as_ref(), plan.as_ref()))?,
        false => {
            let texts =
                calibrated.iter().map(calibrate::Calibrated::text).chain(plan.iter().map(report::text));
            terminal::print(texts.collect::<Vec<_>>().join("\n\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args, config: &RunConfig, rates: &Rates) -> anyhow::Result<report::Plan> {
    let cluster = args.cluster.cluster(config)?;
    let facts = match args.graph.given() {
        true => args.graph.facts(&cluster)?,
        false => graph::of_path(Path::new(&config.data.path))?,
    };
    super::team::enough_parts(cluster.workers as usize, facts.parts as usize)?;
    let question = Question { facts: &facts, config, cluster: &cluster, rates };
    let (forecasts, unplanned) = match args.strategies.is_empty() {
        true => (question.all()?, question.unplanned()),
        false => {
            let named = args.strategies.iter().map(|name| question.named(name));
            (named.collect::<Result<_, _>>()?, Vec::new())
        }
    };
    Ok(report::Plan { model: config.model.name.clone(), facts, cluster, forecasts, unplanned })
}
