//! `archi verify`: is a store still what was written?

use super::Outcome;
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::store;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `archi verify`.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  archi verify cora-4")]
pub struct Args {
    /// The store
    store: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Verifies a store.
pub fn run(args: Args) -> Outcome {
    interrupt::exit_at_once()?;
    let report = store::verify(&args.store, &Passes::default())?;
    if args.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(format_args!(
            "`{}` is whole: {}, {} ({}), {}, {}",
            args.store.display(),
            units::counted(report.parts.into(), "part"),
            units::counted(report.files, "file"),
            units::bytes(report.bytes),
            units::counted(report.nodes, "node"),
            units::counted(report.edges, "edge"),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
