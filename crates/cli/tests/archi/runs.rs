//! Training, evaluating and predicting.

use crate::bench::{Bench, epochs};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use std::fs;

#[test]
fn a_run_leaves_everything_that_scripts_rely_on() {
    let bench = Bench::new();
    bench.communities(400);
    let outcome = bench.done("train --data data --parts 2 --epochs 4 --out run --json");
    let summary: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((summary["epochs"].as_u64(), summary["parts"].as_u64()), (Some(4), Some(2)));
    let lines = outcome.stderr.lines().filter(|line| line.starts_with("epoch "));
    assert_eq!(lines.count(), 4, "{}", outcome.stderr);
    for file in ["run.toml", "events.jsonl", "summary.json", "checkpoint/last", "checkpoint/best", "store"] {
        assert!(bench.path("run").join(file).exists(), "{file} is missing");
    }
    assert_eq!(epochs(&bench.path("run")), 4);
    for path in ["run", "run/checkpoint/best", "run/events.jsonl", "run/run.toml", "run/summary.json"] {
        bench.done(&format!("inspect {path} --json"));
    }

    let again = bench.archi("train --data data --epochs 4 --out run");
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("archi resume run"), "{}", again.stderr);
    let finished = bench.done("resume run");
    assert!(finished.stderr.contains("finished already"), "{}", finished.stderr);
}

#[test]
fn the_same_bits_come_out_for_any_number_of_threads() {
    let bench = Bench::new();
    bench.communities(400);
    bench.done("partition data --parts 3 --method random --out store");
    bench.done("train --data store --epochs 3 --threads 1 --out one");
    bench.done("train --data store --epochs 3 --threads 4 --out four");
    assert_eq!(bench.digest("one"), bench.digest("four"));
}

#[test]
fn mini_batches_across_parts_give_the_same_bits_whoever_schedules_them() {
    let bench = Bench::new();
    bench.communities(400);
    let line = "train --data data --parts 3 --model sage --epochs 3 --set train.batch_size=16 --set train.fanouts=[5,3]";
    bench.done(&format!("{line} --strategy distdgl --threads 1 --out distdgl"));
    bench.done(&format!("{line} --strategy bytegnn --threads 3 --set train.prefetch=4 --out bytegnn"));
    assert_eq!(bench.digest("distdgl"), bench.digest("bytegnn"));
    let sampling = ["distdgl", "bytegnn"].map(|run| {
        let summary = fs::read_to_string(bench.path(run).join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        assert_eq!(summary["strategy"], run);
        let sampling = summary["sampling"].clone();
        let rates =
            "hit_rate reuse_rate draw_secs fetch_secs sampler_stall_secs trainer_stall_secs queue_mean cpu_busy";
        for rate in rates.split(' ') {
            assert!(sampling[rate].is_f64(), "{rate} is missing in {sampling}");
        }
        ["batches", "edges", "rows", "remote_rows"].map(|count| sampling[count].as_u64().unwrap())
    });
    assert_eq!(sampling[0], sampling[1]);
    let [batches, edges, rows, remote] = sampling[0];
    assert!(batches % 3 == 0 && edges > 0 && rows > remote && remote > 0, "{:?}", sampling[0]);

    let refused = bench.archi("train --data data --parts 3 --strategy mini --epochs 3 --out mini");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let hint = "hint: use strategy `distdgl` or `bytegnn` on several parts";
    assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    assert!(!bench.path("mini").exists(), "something was left behind");
}

#[test]
fn print_config_shows_a_run_file_that_gives_the_same_run() {
    let bench = Bench::new();
    let shown = bench.done("train --model gat --seed 7 --set model.heads=4 --print-config").stdout;
    fs::write(bench.path("run.toml"), &shown).unwrap();
    assert_eq!(bench.done("train run.toml --print-config").stdout, shown);
    assert!(shown.contains("\nname = \"gat\"\n") && shown.contains("\nheads = 4\n"), "{shown}");
}

#[test]
fn classes_that_were_words_are_predicted_as_words() {
    let bench = Bench::new();
    fs::create_dir(bench.path("trees")).unwrap();
    // Two rings of two kinds of tree; the label of every third is known.
    let (mut edges, mut nodes) = ("source,target\n".to_owned(), "id,label,split,height,girth\n".to_owned());
    for node in 0..60 {
        edges += &format!("{node},{}\n{node},{}\n", (node + 2) % 60, (node + 4) % 60);
        let (label, size) = if node % 2 == 0 { ("oak", "0.3,1.2") } else { ("silver fir", "1.5,0.2") };
        let split = if node % 3 == 0 { "train" } else { "test" };
        nodes += &format!("{node},{label},{split},{size}\n");
    }
    fs::write(bench.path("trees/edges.csv"), edges).unwrap();
    fs::write(bench.path("trees/nodes.csv"), nodes).unwrap();
    bench.done("convert trees folder --undirected");
    bench.done("train --data folder --parts 2 --epochs 40 --out run");
    bench.done("infer run --out p.csv");
    let text = fs::read_to_string(bench.path("p.csv")).unwrap();
    let found: Vec<&str> = text.lines().skip(1).map(|line| line.split_once(',').unwrap().1).collect();
    assert_eq!(found.len(), 60);
    let right = found.iter().enumerate().filter(|(node, class)| **class == ["oak", "silver fir"][node % 2]);
    assert!(right.count() > 50, "{text}");
}

#[test]
fn predictions_agree_in_all_formats_and_are_in_the_users_order() {
    let bench = Bench::new();
    bench.communities(400);
    bench.done("partition data --parts 3 --method random --out store");
    bench.done("train --data store --epochs 8 --out run");
    for file in ["p.csv", "p.npy", "p.parquet"] {
        bench.done(&format!("infer run --out {file}"));
    }
    bench.done("infer run --scores --embeddings --out all.csv");
    bench.done("infer run --embeddings --out e.npy");
    assert_eq!(bench.archi("infer run --scores --embeddings --out both.npy").code, Some(2));
    assert!(bench.done("inspect e.npy").stdout.contains("(400, 64)"));

    let text = fs::read_to_string(bench.path("p.csv")).unwrap();
    let rows: Vec<(i64, i64)> = text.lines().skip(1).map(pair).collect();
    assert!(rows.iter().enumerate().all(|(at, (node, _))| at as i64 == *node));
    let classes: Vec<i64> = rows.iter().map(|(_, class)| *class).collect();
    assert_eq!(npy(&bench, "p.npy"), classes);
    assert_eq!(parquet(&bench, "p.parquet"), rows);
    let all = fs::read_to_string(bench.path("all.csv")).unwrap();
    assert_eq!(all.lines().skip(1).map(|line| pair(line).1).collect::<Vec<_>>(), classes);

    // Row i is node i: the share of right answers on the test nodes is the score that `evaluate` gives.
    let (labels, test) = (npy(&bench, "data/y.npy"), npy(&bench, "data/test_idx.npy"));
    let right = test.iter().filter(|&&node| labels[node as usize] == classes[node as usize]).count();
    let scores: serde_json::Value = serde_json::from_str(&bench.done("evaluate run --json").stdout).unwrap();
    assert_eq!(scores["test"].as_f64().unwrap(), right as f64 / test.len() as f64);
    assert!(right * 2 > test.len(), "only {right} of {} are right", test.len());
}

#[test]
fn a_run_in_turns_stays_within_the_memory_that_it_stated() {
    let bench = Bench::new();
    bench.done("generate sbm --nodes 16000 --edges 32000 --features 1024 --classes 4 --out data");
    bench.done("partition data --parts 16 --method random --out store");
    let summary = bench.done(
        "train --data store --strategy grappa --model sage --epochs 1 --set train.batch_size=256 \
         --set train.fanouts=[2,2] --set residency.resident=1 --out run --json",
    );
    let summary: serde_json::Value = serde_json::from_str(&summary.stdout).unwrap();
    let events = fs::read_to_string(bench.path("run/events.jsonl")).unwrap();
    let started: serde_json::Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    let (peak, stated) = (summary["peak_rss_bytes"].as_u64(), started["memory"]["total_bytes"].as_u64());
    // Evaluation reads all of the store, whose features alone are 65 MB, for the halos of its parts.
    assert!(peak.unwrap() <= stated.unwrap(), "{peak:?} bytes, {stated:?} were stated");
}

/// Linux hands the peak of a process down to those that it starts.
#[test]
fn what_started_a_run_does_not_count_as_its_memory() {
    let bench = Bench::new();
    bench.communities(400);
    let large = std::hint::black_box(vec![1u8; 512 << 20]);
    let summary = bench.done("train --data data --model sage --epochs 1 --out run --json");
    drop(large);
    let summary: serde_json::Value = serde_json::from_str(&summary.stdout).unwrap();
    let peak = summary["peak_rss_bytes"].as_u64().unwrap();
    assert!((1..256 << 20).contains(&peak), "{peak} bytes");
}

#[test]
fn a_run_in_turns_is_evaluated_and_inferred_in_turns() {
    let bench = Bench::new();
    bench.communities(400);
    bench.done("partition data --parts 4 --method random --out store");
    for model in ["sage", "gat"] {
        let run = format!("run-{model}");
        bench.done(&format!(
            "train --data store --strategy grappa --model {model} --epochs 4 --set train.fanouts=[5,5] \
             --set residency.resident=2 --out {run}"
        ));
        let stated = "4 parts, in turn on 2 ranks; will need ";
        let evaluated = bench.done(&format!("evaluate {run} --json"));
        assert!(evaluated.stderr.starts_with(stated), "{}", evaluated.stderr);
        let infer = format!("infer {run} --scores --embeddings --out");
        let told = bench.done(&format!("{infer} turns.csv")).stderr;
        assert!(told.starts_with(stated) && told.contains("predictions "), "{told}");
        bench.done(&format!("infer {run} --out turns.npy"));
        bench.done(&format!("infer {run} --out turns.parquet"));
        let names = fs::read_dir(bench.path(&run)).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(".archi-")).collect();
        assert!(left.is_empty(), "{left:?} were left behind");

        // The same weights, with all parts at once.
        let file = bench.path(&run).join("run.toml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\nresident = 2\n"), "{text}");
        fs::write(&file, text.replace("\nresident = 2\n", "\nresident = 0\n")).unwrap();
        let told = bench.done(&format!("{infer} all.csv")).stderr;
        assert!(!told.contains("in turn"), "{told}");
        let (turns, all) = (numbers(&bench, "turns.csv"), numbers(&bench, "all.csv"));
        assert_eq!(turns.len(), 400 * (2 + 4 + 64));
        assert_eq!(turns.len(), all.len());
        for (found, expected) in turns.iter().zip(&all) {
            assert!(
                (found - expected).abs() <= 1e-4 * expected.abs().max(1.0),
                "{found} instead of {expected}"
            );
        }
        let rows = turns.chunks(2 + 4 + 64).map(|row| (row[0] as i64, row[1] as i64));
        let rows: Vec<(i64, i64)> = rows.collect();
        assert_eq!(parquet(&bench, "turns.parquet"), rows);
        assert_eq!(npy(&bench, "turns.npy"), rows.iter().map(|(_, class)| *class).collect::<Vec<_>>());
    }
}

#[test]
fn quickstart_shows_every_step_and_can_be_taken_again() {
    let bench = Bench::new();
    let first = bench.done("quickstart --nodes 1000 --epochs 5 --out tour");
    for typed in
        ["archi generate sbm", "archi partition", "archi train", "archi evaluate", "What to try next"]
    {
        assert!(first.stderr.contains(typed), "{typed} is missing in {}", first.stderr);
    }
    let again = bench.done("quickstart --nodes 1000 --epochs 5 --out tour");
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
    let digest = bench.digest("tour/run");
    bench.done("quickstart --nodes 1000 --epochs 5 --out tour --force");
    assert_eq!(bench.digest("tour/run"), digest);

    fs::write(bench.path("tour/mine.txt"), "precious").unwrap();
    assert_eq!(bench.archi("quickstart --out tour").code, Some(2));
}

/// Node and class of a line of csv.
fn pair(line: &str) -> (i64, i64) {
    let mut cells = line.split(',').map(|cell| cell.parse().unwrap());
    (cells.next().unwrap(), cells.next().unwrap())
}

/// All numbers of a csv, row by row.
fn numbers(bench: &Bench, name: &str) -> Vec<f64> {
    let text = fs::read_to_string(bench.path(name)).unwrap();
    text.lines().skip(1).flat_map(|line| line.split(',')).map(|cell| cell.parse().unwrap()).collect()
}

/// Node and class of every row.
fn parquet(bench: &Bench, name: &str) -> Vec<(i64, i64)> {
    let reader = SerializedFileReader::new(fs::File::open(bench.path(name)).unwrap()).unwrap();
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| (row.get_long(0).unwrap(), row.get_long(1).unwrap())).collect()
}

/// A one-dimensional array of int64.
fn npy(bench: &Bench, name: &str) -> Vec<i64> {
    let bytes = fs::read(bench.path(name)).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].chunks_exact(8).map(|number| i64::from_le_bytes(number.try_into().unwrap())).collect()
}
