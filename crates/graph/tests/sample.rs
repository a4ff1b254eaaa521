//! What a sampled batch promises, on a whole graph and on parts of it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::dataset::{EdgeChunk, EdgeColumns, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::neighbor::Neighbor;
use archipelago_graph::sample::{self, Options, SAMPLERS, Sampler};
use archipelago_graph::store::{Meta, write};
use archipelago_graph::synthetic::small;
use archipelago_graph::{Batch, Block, NodeId, Part, PartId, Store};
use nasty::{Shape, assignments, home, shapes};
use std::collections::{BTreeMap, BTreeSet};

fn key(step: u64) -> Key {
    Key::new(1, Purpose::Sample).with(step)
}

fn parts(shape: &Shape, assignment: &Assignment) -> Vec<Part> {
    let home = home();
    let out = home.path().join("store");
    let meta = Meta { method: "test".into(), seed: 0, ..Meta::default() };
    write(&mut shape.dataset(), assignment, &meta, &out, &Silent).unwrap();
    let store = Store::open(&out).unwrap();
    (0..store.parts()).map(|id| store.part(PartId(id)).unwrap()).collect()
}

fn whole(shape: &Shape) -> Part {
    let all = Assignment { parts: 1, part_of: vec![0; shape.nodes as usize] };
    parts(shape, &all).remove(0)
}

/// Original id of every row of `part`.
fn originals(part: &Part, all: &[Part]) -> Vec<u64> {
    let by_global: Vec<u64> = all.iter().flat_map(|part| part.original().to_vec()).collect();
    let halo = part.halo().iter().map(|&global| by_global[global as usize]);
    part.original().iter().copied().chain(halo).collect()
}

fn counted<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    items.into_iter().for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

/// Part rows behind the neighbours of target `row`.
fn neighbors(block: &Block, inputs: &[u32], row: usize) -> Vec<u32> {
    block.incoming.neighbors(row).iter().map(|&source| inputs[source as usize]).collect()
}

fn in_list(part: &Part, row: u32) -> &[u32] {
    match part.offsets().get(row as usize + 1) {
        Some(&end) => &part.sources()[part.offsets()[row as usize] as usize..end as usize],
        None => &[],
    }
}

/// Everything that holds for any batch of any sampler.
fn check_batch(part: &Part, targets: &[u32], fanouts: &[i32], batch: &Batch) {
    assert_eq!(batch.blocks.len(), fanouts.len());
    assert_eq!(batch.targets(), targets.len());
    assert_eq!(batch.inputs[..targets.len()], *targets);
    let fresh = &batch.inputs[targets.len()..];
    assert_eq!(fresh.iter().collect::<BTreeSet<_>>().len(), fresh.len(), "inputs repeat");
    assert!(fresh.iter().all(|row| !targets.contains(row)));
    for pair in batch.blocks.windows(2) {
        assert_eq!(pair[0].targets, pair[1].local);
    }
    assert_eq!(batch.blocks[0].local, batch.inputs.len());
    for (block, &fanout) in batch.blocks.iter().rev().zip(fanouts) {
        assert_eq!(block.halo, 0);
        assert_eq!(block.outgoing, block.incoming.transposed(block.local));
        for row in 0..block.targets {
            assert!(block.incoming.neighbors(row).is_sorted());
            let (found, list) = (neighbors(block, &batch.inputs, row), in_list(part, batch.inputs[row]));
            let wanted = if fanout < 0 { list.len() } else { list.len().min(fanout as usize) };
            assert_eq!(found.len(), wanted);
            let multiplicity = counted(list);
            assert!(counted(&found).iter().all(|(source, count)| multiplicity.get(source) >= Some(count)));
        }
    }
}

#[test]
fn batches_of_every_sampler_on_every_part_of_every_nasty_graph_are_well_formed() {
    let fanouts = [2, -1, 3];
    for entry in SAMPLERS {
        let mut sampler = (entry.build)(&Options { fanouts: fanouts.to_vec() }).unwrap();
        for shape in shapes() {
            for part in assignments(shape.nodes).iter().flat_map(|assignment| parts(&shape, assignment)) {
                let targets: Vec<u32> = (0..part.owned() as u32).rev().step_by(2).collect();
                let batch = sampler.sample(&part, &targets, key(0));
                check_batch(&part, &targets, &fanouts, &batch);
                let none = sampler.sample(&part, &[], key(0));
                assert!(none.inputs.is_empty() && none.blocks.len() == 3);
            }
        }
    }
}

#[test]
fn repeated_targets_get_a_row_each_and_the_same_sample() {
    let shape = Shape::random(30, 400, 2);
    let part = whole(&shape);
    let targets = [5, 9, 5, 5, 2, 9];
    let batch = Neighbor::new(&[4]).unwrap().sample(&part, &targets, key(1));
    check_batch(&part, &targets, &[4], &batch);
    let of = |row| neighbors(&batch.blocks[0], &batch.inputs, row);
    assert_eq!((of(0), of(1)), (of(2), of(5)));
}

#[test]
fn fan_out_minus_one_keeps_every_edge() {
    let part = whole(&Shape::random(40, 300, 3));
    let targets: Vec<u32> = (0..40).collect();
    let batch = Neighbor::new(&[-1]).unwrap().sample(&part, &targets, key(0));
    for row in 0..40 {
        assert_eq!(
            counted(neighbors(&batch.blocks[0], &batch.inputs, row)),
            counted(in_list(&part, row as u32).to_vec())
        );
    }
}

#[test]
fn a_sampler_repeats_itself_whatever_it_was_used_for_in_between() {
    let (first, other) = (whole(&Shape::random(50, 900, 4)), whole(&Shape::random(80, 500, 5)));
    let mut sampler = Neighbor::new(&[5, 3]).unwrap();
    let before = sampler.sample(&first, &[1, 2, 3], key(0));
    sampler.sample(&other, &[70, 2], key(0));
    assert_eq!(sampler.sample(&first, &[1, 2, 3], key(0)), before);
    assert_ne!(sampler.sample(&first, &[1, 2, 3], key(1)), before);
}

#[test]
fn what_is_drawn_for_a_node_depends_neither_on_the_assignment_nor_on_the_other_targets() {
    let shape = Shape::random(60, 1500, 6);
    let mut sampler = Neighbor::new(&[7]).unwrap();
    let part = whole(&shape);
    let batch = sampler.sample(&part, &(0..60).collect::<Vec<_>>(), key(2));
    let expected: Vec<_> = (0..60)
        .map(|row| counted(neighbors(&batch.blocks[0], &batch.inputs, row).into_iter().map(u64::from)))
        .collect();
    for assignment in assignments(shape.nodes) {
        let all = parts(&shape, &assignment);
        for part in &all {
            let originals = originals(part, &all);
            for node in part.original().iter().rev() {
                let row = part.row_of(NodeId(*node)).unwrap();
                let batch = sampler.sample(part, &[row], key(2));
                let found = neighbors(&batch.blocks[0], &batch.inputs, 0);
                let found = counted(found.into_iter().map(|row| originals[row as usize]));
                assert_eq!(found, expected[*node as usize]);
            }
        }
    }
}

#[test]
fn every_neighbor_is_drawn_equally_often() {
    let (leaves, fanout, draws) = (50, 5, 20_000);
    let star = Shape { name: "star", nodes: leaves + 1, pairs: (1..=leaves).map(|leaf| (leaf, 0)).collect() };
    let (part, mut sampler) = (whole(&star), Neighbor::new(&[fanout]).unwrap());
    let mut counts = vec![0f64; leaves as usize + 1];
    for step in 0..draws {
        let batch = sampler.sample(&part, &[0], key(step));
        batch.inputs[1..].iter().for_each(|&row| counts[row as usize] += 1.0);
    }
    let expected = draws as f64 * f64::from(fanout) / leaves as f64;
    let chi_square: f64 = counts[1..].iter().map(|count| (count - expected).powi(2) / expected).sum();
    // 49 degrees of freedom; drawing without replacement makes it smaller still. 99.9 % of draws lie below 85.4.
    assert!(chi_square < 85.4, "{chi_square}");
    assert!(chi_square > 15.0, "too even to be random: {chi_square}");
}

#[test]
fn weights_stay_on_their_edges() {
    let shape = Shape::random(20, 200, 8);
    let mut dataset = small::bare("weighted", 20, &[]);
    let (sources, targets): (Vec<u64>, Vec<u64>) = shape.pairs.iter().copied().unzip();
    let weights = shape.pairs.iter().map(|(u, v)| (100 * u + v) as f32).collect();
    let chunk = EdgeChunk { sources, targets, weights, ..EdgeChunk::default() };
    dataset.edges = Box::new(MemoryEdges::new(chunk, 0));
    dataset.edge_columns = EdgeColumns { weighted: true, ..EdgeColumns::default() };
    let home = home();
    let out = home.path().join("store");
    let all = Assignment { parts: 1, part_of: vec![0; 20] };
    let meta = Meta { method: "test".into(), ..Meta::default() };
    write(&mut dataset, &all, &meta, &out, &Silent).unwrap();
    let part = Store::open(&out).unwrap().part(PartId(0)).unwrap();
    let batch = Neighbor::new(&[3, 3]).unwrap().sample(&part, &[4, 11], key(0));
    for block in &batch.blocks {
        for row in 0..block.targets {
            for edge in block.incoming.range(row) {
                let source = batch.inputs[block.incoming.neighbors[edge] as usize];
                assert_eq!(block.incoming.weights[edge], (100 * source + batch.inputs[row]) as f32);
            }
        }
    }
}

#[test]
fn senseless_fan_outs_and_unknown_samplers_are_refused() {
    assert!(Neighbor::new(&[]).unwrap_err().to_string().contains("none"));
    assert!(Neighbor::new(&[5, 0]).unwrap_err().to_string().contains("`0`"));
    assert!(Neighbor::new(&[-2]).unwrap_err().to_string().contains("`-2`"));
    assert!(sample::find("neighbour").unwrap_err().to_string().contains("did you mean `neighbor`"));
}
