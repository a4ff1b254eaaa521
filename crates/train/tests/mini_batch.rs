//! Identities that must hold for mini-batches across parts (the numbers are those of the oracle list in
//! ARCHITECTURE.md), and whatever an operator, a rank or a graph may do to them.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Kind;
use archipelago_graph::dataset::{EdgeChunk, EdgeColumns, Features, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::{Drawn, Hop, Lists, SAMPLERS, Sampler, Scratch};
use archipelago_graph::{Dataset, Store};
use archipelago_train::Result;
use archipelago_train::batch::operators::{Fetch, Operators, Seeds};
use archipelago_train::batch::{Loading, Shares};
use archipelago_train::parameters::Parameters;
use archipelago_train::run::RunConfig;
use archipelago_train::strategy::{self, Strategy};
use archipelago_train::worker::Worker;
use common::{
    Limit, TempStore, WIDTH, assert_resumes, communities, config, cut, cut_as, graph, odd_cases, on_ranks,
    on_ranks_with, relative_difference, train,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Every kind of layer, with dropout of hidden rows, and here and there of inputs and attention.
const MODELS: &[&[&str]] = &[
    &["model.name=gcn"],
    &["model.name=sage", "model.norm=layer"],
    &["model.name=sage", "model.aggregator=max", "model.input_dropout=0.3"],
    &["model.name=gat", "model.heads=4", "model.attention_dropout=0.3"],
    &["model.name=gatv2", "model.heads=2", "model.attention_dropout=0.2"],
    &["model.name=gin"],
];

/// Adam divides a gradient by itself in its first step, so that the rounding of one that is nearly zero decides on its
/// sign; so these compare steps of SGD.
const COMMON: &[&str] =
    &["model.hidden=16", "train.threads=2", "train.epochs=3", "train.optimizer=sgd", "train.lr=0.05"];

/// All neighbours, and all training nodes in one step.
const WHOLE: &[&str] = &["train.fanouts=[-1,-1]", "train.batch_size=100000"];

/// Small batches of small samples.
const SMALL: &[&str] = &["train.fanouts=[4,3]", "train.batch_size=4"];

const DISTRIBUTED: [&str; 2] = ["strategy.name=distdgl", "strategy.name=bytegnn"];

/// Weights, gradients and mean losses after `epochs` epochs; weights are equal on all ranks, or the test fails.
fn after_epochs(
    store: &Store,
    config: &Arc<RunConfig>,
    epochs: u64,
    build: impl Fn(&mut Worker) -> Result<Box<dyn Strategy>> + Sync,
) -> (Parameters, Vec<f64>) {
    let ranks = on_ranks_with(store, config, build, |worker, strategy| {
        let (mut losses, mut steps) = (Vec::new(), 0);
        for epoch in 1..=epochs {
            let outcome = strategy.epoch(worker, epoch, steps)?;
            losses.push(outcome.loss);
            steps += outcome.steps;
        }
        Ok((worker.tape.parameters.clone(), losses))
    });
    let mut ranks = ranks.unwrap_or_else(|failure| panic!("{failure}"));
    let (parameters, mut losses) = ranks.swap_remove(0);
    for (other, shares) in &ranks {
        assert_eq!(&parameters, other, "ranks differ after a step");
        losses.iter_mut().zip(shares).for_each(|(loss, share)| *loss += share);
    }
    (parameters, losses)
}

/// The same with the strategy that `config` names.
fn trained(store: &Store, config: &Arc<RunConfig>, epochs: u64) -> (Parameters, Vec<f64>) {
    let build = strategy::find(&config.strategy.name).unwrap().build;
    after_epochs(store, config, epochs, |worker| build(worker))
}

/// Losses, the last gradients and the weights are those expected, but for rounding.
fn assert_same(what: &str, found: &(Parameters, Vec<f64>), expected: &(Parameters, Vec<f64>)) {
    for (found, expected) in found.1.iter().zip(&expected.1) {
        let off = (found - expected).abs() / expected.abs().max(1e-3);
        assert!(off < 1e-5, "{what}: loss {found}, expected {expected}");
    }
    let gradients = |parameters: &Parameters| -> Vec<f32> {
        parameters.iter().flat_map(|parameter| parameter.grad.iter().copied()).collect()
    };
    let off = relative_difference(&gradients(&found.0), &gradients(&expected.0));
    assert!(off < 1e-5, "{what}: gradient off by {off:e}");
    for (found, expected) in found.0.iter().zip(expected.0.iter()) {
        // A bias that is nearly zero is a difference of numbers that are not.
        let largest = expected.value.iter().fold(0.01, |m: f32, x| m.max(x.abs()));
        let off = found.value.iter().zip(&expected.value).map(|(f, e)| (f - e).abs() / largest);
        let off = off.fold(0.0, f32::max);
        assert!(off < 1e-5, "{what}: {} off by {off:e}", found.name);
    }
}

/// The graph with sparse features: of each row what is above a half.
fn with_sparse_features(mut dataset: Dataset) -> Dataset {
    if let Features::Dense { width, values } = &dataset.features {
        let (mut offsets, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
        for row in values.chunks_exact(*width) {
            for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value > 0.5) {
                columns.push(column as u32);
                kept.push(value);
            }
            offsets.push(kept.len() as u64);
        }
        let (offsets, columns, values) = (offsets.into(), columns.into(), kept.into());
        dataset.features = Features::Sparse { width: *width, offsets, columns, values };
    }
    dataset
}

/// The graph with a weight on every edge.
fn with_weights(mut dataset: Dataset) -> Dataset {
    let (mut chunk, mut all) = (EdgeChunk::default(), EdgeChunk::default());
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        all.sources.extend(&chunk.sources);
        all.targets.extend(&chunk.targets);
    }
    let weight = |(&source, &target): (&u64, &u64)| {
        0.25 + Key::new(3, Purpose::Generate).with(source).with(target).unit(0) as f32
    };
    all.weights = all.sources.iter().zip(&all.targets).map(weight).collect();
    dataset.edges = Box::new(MemoryEdges::new(all, 0));
    dataset.edge_columns = EdgeColumns { weighted: true, ..EdgeColumns::default() };
    dataset
}

fn graphs() -> [(&'static str, Dataset); 3] {
    let graph = || communities(300, 2400, 5);
    [
        ("dense features", graph()),
        ("sparse features", with_sparse_features(graph())),
        ("weighted edges", with_weights(graph())),
    ]
}

fn cuts(dataset: &mut Dataset) -> Vec<(u32, TempStore)> {
    let cuts = [(2, "random"), (3, "hash"), (4, "random"), (7, "hash")];
    cuts.map(|(parts, method)| (parts, cut(dataset, parts, method))).into()
}

#[test]
fn oracle_6_a_step_with_all_neighbors_on_p_parts_equals_one_of_the_whole_graph() {
    let _limit = Limit::new();
    for (graph, mut dataset) in graphs() {
        let (one, cuts) = (cut(&mut dataset, 1, "random"), cuts(&mut dataset));
        for model in MODELS {
            let sets = [COMMON, model, WHOLE].concat();
            let expected = trained(&one.store, &config(&sets), 3);
            let central = trained(&one.store, &config(&[&sets[..], &["strategy.name=mini"]].concat()), 3);
            assert_same(&format!("{graph}, {model:?}, mini"), &central, &expected);
            for (strategy, (parts, many)) in DISTRIBUTED.iter().flat_map(|s| cuts.iter().map(move |c| (s, c)))
            {
                let found = trained(&many.store, &config(&[&sets[..], &[strategy]].concat()), 3);
                assert_same(&format!("{graph}, {model:?}, {strategy}, {parts} parts"), &found, &expected);
            }
        }
    }
}

/// Items as they come: those of the part in ascending order, then what was dealt out to it.
struct InOrder;

impl Seeds for InOrder {
    fn order(&self, _: &mut [u32], _: Key) {}
}

/// Items in an order that somebody else chose.
struct Given(Vec<u32>);

impl Seeds for Given {
    fn order(&self, order: &mut [u32], _: Key) {
        order.copy_from_slice(&self.0);
    }
}

/// The strategy of the run with these operators.
fn with_operators(worker: &mut Worker, operators: Operators) -> Result<Box<dyn Strategy>> {
    worker.operators = Some(operators);
    (strategy::find(&worker.config.strategy.name)?.build)(worker)
}

fn with_seeds(worker: &mut Worker, seeds: impl Seeds + 'static) -> Result<Box<dyn Strategy>> {
    with_operators(worker, Operators { seeds: Arc::new(seeds), ..Operators::of(&worker.config)? })
}

/// Original ids of the nodes of all ranks in each step, when items are trained on as they come.
fn batches_in_order(store: &Store, config: &Arc<RunConfig>) -> Vec<u64> {
    let ranks = on_ranks(store, config, |worker, _| {
        let shares = Shares::agree(&worker.comm, worker.labelled.len())?;
        let nodes = worker.labelled.iter().map(|&row| worker.part.original()[row as usize]).collect();
        let nodes: Vec<u64> = shares.deal(&worker.comm, nodes, 1)?;
        let range = |step| shares.range(worker.comm.rank(), config.train.batch_size, step);
        Ok((0..shares.steps(config.train.batch_size)).map(|s| nodes[range(s)].to_vec()).collect::<Vec<_>>())
    });
    (0..ranks[0].len()).flat_map(|step| ranks.iter().flat_map(move |rank| rank[step].clone())).collect()
}

/// Training in several steps on `many` equals training on `one` on the same batches.
fn assert_same_batches(what: &str, one: &Store, many: &Store, sets: &[&str]) {
    let sets = [sets, &["strategy.name=distdgl"]].concat();
    let settings = config(&sets);
    let (nodes, central_size) =
        (batches_in_order(many, &settings), settings.train.batch_size * many.parts() as usize);
    let found = after_epochs(many, &settings, 2, |worker| with_seeds(worker, InOrder));
    let central = config(&[&sets[..], &[&format!("train.batch_size={central_size}")]].concat());
    let expected = after_epochs(one, &central, 2, |worker| {
        let item = |node: &u64| {
            let original = |row: &u32| worker.part.original()[*row as usize] == *node;
            worker.labelled.iter().position(original).unwrap() as u32
        };
        with_seeds(worker, Given(nodes.iter().map(item).collect()))
    });
    assert_same(what, &found, &expected);
}

#[test]
fn oracle_6_several_steps_on_p_parts_equal_those_on_one_on_the_same_batches() {
    let _limit = Limit::new();
    for (graph, mut dataset) in graphs() {
        let (one, cuts) = (cut(&mut dataset, 1, "random"), cuts(&mut dataset));
        for (model, (parts, many)) in MODELS.iter().flat_map(|m| cuts.iter().map(move |c| (m, c))) {
            let sets = [COMMON, model, &["train.fanouts=[-1,-1]", "train.batch_size=5"]].concat();
            let what = format!("{graph}, {model:?}, {parts} parts");
            assert_same_batches(&what, &one.store, &many.store, &sets);
        }
    }
}

#[test]
fn samples_do_not_depend_on_where_nodes_are() {
    let _limit = Limit::new();
    for (graph, mut dataset) in graphs() {
        let (one, cuts) = (cut(&mut dataset, 1, "random"), cuts(&mut dataset));
        for sampler in SAMPLERS.iter().map(|entry| format!("train.sampler={}", entry.name)) {
            for (model, (parts, many)) in MODELS.iter().flat_map(|m| cuts.iter().map(move |c| (m, c))) {
                let what = format!("{graph}, {model:?}, {sampler}, {parts} parts");
                let sampled: &[&str] = &[&sampler, "train.fanouts=[4,3]"];
                let whole = [COMMON, model, sampled, &["train.batch_size=1000"]].concat();
                let expected =
                    trained(&one.store, &config(&[&whole[..], &["strategy.name=mini"]].concat()), 2);
                let found = trained(&many.store, &config(&[&whole[..], &DISTRIBUTED[..1]].concat()), 2);
                assert_same(&what, &found, &expected);
                let steps = [COMMON, model, sampled, &["train.batch_size=6"]].concat();
                assert_same_batches(&what, &one.store, &many.store, &steps);
            }
        }
    }
}

#[test]
fn every_epoch_trains_on_every_training_node_once() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    for (strategy, parts) in [("mini", 1), ("distdgl", 1), ("distdgl", 3), ("bytegnn", 3), ("bytegnn", 7)] {
        let cut = cut(&mut dataset, parts, "random");
        for size in [1, 3, 16, 1000] {
            let (strategy, size) = (format!("strategy.name={strategy}"), format!("train.batch_size={size}"));
            let config = config(&[COMMON, SMALL, &[&strategy, &size]].concat());
            let counts = on_ranks(&cut.store, &config, |worker, strategy| {
                let shares = Shares::agree(&worker.comm, worker.labelled.len())?;
                let steps = shares.steps(config.train.batch_size);
                let outcome = strategy.epoch(worker, 1, 0)?;
                assert_eq!(
                    (outcome.steps, outcome.loading.batches),
                    (steps, steps),
                    "{strategy}",
                    strategy = config.strategy.name
                );
                Ok(outcome.loss)
            });
            assert!(counts.iter().all(|loss| loss.is_finite()));
        }
    }
}

/// The weights, the last loss and the scores of a run.
fn ending(store: &Store, sets: &[&str]) -> (String, f64, Option<f64>) {
    let summary = train(store, &config(sets));
    (summary.weights_sha256, summary.train_loss, summary.test_score)
}

#[test]
fn oracle_8_nothing_but_speed_depends_on_threads_prefetching_caching_and_launching() {
    let _limit = Limit::new();
    let ways: &[&[&str]] = &[
        &["train.threads=1"],
        &["train.threads=3"],
        &["train.prefetch=1"],
        &["train.prefetch=5"],
        &["exchange.reuse=false"],
        &["exchange.cache=0.0"],
        &["exchange.cache=1.0"],
        &["exchange.cache=1.0", "exchange.reuse=false", "train.prefetch=5", "train.threads=3"],
        &["exchange.cache=0.0", "exchange.reuse=false", "train.prefetch=1", "train.threads=1"],
    ];
    let launches: &[&[&str]] = &[
        &["train.launch_gap_ms=0.001"],
        &["train.launch_gap_ms=1000.0", "train.prefetch=5"],
        &["train.launch_cpu=10.0", "train.launch_balance=50.0", "train.prefetch=4"],
    ];
    for (graph, mut dataset) in graphs() {
        let cut = cut(&mut dataset, 3, "random");
        for model in MODELS {
            let sets = [COMMON, model, SMALL, &["train.optimizer=adam"]].concat();
            let expected = ending(&cut.store, &[&sets[..], &DISTRIBUTED[..1]].concat());
            for strategy in DISTRIBUTED {
                let plain: &[&str] = &[];
                let launches = launches.iter().filter(|_| strategy.ends_with("bytegnn"));
                for way in ways.iter().chain(launches).chain([&plain]) {
                    let found = ending(&cut.store, &[&sets[..], way, &[strategy]].concat());
                    assert_eq!(found, expected, "{graph}, {model:?}, {strategy} with {way:?}");
                }
            }
        }
    }
}

#[test]
fn oracle_8_on_one_part_all_mini_batch_strategies_give_the_same_bits() {
    let _limit = Limit::new();
    for (graph, mut dataset) in graphs() {
        let cut = cut(&mut dataset, 1, "random");
        for model in MODELS {
            let sets = [COMMON, model, SMALL].concat();
            let expected = ending(&cut.store, &[&sets[..], &["strategy.name=mini"]].concat());
            for strategy in DISTRIBUTED {
                let found = ending(&cut.store, &[&sets[..], &[strategy]].concat());
                assert_eq!(found, expected, "{graph}, {model:?}, {strategy}");
            }
        }
    }
}

#[test]
fn oracle_9_an_interrupted_and_resumed_run_ends_in_the_same_bits() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let schedule: &[&str] = &["train.optimizer=adam", "train.epochs=8", "train.schedule=cosine"];
    for (model, strategy) in MODELS.iter().flat_map(|model| DISTRIBUTED.map(|strategy| (model, strategy))) {
        let sets = [COMMON, model, SMALL, schedule, &[strategy]].concat();
        let config = config(&sets);
        assert_resumes(&cut.store, &config, 3, &format!("{sets:?}"));
    }
}

/// Two parts of four nodes. In batches of one target each rank reads two rows of the other and then, in whichever order,
/// one of them again: 0 reads 4 and 5, 1 reads 4 (and 2 here); 4 reads 0, 5 reads 0 and 1 (and 6 here).
fn two_islands() -> TempStore {
    let edges = [(4, 0), (5, 0), (4, 1), (2, 1), (0, 4), (0, 5), (6, 5), (1, 5)];
    let mut dataset = graph(8, &edges, vec![0, 1, 4, 5]);
    cut_as(&mut dataset, &Assignment { parts: 2, part_of: vec![0, 0, 0, 0, 1, 1, 1, 1] }, "by hand")
}

const ONE_HOP: &[&str] =
    &["model.layers=1", "train.fanouts=[-1]", "train.batch_size=1", "strategy.name=distdgl"];

/// What an epoch on `two_islands` sends of features, in bytes and messages, and what all ranks count.
fn counted(sets: &[&str]) -> ((u64, u64), Loading) {
    let cut = two_islands();
    let config = config(&[COMMON, ONE_HOP, sets].concat());
    let ranks = on_ranks_with(
        &cut.store,
        &config,
        |worker| with_seeds(worker, InOrder),
        |worker, strategy| {
            let before = worker.comm.meters()[Kind::Features];
            let loading = strategy.epoch(worker, 1, 0)?.loading;
            let sent = worker.comm.meters()[Kind::Features] - before;
            Ok((sent.bytes_sent, sent.messages_sent, loading))
        },
    );
    let (mut sent, mut sum) = ((0, 0), Loading::default());
    for (bytes, messages, loading) in ranks.unwrap() {
        sent = (sent.0 + bytes, sent.1 + messages);
        sum.add(&loading);
    }
    // Seconds are measured, not counted.
    let sum = Loading {
        draw_secs: 0.0,
        fetch_secs: 0.0,
        sampler_stall_secs: 0.0,
        trainer_stall_secs: 0.0,
        queue: 0,
        ..sum
    };
    (sent, sum)
}

/// The bytes of so many answers with so many rows: a head of four words each; of each row the id, the degree, and the
/// numbers, a word each.
fn feature_bytes(answers: u64, rows: u64) -> (u64, u64) {
    (4 * (4 * answers + rows * (2 + WIDTH as u64)), answers)
}

#[test]
fn oracle_10_features_on_the_wire_are_the_rows_that_are_neither_here_nor_kept_nor_just_pulled() {
    let _limit = Limit::new();
    let all = Loading { edges: 8, rows: 12, remote_rows: 6, batches: 4, ..Loading::default() };

    let (sent, loading) = counted(&["exchange.cache=0.0", "exchange.reuse=false"]);
    assert_eq!((sent, loading), (feature_bytes(4, 6), all));

    let (sent, loading) = counted(&["exchange.cache=0.0"]);
    assert_eq!((sent, loading), (feature_bytes(3, 4), Loading { reused_rows: 2, ..all }));

    // Half of each halo: the one that both targets read. What is kept is not taken from the batch before.
    let (sent, loading) = counted(&["exchange.cache=0.5"]);
    assert_eq!((sent, loading), (feature_bytes(2, 2), Loading { cached_rows: 4, ..all }));

    let (sent, loading) = counted(&["exchange.cache=1.0"]);
    assert_eq!((sent, loading), (feature_bytes(0, 0), Loading { cached_rows: 6, ..all }));
}

/// What an epoch of small batches sends of features, in bytes and messages, and how many rows that should be.
fn sampled(store: &Store, codec: &str) -> (u64, u64, u64) {
    let way: &[&str] = &["exchange.cache=0.0", "exchange.reuse=false", "strategy.name=bytegnn", codec];
    let config = config(&[COMMON, SMALL, way].concat());
    let ranks = on_ranks(store, &config, |worker, strategy| {
        let before = worker.comm.meters()[Kind::Features];
        let loading = strategy.epoch(worker, 1, 0)?.loading;
        let sent = worker.comm.meters()[Kind::Features] - before;
        Ok((sent.bytes_sent, sent.messages_sent, loading.remote_rows))
    });
    let sum = |part: fn(&(u64, u64, u64)) -> u64| ranks.iter().map(part).sum::<u64>();
    (sum(|rank| rank.0), sum(|rank| rank.1), sum(|rank| rank.2))
}

#[test]
fn oracle_10_bytes_of_sampled_batches_follow_from_the_rows_that_are_reported_and_their_codec() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 4, "random");
    // A row has sixteen numbers, and in the last codec a scale.
    for (codec, numbers) in [("f32", 16 * 4), ("bf16", 16 * 2), ("int8", 16 + 4)] {
        let (bytes, messages, rows) = sampled(&cut.store, &format!("exchange.codec={codec}"));
        assert!(rows > 0);
        assert_eq!(bytes, 16 * messages + rows * (2 * 4 + numbers), "{codec}");
    }
}

#[test]
fn oracle_10_encoded_rows_fill_up_the_last_word_of_an_answer() {
    let _limit = Limit::new();
    let counted = |codec: &str| counted(&["exchange.cache=0.0", "exchange.reuse=false", codec]);
    let (exact, loading) = counted("exchange.codec=f32");
    assert_eq!(exact, feature_bytes(4, 6));
    // Two answers have two rows, two have one; of three numbers each.
    let facts = 4 * (4 * 4 + 6 * 2);
    assert_eq!(counted("exchange.codec=bf16"), ((facts + 2 * 12 + 2 * 8, 4), loading));
    assert_eq!(counted("exchange.codec=int8"), ((facts + 6 * (4 + 4), 4), loading));
}

#[test]
fn what_a_codec_does_to_a_row_does_not_depend_on_how_it_came() {
    let _limit = Limit::new();
    let cut = cut(&mut communities(300, 2400, 5), 3, "random");
    let fixed: &[&str] = &["model.name=sage", "strategy.name=distdgl", "train.epochs=6"];
    let ended = |sets: &[&str]| ending(&cut.store, &[COMMON, SMALL, fixed, sets].concat());
    let (exact_weights, exact_loss, _) = ended(&[]);
    for codec in ["exchange.codec=bf16", "exchange.codec=int8"] {
        let expected = ended(&[codec]);
        assert_ne!(expected.0, exact_weights, "{codec} rounds nothing");
        let off = (expected.1 - exact_loss).abs() / exact_loss;
        assert!(off < 0.02, "{codec}: loss {}, exactly {exact_loss}", expected.1);
        let ways: &[&[&str]] = &[
            &["exchange.cache=0.0"],
            &["exchange.cache=1.0"],
            &["exchange.reuse=false", "train.threads=3"],
            &["strategy.name=bytegnn", "train.prefetch=5", "train.threads=1"],
        ];
        for way in ways {
            assert_eq!(ended(&[*way, &[codec]].concat()), expected, "{codec} with {way:?}");
        }
    }
}

#[test]
fn a_codec_leaves_sparse_features_and_nodes_without_features_as_they_are() {
    let _limit = Limit::new();
    let plain = Dataset { features: Features::None, ..communities(300, 2400, 5) };
    for mut dataset in [with_sparse_features(communities(300, 2400, 5)), plain] {
        let cut = cut(&mut dataset, 3, "random");
        let ended =
            |codec: &str| ending(&cut.store, &[COMMON, SMALL, &["strategy.name=distdgl", codec]].concat());
        let expected = ended("exchange.codec=f32");
        for codec in ["exchange.codec=bf16", "exchange.codec=int8"] {
            assert_eq!(ended(codec), expected, "{codec}");
        }
    }
}

#[test]
fn rates_are_reported_as_they_are_counted_by_hand() {
    let _limit = Limit::new();
    let cut = two_islands();
    let rates = |sets: &[&str]| {
        let sampling = train(&cut.store, &config(&[COMMON, ONE_HOP, sets].concat())).sampling.unwrap();
        assert_eq!((sampling.batches, sampling.edges, sampling.rows, sampling.remote_rows), (4, 8, 12, 6));
        (sampling.hit_rate.unwrap(), sampling.reuse_rate.unwrap())
    };
    assert_eq!(rates(&["exchange.cache=0.0", "exchange.reuse=false"]), (0.0, 0.0));
    assert_eq!(rates(&["exchange.cache=0.0"]), (0.0, 2.0 / 6.0));
    assert_eq!(rates(&["exchange.cache=0.5"]), (4.0 / 6.0, 0.0));
    assert_eq!(rates(&["exchange.cache=1.0"]), (1.0, 0.0));
}

#[test]
fn odd_graphs_and_parts_train_as_one_part_does() {
    let _limit = Limit::new();
    for (case, mut dataset, assignment) in odd_cases() {
        let many = cut_as(&mut dataset, &assignment, "by hand");
        let one = cut_as(&mut dataset, &Assignment { parts: 1, part_of: vec![0; 24] }, "by hand");
        for model in MODELS {
            let sets = [COMMON, model, WHOLE].concat();
            let expected = trained(&one.store, &config(&sets), 2);
            for strategy in DISTRIBUTED {
                let what = format!("{case}, {model:?}, {strategy}");
                let found = trained(&many.store, &config(&[&sets[..], &[strategy]].concat()), 2);
                assert_same(&what, &found, &expected);
                for batch in ["train.batch_size=1", "train.batch_size=2", "train.batch_size=7"] {
                    let sets = [COMMON, model, &["train.fanouts=[2,-1]", batch, strategy]].concat();
                    let summary = train(&many.store, &config(&sets));
                    assert_eq!(summary.epochs, 3, "{what}");
                    assert!(summary.train_loss.is_finite(), "{what}");
                }
            }
        }
    }
}

/// Adds to every number something that depends on key and node, and remembers the keys.
#[derive(Default)]
struct Noise(Mutex<Vec<Key>>);

impl Fetch for Noise {
    fn adapt(&self, nodes: &[u64], rows: &mut [f32], width: usize, key: Key) {
        self.0.lock().unwrap().push(key);
        for (&node, row) in nodes.iter().zip(rows.chunks_exact_mut(width)) {
            row.iter_mut().zip(0..).for_each(|(value, c)| *value += key.with(node).unit(c) as f32);
        }
    }
}

#[test]
fn what_an_operator_does_to_features_does_not_depend_on_where_they_came_from() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    let (one, three) = (cut(&mut dataset, 1, "random"), cut(&mut dataset, 3, "random"));
    let noisy = |store: &Store, sets: &[&str]| {
        let config = config(&[COMMON, &["model.name=sage", "strategy.name=distdgl"], sets].concat());
        let keys = Arc::new(Noise::default());
        let found = after_epochs(store, &config, 2, |worker| {
            let fetch = Arc::clone(&keys) as Arc<dyn Fetch>;
            with_operators(worker, Operators { fetch, ..Operators::of(&worker.config)? })
        });
        let keys = keys.0.lock().unwrap().clone();
        (found, keys)
    };
    let (expected, keys) = noisy(&one.store, WHOLE);
    assert_eq!(keys.len(), 2);
    assert_ne!(keys[0], keys[1], "two epochs with the same noise");
    assert_same("noise on three parts", &noisy(&three.store, WHOLE).0, &expected);

    let (expected, _) =
        noisy(&three.store, &[SMALL, &["exchange.reuse=false", "exchange.cache=0.0"]].concat());
    for way in ["exchange.reuse=true", "exchange.cache=1.0"] {
        assert_eq!(noisy(&three.store, &[SMALL, &[way]].concat()).0, expected, "{way}");
    }
}

/// Does something when it is called for the third time.
struct Third<F> {
    calls: AtomicUsize,
    act: F,
}

impl<F: Fn() + Send + Sync> Third<F> {
    fn new(act: F) -> Arc<Self> {
        Arc::new(Self { calls: AtomicUsize::new(0), act })
    }

    fn call(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 2 {
            (self.act)();
        }
    }
}

impl<F: Fn() + Send + Sync> Fetch for Third<F> {
    fn adapt(&self, _: &[u64], _: &mut [f32], _: usize, _: Key) {
        self.call();
    }
}

impl<F: Fn() + Send + Sync> Seeds for Third<F> {
    fn order(&self, _: &mut [u32], _: Key) {
        self.call();
    }
}

impl<F: Fn() + Send + Sync> Sampler for Third<F> {
    fn hops(&self) -> usize {
        2
    }

    fn draw(&self, _: &Lists<'_>, rows: &[u32], _: Hop, _: &mut Scratch, drawn: &mut Drawn) {
        self.call();
        drawn.counts.extend(rows.iter().map(|_| 0));
    }
}

const DEADLINE: Duration = Duration::from_secs(20);

/// Trains for ever with operators that `spoil` has spoiled on rank 1; how it ended, and after how long.
fn spoiled(spoil: impl Fn(&mut Operators) + Sync, sets: &[&str]) -> (String, Duration) {
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let fixed: &[&str] = &["strategy.name=distdgl", "exchange.deadline_secs=20"];
    let config = config(&[COMMON, SMALL, fixed, sets].concat());
    let begun = Instant::now();
    let build = |worker: &mut Worker| {
        let mut operators = Operators::of(&worker.config)?;
        if worker.comm.rank() == 1 {
            spoil(&mut operators);
        }
        with_operators(worker, operators)
    };
    let ended = on_ranks_with(&cut.store, &config, build, |worker, strategy| {
        (1..).try_for_each(|epoch| strategy.epoch(worker, epoch, 0).map(|_| ()))
    });
    (ended.unwrap_err().to_string(), begun.elapsed())
}

#[test]
fn an_operator_that_panics_ends_all_ranks_at_once_and_its_message_is_told() {
    let _limit = Limit::new();
    for prefetch in ["train.prefetch=1", "train.prefetch=2", "train.prefetch=5"] {
        let spoils: [fn(&mut Operators); 3] = [
            |operators| operators.seeds = Third::new(|| panic!("the third call")),
            |operators| operators.hop = Third::new(|| panic!("the third call")),
            |operators| operators.fetch = Third::new(|| panic!("the third call")),
        ];
        for spoil in spoils {
            let (message, after) = spoiled(spoil, &[prefetch]);
            assert!(message.contains("rank 1 panicked: the third call"), "{message}");
            assert!(after < DEADLINE / 2, "took {after:?}");
        }
    }
}

#[test]
fn a_rank_whose_sampler_stands_still_is_named_after_the_deadline() {
    let _limit = Limit::new();
    let still = || thread::sleep(Duration::from_secs(5));
    let (message, after) =
        spoiled(|operators| operators.fetch = Third::new(still), &["exchange.deadline_secs=2"]);
    // Rank 1 itself may give up first: its trainer waits for a rank that needs its sampler.
    let named = message.contains(" s for rank 1 in ") || message.contains(", which waits for rank 1\n");
    assert!(named, "{message}");
    assert!(after < DEADLINE, "took {after:?}");
}

#[test]
fn a_rank_that_fails_or_panics_in_training_ends_all_at_once() {
    let _limit = Limit::new();
    let mut dataset = communities(300, 2400, 5);
    let cut = cut(&mut dataset, 3, "random");
    let config = config(&[COMMON, SMALL, &["strategy.name=distdgl", "exchange.deadline_secs=20"]].concat());
    let build = strategy::find("distdgl").unwrap().build;
    for (poison, cause) in [(true, "is not a finite number"), (false, "rank 1 panicked")] {
        let begun = Instant::now();
        let ended = on_ranks_with(
            &cut.store,
            &config,
            |worker| build(worker),
            |worker, strategy| {
                strategy.epoch(worker, 1, 0)?;
                if worker.comm.rank() == 1 {
                    for parameter in worker.tape.parameters.iter_mut() {
                        match poison {
                            true => parameter.value.fill(f32::NAN),
                            false => parameter.value.clear(),
                        }
                    }
                }
                strategy.epoch(worker, 2, 4)
            },
        );
        let message = ended.unwrap_err().to_string();
        assert!(message.contains(cause), "{message}");
        assert!(begun.elapsed() < DEADLINE / 2, "took {:?}", begun.elapsed());
    }
}

#[test]
fn settings_that_cannot_be_followed_are_refused_with_a_hint() {
    let refused =
        |sets: &[&str], parts: u32| strategy::check(&config(sets), parts).err().unwrap().to_string();
    for strategy in ["strategy.name=mini", DISTRIBUTED[0], DISTRIBUTED[1]] {
        let fanouts = refused(&[strategy, "train.fanouts=[5]"], 1);
        assert!(fanouts.contains("expected one fan-out per layer (2), found 1"), "{fanouts}");
        assert!(fanouts.contains("hint: fan-outs count from the targets outward"), "{fanouts}");
        let sampler = refused(&[strategy, "train.sampler=neighbour"], 1);
        assert!(sampler.contains("`neighbour`") && sampler.contains("`neighbor`"), "{sampler}");
    }
    let parts = refused(&["strategy.name=mini"], 3);
    assert!(parts.contains("hint: use strategy `distdgl` or `bytegnn` on several parts"), "{parts}");
    assert!(strategy::check(&config(&DISTRIBUTED[..1]), 3).is_ok());
}
