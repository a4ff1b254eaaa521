//! What a sampled batch promises, on a whole graph and across parts of it. How likely each edge is stands in
//! `sample_chances.rs`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod across;
mod nasty;

use across::{
    Graph, InEdge, Parts, counted, drawn, key, sample_across, sample_alone, sample_without, sampler,
};
use archipelago_graph::Batch;
use archipelago_graph::partition::Assignment;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::{self, Draft, Options, SAMPLERS, Scratch};
use nasty::{Shape, assignments, shapes};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Every nasty shape without and with weights; edges of the same ends weigh differently, and some nothing.
fn graphs() -> Vec<Graph> {
    let weighted = |shape| Graph::weighted(shape, |edge, _, _| (edge * 7 % 5) as f32);
    shapes().into_iter().flat_map(|shape| [shape.clone().into(), weighted(shape)]).collect()
}

/// Targets in no order: none, some once, some again and again.
fn some_targets(nodes: u64) -> [Vec<u64>; 3] {
    let once: Vec<u64> = (0..nodes).rev().step_by(2).collect();
    let again = once.iter().flat_map(|&node| [node, nodes - 1, node]).collect();
    [vec![], once, again]
}

/// How many of these in-edges the sampler called `name` may keep.
fn allowed(name: &str, list: &[InEdge], fanout: i64) -> RangeInclusive<usize> {
    let fanout = usize::try_from(fanout).unwrap_or(usize::MAX);
    let heavy = list.iter().filter(|(_, weight)| f32::from_bits(*weight) > 0.0).count();
    match name {
        "neighbor" => list.len().min(fanout)..=list.len().min(fanout),
        "weighted" => heavy.min(fanout)..=heavy.min(fanout),
        "labor" if list.len() > fanout => 1..=list.len(),
        "labor" => list.len()..=list.len(),
        _ => 0..=list.len(),
    }
}

/// Everything that holds for any batch of the sampler called `name`.
fn check_batch(name: &str, graph: &Graph, targets: &[u64], fanouts: &[i64], batch: &Batch) {
    assert_eq!(batch.blocks.len(), fanouts.len());
    assert_eq!(batch.targets(), targets.len());
    assert_eq!(batch.nodes[..targets.len()], *targets);
    let fresh = &batch.nodes[targets.len()..];
    assert_eq!(fresh.iter().collect::<BTreeSet<_>>().len(), fresh.len(), "nodes repeat");
    assert!(fresh.iter().all(|node| !targets.contains(node)));
    for pair in batch.blocks.windows(2) {
        assert_eq!(pair[0].targets, pair[1].local);
    }
    assert_eq!(batch.blocks[0].local, batch.nodes.len());
    let in_edges = graph.in_edges();
    for (block, &fanout) in batch.blocks.iter().rev().zip(fanouts) {
        assert_eq!((block.halo, block.border.len(), block.interior.len()), (0, 0, block.targets));
        assert_eq!(*block.clone().outgoing(), block.incoming.transposed(block.local));
        assert!(block.incoming.neighbors.iter().all(|&row| (row as usize) < block.local));
        let weights = if graph.weights.is_empty() { 0 } else { block.edges() };
        assert_eq!(block.incoming.weights.len(), weights);
        for row in 0..block.targets {
            let (found, list) = (drawn(block, &batch.nodes, row), &in_edges[batch.nodes[row] as usize]);
            assert!(allowed(name, list, fanout).contains(&found.len()), "{name}: {found:?} of {list:?}");
            let multiplicity = counted(list);
            assert!(counted(&found).iter().all(|(edge, count)| multiplicity.get(edge) >= Some(count)));
        }
    }
}

#[test]
fn batches_of_every_sampler_for_every_part_of_every_nasty_graph_are_well_formed() {
    let fanouts = [2, -1, 3];
    for graph in graphs() {
        for parts in assignments(graph.shape.nodes).iter().map(|assignment| graph.parts(assignment)) {
            for entry in SAMPLERS {
                let sampler = sampler(entry.name, &fanouts);
                for asker in 0..parts.all.len() {
                    for targets in some_targets(graph.shape.nodes) {
                        let batch = sample_across(&parts, &*sampler, asker, &targets, key(0));
                        check_batch(entry.name, &graph, &targets, &fanouts, &batch);
                    }
                }
            }
        }
    }
}

#[test]
fn batches_of_every_sampler_on_one_part_are_well_formed() {
    let fanouts = [3, 40, -1];
    let dense = |weights: fn(usize, u64, u64) -> f32| Graph::weighted(Shape::random(50, 3000, 1), weights);
    for graph in graphs().into_iter().chain([dense(|edge, _, _| edge as f32 - 100.0)]) {
        let whole = graph.whole();
        for entry in SAMPLERS {
            for targets in some_targets(graph.shape.nodes) {
                let batch = sample_alone(&whole, &*sampler(entry.name, &fanouts), &targets, key(0));
                check_batch(entry.name, &graph, &targets, &fanouts, &batch);
                assert!(!targets.is_empty() || batch.nodes.is_empty());
            }
        }
    }
}

#[test]
fn repeated_targets_get_a_row_each_and_the_same_sample() {
    let graph = Graph::from(Shape::random(30, 400, 2));
    let targets = [5, 9, 5, 5, 2, 9];
    for entry in SAMPLERS {
        for parts in assignments(30).iter().map(|assignment| graph.parts(assignment)) {
            let batch = sample_across(&parts, &*sampler(entry.name, &[4, 4]), 0, &targets, key(1));
            check_batch(entry.name, &graph, &targets, &[4, 4], &batch);
            for block in &batch.blocks {
                let of = |row| drawn(block, &batch.nodes, row);
                assert_eq!((of(0), of(1), of(0)), (of(2), of(5), of(3)));
            }
        }
    }
}

#[test]
fn fan_out_minus_one_keeps_every_edge_and_so_does_one_beyond_every_degree() {
    let graph = Graph::weighted(Shape::random(40, 300, 3), |edge, _, _| 1.0 + edge as f32);
    let targets: Vec<u64> = (0..40).collect();
    for parts in assignments(40).iter().map(|assignment| graph.parts(assignment)) {
        for (entry, fanout) in SAMPLERS.iter().flat_map(|entry| [(entry, -1), (entry, i64::MAX)]) {
            let batch = sample_across(
                &parts,
                &*sampler(entry.name, &[fanout]),
                1 % parts.all.len(),
                &targets,
                key(0),
            );
            for (row, list) in graph.in_edges().into_iter().enumerate() {
                assert_eq!(counted(drawn(&batch.blocks[0], &batch.nodes, row)), counted(list));
            }
        }
    }
}

#[test]
fn a_sampler_repeats_itself_whatever_it_was_used_for_in_between() {
    let (first, other) = (Graph::from(Shape::random(50, 2500, 4)), Graph::from(Shape::random(80, 500, 5)));
    let (first, other) = (first.whole(), other.whole());
    for entry in SAMPLERS {
        for fanouts in [[5, 3], [40, 3]] {
            let sampler = sampler(entry.name, &fanouts);
            let (mut draft, mut scratch) = (Draft::default(), Scratch::default());
            let mut sample = |parts: &Parts, targets: &[u64], step| {
                sample::sample(&*sampler, &parts.lists(0), targets, key(step), &mut draft, &mut scratch)
            };
            let before = sample(&first, &[1, 2, 3], 0);
            sample(&other, &[70, 2], 0);
            assert_eq!(sample(&first, &[1, 2, 3], 0), before);
            assert_ne!(sample(&first, &[1, 2, 3], 1), before);
            assert_eq!(sample_alone(&first, &*sampler, &[1, 2, 3], key(0)), before);
        }
    }
}

#[test]
fn a_draft_forgets_batches_other_parts_and_excluded_edges() {
    let graph = Graph::from(Shape::random(40, 600, 9));
    let (sampler, mut draft) = (sampler("neighbor", &[4, 3]), Draft::default());
    for parts in assignments(40).iter().map(|assignment| graph.parts(assignment)) {
        for asker in 0..parts.all.len() {
            sample_without(
                &parts,
                &*sampler,
                (asker, &mut draft),
                &[3, 8],
                &graph.shape.pairs_into(&[3, 8]),
                key(0),
            );
            let again = sample_without(&parts, &*sampler, (asker, &mut draft), &[8, 5], &[], key(0));
            assert_eq!(again, sample_across(&parts, &*sampler, asker, &[8, 5], key(0)));
        }
    }
}

#[test]
fn every_hop_draws_on_its_own() {
    let whole = Graph::from(Shape::random(50, 1500, 7)).whole();
    let targets: Vec<u64> = (0..20).collect();
    for entry in SAMPLERS {
        let batch = sample_alone(&whole, &*sampler(entry.name, &[5, 5]), &targets, key(0));
        let lists = |block: usize| {
            let list = |row| counted(drawn(&batch.blocks[block], &batch.nodes, row));
            (0..20).map(list).collect::<Vec<_>>()
        };
        let same = lists(0).into_iter().zip(lists(1)).filter(|(one, other)| one == other).count();
        assert!(same < 5, "{}: {same} of 20 lists are the same in both hops", entry.name);
    }
}

#[test]
fn what_is_drawn_for_a_node_depends_neither_on_the_assignment_nor_on_the_other_targets() {
    let graph = Graph::weighted(Shape::random(60, 1500, 6), |edge, _, _| (edge % 9) as f32);
    let all: Vec<u64> = (0..60).collect();
    let whole = graph.whole();
    for entry in SAMPLERS {
        let sampler = sampler(entry.name, &[7]);
        let batch = sample_alone(&whole, &*sampler, &all, key(2));
        let expected: Vec<_> = (0..60).map(|row| drawn(&batch.blocks[0], &batch.nodes, row)).collect();
        for parts in assignments(60).iter().map(|assignment| graph.parts(assignment)) {
            for &node in all.iter().rev() {
                let batch =
                    sample_across(&parts, &*sampler, node as usize % parts.all.len(), &[node], key(2));
                assert_eq!(drawn(&batch.blocks[0], &batch.nodes, 0), expected[node as usize]);
            }
        }
    }
}

#[test]
fn a_batch_across_parts_is_that_of_one_part_whoever_asks() {
    for graph in graphs() {
        let (whole, targets) = (graph.whole(), some_targets(graph.shape.nodes));
        for parts in assignments(graph.shape.nodes).iter().map(|assignment| graph.parts(assignment)) {
            for entry in SAMPLERS {
                let sampler = sampler(entry.name, &[2, 1, 3]);
                for targets in &targets {
                    let expected = sample_alone(&whole, &*sampler, targets, key(3));
                    for asker in 0..parts.all.len() {
                        let batch = sample_across(&parts, &*sampler, asker, targets, key(3));
                        assert_eq!(batch, expected, "{} on {}", entry.name, graph.shape.name);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_batch_across_random_parts_is_that_of_one_part_whoever_asks(
        (nodes, edges, seed) in (1u64..80, 0u64..3000, any::<u64>()),
        parts in 1u32..7,
        fanouts in prop::collection::vec(prop_oneof![Just(-1i64), 1i64..6, 33i64..50], 1..4),
        targets in prop::collection::vec(any::<u64>(), 0..12),
        weighted in any::<bool>(),
    ) {
        let (shape, random) = (Shape::random(nodes, edges, seed), Key::new(seed, Purpose::Partition));
        let graph = match weighted {
            true => Graph::weighted(shape, |edge, _, _| random.below(edge as u64, 6) as f32),
            false => shape.into(),
        };
        let part_of = (0..nodes).map(|node| random.with(1).below(node, parts.into()) as u32).collect();
        let targets: Vec<u64> = targets.into_iter().map(|target| target % nodes).collect();
        let (whole, parts) = (graph.whole(), graph.parts(&Assignment { parts, part_of }));
        for entry in SAMPLERS {
            let sampler = sampler(entry.name, &fanouts);
            let expected = sample_alone(&whole, &*sampler, &targets, key(seed));
            for asker in 0..parts.all.len() {
                let batch = sample_across(&parts, &*sampler, asker, &targets, key(seed));
                prop_assert_eq!(&batch, &expected);
            }
        }
    }
}

#[test]
fn weights_stay_on_their_edges_across_parts_and_beside_excluded_ones() {
    let graph =
        Graph::weighted(Shape::random(20, 200, 8), |_, source, target| (100 * source + target) as f32);
    let targets = [4, 11];
    let excluded: Vec<(u64, u64)> = graph.shape.pairs_into(&targets).into_iter().step_by(2).collect();
    for parts in assignments(20).iter().map(|assignment| graph.parts(assignment)) {
        for entry in SAMPLERS {
            let sampler = sampler(entry.name, &[6, 3]);
            for (asker, excluded) in
                (0..parts.all.len()).flat_map(|asker| [(asker, &[][..]), (asker, &excluded)])
            {
                let mut draft = Draft::default();
                let batch =
                    sample_without(&parts, &*sampler, (asker, &mut draft), &targets, excluded, key(0));
                for block in &batch.blocks {
                    assert_eq!(block.incoming.weights.len(), block.edges());
                    for row in 0..block.targets {
                        for (source, weight) in drawn(block, &batch.nodes, row) {
                            assert_eq!(f32::from_bits(weight), (100 * source + batch.nodes[row]) as f32);
                        }
                    }
                }
            }
        }
    }
}

/// Compares a batch without `excluded` edges with what is drawn for every node otherwise.
fn check_exclusion(graph: &Graph, parts: &Parts, name: &str, targets: &[u64], excluded: &[(u64, u64)]) {
    let sampler = sampler(name, &[4, -1, 3]);
    let all: Vec<u64> = (0..graph.shape.nodes).collect();
    let plain = sample_across(parts, &*sampler, 0, &all, key(5));
    for asker in 0..parts.all.len() {
        let mut draft = Draft::default();
        let batch = sample_without(parts, &*sampler, (asker, &mut draft), targets, excluded, key(5));
        assert_eq!(batch.nodes[..targets.len()], *targets);
        for (block, plain) in batch.blocks.iter().zip(&plain.blocks) {
            for row in 0..block.targets {
                let node = batch.nodes[row];
                let mut expected = drawn(plain, &all, node as usize);
                expected.retain(|&(source, _)| !excluded.contains(&(source, node)));
                assert_eq!(
                    drawn(block, &batch.nodes, row),
                    expected,
                    "{name} on {}, node {node}",
                    graph.shape.name
                );
            }
        }
    }
}

#[test]
fn excluded_edges_are_in_no_block_of_any_hop_and_all_others_stay() {
    for graph in graphs() {
        let targets: Vec<u64> = (0..graph.shape.nodes).step_by(3).collect();
        let into: Vec<(u64, u64)> = graph.shape.pairs_into(&targets);
        // Some, in no order, one of them twice and one that is no edge; and all.
        let some = into.iter().rev().step_by(2).chain(into.last()).copied();
        let some: Vec<(u64, u64)> = some.chain(targets.first().map(|&target| (target, target))).collect();
        for parts in assignments(graph.shape.nodes).iter().map(|assignment| graph.parts(assignment)) {
            for entry in SAMPLERS {
                check_exclusion(&graph, &parts, entry.name, &targets, &some);
                check_exclusion(&graph, &parts, entry.name, &targets, &into);
            }
        }
    }
}

#[test]
fn excluded_edges_are_missing_in_every_row_of_a_repeated_target() {
    let graph = Graph::from(Shape::random(30, 400, 12));
    let targets = [5, 9, 5, 2, 9, 5];
    let excluded: Vec<(u64, u64)> = graph.shape.pairs_into(&[5, 9]).into_iter().step_by(2).collect();
    for parts in assignments(30).iter().map(|assignment| graph.parts(assignment)) {
        SAMPLERS.iter().for_each(|entry| check_exclusion(&graph, &parts, entry.name, &targets, &excluded));
    }
}

#[test]
fn edges_may_be_excluded_little_by_little() {
    let graph = Graph::from(Shape::random(30, 400, 13));
    let excluded: Vec<(u64, u64)> = graph.shape.pairs_into(&[9, 5]).into_iter().step_by(2).collect();
    let whole = graph.whole();
    let (lists, sampler) = (whole.lists(0), sampler("neighbor", &[-1]));
    let finished = |pieces: &[&[(u64, u64)]]| {
        let (mut draft, mut answer) = (Draft::default(), sample::Drawn::default());
        draft.begin(lists.part, &[9, 5]);
        assert_eq!(draft.nodes(), [9, 5]);
        pieces.iter().for_each(|piece| draft.exclude(lists.part, piece.iter().copied()));
        assert_eq!(draft.nodes(), [9, 5]);
        let question = draft.question(lists.part);
        let hop = sample::Hop::new(0, key(0));
        sampler.draw(&lists, &question.asked[0].rows, hop, &mut Scratch::default(), &mut answer);
        answer.look_up(&lists);
        draft.stitch(lists.part, &question, &[sample::Answer::Here(&[answer])]);
        draft.finish()
    };
    let (some, others) = excluded.split_at(3);
    assert_eq!(finished(&[others, some]), finished(&[&excluded]));
    assert_ne!(finished(&[others, some]), finished(&[some]));
}

#[test]
fn senseless_fan_outs_and_unknown_samplers_are_refused() {
    for entry in SAMPLERS {
        let refused = |fanouts: &[i64]| match (entry.build)(&Options { fanouts: fanouts.to_vec() }) {
            Ok(_) => panic!("{} takes {fanouts:?}", entry.name),
            Err(error) => error.to_string(),
        };
        assert!(refused(&[]).contains("none"));
        assert!(refused(&[5, 0]).contains("`0`"));
        assert!(refused(&[-2]).contains("`-2`"));
        assert_eq!(sampler(entry.name, &[5, -1, 2]).hops(), 3);
        assert_eq!(sample::find(entry.name).unwrap().name, entry.name);
    }
    assert!(sample::find("neighbour").unwrap_err().to_string().contains("did you mean `neighbor`"));
}
