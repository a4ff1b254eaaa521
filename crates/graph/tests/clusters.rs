//! What clusters of a stored graph promise: they are those of the graph, whatever parts it is stored in.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeStream};
use archipelago_graph::partition::{self, Assignment, Request};
use archipelago_graph::progress::{Progress, Silent};
use archipelago_graph::quality::measure;
use archipelago_graph::store::clusters::METHODS;
use archipelago_graph::store::{Meta, StoreEdges, clusters, write};
use archipelago_graph::synthetic::{sbm, small};
use archipelago_graph::{Error, Store};
use nasty::{Shape, assignments, home, shapes};
use proptest::prelude::*;
use std::path::Path;

fn stored(dataset: &mut Dataset, assignment: &Assignment, out: &Path) -> Store {
    let meta = Meta { method: "test".into(), seed: 7, ..Meta::default() };
    write(dataset, assignment, &meta, out, &Silent).unwrap();
    Store::open(out).unwrap()
}

fn assign(name: &str, dataset: &mut Dataset, parts: u32) -> Assignment {
    (partition::find(name).unwrap().build)().assign(dataset, &Request::new(parts, 3), &Silent).unwrap()
}

/// Every edge of a pass, sorted; chunks must be neither empty nor larger than they may be.
fn pass(edges: &mut dyn EdgeStream) -> Vec<(u64, u64)> {
    let (mut chunk, mut pairs) = (EdgeChunk::default(), Vec::new());
    while edges.next_chunk(&mut chunk).unwrap() {
        assert!((1..=EdgeChunk::EDGES).contains(&chunk.len()) && chunk.targets.len() == chunk.len());
        pairs.extend(chunk.sources.iter().copied().zip(chunk.targets.iter().copied()));
    }
    assert!(chunk.is_empty());
    pairs.sort_unstable();
    pairs
}

/// 3000 nodes in 30 communities, more edges than two chunks hold.
fn communities() -> Dataset {
    let options = sbm::SbmOptions {
        nodes: 3_000,
        edges: 150_000,
        features: 0,
        communities: 30,
        classes: 5,
        ..Default::default()
    };
    sbm::generate(&options, &Silent).unwrap()
}

#[test]
fn a_store_streams_the_edges_of_its_dataset_under_every_assignment() {
    for shape in shapes() {
        let mut expected = shape.pairs.clone();
        expected.sort_unstable();
        for assignment in assignments(shape.nodes) {
            let home = home();
            let store = stored(&mut shape.dataset(), &assignment, &home.path().join("store"));
            let mut edges = StoreEdges::open(&store).unwrap();
            assert_eq!(edges.len(), expected.len() as u64);
            assert_eq!(pass(&mut edges), expected, "{} in {} parts", shape.name, assignment.parts);
            edges.rewind().unwrap();
            assert_eq!(pass(&mut edges), expected, "{}, second pass", shape.name);
        }
    }
}

#[test]
fn a_stream_of_several_chunks_can_be_rewound_in_the_middle_of_a_list() {
    let mut dataset = communities();
    let expected = pass(&mut *dataset.edges);
    let home = home();
    for parts in [1, 3] {
        let assignment = assign("hash", &mut dataset, parts);
        let store = stored(&mut dataset, &assignment, &home.path().join(parts.to_string()));
        let (mut edges, mut chunk) = (StoreEdges::open(&store).unwrap(), EdgeChunk::default());
        assert!(edges.next_chunk(&mut chunk).unwrap() && chunk.len() == EdgeChunk::EDGES);
        edges.rewind().unwrap();
        assert_eq!(pass(&mut edges), expected);
    }
}

#[test]
fn clusters_are_the_same_in_stores_of_1_2_and_4_parts_by_any_partitioner_and_keep_neighbours_together() {
    let mut dataset = communities();
    let home = home();
    let stores: Vec<Store> = [("random", 1), ("random", 2), ("spring", 2), ("hash", 4), ("louvain", 4)]
        .map(|(name, parts)| {
            let assignment = assign(name, &mut dataset, parts);
            stored(&mut dataset, &assignment, &home.path().join(format!("{name}-{parts}")))
        })
        .into();
    let random = assign("random", &mut dataset, 20);
    let random = measure(&mut dataset, &random, &Silent).unwrap().cut_fraction;
    for method in METHODS {
        let expected = clusters(&stores[0], method, 20, 5, &Silent).unwrap();
        for store in &stores[1..] {
            assert_eq!(clusters(store, method, 20, 5, &Silent).unwrap(), expected, "{method}, {store:?}");
        }
        assert_ne!(clusters(&stores[0], method, 20, 6, &Silent).unwrap(), expected, "{method}");
        let found = Assignment { parts: 20, part_of: expected };
        found.check(dataset.nodes).unwrap();
        let cut = measure(&mut dataset, &found, &Silent).unwrap().cut_fraction;
        assert!(cut < 0.6 * random, "{method}: {cut}, {random}");
    }
}

#[test]
fn unknown_methods_and_no_clusters_are_refused() {
    let home = home();
    let store = stored(&mut small::path(4), &assignments(4)[1], &home.path().join("store"));
    let error = clusters(&store, "louvian", 2, 0, &Silent).unwrap_err().to_string();
    assert!(error.contains("known: ") && error.ends_with("did you mean `louvain`?"), "{error}");
    // A partitioner, but one that sees edges in the order of the parts.
    let error = clusters(&store, "spring", 2, 0, &Silent).unwrap_err().to_string();
    assert!(error.contains("unknown method of clustering `spring`"), "{error}");
    let error = clusters(&store, "louvain", 0, 0, &Silent).unwrap_err().to_string();
    assert!(error.contains("at least 1 cluster"), "{error}");
}

#[test]
fn the_user_can_stop_it() {
    struct Stop;
    impl Progress for Stop {
        fn begin(&self, _: &str, _: u64, _: &'static str) {}
        fn advance(&self, _: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let home = home();
    let store = stored(&mut small::path(40), &assignments(40)[1], &home.path().join("store"));
    for method in METHODS {
        let error = clusters(&store, method, 2, 0, &Stop).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{method}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn clusters_of_any_graph_do_not_depend_on_its_assignment(
        nodes in 1u64..60,
        ends in prop::collection::vec((0u64..1000, 0u64..1000), 0..200),
        homes in prop::collection::vec(0u32..4, 60),
        count in 1u32..6,
        seed in 0u64..4,
    ) {
        let pairs = ends.iter().map(|&(u, v)| (u % nodes, v % nodes)).collect();
        let shape = Shape { name: "any", nodes, pairs };
        let home = home();
        let whole = Assignment { parts: 1, part_of: vec![0; nodes as usize] };
        let spread = Assignment { parts: 4, part_of: homes[..nodes as usize].to_vec() };
        let stores = [(&whole, "whole"), (&spread, "spread")]
            .map(|(assignment, name)| stored(&mut shape.dataset(), assignment, &home.path().join(name)));
        for method in METHODS {
            let found = stores.each_ref().map(|store| clusters(store, method, count, seed, &Silent).unwrap());
            prop_assert_eq!(&found[0], &found[1], "{}", method);
            prop_assert_eq!(found[0].len() as u64, nodes);
            prop_assert!(found[0].iter().all(|&cluster| cluster < count));
            let request = Request::new(count, seed);
            let direct = (partition::find(method).unwrap().build)().assign(&mut shape.dataset(), &request, &Silent);
            prop_assert_eq!(&direct.unwrap().part_of, &found[0], "{} of the dataset", method);
        }
    }
}
