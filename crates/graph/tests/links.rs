//! What is held out is nowhere in the graph that is left, and nobody need ask who holds it out.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::dataset::{EdgeChunk, EdgeColumns, MemoryEdges};
use archipelago_graph::links::{Divided, LinkSplit, Share, divide};
use archipelago_graph::partition::Assignment;
use archipelago_graph::progress::Silent;
use archipelago_graph::store::{Meta, write};
use archipelago_graph::{Dataset, Part, PartId, Store};
use nasty::{Shape, assignments, home, shapes};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;

fn cut(dataset: &mut Dataset, assignment: &Assignment) -> Vec<Part> {
    let home = home();
    let out = home.path().join("store");
    let meta = Meta { method: "test".into(), seed: 0, ..Meta::default() };
    write(dataset, assignment, &meta, &out, &Silent).unwrap();
    let store = Store::open(&out).unwrap();
    (0..store.parts()).map(|id| store.part(PartId(id)).unwrap()).collect()
}

/// The original id of every global one.
fn by_global(parts: &[Part]) -> Vec<u64> {
    parts.iter().flat_map(|part| part.original().to_vec()).collect()
}

fn originals(part: &Part, by_global: &[u64]) -> Vec<u64> {
    let halo = part.halo().iter().map(|&global| by_global[global as usize]);
    part.original().iter().copied().chain(halo).collect()
}

fn divided(parts: &[Part], split: &LinkSplit, undirected: bool) -> Vec<Divided> {
    let ids = by_global(parts);
    parts.iter().map(|part| divide(part, &originals(part, &ids), split, undirected).unwrap()).collect()
}

/// Edges of all parts in original ids, sorted.
fn edges(parts: &[&Part], ids: &[u64]) -> Vec<(u64, u64)> {
    let mut edges = Vec::new();
    for part in parts {
        let rows = originals(part, ids);
        for row in 0..part.owned() {
            let list = &part.sources()[part.offsets()[row] as usize..part.offsets()[row + 1] as usize];
            edges.extend(list.iter().map(|&source| (rows[source as usize], rows[row])));
        }
    }
    edges.sort_unstable();
    edges
}

/// Links of one share on all parts, in original ids, sorted.
fn links(divided: &[Divided], ids: &[u64], share: Share) -> Vec<(u64, u64)> {
    let of = |divided: &Divided| match share {
        Share::Train => divided.train.clone(),
        Share::Valid => divided.valid.clone(),
        Share::Test => divided.test.clone(),
    };
    let mut all: Vec<_> = divided
        .iter()
        .flat_map(of)
        .map(|link| (ids[link.source as usize], ids[link.target as usize]))
        .collect();
    all.sort_unstable();
    all
}

const SHARES: [Share; 3] = [Share::Train, Share::Valid, Share::Test];

fn both_ways(shape: &Shape) -> Shape {
    let back = shape.pairs.iter().filter(|(a, b)| a != b).map(|&(a, b)| (b, a));
    Shape { pairs: shape.pairs.iter().copied().chain(back).collect(), ..shape.clone() }
}

/// Everything that holds for any graph, cut and split.
fn check(
    shape: &Shape,
    assignment: &Assignment,
    split: &LinkSplit,
    undirected: bool,
) -> [Vec<(u64, u64)>; 3] {
    let parts = cut(&mut shape.dataset(), assignment);
    let (ids, divided) = (by_global(&parts), divided(&parts, split, undirected));
    let left = edges(&divided.iter().map(|divided| &divided.graph).collect::<Vec<_>>(), &ids);
    let found = SHARES.map(|share| links(&divided, &ids, share));
    let pairs: BTreeSet<_> = left.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
    for (a, b) in found[1].iter().chain(&found[2]) {
        assert!(!pairs.contains(&(*a, *b)), "{a} and {b} are held out and joined in the graph");
    }
    let listed = |&(a, b): &(u64, u64)| if undirected { a < b } else { a != b };
    let mut all: Vec<_> = shape.pairs.iter().copied().filter(listed).collect();
    all.sort_unstable();
    let mut union = found.concat();
    union.sort_unstable();
    assert_eq!(union, all, "every edge is a link of one share");
    let trained: Vec<_> = left.iter().copied().filter(listed).collect();
    assert_eq!(trained, found[0], "the graph has the edges that are trained on");
    let loops = |edges: &[(u64, u64)]| edges.iter().filter(|(a, b)| a == b).count();
    assert_eq!(loops(&left), loops(&shape.pairs), "self-loops stay");
    for (part, divided) in parts.iter().zip(&divided) {
        assert_eq!((part.halo(), part.original()), (divided.graph.halo(), divided.graph.original()));
        let range = part.range();
        assert!(divided.train.iter().all(|link| range.contains(&link.target)));
    }
    found
}

#[test]
fn what_is_held_out_leaves_any_graph_and_the_cut_does_not_matter() {
    let split = LinkSplit::drawn(4, 0.2, 0.3);
    for shape in shapes() {
        for (shape, undirected) in [(shape.clone(), false), (both_ways(&shape), true)] {
            let cuts = assignments(shape.nodes);
            let found = cuts.iter().map(|cut| check(&shape, cut, &split, undirected));
            let found: Vec<_> = found.collect();
            assert!(found.iter().all(|links| *links == found[0]), "{}", shape.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_held_out_pair_stays_in_the_graph(
        nodes in 1u64..25, edges in 0u64..120, seed: u64, parts in 1u32..5,
        valid in 0.0f64..0.5, test in 0.0f64..0.5, undirected: bool,
    ) {
        let shape = Shape::random(nodes, edges, seed);
        let shape = if undirected { both_ways(&shape) } else { shape };
        let part_of = (0..nodes as u32).map(|node| node * 7 % parts).collect();
        let split = LinkSplit::drawn(seed, valid, test);
        let found = check(&shape, &Assignment { parts, part_of }, &split, undirected);
        let whole = Assignment { parts: 1, part_of: vec![0; nodes as usize] };
        prop_assert_eq!(found, check(&shape, &whole, &split, undirected));
    }
}

#[test]
fn shares_are_about_what_was_asked_for_and_move_with_the_seed() {
    let split = LinkSplit::drawn(1, 0.05, 0.1);
    let mut counts = [0; 3];
    let pairs = (0..200u64).flat_map(|a| (a + 1..200).map(move |b| (a, b)));
    for (a, b) in pairs.clone() {
        assert_eq!(split.share(a, b), split.share(b, a));
        counts[split.share(a, b) as usize] += 1;
    }
    assert!((16_700..17_130).contains(&counts[0]), "{counts:?}");
    assert!((880..1_110).contains(&counts[1]) && (1_850..2_130).contains(&counts[2]), "{counts:?}");
    let other = LinkSplit::drawn(2, 0.05, 0.1);
    assert!(pairs.clone().any(|(a, b)| split.share(a, b) != other.share(a, b)));
    let nothing = LinkSplit::drawn(1, 0.0, 0.0);
    assert!(pairs.clone().all(|(a, b)| nothing.share(a, b) == Share::Train));
}

#[test]
fn a_given_split_holds_for_both_directions_and_contradictions_are_refused() {
    let home = home();
    let file = home.path().join("split.csv");
    fs::write(&file, "source,target,split\n5,2,test\n2,5,test\n0,1,valid\n3,4,train\n").unwrap();
    let split = LinkSplit::read(&file).unwrap();
    let share = |a, b| split.share(a, b);
    assert_eq!([share(2, 5), share(5, 2), share(1, 0)], [Share::Test, Share::Test, Share::Valid]);
    assert_eq!([share(3, 4), share(8, 9)], [Share::Train; 2]);
    fs::write(&file, "5,2,test\n1,2,train\n2,5,train\n").unwrap();
    let message = LinkSplit::read(&file).unwrap_err().to_string();
    assert!(message.contains("found `2` and `5` in `train` and in `test`"), "{message}");
}

/// Edges whose weight, type and attributes tell which they are.
fn told_apart(shape: &Shape) -> Dataset {
    let (sources, targets): (Vec<u64>, Vec<u64>) = shape.pairs.iter().copied().unzip();
    let count = sources.len() as u32;
    let chunk = EdgeChunk {
        sources,
        targets,
        weights: (0..count).map(|edge| edge as f32).collect(),
        types: (0..count).map(|edge| edge % 5).collect(),
        attributes: (0..2 * count).map(|number| number as f32).collect(),
    };
    let edge_columns = EdgeColumns { weighted: true, types: 5, attribute_width: 2 };
    Dataset { edges: Box::new(MemoryEdges::new(chunk, 2)), edge_columns, ..shape.dataset() }
}

#[test]
fn edges_that_stay_keep_what_belongs_to_them_and_their_order() {
    let shape = Shape::random(30, 200, 3);
    for assignment in assignments(shape.nodes) {
        let parts = cut(&mut told_apart(&shape), &assignment);
        let ids = by_global(&parts);
        for part in &parts {
            let even = |edge: usize| (part.weights().unwrap()[edge] as u32).is_multiple_of(2);
            let graph = part.keeping(even);
            let kept: Vec<usize> = (0..part.edges()).filter(|&edge| even(edge)).collect();
            assert_eq!(graph.edges(), kept.len());
            for (new, &old) in kept.iter().enumerate() {
                assert_eq!(graph.sources()[new], part.sources()[old]);
                let edge = graph.weights().unwrap()[new];
                assert_eq!(edge, part.weights().unwrap()[old]);
                assert_eq!(graph.types().unwrap()[new], edge as u32 % 5);
                assert_eq!(graph.attributes().unwrap()[2 * new..][..2], [2.0 * edge, 2.0 * edge + 1.0]);
            }
            let rows = originals(part, &ids);
            for row in 0..part.owned() {
                let list = graph.offsets()[row] as usize..graph.offsets()[row + 1] as usize;
                assert!(
                    list.clone()
                        .all(|edge| shape.pairs[graph.weights().unwrap()[edge] as usize].1 == rows[row])
                );
                if let Some(order) = graph.order() {
                    let order = &order[list.clone()];
                    let positions: BTreeSet<_> = order.iter().copied().collect();
                    assert_eq!(positions, (0..list.len() as u32).collect());
                    let source = |&at: &u32| rows[graph.sources()[list.start + at as usize] as usize];
                    assert!(order.iter().map(source).is_sorted());
                }
            }
            let again = part.keeping(|_| true);
            assert_eq!(
                (again.sources(), again.offsets(), again.order()),
                (part.sources(), part.offsets(), part.order())
            );
        }
    }
}
