//! Everything that users see of partitioning.

use crate::bench::{Bench, Outcome, finish, signal, wait_until};
use archipelago_graph::partition::PARTITIONERS;
use serde_json::Value;
use std::fs;

/// A graph of 600 nodes, the same every time.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.done("generate sbm --nodes 600 --edges 6000 --features 8 --classes 3 --seed 1 --out data");
    bench
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// A one-dimensional array of uint32.
fn npy(bench: &Bench, name: &str) -> Vec<u32> {
    let bytes = fs::read(bench.path(name)).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(String::from_utf8_lossy(&bytes[..start]).contains("'<u4'"));
    bytes[start..].chunks_exact(4).map(|number| u32::from_le_bytes(number.try_into().unwrap())).collect()
}

fn names(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.path("")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_dataset_is_cut_measured_and_drawn() {
    insta::assert_snapshot!(bench().transcript(&[
        "partition data --parts 3 --method hash --seed 2",
        "partition data --parts auto --memory 90kB --workers 2 --method random --part-of nodes.npy --out store",
        "partition data --parts auto --memory 1GiB --workers 2 --reserve 0.5 --method random --edge-parts edges.npy",
        "inspect nodes.npy",
        "inspect store",
        "inspect store --svg store.svg",
        "partition data --parts 12 --method random --out twelve",
        "inspect twelve",
        "partition data --parts 40 --method random --memory 8G --out forty",
        "inspect forty",
        "list partitioners random",
    ]));
}

#[test]
fn mistakes_are_named_before_anything_is_read_or_written() {
    let bench = bench();
    fs::write(bench.path("there.npy"), "").unwrap();
    let before = names(&bench);
    let shown = bench.transcript(&[
        "partition nowhere --parts many --method random",
        "partition nowhere --parts 0 --method random",
        "partition nowhere --parts 2 --method random --set tau=0.2",
        "partition nowhere --parts 2 --method random --set tau",
        "partition nowhere --parts 2 --method file",
        "partition nowhere --parts 2 --method random --balance trian",
        "partition nowhere --parts 2 --method random --part-of there.npy",
        "partition nowhere --parts 2 --method random --edge-parts edges.txt",
        "partition nowhere --parts 2 --method random --part-of x.npy --edge-parts x.npy",
        "partition nowhere --parts auto --memory 8X --method random",
        "partition nowhere --parts auto --workers 0 --method random",
        "partition data --parts auto --memory 1 --reserve 0.5 --method random",
        "partition data --parts auto --memory 8G --reserve 1 --method random",
        "inspect data --svg data.svg",
        "list partitioners randon",
        "train --data data --set data.partitioner=hash --set data.partition_settings=tau=1 --out run",
    ]);
    let methods: Vec<&str> = PARTITIONERS.iter().map(|entry| entry.name).collect();
    insta::assert_snapshot!(shown.replace(&methods.join(", "), "[METHODS]"));
    let codes = shown.lines().filter(|line| line.starts_with("--- exit code"));
    assert!(codes.into_iter().all(|line| line == "--- exit code 2"));
    assert_eq!(names(&bench), before);
}

#[test]
fn an_unknown_setting_is_answered_with_the_nearest() {
    for entry in PARTITIONERS.iter().filter(|entry| !entry.needs_file && !entry.settings.is_empty()) {
        let (method, setting) = (entry.name, entry.settings[0].name);
        let outcome =
            Bench::new().archi(&format!("partition x --parts 2 --method {method} --set {setting}s=1"));
        assert_eq!(outcome.code, Some(2), "{method}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains(&format!("did you mean `{setting}`?")),
            "{method}: {}",
            outcome.stderr
        );
        let outcome =
            Bench::new().archi(&format!("partition x --parts 2 --method {method} --set {setting}=?"));
        assert!(outcome.stderr.contains(&format!("setting `{setting}` of")), "{method}: {}", outcome.stderr);
    }
}

#[test]
fn json_has_everything_that_people_are_told() {
    let bench = bench();
    let made =
        json(&bench.done("partition data --parts auto --memory 1G --method random --out store --json"));
    for key in ["assign_secs", "write_secs", "secs", "halo_share"] {
        assert!(made[key].is_f64(), "{key} in {made}");
    }
    let auto = &made["auto"];
    assert_eq!((&made["parts"], &auto["parts"], &auto["workers"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(auto["memory_bytes"], 1_000_000_000u64);
    // Offsets, edges, features, labels.
    assert_eq!(auto["data_bytes"], 8 * 601 + 4 * 6000 + 4 * 8 * 600 + 8 * 600);
    assert!(made["peak_rss_bytes"].as_u64().unwrap() > 0);
    assert_eq!((&made["store"], &made["measure_secs"]), (&"store".into(), &Value::Null));

    let measured = json(&bench.done("partition data --parts 4 --method random --json"));
    assert_eq!((&measured["store"], &measured["write_secs"]), (&Value::Null, &Value::Null));
    assert_eq!(measured["quality"]["parts"].as_array().unwrap().len(), 4);
    bench.done("partition data --parts 4 --method random --out four");
    let inspected = json(&bench.done("inspect four --json"));
    assert_eq!(inspected["quality"], measured["quality"]);
    assert_eq!(inspected["halo_share"], measured["halo_share"]);
}

#[test]
fn the_traffic_of_a_part_adds_up_to_its_halo() {
    let bench = bench();
    bench.done("partition data --parts 5 --method hash --out store");
    let store = json(&bench.done("inspect store --json"));
    let rows = |from: usize, to: usize| store["traffic"][from][to].as_u64().unwrap();
    for to in 0..5 {
        assert_eq!(rows(to, to), 0);
        let halo = store["quality"]["parts"][to]["halo"].as_u64().unwrap();
        assert_eq!((0..5).map(|from| rows(from, to)).sum::<u64>(), halo);
    }
}

#[test]
fn parts_that_were_written_cut_the_same_way_when_read() {
    let bench = bench();
    let first =
        json(&bench.done("partition data --parts 4 --method random --seed 3 --part-of parts.npy --json"));
    assert_eq!(npy(&bench, "parts.npy").len(), 600);
    let again = json(&bench.done("partition data --parts 4 --part-file parts.npy --json"));
    assert_eq!(again["quality"], first["quality"]);
    assert_eq!((&first["part_of"], &again["method"]), (&"parts.npy".into(), &"file".into()));
}

#[test]
fn every_method_gives_every_node_and_every_edge_a_part() {
    let bench = bench();
    for (at, entry) in PARTITIONERS.iter().filter(|entry| !entry.needs_file).enumerate() {
        let (nodes, edges) = (format!("nodes-{at}.npy"), format!("edges-{at}.npy"));
        let line = format!(
            "partition data --parts 3 --method {} --part-of {nodes} --edge-parts {edges}",
            entry.name
        );
        let report = json(&bench.done(&format!("{line} --json")));
        let (nodes, edges) = (npy(&bench, &nodes), npy(&bench, &edges));
        assert_eq!((nodes.len(), edges.len()), (600, 6000), "{}", entry.name);
        assert!(nodes.iter().chain(&edges).all(|&part| part < 3), "{}", entry.name);
        let counted = [0, 1, 2].map(|part| edges.iter().filter(|&&edge| edge == part).count());
        assert_eq!(report["placement"]["edges"], Value::from(counted.to_vec()), "{}", entry.name);
        let set = |setting: &archipelago_graph::partition::Setting| {
            (setting.name.to_owned(), Value::from(setting.default))
        };
        assert_eq!(report["settings"], entry.settings.iter().map(set).collect::<Value>(), "{}", entry.name);
    }
}

#[test]
fn a_run_can_be_cut_by_every_method_with_its_settings() {
    let bench = bench();
    for (at, entry) in PARTITIONERS.iter().filter(|entry| !entry.needs_file).enumerate() {
        let settings: Vec<String> =
            entry.settings.iter().map(|s| format!("{}={}", s.name, s.default)).collect();
        bench.done(&format!(
            "train --data data --parts 2 --epochs 1 --set data.partitioner={} --set data.partition_settings={} --out run-{at}",
            entry.name,
            settings.join(",")
        ));
        let store = json(&bench.done(&format!("inspect run-{at}/store --json")));
        assert_eq!(store["partition"]["method"], entry.name);
    }
}

#[test]
fn the_list_shows_memory_and_settings_of_every_method() {
    let bench = Bench::new();
    let text = bench.done("list partitioners").stdout;
    let listed = json(&bench.done("list partitioners --json"));
    assert_eq!(listed.as_array().unwrap().len(), PARTITIONERS.len());
    for (line, entry) in listed.as_array().unwrap().iter().zip(PARTITIONERS) {
        let memory = line["memory"].as_str().unwrap();
        let shown = |row: &str| row.starts_with(&format!("{} ", entry.name)) && row.contains(memory);
        assert!(text.lines().any(shown), "{} in {text}", entry.name);
        let detail = bench.done(&format!("list partitioners {}", entry.name)).stdout;
        for (setting, known) in line["settings"].as_array().unwrap().iter().zip(entry.settings) {
            assert_eq!((&setting["name"], &setting["default"]), (&known.name.into(), &known.default.into()));
            assert!(
                detail.lines().any(|row| row.starts_with(known.name) && row.contains(known.about)),
                "{detail}"
            );
        }
    }
}

#[test]
fn the_drawing_is_whole_and_has_a_bar_for_every_part_and_a_cell_for_every_pair() {
    let bench = bench();
    for parts in [1, 3, 30, 200] {
        bench.done(&format!("partition data --parts {parts} --method random --out store-{parts}"));
        bench.done(&format!("inspect store-{parts} --svg {parts}.svg"));
        let svg = fs::read_to_string(bench.path(&format!("{parts}.svg"))).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{parts}");
        let count = |text: &str| svg.matches(text).count();
        assert_eq!((count("<rect"), count("<text")), (count("</rect>") + 1, count("</text>")));
        assert_eq!(count(" nodes</title>"), parts);
        let side = if parts > 128 { 100 } else { parts };
        assert_eq!(count(r#"class="track""#), 4 * parts + side * side + 6);
    }
}

#[test]
fn ctrl_c_while_arrays_and_store_are_written_leaves_nothing() {
    let bench = Bench::new();
    bench.done("generate uniform --nodes 20000 --edges 1500000 --features 0 --out data");
    let line =
        "partition data --parts 64 --method hash --out store --part-of nodes.npy --edge-parts edges.npy";
    for sign in [".tmp", ".archi-"] {
        let child = bench.start(line);
        wait_until(sign, || names(&bench).iter().any(|name| name.starts_with(sign)));
        signal(&child, "INT");
        let outcome = finish(child);
        assert_eq!(outcome.code, Some(130), "{sign}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("nothing half-written was left behind"), "{}", outcome.stderr);
        assert_eq!(names(&bench), ["data"], "{sign}");
    }
}
