//! From nothing to a verified store.

use crate::bench::{Bench, finish, signal, wait_until};
use std::fs;
use std::time::Duration;

#[test]
fn a_graph_is_made_checked_cut_and_verified() {
    insta::assert_snapshot!(Bench::new().transcript(&[
        "generate sbm --nodes 600 --edges 6000 --features 8 --classes 3 --seed 1 --out data",
        "check data",
        "inspect data",
        "partition data --parts 3 --method random --seed 2 --out store",
        "inspect store",
        "verify store",
    ]));
}

#[test]
fn an_edge_list_is_converted_with_what_was_assumed_said() {
    let bench = Bench::new();
    fs::write(bench.path("edges.csv"), "a,b\nb,c\nc,a\n").unwrap();
    insta::assert_snapshot!(bench.transcript(&["convert edges.csv graph --undirected", "inspect graph"]));
}

#[test]
fn splits_are_drawn_among_labelled_nodes() {
    let bench = Bench::new();
    fs::create_dir(bench.path("data")).unwrap();
    let edges: String = (0..40).map(|node| format!("{node},{}\n", (node + 1) % 40)).collect();
    let labels: String =
        (0..40).map(|node| format!("{node},{}\n", ["cat", "dog", "", "cat"][node % 4])).collect();
    fs::write(bench.path("data/edges.csv"), format!("src,dst\n{edges}")).unwrap();
    fs::write(bench.path("data/nodes.csv"), format!("id,label\n{labels}")).unwrap();
    let lacking = bench.archi("train --data data --out run");
    assert!(
        lacking.code == Some(2) && lacking.stderr.contains("--draw-split 60,20,20"),
        "{}",
        lacking.stderr
    );

    let drawn = bench.done("convert data graph --draw-split 60,20,20 --seed 3");
    assert!(drawn.stderr.contains("drew train 18, valid 6, test 6"), "{}", drawn.stderr);
    bench.done("train --data graph --epochs 2 --out run");
    bench.done("convert data again --draw-split 60,20,20 --seed 3");
    let train = |folder: &str| fs::read(bench.path(folder).join("train_idx.npy")).unwrap();
    assert_eq!(train("graph"), train("again"));
    bench.done("convert data other --draw-split 60,20,20 --seed 4");
    assert_ne!(train("graph"), train("other"));

    for wrong in ["60,20", "60,40,20", "0,50,50", "a,b,c"] {
        let refused = bench.archi(&format!("convert data wrong --draw-split {wrong}"));
        assert_eq!(refused.code, Some(2), "{wrong}: {}", refused.stderr);
        assert!(refused.stderr.contains("such as `60,20,20`") && !bench.path("wrong").exists());
    }
}

#[test]
fn json_goes_to_stdout_and_nothing_else_does() {
    let bench = Bench::new();
    bench.communities(200);
    for line in
        ["check data --json", "inspect data --json", "partition data --parts 2 --method hash --out s --json"]
    {
        let stdout = bench.done(line).stdout;
        serde_json::from_str::<serde_json::Value>(&stdout)
            .unwrap_or_else(|error| panic!("{line}: {error}\n{stdout}"));
    }
    let report: serde_json::Value = serde_json::from_str(&bench.done("inspect s --json").stdout).unwrap();
    assert_eq!((&report["kind"], report["nodes"].as_u64()), (&"store".into(), Some(200)));
}

#[test]
fn a_damaged_store_is_found_out() {
    let bench = Bench::new();
    bench.communities(200);
    bench.done("partition data --parts 2 --method random --out store");
    let file = bench.path("store/part-00001/features.f32");
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let outcome = bench.archi("verify store");
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("part-00001/features.f32"), "{}", outcome.stderr);
}

#[test]
fn a_kill_during_partition_or_convert_leaves_nothing_or_the_whole_folder() {
    let bench = Bench::new();
    bench.done("generate uniform --nodes 20000 --edges 400000 --out data");
    for (at, millis) in [5, 20, 40, 80, 160].into_iter().enumerate() {
        let (store, folder) = (format!("store-{at}"), format!("folder-{at}"));
        let mut children = [
            bench.start(&format!("partition data --parts 8 --method random --out {store}")),
            bench.start(&format!("convert data {folder}")),
        ];
        std::thread::sleep(Duration::from_millis(millis));
        for child in &mut children {
            signal(child, "KILL");
            child.wait().unwrap();
        }
        if bench.path(&store).exists() {
            bench.done(&format!("verify {store}"));
        }
        if bench.path(&folder).exists() {
            bench.done(&format!("check {folder}"));
        }
    }
}

#[test]
fn an_interrupted_partition_exits_130_and_leaves_nothing() {
    let bench = Bench::new();
    bench.done("generate uniform --nodes 20000 --edges 1500000 --features 0 --out data");
    let names = || -> Vec<_> {
        let entries = fs::read_dir(bench.path("")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let child = bench.start("partition data --parts 64 --method random --out store");
    wait_until("the half-written store", || names().iter().any(|name| name.starts_with(".archi-")));
    signal(&child, "TERM");
    let outcome = finish(child);
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert_eq!(names(), ["data"]);
}
