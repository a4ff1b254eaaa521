//! `archi convert`: any readable format becomes a dataset folder.

use super::Outcome;
use super::dataset::{Reading, refuse_existing, tell_notes};
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::split::{self, Shares};
use archipelago_graph::{Dataset, Error, convert};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `archi convert`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi convert edges.tsv.gz mygraph --undirected
  archi convert ogbn_arxiv arxiv --from ogb --split time
  archi convert graph.parquet mygraph
  archi convert labelled.csv mygraph --draw-split 60,20,20

The folder holds plain .npy files, which are mapped and cost no memory to open.")]
pub struct Args {
    /// Dataset in any readable format (`archi list formats`)
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Dataset folder to write
    out: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// Draw train, valid and test among the labelled nodes, in per cent of them, whatever splits there are
    #[arg(long, value_name = "T,V,T", value_parser = parse_shares)]
    draw_split: Option<Shares>,
    /// Seed of --draw-split
    #[arg(long, value_name = "S", default_value_t = 0, requires = "draw_split")]
    seed: u64,
}

/// The shares that `60,20,20` stands for.
fn parse_shares(text: &str) -> Result<Shares, String> {
    let wrong =
        || format!("expected three numbers such as `60,20,20` that are 100 together at most, found `{text}`");
    let shares: Vec<u64> = text.split(',').map_while(|share| share.trim().parse().ok()).collect();
    match (&shares[..], text.split(',').count()) {
        (&[train @ 1..=100, valid @ 0..=100, test @ 0..=100], 3) if train + valid + test <= 100 => {
            Ok(Shares { train, valid, test })
        }
        _ => Err(wrong()),
    }
}

/// Converts a dataset.
pub fn run(args: Args) -> Outcome {
    let started = Instant::now();
    refuse_existing(&args.out)?;
    interrupt::answer_with("stopping")?;
    let passes = Passes::default();
    let mut dataset = args.reading.open(&args.input, &passes)?;
    tell_notes(&dataset);
    if let Some(shares) = args.draw_split {
        draw_splits(&mut dataset, shares, args.seed)?;
    }
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

/// Gives the labelled nodes of a dataset new splits.
fn draw_splits(dataset: &mut Dataset, shares: Shares, seed: u64) -> anyhow::Result<()> {
    let labelled = (0..dataset.nodes).filter(|&node| dataset.labels.has(node));
    let splits = split::permuted(labelled, seed, &shares);
    if splits.train.is_empty() {
        let message = format!("`{}` has too few labelled nodes to draw a split from", dataset.name);
        return Err(Error::usage(message)
            .with_hint("only labelled nodes are drawn, see `archi check`")
            .into());
    }
    let sizes = splits.named().map(|(name, nodes)| format!("{name} {}", units::count(nodes.len() as u64)));
    terminal::say(format_args!("{}: drew {}", terminal::bold("note"), sizes.join(", ")));
    dataset.splits = splits;
    Ok(())
}
