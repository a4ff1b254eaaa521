//! `archi partition`: a dataset becomes a store.

use super::Outcome;
use super::dataset::{Cut, Reading, refuse_existing, tell_notes};
use crate::terminal::passes::Passes;
use crate::terminal::table::{Table, facts};
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::store::Manifest;
use archipelago_train::meter::peak_rss_bytes;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `archi partition`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi partition cora --parts 4 --method hash --out cora-4
  archi partition edges.csv.gz --undirected --parts 8 --method random --out store
  archi partition big --parts 16 --part-file big.graph.part.16 --out store --json

`archi list partitioners` shows the methods.")]
pub struct Args {
    /// Dataset: a folder or a file in any readable format
    data: PathBuf,
    /// How many parts
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..))]
    parts: u32,
    /// Partitioner (`archi list partitioners`)
    #[arg(long, value_name = "NAME", required_unless_present = "part_file")]
    method: Option<String>,
    /// Seed of the partitioner
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// File with the part of every node: METIS text, one per line, or .npy
    #[arg(long, value_name = "FILE")]
    part_file: Option<PathBuf>,
    /// Where to write the store
    #[arg(long, value_name = "STORE")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

/// Cuts a dataset and shows how well.
pub fn run(args: Args) -> Outcome {
    let started = Instant::now();
    let cut = Cut::new(args.method, args.part_file, args.parts, args.seed)?;
    refuse_existing(&args.out)?;
    interrupt::answer_with("stopping")?;
    let passes = Passes::default();
    let mut dataset = args.reading.open(&args.data, &passes)?;
    tell_notes(&dataset);
    let manifest = cut.write(&mut dataset, &args.out, &passes)?;
    drop(passes);
    let secs = started.elapsed().as_secs_f64();
    if args.json {
        terminal::print_json(&json!({
            "store": args.out,
            "dataset": manifest.dataset,
            "nodes": manifest.nodes,
            "edges": manifest.edges,
            "method": manifest.partition.method,
            "seed": manifest.partition.seed,
            "parts": manifest.parts.len(),
            "quality": manifest.quality,
            "secs": secs,
            "peak_rss_bytes": peak_rss_bytes(),
        }))?;
    } else {
        terminal::print(describe(&manifest))?;
        terminal::say(format_args!(
            "wrote `{}` in {}, peak memory {}",
            args.out.display(),
            units::seconds(secs),
            units::bytes(peak_rss_bytes())
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The figures of a store, and each of its parts.
pub fn describe(manifest: &Manifest) -> String {
    let quality = &manifest.quality;
    let balance = |value: f64| format!("{value:.3}");
    let text = facts([
        ("dataset", manifest.dataset.clone()),
        ("nodes", units::count(manifest.nodes)),
        ("edges", units::count(manifest.edges)),
        (
            "parts",
            format!(
                "{} by {}, seed {}",
                manifest.parts.len(),
                manifest.partition.method,
                manifest.partition.seed
            ),
        ),
        (
            "cut",
            format!(
                "{} ({})",
                units::counted(quality.cut_edges, "edge"),
                units::percent(quality.cut_fraction)
            ),
        ),
        ("replication", format!("{:.3} copies of a node on average", quality.replication_factor)),
        (
            "balance",
            format!(
                "nodes {}, edges {}, train {}, valid {}, test {} (largest over mean)",
                balance(quality.balance_nodes),
                balance(quality.balance_edges),
                balance(quality.balance_train),
                balance(quality.balance_valid),
                balance(quality.balance_test),
            ),
        ),
    ]);
    format!("{text}\n\n{}", parts_table(manifest))
}

/// A line per part, the first of them if they are many.
fn parts_table(manifest: &Manifest) -> String {
    const SHOWN: usize = 32;
    let quality = &manifest.quality;
    let largest = quality.parts.iter().map(|part| part.in_edges).max().unwrap_or(0);
    let mut table = Table::new(["part", "nodes", "halo", "in-edges", "cut", "train", "valid", "test", ""]);
    for (id, part) in quality.parts.iter().take(SHOWN).enumerate() {
        table.row([
            id.to_string(),
            units::count(part.owned),
            units::count(part.halo),
            units::count(part.in_edges),
            units::count(part.cut_in_edges),
            units::count(part.train),
            units::count(part.valid),
            units::count(part.test),
            units::bar(part.in_edges, largest, 16),
        ]);
    }
    match quality.parts.len().saturating_sub(SHOWN) {
        0 => table.to_string(),
        more => format!("{table}\n… and {more} more; --json shows all"),
    }
}
