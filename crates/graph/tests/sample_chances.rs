//! How likely samplers keep an edge. Draws are keyed, so each of these tests gives the same number in every run.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod across;
mod nasty;

use across::{Graph, Parts, counted, drawn, key, sample_across, sample_alone, sampler};
use archipelago_graph::sample::{Draft, Scratch, sample};
use nasty::{Shape, assignments};
use std::collections::{BTreeMap, BTreeSet};

const DRAWS: u64 = 20_000;

/// Node 0 reads leaves of these weights, the first of which is node 1.
fn star(weights: &[f32]) -> Parts {
    let leaves = weights.len() as u64;
    let pairs = (1..=leaves).map(|leaf| (leaf, 0)).collect();
    Graph::weighted(Shape { name: "star", nodes: leaves + 1, pairs }, |edge, _, _| weights[edge]).whole()
}

/// The leaves that are kept in each of many steps.
fn kept(name: &str, fanout: i64, weights: &[f32]) -> Vec<BTreeSet<u64>> {
    let (star, sampler) = (star(weights), sampler(name, &[fanout]));
    let (mut draft, mut scratch) = (Draft::default(), Scratch::default());
    let mut step = |step| sample(&*sampler, &star.lists(0), &[0], key(step), &mut draft, &mut scratch);
    (0..DRAWS).map(|number| step(number).nodes[1..].iter().copied().collect()).collect()
}

/// Refuses a chi-square that is among the highest or the lowest in a thousand, by Wilson & Hilferty's approximation
/// (The distribution of chi-square, PNAS 1931).
fn check_chi_square(chi_square: f64, freedom: f64) {
    let quantile =
        |z: f64| freedom * (1.0 - 2.0 / (9.0 * freedom) + z * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    assert!(chi_square < quantile(3.09), "{chi_square} with {freedom} degrees of freedom");
    assert!(chi_square > quantile(-3.09), "too even to be random: {chi_square} with {freedom}");
}

/// Compares how often each set of leaves was kept with how likely it is. Sets not in `chances` are impossible.
fn check_sets(found: &[BTreeSet<u64>], chances: &BTreeMap<BTreeSet<u64>, f64>) {
    let total: f64 = chances.values().sum();
    assert!((total - 1.0).abs() < 1e-12, "the test itself is wrong: chances sum to {total}");
    let found = counted(found);
    assert!(found.keys().all(|&set| chances.contains_key(set)), "{found:?}");
    let expected = |chance: f64| chance * DRAWS as f64;
    let of = |(set, &chance): (&BTreeSet<u64>, &f64)| {
        let count = found.get(set).copied().unwrap_or(0) as f64;
        (count - expected(chance)).powi(2) / expected(chance)
    };
    check_chi_square(chances.iter().map(of).sum(), (chances.len() - 1) as f64);
}

/// The chance of each pair of leaves when one is drawn after the other in proportion to the weights that are left.
fn pairs_drawn_successively(weights: &[f32]) -> BTreeMap<BTreeSet<u64>, f64> {
    let (all, mut chances) = (weights.iter().copied().map(f64::from).sum::<f64>(), BTreeMap::new());
    let heavy =
        || (1u64..).zip(weights).filter(|(_, weight)| **weight > 0.0).map(|(i, &w)| (i, f64::from(w)));
    for (i, first) in heavy() {
        for (j, second) in heavy().filter(|(j, _)| *j != i) {
            *chances.entry(BTreeSet::from([i, j])).or_default() += first / all * second / (all - first);
        }
    }
    chances
}

#[test]
fn by_neighbor_every_edge_is_drawn_equally_often() {
    let leaves = 50;
    // Few draws are looked through one by one, many by stamps.
    for fanout in [5, 40] {
        let mut counts = vec![0f64; leaves];
        for set in kept("neighbor", fanout, &vec![1.0; leaves]) {
            assert_eq!(set.len(), fanout as usize);
            set.iter().for_each(|&leaf| counts[leaf as usize - 1] += 1.0);
        }
        let share = fanout as f64 / leaves as f64;
        let expected = DRAWS as f64 * share;
        let chi_square: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
        // Drawing without replacement spreads counts less than drawing with.
        let freedom = leaves as f64 - 1.0;
        check_chi_square(chi_square * freedom / (leaves as f64 * (1.0 - share)), freedom);
    }
}

#[test]
fn by_neighbor_every_pair_of_edges_is_drawn_equally_often() {
    let weights = [9.0, 1.0, 0.0, 2.0, 5.0];
    check_sets(&kept("neighbor", 2, &weights), &pairs_drawn_successively(&[1.0; 5]));
}

#[test]
fn by_weighted_one_edge_is_drawn_in_proportion_to_its_weight_and_never_one_of_weight_0() {
    let weights = [0.5, 3.0, 0.0, 1.0, 8.0];
    let single = |(leaf, &weight)| (BTreeSet::from([leaf]), f64::from(weight) / 12.5);
    let chances = (1..).zip(&weights).map(single).filter(|(_, chance)| *chance > 0.0).collect();
    check_sets(&kept("weighted", 1, &weights), &chances);
}

#[test]
fn by_weighted_two_edges_are_drawn_like_one_after_the_other() {
    for weights in [&[0.5, 3.0, 1.0, 8.0][..], &[1.0; 4], &[2.0, 0.0, 0.1, 4.0, 4.0]] {
        check_sets(&kept("weighted", 2, weights), &pairs_drawn_successively(weights));
    }
}

#[test]
fn by_weighted_edges_of_weight_0_are_kept_by_no_fan_out() {
    let weights = [0.0, 3.0, -0.0, 1.0];
    for fanout in [2, 3, 4, -1] {
        assert!(kept("weighted", fanout, &weights).iter().all(|set| *set == BTreeSet::from([2, 4])));
    }
    for fanout in [1, -1] {
        assert!(kept("weighted", fanout, &[0.0; 3]).iter().all(BTreeSet::is_empty));
    }
}

#[test]
fn by_labor_every_edge_is_kept_as_often_as_by_neighbor_but_for_lists_that_would_be_empty() {
    let (leaves, fanout) = (50, 5);
    let mut counts = vec![0f64; leaves];
    for set in kept("labor", fanout, &vec![1.0; leaves]) {
        set.iter().for_each(|&leaf| counts[leaf as usize - 1] += 1.0);
    }
    let share = fanout as f64 / leaves as f64;
    let chance = share + (1.0 - share).powi(leaves as i32) / leaves as f64;
    let (mean, variance) = (DRAWS as f64 * chance, DRAWS as f64 * chance * (1.0 - chance));
    let chi_square = counts.iter().map(|count| (count - mean).powi(2) / variance).sum();
    check_chi_square(chi_square, leaves as f64);
}

#[test]
fn by_labor_edges_are_kept_independently_and_an_empty_list_keeps_its_luckiest() {
    for (leaves, fanout) in [(3, 1), (4, 2), (4, 3)] {
        let share = fanout as f64 / f64::from(leaves);
        let chance = |set: &BTreeSet<u64>| {
            let independently = share.powi(set.len() as i32) * (1.0 - share).powi(leaves - set.len() as i32);
            let luckiest = if set.len() == 1 { (1.0 - share).powi(leaves) / f64::from(leaves) } else { 0.0 };
            independently + luckiest
        };
        let set = |bits: u32| (1..=leaves as u64).filter(|leaf| bits >> (leaf - 1) & 1 == 1).collect();
        let sets = (1..1 << leaves).map(set);
        let chances = sets.map(|set: BTreeSet<u64>| (set.clone(), chance(&set))).collect();
        check_sets(&kept("labor", fanout, &vec![1.0; leaves as usize]), &chances);
    }
}

#[test]
fn by_labor_nodes_of_the_same_in_neighbours_keep_the_same_in_one_layer_wherever_they_live() {
    let (sources, readers) = (40, 40..60);
    let pairs = readers.clone().flat_map(|reader| (0..sources).map(move |source| (source, reader))).collect();
    let graph = Graph::from(Shape { name: "two sides", nodes: 60, pairs });
    let targets: Vec<u64> = readers.collect();
    for parts in assignments(60).iter().map(|assignment| graph.parts(assignment)) {
        for step in 0..50 {
            let nodes = |name| {
                let batch = sample_across(&parts, &*sampler(name, &[5]), 0, &targets, key(step));
                let list = |row| counted(drawn(&batch.blocks[0], &batch.nodes, row));
                let alike = (1..20).filter(|&row| list(row) == list(0)).count();
                (alike, batch.nodes.len() - targets.len())
            };
            let ((alike, few), (differing, many)) = (nodes("labor"), nodes("neighbor"));
            assert!(alike == 19 && (1..=20).contains(&few), "{alike} {few}");
            assert!(differing < 3 && many > 30, "{differing} {many}");
        }
    }
}

#[test]
fn by_labor_a_node_of_fewer_in_neighbours_keeps_all_that_one_of_more_keeps_of_them() {
    // Node 0 reads nodes 2 to 41, node 1 only the first half of them.
    let pairs = (2..42).map(|source| (source, 0)).chain((2..22).map(|source| (source, 1))).collect();
    let whole = Graph::from(Shape { name: "half", nodes: 42, pairs }).whole();
    for step in 0..200 {
        let batch = sample_alone(&whole, &*sampler("labor", &[4]), &[0, 1], key(step));
        let list = |row| counted(drawn(&batch.blocks[0], &batch.nodes, row));
        let (more, fewer) = (list(0), list(1));
        let shared = more.keys().filter(|(source, _)| *source < 22);
        assert!(shared.clone().all(|edge| fewer.contains_key(edge)), "{more:?} {fewer:?}");
    }
}

#[test]
fn by_labor_a_batch_reads_fewer_nodes_than_by_neighbor_for_as_many_edges() {
    let whole = Graph::from(Shape::random(400, 16_000, 14)).whole();
    let targets: Vec<u64> = (0..40).collect();
    let (mut edges, steps) = ([0, 0], 50);
    for step in 0..steps {
        let batches = ["labor", "neighbor"]
            .map(|name| sample_alone(&whole, &*sampler(name, &[5, 5]), &targets, key(step)));
        let [few, many] = batches.each_ref().map(|batch| batch.nodes.len());
        assert!(3 * few < 2 * many, "{few} by labor, {many} by neighbor");
        batches.iter().zip(&mut edges).for_each(|(batch, edges)| *edges += batch.blocks[1].edges());
    }
    let ratio = edges[0] as f64 / edges[1] as f64;
    assert!((0.9..1.1).contains(&ratio), "{edges:?}");
}
