//! Rows of other parts as they last came (Emma with `history_of = "halo"`): in a step those of one chunk of the nodes cross,
//! the others are read once more.
//!
//! [`Moving`](super::Moving) remembers sums at their targets, where a message that is sent again takes a share of the whole
//! sum's place. Here the rows themselves are remembered: every edge counts as it should, rows of the own part are always of
//! this step, and any aggregation will do, since a layer reads rows as across [`Exact`](super::Exact). So a step saves bytes
//! and no work. Gradients go back to the rows of the chunk; with `rescale_gradient` times the number of chunks, which makes
//! them right on average where rows cross once (two layers), and noisier. Until all rows came once, all cross.
//!
//! Memory: per layer the halo rows. Those of a first layer are features, which are at home.

use super::exact::ROWS;
use super::ferry::Ferry;
use super::{Boundary, Crossing, Memory, Toll};
use crate::Result;
use crate::run::RunConfig;
use crate::view::{Layout, Passage};
use archipelago_comm::Comm;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Halo rows of this step or of an earlier one; see the module.
pub struct Recalled {
    ferry: Ferry,
    overlap: bool,
    /// What gradients on their way back are multiplied by.
    factor: f32,
    step: u64,
    /// The step before which all rows cross and take the place of what is held, if they do.
    refreshing: Option<u64>,
    /// What crosses of each layer; everything where there is none.
    passages: Vec<Option<Arc<Passage>>>,
    layers: BTreeMap<usize, Held>,
    /// Rows of a passage, side by side.
    crossed: Vec<f32>,
    toll: Toll,
}

/// The halo rows of one layer, and the step whose weights each is made of.
#[derive(Default)]
struct Held {
    halo: Vec<f32>,
    versions: Vec<u64>,
}

impl Recalled {
    /// Remembers nothing yet; `chunks` is how many steps a sweep has.
    pub fn new(config: &RunConfig, comm: Arc<Comm>, chunks: usize) -> Result<Self> {
        let exchange = &config.exchange;
        Ok(Self {
            ferry: Ferry::new(comm, ROWS, &exchange.codec, config.train.seed)?,
            overlap: exchange.overlap,
            factor: if exchange.rescale_gradient { chunks as f32 } else { 1.0 },
            step: 0,
            refreshing: None,
            passages: Vec::new(),
            layers: BTreeMap::new(),
            crossed: Vec::new(),
            toll: Toll::default(),
        })
    }

    /// What crosses of each layer in the next step.
    pub fn let_pass(&mut self, passages: Vec<Option<Arc<Passage>>>) {
        self.passages = passages;
    }

    /// From now on all rows cross, to the last bit, and take the place of what is held, if `after` is the number of steps
    /// that were made; else they cross as in a step.
    pub fn refresh(&mut self, after: Option<u64>) {
        self.refreshing = after.map(|steps| steps + 1);
    }

    /// What crosses of a layer, unless that is everything.
    fn passage(&self, crossing: Crossing) -> Option<Arc<Passage>> {
        let some = self.passages.get(crossing.layer).filter(|_| self.refreshing.is_none() && !crossing.fixed);
        some.cloned().flatten()
    }

    /// Rows of a refresh cross to the last bit and are no part of a step.
    fn carried(&self, crossing: Crossing) -> Crossing {
        Crossing { fixed: crossing.fixed || self.refreshing.is_some(), ..crossing }
    }

    /// Receives the rows of a passage and puts them among those that are held.
    fn receive(&mut self, crossing: Crossing, passage: &Passage, held: &mut Held) -> Result<()> {
        let width = crossing.width;
        self.crossed.resize(passage.halo.len() * width, 0.0);
        self.ferry.arrive(crossing, &passage.layout, &mut self.crossed)?;
        for (row, &at) in self.crossed.chunks_exact(width).zip(&passage.halo) {
            held.halo[at as usize * width..][..width].copy_from_slice(row);
            held.versions[at as usize] = self.step;
        }
        Ok(())
    }

    /// Counts how old the rows are that a layer reads.
    fn count_ages(&mut self, layer: usize, held: &Held) {
        for version in &held.versions {
            self.toll.read(layer, (self.step - version) as f32, 1);
        }
    }
}

impl Boundary for Recalled {
    fn overlaps(&self) -> bool {
        self.overlap
    }

    fn begin(&mut self, _: u64, step: u64) {
        self.step = step;
        self.toll.steps += 1;
        self.ferry.begin(step);
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        let passage = self.passage(crossing);
        let layout = passage.as_ref().map_or(layout, |passage| &passage.layout);
        self.ferry.depart(self.carried(crossing), layout, rows)
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        let carried = self.carried(crossing);
        if crossing.fixed {
            return self.ferry.arrive(carried, layout, halo);
        }
        let mut held = std::mem::take(self.layers.entry(crossing.layer).or_default());
        held.halo.resize(halo.len(), 0.0);
        held.versions.resize(layout.block.halo, 0);
        match self.passage(crossing) {
            Some(passage) => self.receive(carried, &passage, &mut held)?,
            None => {
                held.versions.fill(self.refreshing.unwrap_or(self.step));
                self.ferry.arrive(carried, layout, &mut held.halo)?;
            }
        }
        halo.copy_from_slice(&held.halo);
        if self.refreshing.is_none() {
            self.count_ages(crossing.layer, &held);
        }
        self.layers.insert(crossing.layer, held);
        Ok(())
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        let Some(passage) = self.passage(crossing) else {
            return self.ferry.depart_back(crossing, layout, halo);
        };
        let Self { ferry, crossed, factor, .. } = self;
        crossed.clear();
        for &at in &passage.halo {
            let gradient = &halo[at as usize * crossing.width..][..crossing.width];
            crossed.extend(gradient.iter().map(|x| *factor * x));
        }
        ferry.depart_back(crossing, &passage.layout, crossed)
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        let passage = self.passage(crossing);
        self.ferry.arrive_back(crossing, passage.as_ref().map_or(layout, |passage| &passage.layout), rows)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.ferry.sum(values)
    }

    fn toll(&mut self) -> Toll {
        Toll { rows: self.ferry.take_rows(), ..std::mem::take(&mut self.toll) }
    }

    /// What is held, with versions, and what crosses of it.
    fn kept_numbers(&self, layout: &Layout, width: usize, _: usize) -> usize {
        layout.block.halo * (2 * width + 2)
    }

    fn save(&mut self) -> Result<Memory> {
        let mut memory = Memory::default();
        for (layer, held) in &self.layers {
            memory.put(format!("recalled.{layer}.halo"), &held.halo);
            memory.put_words(format!("recalled.{layer}.versions"), &held.versions);
        }
        Ok(memory)
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        for layer in 0..=usize::from(u8::MAX) {
            let Some(versions) = memory.words(&format!("recalled.{layer}.versions")) else { continue };
            let halo = memory.get(&format!("recalled.{layer}.halo")).unwrap_or_default().to_vec();
            self.layers.insert(layer, Held { halo, versions: versions.to_vec() });
        }
        Ok(())
    }
}
