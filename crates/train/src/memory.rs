//! How much memory a run will need, said before it takes it.
//!
//! The estimate counts what every strategy must hold: the graph's index, the features (and their static
//! aggregate), the rows that the backward pass will read, one gradient beside the widest of them, and the weights
//! with the optimiser's moments. The arena reuses buffers, so a step peaks at its live set.

mod islands;

pub use islands::in_turns;

use crate::Result;
use crate::boundary::Order;
use crate::cost::held::{self, MPI, PROGRAM, Rows, Widths};
use crate::cost::rows;
use crate::event::MemoryNeed;
use crate::index::Index;
use crate::island::Reach;
use crate::ops::panel_bytes;
use crate::run::BatchKind;
use crate::tape::Input;
use crate::view::{Layout, Mirrors};
use crate::worker::Worker;
use archipelago_comm::Kind;
use archipelago_graph::store::Manifest;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that each layer of a step computes on all ranks, input rows first. Empty where batches vary.
pub fn active_rows(worker: &Worker) -> Result<Vec<u64>> {
    let inputs = worker.layers.first().map(|layout| layout.block.local as u64);
    let mut rows: Vec<u64> =
        inputs.into_iter().chain(worker.layers.iter().map(|layout| layout.block.targets as u64)).collect();
    worker.comm.all_reduce_sum_u64(&mut rows, Kind::Control)?;
    Ok(rows)
}

/// Memory that a process will need, the sum over its ranks: that of the process that needs most.
/// `kept` is what the strategy of this rank keeps from step to step, `reach` how large its islands are, if it has any.
pub fn need(worker: &Worker, manifest: &Manifest, kept: u64, reach: Option<Reach>) -> Result<MemoryNeed> {
    let rotate = worker.islands.as_ref().is_some_and(|islands| islands.turns.rotate());
    let mut items: [_; ITEMS] = [
        ("graph", graph(worker) + clustering(worker, manifest)),
        ("features", features(worker)),
        ("cache", cached_rows(worker)),
        ("batches", drawn_batches(worker)),
        ("activations", activations(worker)),
        ("gradients", widest(worker)),
        ("exchange", exchange(worker)),
        ("scratch", scratch(worker)),
        ("weights", weights(worker)),
        ("embeddings", embeddings(worker)),
        ("history", kept),
    ];
    if let Some(reach) = reach {
        islands::add(&mut items, worker, manifest, reach, rotate);
    }
    let of_ranks = worker.comm.all_gather(&items.map(|(_, bytes)| bytes), Kind::Control)?;
    let mut of_processes: BTreeMap<usize, [u64; ITEMS]> = BTreeMap::new();
    for (rank, bytes) in of_ranks.iter().enumerate() {
        let sums = of_processes.entry(worker.comm.process_of(rank)).or_default();
        sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
    }
    let processes = of_processes.len();
    let bytes = of_processes.into_values().max_by_key(|bytes| bytes.iter().sum::<u64>()).unwrap_or_default();
    let mut need = MemoryNeed::default();
    need.add("program", PROGRAM);
    if processes > 1 {
        need.add("mpi", MPI);
    }
    let present = |(what, bytes): &(&str, u64)| *bytes > 0 || !["embeddings", "history"].contains(what);
    for (what, bytes) in items.map(|(what, _)| what).into_iter().zip(bytes).filter(present) {
        need.add(what, bytes);
    }
    Ok(need)
}

/// What a rank needs memory for.
const ITEMS: usize = 11;

/// What finding clusters takes on the first rank, before anything else: neighbour lists of the whole graph, coarser and coarser.
fn clustering(worker: &Worker, manifest: &Manifest) -> u64 {
    match worker.clusters.is_empty() || worker.comm.rank() > 0 {
        true => 0,
        false => 32 * manifest.edges + 60 * manifest.nodes,
    }
}

fn graph(worker: &Worker) -> u64 {
    let layout = |layout: &Layout| {
        let block = &layout.block;
        held::layout(layout.list_bytes(), layout.nodes.len(), block.sources(), block.targets)
    };
    let layers: usize = worker.layers.iter().chain(worker.whole.first()).map(|l| layout(l)).sum();
    let part = &worker.part;
    let index = worker.index.as_ref().map_or(0, Index::bytes);
    (layers + index + held::mapped(part.owned(), part.edges(), part.halo().len())) as u64
}

/// What the formulas want to know of the model.
fn widths(worker: &Worker) -> Widths {
    Widths { shape: worker.model.shape().clone(), attends: worker.model.keeps_transformed() }
}

/// Rows of a layer.
fn rows_of(layout: &Layout) -> Rows {
    let sent: usize = layout.routes.send.iter().map(Vec::len).sum();
    // A row between a target and its mirror is in a buffer and in a message at either end.
    let relayed = |mirrors: &Mirrors| 2 * (mirrors.copies.len() + mirrors.block.targets);
    let sent = sent + layout.mirrors.as_ref().map_or(0, relayed);
    let block = &layout.block;
    Rows { targets: block.targets, local: block.local, halo: block.halo, sent }
}

/// Weights with their gradients and moments, and what the exchange of gradients remembers.
fn weights(worker: &Worker) -> u64 {
    let remembered: usize = worker.agreement.memory().iter().map(|(_, values)| 4 * values.len()).sum();
    (held::weights(worker.tape.parameters.count()) + remembered) as u64
}

fn features(worker: &Worker) -> u64 {
    let own = worker.statics.features.bytes();
    let dense = matches!(worker.statics.features, Input::Dense(_));
    if worker.embeddings.is_some() {
        // Features and embeddings side by side, and their aggregate: of all rows, in every evaluation.
        return (own + 2 * 4 * worker.order.len() * worker.model.shape().input) as u64;
    }
    let aggregate = match dense && worker.model.aggregates_input() {
        true => 4 * worker.order.len() * worker.model.shape().input,
        false => 0,
    };
    (own + aggregate) as u64
}

/// Rows of owned nodes with what their optimiser remembers; at rank 0 also those of all nodes, for a checkpoint, and
/// one of their parts once more before it is in order.
fn embeddings(worker: &Worker) -> u64 {
    let Some(embeddings) = &worker.embeddings else { return 0 };
    let (row, copies) = (4 * embeddings.width() as u64, embeddings.copies() as u64);
    let all = worker.part.starts().last().copied().unwrap_or(0);
    let gathered = if worker.comm.rank() == 0 { all * row * (copies + 1) } else { 0 };
    worker.part.owned() as u64 * row * copies + gathered
}

/// Rows that the backward pass reads: the output of every layer, and inside a layer what it transforms.
fn activations(worker: &Worker) -> u64 {
    if !worker.global_batch {
        return batch_activations(worker);
    }
    let widths = widths(worker);
    let layers = worker.layers.iter().enumerate();
    layers.map(|(index, layout)| widths.activations(index, &rows_of(layout))).sum::<usize>() as u64
}

/// Rows of the hops of an average batch, from the targets outward: what is drawn among `nodes` nodes, each met once.
fn batch_rows(worker: &Worker) -> Vec<usize> {
    let (config, part) = (&worker.config.train, &worker.part);
    let nodes = part.starts().last().copied().unwrap_or(0) as f64;
    let degree = part.edges() as f64 / part.owned().max(1) as f64;
    let ends = if worker.links.is_some() { 2 + config.negatives } else { 1 };
    let share = (worker.all_targets as f64 / worker.comm.size() as f64).min(config.batch_size as f64);
    if worker.index.is_some() {
        return view_rows(worker, share, nodes, degree);
    }
    rows::batch_rows(share * ends as f64, nodes, degree, &config.fanouts)
}

/// The same where ranks compute a batch together: an even share of the rows of all.
fn view_rows(worker: &Worker, share: f64, nodes: f64, degree: f64) -> Vec<usize> {
    let (train, layers, ranks) = (&worker.config.train, worker.config.model.layers, worker.comm.size());
    let inside = match train.batch {
        BatchKind::Cluster => nodes * train.clusters as f64 / train.cluster_count as f64,
        BatchKind::Mini | BatchKind::Global => nodes,
    };
    let targets = (share * ranks as f64).min(inside);
    let all = rows::batch_rows(targets, inside, degree, &vec![-1; layers]);
    all.into_iter().map(|rows| rows.div_ceil(ranks)).collect()
}

/// Batches that are drawn ahead and the one that is computed: input rows, edges both ways, and the maps of those in the
/// making; and the remote rows of the last one.
fn drawn_batches(worker: &Worker) -> u64 {
    if worker.global_batch {
        return 0;
    }
    let (rows, part) = (batch_rows(worker), &worker.part);
    let width = crate::feature::width(part);
    let degree = part.edges() / part.owned().max(1);
    if worker.index.is_some() {
        let edges = rows[..rows.len().saturating_sub(1)].iter().map(|&rows| rows * degree).sum();
        let inputs = rows.last().copied().unwrap_or(0);
        return held::batches(worker.config.agree.in_flight, inputs, width, edges, part.rows()) as u64;
    }
    let drawn = |(&rows, &fanout): (&usize, &i64)| {
        rows * if fanout < 0 { degree } else { degree.min(fanout as usize) }
    };
    let edges: usize = rows.iter().zip(&worker.config.train.fanouts).map(drawn).sum();
    let inputs = rows.last().copied().unwrap_or(0);
    let flight = worker.config.train.prefetch + 1;
    let last = inputs * usize::from(worker.comm.size() > 1 && worker.config.exchange.reuse);
    (held::batches(flight, inputs, width, edges, part.rows()) + held::kept_rows(last, width)) as u64
}

/// The hot rows of other parts that are kept: the budget of `exchange.cache`.
fn cached_rows(worker: &Worker) -> u64 {
    if worker.global_batch || worker.index.is_some() {
        return 0;
    }
    let kept = (worker.config.exchange.cache * worker.part.halo().len() as f64).round() as usize;
    held::kept_rows(kept, crate::feature::width(&worker.part)) as u64
}

/// Rows of a step that draws its batch, or of an evaluation, whichever are more: they are not held together.
fn batch_activations(worker: &Worker) -> u64 {
    widths(worker).batch_activations(&batch_rows(worker), worker.part.rows()) as u64
}

/// Rows of a step that draws its batch.
pub fn step_activations(worker: &Worker) -> u64 {
    widths(worker).step_activations(&batch_rows(worker)) as u64
}

/// Buffers in use at the widest point of a step or of an evaluation, beyond what is kept: the gradient that a layer
/// reads and, behind the first layer or inside an attention, the one that it writes.
fn widest(worker: &Worker) -> u64 {
    if !worker.global_batch {
        return 0;
    }
    widest_layer(worker, Widths::gradients)
}

/// The most that a layer of a step or of an evaluation takes.
fn widest_layer(worker: &Worker, bytes: fn(&Widths, usize, &Rows) -> usize) -> u64 {
    let widths = widths(worker);
    let layers = |layers: &[Arc<Layout>]| {
        let each = layers.iter().enumerate().map(|(index, layout)| bytes(&widths, index, &rows_of(layout)));
        each.max().unwrap_or(0)
    };
    layers(&worker.layers).max(layers(&worker.whole)) as u64
}

/// Rows on their way to and from other ranks, in the widest layer of a step or an evaluation.
fn exchange(worker: &Worker) -> u64 {
    widest_layer(worker, Widths::exchange)
}

/// The panel of columns that a gather packs.
fn scratch(worker: &Worker) -> u64 {
    let layers = worker.layers.iter().chain(&worker.whole);
    layers.map(|layout| panel_bytes(layout.block.sources())).max().unwrap_or(0) as u64
}

/// How wide the rows are that a layer aggregates, and how many heads it has if it attends.
pub fn aggregated(worker: &Worker, index: usize, order: Order) -> (usize, usize) {
    let shape = worker.model.shape().layer(index);
    let name = worker.config.model.name.as_str();
    if worker.model.keeps_transformed() {
        let rows = if name == "rgcn" { shape.bases } else { 1 };
        return (rows * widths(worker).head_width(index), shape.heads);
    }
    let (narrower, before) =
        (shape.output < shape.input, order.transforms_before_crossing(shape.input, shape.output));
    let width = match order {
        _ if worker.model.reads_rows() => shape.input,
        Order::Cheapest if name == "gin" => shape.input.min(shape.inner),
        _ if before => shape.output,
        // Both halves are kept apart.
        Order::Split if narrower => shape.input + shape.output,
        _ => shape.input,
    };
    (width, 0)
}
