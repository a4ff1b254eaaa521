//! The five operators that a mini-batch is drawn with (ByteGNN, VLDB 2022): seeds, positives, negatives, one hop of
//! a neighbourhood, and the fetching of features. Each is a trait; who brings a sampler of their own implements one
//! of them and puts it into [`Operators`].
//!
//! An operator is a function of what it is given: it keeps no state and asks no clock, so that a batch is the same
//! whenever and wherever it is drawn.

use super::negative::{self, Negatives};
use crate::Result;
use crate::run::RunConfig;
use archipelago_graph::Link;
use archipelago_graph::random::Key;
use archipelago_graph::sample::{self, Sampler};
use std::sync::Arc;

/// In which order does an epoch train on the items (nodes or links) of a rank?
pub trait Seeds: Send + Sync {
    /// Puts the items `0..order.len()` of a rank into the order of an epoch; `key` is that of epoch and rank.
    fn order(&self, order: &mut [u32], key: Key);
}

/// Every item once per epoch, shuffled.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shuffled;

impl Seeds for Shuffled {
    fn order(&self, order: &mut [u32], key: Key) {
        key.shuffle(order);
    }
}

/// Which links are true? Made of the links that are an epoch's turn.
pub trait Positives: Send + Sync {
    /// The true links of a step that trains on `seeds`; `key` is that of the epoch.
    fn links(&self, seeds: &[Link], key: Key) -> Vec<Link>;
}

/// Every edge is a true link itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Edges;

impl Positives for Edges {
    fn links(&self, seeds: &[Link], _: Key) -> Vec<Link> {
        seeds.to_vec()
    }
}

/// What becomes of the features of a batch after they were fetched?
pub trait Fetch: Send + Sync {
    /// Changes dense feature `rows` of these `nodes` (original ids), `width` numbers each, before a step reads them.
    fn adapt(&self, nodes: &[u64], rows: &mut [f32], width: usize, key: Key);

    /// Whether rows are left as they are, which saves a pass over them.
    fn is_plain(&self) -> bool {
        false
    }
}

/// Features as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Fetch for Plain {
    fn adapt(&self, _: &[u64], _: &mut [f32], _: usize, _: Key) {}

    fn is_plain(&self) -> bool {
        true
    }
}

/// The operators of a run.
#[derive(Clone)]
pub struct Operators {
    /// The order of items.
    pub seeds: Arc<dyn Seeds>,
    /// True links, where links are predicted.
    pub positives: Arc<dyn Positives>,
    /// False links, where links are predicted.
    pub negatives: Arc<dyn Negatives>,
    /// One hop of a neighbourhood.
    pub hop: Arc<dyn Sampler>,
    /// Features.
    pub fetch: Arc<dyn Fetch>,
}

impl Operators {
    /// The operators that the run file names.
    pub fn of(config: &RunConfig) -> Result<Self> {
        let options = sample::Options { fanouts: config.train.fanouts.clone() };
        let hop = (sample::find(&config.train.sampler)?.build)(&options)?;
        let negatives = (negative::find(&config.train.negative_sampler)?.build)();
        Ok(Self {
            seeds: Arc::new(Shuffled),
            positives: Arc::new(Edges),
            negatives: Arc::from(negatives),
            hop: Arc::from(hop),
            fetch: Arc::new(Plain),
        })
    }
}
