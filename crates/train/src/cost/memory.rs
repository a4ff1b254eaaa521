//! How much memory does a worker need, and for what? The formulas are those by which a run states its need ([`held`]),
//! fed with expected rows instead of counted ones.

use super::epoch::{Epoch, LayerRows};
use super::extent::Extent;
use super::graph::GraphFacts;
use super::held::{self, MPI, PROGRAM, Rows};
use super::net::Net;
use super::shape::{Batch, Computes, Crossing, Keeps, Shape};
use crate::event::MemoryNeed;
use crate::ops::panel_bytes;
use crate::run::RunConfig;

/// Memory of a worker that hosts so many ranks, in a job of so many workers.
pub fn need(
    facts: &GraphFacts,
    net: &Net,
    shape: &Shape,
    epoch: &Epoch,
    config: &RunConfig,
    hosted: f64,
    workers: u32,
) -> MemoryNeed {
    let mut need = MemoryNeed::default();
    need.add("program", PROGRAM);
    if workers > 1 {
        need.add("mpi", MPI);
    }
    let items = match shape.computes {
        Computes::Shared(crossing) => shared(facts, net, crossing, epoch),
        Computes::Own => own(facts, net, epoch, config),
        Computes::Isolated(_) => isolated(facts, net, shape, epoch, config),
    };
    for (what, bytes) in items.into_iter().filter(|(_, bytes)| *bytes > 0.0) {
        need.add(what, (hosted * bytes) as u64);
    }
    need
}

/// What of the files of the next parts lies in the page cache while these are trained on. It is not a need: the system
/// takes it back when it has to.
pub fn cached(facts: &GraphFacts, shape: &Shape, epoch: &Epoch, hosted: f64) -> f64 {
    match (shape.island(), epoch.island) {
        (Some(island), Some(rows)) if rows.per_epoch > 1.0 => {
            let ahead = if shape.prefetch { 2.0 } else { 1.0 };
            hosted * ahead * island.parts * facts.store_bytes / f64::from(facts.parts)
        }
        _ => 0.0,
    }
}

type Items = Vec<(&'static str, f64)>;

fn rows(layer: &LayerRows) -> Rows {
    let whole = |rows: f64| rows.ceil() as usize;
    let halo = whole(layer.halo);
    Rows { targets: whole(layer.targets), local: whole(layer.local), halo, sent: halo }
}

/// All rows of a part, as an exact evaluation computes them.
fn whole_part(facts: &GraphFacts) -> LayerRows {
    let owned = facts.owned();
    LayerRows { targets: owned, local: owned, halo: facts.halo, edges: facts.part_edges() }
}

/// Layers of a step, and one of an evaluation.
fn layouts(layers: &[LayerRows], whole: &LayerRows, weighted: bool) -> f64 {
    let layout = |layer: &LayerRows, trained: bool| {
        let rows = rows(layer);
        let block = held::block(&rows, layer.edges.ceil() as usize, weighted, trained);
        held::layout(block, rows.sources(), rows.sources(), rows.targets) as f64
    };
    layers.iter().map(|layer| layout(layer, true)).sum::<f64>() + layout(whole, false)
}

/// Features of the owned nodes, and their aggregate where that is kept.
fn features(facts: &GraphFacts, net: &Net) -> f64 {
    let aggregate = if net.static_first { 4.0 * facts.owned() * facts.features as f64 } else { 0.0 };
    facts.owned() * facts.feature_bytes() + aggregate
}

fn mapped(facts: &GraphFacts) -> f64 {
    held::mapped(facts.owned() as usize, facts.part_edges() as usize, facts.halo as usize) as f64
}

fn shared(facts: &GraphFacts, net: &Net, crossing: Crossing, epoch: &Epoch) -> Items {
    let (whole, widths) = (whole_part(facts), &net.widths);
    let layers: Vec<Rows> = epoch.layers.iter().map(rows).collect();
    let all = rows(&whole);
    let widest = |bytes: &dyn Fn(usize, &Rows) -> usize| {
        let each =
            layers.iter().enumerate().flat_map(|(index, rows)| [bytes(index, rows), bytes(index, &all)]);
        each.max().unwrap_or(0) as f64
    };
    let activations = layers.iter().enumerate().map(|(index, rows)| widths.activations(index, rows));
    vec![
        ("graph", layouts(&epoch.layers, &whole, facts.weighted) + mapped(facts)),
        ("features", features(facts, net)),
        ("activations", activations.sum::<usize>() as f64),
        ("gradients", widest(&|index, rows| widths.gradients(index, rows))),
        ("exchange", widest(&|index, rows| widths.exchange(index, rows))),
        ("scratch", panel_bytes(all.sources()) as f64),
        ("weights", held::weights(net.parameters) as f64),
        ("history", history(facts, net, crossing, epoch)),
    ]
}

/// What is kept from step to step: aggregates of targets, or rows of the halo, or of the part, too; and thinned layers.
fn history(facts: &GraphFacts, net: &Net, crossing: Crossing, epoch: &Epoch) -> f64 {
    let first = usize::from(net.static_first || crossing.home.brings(net.sparse));
    let kept = epoch.layers.iter().enumerate().skip(first).map(|(index, layer)| {
        let input = net.widths.shape.layer(index).input.max(net.widths.head_width(index)) as f64;
        match crossing.keeps {
            Keeps::Nothing => 0.0,
            Keeps::Sums => 4.0 * layer.targets * (input + 1.0),
            // With the version of each, and what crosses of them.
            Keeps::Halo => 4.0 * layer.halo * (2.0 * net.crossing_width(index, crossing.order) as f64 + 2.0),
            Keeps::Rows => 4.0 * (layer.local + 2.0 * layer.halo) * (input + 1.0),
        }
    });
    let thin = |layer: &LayerRows| {
        2.0 * held::block(&rows(layer), layer.edges as usize, facts.weighted, true) as f64
    };
    let thinned = if crossing.halo < 1.0 { epoch.layers.iter().map(thin).sum() } else { 0.0 };
    let home = match crossing.home.brings(net.sparse) && !net.static_first {
        true => epoch.layers[0].halo * facts.feature_bytes() + epoch.layers[0].local * facts.feature_bytes(),
        false => 0.0,
    };
    kept.sum::<f64>() + thinned + home
}

fn own(facts: &GraphFacts, net: &Net, epoch: &Epoch, config: &RunConfig) -> Items {
    let whole = whole_part(facts);
    let part = (facts.owned() + facts.halo) as usize;
    let last = if facts.parts > 1 && config.exchange.reuse { epoch.inputs() as usize } else { 0 };
    let kept = (config.exchange.cache * facts.halo).round() as usize;
    let batches = batches(facts, epoch, config.train.prefetch + 1, part);
    vec![
        ("graph", layouts(&[], &whole, facts.weighted) + mapped(facts)),
        ("features", features(facts, net)),
        ("cache", held::kept_rows(kept, facts.features) as f64),
        ("batches", batches + held::kept_rows(last, facts.features) as f64),
        ("activations", net.widths.batch_activations(&hops(epoch), part) as f64),
        ("exchange", net.widths.exchange(net.layers() - 1, &rows(&whole)) as f64),
        ("scratch", panel_bytes(part) as f64),
        ("weights", held::weights(net.parameters) as f64),
    ]
}

/// Rows of the hops of a step, from the targets outward.
fn hops(epoch: &Epoch) -> Vec<usize> {
    let targets = epoch.layers.last().map_or(0.0, |layer| layer.targets);
    let sources = epoch.layers.iter().rev().map(|layer| layer.local + layer.halo);
    std::iter::once(targets).chain(sources).map(|rows| rows.ceil() as usize).collect()
}

fn batches(facts: &GraphFacts, epoch: &Epoch, flight: usize, part: usize) -> f64 {
    let edges: f64 = epoch.layers.iter().map(|layer| layer.edges).sum();
    held::batches(flight, epoch.inputs() as usize, facts.features, edges as usize, part) as f64
}

/// The island of the moment, and the largest of what is held beside it: what making it takes, a step, or, where parts
/// take turns, the evaluation of a part.
fn isolated(facts: &GraphFacts, net: &Net, shape: &Shape, epoch: &Epoch, config: &RunConfig) -> Items {
    let island = epoch.island.unwrap_or_default();
    let (parts, hops_around) = shape.island().map_or((1.0, 0), |island| (island.parts, island.halo as usize));
    let extent = |owned: f64, halo: f64, parts: f64, hops: usize| Extent {
        rows: (owned + halo) as u64,
        guests: halo as u64,
        edges: (parts * facts.part_edges()).max(if parts == 1.0 { 0.0 } else { island.edges }) as u64,
        row: facts.feature_bytes() as u64,
        hops,
        weighted: facts.weighted,
    };
    let held = extent(island.owned, island.halo, parts, hops_around);
    let (batches, step) = match shape.batch {
        Batch::Drawn => (
            batches(facts, epoch, config.train.prefetch + 1, held.rows as usize) as u64,
            net.widths.step_activations(&hops(epoch)) as u64,
        ),
        _ => (held.whole_batch(), held.whole_step(&net.widths)),
    };
    let mut beside = held.making().max(batches + step);
    if island.per_epoch > 1.0 && config.train.eval_every > 0 {
        let part = extent(facts.owned(), facts.halo, 1.0, 1);
        beside = beside.max(held.beyond(&part, &net.widths));
    }
    vec![
        ("graph", held.index() as f64),
        ("features", held.features() as f64),
        ("batches", batches.min(beside) as f64),
        ("activations", (beside - batches.min(beside)) as f64),
        ("weights", held::weights(net.parameters) as f64),
    ]
}
