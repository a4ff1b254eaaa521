//! Here are parts and ranks: give me weights.
//!
//! (being written)

pub mod ops;
pub mod parameters;
