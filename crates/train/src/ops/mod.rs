//! What does a layer compute, number by number? The kernels of training: plain slices in, plain slices out.
//!
//! A kernel knows nothing of tapes, ranks or models, allocates nothing after its first call, and gives the same bits
//! for any number of threads: an output row is computed by one thread in a fixed order, and sums over rows are made
//! over chunks whose size does not depend on the threads, added in order. Matrices are row-major `f32`.
//!
//! The machinery first ([`isa`], [`pool`], scratch), then rows of a graph layer, then dense rows,
//! then pairs of rows, then the loss.

pub mod isa;
mod crew;
pub mod pool;
mod scratch;
pub mod rows;
pub mod dropout;
pub mod gather;
mod panel;
pub mod max;
pub mod attention;
pub mod softmax;
pub mod gat;
pub mod gatv2;
pub mod moving;
pub mod edges;
pub mod kinds;
mod tile;
mod thin;
pub mod dense;
pub mod sparse_linear;
pub mod reduce;
pub mod epilogue;
pub mod layer_norm;
pub mod batch_norm;
pub mod elementwise;
pub mod heads;
pub mod pairs;
pub mod loss;
pub mod link_loss;

#[cfg(test)]
pub(crate) mod testing;

pub use dropout::Dropout;
pub(crate) use panel::bytes as panel_bytes;
pub use pool::Pool;
pub use rows::{Rows, Targets};

/// Rows of `width` floats that one task of an element-wise kernel takes: some tens of microseconds of work.
pub(crate) fn rows_per_task(width: usize) -> usize {
    (1 << 16) / width.max(1) + 1
}

/// Edges that one task of a message-passing kernel takes.
pub(crate) fn edges_per_task(width: usize) -> usize {
    (1 << 18) / width.max(1) + 1
}

/// Floats in a line of the caches.
pub(crate) const LINE: usize = 16;

/// Edges ahead of the current one whose rows are requested from memory.
pub(crate) const AHEAD: usize = 8;
