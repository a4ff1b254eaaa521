//! Predicting links, from a split of edges to scores of pairs.

use crate::bench::Bench;
use archipelago_train::metric::roc_auc;
use std::collections::BTreeSet;
use std::fs;

const TRAIN: &str = "train --strategy distdgl --model gcn --set train.task=link --set train.batch_size=128 \
                     --set train.fanouts=[10,10] --set model.dropout=0 --set model.hidden=32";

/// Both ends of every edge of `data`.
fn edges(bench: &Bench) -> Vec<(u64, u64)> {
    let ends = numbers(bench, "data/edge_index.npy", i64::from_le_bytes);
    let (sources, targets) = ends.split_at(ends.len() / 2);
    sources.iter().zip(targets).map(|(&source, &target)| (source as u64, target as u64)).collect()
}

/// The numbers of an array.
fn numbers<T, const N: usize>(bench: &Bench, name: &str, read: fn([u8; N]) -> T) -> Vec<T> {
    let bytes = fs::read(bench.path(name)).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[start..].chunks_exact(N).map(|number| read(number.try_into().unwrap())).collect()
}

/// Holds every tenth pair out in `split.csv`, and asks in `pairs.csv` for these and for as many that are no edges.
fn divide(bench: &Bench, nodes: u64) -> usize {
    let all: BTreeSet<_> = edges(bench).into_iter().filter(|(a, b)| a < b).collect();
    let held_out: Vec<_> = all.iter().step_by(10).copied().collect();
    let far = (0..).map(|i: u64| (i * 37 % nodes, i * 101 % nodes + i / nodes % nodes));
    let others = far.filter(|&(a, b)| b < nodes && a != b && !all.contains(&(a.min(b), a.max(b))));
    let others: Vec<_> = others.take(held_out.len()).collect();
    let lines = |pairs: &[(u64, u64)], rest: &str| -> String {
        pairs.iter().map(|(a, b)| format!("{a},{b}{rest}\n")).collect()
    };
    fs::write(bench.path("split.csv"), lines(&held_out, ",test")).unwrap();
    fs::write(
        bench.path("pairs.csv"),
        "source,target\n".to_owned() + &lines(&held_out, "") + &lines(&others, ""),
    )
    .unwrap();
    held_out.len()
}

#[test]
fn pairs_get_the_same_scores_on_any_number_of_parts_and_true_ones_the_higher() {
    let bench = Bench::new();
    bench.done("generate sbm --nodes 600 --edges 6000 --features 32 --classes 20 --out data");
    let held_out = divide(&bench, 600);
    for parts in [1, 2, 3] {
        bench.done(&format!("partition data --parts {parts} --method random --out store-{parts}"));
    }
    let outcome =
        bench.done(&format!("{TRAIN} --data store-2 --epochs 15 --set data.link_split=split.csv --out run"));
    for told in
        ["training links\n", "batches of 128 links per part, 256 in all, ", "  test auc 0.", "--links"]
    {
        assert!(outcome.stderr.contains(told), "{told} is missing in {}", outcome.stderr);
    }
    assert!(
        outcome.stdout.contains("  sampling ") && outcome.stdout.contains(" edges/s, "),
        "{}",
        outcome.stdout
    );

    bench.done("infer run --links pairs.csv --out scores.csv");
    let text = fs::read_to_string(bench.path("scores.csv")).unwrap();
    let asked = fs::read_to_string(bench.path("pairs.csv")).unwrap();
    let (mut scores, mut pairs) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let (pair, score) = line.rsplit_once(',').unwrap();
        pairs.push(pair);
        scores.extend(score.parse::<f32>());
    }
    assert_eq!(pairs, asked.lines().collect::<Vec<_>>());
    let is_true: Vec<bool> = (0..scores.len()).map(|at| at < held_out).collect();
    let area = roc_auc(&scores, &is_true).unwrap();
    assert!(area > 0.7, "{area}");

    for parts in [1, 3] {
        bench.done(&format!("infer run --data store-{parts} --links pairs.csv --out scores.npy"));
        let found = numbers(&bench, "scores.npy", f32::from_le_bytes);
        assert_eq!(found.len(), scores.len());
        let most = found.iter().zip(&scores).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(most < 1e-4, "{most} on {parts} parts");
    }
    bench.done("infer run --links pairs.csv --out scores.parquet");
    let shown = bench.done("inspect scores.parquet").stdout;
    assert!(shown.contains("source, target, score") && shown.contains("pairs"), "{shown}");
}

#[test]
fn without_pairs_a_run_on_links_gives_the_final_row_of_every_node() {
    let bench = Bench::new();
    bench.communities(200);
    bench.done(&format!("{TRAIN} --data data --parts 3 --epochs 2 --out run"));
    bench.done("infer run --out rows.csv");
    bench.done("infer run --embeddings --out rows.npy");
    let text = fs::read_to_string(bench.path("rows.csv")).unwrap();
    assert!(text.starts_with("node,embedding_0,embedding_1,"));
    let rows: Vec<Vec<f32>> = text
        .lines()
        .skip(1)
        .map(|line| line.split(',').skip(1).map(|n| n.parse().unwrap()).collect())
        .collect();
    assert_eq!((rows.len(), rows[0].len()), (200, 32));
    assert_eq!(numbers(&bench, "rows.npy", f32::from_le_bytes), rows.concat());

    // The decoder is the inner product: what a pair scores is what its two rows give.
    fs::write(bench.path("pairs.csv"), "7 199\n0 1\n").unwrap();
    bench.done("infer run --links pairs.csv --out scores.npy");
    let scores = numbers(&bench, "scores.npy", f32::from_le_bytes);
    for (score, (a, b)) in scores.iter().zip([(7, 199), (0, 1)]) {
        let product: f32 = rows[a].iter().zip(&rows[b]).map(|(a, b)| a * b).sum();
        assert!((score - product).abs() < 1e-4 * product.abs().max(1.0), "{score} {product}");
    }
}

#[test]
fn pairs_go_by_name_where_nodes_have_names() {
    let bench = Bench::new();
    let names = ["anna", "bert", "carl", "dora", "emil", "fred"];
    let edges: String =
        (0..30).map(|i: usize| format!("{},{}\n", names[i % 6], names[(i * i + 1) % 6])).collect();
    fs::create_dir(bench.path("people")).unwrap();
    fs::write(bench.path("people/edges.csv"), format!("src,dst\n{edges}")).unwrap();
    let table: String = names.iter().enumerate().map(|(i, name)| format!("{name},{i},{}\n", i * i)).collect();
    fs::write(bench.path("people/nodes.csv"), format!("id,age,height\n{table}")).unwrap();
    bench.done(&format!("{TRAIN} --data people --parts 2 --epochs 2 --set data.link_valid=0.2 --out run"));
    fs::write(bench.path("pairs.csv"), "fred,anna\nbert,carl\n").unwrap();
    bench.done("infer run --links pairs.csv --out scores.csv");
    let text = fs::read_to_string(bench.path("scores.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("fred,anna,") && lines[2].starts_with("bert,carl,"), "{text}");
    fs::write(bench.path("wrong.csv"), "fred,anna\nbert,cral\n").unwrap();
    insta::assert_snapshot!(bench.transcript(&["infer run --links wrong.csv --out other.csv"]));
}

#[test]
fn mistakes_about_links_are_named_with_a_remedy_and_exit_2() {
    let bench = Bench::new();
    bench.communities(200);
    bench.done("partition data --parts 2 --method random --out store");
    bench.done("train --data store --epochs 1 --out nodes");
    bench.done(&format!("{TRAIN} --data store --epochs 1 --out links"));
    fs::write(bench.path("pairs.csv"), "0,1\n1,200\n").unwrap();
    fs::write(bench.path("typed.csv"), "0,1,0\n0,1,1\n").unwrap();
    fs::write(bench.path("single.csv"), "0\n").unwrap();
    let shown = bench.transcript(&[
        "infer nodes --links pairs.csv --out other.csv",
        "infer links --scores --out other.csv",
        "infer links --links pairs.csv --out other.csv",
        "infer links --links typed.csv --out other.csv",
        "infer links --links single.csv --out other.csv",
        "infer links --links nowhere.csv --out other.csv",
        "infer links --links pairs.csv --embeddings --out other.csv",
        "train --data store --set train.task=link --out other",
        "train --data store --set train.task=link --strategy distdgl --set data.link_split=nowhere --out other",
    ]);
    insta::assert_snapshot!(shown);
    let codes = shown.lines().filter(|line| line.starts_with("--- exit code"));
    assert!(codes.into_iter().all(|line| line == "--- exit code 2"));
    assert!(!bench.path("other.csv").exists() && !bench.path("other").exists());
}
