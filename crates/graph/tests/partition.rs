//! What every partitioner promises, and what its quality is, against brute force and reference numbers.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::Error;
use archipelago_graph::dataset::Dataset;
use archipelago_graph::partition::{self, Assignment, PARTITIONERS, Request};
use archipelago_graph::progress::Silent;
use archipelago_graph::quality::{PartQuality, Quality, measure};
use archipelago_graph::store::{Meta, verify, write};
use archipelago_graph::synthetic::small;
use nasty::{Shape, assignments, home, shapes};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::path::Path;

fn assign(name: &str, dataset: &mut Dataset, request: &Request) -> Result<Assignment, Error> {
    (partition::find(name).unwrap().build)().assign(dataset, request, &Silent)
}

/// The request, with a file of its own where the method needs one.
fn request_for(entry: &partition::Entry, parts: u32, nodes: u64, folder: &Path) -> Request {
    let mut request = Request::new(parts, 5);
    if entry.needs_file {
        let lines: String = (0..nodes).map(|node| format!("{}\n", node % u64::from(parts))).collect();
        let file = folder.join(format!("graph.part.{parts}"));
        std::fs::write(&file, lines).unwrap();
        request.file = Some(file);
    }
    request
}

#[test]
fn every_method_gives_every_node_of_every_nasty_graph_one_part_and_repeats_itself() {
    let folder = home();
    for entry in PARTITIONERS {
        for shape in shapes() {
            for parts in [1, 2, 7, 100] {
                let request = request_for(entry, parts, shape.nodes, folder.path());
                let first = assign(entry.name, &mut shape.dataset(), &request).unwrap();
                first.check(shape.nodes).unwrap();
                assert_eq!(first.parts, parts);
                assert_eq!(first, assign(entry.name, &mut shape.dataset(), &request).unwrap());
            }
        }
    }
}

#[test]
fn every_method_leaves_every_in_edge_with_its_node_and_its_quality_is_that_of_brute_force() {
    let folder = home();
    for entry in PARTITIONERS {
        for shape in shapes() {
            for parts in [2, 7] {
                let request = request_for(entry, parts, shape.nodes, folder.path());
                check_quality(&shape, &assign(entry.name, &mut shape.dataset(), &request).unwrap());
            }
        }
    }
}

#[test]
fn no_method_makes_0_parts() {
    for entry in PARTITIONERS {
        let error = assign(entry.name, &mut small::path(3), &Request::new(0, 0)).unwrap_err();
        assert!(error.to_string().contains("at least 1 part"), "{error}");
    }
}

#[test]
fn random_shares_differ_by_one_node_at_most_and_depend_on_the_seed() {
    for (nodes, parts) in [(100, 7), (3, 5), (64, 64)] {
        let sizes = assign("random", &mut small::path(nodes), &Request::new(parts, 1)).unwrap().sizes();
        assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
    }
    let with_seed = |seed| assign("random", &mut small::path(100), &Request::new(4, seed)).unwrap();
    assert_ne!(with_seed(1), with_seed(2));
}

#[test]
fn the_hash_of_a_node_does_not_depend_on_the_rest_of_the_graph() {
    let few = assign("hash", &mut small::path(100), &Request::new(4, 1)).unwrap();
    let many = assign("hash", &mut small::star(10_000), &Request::new(4, 1)).unwrap();
    assert_eq!(few.part_of, many.part_of[..100]);
    assert!(many.sizes().iter().all(|size| (2_300..2_700).contains(size)), "{:?}", many.sizes());
}

#[test]
fn the_file_method_reads_parts_and_names_what_is_wrong_with_them() {
    let folder = home();
    let file = folder.path().join("graph.part.3");
    let mut request = Request { file: Some(file.clone()), ..Request::new(3, 0) };
    std::fs::write(&file, "0\n2\n1\n2\n").unwrap();
    assert_eq!(assign("file", &mut small::path(4), &request).unwrap().part_of, [0, 2, 1, 2]);
    let short = assign("file", &mut small::path(5), &request).unwrap_err().to_string();
    assert!(short.contains("graph.part.3") && short.contains('5'), "{short}");
    request.parts = 2;
    let beyond = assign("file", &mut small::path(4), &request).unwrap_err().to_string();
    assert!(beyond.contains("node 1") && beyond.contains("below 2"), "{beyond}");
    request.file = None;
    assert!(assign("file", &mut small::path(4), &request).unwrap_err().to_string().contains("needs a file"));
}

#[test]
fn an_unknown_method_is_answered_with_the_nearest() {
    let error = partition::find("randm").unwrap_err().to_string();
    assert!(error.ends_with("did you mean `random`?"), "{error}");
}

/// The definitions, with sets.
fn brute_force(shape: &Shape, assignment: &Assignment, train: &[u64]) -> Quality {
    let part_of = |node: u64| assignment.part_of[node as usize];
    let part = |part: u32| {
        let incoming: Vec<_> = shape.pairs.iter().filter(|(_, target)| part_of(*target) == part).collect();
        let cut: Vec<u64> =
            incoming.iter().map(|edge| edge.0).filter(|&source| part_of(source) != part).collect();
        PartQuality {
            owned: (0..shape.nodes).filter(|&node| part_of(node) == part).count() as u64,
            train: train.iter().filter(|&&node| part_of(node) == part).count() as u64,
            in_edges: incoming.len() as u64,
            cut_in_edges: cut.len() as u64,
            halo: cut.into_iter().collect::<BTreeSet<_>>().len() as u64,
            ..PartQuality::default()
        }
    };
    Quality::from_parts((0..assignment.parts).map(part).collect())
}

fn check_quality(shape: &Shape, assignment: &Assignment) {
    let mut dataset = shape.dataset();
    dataset.splits.train = (0..shape.nodes).step_by(2).collect();
    let expected = brute_force(shape, assignment, &dataset.splits.train.clone());
    assert_eq!(measure(&mut dataset, assignment, &Silent).unwrap(), expected, "{}", shape.name);
    let (folder, meta) = (home(), Meta { method: "test".into(), seed: 0, ..Meta::default() });
    let manifest = write(&mut dataset, assignment, &meta, &folder.path().join("store"), &Silent).unwrap();
    assert_eq!(manifest.quality, expected, "{}", shape.name);
    verify(&folder.path().join("store"), &Silent).unwrap();
}

#[test]
fn quality_is_that_of_brute_force_on_every_nasty_graph_and_the_same_in_the_store() {
    for shape in shapes() {
        for assignment in assignments(shape.nodes) {
            check_quality(&shape, &assignment);
        }
    }
}

#[test]
fn quality_without_edges_or_nodes_is_that_of_nothing_to_do() {
    let none = Assignment { parts: 3, part_of: vec![] };
    let quality = measure(&mut small::bare("empty", 0, &[]), &none, &Silent).unwrap();
    assert_eq!((quality.cut_fraction, quality.replication_factor, quality.balance_nodes), (0.0, 1.0, 1.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn quality_is_that_of_brute_force_on_any_graph(
        nodes in 1u64..40,
        ends in prop::collection::vec((0u64..1000, 0u64..1000), 0..200),
        homes in prop::collection::vec(0u32..9, 40),
    ) {
        let pairs = ends.iter().map(|&(u, v)| (u % nodes, v % nodes)).collect();
        let assignment = Assignment { parts: 9, part_of: homes[..nodes as usize].to_vec() };
        check_quality(&Shape { name: "any", nodes, pairs }, &assignment);
    }
}

/// Reference numbers that lie beside a checkout of the project, when they do.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/reference");

/// The array `name` of an npz file, integers or not, as f64.
fn npz_array(file: &str, name: &str) -> Vec<f64> {
    let file = std::fs::File::open(Path::new(REFERENCE).join(file)).unwrap();
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    let npy = npyz::NpyFile::new(Cursor::new(&bytes)).unwrap();
    match npy.try_data::<i64>() {
        Ok(integers) => integers.map(|number| number.unwrap() as f64).collect(),
        Err(npy) => npy.data::<f64>().unwrap().map(Result::unwrap).collect(),
    }
}

#[test]
fn quality_agrees_with_the_reference_numbers() {
    if !Path::new(REFERENCE).is_dir() {
        eprintln!("not run: {REFERENCE} is not on this machine");
        return;
    }
    let whole =
        |file: &str, name: &str| npz_array(file, name).into_iter().map(|x| x as u64).collect::<Vec<_>>();
    let ends = whole("g_medium.npz", "edge_index");
    let (sources, targets) = ends.split_at(ends.len() / 2);
    let pairs: Vec<(u64, u64)> = sources.iter().copied().zip(targets.iter().copied()).collect();
    let part_of: Vec<u32> = whole("partition_medium.npz", "part").iter().map(|&part| part as u32).collect();
    let mut dataset = small::bare("g_medium", part_of.len() as u64, &pairs);
    dataset.splits.train = whole("g_medium.npz", "train_idx");
    let quality = measure(&mut dataset, &Assignment { parts: 4, part_of }, &Silent).unwrap();
    let reference = |name: &str| whole("partition_medium.npz", name);
    let found = |count: fn(&PartQuality) -> u64| quality.parts.iter().map(count).collect::<Vec<_>>();
    assert_eq!(found(|part| part.owned), reference("owned"));
    assert_eq!(found(|part| part.train), reference("train"));
    assert_eq!(found(|part| part.in_edges), reference("in_edges"));
    assert_eq!(found(|part| part.cut_in_edges), reference("cut_in_edges"));
    assert_eq!(found(|part| part.halo), reference("halo"));
    assert_eq!(quality.cut_edges, reference("cut_edges")[0]);
    for (name, found) in [
        ("cut_fraction", quality.cut_fraction),
        ("replication_factor", quality.replication_factor),
        ("balance_nodes", quality.balance_nodes),
        ("balance_edges", quality.balance_edges),
        ("balance_train", quality.balance_train),
    ] {
        let expected = npz_array("partition_medium.npz", name)[0];
        assert!((found - expected).abs() < 1e-12, "{name}: {found} {expected}");
    }
}
