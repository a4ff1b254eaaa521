//! How much is there to do in an epoch? Edges to draw, bytes to gather and to copy, multiplications, bytes to read: on all
//! ranks together.

use super::epoch::Epoch;
use super::graph::GraphFacts;
use super::net::Net;
use super::shape::{Agreement, Batch, Computes, Shape};
use super::wire::Wire;
use crate::boundary::Order;
use serde::{Deserialize, Serialize};

/// The work of an epoch on all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Edges that are drawn.
    pub drawn_edges: f64,
    /// Bytes of rows that are copied: features of batches, messages in and out.
    pub copied_bytes: f64,
    /// Bytes that are summed along edges, forward and backward.
    pub gathered_bytes: f64,
    /// Floating-point operations of dense products, forward and backward.
    pub flops: f64,
    /// Bytes of parts that islands are made of.
    pub island_bytes: f64,
    /// Steps, each rank's counted.
    pub steps: f64,
    /// Messages of all ranks.
    pub messages: f64,
    /// Bytes that are read from disk.
    pub disk_bytes: f64,
}

/// The work of `epoch`, which sends `wire`.
pub fn work(facts: &GraphFacts, net: &Net, shape: &Shape, epoch: &Epoch, wire: &Wire) -> Work {
    let all = epoch.ranks * epoch.steps;
    let (order, shared) = match shape.computes {
        Computes::Shared(crossing) => (crossing.order, true),
        _ => (Order::Cheapest, false),
    };
    let mut work = Work { steps: all, messages: epoch.ranks * wire.messages, ..Work::default() };
    for (index, layer) in epoch.layers.iter().enumerate() {
        let sources = layer.local + layer.halo;
        let crosses = shared && layer.halo > 0.0;
        let still = shared && index == 0 && net.static_first;
        let order = if still { Order::AggregateFirst } else { order };
        let cost = net.cost(index, order, crosses, [sources, layer.targets, layer.edges]);
        let products = layer.local * cost.per_source + layer.targets * cost.per_target;
        let first = index == 0;
        // Weights get a gradient, and so do inputs, unless they are features.
        let passes = if first { 2.0 } else { 3.0 };
        work.flops += all * 2.0 * products * passes;
        // A first layer that aggregates features first passes nothing back along edges.
        let ways = if first && cost.per_source == 0.0 { 1.0 } else { 2.0 };
        let heads = if net.widths.attends { 2.0 } else { 1.0 };
        let gathered = if still { 0.0 } else { heads * ways * layer.edges };
        work.gathered_bytes += all * gathered * 4.0 * cost.width as f64;
    }
    if !shared {
        let edges = all * epoch.layers.iter().map(|layer| layer.edges).sum::<f64>();
        // Whole neighbourhoods are copied, not drawn.
        match shape.batch {
            Batch::Drawn => work.drawn_edges = edges,
            _ => work.copied_bytes += 8.0 * edges,
        }
        work.copied_bytes += all * epoch.inputs() * facts.feature_bytes();
    }
    work.copied_bytes += 2.0 * wire.sent.total() as f64;
    add_islands(&mut work, facts, shape, epoch);
    work
}

/// What parts take on their way into memory.
fn add_islands(work: &mut Work, facts: &GraphFacts, shape: &Shape, epoch: &Epoch) {
    let (Some(island), Some(rows)) = (shape.island(), epoch.island) else { return };
    // All edges of the parts are looked at, those that lead elsewhere, too.
    let edges = island.parts * facts.edges / f64::from(facts.parts);
    let bytes = (rows.owned + rows.halo) * (facts.feature_bytes() + 28.0) + 4.0 * edges.max(rows.edges);
    let (copies, parts, halo) = match rows.per_epoch > 1.0 {
        true => (rows.per_epoch / visits(shape), island.parts, rows.halo),
        // Everything is there: only islands that change are made anew, of parts that others have, too.
        false if island.bases < island.parts => (1.0 / island.switch_every, island.parts - island.bases, 0.0),
        false => (1.0 / island.switch_every, island.parts, 0.0),
    };
    let files = parts * facts.store_bytes / f64::from(facts.parts) + halo * facts.feature_bytes();
    work.island_bytes += epoch.ranks * copies * bytes;
    work.disk_bytes += epoch.ranks * copies * files;
}

/// Epochs in a row for which a part stays in memory: those of a round, where models are averaged.
fn visits(shape: &Shape) -> f64 {
    match shape.agreement {
        Agreement::AverageModels { every } => every,
        Agreement::SumGradients => 1.0,
    }
}

/// The work of an exact evaluation: every layer, all nodes, all edges, forward.
pub fn evaluation(facts: &GraphFacts, net: &Net, sent: f64) -> Work {
    let rows = [facts.nodes, facts.nodes, facts.edges];
    let mut work = Work { copied_bytes: 2.0 * sent, steps: f64::from(facts.parts), ..Work::default() };
    for index in 0..net.layers() {
        let cost = net.cost(index, Order::Cheapest, facts.parts > 1, rows);
        work.flops += 2.0 * facts.nodes * (cost.per_source + cost.per_target);
        let still = index == 0 && net.static_first;
        work.gathered_bytes += if still { 0.0 } else { 4.0 * facts.edges * cost.width as f64 };
    }
    work
}
