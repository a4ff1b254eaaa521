//! Here are parts and ranks: give me weights.
//!
//! The walk of a datum through this crate, in the order of the modules below: a [`run`] file says what is wanted,
//! an [`index`] and a [`plan`] say which rows each layer computes, a [`view`] gives a [`model`]'s layers the few verbs that they
//! may ask of the graph, a [`boundary`] carries rows between parts, the [`tape`] differentiates, ranks [`agree`]
//! on gradients, a [`strategy`] composes all of it into an epoch, and the [`trainer`] runs epochs.
//!
//! Nothing here prints; everything a run reports is an [`event`].

pub mod error;
pub mod run;
pub mod ops;
pub mod parameters;
pub mod tape;
pub mod view;
pub mod boundary;
pub mod model;
pub mod decoder;
pub mod index;
mod clusters;
pub mod plan;
pub mod feature;
pub mod home;
pub mod embedding;
pub mod agree;
pub mod residency;
pub mod scratch;
pub mod island;
pub mod batch;
pub mod optimizer;
pub mod schedule;
pub mod links;
pub mod worker;
pub mod strategy;
pub mod metric;
pub mod evaluate;
pub mod evaluate_links;
pub mod evaluate_turns;
pub mod cost;
pub mod memory;
pub mod stopping;
pub mod checkpoint;
pub mod event;
pub mod meter;
pub mod trainer;
pub mod infer;
pub mod infer_turns;
#[cfg(test)]
mod reference;

pub use error::{Error, Result};
pub use trainer::{Ending, Run};
