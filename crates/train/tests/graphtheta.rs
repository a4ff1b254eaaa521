//! GraphTheta: one batch computed by all ranks together, whatever a batch is and whoever holds the edges.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Job;
use archipelago_graph::Store;
use archipelago_graph::store::CLUSTER_METHODS;
use archipelago_train::Run;
use archipelago_train::run::RunConfig;
use common::{
    Limit, after_steps, all_models, assert_resumes, communities, config, cut, gradients, odd_cases, on_ranks,
    relative_difference, train,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const COMMON: &[&str] = &[
    "strategy.name=graphtheta",
    "model.hidden=16",
    "train.threads=2",
    "train.epochs=3",
    "train.eval_every=3",
];
const PLACEMENTS: [&str; 3] =
    ["exchange.placement=destination", "exchange.placement=source", "exchange.placement=2d"];
const CLUSTERS: &[&str] = &["train.batch=cluster", "train.cluster_count=6", "train.clusters=2"];

/// Targets of a batch on all ranks, in all tests of mini-batches.
const BATCH: usize = 48;

fn settings(sets: &[&[&str]]) -> Arc<RunConfig> {
    config(&[COMMON, &sets.concat()].concat())
}

/// Mini-batches of [`BATCH`] targets on so many parts.
fn mini(parts: usize, sets: &[&[&str]]) -> Arc<RunConfig> {
    let size = format!("train.batch_size={}", BATCH / parts);
    settings(&[&["train.batch=mini", &size], &sets.concat()])
}

/// Loss, gradients and weights after an epoch are the same but for rounding.
fn assert_equal(what: &str, one: (&Store, &Arc<RunConfig>), other: (&Store, &Arc<RunConfig>)) {
    let ((expected, expected_losses), (found, losses)) =
        (after_steps(one.0, one.1, 1), after_steps(other.0, other.1, 1));
    let off = (losses[0] - expected_losses[0]).abs() / expected_losses[0];
    assert!(off < 1e-5, "{what}: loss off by {off:e}");
    let gradient = relative_difference(&gradients(&found), &gradients(&expected));
    assert!(gradient < 1e-4, "{what}: gradient of the last step off by {gradient:e}");
    for (found, expected) in found.iter().zip(expected.iter()) {
        let off = relative_difference(&found.value, &expected.value);
        assert!(off < 1e-5, "{what}: {} off by {off:e}", found.name);
    }
}

#[test]
fn oracle_7_a_mini_batch_on_many_parts_is_that_on_one_for_any_placement() {
    let mut dataset = communities(300, 2400, 5);
    let one = cut(&mut dataset, 1, "random");
    let cuts =
        [(2, "random"), (3, "hash"), (4, "random")].map(|(p, by)| (p, cut(&mut dataset, p as u32, by)));
    let sgd: &[&str] = &["train.optimizer=sgd"];
    for model in all_models() {
        for (parts, many) in &cuts {
            for placement in PLACEMENTS {
                let (alone, together) = (mini(1, &[model, sgd]), mini(*parts, &[model, sgd, &[placement]]));
                let what = format!("{model:?} on {parts} parts, {placement}");
                assert_equal(&what, (&one.store, &alone), (&many.store, &together));
            }
        }
    }
}

#[test]
fn oracle_7_batches_of_clusters_do_not_depend_on_the_parts() {
    let mut dataset = communities(300, 2400, 5);
    let (one, many) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 4, "hash"));
    let sgd: &[&str] = &["train.optimizer=sgd"];
    for model in all_models() {
        for hops in ["train.boundary_hops=0", "train.boundary_hops=1", "train.boundary_hops=2"] {
            for placement in PLACEMENTS {
                let config = settings(&[CLUSTERS, model, sgd, &[hops]]);
                let placed = settings(&[CLUSTERS, model, sgd, &[hops, placement]]);
                let what = format!("{model:?}, {hops}, {placement}");
                assert_equal(&what, (&one.store, &config), (&many.store, &placed));
            }
        }
    }
}

#[test]
fn oracle_7_one_cluster_that_covers_the_graph_is_the_global_batch() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let whole: &[&str] = &["train.batch=cluster", "train.cluster_count=1", "train.clusters=1"];
    for model in all_models() {
        let (cluster, global) = (settings(&[whole, model]), settings(&[&["train.batch=global"], model]));
        assert_equal(&format!("{model:?}"), (&cut.store, &global), (&cut.store, &cluster));
    }
}

#[test]
fn one_mini_batch_of_all_targets_is_the_global_batch_and_that_is_full() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    for model in all_models().filter(|model| !model.contains(&"model.norm=batch")) {
        let (mini, global) =
            (settings(&[&["train.batch=mini"], model]), settings(&[&["train.batch=global"], model]));
        assert_equal(&format!("{model:?}"), (&cut.store, &global), (&cut.store, &mini));
        let full = config(&[COMMON, model, &["strategy.name=full"]].concat());
        let digest = |config| train(&cut.store, config).weights_sha256;
        assert_eq!(digest(&global), digest(&full), "{model:?}");
    }
}

/// What hybrid parallelism promises: ranks share the rows of a batch, and compute none twice.
#[test]
fn the_rows_of_a_batch_are_computed_once_however_many_parts_there_are() {
    let mut dataset = communities(600, 4800, 5);
    let mut active = |parts: u32| -> Vec<usize> {
        let cut = cut(&mut dataset, parts, "hash");
        let config = settings(&[&["train.batch=mini", "model.layers=3"]]);
        let of_ranks = on_ranks(&cut.store, &config, |worker, _| {
            let targets: Vec<u32> = worker
                .labelled
                .iter()
                .copied()
                .filter(|&row| worker.originals[row as usize].is_multiple_of(7))
                .collect();
            let wanted = archipelago_train::index::Wanted {
                targets: &targets,
                layers: 3,
                all_hidden_rows: false,
                within: None,
                places: None,
            };
            let mut index = worker.index.take().unwrap();
            let active = index.batch(&worker.comm, wanted)?;
            let of_layer = active.layers.iter().flat_map(|layer| [layer.block.targets, layer.block.edges()]);
            Ok(of_layer.collect::<Vec<_>>())
        });
        (0..6).map(|at| of_ranks.iter().map(|counts| counts[at]).sum()).collect()
    };
    let one = active(1);
    assert!(one.iter().all(|&count| count > 0));
    for parts in [2, 4, 8] {
        assert_eq!(active(parts), one, "{parts} parts");
    }
}

#[test]
fn oracle_8_threads_change_no_bit_and_oracle_9_nor_does_an_interruption() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 4, "random");
    let kinds: [&[&str]; 3] =
        [&["train.batch=mini", "train.batch_size=12"], CLUSTERS, &["train.batch=global"]];
    let models: [&[&str]; 3] = [
        &["model.name=gcn"],
        &["model.name=gat-e", "model.heads=2", "model.attention_dropout=0.2", "exchange.placement=2d"],
        &["model.name=rgcn", "model.norm=batch", "exchange.placement=source"],
    ];
    for (kind, model) in kinds.iter().flat_map(|kind| models.iter().map(move |model| (kind, model))) {
        let digest = |threads: &str| {
            train(&cut.store, &config(&[COMMON, kind, model, &[threads]].concat())).weights_sha256
        };
        assert_eq!(digest("train.threads=1"), digest("train.threads=3"), "{kind:?} {model:?}");
        assert_resumes(
            &cut.store,
            &settings(&[kind, model, &["train.epochs=6"]]),
            3,
            &format!("{kind:?} {model:?}"),
        );
    }
}

#[test]
fn batches_under_way_that_make_one_step_together_are_one_batch() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    for model in all_models().filter(|model| !model.iter().any(|set| set.contains("norm=batch"))) {
        let plain: &[&str] = &[
            "model.dropout=0.0",
            "model.attention_dropout=0.0",
            "model.input_dropout=0.0",
            "train.optimizer=sgd",
        ];
        let global = settings(&[&["train.batch=global"], model, plain]);
        for placement in PLACEMENTS {
            let together = settings(&[
                &["train.batch=mini", "train.batch_size=9", "agree.in_flight=32", placement],
                model,
                plain,
            ]);
            assert_equal(&format!("{model:?}, {placement}"), (&cut.store, &global), (&cut.store, &together));
        }
    }
}

#[test]
fn versions_of_weights_are_the_same_in_every_run() {
    let mut dataset = communities(400, 4000, 4);
    let cut = cut(&mut dataset, 3, "random");
    let small: &[&str] = &["train.batch=mini", "train.batch_size=10", "train.epochs=4", "model.name=gat"];
    let one_by_one = train(&cut.store, &settings(&[small])).weights_sha256;
    for updates in ["agree.updates=sync", "agree.updates=async"] {
        let run = |threads: &str| {
            train(&cut.store, &config(&[COMMON, small, &["agree.in_flight=3", updates, threads]].concat()))
        };
        let first = run("train.threads=1");
        assert_eq!(run("train.threads=3").weights_sha256, first.weights_sha256, "{updates}");
        assert_ne!(first.weights_sha256, one_by_one, "{updates}: batches began with the newest weights");
        let longer = settings(&[small, &["agree.in_flight=3", updates, "train.epochs=6"]]);
        assert_resumes(&cut.store, &longer, 3, updates);
    }
}

#[test]
fn a_run_that_fails_with_batches_under_way_ends_and_says_why() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    for updates in ["agree.updates=sync", "agree.updates=async"] {
        let far: &[&str] =
            &["train.batch=mini", "train.batch_size=5", "train.optimizer=sgd", "train.lr=1e38"];
        let config = settings(&[far, &["agree.in_flight=3", "train.epochs=20", updates]]);
        let (observer, stop) = ((), AtomicBool::new(false));
        let run = Run {
            config,
            store: &cut.store,
            folder: None,
            observer: &observer,
            stop: &stop,
            resume: None,
            job: Job::alone(),
            operators: None,
        };
        let message = run.train().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains("is not a finite number"), "{updates}: {message}");
    }
}

#[test]
fn what_cannot_be_under_way_is_refused() {
    let refused = |sets: &[&str]| {
        let config = settings(&[sets, &["agree.in_flight=2"]]);
        archipelago_train::strategy::check(&config, 2).err().map(|error| error.to_string()).unwrap()
    };
    assert!(refused(&["train.batch=global"]).contains("expected 1 with global batches, found 2"));
    assert!(
        refused(&["train.batch=mini", "model.norm=batch"]).contains("expected 1 with batch norm, found 2")
    );
}

#[test]
fn every_method_finds_clusters_and_learns_from_them() {
    let mut dataset = communities(600, 6000, 4);
    let cut = cut(&mut dataset, 2, "random");
    for method in CLUSTER_METHODS {
        let method = format!("train.cluster_method={method}");
        let run =
            train(&cut.store, &settings(&[CLUSTERS, &[&method, "train.epochs=30", "train.eval_every=30"]]));
        assert!(run.test_score.unwrap() > 0.5, "{method}: {:?}", run.test_score);
    }
}

#[test]
fn odd_graphs_and_parts_are_no_obstacle() {
    let kinds: [&[&str]; 2] = [
        &["train.batch=mini", "train.batch_size=3"],
        &["train.batch=cluster", "train.cluster_count=4", "train.cluster_method=label-propagation"],
    ];
    for (what, mut dataset, assignment) in odd_cases() {
        let cut = common::cut_as(&mut dataset, &assignment, "by hand");
        for (kind, placement) in kinds.iter().flat_map(|kind| PLACEMENTS.map(|placement| (kind, placement))) {
            let run = train(&cut.store, &settings(&[kind, &[placement]]));
            assert!(run.train_loss.is_finite(), "{what}, {kind:?}, {placement}");
        }
    }
}
