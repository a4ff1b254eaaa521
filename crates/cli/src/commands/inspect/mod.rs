//! `archi inspect`: what is this file or folder?
//!
//! Looks for the marks of our own files first; whatever has none of them is tried as a dataset.

mod dataset;
mod file;
mod run;
mod store;

use super::Outcome;
use crate::{interrupt, terminal};
use archipelago_graph::Error;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `archi inspect`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi inspect cora
  archi inspect cora-4
  archi inspect cora-4 --svg cora-4.svg
  archi inspect run/checkpoint/best
  archi inspect run/events.jsonl --json")]
pub struct Args {
    /// A dataset, store, run, checkpoint, or one of their files
    path: PathBuf,
    /// Where to write a picture of a store: bars per part, traffic between parts
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was found out about a path.
struct Description {
    /// What it is, in a few words.
    kind: &'static str,
    /// The facts for people.
    text: String,
    /// The facts for programs.
    facts: Value,
}

/// A kind of thing, and how to describe one.
struct Kind {
    detect: fn(&Path) -> bool,
    describe: fn(&Path) -> anyhow::Result<Description>,
}

/// Every kind, in the order in which they are tried.
const KINDS: &[Kind] = &[
    Kind { detect: store::detect, describe: store::describe },
    Kind { detect: run::detect_checkpoint, describe: run::describe_checkpoint },
    Kind { detect: run::detect, describe: run::describe },
    Kind { detect: file::detect_events, describe: file::describe_events },
    Kind { detect: file::detect_run_file, describe: file::describe_run_file },
    Kind { detect: file::detect_summary, describe: file::describe_summary },
    Kind { detect: file::detect_weights, describe: file::describe_weights },
    Kind { detect: file::detect_npy, describe: file::describe_npy },
    Kind { detect: file::detect_parts, describe: file::describe_parts },
    Kind { detect: file::detect_predictions, describe: file::describe_predictions },
    Kind { detect: |_| true, describe: dataset::describe },
];

/// Says what a path is.
pub fn run(args: Args) -> Outcome {
    interrupt::exit_at_once()?;
    std::fs::metadata(&args.path).map_err(Error::io("open", &args.path))?;
    if args.svg.is_some() && !store::detect(&args.path) {
        return Err(Error::input(&args.path, "", "a store, which --svg draws", "something else").into());
    }
    for kind in KINDS {
        if (kind.detect)(&args.path) {
            let Description { kind, text, mut facts } = (kind.describe)(&args.path)?;
            if args.json {
                facts["kind"] = kind.into();
                terminal::print_json(&facts)?;
            } else {
                terminal::print(format_args!("`{}` is a {kind}\n{text}", args.path.display()))?;
            }
            break;
        }
    }
    if let Some(file) = &args.svg {
        store::draw(&args.path, file)?;
        terminal::say(format_args!("wrote `{}`", file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether `path` is a folder whose manifest says that its format is `format`.
fn has_manifest(path: &Path, format: &str) -> bool {
    let manifest = std::fs::read_to_string(path.join("manifest.json")).unwrap_or_default();
    let manifest: Value = serde_json::from_str(&manifest).unwrap_or_default();
    manifest["format"] == format
}

/// Whether the name of `path` ends like this.
fn named(path: &Path, ending: &str) -> bool {
    path.is_file() && path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending))
}
