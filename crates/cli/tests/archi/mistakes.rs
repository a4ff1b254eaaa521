//! What a user who got something wrong is told.

use crate::bench::Bench;
use archipelago_graph::partition::PARTITIONERS;
use std::fs;

#[test]
fn every_mistake_is_named_with_a_remedy_and_exits_2() {
    let bench = Bench::new();
    bench.communities(200);
    fs::write(bench.path("bad.csv"), "0,1\n1,x y\n").unwrap();
    fs::write(bench.path("run.toml"), "[train]\nepochs = 5\nlearning_rate = 0.1\n").unwrap();
    fs::write(bench.path("parts.part.2"), "0\n1\n7\n").unwrap();
    bench.done("partition data --parts 2 --method random --out store");
    let shown = bench.transcript(&[
        "inspect nowhere",
        "check nowhere",
        "partition data --parts 2 --method randon --out other",
        "partition data --parts 0 --method random --out other",
        "partition data --parts 2 --method random --out store",
        "partition data --parts 2 --part-file parts.part.2 --out other",
        "generate smb --out other",
        "train run.toml --data store --out run",
        "train --data store --model gnc --out run",
        "train --data store --strategy ful --out run",
        "train --data store --epochs 0 --out run",
        "train --data store --set train.lr=fast --out run",
        "train --data store --parts 3 --out run",
        "train --data store --processes 2 --out run",
        "train --data store",
        "train --out run",
        "resume data",
        "infer data --out predictions.txt",
        "verify data",
        "lst",
    ]);
    // Methods come and go; what is said of them does not.
    let methods: Vec<&str> = PARTITIONERS.iter().map(|entry| entry.name).collect();
    let shown = shown.replace(&methods.join(", "), "[METHODS]");
    insta::assert_snapshot!(shown);
    let codes = shown.lines().filter(|line| line.starts_with("--- exit code"));
    assert!(codes.into_iter().all(|line| line == "--- exit code 2"));
    assert!(!bench.path("other").exists() && !bench.path("run").exists());
}

#[test]
fn an_id_out_of_range_is_named_with_its_place() {
    let bench = Bench::new();
    bench.done("generate path --nodes 5 --out data");
    let file = bench.path("data/edge_index.npy");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 8;
    bytes[last..].copy_from_slice(&99i64.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    insta::assert_snapshot!(
        bench.transcript(&["check data", "partition data --parts 2 --method hash --out store"])
    );
}

#[test]
fn a_dataset_that_is_not_fit_to_train_on_is_reported_on_stdout_with_exit_code_2() {
    let bench = Bench::new();
    bench.communities(100);
    let file = bench.path("data/x.npy");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let outcome = bench.archi("check data");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(2), ""));
    assert!(outcome.stdout.contains("error: ") && outcome.stdout.contains("NaN"), "{}", outcome.stdout);
    assert!(outcome.stdout.ends_with("not fit to train on: 1 error\n"), "{}", outcome.stdout);
}
