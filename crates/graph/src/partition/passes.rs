//! Passes over the edge stream that several methods make.

pub(super) use crate::array::prefetch;

use super::settings::{Setting, Values};
use super::{Entry, Request};
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;
use crate::{Error, Result};

/// The setting of methods that look at degrees.
pub(super) const DEGREES: Setting = Setting {
    name: "degrees",
    default: "exact",
    about: "node degrees: counted in a pass of their own, or those seen so far",
    values: Values::Words(&["exact", "online"]),
};

/// Calls `visit` for every chunk of the stream, from its start, and reports the pass as `name`; ends when the user asked
/// to stop. The way in which every method sees edges.
pub fn each_chunk(
    dataset: &mut Dataset,
    name: &str,
    progress: &dyn Progress,
    mut visit: impl FnMut(&EdgeChunk) -> Result<()>,
) -> Result<()> {
    let mut chunk = EdgeChunk::default();
    progress.begin(name, dataset.edges.len(), "edges");
    dataset.edges.rewind()?;
    while dataset.edges.next_chunk(&mut chunk)? {
        visit(&chunk)?;
        progress.tick(chunk.len() as u64)?;
    }
    Ok(())
}

/// [`each_chunk`], edge by edge.
pub(super) fn each_edge(
    dataset: &mut Dataset,
    name: &str,
    progress: &dyn Progress,
    mut visit: impl FnMut(u32, u32),
) -> Result<()> {
    each_chunk(dataset, name, progress, |chunk| {
        chunk.sources.iter().zip(&chunk.targets).for_each(|(&s, &t)| visit(s as u32, t as u32));
        Ok(())
    })
}

/// An edge as it passes, with a view of those behind it: what is known of their ends can be on its way from memory.
#[derive(Clone, Copy)]
pub(super) struct Passing<'a> {
    chunk: &'a EdgeChunk,
    at: usize,
}

impl<'a> Passing<'a> {
    /// How many edges ahead memory is asked for what it has on their ends.
    pub const AHEAD: usize = 16;

    /// Every edge of `chunk`.
    pub fn all(chunk: &'a EdgeChunk) -> impl Iterator<Item = Self> {
        (0..chunk.len()).map(move |at| Self { chunk, at })
    }

    /// Source and target.
    #[inline]
    pub fn ends(self) -> [u32; 2] {
        self.later(0)
    }

    /// Source and target of the edge that comes `edges` later, or of the last one at hand.
    #[inline]
    pub fn later(self, edges: usize) -> [u32; 2] {
        let at = (self.at + edges).min(self.chunk.len() - 1);
        [self.chunk.sources[at] as u32, self.chunk.targets[at] as u32]
    }
}

/// The number of nodes, for methods that hold node ids as `u32`.
pub(super) fn small_nodes(dataset: &Dataset, request: &Request) -> Result<usize> {
    let nodes = super::checked_nodes(dataset, request)?;
    if nodes >= u32::MAX as usize {
        return Err(Error::usage(format!("expected fewer than 2^32 - 1 nodes, found {nodes}"))
            .with_hint("the partitioners `random` and `hash` take any number of nodes"));
    }
    Ok(nodes)
}

/// Degrees of nodes, in- and out-edges together: known from the start, or growing with the stream.
pub(super) struct Degrees {
    counts: Vec<u32>,
    online: bool,
}

impl Degrees {
    /// Counts degrees in a pass, unless the user asked `entry` to estimate them on the way.
    pub fn new(
        dataset: &mut Dataset,
        request: &Request,
        entry: &Entry,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut degrees = Self {
            counts: vec![0; small_nodes(dataset, request)?],
            online: request.is(entry, DEGREES.name, "online")?,
        };
        if !degrees.online {
            each_edge(dataset, "counting degrees", progress, |source, target| degrees.count(source, target))?;
        }
        Ok(degrees)
    }

    /// An edge passes: its ends have one more, if degrees are estimated.
    #[inline]
    pub fn meet(&mut self, source: u32, target: u32) {
        if self.online {
            self.count(source, target);
        }
    }

    /// Whether degrees are estimated on the way.
    pub fn online(&self) -> bool {
        self.online
    }

    /// Has the degrees of `nodes` on their way from memory.
    #[inline]
    pub fn prefetch(&self, nodes: [u32; 2]) {
        nodes.iter().for_each(|&node| prefetch(&self.counts, node as usize));
    }

    /// The degree of `node` as far as it is known.
    #[inline]
    pub fn of(&self, node: u32) -> u32 {
        self.counts[node as usize]
    }

    fn count(&mut self, source: u32, target: u32) {
        for node in [source, target] {
            let count = &mut self.counts[node as usize];
            *count = count.saturating_add(1);
        }
    }
}
