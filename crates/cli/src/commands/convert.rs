//! `archi convert`: any readable format becomes a dataset folder.

use super::Outcome;
use super::dataset::{Reading, refuse_existing, tell_notes};
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::convert;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `archi convert`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi convert edges.tsv.gz mygraph --undirected
  archi convert ogbn_arxiv arxiv --from ogb --split time
  archi convert graph.parquet mygraph

The folder holds plain .npy files, which are mapped and cost no memory to open.")]
pub struct Args {
    /// Dataset in any readable format (`archi list formats`)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Dataset folder to write
    out: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

/// Converts a dataset.
pub fn run(args: Args) -> Outcome {
    let started = Instant::now();
    refuse_existing(&args.out)?;
    interrupt::answer_with("stopping")?;
    let passes = Passes::default();
    let mut dataset = args.reading.open(&args.input, &passes)?;
    tell_notes(&dataset);
    convert::write_folder(&mut dataset, &args.out, &passes)?;
    drop(passes);
    terminal::say(format_args!(
        "wrote `{}`: {}, {}, in {}",
        args.out.display(),
        units::counted(dataset.nodes, "node"),
        units::counted(dataset.edges.len(), "edge"),
        units::seconds(started.elapsed().as_secs_f64()),
    ));
    Ok(ExitCode::SUCCESS)
}
