//! Learnable rows of nodes: what a step learns does not depend on the cut, and nothing of it is lost.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Job;
use archipelago_graph::dataset::{Dataset, Features};
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::{PartId, Store};
use archipelago_train::checkpoint::{Checkpoint, Slot};
use archipelago_train::event::Observer;
use archipelago_train::run::RunConfig;
use archipelago_train::worker::Worker;
use archipelago_train::{Ending, Run, embedding, strategy};
use common::{assert_resumes, communities, config, cut, on_ranks, relative_difference, train};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const WIDTH: usize = 6;
const OPTIMIZERS: [&str; 3] =
    ["train.embedding_optimizer=sgd", "train.embedding_optimizer=adagrad", "train.embedding_optimizer=adam"];

/// Every way in which a first layer reads its input.
const MODELS: &[&[&str]] = &[
    &["model.name=gcn"],
    &["model.name=sage", "model.input_dropout=0.3", "model.residual=true"],
    &["model.name=sage", "model.aggregator=max"],
    &["model.name=gat", "model.heads=2"],
    &["model.name=gatv2", "model.heads=2"],
    &["model.name=gin"],
];

const COMMON: &[&str] = &[
    "strategy.name=distdgl",
    "model.embedding=6",
    "model.hidden=16",
    "train.threads=2",
    "train.epochs=4",
    "train.eval_every=2",
];

/// One step per epoch that reads every neighbour.
const WHOLE: &[&str] = &["train.batch_size=10000", "train.fanouts=[-1,-1]"];
/// Several steps per epoch.
const SAMPLED: &[&str] = &["train.batch_size=16", "train.fanouts=[4,3]"];

fn settings(more: &[&[&str]]) -> Arc<RunConfig> {
    config(&[&[COMMON], more].concat().concat())
}

/// A community graph without features: only structure and labels.
fn bare(nodes: u64, edges: u64, classes: usize) -> Dataset {
    Dataset { features: Features::None, ..communities(nodes, edges, classes) }
}

/// Losses of some epochs, and the embeddings after them in the user's order.
fn after_epochs(store: &Store, config: &Arc<RunConfig>, epochs: u64) -> (Vec<f64>, Vec<f32>) {
    let ranks = on_ranks(store, config, |worker, strategy| {
        let losses = (1..=epochs).map(|epoch| strategy.epoch(worker, epoch, epoch - 1).map(|o| o.loss));
        Ok((losses.collect::<Result<Vec<_>, _>>()?, embedding::gather_rows(worker)?))
    });
    let losses = (0..epochs as usize).map(|epoch| ranks.iter().map(|(losses, _)| losses[epoch]).sum());
    (losses.collect(), ranks.iter().find_map(|(_, rows)| rows.clone()).unwrap())
}

#[test]
fn steps_on_several_parts_learn_the_rows_that_one_part_learns() {
    let mut dataset = communities(300, 2400, 5);
    let one = cut(&mut dataset, 1, "random");
    let cuts = [(2, "random"), (3, "hash")].map(|(parts, method)| cut(&mut dataset, parts, method));
    let models = MODELS.iter().map(|model| (*model, OPTIMIZERS[1]));
    for (model, optimizer) in models.chain([(MODELS[0], OPTIMIZERS[0]), (MODELS[0], OPTIMIZERS[2])]) {
        let config = settings(&[WHOLE, model, &[optimizer]]);
        let (losses, expected) = after_epochs(&one.store, &config, 3);
        for cut in &cuts {
            let (found_losses, found) = after_epochs(&cut.store, &config, 3);
            let off = relative_difference(&found, &expected);
            let what = format!("{model:?}, {optimizer}, on {} parts", cut.store.parts());
            assert!(off < 1e-5, "{what}: rows off by {off:e}");
            for (found, expected) in found_losses.iter().zip(&losses) {
                assert!((found - expected).abs() < 1e-5 * expected, "{what}: {found_losses:?} {losses:?}");
            }
        }
    }
}

/// The loss of one step with a node's row moved by `distance` along `direction`, and how far the step then moved it.
fn moved(
    store: &Store,
    config: &Arc<RunConfig>,
    node: u64,
    direction: &[f32],
    distance: f32,
) -> (f64, Vec<f32>) {
    let ranks = on_ranks(store, config, |worker, strategy| {
        let at = worker.part.original().iter().position(|&original| original == node);
        if let Some(at) = at {
            let row = &mut worker.embeddings.as_mut().unwrap().rows_mut()[at * WIDTH..][..WIDTH];
            row.iter_mut().zip(direction).for_each(|(number, along)| *number += distance * along);
        }
        let row = |worker: &Worker| {
            at.map(|at| worker.embeddings.as_ref().unwrap().rows()[at * WIDTH..][..WIDTH].to_vec())
        };
        let before = row(worker);
        let loss = strategy.epoch(worker, 1, 0)?.loss;
        let change = before
            .zip(row(worker))
            .map(|(before, after)| before.iter().zip(&after).map(|(b, a)| b - a).collect());
        Ok((loss, change))
    });
    (ranks.iter().map(|(loss, _)| loss).sum(), ranks.into_iter().find_map(|(_, change)| change).unwrap())
}

/// With plain descent at rate 1 a row moves by its gradient.
#[test]
fn the_gradient_of_a_row_is_the_slope_of_the_loss() {
    let mut dataset = communities(40, 300, 4);
    let cut = cut(&mut dataset, 2, "random");
    let fixed: &[&str] = &["model.activation=elu", "model.dropout=0", "train.embedding_lr=1"];
    for model in MODELS {
        let mut errors: Vec<f64> = (0..5)
            .map(|node| {
                let config = settings(&[WHOLE, fixed, &[OPTIMIZERS[0]], model]);
                let direction: Vec<f32> = (0..WIDTH as u64)
                    .map(|c| Key::new(2, Purpose::Generate).with(node).normal(c) as f32)
                    .collect();
                let loss_at = |distance| moved(&cut.store, &config, node, &direction, distance).0;
                let gradient = moved(&cut.store, &config, node, &direction, 0.0).1;
                let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
                let quotient = |d: f32| (loss_at(d) - loss_at(-d)) / (2.0 * f64::from(d));
                let errors = [1e-1, 3e-2, 1e-2].map(|distance| (quotient(distance) - slope).abs());
                errors.into_iter().fold(f64::INFINITY, f64::min) / slope.abs().max(1e-3)
            })
            .collect();
        // A kink close to one node spoils its quotient; a wrong gradient spoils those of all.
        errors.sort_by(f64::total_cmp);
        assert!(errors[2] < 0.01, "{model:?}: relative errors {errors:?}");
    }
}

#[test]
fn threads_and_batches_ahead_change_no_bit() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let digest = |more: &[&str]| train(&cut.store, &settings(&[SAMPLED, more])).weights_sha256;
    let expected = digest(&["train.threads=1", "train.prefetch=1"]);
    for more in [
        ["train.threads=4", "train.prefetch=1"],
        ["train.threads=2", "train.prefetch=5"],
        ["train.threads=2", "strategy.name=bytegnn"],
    ] {
        assert_eq!(digest(&more), expected, "{more:?}");
    }
    assert_ne!(digest(&["train.embedding_lr=0.02"]), expected);
}

fn run<'a>(
    store: &'a Store,
    config: &Arc<RunConfig>,
    folder: &Path,
    observer: &'a dyn Observer,
    stop: &'a AtomicBool,
) -> Run<'a> {
    Run {
        config: Arc::clone(config),
        store,
        folder: Some(folder.to_path_buf()),
        observer,
        stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    }
}

#[test]
fn a_stopped_and_resumed_run_ends_in_the_same_bits() {
    let mut dataset = communities(200, 1600, 4);
    let cut = cut(&mut dataset, 3, "random");
    for optimizer in OPTIMIZERS {
        let config = settings(&[SAMPLED, &[optimizer]]);
        assert_resumes(&cut.store, &config, 2, optimizer);
    }
}

#[test]
fn a_checkpoint_serves_on_any_cut_and_refuses_another_optimiser() {
    let mut dataset = communities(200, 1600, 4);
    let (three, two) = (cut(&mut dataset, 3, "random"), cut(&mut dataset, 2, "hash"));
    let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let config = settings(&[SAMPLED]);
    let run = |store, config: &Arc<RunConfig>| run(store, config, folder.path(), &(), &stop);
    let Ending::Finished(summary) = run(&three.store, &config).train().unwrap() else {
        panic!("interrupted")
    };
    let last = Checkpoint::load(folder.path(), Slot::Last).unwrap();
    let names: Vec<&str> = last.weights.iter().map(|weight| weight.name.as_str()).collect();
    assert!(names.is_sorted() && names[0] == embedding::NAME, "{names:?}");
    assert_eq!((last.weights[0].rows, last.weights[0].cols), (200, WIDTH));
    let expected = run(&three.store, &config).infer(&last, false).unwrap().unwrap().scores;
    let found = run(&two.store, &config).infer(&last, false).unwrap().unwrap().scores;
    assert!(relative_difference(&found, &expected) < 1e-5);
    let scores = run(&two.store, &config).evaluate(&last).unwrap();
    assert!(scores.test.is_some() && summary.test_score.is_some());

    let adam = settings(&[SAMPLED, &[OPTIMIZERS[2]]]);
    let error = Run { resume: Some(last), ..run(&three.store, &adam) }.train().unwrap_err().to_string();
    assert!(error.contains("another optimiser"), "{error}");
}

#[test]
fn a_graph_without_features_is_learned_by_embeddings() {
    let mut dataset = bare(600, 9000, 6);
    let cut = cut(&mut dataset, 2, "random");
    let score = |more: &[&str]| {
        let long: &[&str] = &["train.epochs=30", "model.name=sage", "train.embedding_lr=0.1"];
        train(&cut.store, &settings(&[SAMPLED, long, more])).test_score.unwrap()
    };
    let (with, without) = (score(&["model.embedding=16"]), score(&["model.embedding=0"]));
    assert!(with > without + 0.2, "{with} with embeddings, {without} without");
}

#[test]
fn sparse_features_stand_beside_embeddings_as_dense_ones_do() {
    let mut dense = communities(120, 900, 4);
    let Features::Dense { width, values } = &dense.features else {
        panic!("communities have dense features")
    };
    let rows = values.len() / width;
    let (offsets, columns) =
        ((0..=rows).map(|row| (row * width) as u64), (0..rows * width).map(|i| (i % width) as u32));
    let features = Features::Sparse {
        width: *width,
        offsets: offsets.collect::<Vec<_>>().into(),
        columns: columns.collect::<Vec<_>>().into(),
        values: values.clone(),
    };
    let mut sparse = Dataset { features, ..communities(120, 900, 4) };
    let config = settings(&[SAMPLED]);
    let digest = |dataset: &mut Dataset| train(&cut(dataset, 2, "hash").store, &config).weights_sha256;
    assert_eq!(digest(&mut sparse), digest(&mut dense));
}

#[test]
fn gradients_of_a_node_that_several_ranks_read_are_summed_in_rank_order() {
    let mut dataset = communities(60, 400, 3);
    let cut = cut(&mut dataset, 3, "random");
    let gradient = |rank: usize, column: usize| (rank as f32 + 0.1) * (column as f32 - 1.7);
    let rows = |config: &Arc<RunConfig>, work: fn(usize) -> Vec<u64>| {
        on_ranks(&cut.store, config, |worker, _| {
            let Worker { comm, part, embeddings, .. } = worker;
            let embeddings = embeddings.as_mut().unwrap();
            let nodes = work(comm.rank());
            let before = embeddings.pull(comm, part, &[0, 59, 1])?;
            let pushed: Vec<f32> =
                nodes.iter().flat_map(|_| (0..WIDTH).map(|column| gradient(comm.rank(), column))).collect();
            embeddings.push(comm, part, &nodes, &pushed)?;
            embeddings.settle(comm)?;
            Ok((before, embeddings.pull(comm, part, &[0, 59, 1])?))
        })
    };
    let config = settings(&[&[OPTIMIZERS[0], "train.embedding_lr=0.5"]]);
    // Every rank pushes the first node, rank 1 the last one too, and twice; the third is left alone.
    let found = rows(&config, |rank| if rank == 1 { vec![59, 0, 59] } else { vec![0] });
    for (before, after) in &found {
        for column in 0..WIDTH {
            let of_all = (0..3).map(|rank| gradient(rank, column)).fold(0.0, |sum, g| sum + g);
            let twice = gradient(1, column) + gradient(1, column);
            assert_eq!(after[column], before[column] - 0.5 * of_all);
            assert_eq!(after[WIDTH + column], before[WIDTH + column] - 0.5 * twice);
            assert_eq!(after[2 * WIDTH + column], before[2 * WIDTH + column]);
        }
    }
    assert!(found.iter().all(|ranks| *ranks == found[0]), "every rank pulls the same rows");
}

#[test]
fn initial_rows_do_not_depend_on_the_cut_and_fill_their_bounds() {
    let mut dataset = communities(100, 700, 3);
    let rows = |cut: &common::TempStore, seed: &str| after_epochs(&cut.store, &settings(&[&[seed]]), 0).1;
    let (one, four) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 4, "random"));
    let drawn = rows(&one, "train.seed=1");
    assert_eq!(drawn, rows(&four, "train.seed=1"));
    assert_ne!(drawn, rows(&one, "train.seed=2"));
    let bound = (3.0 / WIDTH as f32).sqrt();
    assert!(drawn.iter().all(|number| number.abs() <= bound));
    assert!(
        drawn.iter().any(|number| *number > 0.95 * bound)
            && drawn.iter().any(|number| *number < -0.95 * bound)
    );
}

#[test]
fn a_rank_without_targets_still_serves() {
    let mut dataset = communities(120, 900, 4);
    dataset.splits.train.truncate(2);
    let (one, four) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 4, "hash"));
    for asynchronous in ["train.embedding_async=false", "train.embedding_async=true"] {
        let config = settings(&[WHOLE, &["train.lr=0.05", asynchronous, OPTIMIZERS[0]]]);
        let (_, expected) = after_epochs(&one.store, &config, 3);
        let (_, found) = after_epochs(&four.store, &config, 3);
        let off = relative_difference(&found, &expected);
        assert!(off < 1e-5, "{asynchronous}: off by {off:e}");
    }
}

/// Plain descent is a sum, whatever the order: what is late or comes apart ends up in the same rows.
#[test]
fn asynchronous_pushes_have_all_arrived_when_an_epoch_ends() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let rows = |asynchronous: &str| {
        after_epochs(&cut.store, &settings(&[WHOLE, &[OPTIMIZERS[0], asynchronous]]), 3).1
    };
    let off = relative_difference(&rows("train.embedding_async=true"), &rows("train.embedding_async=false"));
    assert!(off < 1e-5, "off by {off:e}");
    for optimizer in OPTIMIZERS {
        let summary = train(&cut.store, &settings(&[SAMPLED, &[optimizer, "train.embedding_async=true"]]));
        assert!(summary.train_loss.is_finite() && summary.epochs == 4);
    }
}

#[test]
fn every_rank_owns_its_rows_and_nobody_elses() {
    let mut dataset = communities(90, 600, 3);
    let cut = cut(&mut dataset, 3, "random");
    let held = on_ranks(&cut.store, &settings(&[]), |worker, _| {
        let embeddings = worker.embeddings.as_ref().unwrap();
        Ok((embeddings.rows().len(), embeddings.copies()))
    });
    for (id, (numbers, copies)) in held.into_iter().enumerate() {
        assert_eq!(numbers, cut.store.part(PartId(id as u32)).unwrap().owned() * WIDTH);
        assert_eq!(copies, 2, "adagrad keeps a sum for every number");
    }
}

#[test]
fn a_full_batch_refuses_embeddings_and_names_who_learns_them() {
    let error = strategy::check(&config(&["model.embedding=8"]), 2).err().unwrap().to_string();
    for expected in ["model.embedding", "full", "`mini`, `distdgl`, `bytegnn`"] {
        assert!(error.contains(expected), "{error}");
    }
}
