//! Emma: in each step one chunk of the source nodes sends, and targets remember what the others sent before.
//!
//! An epoch is a sweep: a random order of all nodes is cut into B chunks (`exchange.chunks`), and B steps are made, each
//! with all training nodes in its loss. In a step only edges whose source is in the chunk carry messages, local ones
//! too; what they add up to joins what their target remembers (`boundary/moving.rs`). What a layer takes of a target's own
//! row is always fresh, but for the loop that an attention adds, which is an edge like any other. So a step exchanges and
//! aggregates 1/B of what `full` does. At the start and every so many sweeps (`exchange.history_refresh_every`) one
//! forward pass over all edges makes what is remembered exact.
//!
//! What a first layer sums up of node features never changes, so it is exact in every step: computed once where features
//! are dense, else from halo features that were brought once. A first layer that attends is chunked like the others.
//!
//! With `exchange.history_of = "halo"` it is rows of other parts that are remembered, as they last came, and rows of the own part
//! are always of this step (`boundary/recalled.rs`): as few bytes, and all edges count in every step, which is what graphs of
//! low degree need. It saves no work.
//!
//! `exchange.chunking = false` makes one step of all edges, which is `full`; `exchange.moving = false` forgets, so that
//! a step is one on a sampled neighbourhood: the two ablations of the paper.

use super::shared_batch::{Moment, SharedBatch, check as check_shared};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::boundary::{Boundary, Exact, Memory, Moving, Recalled};
use crate::run::{Aggregator, HistoryOf, Norm, Refresh, RunConfig};
use crate::view::{Layout, Passage, Scales, Thinning};
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::Phase;
use archipelago_graph::sample::Chunks;
use std::sync::Arc;

pub(super) const ENTRY: Entry = Entry {
    name: "emma",
    summary: "full batch in steps of one chunk of the sources each, aggregates are remembered (exchange.chunks)",
    paper: "Huang et al., Emma: source chunking and moving aggregation",
    behavior: Behavior::SHARED,
    preset: &[],
    reads: &[
        "exchange.chunks",
        "exchange.chunking",
        "exchange.moving",
        "exchange.history_refresh_every",
        "exchange.history_of",
        "exchange.rescale_gradient",
    ],
    check,
    build,
};

fn check(config: &RunConfig, parts: u32) -> Result<()> {
    let key = "model.aggregator";
    let remembers = "exchange.history_of";
    if !config.exchange.moving && config.exchange.history_of == HistoryOf::Halo {
        let message = "expected `narrowest` or `inputs` with `exchange.moving = false`, found `halo`";
        return Err(Error::config(config.place(remembers), remembers, message)
            .with_hint("without `moving` nothing is remembered"));
    }
    let sums = config.exchange.moving && !recalls(config);
    if sums && config.model.name == "sage" && config.model.aggregator == Aggregator::Max {
        let message = "expected `mean` or `sum` with strategy `emma`, found `max`";
        return Err(Error::config(config.place(key), key, message).with_hint(
            "a maximum cannot forget the share of its messages that is sent anew; rows can: set `exchange.history_of = \"halo\"`",
        ));
    }
    check_shared(config, parts)
}

fn build(worker: &Worker) -> Result<Box<dyn Strategy>> {
    let (config, comm) = (&*worker.config, Arc::clone(&worker.comm));
    // Of one chunk all rows are of this step.
    if !config.exchange.moving || recalls(config) && chunks(config) == 1 {
        return Ok(Box::new(Emma { batch: batch(worker, Exact::of(config, comm)?)?, refresh_every: 0 }));
    }
    let refresh_every = match config.exchange.history_refresh_every {
        // With one chunk nothing is remembered beyond a step.
        _ if chunks(config) == 1 => 0,
        Refresh::Chunks => config.exchange.chunks as u64,
        Refresh::Every(sweeps) => sweeps,
        Refresh::Never => 0,
    };
    if recalls(config) {
        let boundary = Recalled::new(config, comm, chunks(config))?;
        return Ok(Box::new(Emma { batch: batch(worker, boundary)?, refresh_every }));
    }
    let boundary = Moving::new(Exact::of(config, comm)?, config, first_chunked(worker));
    Ok(Box::new(Emma { batch: batch(worker, boundary)?, refresh_every }))
}

/// Steps of a sweep.
fn chunks(config: &RunConfig) -> usize {
    if config.exchange.chunking { config.exchange.chunks } else { 1 }
}

/// Whether rows are remembered rather than sums.
fn recalls(config: &RunConfig) -> bool {
    config.exchange.moving && config.exchange.history_of == HistoryOf::Halo
}

/// The first layer of which a chunk sends: the second, unless the first attends to its sources and sums are remembered.
fn first_chunked(worker: &Worker) -> usize {
    usize::from(!worker.model.keeps_transformed() || recalls(&worker.config))
}

fn batch<B: Boundary>(worker: &Worker, boundary: B) -> Result<SharedBatch<B>> {
    match first_chunked(worker) {
        0 => Ok(SharedBatch::new(worker, boundary)),
        _ => SharedBatch::at_home(worker, boundary),
    }
}

/// A boundary across which one chunk of the nodes sends.
trait Chunked: Boundary {
    /// Makes ready for the step of a chunk; returns the layers that it is computed on, if not on those of all edges.
    fn take(&mut self, chunk: &Chunk<'_>) -> Option<Vec<Arc<Layout>>>;

    /// Whether what crosses from now on takes the place of what is remembered: after so many steps, if it does.
    fn refresh(&mut self, _after: Option<u64>) {}
}

impl Chunked for Exact {
    fn take(&mut self, chunk: &Chunk<'_>) -> Option<Vec<Arc<Layout>>> {
        Some(chunk.thinned(Scales::OfRest))
    }
}

impl Chunked for Moving {
    fn take(&mut self, chunk: &Chunk<'_>) -> Option<Vec<Arc<Layout>>> {
        Some(chunk.thinned(Scales::OfAll))
    }

    fn refresh(&mut self, after: Option<u64>) {
        self.refresh(after.is_some());
    }
}

impl Chunked for Recalled {
    fn take(&mut self, chunk: &Chunk<'_>) -> Option<Vec<Arc<Layout>>> {
        // Rows that never came cannot be remembered.
        self.let_pass(if chunk.opens_run { Vec::new() } else { chunk.passages() });
        None
    }

    fn refresh(&mut self, after: Option<u64>) {
        self.refresh(after);
    }
}

/// The nodes that send in one step.
struct Chunk<'a> {
    /// All layers, on all edges.
    layers: &'a [Arc<Layout>],
    /// The chunk of each source row of those layers that are chunked, which are the last ones.
    members: &'a [Vec<u32>],
    /// Which chunk it is.
    number: u32,
    /// Whether nodes attend to themselves.
    loops: bool,
    /// Whether no row has crossed before this step.
    opens_run: bool,
}

impl Chunk<'_> {
    fn sends(&self, members: &[u32]) -> Vec<bool> {
        members.iter().map(|&chunk| chunk == self.number).collect()
    }

    fn first(&self) -> usize {
        self.layers.len() - self.members.len()
    }

    /// The layers with the edges of these nodes only.
    fn thinned(&self, scales: Scales) -> Vec<Arc<Layout>> {
        let thinned = |(layout, members): (&Arc<Layout>, &Vec<u32>)| {
            let stays = self.sends(members);
            let loops = self.loops;
            Arc::new(layout.thinned(Thinning {
                stays: &stays,
                sends: &stays,
                halo_weight: 1.0,
                scales,
                loops,
            }))
        };
        let (whole, chunked) = self.layers.split_at(self.first());
        whole.iter().cloned().chain(chunked.iter().zip(self.members).map(thinned)).collect()
    }

    /// What crosses of each layer.
    fn passages(&self) -> Vec<Option<Arc<Passage>>> {
        let chunked = self.layers[self.first()..].iter().zip(self.members);
        let passages = chunked.map(|(layout, members)| Some(Arc::new(layout.passage(&self.sends(members)))));
        std::iter::repeat_n(None, self.first()).chain(passages).collect()
    }
}

struct Emma<B> {
    batch: SharedBatch<B>,
    /// Sweeps; 0 is never.
    refresh_every: u64,
}

impl<B: Chunked> Emma<B> {
    /// One forward pass over all edges, which takes the place of what is remembered.
    fn refresh(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<()> {
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "refresh" });
        worker.tape.begin_evaluation();
        self.batch.boundary.refresh(Some(step));
        let outcome = self.batch.forward(worker, None);
        self.batch.boundary.refresh(None);
        outcome.map(|_| ())
    }

    /// One step for each chunk. Where `refreshed`, what is remembered is of this moment.
    fn sweep(&mut self, worker: &mut Worker, epoch: u64, step: u64, refreshed: bool) -> Result<EpochOutcome> {
        let batch = &mut self.batch;
        let count = chunks(&worker.config);
        let nodes = worker.part.starts().last().copied().unwrap_or(0);
        let chunks = Chunks::new(count, nodes, worker.config.train.seed, epoch);
        let chunked = worker.layers.iter().skip(first_chunked(worker));
        let members: Vec<Vec<u32>> = chunked.map(|layout| chunk_of_rows(layout, &chunks)).collect();
        let loops = worker.model.attends_to_own();
        let mut loss = 0.0;
        for round in 0..count {
            let layers = match count > 1 {
                true => {
                    let layers = &batch.layers(worker).to_vec();
                    let opens_run = !refreshed && step == 0 && round == 0;
                    let number = round as u32;
                    batch.boundary.take(&Chunk { layers, members: &members, number, loops, opens_run })
                }
                false => None,
            };
            let moment = Moment { epoch, step: step + 1 + round as u64, round: round as u64 };
            loss += batch.step(worker, layers.as_deref(), moment)?;
        }
        let toll = batch.boundary.toll();
        Ok(EpochOutcome { loss: loss / count as f64, steps: count as u64, toll, ..EpochOutcome::default() })
    }
}

impl<B: Chunked> Strategy for Emma<B> {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        // Statistics of batch norms, which a pass without training reads, are known after the first sweep only.
        let known = epoch > 1 || worker.config.model.norm != Norm::Batch;
        let due = self.refresh_every > 0 && (epoch - 1).is_multiple_of(self.refresh_every) && known;
        if due {
            self.refresh(worker, epoch, step)?;
        }
        self.sweep(worker, epoch, step, due)
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        self.batch.kept_bytes(worker) + chunk_bytes(worker)
    }

    fn save(&mut self) -> Result<Memory> {
        self.batch.save()
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        self.batch.restore(memory)
    }
}

/// The chunk of each source row of a layer.
fn chunk_of_rows(layout: &Layout, chunks: &Chunks) -> Vec<u32> {
    layout.nodes[..layout.block.sources()].iter().map(|&node| chunks.of(node) as u32).collect()
}

/// Bytes of the layers of a step: their share of the edges, both ways, and what is told of every row; for all rows where
/// near and far sources are told apart, of the chunk and of a refresh. Where rows are remembered, only the latter.
fn chunk_bytes(worker: &Worker) -> u64 {
    let chunks = chunks(&worker.config) as u64;
    let halves = worker.config.exchange.history_of == HistoryOf::Narrowest && worker.comm.size() > 1;
    let shape = worker.model.shape();
    let layer = |(index, layout): (usize, &Arc<Layout>)| {
        let (edges, rows) = (layout.block.bytes() as u64, 32 * layout.block.sources() as u64);
        if recalls(&worker.config) {
            return if chunks == 1 { 0 } else { rows };
        }
        let split = halves && shape.layer(index).output < shape.layer(index).input;
        let thinned = edges.div_ceil(chunks) + rows;
        if split { 2 * thinned + edges + 2 * rows } else { thinned }
    };
    worker.layers.iter().enumerate().skip(first_chunked(worker)).map(layer).sum()
}
