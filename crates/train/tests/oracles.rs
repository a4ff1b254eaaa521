//! Identities that must hold for exact training (the numbers are those of the oracle list in ARCHITECTURE.md).

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Job;
use archipelago_graph::dataset::{EdgeChunk, Features, Labels, MemoryEdges};
use archipelago_graph::partition::PARTITIONERS;
use archipelago_graph::{Dataset, Store};
use archipelago_train::Run;
use archipelago_train::checkpoint::{Checkpoint, Slot};
use archipelago_train::parameters::Parameter;
use archipelago_train::run::RunConfig;
use common::{
    TempStore, after_steps, all_models, assert_resumes, communities, config, cut, gradients, on_ranks,
    reference, reference_graph, relative_difference, train,
};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const COMMON: &[&str] = &["model.hidden=16", "train.threads=2", "train.epochs=3", "train.eval_every=3"];

fn settings(model: &[&str]) -> Arc<RunConfig> {
    config(&[COMMON, model].concat())
}

#[test]
fn oracle_1_a_step_on_p_parts_equals_a_step_on_one() {
    let mut dataset = communities(300, 2400, 5);
    let one = cut(&mut dataset, 1, "random");
    let cuts = [(2, "random"), (3, "hash"), (4, "random"), (7, "hash")];
    let cuts = cuts.map(|(parts, method)| (parts, method, cut(&mut dataset, parts, method)));
    for model in all_models() {
        equals_one_part(&one.store, &cuts, &settings(model));
    }
}

#[test]
fn oracle_1_holds_for_every_partitioner() {
    let mut dataset = communities(300, 2400, 5);
    let one = cut(&mut dataset, 1, "random");
    let methods = PARTITIONERS.iter().filter(|entry| !entry.needs_file).map(|entry| entry.name);
    let cuts: Vec<_> = methods
        .zip([2, 3, 4, 7].into_iter().cycle())
        .map(|(method, parts)| (parts, method, cut(&mut dataset, parts, method)))
        .collect();
    for model in all_models() {
        // Adam's first step divides a gradient by itself, so that the rounding of one that is nearly zero decides on its
        // sign; over this many cuts that happens, and says nothing of the exchange.
        equals_one_part(&one.store, &cuts, &settings(&[*model, &["train.optimizer=sgd"]].concat()));
    }
}

/// Loss, gradients and weights after a step on each of `cuts` are those on the store `one`.
fn equals_one_part(one: &Store, cuts: &[(u32, &str, TempStore)], config: &Arc<RunConfig>) {
    let (expected, expected_losses) = after_steps(one, config, 1);
    for (parts, method, many) in cuts {
        let place = format!("{} on {parts} by {method}", config.model.name);
        let (found, losses) = after_steps(&many.store, config, 1);
        let off = (losses[0] - expected_losses[0]).abs() / expected_losses[0];
        assert!(off < 1e-5, "{place}: loss off by {off:e}");
        let gradient = relative_difference(&gradients(&found), &gradients(&expected));
        assert!(gradient < 1e-5, "{place}: gradient off by {gradient:e}");
        for (found, expected) in found.iter().zip(expected.iter()) {
            let values = relative_difference(&found.value, &expected.value);
            assert!(values < 1e-5, "{place}: {} off by {values:e}", found.name);
        }
    }
}

#[test]
fn losses_on_different_numbers_of_parts_agree_after_ten_epochs() {
    let mut dataset = communities(300, 2400, 5);
    let config = settings(&["model.name=gcn"]);
    let (_, expected) = after_steps(&cut(&mut dataset, 1, "random").store, &config, 10);
    for parts in [2, 5] {
        let (_, found) = after_steps(&cut(&mut dataset, parts, "random").store, &config, 10);
        assert!((found[9] - expected[9]).abs() < 1e-4 * expected[9], "{parts} parts: {found:?}");
    }
}

#[test]
fn oracle_8_fixed_parts_give_the_same_bits_for_any_number_of_threads() {
    let mut dataset = communities(400, 4000, 5);
    let cut = cut(&mut dataset, 4, "random");
    for model in all_models() {
        let digest = |threads: &str| {
            let config = config(&[COMMON, model, &[threads]].concat());
            train(&cut.store, &config).weights_sha256
        };
        let expected = digest("train.threads=1");
        for threads in ["train.threads=2", "train.threads=4"] {
            assert_eq!(digest(threads), expected, "{model:?} with {threads}");
        }
    }
}

#[test]
fn oracles_1_and_8_hold_where_rows_stand_near_those_that_they_read() {
    // Parts of two are too small for it: their rows are in ascending order.
    let mut dataset = communities(20_000, 120_000, 5);
    let (one, two) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 2, "random"));
    let sets =
        |threads| [COMMON, &["model.name=gat", "model.layers=3", "train.optimizer=sgd", threads]].concat();
    let with = |threads| config(&sets(threads));
    let orders = on_ranks(&one.store, &with("train.threads=1"), |worker, _| {
        Ok((worker.order.clone(), worker.labelled.clone()))
    });
    let (mut order, labelled) = orders.into_iter().next().unwrap();
    assert!(!order.is_sorted() && !order[..labelled.len()].is_sorted(), "rows are ordered by what they read");
    order[..labelled.len()].sort_unstable();
    assert_eq!(order[..labelled.len()], labelled, "targets first");
    order.sort_unstable();
    assert!(order.into_iter().eq(0..20_000), "every row once");
    equals_one_part(&one.store, &[(2, "random", two)], &with("train.threads=1"));
    let digest = |threads| train(&one.store, &with(threads)).weights_sha256;
    assert_eq!(digest("train.threads=1"), digest("train.threads=3"));
}

#[test]
fn overlapping_exchange_and_work_changes_no_bit() {
    let mut dataset = communities(400, 4000, 5);
    let cut = cut(&mut dataset, 3, "random");
    for model in all_models() {
        let digest = |overlap: &str| {
            let config = config(&[COMMON, model, &[overlap]].concat());
            train(&cut.store, &config).weights_sha256
        };
        assert_eq!(digest("exchange.overlap=true"), digest("exchange.overlap=false"), "{model:?}");
    }
}

/// The gradient of the loss by all weights, against the loss itself a small way along a direction.
///
/// LeakyReLU and max have kinks, and one close by spoils the difference quotient of one draw of weights; an error
/// of the gradient spoils all of them. So the middle of three draws counts.
#[test]
fn oracle_13_gradients_are_the_slope_of_the_loss() {
    let mut dataset = communities(120, 900, 4);
    let cut = cut(&mut dataset, 2, "random");
    let fixed: &[&str] = &["model.activation=elu", "train.optimizer=sgd", "train.lr=1e-12"];
    for model in all_models() {
        let mut errors = ["train.seed=1", "train.seed=2", "train.seed=3"]
            .map(|seed| slope_error(&cut.store, &config(&[COMMON, model, fixed, &[seed]].concat())));
        errors.sort_by(f64::total_cmp);
        assert!(errors[1] < 0.01, "{model:?}: relative errors {errors:?}");
    }
}

/// The smallest relative difference between gradient and difference quotient over several distances: far ones
/// meet curvature, near ones rounding.
fn slope_error(store: &archipelago_graph::Store, config: &Arc<RunConfig>) -> f64 {
    let direction = |name: &str, i: usize| ((name.len() * 31 + i * 17) % 7) as f32 - 3.0;
    let (start, _) = after_steps(store, config, 1);
    let along = |p: &Parameter| -> f64 {
        p.grad.iter().enumerate().map(|(i, g)| f64::from(g * direction(&p.name, i))).sum()
    };
    let slope: f64 = start.iter().map(along).sum();
    let loss_at = |distance: f32| -> f64 {
        let shares = on_ranks(store, config, |worker, strategy| {
            for parameter in worker.tape.parameters.iter_mut() {
                for (i, value) in parameter.value.iter_mut().enumerate() {
                    *value += distance * direction(&parameter.name, i);
                }
            }
            strategy.epoch(worker, 1, 0).map(|outcome| outcome.loss)
        });
        shares.iter().sum()
    };
    let quotient = |d: f32| (loss_at(d) - loss_at(-d)) / (2.0 * f64::from(d));
    let errors = [4e-4, 2e-4, 1e-4].map(|distance| (quotient(distance) - slope).abs());
    errors.into_iter().fold(f64::INFINITY, f64::min) / slope.abs().max(0.3)
}

/// The same graph with other ids: node `v` becomes `(v * 7 + 3) % nodes`.
fn relabelled(nodes: u64, edges: u64) -> (Dataset, Dataset) {
    let new_id = move |node: u64| (node * 7 + 3) % nodes;
    let (original, mut other) = (communities(nodes, edges, 4), communities(nodes, edges, 4));
    let mut chunk = EdgeChunk::default();
    let mut all = EdgeChunk::default();
    while other.edges.next_chunk(&mut chunk).unwrap() {
        all.sources.extend(chunk.sources.iter().map(|&node| new_id(node)));
        all.targets.extend(chunk.targets.iter().map(|&node| new_id(node)));
        all.types.append(&mut chunk.types);
        all.attributes.append(&mut chunk.attributes);
    }
    other.edges = Box::new(MemoryEdges::new(all, other.edge_columns.attribute_width));
    if let (Features::Dense { width, values }, Labels::Classes { classes, values: labels }) =
        (&original.features, &original.labels)
    {
        let (mut x, mut y) = (vec![0.0; values.len()], vec![0; labels.len()]);
        for node in 0..nodes {
            let (from, to) = (node as usize, new_id(node) as usize);
            x[to * width..][..*width].copy_from_slice(&values[from * width..][..*width]);
            y[to] = labels[from];
        }
        other.features = Features::Dense { width: *width, values: x.into() };
        other.labels = Labels::Classes { classes: *classes, values: y.into() };
    }
    for split in [&mut other.splits.train, &mut other.splits.valid, &mut other.splits.test] {
        split.iter_mut().for_each(|node| *node = new_id(*node));
        split.sort_unstable();
    }
    (original, other)
}

#[test]
fn oracle_16_a_relabelled_graph_gives_the_same_predictions_relabelled() {
    let nodes = 200;
    let (mut original, mut other) = relabelled(nodes, 1600);
    let (original, other) = (cut(&mut original, 3, "hash"), cut(&mut other, 3, "hash"));
    for model in all_models().filter(|model| !model.iter().any(|set| set.contains("dropout="))) {
        let config = config(&[COMMON, model, &["model.dropout=0.0"]].concat());
        let (expected, found) = (predictions(&original.store, &config), predictions(&other.store, &config));
        let classes = expected.len() / nodes as usize;
        let back: Vec<f32> = (0..nodes)
            .flat_map(|node| found[((node * 7 + 3) % nodes) as usize * classes..][..classes].to_vec())
            .collect();
        let off = relative_difference(&back, &expected);
        assert!(off < 1e-4, "{model:?}: off by {off:e}");
    }
}

/// Scores of all nodes after three epochs, in the user's order.
fn predictions(store: &archipelago_graph::Store, config: &Arc<RunConfig>) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let (observer, stop) = ((), AtomicBool::new(false));
    let run = Run {
        config: Arc::clone(config),
        store,
        folder: Some(folder.path().to_path_buf()),
        observer: &observer,
        stop: &stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    };
    run.train().unwrap();
    let last = Checkpoint::load(folder.path(), Slot::Last).unwrap();
    run.infer(&last, true).unwrap().unwrap().scores.to_vec()
}

#[test]
fn oracle_9_an_interrupted_and_resumed_run_ends_in_the_same_bits() {
    let mut dataset = communities(300, 2400, 5);
    let (four, one) = (cut(&mut dataset, 4, "random"), cut(&mut dataset, 1, "random"));
    let mini: &[&str] = &["strategy.name=mini", "train.batch_size=16", "train.fanouts=[4,3]"];
    let schedule: &[&str] = &["train.epochs=8", "train.schedule=cosine", "train.warmup_epochs=2"];
    let models = all_models().map(|model| (&four.store, [COMMON, model, schedule].concat()));
    for (store, sets) in models.chain([(&one.store, [COMMON, mini, schedule].concat())]) {
        let config = config(&sets);
        assert_resumes(store, &config, 3, &format!("{sets:?}"));
    }
}

/// A reference model: its file, the settings that build it, and how its weights are called there.
const REFERENCES: &[(&str, &[&str])] = &[
    ("model_gcn", &["model.name=gcn"]),
    ("model_sage", &["model.name=sage"]),
    ("model_gat", &["model.name=gat", "model.heads=4", "model.activation=elu"]),
    ("model_gin", &["model.name=gin"]),
    ("model_rgcn", &["model.name=rgcn", "model.bases=2"]),
    ("model_edge_gat", &["model.name=gat-e", "model.heads=2", "model.activation=elu"]),
    ("model_sage_multilabel", &["model.name=sage"]),
];

const OPTIMIZERS: &[(&str, &[&str])] = &[
    ("adam", &["train.optimizer=adam"]),
    ("adam_l2", &["train.optimizer=adam", "train.weight_decay=5e-4"]),
    ("adamw", &["train.optimizer=adamw", "train.weight_decay=5e-4"]),
    ("sgd_momentum", &["train.optimizer=sgd", "train.momentum=0.9"]),
];

/// `layers.0.weight` is `l1_weight` there; GIN's last bias is `bias2`.
fn reference_name(name: &str, gin: bool) -> String {
    let (layer, weight) = name.trim_start_matches("layers.").split_once('.').unwrap();
    let weight = match weight {
        "bias" if gin => "bias2",
        "shares" => "comp",
        _ => weight,
    };
    format!("l{}_{weight}", layer.parse::<usize>().unwrap() + 1)
}

#[test]
fn oracle_14_models_train_as_in_pyg_and_dgl_on_any_number_of_parts() {
    for (file, model) in REFERENCES {
        let Some(mut dataset) = reference_graph(file.ends_with("multilabel"), *file == "model_rgcn") else {
            return;
        };
        let expected = match *file {
            "model_rgcn" => reference::stored(file),
            _ => reference::open(file).unwrap(),
        };
        let gin = file.ends_with("gin");
        for parts in [1, 3] {
            let cut = cut(&mut dataset, parts, "random");
            for (optimizer, settings) in OPTIMIZERS {
                let fixed: &[&str] = &["model.hidden=16", "model.dropout=0.0", "train.lr=0.01"];
                let config = config(&[*model, *settings, fixed].concat());
                check_reference(&cut.store, &config, &expected, optimizer, gin);
            }
        }
    }
}

fn check_reference(
    store: &Store,
    config: &Arc<RunConfig>,
    expected: &reference::Reference,
    optimizer: &str,
    gin: bool,
) {
    let ranks = on_ranks(store, config, |worker, strategy| {
        for parameter in worker.tape.parameters.iter_mut() {
            let stored = expected.f32(&format!("param_{}", reference_name(&parameter.name, gin)));
            parameter.value.copy_from_slice(&stored);
        }
        let mut found = Vec::new();
        for epoch in 1..=11 {
            let loss = strategy.epoch(worker, epoch, epoch - 1)?.loss;
            found.push((loss, worker.tape.parameters.clone()));
        }
        Ok(found)
    });
    let losses = expected.f64(&format!("{optimizer}_losses"));
    for (step, expected_loss) in losses.iter().enumerate() {
        let loss: f64 = ranks.iter().map(|found| found[step].0).sum();
        let off = (loss - expected_loss).abs() / expected_loss;
        assert!(off < 1e-5, "{optimizer} loss after {step} steps: {loss}, expected {expected_loss}");
    }
    for parameter in ranks[0][0].1.iter() {
        let name = reference_name(&parameter.name, gin);
        let off = relative_difference(&parameter.grad, &expected.f32(&format!("grad_{name}")));
        // Weight decay is not part of the stored gradient, and is not added to ours either.
        assert!(off < 1e-5, "{optimizer}: gradient of {name} off by {off:e}");
    }
    for step in [1, 2, 10] {
        for parameter in ranks[0][step - 1].1.iter() {
            let name = reference_name(&parameter.name, gin);
            let wanted = expected.f32(&format!("{optimizer}_step{step}_{name}"));
            let off = relative_difference(&parameter.value, &wanted);
            assert!(off < 5e-6, "{optimizer}: {name} after {step} steps off by {off:e}");
        }
    }
}
