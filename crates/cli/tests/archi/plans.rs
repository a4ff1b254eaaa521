//! Everything that users see of plans.

use crate::bench::{Bench, Outcome};
use serde_json::Value;
use std::fs;

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap()
}

const SOME: &str = "--strategies full,emma,mini,distdgl,grappa,sdt --set train.threads=2 --model sage";

#[test]
fn a_graph_is_planned_for_before_it_is_made() {
    let bench = Bench::new();
    insta::assert_snapshot!(bench.transcript(&[
        &format!("plan --graph rmat --scale 20 --parts 8 --workers 2 --memory 4G --bandwidth 1gbit {SOME}"),
        &format!("plan --graph rmat --scale 26 --parts 64 --workers 2 --memory 2GiB --disk 1GB/s {SOME}"),
        "plan --nodes 1000 --edges 9000 --memory 1M --strategies mini --set train.threads=1",
    ]));
}

#[test]
fn mistakes_are_named_before_anything_is_read() {
    let bench = Bench::new();
    bench.communities(200);
    fs::write(bench.path("rates.json"), "{\"flop\": 1}").unwrap();
    fs::write(bench.path("none.json"), "{\"flops\": 0}").unwrap();
    let shown = bench.transcript(&[
        "plan",
        "plan --data nowhere",
        "plan --data data",
        "plan --graph ramt --scale 20",
        "plan --graph rmat --nodes 1000",
        "plan --nodes 1000",
        "plan --graph rmat --scale 20 --parts 0",
        "plan --graph rmat --scale 20 --parts 2 --workers 4",
        "plan --graph rmat --scale 20 --train-share 2",
        "plan --graph rmat --scale 20 --bandwidth fast",
        "plan --graph rmat --scale 20 --model sega",
        "plan --graph rmat --scale 20 --memory 1G --strategies fill",
        "plan --graph rmat --scale 20 --set train.task=link",
        "plan --graph rmat --scale 20 --rates rates.json",
        "plan --graph rmat --scale 20 --rates none.json",
        "plan --calibrate data",
    ]);
    let codes = shown.lines().filter(|line| line.starts_with("--- exit code"));
    assert!(codes.into_iter().all(|line| line == "--- exit code 2"), "{shown}");
    // The table of strategies grows.
    insta::assert_snapshot!(shown.replace(&list(&bench), "[STRATEGIES]"));
}

/// The names of all strategies, as messages list them.
fn list(bench: &Bench) -> String {
    let lines = json(&bench.done("list strategies --json"));
    let names = lines.as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap());
    names.collect::<Vec<_>>().join(", ")
}

#[test]
fn every_strategy_of_the_table_is_planned_for_a_store() {
    let bench = Bench::new();
    bench.communities(600);
    bench.done("partition data --parts 3 --method random --out store");
    let plan = json(&bench.done("plan --data store --memory 1G --workers 3 --set train.threads=2 --json"));
    let strategies = plan["strategies"].as_array().unwrap();
    let names: Vec<&str> = strategies.iter().map(|found| found["strategy"].as_str().unwrap()).collect();
    assert_eq!(names.join(", "), list(&bench));
    for found in strategies {
        let seconds = found["seconds"].as_object().unwrap();
        assert!(seconds["total"].as_f64().unwrap() > 0.0, "{found}");
        assert!(found["memory"]["total_bytes"].as_u64().unwrap() > 0, "{found}");
    }
    let best = plan["recommended"].as_str().unwrap();
    assert!(names.contains(&best));
    assert_eq!(plan["graph"]["train"], 120.0);
}

#[test]
fn rates_are_learned_from_a_run_and_used() {
    let bench = Bench::new();
    bench.communities(600);
    for strategy in ["full", "distdgl"] {
        let flags = "--data data --parts 2 --epochs 3 --set train.batch_size=32";
        bench.done(&format!("train {flags} --strategy {strategy} --out {strategy}"));
    }
    let shown = bench.done("plan --calibrate full distdgl").stdout;
    assert!(shown.contains("rates of a core: "), "{shown}");
    let learned = json(&bench.done("plan --calibrate full distdgl --json"));
    let runs = learned["runs"].as_array().unwrap();
    for run in runs {
        let [predicted, measured] =
            ["predicted_bytes", "measured_bytes"].map(|key| run[key].as_f64().unwrap());
        assert!((predicted / measured - 1.0).abs() < 0.25, "{run}");
    }
    fs::write(bench.path("rates.json"), learned["rates"].to_string()).unwrap();
    let plan = json(&bench.done("plan --nodes 1000 --edges 9000 --memory 1G --rates rates.json --json"));
    assert_eq!(plan["rates"], learned["rates"]);
}
