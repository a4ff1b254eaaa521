//! A piece of the graph that is trained on by itself: the nodes of some parts, the edges between them, and, where
//! asked for, nodes around them whose features are read but never computed in full.
//!
//! An island looks like a store of one part, so whatever works on a part works on it: rows are its nodes in ascending
//! original id, whichever part they come from, and every list of in-edges is ascending too. What an island leaves out
//! is on record: for every row its degree in the whole graph stands beside the in-edges that are left (coverage).
//!
//! Cost: two passes over the nodes and edges of its parts (`lists`), and a copy of their features (`rows`); pages
//! of the mapped files are given back as the copy goes on, so that no more than the island itself stays in memory.

mod crew;
mod hands;
mod lists;
mod rows;

pub use hands::{Hands, one_by_one};

use super::part::{Arrays, Part};
use crate::PartId;
use crate::array::{Array, collected, with_room};
use crate::dataset::EdgeColumns;
use bytemuck::Pod;
use crew::Crew;
use std::sync::Arc;

/// Nodes around an island, as the parts that own them tell of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guests {
    /// Global ids, ascending.
    pub ids: Vec<u64>,
    /// Original ids.
    pub originals: Vec<u64>,
    /// Weighted in-degrees in the whole graph.
    pub degrees: Vec<f32>,
    /// Feature rows: dense ones side by side, or the stored numbers of sparse ones.
    pub values: Vec<f32>,
    /// Where each sparse row starts, one more than there are guests; empty where rows are dense.
    pub starts: Vec<u64>,
    /// Column of each stored number of a sparse row.
    pub columns: Vec<u32>,
    /// In-edges, for guests that send on what they hear.
    pub lists: Option<GuestLists>,
}

/// The in-edges of guests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestLists {
    /// In-edges of each guest.
    pub counts: Vec<u32>,
    /// Global ids of their sources, guest by guest.
    pub sources: Vec<u64>,
    /// Their weights; empty where edges have none.
    pub weights: Vec<f32>,
}

/// Memory of the long arrays of an island, whatever is in it, for the next: new memory costs more than what is written to it.
#[derive(Debug, Default)]
pub struct Memory {
    features: Vec<f32>,
    sources: Vec<u32>,
    weights: Vec<f32>,
}

impl Memory {
    /// The memory of an island that is no more, as far as nobody else holds it.
    pub fn of(island: Part) -> Self {
        let Arrays { features, sources, weights, .. } = island.arrays;
        Self {
            features: features.into_owned().unwrap_or_default(),
            sources: sources.into_owned().unwrap_or_default(),
            weights: weights.and_then(Array::into_owned).unwrap_or_default(),
        }
    }
}

/// A list of `len` numbers, in memory that is there if it is enough, else in new memory with room for `most`. What the numbers
/// are is left to whoever writes them.
fn list_of<T: Pod>(mut memory: Vec<T>, len: usize, most: usize) -> Vec<T> {
    if memory.capacity() < len {
        // Let go before the next is asked for.
        drop(memory);
        memory = with_room(most);
    }
    memory.resize(len, T::zeroed());
    memory
}

/// A self-contained piece of the graph.
#[derive(Debug)]
pub struct Island {
    /// The piece, as if there was no more of the graph. Its training nodes are those of the parts that were asked to
    /// give theirs; it has no other splits.
    pub part: Part,
    /// Weighted in-degree of each row in the whole graph.
    pub degrees: Vec<f32>,
    /// In-edges of each row in the whole graph; those of a guest without a list count as 0.
    pub in_edges: Vec<u32>,
}

impl Island {
    /// Global ids of the nodes that send to `parts` and belong to none of them, ascending.
    pub fn around(parts: &[Arc<Part>]) -> Vec<u64> {
        let inside = |node: u64| parts.iter().any(|part| part.range().contains(&node));
        let mut ids: Vec<u64> =
            parts.iter().flat_map(|part| part.halo()).copied().filter(|&node| !inside(node)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The island of `parts` and `guests` (wave by wave, each ascending), made by these `hands` in this `memory` as far as it is
    /// enough; the first `trained` parts give their training nodes. `like` is any part of the store.
    pub fn build(
        like: &Part,
        parts: &[Arc<Part>],
        trained: usize,
        guests: &[Guests],
        memory: Memory,
        hands: &Hands<'_>,
    ) -> Self {
        let crew = Crew::muster(parts, guests);
        let lists = lists::found(&crew, like.weights().is_some(), memory.sources, memory.weights, hands);
        let mut arrays = Arrays {
            original: collected(crew.rows.iter().map(|origin| origin.original)).into(),
            offsets: lists.offsets.into(),
            sources: lists.sources.into(),
            weights: lists.weights.map(Into::into),
            splits: [crew.training(trained).into(), Vec::new().into(), Vec::new().into()],
            ..Arrays::default()
        };
        rows::copy(&crew, like.feature_kind, memory.features, &mut arrays, hands);
        crew.labels(like.label_kind, &mut arrays);
        let nodes = crew.rows.len() as u64;
        let edge_columns = EdgeColumns { weighted: like.edge_columns.weighted, ..EdgeColumns::default() };
        let part = Part {
            id: PartId(0),
            starts: Arc::new([0, nodes]),
            edge_columns,
            feature_kind: like.feature_kind,
            label_kind: like.label_kind,
            undirected: like.undirected,
            arrays,
        };
        let (degrees, in_edges) = crew.facts();
        Self { part, degrees, in_edges }
    }

    /// Share of the in-edges of `row` in the whole graph that are on the island; 1 where it has none.
    pub fn coverage(&self, row: u32) -> f32 {
        let row = row as usize;
        let here = self.part.offsets()[row + 1] - self.part.offsets()[row];
        match self.in_edges[row] {
            0 => 1.0,
            all => (here as f32 / all as f32).min(1.0),
        }
    }
}
