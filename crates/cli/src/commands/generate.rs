//! `archi generate`: a synthetic graph as a dataset folder.

use super::Outcome;
use super::dataset::{refuse_existing, tell_notes};
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::convert;
use archipelago_graph::synthetic::{self, Request};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// How large a graph is to be.
#[derive(clap::Args)]
pub struct Size {
    /// How many nodes
    #[arg(long, value_name = "N", conflicts_with = "scale")]
    pub nodes: Option<u64>,
    /// How many nodes, as a power of 2
    #[arg(long, value_name = "LOG2", value_parser = clap::value_parser!(u32).range(0..=40))]
    pub scale: Option<u32>,
    /// How many directed edges; an undirected edge counts twice
    #[arg(long, value_name = "E")]
    pub edges: Option<u64>,
    /// Numbers per node
    #[arg(long, value_name = "F")]
    pub features: Option<usize>,
    /// How many classes
    #[arg(long, value_name = "C")]
    pub classes: Option<usize>,
}

impl Size {
    /// How many nodes, however that was said.
    pub fn node_count(&self) -> Option<u64> {
        self.nodes.or(self.scale.map(|scale| 1 << scale))
    }
}

/// Flags of `archi generate`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi generate sbm --nodes 100000 --edges 2000000 --classes 40 --seed 1 --out communities
  archi generate rmat --scale 24 --out rmat-24

rmat streams: the graph may be larger than memory. `archi list generators` shows all generators.")]
pub struct Args {
    /// Generator (`archi list generators`)
    generator: String,
    #[command(flatten)]
    size: Size,
    /// Give nodes several labels
    #[arg(long)]
    multilabel: bool,
    /// Width of edge attributes
    #[arg(long, value_name = "D", default_value_t = 0)]
    edge_attributes: usize,
    /// Seed of every draw
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Where to write the dataset folder
    #[arg(long, value_name = "DATA")]
    out: PathBuf,
}

impl Args {
    /// What is asked of the generator; its edges keep their number per node unless given.
    fn request(&self, defaults: &Request) -> Request {
        let nodes = self.size.node_count().unwrap_or(defaults.nodes);
        let per_node = defaults.edges.checked_div(defaults.nodes).unwrap_or(0);
        let most = nodes.saturating_mul(nodes.saturating_sub(1));
        Request {
            nodes,
            edges: self.size.edges.unwrap_or(nodes.saturating_mul(per_node).min(most)),
            features: self.size.features.unwrap_or(defaults.features),
            classes: self.size.classes.unwrap_or(defaults.classes),
            multilabel: self.multilabel,
            edge_attributes: self.edge_attributes,
            seed: self.seed,
            // Beside the output: a graph larger than memory may be larger than the temporary folder too.
            scratch: self.out.parent().filter(|folder| folder.is_dir()).map(PathBuf::from),
        }
    }
}

/// Generates a graph.
pub fn run(args: Args) -> Outcome {
    let started = Instant::now();
    let entry = synthetic::find(&args.generator)?;
    refuse_existing(&args.out)?;
    interrupt::answer_with("stopping")?;
    let passes = Passes::default();
    let mut dataset = (entry.generate)(&args.request(&(entry.defaults)()), &passes)?;
    tell_notes(&dataset);
    convert::write_folder(&mut dataset, &args.out, &passes)?;
    drop(passes);
    terminal::say(format_args!(
        "wrote `{}`: {}, {}, {}, {}, in {}",
        args.out.display(),
        units::counted(dataset.nodes, "node"),
        units::counted(dataset.edges.len(), "edge"),
        units::counted(dataset.features.width() as u64, "feature"),
        units::counted(dataset.labels.classes() as u64, "class"),
        units::seconds(started.elapsed().as_secs_f64()),
    ));
    Ok(ExitCode::SUCCESS)
}
