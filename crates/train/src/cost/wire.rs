//! How many bytes do all ranks send in an epoch, and in how many messages? Exact evaluation is not counted.

use super::epoch::Epoch;
use super::graph::GraphFacts;
use super::net::Net;
use super::rows::Drawn;
use super::shape::{Agreement, Computes, Crossing, Shape};
use crate::Result;
use crate::boundary::Order;
use crate::event::BytesSent;
use crate::run::RunConfig;
use archipelago_comm::Codec;

/// What crosses the wire in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wire {
    /// Bytes of all ranks, by what they carry.
    pub sent: BytesSent,
    /// Messages of one rank.
    pub messages: f64,
    /// Share of the bytes that nobody waits for, if the network keeps up.
    pub hidden: f64,
}

/// Sums of so few bytes are sent to everybody at once.
const SHORT: f64 = 2048.0;

/// Bytes of a message between samplers beside what it carries.
const HEAD: f64 = 16.0;

/// What `epoch` sends.
pub fn wire(facts: &GraphFacts, net: &Net, shape: &Shape, epoch: &Epoch, config: &RunConfig) -> Result<Wire> {
    if epoch.ranks < 2.0 {
        return Ok(Wire::default());
    }
    let mut wire = agreement(net, shape, epoch, config)?;
    let agreed = wire.sent.total() as f64;
    let mut waited = agreed;
    match shape.computes {
        Computes::Shared(crossing) => {
            let rows = rows(net, crossing, epoch, config, facts)?;
            wire.sent += rows.sent;
            wire.messages += rows.messages;
            if !crossing.late {
                waited = wire.sent.total() as f64;
            }
        }
        Computes::Own => {
            let pulled = pulled(facts, epoch, config)?;
            wire.sent += pulled.sent;
            wire.messages += pulled.messages;
        }
        Computes::Isolated(island) => {
            // Resident islands bring their halo when they switch; the others read it from disk.
            let rows = epoch.island.unwrap_or_default();
            let switches = if rows.per_epoch <= 1.0 { epoch.ranks / island.switch_every } else { 0.0 };
            wire.sent.features += (switches * rows.halo * facts.feature_bytes()) as u64;
            waited = wire.sent.total() as f64;
        }
    }
    let all = wire.sent.total() as f64;
    Ok(Wire { hidden: if all > 0.0 { 1.0 - waited / all } else { 0.0 }, ..wire })
}

/// Gradients of weights after every step, or weights after a round.
fn agreement(net: &Net, shape: &Shape, epoch: &Epoch, config: &RunConfig) -> Result<Wire> {
    let (ranks, numbers) = (epoch.ranks, net.parameters as f64);
    let codec = Codec::named(&config.agree.codec)?;
    let bytes = numbers * codec.bytes(1, 256) as f64 / 256.0;
    // Every rank sends its share of each slice, and the sum of its own slice, to all others.
    let long = bytes > SHORT || !codec.exact;
    let once = if long { 2.0 * bytes * (ranks - 1.0) } else { bytes * ranks * (ranks - 1.0) };
    let messages = if long { 2.0 } else { 1.0 } * (ranks - 1.0);
    let mut sent = BytesSent::default();
    let times = match shape.agreement {
        Agreement::SumGradients => {
            sent.gradients = (epoch.steps * once) as u64;
            epoch.steps
        }
        Agreement::AverageModels { every } => {
            sent.weights = (once / every) as u64;
            1.0 / every
        }
    };
    Ok(Wire { sent, messages: times * messages, hidden: 0.0 })
}

/// Rows of layers and their gradients.
fn rows(
    net: &Net,
    crossing: Crossing,
    epoch: &Epoch,
    config: &RunConfig,
    facts: &GraphFacts,
) -> Result<Wire> {
    let codec = Codec::named(&config.exchange.codec)?;
    let mut wire = Wire::default();
    for (index, layer) in epoch.layers.iter().enumerate() {
        // Dense features that are aggregated once, and those that are brought once, do not cross in a step.
        if index == 0 && (net.static_first || crossing.home.brings(net.sparse)) {
            continue;
        }
        let row = codec.bytes(1, net.crossing_width(index, crossing.order)) as f64;
        let forward = match crossing.block {
            true => layer.local * (epoch.ranks - 1.0),
            false => layer.halo,
        };
        // Features get no gradient, unless they were transformed before they crossed.
        let transformed = net.widths.attends || net.crossing_width(0, crossing.order) != facts.features;
        let back = if index > 0 || transformed { crossing.gradients * layer.halo } else { 0.0 };
        let whole = layer.halo / crossing.halo;
        let numbers = epoch.steps * (crossing.rows * forward + back) + crossing.refreshes * whole;
        let bytes = (epoch.ranks * row * numbers) as u64;
        match index {
            0 => wire.sent.features += bytes,
            _ => wire.sent.embeddings += bytes,
        }
        let peers = (epoch.ranks - 1.0).min(layer.halo);
        wire.messages += epoch.steps * 2.0 * peers + crossing.refreshes * peers;
    }
    Ok(wire)
}

/// Questions, answers, and features of rows that other ranks own.
fn pulled(facts: &GraphFacts, epoch: &Epoch, config: &RunConfig) -> Result<Wire> {
    let Some(drawn) = &epoch.drawn else { return Ok(Wire::default()) };
    let codec = Codec::named(&config.exchange.codec)?;
    let id = if facts.nodes > f64::from(u32::MAX) { 8.0 } else { 4.0 };
    let edge = id + if facts.weighted { 4.0 } else { 0.0 };
    let peers = epoch.ranks - 1.0;
    let mut control = 0.0;
    for hop in drawn.hops.iter().filter(|hop| hop.far > 0.0 && hop.far_edges > 0.0) {
        control += peers.min(hop.far) * 2.0 * HEAD + 8.0 * hop.far + edge * hop.far_edges;
    }
    let wanted = wanted_rows(facts, drawn, config, epoch.steps);
    let row = match facts.dense {
        true => codec.bytes(1, facts.features) as f64,
        false => 4.0 + 8.0 * facts.stored_features,
    };
    // Rows are asked for after every hop.
    let asks = peers.min(wanted) * (drawn.hops.len() - 1) as f64;
    control += asks * HEAD + 4.0 * wanted;
    let all = epoch.ranks * epoch.steps;
    let sent = BytesSent {
        features: (all * (asks * HEAD + wanted * row)) as u64,
        control: (all * control) as u64,
        ..BytesSent::default()
    };
    let hops = drawn.hops.len() as f64 - 2.0;
    let messages = epoch.steps * (hops.max(0.0) * peers.min(drawn.hops[1].far) + asks) * 2.0;
    Ok(Wire { sent, messages, hidden: 0.0 })
}

/// Remote rows of a batch that are neither kept for the whole run nor left from the batch before.
pub fn wanted_rows(facts: &GraphFacts, drawn: &Drawn, config: &RunConfig, steps: f64) -> f64 {
    let mut kept = config.exchange.cache * facts.halo;
    // The hottest rows are kept: those of the highest degree.
    let mut groups: Vec<_> = facts.degrees.groups.iter().zip(&drawn.far).collect();
    groups.sort_by(|a, b| b.0.degree.total_cmp(&a.0.degree));
    let mut wanted = 0.0;
    for (_, &(rows, pool)) in groups.into_iter().filter(|(_, (_, pool))| *pool > 0.0) {
        let cached = (kept / pool).min(1.0);
        kept -= cached * pool;
        // The first batch has none before it.
        let seen = if config.exchange.reuse { rows / pool * (1.0 - 1.0 / steps.max(1.0)) } else { 0.0 };
        wanted += rows * (1.0 - cached) * (1.0 - seen);
    }
    wanted
}

/// Bytes that all ranks send in an exact evaluation: every halo row of every layer behind a static first one, once.
pub fn evaluation_bytes(facts: &GraphFacts, net: &Net) -> f64 {
    let first = usize::from(net.static_first);
    let row = |index| 4.0 * net.crossing_width(index, Order::Cheapest) as f64;
    f64::from(facts.parts) * facts.halo * (first..net.layers()).map(row).sum::<f64>()
}
