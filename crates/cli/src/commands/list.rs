//! `archi list`: the tables that names are looked up in.

use super::Outcome;
use crate::terminal;
use crate::terminal::table::Table;
use archipelago_comm::transport::TRANSPORTS;
use archipelago_graph::partition::PARTITIONERS;
use archipelago_graph::read::FORMATS;
use archipelago_graph::sample::SAMPLERS;
use archipelago_graph::synthetic::GENERATORS;
use archipelago_train::model::MODELS;
use archipelago_train::strategy::STRATEGIES;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Flags of `archi list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  archi list\n  archi list partitioners\n  archi list models --json")]
pub struct Args {
    /// Which table; all of them when not given
    kind: Option<Kind>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A table.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Strategies,
    Models,
    Partitioners,
    Samplers,
    Formats,
    Transports,
    Generators,
}

/// A line of a table.
struct Line {
    name: &'static str,
    summary: &'static str,
    paper: &'static str,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Strategies => "strategies",
            Self::Models => "models",
            Self::Partitioners => "partitioners",
            Self::Samplers => "samplers",
            Self::Formats => "formats",
            Self::Transports => "transports",
            Self::Generators => "generators",
        }
    }

    /// What the names of this table are for.
    fn used_by(self) -> &'static str {
        match self {
            Self::Strategies => "archi train --strategy NAME",
            Self::Models => "archi train --model NAME",
            Self::Partitioners => "archi partition --method NAME",
            Self::Samplers => "chosen by the strategy",
            Self::Formats => "recognised, or --from NAME",
            Self::Transports => "chosen by how archi is started",
            Self::Generators => "archi generate NAME",
        }
    }

    fn lines(self) -> Vec<Line> {
        let line = |name, summary, paper| Line { name, summary, paper };
        match self {
            Self::Strategies => STRATEGIES.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Models => MODELS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Partitioners => PARTITIONERS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Samplers => SAMPLERS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Formats => FORMATS.iter().map(|e| line(e.name, e.summary, "")).collect(),
            Self::Transports => {
                TRANSPORTS.iter().filter(|e| e.available()).map(|e| line(e.name, e.summary, "")).collect()
            }
            Self::Generators => GENERATORS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
        }
    }

    fn json(self) -> Value {
        let line = |line: Line| json!({ "name": line.name, "summary": line.summary, "paper": line.paper });
        self.lines().into_iter().map(line).collect()
    }

    fn text(self) -> String {
        let lines = self.lines();
        let papers = lines.iter().any(|line| !line.paper.is_empty());
        let mut table = Table::new(["name", "what it is", if papers { "paper" } else { "" }]);
        for line in lines {
            table.row([line.name.into(), line.summary.into(), line.paper.into()]);
        }
        format!("{} ({})\n{table}", self.name(), self.used_by())
    }
}

/// Lists one table, or all.
pub fn run(args: Args) -> Outcome {
    match (args.kind, args.json) {
        (Some(kind), true) => terminal::print_json(&kind.json())?,
        (Some(kind), false) => terminal::print(kind.text())?,
        (None, true) => {
            let tables = Kind::value_variants().iter().map(|kind| (kind.name().to_owned(), kind.json()));
            terminal::print_json(&tables.collect::<Map<_, _>>())?;
        }
        (None, false) => {
            let tables: Vec<_> = Kind::value_variants().iter().map(|kind| kind.text()).collect();
            terminal::print(tables.join("\n\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
