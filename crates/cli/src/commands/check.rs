//! `archi check`: is a dataset fit to train on, and what would be assumed?

use super::Outcome;
use super::dataset::Reading;
use crate::failure::BAD_INPUT;
use crate::terminal::passes::Passes;
use crate::terminal::table::facts;
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_graph::check::{self, Degrees, Finding, Report, Severity};
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `archi check`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  archi check cora
  archi check edges.csv.gz --undirected
  archi check ogbn_arxiv --from ogb --json

The exit code is 2 when something in the dataset is wrong. The last line says whether
it can be trained on: without labels or training nodes only its edges can be predicted.")]
pub struct Args {
    /// Dataset: a folder or a file in any readable format
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

/// Checks a dataset.
pub fn run(args: Args) -> Outcome {
    interrupt::exit_at_once()?;
    let passes = Passes::default();
    let mut dataset = args.reading.open(&args.data, &passes)?;
    let report = check::check(&mut dataset, &passes)?;
    drop(passes);
    if args.json {
        terminal::print_json(&report)?;
    } else {
        terminal::print(describe(&report))?;
    }
    let bad = report.worst() == Some(Severity::Error);
    Ok(if bad { ExitCode::from(BAD_INPUT) } else { ExitCode::SUCCESS })
}

fn describe(report: &Report) -> String {
    let edges = &report.edge_report;
    let counted = |count: Option<u64>| count.map_or("not counted".to_owned(), units::count);
    let several = if report.multilabel { ", several per node" } else { "" };
    let mut text = facts([
        ("name", report.name.clone()),
        ("nodes", format!("{}, {} isolated", units::count(report.nodes), units::count(edges.isolated_nodes))),
        ("edges", units::count(report.edges)),
        ("self-loops", units::count(edges.self_loops)),
        ("duplicates", counted(edges.duplicates)),
        ("no reverse", counted(edges.without_reverse)),
        ("in-degree", degrees(&edges.in_degree)),
        ("out-degree", degrees(&edges.out_degree)),
        ("features", units::count(report.features as u64)),
        (
            "classes",
            format!("{}{several}, {} unlabelled", report.classes, units::counted(report.unlabelled, "node")),
        ),
        (
            "splits",
            format!(
                "train {}, valid {}, test {}",
                units::count(report.splits.train as u64),
                units::count(report.splits.valid as u64),
                units::count(report.splits.test as u64)
            ),
        ),
    ]);
    for assumed in &report.assumed {
        text += &format!("\n\nassumed: {assumed}");
    }
    for Finding { severity, message } in &report.findings {
        text += &format!("\n\n{}: {message}", severity_name(*severity));
    }
    text + &format!("\n\n{}", verdict(report))
}

fn verdict(report: &Report) -> String {
    let count =
        |severity| report.findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    match (count(Severity::Error), count(Severity::Warning)) {
        (0, _) if report.learnable == 0 => "nothing wrong, but no classes to learn".to_owned(),
        (0, 0) => "ready to train on".to_owned(),
        (0, warnings) => format!("ready to train on, with {}", units::counted(warnings, "warning")),
        (errors, _) => format!("not fit to train on: {}", units::counted(errors, "error")),
    }
}

fn degrees(degrees: &Degrees) -> String {
    format!(
        "{:.2} on average, {} at most ({})",
        degrees.mean,
        units::count(degrees.max),
        degrees.max_name.as_ref().map_or(format!("node {}", degrees.max_node), |name| format!("`{name}`"))
    )
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_graph::progress::Silent;
    use archipelago_graph::synthetic::small;

    #[test]
    fn a_graph_without_labels_is_not_called_ready_to_train_on() {
        let mut dataset = small::bare("bare", 2, &[(0, 1), (1, 0)]);
        let text = describe(&check::check(&mut dataset, &Silent).unwrap());
        assert!(text.contains("edges it can (`--set train.task=link`)"), "{text}");
        assert!(text.ends_with("\n\nnothing wrong, but no classes to learn"), "{text}");
    }

    #[test]
    fn the_busiest_node_is_called_as_the_user_does() {
        let mut dataset = small::bare("named", 3, &[(0, 1), (2, 1)]);
        dataset.names = Some(["ann", "bob", "eve"].map(str::to_owned).to_vec());
        let text = describe(&check::check(&mut dataset, &Silent).unwrap());
        assert!(text.contains("2 at most (`bob`)"), "{text}");
    }
}
