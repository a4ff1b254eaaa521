//! `archi partition`: a dataset becomes a store, or is cut for the sake of the figures.

pub mod parts;
mod report;

pub use report::Figures;

use super::Outcome;
use super::dataset::{Cut, Reading, beside, refuse_existing, tell_notes};
use crate::terminal::passes::Passes;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::partition::arrays::{self, Placed};
use archipelago_graph::partition::{Assignment, Balance, Partitioner, Request};
use archipelago_graph::quality::{self, EdgeMeter, EdgeQuality, Quality};
use archipelago_graph::{Dataset, Error, Result, store};
use archipelago_train::meter::peak_rss_bytes;
use parts::{Parts, Room};
use report::{Report, Times};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `archi partition`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi partition cora --parts 4 --method hash --out cora-4
  archi partition edges.csv.gz --undirected --parts 8 --method random --out store
  archi partition big --parts auto --memory 8G --workers 4 --method hash --out store
  archi partition big --parts 16 --part-file big.graph.part.16 --out store --json
  archi partition big --parts 16 --method random --part-of nodes.npy --edge-parts edges.npy

Without --out, the dataset is cut and measured, and no store is written.
`archi list partitioners` shows the methods; with the name of one, what can be --set about it.")]
pub struct Args {
    /// Dataset: a folder or a file in any readable format
    data: PathBuf,
    /// How many parts, or `auto`: as many as the memory of the workers asks for
    #[arg(long, value_name = "P|auto")]
    parts: Parts,
    /// Partitioner (`archi list partitioners`) [default: spring, or the parts of --part-file]
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// Give a setting of the method a value; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// What to balance besides nodes, if the method can: train, valid, test, edges
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    balance: Vec<String>,
    /// Seed of the partitioner
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// File with the part of every node: METIS text, one per line, or .npy
    #[arg(long, value_name = "FILE")]
    part_file: Option<PathBuf>,
    #[command(flatten)]
    room: Room,
    /// Where to write the store
    #[arg(long, value_name = "STORE")]
    out: Option<PathBuf>,
    /// Where to write the part of every node, as an array
    #[arg(long, value_name = "FILE.npy")]
    part_of: Option<PathBuf>,
    /// Where to write the part of every edge, as an array in the order of the input
    #[arg(long, value_name = "FILE.npy")]
    edge_parts: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("expected `key=value`".to_owned()),
    }
}

impl Args {
    /// The cut that is asked for; of one part as long as the number is not known.
    fn cut(&self) -> Result<Cut> {
        let parts = match self.parts {
            Parts::Count(parts) => parts,
            Parts::Auto => 1,
        };
        let request = Request {
            file: self.part_file.clone(),
            balance: self.balance.iter().map(|kind| Balance::find(kind)).collect::<Result<_>>()?,
            settings: self.settings.iter().cloned().collect(),
            scratch: self.out.as_deref().and_then(beside),
            ..Request::new(parts, self.seed)
        };
        Cut::new(self.method.as_deref(), request)
    }

    /// Refuses outputs that are there already, or that cannot be.
    fn check_outputs(&self) -> Result<()> {
        for file in [&self.part_of, &self.edge_parts].into_iter().flatten() {
            if file.extension().is_none_or(|extension| extension != "npy") {
                return Err(Error::usage(format!(
                    "expected a name that ends in .npy, found `{}`",
                    file.display()
                )));
            }
        }
        let outputs: Vec<&PathBuf> = self.outputs().collect();
        if let Some(twice) = (1..outputs.len()).find(|&at| outputs[..at].contains(&outputs[at])) {
            return Err(Error::usage(format!("`{}` is given twice", outputs[twice].display())));
        }
        outputs.into_iter().try_for_each(|out| refuse_existing(out))
    }

    /// Removes arrays that were written before something failed; none was there before.
    fn remove_arrays(&self) {
        for file in [&self.part_of, &self.edge_parts].into_iter().flatten() {
            let _ = std::fs::remove_file(file);
        }
    }

    fn outputs(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.out, &self.part_of, &self.edge_parts].into_iter().flatten()
    }
}

/// Cuts a dataset and shows how well.
pub fn run(args: Args) -> Outcome {
    let started = Instant::now();
    let mut cut = args.cut()?;
    args.check_outputs()?;
    interrupt::answer_with("stopping")?;
    let passes = Passes::default();
    let mut dataset = args.reading.open(&args.data, &passes)?;
    tell_notes(&dataset);
    let auto = match args.parts {
        Parts::Auto => Some(args.room.choose(&dataset)?),
        Parts::Count(_) => None,
    };
    match &auto {
        Some(auto) => cut.request.parts = auto.parts,
        None => args.room.tell_ignored(),
    }
    let making = Making { args: &args, cut: &cut, passes };
    let made = making.make(&mut dataset).inspect_err(|_| args.remove_arrays())?;
    let times = Times { secs: started.elapsed().as_secs_f64(), ..made.times };
    let partition = cut.meta().into();
    let figures = Figures {
        dataset: &dataset.name,
        nodes: dataset.nodes,
        edges: dataset.edges.len(),
        partition: &partition,
        quality: &made.quality,
    };
    let report = Report { figures, auto, placement: made.placement, times, peak_rss_bytes: peak_rss_bytes() };
    show(&args, &report)?;
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, report: &Report) -> anyhow::Result<()> {
    if args.json {
        let mut json = report.json();
        json["store"] = serde_json::to_value(&args.out)?;
        json["part_of"] = serde_json::to_value(&args.part_of)?;
        json["edge_parts"] = serde_json::to_value(&args.edge_parts)?;
        return terminal::print_json(&json);
    }
    terminal::print(report.text())?;
    let (secs, peak) = (units::seconds(report.times.secs), units::bytes(report.peak_rss_bytes));
    let names: Vec<String> = args.outputs().map(|out| format!("`{}`", out.display())).collect();
    let wrote = match names.as_slice() {
        [] => "wrote nothing (--out STORE would have)".to_owned(),
        names => format!("wrote {}", names.join(", ")),
    };
    terminal::say(format_args!("{wrote} in {secs}, peak memory {peak}"));
    Ok(())
}

/// A dataset being cut.
struct Making<'a> {
    args: &'a Args,
    cut: &'a Cut,
    passes: Passes,
}

/// What came of it.
struct Made {
    quality: Quality,
    placement: Option<EdgeQuality>,
    times: Times,
}

impl Making<'_> {
    /// Assigns, then writes what is asked for; the store last, as that makes it all worth while.
    fn make(&self, dataset: &mut Dataset) -> Result<Made> {
        let mut times = Times::default();
        self.passes.take_over();
        let partitioner = (self.cut.entry.build)();
        let started = Instant::now();
        let assignment = partitioner.assign(dataset, &self.cut.request, &self.passes)?;
        times.assign_secs = started.elapsed().as_secs_f64();
        times.passes = self.passes.take_over().into_iter().filter(|pass| pass.unit == "edges").collect();

        let started = Instant::now();
        if let Some(file) = &self.args.part_of {
            arrays::write_nodes(&assignment, file)?;
        }
        let placement = match &self.args.edge_parts {
            Some(file) => Some(self.write_edges(dataset, &*partitioner, &assignment, file)?),
            None => None,
        };
        let quality = match &self.args.out {
            Some(out) => store::write(dataset, &assignment, &self.cut.meta(), out, &self.passes)?.quality,
            None => {
                let started = Instant::now();
                let quality = quality::measure(dataset, &assignment, &self.passes)?;
                times.measure_secs = Some(started.elapsed().as_secs_f64());
                quality
            }
        };
        let secs = started.elapsed().as_secs_f64() - times.measure_secs.unwrap_or(0.0);
        times.write_secs = self.args.outputs().next().map(|_| secs);
        self.passes.clear();
        Ok(Made { quality, placement, times })
    }

    /// Writes the part of every edge, and measures the placement on the way.
    fn write_edges(
        &self,
        dataset: &mut Dataset,
        partitioner: &dyn Partitioner,
        assignment: &Assignment,
        file: &Path,
    ) -> Result<EdgeQuality> {
        let placed = Placed { partitioner, request: &self.cut.request, assignment };
        let mut meter = EdgeMeter::new(assignment.part_of.len(), assignment.parts);
        arrays::write_edges(&placed, dataset, file, &self.passes, &mut |chunk, parts| {
            meter.count(chunk, parts);
            Ok(())
        })?;
        Ok(meter.finish())
    }
}
