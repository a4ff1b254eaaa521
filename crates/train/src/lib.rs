//! Here are parts and ranks: give me weights.
//!
//! (being written)

pub mod error;
pub mod run;
pub mod ops;
pub mod parameters;
pub mod optimizer;
pub mod schedule;
pub mod metric;
pub mod stopping;
pub mod checkpoint;
pub mod event;
pub mod meter;
#[cfg(test)]
mod reference;
