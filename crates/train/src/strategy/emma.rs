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
//! `exchange.chunking = false` makes one step of all edges, which is `full`; `exchange.moving = false` forgets, so that
//! a step is one on a sampled neighbourhood: the two ablations of the paper.

use super::shared_batch::{Moment, SharedBatch, check as check_shared};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::boundary::{Boundary, Exact, Memory, Moving};
use crate::run::{Aggregator, HistoryOf, Norm, Refresh, RunConfig};
use crate::view::{Layout, Scales, Thinning};
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
    if config.exchange.moving && config.model.name == "sage" && config.model.aggregator == Aggregator::Max {
        let message = "expected `mean` or `sum` with strategy `emma`, found `max`";
        return Err(Error::config(config.place(key), key, message)
            .with_hint("a maximum cannot forget the share of its messages that is sent anew"));
    }
    check_shared(config, parts)
}

fn build(worker: &Worker) -> Result<Box<dyn Strategy>> {
    let exchange = &worker.config.exchange;
    let exact = Exact::of(&worker.config, Arc::clone(&worker.comm))?;
    if !exchange.moving {
        return Ok(Box::new(Forgetful(batch(worker, exact)?)));
    }
    let every = match exchange.history_refresh_every {
        // With one chunk nothing is remembered beyond a step.
        _ if chunks(&worker.config) == 1 => 0,
        Refresh::Chunks => exchange.chunks as u64,
        Refresh::Every(sweeps) => sweeps,
        Refresh::Never => 0,
    };
    let boundary = Moving::new(exact, &worker.config, first_chunked(worker));
    Ok(Box::new(Emma { batch: batch(worker, boundary)?, refresh_every: every }))
}

/// Steps of a sweep.
fn chunks(config: &RunConfig) -> usize {
    if config.exchange.chunking { config.exchange.chunks } else { 1 }
}

/// The first layer whose sources are chunked: the second, unless the first attends to its sources.
fn first_chunked(worker: &Worker) -> usize {
    usize::from(!worker.model.keeps_transformed())
}

fn batch<B: Boundary>(worker: &Worker, boundary: B) -> Result<SharedBatch<B>> {
    match first_chunked(worker) {
        0 => Ok(SharedBatch::new(worker, boundary)),
        _ => SharedBatch::at_home(worker, boundary),
    }
}

/// With memory.
struct Emma {
    batch: SharedBatch<Moving>,
    refresh_every: u64,
}

/// Without.
struct Forgetful(SharedBatch<Exact>);

impl Emma {
    /// One forward pass over all edges, whose aggregates take the place of what is remembered.
    fn refresh(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<()> {
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "refresh" });
        worker.tape.begin_evaluation();
        self.batch.boundary.refresh(true);
        let outcome = self.batch.forward(worker, None);
        self.batch.boundary.refresh(false);
        outcome.map(|_| ())
    }
}

impl Strategy for Emma {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        // Statistics of batch norms, which a pass without training reads, are known after the first sweep only.
        let known = epoch > 1 || worker.config.model.norm != Norm::Batch;
        if self.refresh_every > 0 && (epoch - 1).is_multiple_of(self.refresh_every) && known {
            self.refresh(worker, epoch, step)?;
        }
        sweep(&mut self.batch, worker, Scales::OfAll, epoch, step)
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        self.batch.kept_bytes(worker) + thinned_bytes(worker)
    }

    fn save(&mut self) -> Result<Memory> {
        self.batch.save()
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        self.batch.restore(memory)
    }
}

impl Strategy for Forgetful {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        sweep(&mut self.0, worker, Scales::OfRest, epoch, step)
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        self.0.kept_bytes(worker) + thinned_bytes(worker)
    }
}

/// One step for each chunk.
fn sweep<B: Boundary>(
    batch: &mut SharedBatch<B>,
    worker: &mut Worker,
    scales: Scales,
    epoch: u64,
    step: u64,
) -> Result<EpochOutcome> {
    let count = chunks(&worker.config);
    let nodes = worker.part.starts().last().copied().unwrap_or(0);
    let chunks = Chunks::new(count, nodes, worker.config.train.seed, epoch);
    let chunked = worker.layers.iter().skip(first_chunked(worker));
    let members: Vec<Vec<u32>> = chunked.map(|layout| chunk_of_rows(layout, &chunks)).collect();
    let mut loss = 0.0;
    for round in 0..count {
        let moment = Moment { epoch, step: step + 1 + round as u64, round: round as u64 };
        let layers = (count > 1).then(|| chunk(worker, batch.layers(worker), &members, round as u32, scales));
        loss += batch.step(worker, layers.as_deref(), moment)?;
    }
    let toll = batch.boundary.toll();
    Ok(EpochOutcome { loss: loss / count as f64, steps: count as u64, toll, ..EpochOutcome::default() })
}

/// The chunk of each source row of a layer.
fn chunk_of_rows(layout: &Layout, chunks: &Chunks) -> Vec<u32> {
    layout.nodes[..layout.block.sources()].iter().map(|&node| chunks.of(node) as u32).collect()
}

/// The layers of the step in which one chunk sends; `members` are the chunks of the rows of those that are chunked.
fn chunk(
    worker: &Worker,
    layers: &[Arc<Layout>],
    members: &[Vec<u32>],
    round: u32,
    scales: Scales,
) -> Vec<Arc<Layout>> {
    let loops = worker.model.attends_to_own();
    let thinned = |(layout, members): (&Arc<Layout>, &Vec<u32>)| {
        let stays: Vec<bool> = members.iter().map(|&chunk| chunk == round).collect();
        Arc::new(layout.thinned(Thinning { stays: &stays, sends: &stays, halo_weight: 1.0, scales, loops }))
    };
    let (whole, chunked) = layers.split_at(first_chunked(worker));
    whole.iter().cloned().chain(chunked.iter().zip(members).map(thinned)).collect()
}

/// Bytes of the layers of a step: their share of the edges, both ways, and what is told of every row; for all rows where
/// near and far sources are told apart, of the chunk and of a refresh.
fn thinned_bytes(worker: &Worker) -> u64 {
    let chunks = chunks(&worker.config) as u64;
    let halves = worker.config.exchange.history_of == HistoryOf::Narrowest && worker.comm.size() > 1;
    let shape = worker.model.shape();
    let layer = |(index, layout): (usize, &Arc<Layout>)| {
        let (edges, rows) = (layout.block.bytes() as u64, 32 * layout.block.sources() as u64);
        let split = halves && shape.layer(index).output < shape.layer(index).input;
        let thinned = edges.div_ceil(chunks) + rows;
        if split { 2 * thinned + edges + 2 * rows } else { thinned }
    };
    worker.layers.iter().enumerate().skip(first_chunked(worker)).map(layer).sum()
}
