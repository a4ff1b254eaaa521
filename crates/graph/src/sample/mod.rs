//! Which rows and edges does one step need? Target nodes in, a [`Batch`] of blocks out.
//!
//! Two halves. A [`Sampler`] chooses in-edges of nodes that a part owns; it runs where the node lives. A
//! [`Draft`] asks for the in-edges of a whole frontier, hop by hop, and stitches the answers into blocks; who
//! carries question and answer between parts is not its business. [`sample`] joins the two on one part.
//!
//! Every draw is keyed by the caller's key, the hop and the original id of a node, and picks among the in-edges in
//! the order of their sources' original ids, so what is drawn for a node depends neither on the assignment nor on
//! who asks.
//!
//! Adding a sampler: one file that ends in an `ENTRY`, its `mod` line, and its line in [`SAMPLERS`]; from another crate,
//! [`add`].

mod chunk;
mod draft;
mod labor;
mod lists;
mod neighbor;
mod seen;
mod weighted;

pub use chunk::Chunks;
pub use draft::{Answer, Draft, Question, Sources};
pub use lists::{Drawn, Lists, Scratch};
pub use seen::Met;

use crate::block::Batch;
use crate::random::Key;
use crate::registry::{Listed, Registry};
use crate::{Error, Result};

/// A way of choosing in-edges: the operator that builds one hop of a neighbourhood.
///
/// # Examples
///
/// A sampler of one's own: the first in-edges of every node, in the order of their sources' ids.
///
/// ```
/// use archipelago_graph::sample::{Drawn, Hop, Lists, Sampler, Scratch};
///
/// struct First(usize);
///
/// impl Sampler for First {
///     fn hops(&self) -> usize {
///         2
///     }
///
///     fn draw(&self, lists: &Lists<'_>, rows: &[u32], _: Hop, _: &mut Scratch, drawn: &mut Drawn) {
///         for &row in rows {
///             let degree = lists.degree(row);
///             for position in 0..degree.min(self.0) {
///                 drawn.edges.push(lists.edge(row, position));
///             }
///             drawn.counts.push(degree.min(self.0) as u32);
///         }
///     }
/// }
/// ```
pub trait Sampler: Send + Sync {
    /// How many hops a batch has: one per layer of the model.
    fn hops(&self) -> usize;

    /// Chooses in-edges of these owned `rows`, and appends a count per row and its edges to `drawn`.
    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, scratch: &mut Scratch, drawn: &mut Drawn);

    /// About how many edges [`draw`](Self::draw) gives for `rows` rows: what a scheduler weighs tasks with.
    fn expected(&self, rows: usize, _hop: usize) -> usize {
        10 * rows
    }
}

/// Which hop of which step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Counted from the targets; 0 is the first.
    pub number: usize,
    /// What all draws of this hop start from: seed, epoch, step and hop.
    pub key: Key,
}

impl Hop {
    /// Hop `number` of the step with this key.
    pub fn new(number: usize, step: Key) -> Self {
        Self { number, key: step.with(number as u64) }
    }
}

/// What a sampler is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// In-edges to draw per node, from the targets outward; -1 = all. One entry per layer.
    pub fanouts: Vec<i64>,
}

impl Options {
    /// The fan-outs as counts, `None` for all; an error names what cannot be one.
    pub fn counts(&self) -> Result<Vec<Option<usize>>> {
        let count = |&fanout: &i64| match fanout {
            -1 => Ok(None),
            1.. => Ok(Some(fanout as usize)),
            _ => {
                Err(Error::usage(format!("expected fan-outs of 1 or more, or -1 for all, found `{fanout}`")))
            }
        };
        if self.fanouts.is_empty() {
            return Err(Error::usage("expected one fan-out per layer, found none"));
        }
        self.fanouts.iter().map(count).collect()
    }
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

impl Listed for Entry {
    const KIND: &'static str = "sampler";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// Every built-in sampler, in the order in which they are listed to users.
pub const SAMPLERS: &[Entry] = &[neighbor::ENTRY, weighted::ENTRY, labor::ENTRY];

static TABLE: Registry<Entry> = Registry::new(SAMPLERS);

/// Every sampler that users can choose: built-in ones, then added ones.
pub fn samplers() -> impl Iterator<Item = &'static Entry> {
    TABLE.entries()
}

/// Adds samplers of one's own: once, before any was looked up (see [`registry`](crate::registry)).
pub fn add(samplers: Vec<Entry>) -> Result<()> {
    TABLE.add(samplers)
}

/// The sampler called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    TABLE.find(name)
}

/// The blocks that compute `targets` (global ids) where one part owns all nodes, one row of the last block per target
/// in the order given, repeated targets included.
pub fn sample(
    sampler: &dyn Sampler,
    lists: &Lists<'_>,
    targets: &[u64],
    step: Key,
    draft: &mut Draft,
    scratch: &mut Scratch,
) -> Batch {
    draft.begin(lists.part, targets);
    let mut drawn = Drawn::default();
    for number in 0..sampler.hops() {
        drawn.clear();
        let question = draft.question(lists.part);
        sampler.draw(lists, &question.asked[0].rows, Hop::new(number, step), scratch, &mut drawn);
        drawn.look_up(lists);
        draft.stitch(lists.part, &question, &[Answer::Here(std::slice::from_ref(&drawn))]);
    }
    draft.finish()
}
