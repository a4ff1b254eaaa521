//! Exact exchange: every halo row is brought fresh in every layer, its gradient is taken back.
//!
//! Per layer and step each rank sends one message to each rank that reads rows of it, forward, and one to each
//! rank whose rows it reads, backward; `4 * width` bytes a row (less with a lossy codec), each row once per reading rank.
//! Targets whose edges are on several ranks (`exchange.placement`) travel besides, between masters and mirrors.

use super::ferry::Ferry;
use super::{Boundary, Crossing, Order, Relay, Toll};
use crate::Result;
use crate::run::{BatchKind, RunConfig};
use crate::view::Layout;
use archipelago_comm::{Comm, Tag};
use std::ops::Range;
use std::sync::Arc;

/// The stream of tags that rows travel on.
pub(super) const ROWS: Tag = Tag::new(1);

/// The stream of tags on which numbers travel between targets and their mirrors.
const MIRRORS: Tag = Tag::new(8);

/// Halo rows come from their owners in every layer; see the module.
pub struct Exact {
    ferry: Ferry,
    mirrors: Ferry,
    overlap: bool,
    order: Order,
    steps: u64,
}

impl Exact {
    /// Exchanges every bit over `comm`; rank `r` owns part `r`. With `overlap`, local work goes on meanwhile.
    pub fn new(comm: Arc<Comm>, overlap: bool) -> Result<Self> {
        Self::with_codec(comm, "f32", 0, overlap)
    }

    /// Exchanges as `config` says.
    pub fn of(config: &RunConfig, comm: Arc<Comm>) -> Result<Self> {
        let order = if config.train.batch == BatchKind::Global { Order::Cheapest } else { Order::FewTargets };
        let exact =
            Self::with_codec(comm, &config.exchange.codec, config.train.seed, config.exchange.overlap)?;
        Ok(Self { order, ..exact })
    }

    /// Speaks in a conversation of its own from now on: that of batch `number`, which others may overtake.
    pub fn converse(&mut self, number: u64) {
        self.ferry.speak_on(ROWS.sequence(number));
        self.mirrors.speak_on(MIRRORS.sequence(number));
    }

    fn with_codec(comm: Arc<Comm>, codec: &str, seed: u64, overlap: bool) -> Result<Self> {
        let mirrors = Ferry::new(Arc::clone(&comm), MIRRORS, codec, seed)?;
        let ferry = Ferry::new(comm, ROWS, codec, seed)?;
        Ok(Self { ferry, mirrors, overlap, order: Order::Cheapest, steps: 0 })
    }
}

impl Boundary for Exact {
    fn overlaps(&self) -> bool {
        self.overlap
    }

    fn order(&self) -> Order {
        self.order
    }

    fn is_far(&self) -> bool {
        self.ferry.is_far()
    }

    fn begin(&mut self, _: u64, step: u64) {
        self.ferry.begin(step);
        self.mirrors.begin(step);
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

    fn compute_back(
        &mut self,
        crossing: Crossing,
        layout: &Layout,
        compute: &mut dyn FnMut(Range<usize>, &mut [f32]),
    ) -> Result<bool> {
        self.ferry.compute_back(crossing, layout, compute)
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        self.ferry.arrive_back(crossing, layout, rows)
    }

    fn tell_mirrors(&mut self, relay: Relay, layout: &Layout, copies: &[f32]) -> Result<()> {
        self.mirrors.tell_mirrors(relay, layout, copies)
    }

    fn hear_masters(&mut self, relay: Relay, layout: &Layout, mirrors: &mut [f32]) -> Result<()> {
        self.mirrors.hear_masters(relay, layout, mirrors)
    }

    fn tell_masters(&mut self, relay: Relay, layout: &Layout, mirrors: &[f32]) -> Result<()> {
        self.mirrors.tell_masters(relay, layout, mirrors)
    }

    fn hear_mirrors(&mut self, relay: Relay, layout: &Layout, copies: &mut [f32]) -> Result<()> {
        self.mirrors.hear_mirrors(relay, layout, copies)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.ferry.sum(values)
    }

    fn toll(&mut self) -> Toll {
        let steps = std::mem::take(&mut self.steps);
        Toll { steps, rows: self.ferry.take_rows() + self.mirrors.take_rows(), ..Toll::default() }
    }
}
