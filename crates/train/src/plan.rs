//! Which rows a rank computes in each layer of a global batch, in what order, and which of them cross.
//!
//! The loss reads the training nodes only, so the layers of a step are those of the batch of all training nodes
//! ([`Index::batch`]). All other rows of the part follow those that they read: the same numbering serves training,
//! evaluation and the static first-layer aggregate. Evaluation finds edges with the owners of their targets, wherever
//! training has them.
//!
//! Ranks agree on the plan once.

use crate::Result;
use crate::index::{Active, Index, Placement, Wanted};
use crate::view::{Layout, Routes};
use archipelago_comm::Comm;
use archipelago_graph::block::Adjacency;
use archipelago_graph::{Block, Part};
use std::sync::Arc;

/// The layers of a global batch on one rank, and those of an exact evaluation.
pub struct Plan {
    /// The part's row behind each row: a permutation of the owned nodes, training targets first.
    pub order: Vec<u32>,
    /// One layout per layer, first layer first: only what the loss needs.
    pub layers: Vec<Arc<Layout>>,
    /// The layout in which every owned node is computed.
    pub whole: Arc<Layout>,
    /// Original id of every row of the part, the halo included.
    pub originals: Arc<Vec<u64>>,
}

/// Which edges a rank holds, and what it reads of them.
#[derive(Debug, Clone, Copy)]
pub struct Holding {
    /// Who holds an edge in training.
    pub placement: Placement,
    /// Whether layers read what stands on edges besides weights.
    pub edges: bool,
}

impl Plan {
    /// The plan of a rank that holds no part.
    pub fn nothing() -> Self {
        let incoming = Adjacency { offsets: vec![0], ..Adjacency::default() };
        let block = Arc::new(Block::new(incoming, 0, 0));
        let whole = Arc::new(Layout::new(block, Arc::default(), Vec::new(), Routes::default()));
        Self { order: Vec::new(), layers: Vec::new(), whole, originals: Arc::default() }
    }

    /// Layers in which a rank computes these `targets` (rows of `part`) by itself; `part` is all there is, and
    /// `degrees` are those of its rows in the whole graph. Without `whole` there is no layout of all rows.
    pub fn alone(
        part: &Part,
        alone: &Comm,
        targets: &[u32],
        layers: usize,
        degrees: &[f32],
        whole: bool,
    ) -> Result<Self> {
        let mut index = Index::alone(part, degrees, false);
        let active = index
            .batch(alone, Wanted { targets, layers, all_hidden_rows: false, within: None, places: None })?;
        match whole {
            true => Ok(Self::with_all_rows(&mut index, active, None)),
            false => Ok(Self { order: active.order, layers: active.layers, ..Self::nothing() }),
        }
    }

    /// Agrees with the other ranks on the layers of a global batch, and on the index that they come from.
    pub fn agree(part: &Part, comm: &Comm, wanted: Wanted<'_>, holding: Holding) -> Result<(Self, Index)> {
        let mut index = Index::agree(part, comm, holding.placement, holding.edges)?;
        let active = index.batch(comm, wanted)?;
        if holding.placement == Placement::Destination {
            return Ok((Self::with_all_rows(&mut index, active, wanted.places), index));
        }
        let mut at_targets = Index::agree(part, comm, Placement::Destination, holding.edges)?;
        Ok((Self::with_all_rows(&mut at_targets, active, wanted.places), index))
    }

    /// The plan in which all other rows of `index` follow those that are active, by their `places` or in ascending order.
    fn with_all_rows(index: &mut Index, active: Active, places: Option<&[u32]>) -> Self {
        let Active { mut order, layers } = active;
        let mut rest = vec![true; index.owned()];
        order.iter().for_each(|&row| rest[row as usize] = false);
        let first = order.len();
        order.extend((0..rest.len() as u32).filter(|&row| rest[row as usize]));
        if let Some(places) = places {
            order[first..].sort_unstable_by_key(|&row| places[row as usize]);
        }
        let whole = Arc::new(index.whole(&order));
        Self { order, layers, whole, originals: Arc::clone(index.originals()) }
    }
}
