//! One step late (PipeGCN): rows and their gradients are used in the step after the one that sent them.
//!
//! Nobody waits for what is under way: a step reads what arrived during the last one, and messages have a whole step to
//! cross. The first step of a run is exact, because nothing came before it. With smoothing `g`, what is read is
//! `g held + (1 - g) arrived`, for rows, gradients, or both (PipeGCN-F, -G, -GF).
//!
//! Memory: per layer the halo rows, and the gradients of the rows that others read.

use super::ferry::{Ferry, halo_by_owner, wanted_by_reader};
use super::{Boundary, Crossing, Half, Memory, Toll};
use crate::Result;
use crate::ops::elementwise::add_rows;
use crate::run::RunConfig;
use crate::view::Layout;
use archipelago_comm::{Comm, Tag};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The stream of tags of rows that wait for the next step: evaluations in between use another.
const LATE: Tag = Tag::new(4);

/// Rows of the last step; see the module.
pub struct Late {
    ferry: Ferry,
    step: u64,
    smooth_rows: f32,
    smooth_gradients: f32,
    layers: BTreeMap<usize, [Leg; 2]>,
    toll: Toll,
}

/// What is read of one layer in one direction. Versions are steps; 0 is none.
#[derive(Default)]
struct Leg {
    /// Where the rows of each rank stand in `held`, and how wide they are.
    ranks: Vec<(usize, Range<usize>)>,
    width: usize,
    held: Vec<f32>,
    version: u64,
    /// The version that is under way, or was.
    sent: u64,
}

const FORWARD: usize = 0;
const BACKWARD: usize = 1;

impl Late {
    /// Nothing is held yet.
    pub fn new(config: &RunConfig, comm: Arc<Comm>) -> Result<Self> {
        let exchange = &config.exchange;
        Ok(Self {
            ferry: Ferry::new(comm, LATE, &exchange.codec, config.train.seed)?,
            step: 0,
            smooth_rows: exchange.smooth_rows as f32,
            smooth_gradients: exchange.smooth_gradients as f32,
            layers: BTreeMap::new(),
            toll: Toll::default(),
        })
    }

    fn leg(&mut self, layer: usize, direction: usize) -> &mut Leg {
        &mut self.layers.entry(layer).or_default()[direction]
    }

    /// Brings `layer` to the version that this step reads: the last one's, or this one's where there was none.
    fn catch_up(&mut self, layer: usize, direction: usize) -> Result<()> {
        let step = self.step;
        let leg = self.leg(layer, direction);
        match leg.version {
            0 => self.receive(layer, direction, step),
            version if version + 1 < step => self.receive(layer, direction, step - 1),
            _ => Ok(()),
        }
    }

    /// Takes in what was sent as `version`.
    fn receive(&mut self, layer: usize, direction: usize, version: u64) -> Result<()> {
        let mut leg = std::mem::take(self.leg(layer, direction));
        let smoothing = if direction == FORWARD { self.smooth_rows } else { self.smooth_gradients };
        let crossing = Crossing { layer, width: leg.width, fixed: false, half: Half::Whole };
        let smooths = leg.version > 0 && smoothing > 0.0;
        let older = if smooths { leg.held.clone() } else { Vec::new() };
        for (peer, rows) in &leg.ranks {
            let rows = &mut leg.held[rows.start * leg.width..rows.end * leg.width];
            match direction {
                FORWARD => self.ferry.receive(*peer, crossing, rows)?,
                _ => self.ferry.receive_gradients(*peer, crossing, rows)?,
            }
        }
        for (held, older) in leg.held.iter_mut().zip(&older) {
            *held = smoothing * older + (1.0 - smoothing) * *held;
        }
        leg.version = version;
        *self.leg(layer, direction) = leg;
        Ok(())
    }
}

impl Leg {
    /// Says what travels in `step`.
    fn expect(&mut self, step: u64, width: usize, ranks: impl Iterator<Item = (usize, Range<usize>)>) {
        self.sent = step;
        self.width = width;
        self.ranks = ranks.collect();
        let rows = self.ranks.last().map_or(0, |(_, rows)| rows.end);
        self.held.resize(rows * width, 0.0);
    }
}

/// Where the rows that each rank reads stand, one rank's after the other's.
fn wanted_ranges(layout: &Layout) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut first = 0;
    wanted_by_reader(layout).map(move |(peer, wanted)| {
        let rows = first..first + wanted.len();
        first = rows.end;
        (peer, rows)
    })
}

impl Boundary for Late {
    fn begin(&mut self, _: u64, step: u64) {
        self.step = step;
        self.toll.steps += 1;
        self.ferry.begin(step);
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        let step = self.step;
        if !crossing.fixed {
            self.leg(crossing.layer, FORWARD).expect(step, crossing.width, halo_by_owner(layout));
        }
        self.ferry.depart(crossing, layout, rows)
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        let step = self.step;
        if crossing.fixed {
            return self.ferry.arrive(crossing, layout, halo);
        }
        self.catch_up(crossing.layer, FORWARD)?;
        let leg = self.leg(crossing.layer, FORWARD);
        halo.copy_from_slice(&leg.held);
        let gap = (step - leg.version) as f32;
        self.toll.read(crossing.layer, gap, layout.block.halo as u64);
        Ok(())
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        let step = self.step;
        self.leg(crossing.layer, BACKWARD).expect(step, crossing.width, wanted_ranges(layout));
        self.ferry.depart_back(crossing, layout, halo)
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        self.catch_up(crossing.layer, BACKWARD)?;
        let leg = self.leg(crossing.layer, BACKWARD);
        let mut rest = &leg.held[..];
        for (_, wanted) in wanted_by_reader(layout) {
            let (gradients, further) = rest.split_at(wanted.len() * crossing.width);
            add_rows(wanted, gradients, crossing.width, rows);
            rest = further;
        }
        Ok(())
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.ferry.sum(values)
    }

    fn toll(&mut self) -> Toll {
        Toll { rows: self.ferry.take_rows(), ..std::mem::take(&mut self.toll) }
    }

    /// What is held, and what is under way.
    fn kept_numbers(&self, layout: &Layout, width: usize, _: usize) -> usize {
        let sent: usize = wanted_by_reader(layout).map(|(_, wanted)| wanted.len()).sum();
        2 * (layout.block.halo + sent) * width
    }

    /// What is under way is waited for: the next step would read it anyway.
    fn save(&mut self) -> Result<Memory> {
        let layers: Vec<usize> = self.layers.keys().copied().collect();
        let mut memory = Memory::default();
        for layer in layers {
            for direction in [FORWARD, BACKWARD] {
                let Leg { version, sent, .. } = *self.leg(layer, direction);
                if version < sent {
                    self.receive(layer, direction, sent)?;
                }
                let leg = self.leg(layer, direction);
                memory.put(format!("late.{layer}.{direction}.rows"), &leg.held);
                memory.put_words(format!("late.{layer}.{direction}.version"), &[leg.version]);
            }
        }
        Ok(memory)
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        for layer in 0..=usize::from(u8::MAX) {
            for direction in [FORWARD, BACKWARD] {
                let Some([version]) = memory.words(&format!("late.{layer}.{direction}.version")) else {
                    continue;
                };
                let held = memory.get(&format!("late.{layer}.{direction}.rows")).unwrap_or_default().to_vec();
                *self.leg(layer, direction) =
                    Leg { held, version: *version, sent: *version, ..Leg::default() };
            }
        }
        Ok(())
    }
}
