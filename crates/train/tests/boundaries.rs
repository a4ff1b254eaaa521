//! What boundaries that send less must hold (the numbers are those of the oracle list in ARCHITECTURE.md).

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Kind;
use archipelago_graph::dataset::{Dataset, EdgeChunk, Features, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_graph::sample::Chunks;
use archipelago_train::boundary::{Boundary, Exact, Moving, Toll};
use archipelago_train::checkpoint::{Checkpoint, Slot};
use archipelago_train::event::{BytesSent, Event, Observer};
use archipelago_train::model::Pass;
use archipelago_train::parameters::Parameters;
use archipelago_train::run::RunConfig;
use archipelago_train::strategy::{self, STRATEGIES};
use archipelago_train::view::{Layout, Scales, Thinning};
use archipelago_train::worker::{TargetLabels, Worker};
use archipelago_train::{Ending, Result, Run};
use common::{
    Limit, TempStore, after_steps, all_models, assert_resumes, communities, config, cut, cut_as, gradients,
    on_ranks, relative_difference, resumed, train,
};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

const COMMON: &[&str] = &["model.hidden=16", "train.threads=2", "train.epochs=3", "train.eval_every=3"];

/// Every boundary of a global batch, with what can be set of it.
const BOUNDARIES: &[&[&str]] = &[
    &["strategy.name=emma", "exchange.chunks=3"],
    &["strategy.name=emma", "exchange.chunks=3", "exchange.history_refresh_every=never"],
    &[
        "strategy.name=emma",
        "exchange.chunks=4",
        "exchange.history_refresh_every=2",
        "exchange.rescale_gradient=true",
    ],
    &["strategy.name=emma", "exchange.chunks=3", "exchange.history_of=inputs"],
    &["strategy.name=emma", "exchange.chunks=3", "exchange.history_of=halo"],
    &[
        "strategy.name=emma",
        "exchange.chunks=4",
        "exchange.history_of=halo",
        "exchange.history_refresh_every=2",
        "exchange.rescale_gradient=true",
        "exchange.codec=bf16",
    ],
    &["strategy.name=emma", "exchange.chunks=3", "exchange.moving=false"],
    &["strategy.name=emma", "exchange.chunks=3", "exchange.codec=bf16"],
    &["strategy.name=sancus"],
    &["strategy.name=sancus", "exchange.staleness=turns", "exchange.stale_epochs=2"],
    &["strategy.name=sancus", "exchange.staleness=change", "exchange.stale_change=0.05"],
    &["strategy.name=sancus", "exchange.backward=straight-through", "exchange.codec=int8"],
    &["strategy.name=sancus", "exchange.own_block=fresh", "agree.clip_local=1.0"],
    &["strategy.name=cagnet", "exchange.broadcast=block"],
    &["strategy.name=skipg", "exchange.stale_epochs=2"],
    &["strategy.name=bns", "exchange.boundary_rate=0.5"],
    &["strategy.name=pipegcn"],
    &["strategy.name=pipegcn", "exchange.smooth_rows=0.5", "exchange.smooth_gradients=0.9"],
    &["strategy.name=full", "exchange.codec=int8", "agree.codec=int8"],
];

fn settings(sets: &[&[&str]]) -> Arc<RunConfig> {
    config(&[&[COMMON], sets].concat().concat())
}

fn is_max(model: &[&str]) -> bool {
    model.contains(&"model.aggregator=max")
}

/// Whether a boundary can join what a model aggregates.
fn fits(model: &[&str], boundary: &[&str]) -> bool {
    let sums =
        !boundary.contains(&"exchange.moving=false") && !boundary.contains(&"exchange.history_of=halo");
    !is_max(model) || !boundary.contains(&"strategy.name=emma") || !sums
}

/// The same graph with most features 0 and only the others stored.
fn with_sparse_features(mut dataset: Dataset) -> Dataset {
    if let Features::Dense { width, values } = &dataset.features {
        let (mut offsets, mut columns, mut kept) = (vec![0u64], Vec::new(), Vec::new());
        for row in values.chunks_exact(*width) {
            for (column, &value) in row.iter().enumerate().filter(|(_, value)| value.abs() > 0.7) {
                columns.push(column as u32);
                kept.push(value);
            }
            offsets.push(columns.len() as u64);
        }
        dataset.features = Features::Sparse {
            width: *width,
            offsets: offsets.into(),
            columns: columns.into(),
            values: kept.into(),
        };
    }
    dataset
}

fn equals(found: &(Parameters, Vec<f64>), expected: &(Parameters, Vec<f64>), place: &str) {
    for (found, expected) in found.1.iter().zip(&expected.1) {
        let off = (found - expected).abs() / expected;
        assert!(off < 2e-5, "{place}: loss off by {off:e}");
    }
    let gradient = relative_difference(&gradients(&found.0), &gradients(&expected.0));
    assert!(gradient < 2e-5, "{place}: gradient off by {gradient:e}");
    for (found, expected) in found.0.iter().zip(expected.0.iter()) {
        let values = relative_difference(&found.value, &expected.value);
        assert!(values < 2e-5, "{place}: {} off by {values:e}", found.name);
    }
}

/// What gives the numbers of `full`, whatever the model.
const EXACT: &[&[&str]] = &[
    &["strategy.name=emma", "exchange.chunks=1"],
    &["strategy.name=emma", "exchange.chunks=1", "exchange.history_refresh_every=never"],
    &["strategy.name=emma", "exchange.chunks=1", "exchange.history_of=halo"],
    &["strategy.name=emma", "exchange.chunking=false"],
    &["strategy.name=emma", "exchange.chunking=false", "exchange.moving=false"],
    &["strategy.name=sancus", "exchange.stale_epochs=0"],
    &["strategy.name=sancus", "exchange.staleness=turns", "exchange.stale_epochs=0"],
    &["strategy.name=sancus", "exchange.staleness=change", "exchange.stale_change=0"],
    &["strategy.name=cagnet"],
    &["strategy.name=cagnet", "exchange.broadcast=block"],
    &["strategy.name=skipg", "exchange.stale_epochs=0"],
    &["strategy.name=bns", "exchange.boundary_rate=1.0"],
];

#[test]
fn oracles_2_and_4_without_chunks_and_with_bound_0_a_step_is_that_of_full() {
    let mut dataset = communities(300, 2400, 5);
    let stores = [1, 3].map(|parts| cut(&mut dataset, parts, "random"));
    for model in all_models() {
        for cut in &stores {
            // Adam divides a gradient that is nearly zero by itself: its rounding would decide.
            let sgd: &[&str] = &["train.optimizer=sgd"];
            let expected = after_steps(&cut.store, &settings(&[model, sgd]), 3);
            for exact in EXACT.iter().filter(|exact| fits(model, exact)) {
                let found = after_steps(&cut.store, &settings(&[model, sgd, exact]), 3);
                equals(
                    &found,
                    &expected,
                    &format!("{model:?} with {exact:?} on {} parts", cut.store.parts()),
                );
            }
        }
    }
}

#[test]
fn oracles_1_and_4_hold_for_sparse_features() {
    let mut dataset = with_sparse_features(communities(300, 2400, 5));
    let (one, cut) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 3, "random"));
    let sgd: &[&str] = &["train.optimizer=sgd"];
    for model in [&["model.name=gcn"][..], &["model.name=gat", "model.heads=2"]] {
        let expected = after_steps(&one.store, &settings(&[model, sgd]), 3);
        let full: &[&str] = &["strategy.name=full"];
        for exact in EXACT.iter().chain([&full]) {
            let found = after_steps(&cut.store, &settings(&[model, sgd, exact]), 3);
            equals(&found, &expected, &format!("{model:?} with {exact:?}"));
        }
    }
}

#[test]
fn the_first_step_of_pipegcn_is_that_of_full_and_later_ones_are_late() {
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    for model in all_models() {
        let sgd: &[&str] = &["train.optimizer=sgd", "strategy.name=pipegcn"];
        let expected = after_steps(&cut.store, &settings(&[model, &sgd[..1]]), 1);
        let found = after_steps(&cut.store, &settings(&[model, sgd]), 1);
        equals(&found, &expected, &format!("{model:?}"));
    }
    let model: &[&str] = &["model.name=gcn", "strategy.name=pipegcn"];
    let tolls = tolls(&cut, &settings(&[model]), 4);
    let gaps: Vec<_> = tolls.iter().map(|toll| toll.gaps[1].0).collect();
    assert!(gaps[0][0] > 0 && gaps[0][1] == 0, "{gaps:?}");
    assert!(gaps[1..].iter().all(|gaps| gaps[0] == 0 && gaps[1] > 0), "{gaps:?}");
}

/// What crossing took on all ranks together in each of so many epochs.
fn tolls(cut: &TempStore, config: &Arc<RunConfig>, epochs: usize) -> Vec<Toll> {
    let ranks = on_ranks(&cut.store, config, |worker, strategy| {
        let mut step = 0;
        (1..=epochs as u64)
            .map(|epoch| {
                let outcome = strategy.epoch(worker, epoch, step)?;
                step += outcome.steps;
                Ok(outcome.toll)
            })
            .collect::<Result<Vec<_>>>()
    });
    let of_epoch = |epoch: usize| {
        let mut sum = Toll { steps: ranks[0][epoch].steps, ..Toll::default() };
        for rank in &ranks {
            let toll = &rank[epoch];
            sum.rows += toll.rows;
            sum.sent += toll.sent;
            sum.skipped += toll.skipped;
            sum.gaps.resize(sum.gaps.len().max(toll.gaps.len()), Default::default());
            for (sum, gaps) in sum.gaps.iter_mut().zip(&toll.gaps) {
                sum.0.iter_mut().zip(gaps.0).for_each(|(sum, rows)| *sum += rows);
            }
        }
        sum
    };
    (0..epochs).map(of_epoch).collect()
}

#[test]
fn oracle_4_with_bound_e_a_block_is_sent_every_e_plus_1_epochs() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    for bound in 0..4usize {
        let set = format!("exchange.stale_epochs={bound}");
        let three: &[&str] = &["strategy.name=sancus", "model.layers=3", &set];
        let sent = tolls(&cut, &settings(&[three]), 9);
        for (epoch, toll) in sent.iter().enumerate() {
            let counts = (toll.sent, toll.skipped);
            // Four parts, two layers whose inputs are not static.
            let expected = if epoch.is_multiple_of(bound + 1) { (8, 0) } else { (0, 8) };
            assert_eq!(counts, expected, "bound {bound}, epoch {}", epoch + 1);
        }
        let turns: &[&str] = &["exchange.staleness=turns"];
        let tolls = tolls(&cut, &settings(&[three, turns]), 9);
        let oldest =
            |toll: &Toll| toll.gaps.iter().flat_map(|gaps| gaps.0.iter().rposition(|&n| n > 0)).max();
        let bins = usize::BITS - bound.leading_zeros();
        assert!(tolls.iter().all(|toll| oldest(toll) <= Some(bins as usize)), "bound {bound}: {tolls:?}");
        if bound == 3 {
            assert!(tolls[1..].iter().all(|toll| toll.sent == 2), "parts do not take turns: {tolls:?}");
        }
    }
}

/// Bytes of each epoch of a run.
struct Bytes(Mutex<Vec<BytesSent>>);

impl Observer for Bytes {
    fn event(&self, event: &Event) {
        if let Event::Epoch(report) = event {
            self.0.lock().unwrap().push(report.bytes_sent);
        }
    }
}

fn bytes_of_epochs(cut: &TempStore, config: &Arc<RunConfig>) -> Vec<BytesSent> {
    let (observer, stop) = (Bytes(Mutex::default()), AtomicBool::new(false));
    let run = Run {
        config: Arc::clone(config),
        store: &cut.store,
        folder: None,
        observer: &observer,
        stop: &stop,
        resume: None,
        job: archipelago_comm::Job::alone(),
        operators: None,
    };
    run.train().unwrap();
    observer.0.into_inner().unwrap()
}

#[test]
fn oracle_4_features_cross_once_per_run() {
    let mut dense = communities(300, 2400, 5);
    let mut sparse = with_sparse_features(communities(300, 2400, 5));
    let stores = [cut(&mut dense, 3, "random"), cut(&mut sparse, 3, "random")];
    for strategy in ["sancus", "cagnet", "skipg", "pipegcn"].map(|name| format!("strategy.name={name}")) {
        for (cut, model) in stores.iter().flat_map(|cut| all_models().map(move |model| (cut, model))) {
            let epochs: &[&str] = &[&strategy, "train.epochs=4", "train.eval_every=4"];
            let bytes = bytes_of_epochs(cut, &settings(&[model, epochs]));
            let later: u64 = bytes[1..].iter().map(|bytes| bytes.features).sum();
            assert_eq!(later, 0, "{strategy} with {model:?}");
        }
    }
}

#[test]
fn sparse_features_cross_once_with_full_too() {
    let cut = cut(&mut with_sparse_features(communities(300, 2400, 5)), 3, "random");
    for (model, strategy) in
        all_models().flat_map(|model| ["full", "graphtheta"].map(|strategy| (model, strategy)))
    {
        let strategy = format!("strategy.name={strategy}");
        let epochs: &[&str] = &[&strategy, "train.epochs=3", "train.eval_every=3"];
        let bytes = bytes_of_epochs(&cut, &settings(&[model, epochs]));
        assert!(bytes[1..].iter().all(|bytes| bytes.features == 0), "{strategy} with {model:?}");
    }
}

#[test]
fn oracle_10_sancus_sends_its_share_of_what_cagnet_does() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    for model in [&["model.name=gcn"][..], &["model.name=sage", "model.layers=3"], &["model.name=gat"]] {
        let sum = |sets: &[&str]| -> u64 {
            let run: &[&str] = &["train.epochs=12", "train.eval_every=100"];
            bytes_of_epochs(&cut, &settings(&[model, run, sets])).iter().map(|bytes| bytes.embeddings).sum()
        };
        let all = sum(&["strategy.name=cagnet"]);
        for bound in [1u64, 2, 3] {
            let bound_is = format!("exchange.stale_epochs={bound}");
            let skipping = sum(&["strategy.name=sancus", &bound_is]);
            assert_eq!(skipping * (bound + 1), all, "{model:?}, bound {bound}");
            // Rows are skipped and their gradients are not.
            let straight = sum(&["strategy.name=sancus", "exchange.backward=straight-through", &bound_is]);
            assert_eq!(2 * straight, all + skipping, "{model:?}, bound {bound}");
            assert_eq!(sum(&["strategy.name=skipg", &bound_is]), straight, "{model:?}, bound {bound}");
        }
    }
}

#[test]
fn oracle_10_a_sweep_of_emma_sends_what_one_step_of_full_does() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    for model in [&["model.name=gcn", "model.layers=3"][..], &["model.name=gat", "model.heads=2"]] {
        let bytes = |sets: &[&str]| {
            let run: &[&str] = &["train.epochs=4", "train.eval_every=100"];
            bytes_of_epochs(&cut, &settings(&[model, run, sets]))
        };
        let full = bytes(&["strategy.name=full"]);
        for (chunks, history) in [("2", "narrowest"), ("10", "narrowest"), ("2", "halo"), ("10", "halo")] {
            let sets = [format!("exchange.chunks={chunks}"), format!("exchange.history_of={history}")];
            let emma =
                bytes(&["strategy.name=emma", &sets[0], &sets[1], "exchange.history_refresh_every=never"]);
            for (emma, full) in emma.iter().zip(&full).skip(1) {
                assert_eq!(emma.embeddings, full.embeddings, "{model:?}, {sets:?}");
                // Where rows of other parts are remembered, their features are at home.
                let features = if history == "halo" { 0 } else { full.features };
                assert_eq!(emma.features, features, "{model:?}, {sets:?}");
            }
        }
    }
}

#[test]
fn rows_that_last_came_are_those_of_this_step_while_weights_stand_still() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let still: &[&str] = &[
        "train.optimizer=sgd",
        "train.lr=1e-12",
        "model.layers=3",
        "model.dropout=0",
        "model.input_dropout=0",
        "model.attention_dropout=0",
    ];
    let recalls: &[&str] = &[
        "strategy.name=emma",
        "exchange.chunks=3",
        "exchange.history_of=halo",
        "exchange.history_refresh_every=never",
    ];
    for model in all_models() {
        let losses =
            |sets: &[&str], epochs| after_steps(&cut.store, &settings(&[model, still, sets]), epochs).1;
        let (full, recalled) = (losses(&["strategy.name=full"], 1), losses(recalls, 3));
        let off = recalled.iter().map(|loss| (loss / full[0] - 1.0).abs()).fold(0.0, f64::max);
        assert!(off < 1e-5, "{model:?}: {recalled:?}, {full:?}");
    }
}

#[test]
fn rescaled_gradients_to_chunks_add_up_to_those_of_full_in_a_sweep() {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    // Steps so small that weights stand still; a bias starts at 0, so it holds the sum of its gradients to all digits.
    let still: &[&str] = &["train.optimizer=sgd", "train.momentum=0", "train.lr=1e-6", "model.dropout=0"];
    let recalls: &[&str] = &[
        "strategy.name=emma",
        "exchange.chunks=4",
        "exchange.history_of=halo",
        "exchange.rescale_gradient=true",
    ];
    for model in [&["model.name=gcn"][..], &["model.name=sage"]] {
        let bias = |sets: &[&str]| {
            let (parameters, _) = after_steps(&cut.store, &settings(&[model, still, sets]), 1);
            let first = parameters.iter().find(|parameter| parameter.name == "layers.0.bias").unwrap();
            first.value.to_vec()
        };
        let (full, sweep) = (bias(&["strategy.name=full"]), bias(recalls));
        let steps: Vec<f32> = full.iter().map(|step| 4.0 * step).collect();
        let off = relative_difference(&sweep, &steps);
        assert!(off < 1e-4, "{model:?}: off by {off:e}");
    }
}

#[test]
fn a_codec_shortens_rows_on_the_wire() {
    let cut = cut(&mut communities(300, 2400, 5), 4, "random");
    for strategy in STRATEGIES.iter().filter(|entry| entry.behavior.global_batch) {
        let name = format!("strategy.name={}", strategy.name);
        let bytes = |codec: &str| -> u64 {
            let never: &[&str] = match strategy.reads.contains(&"exchange.history_refresh_every") {
                true => &["exchange.history_refresh_every=never"],
                false => &[],
            };
            let run: &[&str] = &[&name, codec, "model.layers=3", "train.eval_every=100"];
            bytes_of_epochs(&cut, &settings(&[run, never])).iter().map(|bytes| bytes.embeddings).sum()
        };
        let exact = bytes("exchange.codec=f32");
        assert_eq!(2 * bytes("exchange.codec=bf16"), exact, "{name}");
        // Rows of 16 and of 5 numbers, each with a scale.
        assert!(bytes("exchange.codec=int8") * 2 < exact, "{name}");
    }
}

#[test]
fn oracle_8_any_number_of_threads_gives_the_same_bits() {
    let cut = cut(&mut communities(400, 4000, 5), 4, "random");
    for boundary in BOUNDARIES {
        for model in [&["model.name=gcn"][..], &["model.name=gat", "model.heads=2"]] {
            let digest =
                |threads: &str| train(&cut.store, &settings(&[boundary, model, &[threads]])).weights_sha256;
            let expected = digest("train.threads=1");
            for threads in ["train.threads=2", "train.threads=4"] {
                assert_eq!(digest(threads), expected, "{boundary:?} with {model:?}, {threads}");
            }
        }
    }
}

#[test]
fn oracle_9_an_interrupted_and_resumed_run_ends_in_the_same_bits() {
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    let epochs: &[&str] = &["train.epochs=8"];
    for boundary in BOUNDARIES {
        for model in [&["model.name=sage", "model.layers=3"][..], &["model.name=gat", "model.heads=2"]] {
            let config = settings(&[boundary, model, epochs]);
            assert_resumes(&cut.store, &config, 3, &format!("{boundary:?} with {model:?}"));
        }
    }
}

#[test]
fn oracle_9_holds_where_a_resumed_run_begins_with_a_refresh_and_for_features_that_were_brought() {
    let mut sparse = with_sparse_features(communities(300, 2400, 5));
    let (dense, sparse) = (cut(&mut communities(300, 2400, 5), 3, "random"), cut(&mut sparse, 3, "random"));
    let refreshed: &[&str] = &["strategy.name=emma", "exchange.chunks=4", "exchange.codec=bf16"];
    let model: &[&str] = &["model.name=sage", "model.layers=3", "train.epochs=8"];
    assert_resumes(&dense.store, &settings(&[model, refreshed]), 3, "a refresh after the checkpoint");
    for boundary in BOUNDARIES {
        let config = settings(&[model, &["model.input_dropout=0.2"], boundary]);
        assert_resumes(&sparse.store, &config, 3, &format!("{boundary:?} with sparse features"));
    }
}

#[test]
fn memory_that_was_lost_is_missed() {
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    let config = settings(&[&["strategy.name=emma", "exchange.chunks=3", "train.epochs=8"]]);
    let folder = tempfile::tempdir().unwrap();
    let lost = folder.path().join("checkpoint/last/memory-1.safetensors");
    let error =
        resumed(&cut.store, &config, 3, &folder, || std::fs::remove_file(&lost).unwrap()).unwrap_err();
    assert!(error.to_string().contains("memory-1.safetensors"), "{error}");
}

#[test]
fn a_run_that_died_after_its_last_checkpoint_ends_in_order() {
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    let config =
        settings(&[&["strategy.name=emma", "exchange.chunks=3", "agree.codec=int8", "train.epochs=5"]]);
    let folder = tempfile::tempdir().unwrap();
    resumed(&cut.store, &config, 1, &folder, || {}).unwrap();
    let (observer, stop) = ((), AtomicBool::new(false));
    let run = Run {
        config,
        store: &cut.store,
        folder: Some(folder.path().to_path_buf()),
        observer: &observer,
        stop: &stop,
        resume: Some(Checkpoint::load(folder.path(), Slot::Last).unwrap()),
        job: archipelago_comm::Job::alone(),
        operators: None,
    };
    assert!(matches!(run.train().unwrap(), Ending::Finished(summary) if summary.epochs == 5));
}

#[test]
fn oracle_4_a_first_layer_is_never_stale() {
    let mut sparse = with_sparse_features(communities(300, 2400, 5));
    let (dense, sparse) = (cut(&mut communities(300, 2400, 5), 3, "random"), cut(&mut sparse, 3, "random"));
    let one: &[&str] = &["model.layers=1", "train.optimizer=sgd"];
    let bound: &[&str] = &["strategy.name=sancus", "exchange.stale_epochs=3"];
    for cut in [&dense, &sparse] {
        for model in all_models() {
            let expected = after_steps(&cut.store, &settings(&[model, one]), 4);
            let found = after_steps(&cut.store, &settings(&[model, one, bound]), 4);
            equals(&found, &expected, &format!("{model:?}"));
        }
    }
}

/// A part alone with an island of the graph and no training node, a part whose nodes are read and read nothing, and two
/// that read each other.
fn lopsided() -> TempStore {
    let mut dataset = communities(200, 1600, 4);
    let part_of = |node: u64| (node / 50) as u32;
    let mut kept = EdgeChunk::default();
    let mut chunk = EdgeChunk::default();
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        for (at, (&source, &target)) in chunk.sources.iter().zip(&chunk.targets).enumerate() {
            let (from, to) = (part_of(source), part_of(target));
            if from == to || (from > 0 && to > 1) {
                kept.sources.push(source);
                kept.targets.push(target);
                kept.types.push(chunk.types[at]);
                kept.attributes.extend(&chunk.attributes[2 * at..2 * at + 2]);
            }
        }
    }
    dataset.edges = Box::new(MemoryEdges::new(kept, 2));
    dataset.splits.train.retain(|&node| part_of(node) > 0);
    let parts = (0..200).map(part_of).collect();
    cut_as(&mut dataset, &Assignment { parts: 4, part_of: parts }, "file")
}

#[test]
fn parts_without_targets_and_without_neighbors_on_other_parts_keep_up() {
    let _limit = Limit::new();
    let (lopsided, alone) = (lopsided(), cut(&mut communities(100, 600, 3), 1, "random"));
    for boundary in BOUNDARIES {
        for model in all_models().filter(|model| fits(model, boundary)) {
            for layers in ["model.layers=1", "model.layers=3"] {
                for store in [&lopsided, &alone] {
                    let config = settings(&[model, &[layers, "train.epochs=4"], boundary]);
                    assert!(
                        train(&store.store, &config).train_loss.is_finite(),
                        "{boundary:?} with {model:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_model_learns_across_every_boundary() {
    let cut = cut(&mut communities(400, 4000, 4), 3, "random");
    let run: &[&str] = &["train.epochs=40", "train.eval_every=40", "model.dropout=0.2", "train.lr=0.02"];
    for boundary in BOUNDARIES {
        for model in all_models().filter(|model| fits(model, boundary)) {
            let summary = train(&cut.store, &settings(&[model, run, boundary]));
            let score = summary.test_score.unwrap();
            assert!(
                score > 0.5,
                "{boundary:?} with {model:?}: test score {score}, loss {}",
                summary.train_loss
            );
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let model: &[&str] = &["model.name=sage", "model.aggregator=max", "strategy.name=emma"];
    let error = strategy::check(&settings(&[model]), 2).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("expected `mean` or `sum` with strategy `emma`, found `max`"), "{error}");
    assert!(error.contains("hint: "), "{error}");
    let turns: &[&str] = &["strategy.name=skipg", "exchange.staleness=turns"];
    let error = strategy::check(&settings(&[turns]), 2).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("expected `epochs` with strategy `skipg`, found `turns`"), "{error}");
}

/// One step of Emma in which the first of three chunks sends, with a history that does not move.
struct FixedHistory {
    boundary: Moving,
    memory: archipelago_train::boundary::Memory,
    layers: Vec<Arc<Layout>>,
    labels: TargetLabels,
}

impl FixedHistory {
    /// The history is that of a full pass with the weights as they are.
    fn new(worker: &mut Worker) -> Result<Self> {
        let mut boundary = Moving::new(Exact::new(Arc::clone(&worker.comm), true)?, &worker.config, 0);
        let chunks = Chunks::new(3, worker.part.starts().last().copied().unwrap_or(0), 1, 1);
        let loops = worker.model.attends_to_own();
        let thinned = |layout: &Arc<Layout>| {
            let stays: Vec<bool> = layout.nodes.iter().map(|&node| chunks.of(node) == 0).collect();
            let scales = Scales::OfAll;
            Arc::new(layout.thinned(Thinning {
                stays: &stays,
                sends: &stays,
                halo_weight: 1.0,
                scales,
                loops,
            }))
        };
        let layers: Vec<_> = worker.layers.iter().map(thinned).collect();
        boundary.refresh(true);
        worker.tape.begin_evaluation();
        let all = worker.layers.clone();
        forward(worker, &mut boundary, &all)?;
        boundary.refresh(false);
        let memory = boundary.save()?;
        let labels = TargetLabels::of(&worker.part, &worker.order[..worker.targets]);
        Ok(Self { boundary, memory, layers, labels })
    }

    /// This rank's share of the loss; afterwards gradients can be asked for.
    fn loss(&mut self, worker: &mut Worker) -> Result<f64> {
        self.boundary.restore(&self.memory)?;
        worker.tape.begin_step(1, 1, 0);
        let scores = forward(worker, &mut self.boundary, &self.layers)?;
        let weight = worker.loss_weight(worker.all_targets);
        Ok(worker.tape.loss(scores, self.labels.goal(), weight))
    }
}

fn forward(
    worker: &mut Worker,
    boundary: &mut Moving,
    layouts: &[Arc<Layout>],
) -> Result<archipelago_train::tape::Var> {
    let input = worker.tape.constant(&worker.statics.features, layouts[0].block.local);
    let pass = Pass { layouts, input, statics: None, keep_embeddings: false };
    Ok(worker.model.forward(&mut worker.tape, boundary, pass)?.output)
}

#[test]
fn oracle_13_gradients_through_the_moving_aggregation_are_the_slope_of_the_loss_with_fixed_history() {
    let cut = cut(&mut communities(120, 900, 4), 2, "random");
    for model in all_models().filter(|model| !is_max(model)) {
        let seeds = ["train.seed=1", "train.seed=2", "train.seed=3"];
        let mut errors = seeds.map(|seed| {
            let config = settings(&[model, &["model.activation=elu", seed]]);
            on_ranks(&cut.store, &config, |worker, _| slope_error(worker))[0]
        });
        errors.sort_by(f64::total_cmp);
        assert!(errors[1] < 0.01, "{model:?}: relative errors {errors:?}");
    }
}

/// The smallest relative difference between gradient and difference quotient over several distances: far ones
/// meet curvature, near ones rounding.
fn slope_error(worker: &mut Worker) -> Result<f64> {
    let direction = |name: &str, i: usize| ((name.len() * 31 + i * 17) % 7) as f32 - 3.0;
    let mut step = FixedHistory::new(worker)?;
    let go = |worker: &mut Worker, distance: f32| {
        for parameter in worker.tape.parameters.iter_mut() {
            let values = parameter.value.iter_mut().enumerate();
            values.for_each(|(i, value)| *value += distance * direction(&parameter.name, i));
        }
    };
    // The history is that of other weights than those of the step.
    go(worker, 0.02);
    step.loss(worker)?;
    worker.tape.backward(&mut step.boundary)?;
    let along = |p: &archipelago_train::parameters::Parameter| -> f64 {
        p.grad.iter().enumerate().map(|(i, g)| f64::from(g * direction(&p.name, i))).sum()
    };
    let mut slope = [worker.tape.parameters.iter().map(along).sum::<f64>()];
    worker.comm.all_reduce_sum_f64(&mut slope, Kind::Control)?;
    let kept: Vec<_> = worker.tape.parameters.iter().map(|parameter| parameter.value.clone()).collect();
    let mut best = f64::INFINITY;
    for distance in [4e-4, 2e-4, 1e-4] {
        let mut losses = [0.0; 2];
        for (loss, sign) in losses.iter_mut().zip([1.0, -1.0]) {
            go(worker, sign * distance);
            *loss = step.loss(worker)?;
            worker
                .tape
                .parameters
                .iter_mut()
                .zip(&kept)
                .for_each(|(p, value)| p.value.copy_from_slice(value));
        }
        worker.comm.all_reduce_sum_f64(&mut losses, Kind::Control)?;
        let quotient = (losses[0] - losses[1]) / (2.0 * f64::from(distance));
        best = best.min((quotient - slope[0]).abs() / slope[0].abs().max(0.3));
    }
    Ok(best)
}
