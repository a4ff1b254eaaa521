//! What crosses part borders, layer by layer.
//!
//! A layer never communicates: it asks its [`View`](crate::view::View) for a sum, a mean or an attention, and the
//! view lets the boundary of the running strategy carry rows across the water. Forward, [`depart`] and [`arrive`]
//! bring the halo rows of a layer; backward, [`depart_back`] and [`arrive_back`] are their exact adjoint. Each
//! pair brackets local work, so that a boundary may overlap the two.
//!
//! Every rank makes the same sequence of calls in a step, also one without targets (ARCHITECTURE.md, invariant 4).
//!
//! [`depart`]: Boundary::depart
//! [`arrive`]: Boundary::arrive
//! [`depart_back`]: Boundary::depart_back
//! [`arrive_back`]: Boundary::arrive_back

mod exact;
mod isolated;
mod pulled;

pub use exact::Exact;
pub use isolated::Isolated;
pub use pulled::Pulled;

use crate::Result;
use crate::view::Layout;

/// Rows on their way: which layer's, and how wide they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The layer that aggregates them; 0 is the first.
    pub layer: usize,
    /// Numbers per row.
    pub width: usize,
}

/// What crosses part borders before and after the local work of a layer.
pub trait Boundary {
    /// Whether local work between departure and arrival saves time; if not, all rows are computed after arrival.
    fn overlaps(&self) -> bool {
        false
    }

    /// Starts sending those of the local `rows` that other ranks read. Must not wait.
    fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()>;

    /// Fills `halo`, one row for each halo row of the layout's block.
    fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()>;

    /// Starts sending the gradients of the halo rows back to their owners. Must not wait.
    fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()>;

    /// Adds what other ranks computed to the gradients of the local `rows`, in rank order.
    fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()>;

    /// Replaces `values` by their sum over all ranks, in rank order: for statistics over all rows of a layer.
    fn sum(&mut self, values: &mut [f64]) -> Result<()>;
}
