//! `archi list`: the tables that names are looked up in.

use super::Outcome;
use crate::terminal;
use crate::terminal::table::{Table, facts};
use archipelago_comm::transport::TRANSPORTS;
use archipelago_graph::Error;
use archipelago_graph::partition::settings::{Setting, expected};
use archipelago_graph::partition::{Entry, Memory, partitioners};
use archipelago_graph::read::FORMATS;
use archipelago_graph::sample::samplers;
use archipelago_graph::synthetic::GENERATORS;
use archipelago_train::batch::negative::NEGATIVES;
use archipelago_train::decoder::DECODERS;
use archipelago_train::model::models;
use archipelago_train::strategy::strategies;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Flags of `archi list`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi list
  archi list partitioners
  archi list partitioners random
  archi list models --json")]
pub struct Args {
    /// Which table; all of them when not given
    kind: Option<Kind>,
    /// Which line of the table, with all that is known about it
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A table.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Strategies,
    Models,
    Decoders,
    Partitioners,
    Samplers,
    Negatives,
    Formats,
    Transports,
    Generators,
}

/// A line of a table.
struct Line {
    name: &'static str,
    summary: &'static str,
    paper: &'static str,
    partitioner: Option<&'static Entry>,
}

impl Line {
    fn new(name: &'static str, summary: &'static str, paper: &'static str) -> Self {
        Self { name, summary, paper, partitioner: None }
    }

    fn partitioner(entry: &'static Entry) -> Self {
        Self { partitioner: Some(entry), ..Self::new(entry.name, entry.summary, entry.paper) }
    }

    fn json(&self) -> Value {
        let mut line = json!({ "name": self.name, "summary": self.summary, "paper": self.paper });
        if let Some(entry) = self.partitioner {
            line["memory"] = memory(entry).into();
            line["places_edges"] = places_edges(entry).into();
            line["balances"] = entry.balances.into();
            line["needs_file"] = entry.needs_file.into();
            line["settings"] = entry.settings.iter().map(setting_json).collect();
        }
        line
    }

    /// Everything about it.
    fn text(&self) -> String {
        let mut lines = vec![("name", self.name.to_owned()), ("what it is", self.summary.to_owned())];
        if let Some(entry) = self.partitioner {
            lines.push(("memory", memory(entry).to_owned()));
            let places = if places_edges(entry) {
                "edges; a node is owned where most of its edges are"
            } else {
                "nodes"
            };
            lines.push(("places", places.to_owned()));
            let balances = if entry.balances { "nodes, and what --balance names" } else { "nodes" };
            lines.push(("balances", balances.to_owned()));
        }
        if !self.paper.is_empty() {
            lines.push(("paper", self.paper.to_owned()));
        }
        let settings = self.partitioner.map(|entry| format!("\n\n{}", settings(entry))).unwrap_or_default();
        facts(lines) + &settings
    }
}

/// What a partitioner may hold in memory.
fn memory(entry: &Entry) -> &'static str {
    match entry.memory {
        Memory::Nodes => "O(nodes)",
        Memory::Graph => "whole graph",
    }
}

/// Whether a partitioner places edges rather than nodes.
fn places_edges(entry: &Entry) -> bool {
    (entry.build)().edges().is_some()
}

fn setting_json(setting: &Setting) -> Value {
    let Setting { name, default, about, values } = *setting;
    json!({ "name": name, "default": default, "about": about, "values": expected(values) })
}

/// What can be set about a partitioner.
fn settings(entry: &Entry) -> String {
    if entry.settings.is_empty() {
        return "nothing can be set about it".to_owned();
    }
    let mut table = Table::new(["--set", "default", "value", "what it is"]);
    for Setting { name, default, about, values } in entry.settings {
        table.row([(*name).into(), (*default).into(), expected(*values), (*about).into()]);
    }
    table.to_string()
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Strategies => "strategies",
            Self::Models => "models",
            Self::Decoders => "decoders",
            Self::Partitioners => "partitioners",
            Self::Samplers => "samplers",
            Self::Negatives => "negatives",
            Self::Formats => "formats",
            Self::Transports => "transports",
            Self::Generators => "generators",
        }
    }

    /// One of them, for messages.
    fn singular(self) -> &'static str {
        match self {
            Self::Strategies => "strategy",
            _ => self.name().trim_end_matches('s'),
        }
    }

    /// What the names of this table are for.
    fn used_by(self) -> &'static str {
        match self {
            Self::Strategies => "archi train --strategy NAME",
            Self::Models => "archi train --model NAME",
            Self::Decoders => "archi train --set train.decoder=NAME",
            Self::Partitioners => "archi partition --method NAME",
            Self::Samplers => "archi train --set train.sampler=NAME",
            Self::Negatives => "archi train --set train.negative_sampler=NAME",
            Self::Formats => "recognised, or --from NAME",
            Self::Transports => "chosen by how archi is started",
            Self::Generators => "archi generate NAME",
        }
    }

    fn lines(self) -> Vec<Line> {
        let line = Line::new;
        match self {
            Self::Strategies => strategies().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Models => models().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Decoders => DECODERS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Partitioners => partitioners().map(Line::partitioner).collect(),
            Self::Samplers => samplers().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Negatives => NEGATIVES.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
            Self::Formats => FORMATS.iter().map(|e| line(e.name, e.summary, "")).collect(),
            Self::Transports => {
                TRANSPORTS.iter().filter(|e| e.available()).map(|e| line(e.name, e.summary, "")).collect()
            }
            Self::Generators => GENERATORS.iter().map(|e| line(e.name, e.summary, e.paper)).collect(),
        }
    }

    /// The line called `name`.
    fn line(self, name: &str) -> Result<Line, Error> {
        let known = self.lines().iter().map(|line| line.name).collect();
        let line = self.lines().into_iter().find(|line| line.name == name);
        line.ok_or_else(|| Error::Unknown { kind: self.singular(), name: name.to_owned(), known })
    }

    fn json(self) -> Value {
        self.lines().iter().map(Line::json).collect()
    }

    fn text(self) -> String {
        let lines = self.lines();
        let papers = if lines.iter().any(|line| !line.paper.is_empty()) { "paper" } else { "" };
        let heading = format!("{} ({})", self.name(), self.used_by());
        if let Self::Partitioners = self {
            let mut table = Table::new(["name", "what it is", "memory", papers]);
            for entry in partitioners() {
                table.row([
                    entry.name.into(),
                    entry.summary.into(),
                    memory(entry).into(),
                    entry.paper.into(),
                ]);
            }
            return format!(
                "{heading}\n{table}\n`archi list partitioners NAME` shows what can be set about one"
            );
        }
        let mut table = Table::new(["name", "what it is", papers]);
        for line in lines {
            table.row([line.name.into(), line.summary.into(), line.paper.into()]);
        }
        format!("{heading}\n{table}")
    }
}

/// Lists one line, one table, or all.
pub fn run(args: Args) -> Outcome {
    match (args.kind, args.name, args.json) {
        (Some(kind), Some(name), true) => terminal::print_json(&kind.line(&name)?.json())?,
        (Some(kind), Some(name), false) => terminal::print(kind.line(&name)?.text())?,
        (Some(kind), None, true) => terminal::print_json(&kind.json())?,
        (Some(kind), None, false) => terminal::print(kind.text())?,
        (None, _, true) => {
            let tables = Kind::value_variants().iter().map(|kind| (kind.name().to_owned(), kind.json()));
            terminal::print_json(&tables.collect::<Map<_, _>>())?;
        }
        (None, _, false) => {
            let tables: Vec<_> = Kind::value_variants().iter().map(|kind| kind.text()).collect();
            terminal::print(tables.join("\n\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
