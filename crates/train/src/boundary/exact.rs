//! Exact exchange: every halo row is brought fresh in every layer, its gradient is taken back.
//!
//! Per layer and step each rank sends one message to each rank that reads rows of it, forward, and one to each
//! rank whose rows it reads, backward; `4 * width` bytes a row (less with a lossy codec), each row once per reading rank.

use super::ferry::Ferry;
use super::{Boundary, Crossing, Toll};
use crate::Result;
use crate::run::RunConfig;
use crate::view::Layout;
use archipelago_comm::{Comm, Tag};
use std::rc::Rc;

/// The stream of tags that rows travel on.
pub(super) const ROWS: Tag = Tag::new(1);

/// Halo rows come from their owners in every layer; see the module.
pub struct Exact {
    ferry: Ferry,
    overlap: bool,
    steps: u64,
}

impl Exact {
    /// Exchanges every bit over `comm`; rank `r` owns part `r`. With `overlap`, local work goes on meanwhile.
    pub fn new(comm: Rc<Comm>, overlap: bool) -> Result<Self> {
        Ok(Self { ferry: Ferry::new(comm, ROWS, "f32", 0)?, overlap, steps: 0 })
    }

    /// Exchanges as `config` says.
    pub fn of(config: &RunConfig, comm: Rc<Comm>) -> Result<Self> {
        let ferry = Ferry::new(comm, ROWS, &config.exchange.codec, config.train.seed)?;
        Ok(Self { ferry, overlap: config.exchange.overlap, steps: 0 })
    }
}

impl Boundary for Exact {
    fn overlaps(&self) -> bool {
        self.overlap
    }

    fn begin(&mut self, _: u64, step: u64) {
        self.ferry.begin(step);
        self.steps += 1;
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        self.ferry.depart(crossing, layout, rows)
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        self.ferry.arrive(crossing, layout, halo)
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        self.ferry.depart_back(crossing, layout, halo)
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        self.ferry.arrive_back(crossing, layout, rows)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.ferry.sum(values)
    }

    fn toll(&mut self) -> Toll {
        let steps = std::mem::take(&mut self.steps);
        Toll { steps, rows: self.ferry.take_rows(), ..Toll::default() }
    }
}
