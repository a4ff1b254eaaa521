//! Bounded staleness (SANCUS): a part's rows are sent again only when they have become too old.
//!
//! Each layer's rows of a part are a *block*. In every step its owner decides whether the block is sent (it is *active*)
//! or whether the version that other ranks hold serves once more; the decision travels as an empty message. Node features
//! never change, so they cross once and never become stale. The rules:
//!
//! - `Epochs(e)` (SCS-E): sent when the version held is more than `e` epochs old, so every `e + 1` epochs;
//! - `Turns(e)` (SCS-A): the same bound, but parts take turns, so that every epoch has rows of all ages and the network
//!   an even load;
//! - `Change(h)` (SCS-H): sent when `|H - H_sent| / |H|` (Frobenius) exceeds `h`;
//! - bound 0 of any of them is CAGNET: everything is sent every time.
//!
//! In a step in which its block is not sent the owner reads its own last version, too (`own_block = "stale"`), so that
//! one and the same H is aggregated everywhere (but for what a lossy codec rounds). Backward, a block that was not sent gets no gradient
//! (`backward = "exact-stale"`: the derivative of what was computed), or gradients go on as if everything were fresh
//! (`"straight-through"`). SkipG is the mirror image: rows are always sent and gradients of rows are skipped, the last
//! ones serving once more.
//!
//! With `broadcast = "block"` a reader is sent all rows of a block, as CAGNET does; else those that it reads. Gradients
//! are always those of the rows that are read.
//!
//! Layers aggregate before they transform: what is held are inputs of a layer, and its weights learn in every step.
//! Memory: per layer the halo rows, and the own rows where they are read or compared.

use super::exact::ROWS;
use super::ferry::{Ferry, halo_by_owner, wanted_by_reader};
use super::{Boundary, Crossing, Memory, Order, Own, Passing, Toll};
use crate::Result;
use crate::ops::elementwise::add_rows;
use crate::run::{Backward, Broadcast, OwnBlock, RunConfig, Staleness};
use crate::tape::{Buffer, Matrix, Values};
use crate::view::Layout;
use archipelago_comm::{Comm, Kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When a block is sent again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Epochs(u64),
    Turns(u64),
    Change(f64),
}

/// What is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skips {
    /// Rows, and what follows for their gradients.
    Rows,
    /// Gradients of rows.
    Gradients,
    /// Nothing.
    Nothing,
}

/// Rows that may be some epochs old; see the module.
pub struct Stale {
    ferry: Ferry,
    rule: Rule,
    skips: Skips,
    own_block: OwnBlock,
    backward: Backward,
    blocks: Option<Vec<Blocks>>,
    overlap: bool,
    epoch: u64,
    layers: BTreeMap<usize, Held>,
    toll: Toll,
}

/// Where halo rows stand in the blocks that they come from, and how many rows those have.
struct Blocks {
    positions: Vec<Vec<u32>>,
    sizes: Vec<usize>,
}

/// What one rank holds of one layer. Versions are epochs; 0 is none.
#[derive(Default)]
struct Held {
    /// Own rows as others hold them, and since when.
    own: Option<Arc<Matrix>>,
    own_version: u64,
    active: bool,
    /// Halo rows, and since when each rank's.
    halo: Vec<f32>,
    versions: Vec<u64>,
    /// Gradients from other ranks, reader by reader, where those are skipped; and since when.
    gradients: Vec<f32>,
    gradient_version: u64,
}

impl Rule {
    /// Whether a block of `rank` is due, whose version from epoch `held` others have.
    fn is_due(self, epoch: u64, held: u64, rank: usize, change: impl FnOnce() -> f64) -> bool {
        let too_old = |bound: u64| held == 0 || epoch.saturating_sub(held) > bound;
        match self {
            Self::Epochs(bound) => too_old(bound),
            Self::Turns(bound) => too_old(bound) || (epoch + rank as u64).is_multiple_of(bound + 1),
            Self::Change(bound) => held == 0 || bound == 0.0 || change() > bound,
        }
    }
}

/// `|now - then| / |now|` in the norm of Frobenius; rows that became zero, or no numbers, have changed.
fn change(now: &[f32], then: &[f32]) -> f64 {
    let (mut difference, mut size) = (0.0, 0.0);
    for (x, y) in now.iter().zip(then) {
        difference += f64::from(x - y).powi(2);
        size += f64::from(*x).powi(2);
    }
    match (difference, size) {
        (0.0, _) => 0.0,
        (difference, size) if size > 0.0 && difference.is_finite() => (difference / size).sqrt(),
        _ => f64::INFINITY,
    }
}

impl Stale {
    /// Skips `what` as `config` says. With whole blocks, ranks first agree on where rows stand in them.
    pub fn new(config: &RunConfig, comm: Arc<Comm>, skips: Skips, layers: &[Arc<Layout>]) -> Result<Self> {
        let exchange = &config.exchange;
        let rule = match (skips, exchange.staleness) {
            (Skips::Nothing, _) => Rule::Epochs(0),
            // Sender and receiver must know alike whether gradients come: they do if all ranks skip together.
            (Skips::Gradients, _) | (_, Staleness::Epochs) => Rule::Epochs(exchange.stale_epochs),
            (_, Staleness::Turns) => Rule::Turns(exchange.stale_epochs),
            (_, Staleness::Change) => Rule::Change(exchange.stale_change),
        };
        let blocks = match exchange.broadcast {
            Broadcast::Needed => None,
            Broadcast::Block => Some(agree_on_blocks(&comm, layers)?),
        };
        Ok(Self {
            ferry: Ferry::new(comm, ROWS, &exchange.codec, config.train.seed)?,
            rule,
            skips,
            own_block: exchange.own_block,
            backward: exchange.backward,
            blocks,
            overlap: exchange.overlap,
            epoch: 0,
            layers: BTreeMap::new(),
            toll: Toll::default(),
        })
    }

    fn held(&mut self, layer: usize) -> &mut Held {
        self.layers.entry(layer).or_default()
    }

    /// Whether rows of other steps may be read. Nothing of a first layer crosses but features, and those once.
    fn skips_rows(&self, crossing: Crossing) -> bool {
        self.skips == Skips::Rows && !crossing.fixed && crossing.layer > 0
    }

    /// Whether gradients of rows that were sent in an earlier epoch go back nevertheless.
    fn goes_straight(&self) -> bool {
        self.skips != Skips::Rows || self.backward == Backward::StraightThrough
    }

    /// Sends what `peer` reads, or all rows of the block.
    fn send(&mut self, peer: usize, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        if self.blocks.is_none() || crossing.fixed {
            return self.ferry.send_rows(peer, crossing, layout, rows);
        }
        let row = |at: usize| (&rows[at * crossing.width..][..crossing.width], layout.nodes[at]);
        self.ferry.send(peer, crossing, false, (0..layout.block.local).map(row))
    }

    fn count_block(&mut self, sent: bool) {
        *(if sent { &mut self.toll.sent } else { &mut self.toll.skipped }) += 1;
    }

    /// Whether gradients of rows, which may be skipped, are sent in this step.
    fn gradients_are_due(&mut self, crossing: Crossing) -> bool {
        let (rule, epoch) = (self.rule, self.epoch);
        rule.is_due(epoch, self.held(crossing.layer).gradient_version, 0, || 0.0)
    }

    /// Adds gradients of other ranks: those that come in this step, or those that came last.
    fn add_last_gradients(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        let (width, due) = (crossing.width, self.gradients_are_due(crossing));
        let mut held = std::mem::take(self.held(crossing.layer));
        let sent: usize = wanted_by_reader(layout).map(|(_, wanted)| wanted.len()).sum();
        held.gradients.resize(sent * width, 0.0);
        let mut rest = &mut held.gradients[..];
        for (peer, wanted) in wanted_by_reader(layout) {
            let (gradients, further) = rest.split_at_mut(wanted.len() * width);
            if due {
                self.ferry.receive_gradients(peer, crossing, gradients)?;
            }
            add_rows(wanted, gradients, width, rows);
            rest = further;
        }
        held.gradient_version = if due { self.epoch } else { held.gradient_version };
        self.layers.insert(crossing.layer, held);
        Ok(())
    }

    /// Receives the halo rows of `peer`; whether new ones came.
    fn receive(&mut self, peer: usize, crossing: Crossing, into: &mut [f32]) -> Result<bool> {
        let width = crossing.width;
        let Some(blocks) = self.blocks.as_ref().filter(|_| !crossing.fixed) else {
            return self.ferry.receive_if_sent(peer, crossing, into);
        };
        let blocks = &blocks[crossing.layer];
        let mut block = vec![0.0; blocks.sizes[peer] * width];
        let came = self.ferry.receive_if_sent(peer, crossing, &mut block)?;
        if came {
            for (slot, &at) in into.chunks_exact_mut(width).zip(&blocks.positions[peer]) {
                slot.copy_from_slice(&block[at as usize * width..][..width]);
            }
        }
        Ok(came)
    }
}

/// `rows` to be kept, in the memory of what was kept before where nobody else reads that.
fn kept(before: Option<Arc<Matrix>>, rows: &[f32], width: usize) -> Arc<Matrix> {
    let unshared = before.and_then(|before| Arc::try_unwrap(before).ok());
    let mut values = match unshared.map(|matrix| matrix.values) {
        Some(Values::Own(buffer)) if buffer.len() == rows.len() => buffer,
        _ => Buffer::zeros(rows.len()),
    };
    values.copy_from_slice(rows);
    let count = rows.len().checked_div(width).unwrap_or(0);
    Arc::new(Matrix { rows: count, cols: width, values: values.into() })
}

/// Tells every rank which rows of whose blocks are its halo rows.
fn agree_on_blocks(comm: &Comm, layers: &[Arc<Layout>]) -> Result<Vec<Blocks>> {
    let layer = |layout: &Arc<Layout>| {
        let positions = comm.all_to_all(layout.routes.send.clone(), Kind::Control)?;
        let sizes = comm.all_gather(&[layout.block.local as u64], Kind::Control)?;
        Ok(Blocks { positions, sizes: sizes.iter().map(|size| size[0] as usize).collect() })
    };
    layers.iter().map(layer).collect()
}

impl Boundary for Stale {
    fn overlaps(&self) -> bool {
        self.overlap
    }

    fn order(&self) -> Order {
        Order::AggregateFirst
    }

    fn begin(&mut self, epoch: u64, step: u64) {
        self.epoch = epoch;
        self.toll.steps += 1;
        self.ferry.begin(step);
    }

    fn own(&mut self, crossing: Crossing, rows: &[f32]) -> Result<Own> {
        if !self.skips_rows(crossing) {
            self.held(crossing.layer).active = true;
            return Ok(Own::Fresh);
        }
        let (rule, epoch, rank) = (self.rule, self.epoch, self.ferry.comm.rank());
        let reads_stale = self.own_block == OwnBlock::Stale;
        let keeps = reads_stale || matches!(rule, Rule::Change(_));
        // With the first rule all ranks skip together; with the others some may send.
        let gradient = match (self.goes_straight(), rule) {
            (true, _) => Passing::All,
            (false, Rule::Epochs(_)) => Passing::None,
            (false, _) => Passing::Zero,
        };
        let held = self.held(crossing.layer);
        let own = held.own.as_ref().map_or(&[][..], |own| &own.values);
        held.active = rule.is_due(epoch, held.own_version, rank, || change(rows, own));
        match (held.active, &held.own) {
            (true, _) => {
                held.own_version = epoch;
                if keeps {
                    held.own = Some(kept(held.own.take(), rows, crossing.width));
                }
                Ok(Own::Fresh)
            }
            (false, Some(own)) if reads_stale => Ok(Own::Kept { rows: Arc::clone(own), gradient }),
            (false, _) => Ok(Own::Fresh),
        }
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        let active = crossing.fixed || self.held(crossing.layer).active;
        for (peer, _) in wanted_by_reader(layout) {
            match active {
                true => self.send(peer, crossing, layout, rows)?,
                false => self.ferry.send_nothing(peer, crossing)?,
            }
        }
        let counts = !crossing.fixed && self.skips != Skips::Gradients;
        if counts && wanted_by_reader(layout).next().is_some() {
            self.count_block(active);
        }
        Ok(())
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        let (width, epoch) = (crossing.width, self.epoch);
        let mut held = std::mem::take(self.held(crossing.layer));
        if self.skips_rows(crossing) {
            held.halo.resize(halo.len(), 0.0);
        }
        held.versions.resize(self.ferry.comm.size(), 0);
        for (peer, of) in halo_by_owner(layout) {
            let rows = of.start * width..of.end * width;
            if !self.skips_rows(crossing) {
                self.receive(peer, crossing, &mut halo[rows])?;
                continue;
            }
            if self.receive(peer, crossing, &mut held.halo[rows.clone()])? {
                held.versions[peer] = epoch;
            }
            halo[rows.clone()].copy_from_slice(&held.halo[rows]);
            self.toll.read(crossing.layer, (epoch - held.versions[peer]) as f32, of.len() as u64);
        }
        self.layers.insert(crossing.layer, held);
        Ok(())
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        let (epoch, straight, skips) = (self.epoch, self.goes_straight(), self.skips);
        if skips == Skips::Gradients {
            let due = self.gradients_are_due(crossing);
            self.count_block(due);
            if !due {
                return Ok(());
            }
        }
        for (peer, of) in halo_by_owner(layout) {
            if straight || self.held(crossing.layer).versions[peer] == epoch {
                self.ferry.send_gradients(peer, crossing, layout, halo, of)?;
            }
        }
        Ok(())
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        if self.skips == Skips::Gradients {
            return self.add_last_gradients(crossing, layout, rows);
        }
        if !self.held(crossing.layer).active && !self.goes_straight() {
            return Ok(());
        }
        self.ferry.arrive_back(crossing, layout, rows)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.ferry.sum(values)
    }

    fn toll(&mut self) -> Toll {
        Toll { rows: self.ferry.take_rows(), ..std::mem::take(&mut self.toll) }
    }

    fn kept_numbers(&self, layout: &Layout, width: usize, _: usize) -> usize {
        let own = self.own_block == OwnBlock::Stale || matches!(self.rule, Rule::Change(_));
        let sent: usize = wanted_by_reader(layout).map(|(_, wanted)| wanted.len()).sum();
        let rows = match self.skips {
            Skips::Nothing => 0,
            Skips::Gradients => sent,
            Skips::Rows => layout.block.halo + if own { layout.block.local } else { 0 },
        };
        rows * width
    }

    fn save(&mut self) -> Result<Memory> {
        let mut memory = Memory::default();
        for (layer, held) in &self.layers {
            memory.put(format!("stale.{layer}.own"), held.own.as_ref().map_or(&[][..], |own| &own.values));
            memory.put(format!("stale.{layer}.halo"), &held.halo);
            memory.put(format!("stale.{layer}.gradients"), &held.gradients);
            let width = held.own.as_ref().map_or(0, |own| own.cols as u64);
            let facts = [&[width, held.own_version, held.gradient_version][..], &held.versions].concat();
            memory.put_words(format!("stale.{layer}.versions"), &facts);
        }
        Ok(memory)
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        for layer in 0..=usize::from(u8::MAX) {
            let floats = |what: &str| memory.get(&format!("stale.{layer}.{what}")).unwrap_or_default();
            let Some([width, own_version, gradient_version, versions @ ..]) =
                memory.words(&format!("stale.{layer}.versions"))
            else {
                continue;
            };
            let (own, halo, gradients) = (floats("own"), floats("halo"), floats("gradients"));
            self.layers.insert(
                layer,
                Held {
                    own: (*width > 0).then(|| kept(None, own, *width as usize)),
                    own_version: *own_version,
                    active: false,
                    halo: halo.to_vec(),
                    versions: versions.to_vec(),
                    gradients: gradients.to_vec(),
                    gradient_version: *gradient_version,
                },
            );
        }
        Ok(())
    }
}
