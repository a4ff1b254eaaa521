//! Whoever holds an edge, a step is the same (the numbers are those of the oracle list in ARCHITECTURE.md).

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_graph::Dataset;
use archipelago_graph::dataset::{EdgeChunk, MemoryEdges};
use archipelago_train::parameters::Parameters;
use archipelago_train::run::RunConfig;
use archipelago_train::strategy::{self, STRATEGIES};
use common::{
    MODELS, TempStore, after_steps, all_models, assert_resumes, communities, config, cut, cut_as, gradients,
    odd_cases, on_ranks, relative_difference, train,
};
use std::sync::Arc;

const COMMON: &[&str] = &["model.hidden=16", "train.threads=2", "train.epochs=3", "train.eval_every=3"];

/// Edges elsewhere than with the owners of their targets.
const PLACEMENTS: &[&str] =
    &["exchange.placement=source", "exchange.placement=2d", "exchange.placement=cover"];

fn settings(model: &[&str], placement: &str) -> Arc<RunConfig> {
    config(&[COMMON, model, &[placement]].concat())
}

/// A community graph whose edges have weights.
fn weighted() -> Dataset {
    let mut dataset = communities(300, 2400, 5);
    let (mut chunk, mut all) = (EdgeChunk::default(), EdgeChunk::default());
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        all.sources.extend(&chunk.sources);
        all.targets.extend(&chunk.targets);
        all.types.extend(&chunk.types);
        all.attributes.extend(&chunk.attributes);
    }
    all.weights = (0..all.sources.len()).map(|edge| 0.25 + (edge * 7 % 11) as f32 / 8.0).collect();
    dataset.edges = Box::new(MemoryEdges::new(all, dataset.edge_columns.attribute_width));
    dataset.edge_columns.weighted = true;
    dataset
}

/// Loss and gradients of a step on `many` are those on the store `one`; returns the weights after it, and those expected.
fn equals_one_part(
    one: &TempStore,
    many: &TempStore,
    config: &Arc<RunConfig>,
    place: &str,
) -> (Parameters, Parameters) {
    let (expected, expected_losses) = after_steps(&one.store, config, 1);
    let (found, losses) = after_steps(&many.store, config, 1);
    let off = (losses[0] - expected_losses[0]).abs() / expected_losses[0].max(1e-20);
    assert!(off < 1e-5, "{place}: loss {losses:?}, expected {expected_losses:?}");
    let gradient = relative_difference(&gradients(&found), &gradients(&expected));
    assert!(gradient < 1e-5, "{place}: gradient off by {gradient:e}");
    (found, expected)
}

#[test]
fn oracle_1_a_step_on_p_parts_equals_a_step_on_one_whoever_holds_the_edges() {
    for mut dataset in [communities(300, 2400, 5), weighted()] {
        let one = cut(&mut dataset, 1, "random");
        let cuts = [(2, "random"), (3, "hash"), (4, "random"), (6, "hash"), (7, "hash")];
        let cuts = cuts.map(|(parts, method)| (parts, cut(&mut dataset, parts, method)));
        for (model, placement) in all_models().flat_map(|model| PLACEMENTS.iter().map(move |p| (model, p))) {
            // Adam's first step divides a gradient by itself: where one is nearly zero, rounding decides on its sign.
            let config = settings(&[*model, &["train.optimizer=sgd"]].concat(), placement);
            for (parts, many) in &cuts {
                let place = format!("{model:?} on {parts}, {placement}");
                let (found, expected) = equals_one_part(&one, many, &config, &place);
                for (found, expected) in found.iter().zip(expected.iter()) {
                    let off = relative_difference(&found.value, &expected.value);
                    assert!(off < 1e-5, "{place}: {} off by {off:e}", found.name);
                }
            }
        }
    }
}

#[test]
fn oracle_1_holds_for_graphs_and_parts_that_are_easily_forgotten() {
    for (what, mut dataset, assignment) in odd_cases() {
        let (one, many) = (cut(&mut dataset, 1, "random"), cut_as(&mut dataset, &assignment, "by hand"));
        for (model, placement) in MODELS.iter().flat_map(|model| PLACEMENTS.iter().map(move |p| (model, p))) {
            let config = settings(&[*model, &["train.optimizer=sgd"]].concat(), placement);
            equals_one_part(&one, &many, &config, &format!("{what}: {model:?}, {placement}"));
        }
    }
}

#[test]
fn oracle_8_fixed_parts_give_the_same_bits_for_any_number_of_threads() {
    let cut = cut(&mut weighted(), 4, "random");
    for (model, placement) in all_models().flat_map(|model| PLACEMENTS.iter().map(move |p| (model, p))) {
        let digest = |threads: &str| {
            let config = config(&[COMMON, model, &[placement, threads]].concat());
            train(&cut.store, &config).weights_sha256
        };
        assert_eq!(digest("train.threads=1"), digest("train.threads=4"), "{model:?} with {placement}");
    }
}

#[test]
fn oracle_9_an_interrupted_and_resumed_run_ends_in_the_same_bits() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    for placement in PLACEMENTS {
        let config = config(&[COMMON, &["model.name=gat", "train.epochs=6", placement]].concat());
        assert_resumes(&cut.store, &config, 3, placement);
    }
}

#[test]
fn rows_between_targets_and_their_mirrors_are_rounded_as_rows_that_cross_are() {
    let cut = cut(&mut communities(400, 4000, 5), 4, "random");
    for (model, placement) in all_models().flat_map(|model| PLACEMENTS.iter().map(move |p| (model, p))) {
        let score = |codec: &str| {
            let epochs = &["train.epochs=30", "train.eval_every=30", placement, codec];
            train(&cut.store, &config(&[COMMON, model, epochs].concat()))
        };
        let (exact, rounded) = (score("exchange.codec=f32"), score("exchange.codec=int8"));
        let off = (rounded.train_loss - exact.train_loss).abs();
        assert!(off < 0.25, "{model:?}, {placement}: loss {} and {}", rounded.train_loss, exact.train_loss);
    }
}

/// Rows that a step sends, forward and back, as its layers say: those read of sources, and those of mirrors.
#[test]
fn with_sources_no_row_of_a_source_crosses_but_one_aggregate_for_each_part_that_has_sources_of_a_target() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    // GCN's first layer is aggregated once, with edges at their targets.
    let models: [(&[&str], usize); 2] =
        [(&["model.name=gcn", "model.layers=3"], 1), (&["model.name=gat"], 0)];
    for ((model, first), (placement, reads)) in models.into_iter().flat_map(|model| {
        [("source", false), ("2d", true), ("cover", true)].map(|placement| (model, placement))
    }) {
        let config = settings(model, &format!("exchange.placement={placement}"));
        let ranks = on_ranks(&cut.store, &config, |worker, strategy| {
            let sent = strategy.epoch(worker, 1, 0)?.toll.rows;
            let layers = &worker.layers[first..];
            let halo: usize = layers.iter().map(|layout| layout.block.halo).sum();
            let mirrors = layers.iter().map(|layout| layout.mirrors.as_ref().unwrap().block.targets);
            Ok((sent, halo as u64, mirrors.sum::<usize>() as u64))
        });
        let [sent, halo, mirrors] =
            [0, 1, 2].map(|at| ranks.iter().map(|r| [r.0, r.1, r.2][at]).sum::<u64>());
        assert_eq!(
            (sent, halo > 0, mirrors > 0),
            (2 * (halo + mirrors), reads, true),
            "{model:?}, {placement}"
        );
    }
}

/// Rows of sources and aggregates of a layer that computes everything.
#[test]
fn with_cover_fewer_rows_cross_than_with_targets_or_with_sources() {
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    let crossing = |placement: &str| {
        let model = &["model.name=gat", "model.layers=4"];
        let config = settings(model, &format!("exchange.placement={placement}"));
        let ranks = on_ranks(&cut.store, &config, |worker, _| {
            let layout = &worker.layers[0];
            let mirrors = layout.mirrors.as_ref().map_or(0, |mirrors| mirrors.block.targets);
            Ok(layout.block.halo + mirrors)
        });
        ranks.iter().sum::<usize>()
    };
    let [cover, destination, source] = ["cover", "destination", "source"].map(crossing);
    assert!(cover < destination.min(source), "{cover} rows, {destination} and {source}");
}

#[test]
fn a_placement_that_is_not_known_is_refused_with_the_nearest_name() {
    let sets = ["exchange.placement=sauce".to_owned()];
    let error = RunConfig::from_sources(None, &sets).unwrap_err().to_string();
    assert!(error.contains("exchange.placement") && error.contains("`source`"), "{error}");
}

#[test]
fn strategies_that_do_not_read_the_placement_refuse_it() {
    for entry in STRATEGIES.iter().filter(|entry| !entry.reads.contains(&"exchange.placement")) {
        let name = format!("strategy.name={}", entry.name);
        let error = strategy::check(&config(&[&name, "exchange.placement=2d"]), 2).err().unwrap().to_string();
        assert!(error.contains("exchange.placement") && error.contains("`full`"), "{error}");
    }
}
