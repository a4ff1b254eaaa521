//! `archi quickstart`: the two-minute tour, step by step, each with the command that does the same.
//!
//! Every step leaves its result under a name of its own and is skipped when that is there already, so the tour may
//! be interrupted and taken again.

use super::Outcome;
use super::dataset::Cut;
use super::evaluate::{self, Trained};
use super::session::{self, Folder, Which};
use super::train::resolve_data;
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_comm::Job;
use archipelago_graph::read::{self, ReadOptions};
use archipelago_graph::synthetic::{self, Request};
use archipelago_graph::{Error, convert, partition};
use archipelago_train::run::RunConfig;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const PARTS: u32 = 4;
const METHOD: &str = "random";
const EDGES_PER_NODE: u64 = 20;
const FEATURES: usize = 64;
const CLASSES: usize = 20;

/// Flags of `archi quickstart`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  archi quickstart")]
pub struct Args {
    /// Folder for everything that the tour makes
    #[arg(long, value_name = "FOLDER", default_value = "archipelago-quickstart")]
    out: PathBuf,
    /// Start over: remove what an earlier tour made
    #[arg(long)]
    force: bool,
    /// How many nodes the graph has
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    nodes: u64,
    /// Passes over all training nodes
    #[arg(long, value_name = "N", default_value_t = 30)]
    epochs: u64,
}

/// What the tour makes.
struct Tour {
    home: PathBuf,
    nodes: u64,
    epochs: u64,
}

/// Takes the tour.
pub fn run(args: Args) -> Outcome {
    interrupt::answer_with("stopping")?;
    let tour = Tour { home: args.out, nodes: args.nodes, epochs: args.epochs };
    if args.force {
        tour.remove()?;
    }
    tour.refuse_strangers()?;
    tour.generate()?;
    tour.partition()?;
    let code = tour.train()?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    tour.evaluate()?;
    tour.farewell();
    Ok(ExitCode::SUCCESS)
}

impl Tour {
    fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    fn store(&self) -> PathBuf {
        self.home.join("store")
    }

    fn run(&self) -> PathBuf {
        self.home.join("run")
    }

    /// Removes the three folders of an earlier tour, and nothing else.
    fn remove(&self) -> anyhow::Result<()> {
        for folder in [self.data(), self.store(), self.run()] {
            if folder.exists() {
                std::fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
            }
        }
        Ok(())
    }

    /// A folder that holds other things is somebody's own.
    fn refuse_strangers(&self) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(&self.home).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !["data", "store", "run"].contains(&name.as_str()) && !name.starts_with(".archi-") {
                let message = format!("`{}` holds `{name}`, which no tour made", self.home.display());
                return Err(Error::usage(message).with_hint("choose another folder with --out").into());
            }
        }
        Ok(())
    }

    fn generate(&self) -> anyhow::Result<()> {
        let edges = self.nodes * EDGES_PER_NODE;
        step(1, "Make a graph: communities whose members resemble each other");
        command(format_args!(
            "archi generate sbm --nodes {} --edges {edges} --features {FEATURES} --classes {CLASSES} --out {}",
            self.nodes,
            self.data().display()
        ));
        if kept(&self.data()) {
            return Ok(());
        }
        let entry = synthetic::find("sbm")?;
        let defaults = (entry.defaults)();
        let request =
            Request { nodes: self.nodes, edges, features: FEATURES, classes: CLASSES, seed: 0, ..defaults };
        let passes = Passes::default();
        let mut dataset = (entry.generate)(&request, &passes)?;
        convert::write_folder(&mut dataset, &self.data(), &passes)?;
        drop(passes);
        terminal::say(format_args!(
            "  {}, {}, {}",
            units::counted(dataset.nodes, "node"),
            units::counted(dataset.edges.len(), "edge"),
            dataset
                .splits
                .named()
                .map(|(name, nodes)| format!("{} {name}", units::count(nodes.len() as u64)))
                .join(" / ")
        ));
        Ok(())
    }

    fn partition(&self) -> anyhow::Result<()> {
        let (data, store) = (self.data(), self.store());
        step(2, "Cut it into 4 islands: nodes with their in-edges, and the halo those edges reach");
        command(format_args!(
            "archi partition {} --parts {PARTS} --method {METHOD} --out {}",
            data.display(),
            store.display()
        ));
        if kept(&store) {
            return Ok(());
        }
        let passes = Passes::default();
        let options = ReadOptions { progress: &passes, ..ReadOptions::default() };
        let mut dataset = read::open(&data, None, &options)?;
        let cut = Cut::new(Some(METHOD), partition::Request::new(PARTS, 0))?;
        let manifest = cut.write(&mut dataset, &store, &passes)?;
        drop(passes);
        terminal::say(format_args!(
            "  {} of the edges cross between islands; a node has {:.2} copies on average",
            units::percent(manifest.quality.cut_fraction),
            manifest.quality.replication_factor
        ));
        Ok(())
    }

    fn train(&self) -> Outcome {
        let run = self.run();
        step(3, "Train a GCN on 4 ranks, which exchange what crosses the water: exact, as on one machine");
        command(format_args!(
            "archi train --data {} --model gcn --epochs {} --out {}",
            self.store().display(),
            self.epochs,
            run.display()
        ));
        let folder = match Folder::open(&run) {
            Ok(folder) => folder,
            Err(_) => Folder::create(&run, &self.config()?)?,
        };
        match folder.summary()? {
            None => folder.train(false, Job::alone()),
            Some(summary) => {
                terminal::say("  is there already, and finished");
                session::show(&summary, None, false)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }

    fn config(&self) -> anyhow::Result<RunConfig> {
        let sets = [
            format!("data.path={}", self.store().display()),
            format!("train.epochs={}", self.epochs),
            format!("output.path={}", self.run().display()),
        ];
        let mut config = RunConfig::from_sources(None, &sets)?;
        resolve_data(&mut config)?;
        Ok(config)
    }

    fn evaluate(&self) -> anyhow::Result<()> {
        step(4, "Score the best weights on every split, with every neighbour");
        command(format_args!("archi evaluate {}", self.run().display()));
        let trained = Trained::open(self.run(), None, Which::Best)?;
        let found = trained.run(Job::alone()).evaluate(&trained.checkpoint)?;
        terminal::print(evaluate::describe(&found))?;
        Ok(())
    }

    fn farewell(&self) {
        let (home, run) = (self.home.display(), self.run());
        let run = run.display();
        terminal::say(format_args!("\n{}", terminal::bold("What to try next")));
        for (what, typed) in [
            ("the predictions, in your own ids", format!("archi infer {run} --out predictions.csv")),
            ("another model", format!("archi train --data {home}/store --model gat --out {home}-gat")),
            ("your own graph", "archi check my-edges.csv --undirected".to_owned()),
            ("everything there is to choose", "archi list".to_owned()),
            ("this tour again", format!("archi quickstart --force --out {home}")),
        ] {
            terminal::say(format_args!("  {what:<34} {typed}"));
        }
    }
}

fn step(number: u32, what: &str) {
    terminal::say(format_args!("\n{}", terminal::bold(&format!("{number}. {what}"))));
}

fn command(typed: std::fmt::Arguments<'_>) {
    terminal::say(terminal::dim(&format!("   $ {typed}")));
}

/// Whether a result is there already, which is then said.
fn kept(path: &Path) -> bool {
    if path.exists() {
        terminal::say("  is there already, and kept; --force makes it anew");
    }
    path.exists()
}
