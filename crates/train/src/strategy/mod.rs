//! How training uses the islands: what is batched, what crosses the water, how ranks agree.
//!
//! A strategy is one epoch on one rank. It composes a batch, a boundary and an agreement, and never opens files,
//! evaluates, checkpoints or reports: the trainer does that, once for all strategies. A new strategy is one file
//! here and one line in [`STRATEGIES`]; from another crate, [`add`].
//!
//! Most strategies are a [`SharedBatch`](shared_batch::SharedBatch) across a boundary of their own, or an
//! [`OwnBatch`](own_batch::OwnBatch) that is drawn in a way of their own.

pub mod shared_batch;
mod full;
mod graphtheta;
mod emma;
mod sancus;
mod bns;
mod pipegcn;
pub mod own_batch;
mod mini;
mod distdgl;
mod bytegnn;
mod on_island;
mod controller;
mod grappa;
mod sdt;
mod cluster_gcn;

use crate::batch::Loading;
use crate::boundary::{Memory, Toll};
use crate::island::{Landing, Reach};
use crate::model::{self, EdgeNeed};
use crate::run::{BatchKind, RunConfig};
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::codec::CODECS;
use archipelago_graph::registry::{Listed, Registry};

/// What one epoch on one rank came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EpochOutcome {
    /// This rank's share of the epoch's mean loss: summed over ranks, it is the mean over all targets.
    pub loss: f64,
    /// Optimiser updates made.
    pub steps: u64,
    /// What drawing batches took; nothing where they are not drawn.
    pub loading: Loading,
    /// What crossing part borders took, layer by layer; nothing where ranks compute batches of their own.
    pub toll: Toll,
    /// What islands took; nothing where ranks do not train on islands.
    pub landing: Landing,
}

impl EpochOutcome {
    /// Takes in what another stretch of the epoch came to.
    pub fn add(&mut self, other: &Self) {
        self.loss += other.loss;
        self.steps += other.steps;
        self.loading.add(&other.loading);
        self.landing.add(&other.landing);
    }
}

/// One way to train.
pub trait Strategy {
    /// One pass over all training nodes; every rank makes the same sequence of exchanges. Epochs count from 1,
    /// `step` is the number of updates made before.
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome>;

    /// Epochs that a call of [`epoch`](Self::epoch) trains, the last one of a run aside: those between two moments at
    /// which ranks have the same weights.
    fn span(&self) -> u64 {
        1
    }

    /// How large the islands of this strategy are, where ranks train on islands.
    fn reach(&self) -> Option<Reach> {
        None
    }

    /// Steps of an epoch that draws its batches; by default targets are dealt out evenly.
    fn steps(&self, worker: &Worker) -> u64 {
        let share = worker.all_targets.div_ceil(worker.comm.size() as u64);
        share.div_ceil(worker.config.train.batch_size as u64)
    }

    /// Bytes that this rank keeps from step to step, beyond what every strategy holds.
    fn kept_bytes(&self, _worker: &Worker) -> u64 {
        0
    }

    /// What a resumed run needs beyond weights and optimiser. All ranks ask together, between two epochs.
    fn save(&mut self) -> Result<Memory> {
        Ok(Memory::default())
    }

    /// Takes what [`save`](Self::save) gave.
    fn restore(&mut self, _memory: &Memory) -> Result<()> {
        Ok(())
    }
}

/// What a strategy promises: tests and plans are chosen by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behavior {
    /// A step on P parts equals a step on one, but for rounding.
    pub exact: bool,
    /// All training nodes make one step, layer by layer on all ranks together.
    pub global_batch: bool,
    /// Works on more than one part.
    pub distributed: bool,
    /// Weights are equal on all ranks after every step.
    pub ranks_equal: bool,
    /// Ranks train on islands, which may be fewer than there are parts: the others wait for their turn.
    pub isolated: bool,
    /// Layers see what stands on edges: types and attributes.
    pub edge_values: bool,
    /// What a batch is, `train.batch` says; where not all training nodes make one step, ranks compute views together.
    pub any_batch: bool,
}

impl Behavior {
    /// All ranks compute one batch together, not exactly.
    pub const SHARED: Self = Self {
        exact: false,
        global_batch: true,
        distributed: true,
        ranks_equal: true,
        isolated: false,
        edge_values: true,
        any_batch: false,
    };

    /// Ranks draw batches of their own, and ask each other for what those need.
    pub const OWN: Self = Self { global_batch: false, edge_values: false, ..Self::SHARED };

    /// Ranks train on islands.
    pub const ISLANDS: Self = Self { isolated: true, ..Self::OWN };

    /// Whether all training nodes make one step in a run of `config`.
    pub fn global(&self, config: &RunConfig) -> bool {
        self.global_batch && (!self.any_batch || config.train.batch == BatchKind::Global)
    }

    /// Whether ranks compute views of the graph together, which are not the whole, in a run of `config`.
    pub fn views(&self, config: &RunConfig) -> bool {
        self.global_batch && !self.global(config)
    }

    /// How many ranks a run on `parts` parts has.
    pub fn ranks(&self, config: &RunConfig, parts: u32) -> usize {
        match config.residency.resident {
            resident if self.isolated && resident > 0 => resident.min(parts as usize),
            _ => parts as usize,
        }
    }
}

/// A row of the table of strategies.
pub struct Entry {
    /// What users call it.
    pub name: &'static str,
    /// One line for `archi list`.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// What it promises.
    pub behavior: Behavior,
    /// The dials that it turns, as keys and values of the run file; users may turn them on.
    pub preset: &'static [(&'static str, &'static str)],
    /// Keys of the run file that it reads and not every strategy does.
    pub reads: &'static [&'static str],
    /// Refuses settings that it cannot follow, on this many parts.
    pub check: fn(&RunConfig, u32) -> Result<()>,
    /// Makes it for one rank.
    pub build: fn(&Worker) -> Result<Box<dyn Strategy>>,
}

impl Listed for Entry {
    const KIND: &'static str = "strategy";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// Every built-in strategy.
pub const STRATEGIES: &[Entry] = &[
    full::ENTRY,
    graphtheta::ENTRY,
    emma::ENTRY,
    sancus::ENTRY,
    sancus::CAGNET,
    sancus::SKIPG,
    bns::ENTRY,
    pipegcn::ENTRY,
    mini::ENTRY,
    distdgl::ENTRY,
    bytegnn::ENTRY,
    grappa::ENTRY,
    sdt::ENTRY,
    cluster_gcn::ENTRY,
];

static TABLE: Registry<Entry> = Registry::new(STRATEGIES);

/// Every strategy that users can choose: built-in ones, then added ones.
pub fn strategies() -> impl Iterator<Item = &'static Entry> {
    TABLE.entries()
}

/// Adds strategies of one's own: once, before any was looked up (see [`archipelago_graph::registry`]).
pub fn add(strategies: Vec<Entry>) -> Result<()> {
    Ok(TABLE.add(strategies)?)
}

/// The dials that the strategy called `name` turns; none where there is no such strategy.
pub fn preset(name: &str) -> &'static [(&'static str, &'static str)] {
    strategies().find(|entry| entry.name == name).map_or(&[], |entry| entry.preset)
}

/// The strategy that `config` asks for, if all that it asks for can be done on `parts` parts.
pub fn check(config: &RunConfig, parts: u32) -> Result<&'static Entry> {
    config.check_name("strategy.name", &TABLE.names())?;
    config.check_name("model.name", &model::models().map(|entry| entry.name).collect::<Vec<_>>())?;
    let codecs: Vec<_> = CODECS.iter().map(|codec| codec.name).collect();
    config.check_name("exchange.codec", &codecs)?;
    config.check_name("agree.method", &["sum-gradients", "average-models"])?;
    config.check_name("agree.codec", &codecs)?;
    config.check_name("residency.mode", &["all", "sweep"])?;
    let entry = find(&config.strategy.name)?;
    refuse_unread(config, entry)?;
    refuse_edges(config, entry)?;
    (entry.check)(config, parts)?;
    Ok(entry)
}

/// Refuses a model that reads what stands on edges, where layers do not see it.
fn refuse_edges(config: &RunConfig, entry: &Entry) -> Result<()> {
    if entry.behavior.edge_values || model::find(&config.model.name)?.edges == EdgeNeed::Nothing {
        return Ok(());
    }
    let (name, model) = (entry.name, &config.model.name);
    let message =
        format!("expected a model that does not read edges with strategy `{name}`, found `{model}`");
    let able = strategies().filter(|other| other.behavior.edge_values);
    let able: Vec<String> = able.map(|other| format!("`{}`", other.name)).collect();
    Err(Error::config(config.place("model.name"), "model.name", message)
        .with_hint(format!("strategies whose layers see types and attributes of edges: {}", able.join(", "))))
}

/// Refuses settings that only other strategies read: they would change nothing.
fn refuse_unread(config: &RunConfig, entry: &Entry) -> Result<()> {
    let usual = RunConfig::default();
    let unread = strategies().flat_map(|other| other.reads).filter(|key| !entry.reads.contains(key));
    for key in unread {
        let (found, expected) = (config.show(key), usual.show(key));
        if found != expected {
            let [found, expected] = [found, expected].map(Option::unwrap_or_default);
            let message = format!("expected {expected} with strategy `{}`, found {found}", entry.name);
            let readers = strategies().filter(|other| other.reads.contains(key));
            let readers: Vec<String> = readers.map(|reader| format!("`{}`", reader.name)).collect();
            return Err(Error::config(config.place(key), *key, message)
                .with_hint(format!("strategies that read it: {}", readers.join(", "))));
        }
    }
    Ok(())
}

/// The strategy called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    Ok(TABLE.find(name)?)
}
