//! Graphs, stores and runs for the tests of training.
#![allow(dead_code)]

use archipelago_comm::{Config, Job, LaunchError, launch};
use archipelago_graph::Store;
use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels, MemoryEdges, Splits};
use archipelago_graph::partition::{self, Assignment, Request};
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::store::{self, Meta};
use archipelago_graph::synthetic::sbm::{self, SbmOptions};
use archipelago_train::checkpoint::{Checkpoint, Slot};
use archipelago_train::event::{Event, Observer};
use archipelago_train::ops::Pool;
use archipelago_train::parameters::Parameters;
use archipelago_train::run::RunConfig;
use archipelago_train::strategy::{self, Strategy};
use archipelago_train::worker::Worker;
use archipelago_train::{Ending, Error, Result, Run};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

#[path = "../../src/reference.rs"]
pub mod reference;

/// Every model, with and without what can stand around its layers.
pub const MODELS: &[&[&str]] = &[
    &["model.name=gcn"],
    &["model.name=sage"],
    &["model.name=sage", "model.aggregator=sum", "model.norm=layer"],
    &["model.name=sage", "model.aggregator=max"],
    &["model.name=gat", "model.heads=4", "model.activation=elu", "model.attention_dropout=0.3"],
    &["model.name=gat", "model.output_heads=2", "model.self_loops=false"],
    &["model.name=gatv2", "model.heads=2", "model.attention_dropout=0.2"],
    &["model.name=gin", "model.norm=batch"],
    &["model.name=gcn", "model.norm=batch", "model.residual=true", "model.layers=3"],
    &["model.name=gcn", "model.layers=1"],
    &["model.name=sage", "model.input_dropout=0.4", "model.layers=3", "model.hidden=24"],
];

/// Models that read what stands on edges.
pub const EDGE_MODELS: &[&[&str]] = &[
    &["model.name=gat-e", "model.heads=2", "model.activation=elu", "model.attention_dropout=0.2"],
    &["model.name=gat-e", "model.output_heads=2", "model.layers=3"],
    &["model.name=rgcn", "model.bases=3"],
    &["model.name=rgcn", "model.norm=batch", "model.bases=1"],
];

/// [`MODELS`] and [`EDGE_MODELS`].
pub fn all_models() -> impl Iterator<Item = &'static &'static [&'static str]> {
    MODELS.iter().chain(EDGE_MODELS)
}

/// A store in a folder that goes with it.
pub struct TempStore {
    pub store: Store,
    folder: TempDir,
}

/// Cuts `dataset` into parts and opens the store.
pub fn cut(dataset: &mut Dataset, parts: u32, method: &str) -> TempStore {
    let partitioner = (partition::find(method).unwrap().build)();
    let assignment = partitioner.assign(dataset, &Request::new(parts, 1), &Silent).unwrap();
    cut_as(dataset, &assignment, method)
}

/// Cuts `dataset` as `assignment` says and opens the store.
pub fn cut_as(dataset: &mut Dataset, assignment: &Assignment, method: &str) -> TempStore {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("store");
    let meta = Meta { method: method.into(), seed: 1, ..Meta::default() };
    store::write(dataset, assignment, &meta, &out, &Silent).unwrap();
    TempStore { store: Store::open(&out).unwrap(), folder }
}

/// A small community graph, whose edges have one of four types and two attributes.
pub fn communities(nodes: u64, edges: u64, classes: usize) -> Dataset {
    let attributes = 2;
    let options = SbmOptions {
        nodes,
        edges,
        features: 16,
        classes,
        edge_attributes: attributes,
        seed: 5,
        ..SbmOptions::default()
    };
    let mut dataset = sbm::generate(&options, &Silent).unwrap();
    let (mut all, mut chunk) = (EdgeChunk::default(), EdgeChunk::default());
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        let ends = chunk.sources.iter().zip(&chunk.targets);
        all.types.extend(ends.map(|(source, target)| ((3 * source + 5 * target) % 4) as u32));
        all.sources.append(&mut chunk.sources);
        all.targets.append(&mut chunk.targets);
        all.attributes.append(&mut chunk.attributes);
    }
    dataset.edges = Box::new(MemoryEdges::new(all, attributes));
    dataset.edge_columns.types = 4;
    dataset
}

/// The graph of reference models, if it is on this machine.
pub fn reference_graph(multi: bool, typed: bool) -> Option<Dataset> {
    let graph = reference::open("g_medium")?;
    let nodes = graph.f64("num_nodes")[0] as u64;
    let ends = graph.f64("edge_index");
    let id = |ends: &[f64]| ends.iter().map(|&node| node as u64).collect();
    let (sources, targets) = ends.split_at(ends.len() / 2);
    let attributes = graph.f32("edge_attr");
    let attribute_width = attributes.len() / sources.len();
    let ends = sources.iter().zip(targets).enumerate();
    let types = ends.map(|(at, (source, target))| (3 * *source as u32 + 5 * *target as u32 + at as u32) % 4);
    let types: Vec<u32> = if typed { types.collect() } else { Vec::new() };
    let kinds = if typed { 4 } else { 0 };
    let edges =
        EdgeChunk { sources: id(sources), targets: id(targets), types, attributes, ..EdgeChunk::default() };
    let labels = match multi {
        true => Labels::Multi {
            classes: 6,
            values: graph.f64("y_multi").iter().map(|&y| y as u8).collect::<Vec<_>>().into(),
        },
        false => Labels::Classes {
            classes: 5,
            values: graph.f64("y").iter().map(|&y| y as i64).collect::<Vec<_>>().into(),
        },
    };
    let x = graph.f32("x");
    let train: Vec<u64> = id(&graph.f64("train_idx"));
    Some(Dataset {
        name: "g_medium".into(),
        nodes,
        undirected: false,
        edges: Box::new(MemoryEdges::new(edges, attribute_width)),
        edge_columns: EdgeColumns { attribute_width, types: kinds, ..EdgeColumns::default() },
        features: Features::Dense { width: x.len() / nodes as usize, values: x.into() },
        labels,
        splits: Splits { train, valid: Vec::new(), test: Vec::new() },
        names: None,
        class_names: None,
        notes: Vec::new(),
    })
}

/// Numbers per node of [`graph`].
pub const WIDTH: usize = 3;

/// A graph of these edges (source, target) with three numbers and one of two classes per node.
pub fn graph(nodes: u64, edges: &[(u64, u64)], train: Vec<u64>) -> Dataset {
    let (sources, targets) = edges.iter().copied().unzip();
    let edges = EdgeChunk { sources, targets, ..EdgeChunk::default() };
    let number = |i: u64| Key::new(8, Purpose::Generate).with(i).normal(0) as f32;
    Dataset {
        name: "by hand".into(),
        nodes,
        undirected: false,
        edges: Box::new(MemoryEdges::new(edges, 0)),
        edge_columns: EdgeColumns::default(),
        features: Features::Dense {
            width: WIDTH,
            values: (0..nodes * WIDTH as u64).map(number).collect::<Vec<_>>().into(),
        },
        labels: Labels::Classes {
            classes: 2,
            values: (0..nodes as i64).map(|node| node % 2).collect::<Vec<_>>().into(),
        },
        splits: Splits { train, valid: (0..nodes).collect(), test: Vec::new() },
        names: None,
        class_names: None,
        notes: Vec::new(),
    }
}

/// A graph and its parts.
pub type Case = (&'static str, Dataset, Assignment);

/// Graphs and parts of 24 nodes that are easily forgotten.
pub fn odd_cases() -> Vec<Case> {
    let path: Vec<(u64, u64)> = (1..24).flat_map(|node| [(node - 1, node), (node, node - 1)]).collect();
    let by = |parts: u32, part: fn(u64) -> u32| Assignment { parts, part_of: (0..24).map(part).collect() };
    let thirds = || by(3, |node| (node / 8) as u32);
    let multi =
        Labels::Multi { classes: 3, values: (0..72).map(|i| u8::from(i % 5 < 2)).collect::<Vec<_>>().into() };
    vec![
        ("all training nodes in one part", graph(24, &path, (0..8).collect()), thirds()),
        ("a rank without training nodes", graph(24, &path, (0..16).collect()), thirds()),
        ("fewer training nodes than ranks", graph(24, &path, vec![20]), thirds()),
        ("unequal ranks", graph(24, &path, vec![0, 1, 2, 3, 4, 5, 6, 9, 17]), thirds()),
        (
            "empty parts",
            graph(24, &path, (0..24).step_by(2).collect()),
            by(5, |node| 2 * (node as u32 % 2) + 1),
        ),
        ("one part owns everything", graph(24, &path, (0..24).collect()), by(3, |_| 1)),
        ("no edges", graph(24, &[], (0..12).collect()), thirds()),
        ("isolated targets", graph(24, &path[..20], (8..24).collect()), by(4, |node| node as u32 % 4)),
        ("several labels", Dataset { labels: multi, ..graph(24, &path, (0..13).collect()) }, thirds()),
        (
            "no features",
            Dataset { features: Features::None, ..graph(24, &path, (0..13).collect()) },
            thirds(),
        ),
    ]
}

/// A run file from `section.key=value` lines.
pub fn config(sets: &[&str]) -> Arc<RunConfig> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    Arc::new(RunConfig::from_sources(None, &sets).unwrap())
}

/// Runs `work` on every rank of `store`, with a worker and its strategy.
pub fn on_ranks<T: Send>(
    store: &Store,
    config: &Arc<RunConfig>,
    work: impl Fn(&mut Worker, &mut dyn Strategy) -> Result<T> + Sync,
) -> Vec<T> {
    let build = strategy::find(&config.strategy.name).unwrap().build;
    on_ranks_with(store, config, |worker| build(worker), work).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The same with a strategy that `build` makes; it may fail. Ranks wait for each other as long as `config` says, but not
/// longer than a minute.
pub fn on_ranks_with<T: Send>(
    store: &Store,
    config: &Arc<RunConfig>,
    build: impl Fn(&mut Worker) -> Result<Box<dyn Strategy>> + Sync,
    work: impl Fn(&mut Worker, &mut dyn Strategy) -> Result<T> + Sync,
) -> std::result::Result<Vec<T>, LaunchError<Error>> {
    let behavior = strategy::find(&config.strategy.name).unwrap().behavior;
    let pool = Pool::new(config.train.threads);
    let deadline = Duration::from_secs(config.exchange.deadline_secs.min(60));
    let (ranks, scratch) = (behavior.ranks(config, store.parts()), std::env::temp_dir());
    launch(&Config::threads(ranks).with_deadline(deadline), |comm| {
        let config = Arc::clone(config);
        let mut worker = Worker::of_store(comm, store, config, pool.clone(), behavior, &scratch)?;
        let mut strategy = build(&mut worker)?;
        work(&mut worker, &mut *strategy)
    })
}

/// Ends the process when a test is not over, and this is not dropped, in two minutes: for tests of what could wait for
/// ever.
pub struct Limit(#[allow(dead_code)] Sender<()>);

impl Limit {
    pub fn new() -> Self {
        let (alive, over) = channel::<()>();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        thread::spawn(move || {
            if over.recv_timeout(Duration::from_secs(120)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test} was still running after two minutes");
                std::process::exit(1);
            }
        });
        Self(alive)
    }
}

/// Trains to the end and returns the summary.
pub fn train(store: &Store, config: &Arc<RunConfig>) -> archipelago_train::event::Summary {
    let (observer, stop) = ((), AtomicBool::new(false));
    let run = Run {
        config: Arc::clone(config),
        store,
        folder: None,
        observer: &observer,
        stop: &stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    };
    match run.train().unwrap() {
        Ending::Finished(summary) => *summary,
        Ending::Interrupted { .. } => panic!("nobody interrupted"),
    }
}

/// Stops a run when it has heard of this epoch.
struct StopAfter<'a>(u64, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn event(&self, event: &Event) {
        if matches!(event, Event::Epoch(report) if report.epoch == self.0) {
            self.1.store(true, Ordering::Relaxed);
        }
    }
}

/// A run that is stopped once it has told of epoch `heard`, and is then resumed, ends like one that was not.
pub fn assert_resumes(store: &Store, config: &Arc<RunConfig>, heard: u64, what: &str) {
    let expected = train(store, config);
    let folder = tempfile::tempdir().unwrap();
    let Ending::Finished(found) = resumed(store, config, heard, &folder, || {}).unwrap() else {
        panic!("interrupted again")
    };
    assert_eq!(found.weights_sha256, expected.weights_sha256, "{what}");
    assert_eq!((found.best_epoch, found.test_score), (expected.best_epoch, expected.test_score), "{what}");
    assert_eq!(found.train_loss, expected.train_loss, "{what}");
}

/// Stops a run in `folder` once it has told of epoch `heard`, does something `between`, and resumes it.
pub fn resumed(
    store: &Store,
    config: &Arc<RunConfig>,
    heard: u64,
    folder: &TempDir,
    between: impl FnOnce(),
) -> Result<Ending> {
    let stop = AtomicBool::new(false);
    let mut run = Run {
        config: Arc::clone(config),
        store,
        folder: Some(folder.path().to_path_buf()),
        observer: &StopAfter(heard, &stop),
        stop: &stop,
        resume: None,
        job: Job::alone(),
        operators: None,
    };
    // The stop is agreed on in the epoch (or round) after the one that was heard of.
    let round = if config.agree.method == "average-models" { config.agree.every } else { 1 };
    assert_eq!(run.train().unwrap(), Ending::Interrupted { epoch: heard + round });
    stop.store(false, Ordering::Relaxed);
    between();
    run.resume = Some(Checkpoint::load(folder.path(), Slot::Last).unwrap());
    run.train()
}

/// Weights, gradients and losses after `epochs` steps; equal on all ranks, or the test fails.
pub fn after_steps(store: &Store, config: &Arc<RunConfig>, epochs: u64) -> (Parameters, Vec<f64>) {
    let mut ranks = on_ranks(store, config, |worker, strategy| {
        let (mut losses, mut steps) = (Vec::new(), 0);
        for epoch in 1..=epochs {
            let outcome = strategy.epoch(worker, epoch, steps)?;
            losses.push(outcome.loss);
            steps += outcome.steps;
        }
        Ok((worker.tape.parameters.clone(), losses))
    });
    let (parameters, mut losses) = ranks.swap_remove(0);
    for (other, shares) in &ranks {
        assert_eq!(&parameters, other, "ranks differ after a step");
        losses.iter_mut().zip(shares).for_each(|(loss, share)| *loss += share);
    }
    (parameters, losses)
}

/// All gradients, one after the other.
pub fn gradients(parameters: &Parameters) -> Vec<f32> {
    parameters.iter().flat_map(|parameter| parameter.grad.iter().copied()).collect()
}

/// The largest difference over the largest magnitude.
pub fn relative_difference(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
    let worst = found.iter().zip(expected).map(|(f, e)| f64::from((f - e).abs())).fold(0f64, f64::max);
    worst / largest.max(1e-20)
}
