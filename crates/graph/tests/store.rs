//! What a store promises: the same graph as the dataset's, in parts; whole or not there; damage is named.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels, MemoryEdges};
use archipelago_graph::partition::{self, Assignment, Request};
use archipelago_graph::progress::{Progress, Silent};
use archipelago_graph::store::{Manifest, Meta, PartFeatures, PartLabels, layout, verify, write};
use archipelago_graph::synthetic::{sbm, small};
use archipelago_graph::{Error, GlobalId, NodeId, Part, PartId, Store};
use nasty::{Shape, assignments, home, shapes};
use proptest::prelude::*;
use std::fs;
use std::path::Path;

fn meta() -> Meta {
    Meta { method: "test".into(), seed: 7, ..Meta::default() }
}

fn stored(dataset: &mut Dataset, assignment: &Assignment, out: &Path) -> Store {
    write(dataset, assignment, &meta(), out, &Silent).unwrap();
    Store::open(out).unwrap()
}

fn all_parts(store: &Store) -> Vec<Part> {
    (0..store.parts()).map(|id| store.part(PartId(id)).unwrap()).collect()
}

/// Original id of every node by global id.
fn originals(parts: &[Part]) -> Vec<u64> {
    parts.iter().flat_map(|part| part.original().to_vec()).collect()
}

/// Every edge as (source, target, weight, type, attributes), sorted.
type Edge = (u64, u64, Option<u32>, Option<u32>, Vec<u32>);

fn edges_of_dataset(dataset: &mut Dataset) -> Vec<Edge> {
    let (mut chunk, mut edges, width) =
        (EdgeChunk::default(), Vec::new(), dataset.edge_columns.attribute_width);
    dataset.edges.rewind().unwrap();
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        for i in 0..chunk.len() {
            let weight = chunk.weights.get(i).map(|weight| weight.to_bits());
            let attributes = chunk.attributes[i * width..(i + 1) * width].iter().map(|x| x.to_bits());
            let kind = chunk.types.get(i).copied();
            edges.push((chunk.sources[i], chunk.targets[i], weight, kind, attributes.collect()));
        }
    }
    edges.sort();
    edges
}

fn edges_of_parts(parts: &[Part]) -> Vec<Edge> {
    let originals = originals(parts);
    let mut edges = Vec::new();
    for part in parts {
        let width = part.edge_columns().attribute_width;
        for row in 0..part.owned() {
            for edge in part.offsets()[row] as usize..part.offsets()[row + 1] as usize {
                let source = part.sources()[edge] as usize;
                let source = match part.original().get(source) {
                    Some(&original) => original,
                    None => originals[part.halo()[source - part.owned()] as usize],
                };
                let weight = part.weights().map(|weights| weights[edge].to_bits());
                let attributes = part.attributes().unwrap_or_default().iter().skip(edge * width).take(width);
                let kind = part.types().map(|types| types[edge]);
                let attributes = attributes.map(|x| x.to_bits()).collect();
                edges.push((source, part.original()[row], weight, kind, attributes));
            }
        }
    }
    edges.sort();
    edges
}

/// The dataset with every column there is, each value telling where it belongs.
fn dressed(shape: &Shape, sparse: bool, multi: bool) -> Dataset {
    let nodes = shape.nodes;
    let (sources, targets): (Vec<u64>, Vec<u64>) = shape.pairs.iter().copied().unzip();
    let edges = sources.len();
    let chunk = EdgeChunk {
        sources,
        targets,
        weights: (0..edges).map(|i| i as f32).collect(),
        types: (0..edges).map(|i| i as u32 % 3).collect(),
        attributes: (0..2 * edges).map(|i| -(i as f32)).collect(),
    };
    let features = if sparse {
        let offsets: Vec<u64> = (0..=nodes).map(|node| node * node.saturating_sub(1) / 2).collect();
        let numbers = offsets[nodes as usize];
        Features::Sparse {
            width: nodes as usize + 1,
            columns: (0..nodes).flat_map(|node| 0..node as u32).collect::<Vec<_>>().into(),
            values: (0..numbers).map(|i| i as f32).collect::<Vec<_>>().into(),
            offsets: offsets.into(),
        }
    } else {
        Features::Dense { width: 3, values: (0..3 * nodes).map(|i| i as f32).collect::<Vec<_>>().into() }
    };
    let labels = if multi {
        Labels::Multi { classes: 2, values: (0..2 * nodes).map(|i| (i % 2) as u8).collect::<Vec<_>>().into() }
    } else {
        let classes = nodes as usize + 1;
        Labels::Classes { classes, values: (0..nodes as i64).map(|node| node - 1).collect::<Vec<_>>().into() }
    };
    let mut dataset = small::bare("dressed", nodes, &[]);
    dataset.edges = Box::new(MemoryEdges::new(chunk, 2));
    dataset.edge_columns = EdgeColumns { weighted: true, types: 3, attribute_width: 2 };
    dataset.splits.train = (0..nodes).rev().filter(|node| node % 3 == 0).collect();
    dataset.splits.valid = (0..nodes).filter(|node| node % 3 == 1).collect();
    (dataset.features, dataset.labels) = (features, labels);
    dataset
}

#[test]
fn every_nasty_graph_under_every_assignment_comes_back_edge_for_edge() {
    for shape in shapes() {
        for assignment in assignments(shape.nodes) {
            let home = home();
            let mut dataset = dressed(&shape, false, false);
            let store = stored(&mut dataset, &assignment, &home.path().join("store"));
            let parts = all_parts(&store);
            assert_eq!(edges_of_parts(&parts), edges_of_dataset(&mut dataset), "{}", shape.name);
            let mut nodes = originals(&parts);
            nodes.sort_unstable();
            assert_eq!(nodes, (0..shape.nodes).collect::<Vec<_>>());
            let report = verify(store.path(), &Silent).unwrap();
            assert_eq!((report.nodes, report.edges), (shape.nodes, shape.pairs.len() as u64));
        }
    }
}

#[test]
fn node_columns_follow_their_nodes() {
    for (sparse, multi) in [(false, false), (true, true)] {
        let shape = Shape::random(40, 100, 3);
        let assignment = Assignment { parts: 3, part_of: (0..40).map(|node| node * 7 % 3).collect() };
        let home = home();
        let store = stored(&mut dressed(&shape, sparse, multi), &assignment, &home.path().join("store"));
        for part in all_parts(&store) {
            for (row, &node) in part.original().iter().enumerate() {
                assert_eq!(assignment.part_of[node as usize], part.id().0);
                assert_eq!(part.row_of(NodeId(node)), Some(row as u32));
                check_columns(&part, row, node);
            }
            let nodes_of =
                |rows: &[u32]| rows.iter().map(|&row| part.original()[row as usize] % 3).collect::<Vec<_>>();
            assert!(nodes_of(part.train()).iter().all(|&rest| rest == 0));
            assert!(nodes_of(part.valid()).iter().all(|&rest| rest == 1));
            assert!(part.test().is_empty());
        }
        let train: usize = all_parts(&store).iter().map(|part| part.train().len()).sum();
        assert_eq!(train, 14);
    }
}

fn check_columns(part: &Part, row: usize, node: u64) {
    match part.features() {
        PartFeatures::Dense { width, values } => {
            let expected = [3 * node, 3 * node + 1, 3 * node + 2].map(|x| x as f32);
            assert_eq!(values[row * width..(row + 1) * width], expected);
        }
        PartFeatures::Sparse { offsets, columns, values, .. } => {
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            assert_eq!(columns[range.clone()], (0..node as u32).collect::<Vec<_>>());
            let first = node * node.saturating_sub(1) / 2;
            assert_eq!(values[range], (first..first + node).map(|x| x as f32).collect::<Vec<_>>());
        }
        PartFeatures::None => panic!("the dataset has features"),
    }
    match part.labels() {
        PartLabels::Classes(classes) => assert_eq!(classes[row], node as i64 - 1),
        PartLabels::Multi(rows) => assert_eq!(rows[2 * row..2 * row + 2], [0, 1]),
        PartLabels::None => panic!("the dataset has labels"),
    }
}

#[test]
fn global_ids_of_a_part_are_one_range_and_owners_are_found_past_empty_parts() {
    let assignment = Assignment { parts: 5, part_of: vec![3, 1, 3, 1, 1] };
    let home = home();
    let store = stored(&mut small::path(5), &assignment, &home.path().join("store"));
    assert_eq!(store.starts(), [0, 0, 3, 3, 5, 5]);
    let part = store.part(PartId(1)).unwrap();
    let owners: Vec<u32> = (0..5).map(|node| part.owner_of(GlobalId(node)).0).collect();
    assert_eq!(owners, [1, 1, 1, 3, 3]);
    assert_eq!(part.original(), [1, 3, 4]);
    assert_eq!(part.halo(), [3, 4]);
    assert_eq!(store.part(PartId(0)).unwrap().owned(), 0);
    assert!(store.part(PartId(5)).unwrap_err().to_string().contains("no part 5"));
}

#[test]
fn parts_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Part>();
    shared::<Store>();
}

#[test]
fn lists_ascend_by_row_and_their_stored_order_ascends_by_original_id() {
    let mut dataset = small::uniform(50, 1000, 1);
    let assignment = Assignment { parts: 4, part_of: (0..50).map(|node| (node * 13 % 50) % 4).collect() };
    let home = home();
    let store = stored(&mut dataset, &assignment, &home.path().join("store"));
    let parts = all_parts(&store);
    let originals = originals(&parts);
    for part in &parts {
        for list in part.offsets().windows(2) {
            let range = list[0] as usize..list[1] as usize;
            let sources = &part.sources()[range.clone()];
            assert!(sources.is_sorted());
            let original = |&position: &u32| match sources[position as usize] as usize {
                row if row < part.owned() => part.original()[row],
                row => originals[part.halo()[row - part.owned()] as usize],
            };
            assert!(part.order().unwrap()[range].iter().map(original).is_sorted());
        }
    }
}

#[test]
fn the_manifest_states_what_was_written() {
    let home = home();
    let mut dataset = small::star(10);
    dataset.names = Some((0..10).map(|node| format!("node {node}")).collect());
    let assignment = Assignment { parts: 2, part_of: (0..10).map(|node| node % 2).collect() };
    dataset.labels = Labels::Classes { classes: 2, values: vec![1; 10].into() };
    dataset.class_names = Some(vec!["hub".into(), "leaf".into()]);
    let store = stored(&mut dataset, &assignment, &home.path().join("store"));
    let manifest = store.manifest();
    assert_eq!((manifest.nodes, manifest.edges, manifest.undirected), (10, 18, true));
    assert_eq!((manifest.partition.method.as_str(), manifest.partition.seed), ("test", 7));
    assert_eq!((manifest.quality.cut_edges, manifest.parts[1].halo), (10, 1));
    assert_eq!(store.names().unwrap().unwrap()[9], "node 9");
    assert_eq!(store.class_names().unwrap().unwrap(), ["hub", "leaf"]);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let home = home();
    let options = sbm::SbmOptions { nodes: 500, edges: 4000, features: 4, classes: 5, ..Default::default() };
    let request = Request::new(3, 1);
    let make = |name: &str| -> Manifest {
        let mut dataset = sbm::generate(&options, &Silent).unwrap();
        let method = (partition::find("random").unwrap().build)();
        let assignment = method.assign(&mut dataset, &request, &Silent).unwrap();
        write(&mut dataset, &assignment, &meta(), &home.path().join(name), &Silent).unwrap()
    };
    assert_eq!(make("a"), make("b"));
}

/// Asks to stop after some number of ticks.
struct Stops(std::sync::atomic::AtomicI64);

impl Progress for Stops {
    fn begin(&self, _: &str, _: u64, _: &'static str) {}
    fn advance(&self, _: u64) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) < 0
    }
}

#[test]
fn a_cancelled_write_leaves_nothing_whenever_it_happens() {
    let shape = Shape::random(40, 200, 1);
    let assignment = Assignment { parts: 3, part_of: (0..40).map(|node| node % 3).collect() };
    let mut cancelled = 0;
    for ticks in 0.. {
        let home = home();
        let out = home.path().join("store");
        match write(&mut dressed(&shape, false, false), &assignment, &meta(), &out, &Stops(ticks.into())) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
        cancelled += 1;
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
    assert!(cancelled > 10, "{cancelled}");
}

#[test]
fn an_existing_store_is_never_overwritten() {
    let home = home();
    let assignment = Assignment { parts: 1, part_of: vec![0; 4] };
    stored(&mut small::path(4), &assignment, &home.path().join("store"));
    let again = write(&mut small::path(4), &assignment, &meta(), &home.path().join("store"), &Silent);
    assert!(again.unwrap_err().to_string().contains("exists already"));
}

#[test]
fn datasets_that_do_not_fit_are_refused_before_anything_is_written() {
    let home = home();
    let out = home.path().join("store");
    let good = Assignment { parts: 2, part_of: vec![0, 1, 0, 1] };
    let refused = |dataset: &mut Dataset, assignment: &Assignment| {
        let error = write(dataset, assignment, &meta(), &out, &Silent).unwrap_err().to_string();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        error
    };
    let path = || small::path(4);
    let short = Assignment { parts: 2, part_of: vec![0, 1] };
    assert!(refused(&mut path(), &short).contains("covers 2 nodes"));
    let beyond = Assignment { parts: 2, part_of: vec![0, 1, 2, 0] };
    assert!(refused(&mut path(), &beyond).contains("node 2 is assigned to part 2"));
    let mut twice = path();
    twice.splits.valid = vec![3, 1, 3];
    assert!(refused(&mut twice, &good).contains("split valid names node 3 twice"));
    let mut outside = path();
    outside.splits.test = vec![4];
    assert!(refused(&mut outside, &good).contains("split test names node 4"));
    let mut narrow = path();
    narrow.features = Features::Dense { width: 2, values: vec![0.0; 7].into() };
    assert!(refused(&mut narrow, &good).contains("expected 8, found 7"));
    let mut nameless = path();
    nameless.labels = Labels::Classes { classes: 2, values: vec![0, 1, 0, 1].into() };
    nameless.class_names = Some(vec!["only".into()]);
    assert!(refused(&mut nameless, &good).contains("the class names of the dataset: expected 2, found 1"));
    let mut classless = path();
    classless.labels = Labels::Classes { classes: 2, values: vec![0, 1, 2, -1].into() };
    assert!(refused(&mut classless, &good).contains("node 2 has class 2"));
}

/// A store of every column, in a folder that lives as long as the answer.
fn sample() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = home();
    let out = home.path().join("store");
    let assignment = Assignment { parts: 2, part_of: (0..30).map(|node| node % 2).collect() };
    stored(&mut dressed(&Shape::random(30, 90, 5), true, false), &assignment, &out);
    (home, out)
}

#[test]
fn any_flipped_byte_is_found_by_verify_and_named() {
    let (_home, store) = sample();
    let manifest = Manifest::read(&store).unwrap();
    for (file, entry) in manifest.files(&store) {
        let Some(last) = entry.bytes.checked_sub(1) else { continue };
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        bad[last as usize / 2] ^= 0x40;
        fs::write(&file, &bad).unwrap();
        let error = verify(&store, &Silent).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()), "{error}");
        fs::write(&file, &good).unwrap();
    }
    verify(&store, &Silent).unwrap();
}

#[test]
fn a_file_of_the_wrong_length_or_a_missing_one_is_refused_when_the_store_is_opened() {
    let (_home, store) = sample();
    let file = store.join("part-00001").join(layout::SOURCES);
    let good = fs::read(&file).unwrap();
    fs::write(&file, &good[..good.len() - 4]).unwrap();
    let error = Store::open(&store).unwrap_err().to_string();
    assert!(error.contains(layout::SOURCES) && error.contains("bytes"), "{error}");
    fs::remove_file(&file).unwrap();
    assert!(Store::open(&store).unwrap_err().to_string().contains(layout::SOURCES));
}

#[test]
fn numbers_that_would_index_out_of_bounds_are_refused_when_the_part_is_opened() {
    let (_home, store) = sample();
    for name in [
        layout::ORIGINAL,
        layout::OFFSETS,
        layout::SOURCES,
        layout::ORDER,
        layout::HALO,
        layout::TYPES,
        layout::FEATURE_OFFSETS,
        layout::FEATURE_COLUMNS,
        layout::LABELS,
        layout::TRAIN,
        layout::VALID,
    ] {
        let file = store.join("part-00000").join(name);
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        let wide = if name.ends_with("64") { 8 } else { 4 };
        bad[wide..2 * wide].fill(0x7f);
        fs::write(&file, &bad).unwrap();
        let error = Store::open(&store).unwrap().part(PartId(0)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("damaged"), "{error}");
        fs::write(&file, &good).unwrap();
    }
}

/// Numbers that are in bounds, but not where islands look for them.
#[test]
fn lists_that_do_not_ascend_and_a_halo_of_own_nodes_are_refused_when_the_part_is_opened() {
    let (_home, store) = sample();
    let refused = |name: &str, damage: &dyn Fn(&mut [u8])| {
        let file = store.join("part-00000").join(name);
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        damage(&mut bad);
        assert_ne!(bad, good, "{name}");
        fs::write(&file, &bad).unwrap();
        let error = Store::open(&store).unwrap().part(PartId(0)).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("damaged"), "{error}");
        fs::write(&file, &good).unwrap();
    };
    let part = Store::open(&store).unwrap().part(PartId(0)).unwrap();
    let lists = part.offsets().windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
    let ends = |list: &std::ops::Range<usize>| (part.sources()[list.start], part.sources()[list.end - 1]);
    let list = lists.filter(|list| list.len() > 1).find(|list| ends(list).0 < ends(list).1).unwrap();
    let (first, last) = ends(&list);
    refused(layout::SOURCES, &|bytes| {
        bytes[4 * list.start..][..4].copy_from_slice(&last.to_le_bytes());
        bytes[4 * (list.end - 1)..][..4].copy_from_slice(&first.to_le_bytes());
    });
    let own = part.range().end - 1;
    refused(layout::HALO, &|bytes| bytes[..8].copy_from_slice(&own.to_le_bytes()));
}

#[test]
fn manifests_of_other_formats_versions_and_counts_are_refused_by_name() {
    let (_home, store) = sample();
    let file = store.join(layout::MANIFEST);
    let good = fs::read_to_string(&file).unwrap();
    for (from, to, expected) in [
        ("\"version\": 1", "\"version\": 2", "version 2"),
        ("archipelago-store", "other", "found `other`"),
        ("\"nodes\": 30", "\"nodes\": 31", "31 owned nodes"),
        ("\"edges\": 90", "\"edges\": 91", "91 in-edges"),
        ("\"dataset\"", "dataset", "line 4"),
    ] {
        fs::write(&file, good.replacen(from, to, 1)).unwrap();
        let error = Store::open(&store).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::write(&file, good.replacen("\"cut_edges\": ", "\"cut_edges\": 1", 1)).unwrap();
    assert!(verify(&store, &Silent).unwrap_err().to_string().contains("quality"));
    fs::remove_file(&file).unwrap();
    assert!(Store::open(&store).unwrap_err().to_string().contains("expected a store"));
}

#[test]
fn the_store_of_version_1_kept_as_test_data_opens_for_ever() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/store-v1");
    let report = verify(&path, &Silent).unwrap();
    assert_eq!((report.parts, report.nodes, report.edges), (2, 12, 30));
    let store = Store::open(&path).unwrap();
    let part = store.part(PartId(1)).unwrap();
    assert_eq!(part.original(), [1, 3, 5, 7, 9, 11]);
    assert_eq!(part.edge_columns(), EdgeColumns { weighted: true, types: 3, attribute_width: 2 });
    assert_eq!(part.train(), [1, 4]);
    assert_eq!(store.names().unwrap().unwrap()[3], "n3");
}

/// Writes the store that the test above opens. Run by hand when a new format version is kept beside the old one.
#[test]
#[ignore = "writes test data"]
fn write_the_store_of_this_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/store-v1");
    let mut dataset = dressed(&Shape::random(12, 30, 9), false, false);
    dataset.names = Some((0..12).map(|node| format!("n{node}")).collect());
    let assignment = Assignment { parts: 2, part_of: (0..12).map(|node| node % 2).collect() };
    stored(&mut dataset, &assignment, &path);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_graph_under_any_assignment_comes_back(
        nodes in 1u64..30,
        ends in prop::collection::vec((0u64..1000, 0u64..1000), 0..120),
        homes in prop::collection::vec(0u32..6, 30),
    ) {
        let pairs = ends.iter().map(|&(u, v)| (u % nodes, v % nodes)).collect();
        let shape = Shape { name: "any", nodes, pairs };
        let assignment = Assignment { parts: 6, part_of: homes[..nodes as usize].to_vec() };
        let home = home();
        let mut dataset = dressed(&shape, true, true);
        let store = stored(&mut dataset, &assignment, &home.path().join("store"));
        prop_assert_eq!(edges_of_parts(&all_parts(&store)), edges_of_dataset(&mut dataset));
        verify(store.path(), &Silent).unwrap();
    }
}
