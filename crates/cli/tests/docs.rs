//! What the documents say is what the program does: their tables come from the program's, their paths exist.
//!
//! `UPDATE_DOCS=1 cargo test -p archipelago --test docs` writes the tables anew.

#![allow(clippy::unwrap_used, reason = "a document that cannot be read is a failed test")]

use archipelago_graph::partition::settings::expected;
use archipelago_graph::partition::{Entry, Memory, PARTITIONERS};
use archipelago_graph::read::FORMATS;
use archipelago_graph::sample::SAMPLERS;
use archipelago_graph::synthetic::GENERATORS;
use archipelago_train::batch::negative::NEGATIVES;
use archipelago_train::decoder::DECODERS;
use archipelago_train::event::{
    BatchFacts, BytesSent, EpochReport, Evaluation, Event, Exchange, IslandReport, MemoryNeed, RankHealth,
    Sampling, Started, Summary,
};
use archipelago_train::metric::Metric;
use archipelago_train::model::MODELS;
use archipelago_train::run::{Key, RunConfig};
use archipelago_train::strategy::STRATEGIES;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// A table in Markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    let rule = vec!["---".to_owned(); head.len()];
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    line(&head) + &line(&rule) + &rows
}

/// Compares what stands between `<!-- name:begin -->` and `<!-- name:end -->`, or writes it when asked to.
fn check(file: &str, name: &str, expected: &str) {
    let text = read(file);
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let from = text.find(&begin).unwrap_or_else(|| panic!("{file} has no place for `{name}`")) + begin.len();
    let to = from + text[from..].find(&end).unwrap_or_else(|| panic!("`{name}` has no end in {file}"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(file), format!("{}{expected}{}", &text[..from], &text[to..])).unwrap();
        return;
    }
    assert_eq!(&text[from..to], expected, "`{name}` in {file} is out of date: run with UPDATE_DOCS=1");
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_run_file_page_lists_every_key_with_its_default() {
    for section in RunConfig::SECTIONS {
        let keys = RunConfig::keys().into_iter().filter(|key| key.section == section);
        let row = |key: Key| vec![code(key.name), code(&key.default), key.expected, key.doc.to_owned()];
        check(
            "docs/run-file.md",
            section,
            &table(&["key", "default", "value", "what it says"], keys.map(row)),
        );
    }
}

#[test]
fn the_readme_lists_what_there_is_to_choose_from() {
    let named = ["name", "what it is", "paper"];
    let row = |name: &str, summary: &str, paper: &str| vec![code(name), summary.to_owned(), paper.to_owned()];
    let models = MODELS.iter().map(|entry| row(entry.name, entry.summary, entry.paper));
    check("README.md", "models", &table(&named, models));
    let strategies = STRATEGIES.iter().map(|entry| row(entry.name, entry.summary, entry.paper));
    check("README.md", "strategies", &table(&named, strategies));
    let samplers = SAMPLERS.iter().map(|entry| row(entry.name, entry.summary, entry.paper));
    check("README.md", "samplers", &table(&named, samplers));
    let decoders = DECODERS.iter().map(|entry| row(entry.name, entry.summary, entry.paper));
    check("README.md", "decoders", &table(&named, decoders));
    let negatives = NEGATIVES.iter().map(|entry| row(entry.name, entry.summary, entry.paper));
    check("docs/mini-batches.md", "negatives", &table(&named, negatives));
    let formats = FORMATS.iter().map(|format| vec![code(format.name), format.summary.to_owned()]);
    check("README.md", "formats", &table(&named[..2], formats));
    let partitioners = PARTITIONERS.iter().map(|entry| vec![code(entry.name), entry.summary.to_owned()]);
    check("README.md", "partitioners", &table(&named[..2], partitioners));
}

#[test]
fn the_partitioning_page_lists_every_method_and_setting() {
    let method = |entry: &Entry| {
        let memory = match entry.memory {
            Memory::Nodes => "O(nodes)",
            Memory::Graph => "whole graph",
        };
        let places = if (entry.build)().edges().is_some() { "edges" } else { "nodes" };
        let [summary, paper] = [entry.summary, entry.paper].map(str::to_owned);
        vec![code(entry.name), summary, memory.to_owned(), places.to_owned(), paper]
    };
    let head = ["name", "what it is", "memory", "places", "paper"];
    check("docs/partitioning.md", "methods", &table(&head, PARTITIONERS.iter().map(method)));
    let settings = PARTITIONERS.iter().flat_map(|entry| {
        let row = |s: &archipelago_graph::partition::Setting| {
            vec![code(entry.name), code(s.name), code(s.default), expected(s.values), s.about.to_owned()]
        };
        entry.settings.iter().map(row).collect::<Vec<_>>()
    });
    let head = ["method", "setting", "default", "value", "what it is"];
    check("docs/partitioning.md", "settings", &table(&head, settings));
}

#[test]
fn the_formats_page_has_a_section_for_every_format_and_generator() {
    let page = read("docs/formats.md");
    for format in FORMATS {
        assert!(page.contains(&format!("\n## `{}`", format.name)), "{} has no section", format.name);
    }
    for generator in GENERATORS {
        assert!(page.contains(&code(generator.name)), "{} is not named", generator.name);
    }
}

/// One event of every kind, with every field present.
fn every_event() -> Vec<Event> {
    let mut memory = MemoryNeed::default();
    memory.add("weights", 1);
    let metric = Metric::Accuracy;
    let evaluation =
        Evaluation { epoch: 1, metric, train: None, valid: None, test: None, exact: true, secs: 0.0 };
    let bytes_sent = BytesSent::default();
    let epoch = EpochReport {
        epoch: 1,
        step: 1,
        loss: 0.0,
        lr: 0.0,
        secs: 0.0,
        cpu_secs: 0.0,
        bytes_sent,
        sampling: Some(Sampling { hit_rate: Some(0.0), reuse_rate: Some(0.0), ..Sampling::default() }),
        exchange: Some(Exchange::default()),
        islands: Some(IslandReport { coverage: Some(0.0), ..IslandReport::default() }),
        health: vec![RankHealth::default()],
        evaluation: Some(evaluation.clone()),
    };
    vec![
        Event::Started(Box::new(Started {
            memory,
            batches: Some(BatchFacts::default()),
            ..Started::default()
        })),
        Event::Resumed { epoch: 1 },
        Event::Epoch(Box::new(epoch)),
        Event::Evaluation(evaluation),
        Event::Checkpoint { path: "run".into(), epoch: 1 },
        Event::StoppedEarly { epoch: 1, best_epoch: 1, patience: 1 },
        Event::Interrupted { epoch: 1 },
        Event::Warning { message: String::new() },
        Event::Finished(Box::new(summary())),
    ]
}

fn summary() -> Summary {
    Summary {
        strategy: String::new(),
        model: String::new(),
        dataset: String::new(),
        parts: 1,
        processes: 1,
        threads: 1,
        seed: 0,
        epochs: 1,
        best_epoch: 1,
        valid_score: None,
        test_score: None,
        metric: Metric::Accuracy,
        exact_evaluation: true,
        train_loss: 0.0,
        epoch_secs_median: 0.0,
        epoch_cpu_secs_median: 0.0,
        wall_secs: 0.0,
        peak_rss_bytes: 0,
        bytes_sent: BytesSent::default(),
        sampling: None,
        exchange: None,
        islands: None,
        weights_sha256: String::new(),
    }
}

/// The names of all fields, at any depth.
fn fields(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, value)| {
            found.push(name.clone());
            fields(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

#[test]
fn the_outputs_page_names_every_event_and_every_field() {
    let page = read("docs/outputs.md");
    for event in every_event() {
        let json = serde_json::to_value(&event).unwrap();
        let mut names = vec![json["event"].as_str().unwrap().to_owned()];
        fields(&json, &mut names);
        for name in names {
            assert!(page.contains(&code(&name)), "`{name}` of {json} is not in docs/outputs.md");
        }
    }
}

#[test]
fn the_outputs_page_names_every_file_of_a_store() {
    let page = read("docs/outputs.md");
    let store = root().join("crates/graph/tests/data/store-v1");
    for folder in [store.clone(), store.join("part-00000")] {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert!(
                entry.path().is_dir() || page.contains(&code(&name)),
                "`{name}` is not in docs/outputs.md"
            );
        }
    }
}

const PAGES: [&str; 12] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/formats.md",
    "docs/run-file.md",
    "docs/outputs.md",
    "docs/partitioning.md",
    "docs/mini-batches.md",
    "docs/cluster.md",
    "docs/scale.md",
    "docs/extending.md",
    "examples/own-archi/README.md",
];

#[test]
fn every_path_and_link_in_the_documents_leads_somewhere() {
    for page in PAGES {
        let text = read(page);
        let here = root().join(page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://") && !link.starts_with('#')) {
            let file = link.split('#').next().unwrap_or_default();
            assert!(here.parent().unwrap().join(file).exists(), "{page} links to `{link}`");
        }
        let paths =
            text.split('`').filter(|word| word.starts_with("crates/") || word.starts_with("examples/"));
        for path in paths.filter(|path| !path.contains("NAME")) {
            assert!(root().join(path).exists(), "{page} names `{path}`");
        }
    }
}
