//! The built program, as a user meets it: what it adds stands beside what `archi` has, in every command.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the program adds: the table of each, and its name.
const ADDED: [(&str, &str); 4] =
    [("models", "filtered"), ("partitioners", "snake"), ("samplers", "latest"), ("strategies", "tides")];

/// A folder of its own, and `own-archi` started in it.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A small graph in so many parts by the program's own partitioner.
    fn with_store(parts: u32) -> Self {
        let bench = Self::new();
        bench.done("generate sbm --nodes 1500 --edges 15000 --features 16 --classes 4 --out data");
        bench.done(&format!("partition data --parts {parts} --method snake --out store"));
        bench
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_own-archi"));
        command.args(line.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its stdout.
    fn done(&self, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "own-archi {line}\n{errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.done(&format!("{line} --json"))).unwrap()
    }

    /// Runs a command that must be refused, and returns what it says.
    fn refused(&self, line: &str) -> String {
        let output = self.run(line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "own-archi {line}\n{errors}");
        errors
    }

    /// The summary of a run on the store with these settings.
    fn trained(&self, settings: &str, out: &str) -> Value {
        self.json(&format!("train --data store --epochs 12 {settings} --out {out}"))
    }

    fn start(&self, line: &str) -> Child {
        self.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

fn digest(summary: &Value) -> &str {
    summary["weights_sha256"].as_str().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn additions_are_listed_after_what_is_built_in() {
    let bench = Bench::new();
    let (text, tables) = (bench.done("list"), bench.json("list"));
    for (table, name) in ADDED {
        let lines = tables[table].as_array().unwrap();
        assert!(lines.len() > 3, "{table}: {lines:?}");
        assert_eq!(lines.last().unwrap()["name"], name);
        let summary = lines.last().unwrap()["summary"].as_str().unwrap();
        assert!(text.contains(summary), "`{summary}` is not listed:\n{text}");
    }
    let snake = bench.done("list partitioners snake");
    assert!(snake.contains("O(nodes)") && snake.contains("`in` or `both`"), "{snake}");
}

#[test]
fn a_graph_is_cut_learned_and_scored_with_additions() {
    let bench = Bench::with_store(3);
    let store = bench.json("inspect store");
    assert_eq!(store["partition"]["method"], "snake", "{store}");
    let summary = bench.trained("--model filtered --strategy tides", "run");
    assert_eq!((&summary["model"], &summary["strategy"]), (&"filtered".into(), &"tides".into()));
    let score = number(&summary["test_score"]);
    assert!(score > 0.8, "one in four is chance, found {score}");
    let evaluated = bench.json("evaluate run");
    assert_eq!(number(&evaluated["test"]), score, "{evaluated}");
    bench.done("infer run --out predictions.csv");
    let predictions = std::fs::read_to_string(bench.0.path().join("predictions.csv")).unwrap();
    assert_eq!(predictions.lines().count(), 1501);
}

#[test]
fn an_own_sampler_draws_for_every_strategy_with_batches() {
    let bench = Bench::with_store(2);
    let settings = "--model filtered --set train.batch_size=64 --set train.fanouts=[4,4]";
    let latest = format!("{settings} --set train.sampler=latest");
    let by_distdgl = bench.trained(&format!("{latest} --strategy distdgl"), "distdgl");
    assert!(number(&by_distdgl["test_score"]) > 0.8, "{by_distdgl}");
    let by_bytegnn = bench.trained(&format!("{latest} --strategy bytegnn"), "bytegnn");
    assert_eq!(digest(&by_distdgl), digest(&by_bytegnn), "the two draw the same batches");
    let by_chance = bench.trained(&format!("{settings} --strategy distdgl"), "neighbor");
    assert_ne!(digest(&by_distdgl), digest(&by_chance));
}

#[test]
fn an_own_layer_on_several_parts_makes_the_steps_of_one() {
    let bench = Bench::with_store(4);
    bench.done("partition data --parts 1 --out whole");
    for settings in
        ["", "--set model.dropout=0.4 --set model.norm=batch", "--set data.features=row-normalized"]
    {
        let line = format!("train --model filtered --epochs 5 {settings} --out run{}", settings.len());
        let parts = bench.json(&format!("{line}-4 --data store"));
        let whole = bench.json(&format!("{line}-1 --data whole"));
        let [found, expected] = [&parts, &whole].map(|summary| number(&summary["train_loss"]));
        assert!((found / expected - 1.0).abs() < 1e-4, "{found} instead of {expected} with `{settings}`");
    }
}

#[test]
fn an_own_layer_is_trained_by_every_strategy() {
    let bench = Bench::with_store(2);
    let strategies = bench.json("list strategies");
    let names = strategies.as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap());
    for name in names.filter(|name| *name != "mini") {
        let line = format!("train --data store --model filtered --strategy {name} --epochs 4 --out {name}");
        let summary = bench.json(&line);
        assert!(number(&summary["test_score"]) > 0.4, "one in four is chance: {summary}");
    }
}

#[test]
fn tides_without_ebb_are_full_and_with_ebb_send_less() {
    let bench = Bench::with_store(3);
    let rows = |summary: &Value| {
        let of_parts = summary["exchange"]["messages_per_step"].as_array().unwrap();
        of_parts.iter().map(number).sum::<f64>()
    };
    let full = bench.trained("--model filtered --strategy full", "full");
    for epochs in [0, 1, 3] {
        let line = format!("--model filtered --strategy tides --set exchange.stale_epochs={epochs}");
        let tides = bench.trained(&line, &format!("tides-{epochs}"));
        assert_eq!(digest(&tides) == digest(&full), epochs == 0);
        assert_eq!(rows(&tides) * f64::from(epochs + 1), rows(&full), "stale_epochs = {epochs}");
    }
}

#[test]
fn a_killed_run_with_additions_is_resumed_to_the_same_bits() {
    let bench = Bench::with_store(3);
    let line = "train --data store --model filtered --strategy tides --set exchange.stale_epochs=4 \
                --epochs 300 --set output.checkpoint_every=3 --set train.eval_every=0";
    let whole = bench.json(&format!("{line} --out whole"));
    let mut child = bench.start(&format!("{line} --out run"));
    let (run, started) = (bench.0.path().join("run"), Instant::now());
    while !run.join("checkpoint/last/manifest.json").exists() {
        assert!(started.elapsed() < Duration::from_secs(50), "there was no checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!run.join("summary.json").exists(), "the run was over before it could be killed");
    assert_eq!(digest(&bench.json("resume run")), digest(&whole));
}

#[test]
fn additions_are_suggested_and_checked_like_what_is_built_in() {
    let bench = Bench::with_store(2);
    for (line, meant) in [
        ("train --data store --model filterd --out run", "filtered"),
        ("train --data store --strategy tide --out run", "tides"),
        ("train --data store --set strategy.name=tidse --out run", "tides"),
        ("train --data store --strategy distdgl --set train.sampler=lates --out run", "latest"),
        ("train --data data --set data.partitioner=snaek --out run", "snake"),
        ("partition data --parts 2 --method snakes --out other", "snake"),
        ("partition data --parts 2 --method snake --set degree=in --out other", "degrees"),
        ("list models filter", "filtered"),
    ] {
        let message = bench.refused(line);
        assert!(message.contains(&format!("did you mean `{meant}`?")), "own-archi {line}\n{message}");
    }
    let message = bench.refused("train --data store --set exchange.stale_epochs=4 --out run");
    assert!(message.contains("strategies that read it: ") && message.contains("`tides`"), "{message}");
    let message = bench.refused("partition data --parts 2 --method snake --set degrees=out --out other");
    assert!(message.contains("expected `in` or `both`, found `out`"), "{message}");
}

#[test]
fn plans_know_own_models_and_say_that_they_leave_own_strategies_out() {
    let bench = Bench::with_store(2);
    let plan = bench.json("plan --data store --memory 1G --model filtered");
    assert_eq!(plan["unplanned"], serde_json::json!(["tides"]));
    assert!(plan["strategies"].as_array().unwrap().iter().all(|found| found["strategy"] != "tides"));
    let text = bench.done("plan --data store --memory 1G");
    assert!(text.contains("not planned, as what they cost is not known: tides"), "{text}");
    let message = bench.refused("plan --data store --memory 1G --strategies tides");
    assert!(message.contains("what strategy `tides` costs is not known"), "{message}");
}
