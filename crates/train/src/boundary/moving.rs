//! Moving aggregation (Emma): what a chunk of the sources sends joins what each target remembers of the others.
//!
//! Rows of the chunk cross as in [`Exact`], fresh; the layouts of a step hold no others. Memory: per layer one row of
//! aggregates per target, and for an attention a number per head. It is a constant to the gradient, and is overwritten
//! by exact aggregates, of rows that cross to the last bit, when the strategy [`refreshes`](Moving::refresh) it.
//!
//! What crosses and is remembered are inputs of a layer, whose weights then learn from all of it. Where its outputs are
//! narrower, and with `history_of = "narrowest"`, those of other parts cross and are remembered instead, apart from the
//! inputs of the own part: fewer bytes, and the weights still learn from what the own part sent.
//! Where we differ from the paper: what a first layer sums up of node features, which never change, is exact and need
//! not be remembered.

use super::{Boundary, Crossing, Exact, Half, Memory, Order, Toll};
use crate::Result;
use crate::ops::Pool;
use crate::ops::moving::{AttentionHistory, join_attention, join_sums};
use crate::run::{HistoryOf, RunConfig};
use crate::tape::Buffer;
use crate::view::Layout;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Aggregates that are joined with remembered ones; see the module.
pub struct Moving {
    exact: Exact,
    layers: BTreeMap<(usize, Half), History>,
    first: usize,
    order: Order,
    refreshing: bool,
    rescales: bool,
    toll: Toll,
}

/// What the targets of one layer remember.
struct History {
    aggregates: Buffer,
    /// Log-sum-exp per head; empty where rows were summed.
    logsumexp: Buffer,
    /// Mean number of steps since the messages in each aggregate were sent.
    ages: Vec<f32>,
}

impl History {
    fn new(targets: usize, numbers: usize, heads: usize) -> Self {
        let mut logsumexp = Buffer::zeros(heads);
        logsumexp.fill(f32::NEG_INFINITY);
        Self { aggregates: Buffer::zeros(numbers), logsumexp, ages: vec![0.0; targets] }
    }

    /// Remembers exact aggregates of this moment instead.
    fn replace(&mut self, aggregates: &[f32], logsumexp: &[f32]) {
        self.aggregates.copy_from_slice(aggregates);
        self.logsumexp.copy_from_slice(logsumexp);
        self.ages.fill(0.0);
    }

    /// `shares` of what targets remember is new, and the rest a step older. Targets without neighbours have nothing to
    /// remember.
    fn age(&mut self, layer: usize, layout: &Layout, shares: &[f32], toll: &mut Toll) {
        let loops = layout.thinned.as_ref().is_some_and(|thinned| thinned.loops.is_some());
        let targets = self.ages.iter_mut().zip(shares).zip(&layout.degrees);
        for ((age, share), _) in targets.filter(|(_, degree)| loops || **degree > 0.0) {
            *age = (1.0 - share).clamp(0.0, 1.0) * (*age + 1.0);
            toll.read(layer, *age, 1);
        }
    }
}

impl Moving {
    /// Remembers nothing yet, and never anything of layers before the `first`.
    pub fn new(exact: Exact, config: &RunConfig, first: usize) -> Self {
        let order = match config.exchange.history_of {
            HistoryOf::Narrowest => Order::Split,
            // `Halo` is another boundary's.
            HistoryOf::Inputs | HistoryOf::Halo => Order::AggregateFirst,
        };
        Self {
            exact,
            layers: BTreeMap::new(),
            first,
            order,
            refreshing: false,
            rescales: config.exchange.rescale_gradient,
            toll: Toll::default(),
        }
    }

    /// Whether the aggregates to come are exact and take the place of what is remembered.
    pub fn refresh(&mut self, on: bool) {
        self.refreshing = on;
    }

    /// How rows cross: those of a refresh to the last bit.
    fn carried(&self, crossing: Crossing) -> Crossing {
        Crossing { fixed: crossing.fixed || self.refreshing, ..crossing }
    }
}

/// What a checkpoint calls the history of a layer, or of half of it.
fn names(layer: usize, half: Half) -> [String; 3] {
    let half = match half {
        Half::Whole => "whole",
        Half::Near => "near",
        Half::Far => "far",
    };
    ["aggregates", "logsumexp", "ages"].map(|what| format!("history.{layer}.{half}.{what}"))
}

/// Of each target, the share of its messages that is there: all of them in a layout that was not thinned.
fn shares(layout: &Layout) -> Cow<'_, [f32]> {
    match &layout.thinned {
        Some(thinned) => Cow::Borrowed(&thinned.shares),
        None => Cow::Owned(vec![1.0; layout.block.targets]),
    }
}

impl Boundary for Moving {
    fn overlaps(&self) -> bool {
        self.exact.overlaps()
    }

    fn order(&self) -> Order {
        self.order
    }

    fn begin(&mut self, epoch: u64, step: u64) {
        self.exact.begin(epoch, step);
    }

    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        self.exact.depart(self.carried(crossing), layout, rows)
    }

    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        self.exact.arrive(self.carried(crossing), layout, halo)
    }

    fn remembers(&self, layer: usize) -> bool {
        layer >= self.first
    }

    fn join_sums(&mut self, pool: &Pool, crossing: Crossing, layout: &Layout, sums: &mut [f32]) {
        let new = || History::new(layout.block.targets, sums.len(), 0);
        let history = self.layers.entry((crossing.layer, crossing.half)).or_insert_with(new);
        if self.refreshing {
            return history.replace(sums, &[]);
        }
        let shares = shares(layout);
        join_sums(pool, &shares, crossing.width, sums, &mut history.aggregates);
        // Both halves are as old.
        if crossing.half != Half::Far {
            history.age(crossing.layer, layout, &shares, &mut self.toll);
        }
    }

    fn join_attention(
        &mut self,
        pool: &Pool,
        crossing: Crossing,
        layout: &Layout,
        average: &mut [f32],
        logsumexp: &mut [f32],
    ) {
        if !self.remembers(crossing.layer) {
            return;
        }
        let targets = layout.block.targets;
        let new = || History::new(targets, average.len(), logsumexp.len());
        let history = self.layers.entry((crossing.layer, crossing.half)).or_insert_with(new);
        if self.refreshing {
            return history.replace(average, logsumexp);
        }
        let (shares, heads) = (shares(layout), logsumexp.len().checked_div(targets).unwrap_or(0));
        let kept = AttentionHistory { average: &mut history.aggregates, logsumexp: &mut history.logsumexp };
        join_attention(pool, &shares, heads, average, logsumexp, kept);
        history.age(crossing.layer, layout, &shares, &mut self.toll);
    }

    fn gradient_factors(&self, layout: &Layout) -> Option<Vec<f32>> {
        let inverse = |&share: &f32| if share > 0.0 { 1.0 / share } else { 1.0 };
        let thinned = layout.thinned.as_ref().filter(|_| self.rescales)?;
        Some(thinned.shares.iter().map(inverse).collect())
    }

    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        self.exact.depart_back(crossing, layout, halo)
    }

    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        self.exact.arrive_back(crossing, layout, rows)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        self.exact.sum(values)
    }

    fn toll(&mut self) -> Toll {
        Toll { gaps: std::mem::take(&mut self.toll.gaps), ..self.exact.toll() }
    }

    fn kept_numbers(&self, layout: &Layout, width: usize, heads: usize) -> usize {
        layout.block.targets * (width + heads + 1)
    }

    fn save(&mut self) -> Result<Memory> {
        let mut memory = Memory::default();
        for (&(layer, half), history) in &self.layers {
            let [aggregates, logsumexp, ages] = names(layer, half);
            memory.put(aggregates, &history.aggregates);
            memory.put(logsumexp, &history.logsumexp);
            memory.put(ages, &history.ages);
        }
        Ok(memory)
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        let copy = |values: &[f32]| {
            let mut buffer = Buffer::zeros(values.len());
            buffer.copy_from_slice(values);
            buffer
        };
        // Layers before the first have no history.
        let layers = 0..=usize::from(u8::MAX);
        let halves = [Half::Whole, Half::Near, Half::Far];
        for (layer, half) in layers.flat_map(|layer| halves.map(|half| (layer, half))) {
            let [aggregates, logsumexp, ages] = names(layer, half);
            if let (Some(aggregates), Some(logsumexp), Some(ages)) =
                (memory.get(&aggregates), memory.get(&logsumexp), memory.get(&ages))
            {
                let (aggregates, logsumexp) = (copy(aggregates), copy(logsumexp));
                self.layers.insert((layer, half), History { aggregates, logsumexp, ages: ages.to_vec() });
            }
        }
        Ok(())
    }
}
