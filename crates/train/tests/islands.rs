//! Ranks that train on islands: what must hold for grappa, sdt and cluster-gcn, in one phase and in turns.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Job;
use archipelago_graph::Store;
use archipelago_graph::array::Array;
use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_train::event::{BytesSent, EpochReport, Event, Observer, Summary};
use archipelago_train::infer::Predictions;
use archipelago_train::run::RunConfig;
use archipelago_train::{Ending, Run, infer, strategy};
use common::{Limit, TempStore, assert_resumes, communities, config, cut, cut_as, train};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// A small graph in this many parts.
fn store(parts: u32) -> TempStore {
    cut(&mut communities(900, 9000, 4), parts, if parts == 1 { "hash" } else { "random" })
}

/// A run file with these lines behind those that all tests share.
fn run_file(sets: &[&str]) -> Arc<RunConfig> {
    let common = ["model.hidden=16", "train.batch_size=64", "train.fanouts=[5,5]", "train.threads=1"];
    config(&[&common[..], sets].concat())
}

/// A few neighbours for each layer of a model of these settings.
fn fanouts_of(model: &[&str]) -> String {
    let layers = model.iter().find_map(|set| set.strip_prefix("model.layers="));
    let fanouts = vec!["3"; layers.map_or(2, |layers| layers.parse().unwrap())];
    format!("train.fanouts=[{}]", fanouts.join(","))
}

/// The settings in which islands are trained on.
const WAYS: &[&[&str]] = &[
    &["strategy.name=grappa"],
    &["strategy.name=grappa", "residency.halo=1", "residency.sweep_every=1"],
    &["strategy.name=grappa", "residency.halo=2", "agree.correction=resampling"],
    &["strategy.name=grappa", "train.batch=global", "agree.correction=uniform"],
    &["strategy.name=grappa", "residency.mode=all", "residency.halo=1"],
    &["strategy.name=sdt"],
    &["strategy.name=sdt", "agree.every=2", "agree.optimizer_state=average"],
    &["strategy.name=sdt", "agree.optimizer_state=reset", "residency.halo=0"],
    &["strategy.name=cluster-gcn"],
];

/// Hears what a run tells of its epochs.
#[derive(Default)]
struct Epochs(Mutex<Vec<EpochReport>>);

impl Observer for Epochs {
    fn event(&self, event: &Event) {
        if let Event::Epoch(report) = event {
            self.0.lock().unwrap().push((**report).clone());
        }
    }
}

/// Trains and returns what was told of each epoch, and the summary.
fn observed(store: &Store, config: &Arc<RunConfig>) -> (Vec<EpochReport>, Summary) {
    let (epochs, stop) = (Epochs::default(), AtomicBool::new(false));
    let run = Run {
        config: Arc::clone(config),
        store,
        folder: None,
        observer: &epochs,
        stop: &stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    };
    let Ending::Finished(summary) = run.train().unwrap() else { panic!("nobody interrupted") };
    (epochs.0.into_inner().unwrap(), *summary)
}

/// A run that leaves its checkpoints in `folder`.
fn run_in<'a>(folder: &Path, store: &'a Store, config: Arc<RunConfig>, stop: &'a AtomicBool) -> Run<'a> {
    Run {
        config,
        store,
        folder: Some(folder.to_path_buf()),
        observer: &(),
        stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    }
}

#[test]
fn on_one_part_they_are_central_training_bit_for_bit() {
    let store = store(1);
    let central = train(&store.store, &run_file(&["strategy.name=mini", "train.epochs=4"]));
    let ways: &[&[&str]] = &[
        &["strategy.name=grappa"],
        &["strategy.name=grappa", "agree.correction=resampling", "residency.halo=2"],
        &["strategy.name=grappa", "residency.mode=all", "agree.correction=none"],
        &["strategy.name=sdt"],
        &["strategy.name=sdt", "agree.every=2"],
        &["strategy.name=sdt", "agree.optimizer_state=average"],
    ];
    for way in ways {
        let found = train(&store.store, &run_file(&[way, &["train.epochs=4"][..]].concat()));
        assert_eq!(found.weights_sha256, central.weights_sha256, "{way:?}");
        assert_eq!(found.test_score, central.test_score, "{way:?}");
    }
    let full = train(&store.store, &run_file(&["strategy.name=full", "train.epochs=4"]));
    for way in [&["strategy.name=grappa", "train.batch=global"][..], &["strategy.name=cluster-gcn"]] {
        let found = train(&store.store, &run_file(&[way, &["train.epochs=4"][..]].concat()));
        let off = (found.train_loss - full.train_loss).abs() / full.train_loss;
        assert!(off < 1e-5, "{way:?}: loss {} instead of {}", found.train_loss, full.train_loss);
    }
}

#[test]
fn every_model_learns_on_islands() {
    let store = store(4);
    for way in WAYS {
        for model in common::MODELS.iter().filter(|model| !model.contains(&"model.norm=batch")) {
            let sets = [*way, model, &["train.epochs=2"]].concat();
            let fanouts = fanouts_of(model);
            let summary = train(&store.store, &run_file(&[&sets[..], &[&fanouts]].concat()));
            assert!(summary.train_loss.is_finite() && summary.test_score.is_some(), "{sets:?}");
        }
    }
}

#[test]
fn as_many_islands_in_memory_as_parts_is_the_plain_mode() {
    let store = store(4);
    for way in WAYS {
        let plain =
            train(&store.store, &run_file(&[*way, &["residency.resident=0", "train.epochs=3"]].concat()));
        let found =
            train(&store.store, &run_file(&[*way, &["residency.resident=4", "train.epochs=3"]].concat()));
        assert_eq!(found.weights_sha256, plain.weights_sha256, "{way:?}");
    }
}

#[test]
fn averaged_models_do_not_depend_on_the_number_of_ranks() {
    let store = store(5);
    for way in WAYS.iter().filter(|way| way.contains(&"strategy.name=sdt")) {
        let with = |resident: &str| {
            let resident = format!("residency.resident={resident}");
            train(&store.store, &run_file(&[*way, &[&resident, "train.epochs=4"]].concat()))
        };
        let expected = with("5");
        for resident in ["1", "2", "4"] {
            let found = with(resident);
            assert_eq!(found.weights_sha256, expected.weights_sha256, "{way:?} on {resident} ranks");
            assert_eq!(found.test_score, expected.test_score, "{way:?} on {resident} ranks");
            assert_eq!(
                found.train_loss.to_bits(),
                expected.train_loss.to_bits(),
                "{way:?} on {resident} ranks"
            );
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let store = store(4);
    for way in WAYS {
        let with = |threads: &str| {
            let sets = [*way, &["train.epochs=2", "residency.resident=2", threads]].concat();
            train(&store.store, &run_file(&sets)).weights_sha256
        };
        assert_eq!(with("train.threads=3"), with("train.threads=1"), "{way:?}");
    }
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let store = store(4);
    for way in WAYS {
        for resident in ["residency.resident=0", "residency.resident=2"] {
            let early: &[&str] = match way.contains(&"strategy.name=grappa") {
                true => &["residency.deficit=0.3", "residency.deficit_steps=2"],
                false => &[],
            };
            let sets = [*way, early, &["train.epochs=7", resident]];
            // A round of two epochs is heard of at its end, and the last one is shorter.
            let heard = if way.contains(&"agree.every=2") { 2 } else { 3 };
            assert_resumes(&store.store, &run_file(&sets.concat()), heard, &format!("{way:?}, {resident}"));
        }
    }
}

/// Graphs that are easily forgotten, and those whose features or edges are of another kind.
fn odd_cases() -> Vec<common::Case> {
    let mut cases = common::odd_cases();
    let pairs: Vec<(u64, u64)> = (0..200).map(|edge| (edge * 7 % 24, edge * edge % 24)).collect();
    let (sources, targets) = pairs.iter().copied().unzip();
    let weights = (0..200).map(|edge| 0.5 + edge as f32 / 100.0).collect();
    let weighted = EdgeChunk { sources, targets, weights, ..EdgeChunk::default() };
    let parts = || Assignment { parts: 3, part_of: (0..24).map(|node| node % 3).collect() };
    let rows: Vec<u64> = (0..=24).map(|row| row * 2).collect();
    let sparse = Features::Sparse {
        width: 9,
        offsets: rows.into(),
        columns: (0..48).map(|at| at % 9).collect::<Vec<u32>>().into(),
        values: (0..48).map(|at| at as f32 / 10.0).collect::<Vec<_>>().into(),
    };
    let graph = || common::graph(24, &pairs, (0..20).collect());
    cases.push(("sparse features", Dataset { features: sparse, ..graph() }, parts()));
    let edge_columns = EdgeColumns { weighted: true, ..EdgeColumns::default() };
    let edges = Box::new(MemoryEdges::new(weighted, 0));
    cases.push(("weighted edges", Dataset { edges, edge_columns, ..graph() }, parts()));
    cases
}

#[test]
fn odd_graphs_and_parts_train_on_any_number_of_ranks() {
    let _limit = Limit::new();
    for (case, mut dataset, assignment) in odd_cases() {
        let cut = cut_as(&mut dataset, &assignment, "by hand");
        for way in WAYS {
            let with = |resident: &str| {
                let sets = [*way, &["train.epochs=3", "train.batch_size=3", resident]].concat();
                train(&cut.store, &run_file(&sets))
            };
            let (all, one, two) =
                (with("residency.resident=0"), with("residency.resident=1"), with("residency.resident=2"));
            for summary in [&all, &one, &two] {
                assert!(summary.epochs == 3 && summary.train_loss.is_finite(), "{case}, {way:?}");
            }
            if way.contains(&"strategy.name=sdt") {
                assert_eq!(one.weights_sha256, all.weights_sha256, "{case}, {way:?}");
                assert_eq!(two.weights_sha256, all.weights_sha256, "{case}, {way:?}");
            }
        }
    }
}

#[test]
fn a_trained_run_is_evaluated_in_turns_as_it_was() {
    let store = store(4);
    let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let run = run_in(
        folder.path(),
        &store.store,
        run_file(&["strategy.name=grappa", "train.epochs=3", "residency.resident=2"]),
        &stop,
    );
    let Ending::Finished(summary) = run.train().unwrap() else { panic!("nobody interrupted") };
    let best = infer::best_or_last(folder.path()).unwrap();
    let found = run.evaluate(&best).unwrap();
    assert_eq!((found.valid, found.test), (summary.valid_score, summary.test_score));
}

/// What the weights of a run of `sets` say of every node with so many islands in memory at once; it is trained with the
/// first number of them.
fn inferred(store: &Store, sets: &[&str], residents: &[&str]) -> Vec<Predictions> {
    let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let run = |resident: &str| {
        run_in(
            folder.path(),
            store,
            run_file(&[sets, &[&format!("residency.resident={resident}")]].concat()),
            &stop,
        )
    };
    run(residents[0]).train().unwrap();
    let weights = infer::best_or_last(folder.path()).unwrap();
    residents.iter().map(|resident| run(resident).infer(&weights, true).unwrap().unwrap()).collect()
}

/// `in_turns`, whose rows are on disk, is `all` but for the order of sums over neighbours.
fn assert_inferred(in_turns: &Predictions, all: &Predictions, what: &str) {
    let on_disk = [in_turns, all].map(|found| matches!(found.scores, Array::Mapped(_)));
    assert_eq!(on_disk, [true, false], "{what}");
    assert_eq!((in_turns.nodes, in_turns.classes), (all.nodes, all.classes), "{what}");
    let off = common::relative_difference(&in_turns.scores, &all.scores);
    assert!(off < 1e-5, "{what}: scores differ by {off}");
    let ((width, found), (expected_width, expected)) =
        (in_turns.embeddings.as_ref().unwrap(), all.embeddings.as_ref().unwrap());
    assert_eq!(width, expected_width, "{what}");
    let off = common::relative_difference(found, expected);
    assert!(off < 1e-5, "{what}: embeddings differ by {off}");
}

#[test]
fn inference_in_turns_is_inference() {
    let store = store(5);
    for model in common::MODELS.iter().filter(|model| !model.contains(&"model.norm=batch")) {
        let fanouts = fanouts_of(model);
        let sets = [*model, &["strategy.name=grappa", "train.epochs=2", &fanouts]].concat();
        let found = inferred(&store.store, &sets, &["2", "1", "4", "0"]);
        let [two, one, four, all] = &found[..] else { panic!("one for each") };
        assert_inferred(two, all, &format!("{model:?}"));
        assert_eq!((one, four), (two, two), "{model:?}: the number of ranks changes nothing");
    }
}

#[test]
fn odd_graphs_and_parts_are_inferred_in_turns() {
    let _limit = Limit::new();
    for (case, mut dataset, assignment) in odd_cases() {
        let cut = cut_as(&mut dataset, &assignment, "by hand");
        for layers in [&["model.layers=1", "train.fanouts=[5]"][..], &["model.layers=2"]] {
            let sets = [&["strategy.name=sdt", "train.epochs=1", SAGE], layers].concat();
            let found = inferred(&cut.store, &sets, &["1", "2", "0"]);
            assert_inferred(&found[0], &found[2], &format!("{case}, {layers:?}"));
            assert_eq!(found[1], found[0], "{case}, {layers:?}");
        }
    }
}

#[test]
fn a_graph_without_labelled_training_nodes_is_no_reason_not_to_infer_in_turns() {
    let store = store(4);
    let mut others = communities(500, 4000, 4);
    let Labels::Classes { classes, values } = &others.labels else { panic!("one class per node") };
    let mut unlabelled = values.to_vec();
    others.splits.train.iter().for_each(|&node| unlabelled[node as usize] = -1);
    others.labels = Labels::Classes { classes: *classes, values: unlabelled.into() };
    let others = cut(&mut others, 3, "random");
    let (folder, stop) = (tempfile::tempdir().unwrap(), AtomicBool::new(false));
    let mut run = run_in(
        folder.path(),
        &store.store,
        run_file(&["strategy.name=sdt", "train.epochs=1", "residency.resident=2"]),
        &stop,
    );
    run.train().unwrap();
    let weights = infer::best_or_last(folder.path()).unwrap();
    run.store = &others.store;
    assert_eq!(run.infer(&weights, false).unwrap().unwrap().nodes, 500);
    let scores = run.evaluate(&weights).unwrap();
    assert!(scores.train.is_none() && scores.test.is_some(), "{scores:?}");
    let error = run.train().unwrap_err().to_string();
    assert!(error.contains("no training node has a label"), "{error}");
}

#[test]
fn settings_that_a_strategy_would_not_read_are_refused_by_name() {
    let store = store(2);
    for (sets, key) in [
        (["strategy.name=distdgl", "train.batch=global"], "train.batch"),
        (["strategy.name=full", "residency.resident=1"], "residency.resident"),
        (["strategy.name=sdt", "residency.mode=sweep"], "residency.mode"),
        (["strategy.name=sdt", "agree.codec=int8"], "agree.codec"),
        (["strategy.name=sdt", "agree.method=sum-gradients"], "agree.method"),
        (["strategy.name=grappa", "agree.every=3"], "agree.every"),
        (["strategy.name=grappa", "model.norm=batch"], "model.norm"),
        (["strategy.name=cluster-gcn", "residency.halo=1"], "residency.halo"),
    ] {
        let error = strategy::check(&config(&sets), store.store.parts()).err().unwrap().to_string();
        assert!(
            error.contains(&format!("`{key}`: expected ")) && error.contains("hint: "),
            "{sets:?}: {error}"
        );
    }
}

/// What an epoch may send between two switches.
fn quiet(sent: &BytesSent) -> bool {
    sent.features == 0 && sent.embeddings == 0 && sent.weights == 0
}

#[test]
fn between_switches_nothing_crosses_but_gradients() {
    let store = store(4);
    for halo in ["residency.halo=0", "residency.halo=1", "residency.halo=2"] {
        for resident in [4, 2, 1] {
            let residents = format!("residency.resident={resident}");
            let sets =
                ["strategy.name=grappa", "residency.sweep_every=3", "train.epochs=6", SAGE, halo, &residents];
            let (epochs, summary) = observed(&store.store, &run_file(&sets));
            let steps = epochs[0].step;
            for report in &epochs {
                let islands = report.islands.unwrap();
                let sent = report.bytes_sent;
                let switched = report.epoch == 1 || report.epoch == 4;
                assert_eq!(islands.switches, if switched { 4 } else { 0 }, "epoch {}", report.epoch);
                if resident > 1 && switched && halo != "residency.halo=0" {
                    assert!(sent.features > 0, "{halo}, {resident} resident, epoch {}", report.epoch);
                } else {
                    assert!(quiet(&sent), "{halo}, {resident} resident, epoch {}: {sent:?}", report.epoch);
                }
                // Summing n numbers on M ranks takes 2 n (M - 1) numbers in all.
                let numbers = weights_of(&summary, &store.store);
                assert_eq!(
                    sent.gradients,
                    steps * 4 * 2 * numbers * (resident - 1),
                    "epoch {}",
                    report.epoch
                );
            }
        }
    }
}

const SAGE: &str = "model.name=sage";

/// Numbers in the model of these tests: two layers of SAGE.
fn weights_of(summary: &Summary, store: &Store) -> u64 {
    assert_eq!(summary.model, "sage");
    let (features, hidden) = (store.manifest().features.width() as u64, 16);
    let classes = store.manifest().labels.classes() as u64;
    (2 * features + 1) * hidden + (2 * hidden + 1) * classes
}

#[test]
fn averaging_sends_weights_once_per_round_and_features_once_per_run() {
    let store = store(4);
    for resident in [4u64, 2] {
        let residents = format!("residency.resident={resident}");
        let sets = ["strategy.name=sdt", "agree.every=2", "train.epochs=8", SAGE, &residents];
        let (epochs, summary) = observed(&store.store, &run_file(&sets));
        assert_eq!(epochs.iter().map(|report| report.epoch).collect::<Vec<_>>(), [2, 4, 6, 8]);
        let numbers = weights_of(&summary, &store.store);
        for (round, report) in epochs.iter().enumerate() {
            let sent = report.bytes_sent;
            assert_eq!(sent.features > 0, round == 0, "round {round}");
            assert_eq!((sent.embeddings, sent.gradients), (0, 0), "round {round}");
            // Of 4 models (M - 1)/M goes to whoever sums it up, and the mean goes to M - 1.
            let models = 4 * numbers * (resident - 1) / resident + numbers * (resident - 1);
            assert!(sent.weights.abs_diff(4 * models) <= 64 * resident, "{} of {models}", sent.weights);
        }
    }
}

#[test]
fn phases_give_every_part_the_same_batches() {
    let store = store(4);
    let with = |resident: &str| {
        let sets = ["strategy.name=grappa", "residency.halo=1", "train.epochs=2", resident];
        observed(&store.store, &run_file(&sets)).0
    };
    let (all, two) = (with("residency.resident=4"), with("residency.resident=2"));
    for (all, two) in all.iter().zip(&two) {
        let (all, two) = (all.sampling.unwrap(), two.sampling.unwrap());
        assert_eq!((all.edges, all.rows), (two.edges, two.rows), "the same blocks are drawn");
    }
    let steps = |epochs: &[EpochReport]| epochs.last().unwrap().step;
    assert!(steps(&two) > steps(&all), "but gradients of fewer parts make a step");
}

#[test]
fn evaluation_in_turns_is_evaluation() {
    for parts in [3, 4] {
        let store = store(parts);
        for model in common::MODELS.iter().filter(|model| !model.contains(&"model.norm=batch")) {
            let fanouts = fanouts_of(model);
            let with = |resident: &str| {
                let sets = [*model, &["strategy.name=sdt", "train.epochs=2", &fanouts, resident]].concat();
                observed(&store.store, &run_file(&sets)).0
            };
            for (turns, all) in with("residency.resident=2").iter().zip(with("residency.resident=0")) {
                let scores = |report: &EpochReport| {
                    let found = report.evaluation.clone().unwrap();
                    [found.train, found.valid, found.test].map(Option::unwrap)
                };
                for (turns, all) in scores(turns).into_iter().zip(scores(&all)) {
                    // A score may tip where two classes are equal but for rounding.
                    assert!((turns - all).abs() < 0.01, "{model:?}: {turns} instead of {all}");
                }
            }
        }
    }
}
