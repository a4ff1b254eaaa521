//! What crosses part borders, layer by layer.
//!
//! A layer never communicates: it asks its [`View`](crate::view::View) for a sum, a mean or an attention, and the
//! view lets the boundary of the running strategy carry rows across the water. Forward, [`depart`] and [`arrive`]
//! bring the halo rows of a layer; backward, [`depart_back`] and [`arrive_back`] are their exact adjoint. Each
//! pair brackets local work, so that a boundary may overlap the two. A boundary may also let a layer read older rows
//! of its own part ([`own`]), or join what is aggregated with what it remembers ([`join_sums`], [`join_attention`]).
//! Where edges are not with the owners of their targets, [`tell_mirrors`] and [`tell_masters`] carry what they read of targets
//! and what they add to them.
//!
//! Every rank makes the same sequence of calls in a step, also one without targets (ARCHITECTURE.md, invariant 4).
//!
//! [`depart`]: Boundary::depart
//! [`arrive`]: Boundary::arrive
//! [`depart_back`]: Boundary::depart_back
//! [`arrive_back`]: Boundary::arrive_back
//! [`own`]: Boundary::own
//! [`join_sums`]: Boundary::join_sums
//! [`join_attention`]: Boundary::join_attention
//! [`tell_mirrors`]: Boundary::tell_mirrors
//! [`tell_masters`]: Boundary::tell_masters

mod ferry;
mod relay;
mod toll;
mod memory;
mod exact;
mod isolated;
mod pulled;
mod moving;
mod recalled;
mod stale;
mod late;

pub use exact::Exact;
pub use isolated::Isolated;
pub use late::Late;
pub use memory::Memory;
pub use moving::Moving;
pub use pulled::Pulled;
pub use recalled::Recalled;
pub use relay::Relay;
pub use stale::{Skips, Stale};
pub use toll::{Gaps, Toll};

use crate::ops::Pool;
use crate::tape::Matrix;
use crate::view::Layout;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Rows on their way: which layer's, and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The layer that aggregates them; 0 is the first.
    pub layer: usize,
    /// Numbers per row.
    pub width: usize,
    /// Whether they are the same in every step, so that they cross once.
    pub fixed: bool,
    /// Which sources of the layer they stand for.
    pub half: Half,
}

/// Which sources of a layer are aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// All.
    Whole,
    /// Those of the own part.
    Near,
    /// Those of other parts.
    Far,
}

/// In which order a layer aggregates and transforms, where it may choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As costs least.
    Cheapest,
    /// The same where a layer computes a few of the rows that it reads, as in a batch: to transform all of them is much more
    /// work, so that rows that cross have to become much narrower by it.
    FewTargets,
    /// Aggregates first: what is kept from step to step then does not depend on the weights of the layer itself.
    AggregateFirst,
    /// Aggregates rows of the own part first and transforms those of other parts first, where that makes them narrower:
    /// what crosses is narrow, and weights learn from most of what is kept.
    Split,
}

impl Order {
    /// Whether rows that cross from part to part are transformed before they do.
    pub fn transforms_before_crossing(self, input: usize, output: usize) -> bool {
        match self {
            Self::Cheapest => output < input,
            Self::FewTargets => 2 * output <= input,
            Self::AggregateFirst | Self::Split => false,
        }
    }
}

/// What a layer reads as the rows of its own part.
#[derive(Debug, Clone)]
pub enum Own {
    /// Those of this step.
    Fresh,
    /// Those that other parts hold, too.
    Kept {
        /// The rows.
        rows: Arc<Matrix>,
        /// What the rows of this step get of their gradient.
        gradient: Passing,
    },
}

/// What gradient goes to the rows of this step from rows that a layer read in their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// All of it.
    All,
    /// Zeros: the rows of other ranks may get some, and all ranks must make the same exchanges.
    Zero,
    /// None, nor do the rows of any other rank.
    None,
}

/// What crosses part borders before and after the local work of a layer.
pub trait Boundary {
    /// Whether local work between departure and arrival saves time; if not, all rows are computed after arrival.
    fn overlaps(&self) -> bool {
        false
    }

    /// Whether rows come from other processes, so that a rank has time while they are under way.
    fn is_far(&self) -> bool {
        false
    }

    /// In which order layers aggregate and transform.
    fn order(&self) -> Order {
        Order::Cheapest
    }

    /// A training step begins; epochs and steps count from 1.
    fn begin(&mut self, _epoch: u64, _step: u64) {}

    /// Which rows a layer reads as those of its own part, whose `rows` of this step are given. Comes before
    /// [`depart`](Self::depart), also where nothing crosses.
    fn own(&mut self, _crossing: Crossing, _rows: &[f32]) -> Result<Own> {
        Ok(Own::Fresh)
    }

    /// Starts sending those of the local `rows` that other ranks read. Must not wait.
    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()>;

    /// Fills `halo`, one row for each halo row of the layout's block.
    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()>;

    /// Whether aggregates of `layer` are joined with what is remembered of earlier ones.
    fn remembers(&self, _layer: usize) -> bool {
        false
    }

    /// Joins the sums (or means) over the neighbours of each target, its own row not counted, with earlier ones, if it
    /// remembers any.
    fn join_sums(&mut self, _pool: &Pool, _crossing: Crossing, _layout: &Layout, _sums: &mut [f32]) {}

    /// Joins the averages of an attention, and the log-sum-exp of each target and head, with earlier ones, if it remembers
    /// any.
    fn join_attention(
        &mut self,
        _pool: &Pool,
        _crossing: Crossing,
        _layout: &Layout,
        _average: &mut [f32],
        _logsumexp: &mut [f32],
    ) {
    }

    /// What the gradient of each target is multiplied by on its way to its neighbours, if by anything.
    fn gradient_factors(&self, _layout: &Layout) -> Option<Vec<f32>> {
        None
    }

    /// Starts sending the gradients of the halo rows back to their owners. Must not wait.
    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()>;

    /// The same for gradients that are yet to be computed: `compute` writes those of some halo rows where they leave from, and
    /// the first are under way while the next are computed. False where a boundary does not send them as they are: then
    /// nothing was asked for.
    fn compute_back(
        &mut self,
        _crossing: Crossing,
        _layout: &Layout,
        _compute: &mut dyn FnMut(Range<usize>, &mut [f32]),
    ) -> Result<bool> {
        Ok(false)
    }

    /// Adds what other ranks computed to the gradients of the local `rows` that they read, in rank order. Not called in a layer that
    /// read [`Own::Kept`] rows whose gradient is not passed on.
    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()>;

    /// Starts sending one row for each copy of our targets to the rank that has it. Only layouts with mirrors need it, and the
    /// three that follow. Must not wait.
    fn tell_mirrors(&mut self, _relay: Relay, _layout: &Layout, _copies: &[f32]) -> Result<()> {
        Err(no_mirrors())
    }

    /// Fills `mirrors`, one row for each mirror here, with what their masters told.
    fn hear_masters(&mut self, _relay: Relay, _layout: &Layout, _mirrors: &mut [f32]) -> Result<()> {
        Err(no_mirrors())
    }

    /// Starts sending one row for each mirror here to its master. Must not wait.
    fn tell_masters(&mut self, _relay: Relay, _layout: &Layout, _mirrors: &[f32]) -> Result<()> {
        Err(no_mirrors())
    }

    /// Fills `copies`, one row for each copy of our targets, with what their mirrors told.
    fn hear_mirrors(&mut self, _relay: Relay, _layout: &Layout, _copies: &mut [f32]) -> Result<()> {
        Err(no_mirrors())
    }

    /// Replaces `values` by their sum over all ranks, in rank order: for statistics over all rows of a layer.
    fn sum(&mut self, values: &mut [f64]) -> Result<()>;

    /// What crossing took since the last call.
    fn toll(&mut self) -> Toll {
        Toll::default()
    }

    /// Numbers that are kept from step to step for a layer whose aggregated rows have this width and these heads.
    fn kept_numbers(&self, _layout: &Layout, _width: usize, _heads: usize) -> usize {
        0
    }

    /// What a resumed run needs. All ranks ask together, between two steps.
    fn save(&mut self) -> Result<Memory> {
        Ok(Memory::default())
    }

    /// Takes what [`save`](Self::save) gave.
    fn restore(&mut self, _memory: &Memory) -> Result<()> {
        Ok(())
    }
}

/// Said by boundaries that know targets with all their edges only.
fn no_mirrors() -> Error {
    let message = "this boundary carries nothing between targets and their mirrors".into();
    archipelago_comm::Error::Usage { message, hint: "hold edges with the owners of their targets" }.into()
}
