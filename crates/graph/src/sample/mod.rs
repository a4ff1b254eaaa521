//! Which rows and edges does one step need? Target rows in, a [`Batch`] of blocks out.
//!
//! A sampler reads one part and answers in rows of that part; it neither fetches features nor communicates.
//! Halo rows are rows like any other, except that their in-edges are not here: they are inputs and never read
//! further. Every draw is keyed by the caller's key, the hop and the original id of the node, and picks among the
//! in-edges in the order of their sources' original ids, so what is drawn for a node depends neither on the
//! assignment nor on the other targets.
//!
//! Adding a sampler: one file that ends in an `ENTRY`, its `mod` line, and its line in [`SAMPLERS`].

pub mod neighbor;

use crate::block::Batch;
use crate::random::Key;
use crate::store::Part;
use crate::{Error, Result};

/// A way of choosing the neighbourhood of some targets.
pub trait Sampler: Send {
    /// The blocks that compute the owned rows `targets` of `part`, one row of the last block per target in the
    /// order given, repeated targets included. Buffers are kept between calls.
    fn sample(&mut self, part: &Part, targets: &[u32], key: Key) -> Batch;
}

/// What a sampler is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// In-edges to draw per node, from the targets outward; -1 = all. One entry per layer.
    pub fanouts: Vec<i32>,
}

/// One line of the table of samplers.
#[derive(Debug)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Makes it, unless the options make no sense.
    pub build: fn(&Options) -> Result<Box<dyn Sampler>>,
}

/// Every sampler, in the order in which they are listed to users.
pub const SAMPLERS: &[Entry] = &[neighbor::ENTRY];

/// The sampler called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    SAMPLERS.iter().find(|entry| entry.name == name).ok_or_else(|| Error::Unknown {
        kind: "sampler",
        name: name.to_owned(),
        known: SAMPLERS.iter().map(|entry| entry.name).collect(),
    })
}
