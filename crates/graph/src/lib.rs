//! Here are my files: give me parts and batches.
//!
//! The walk of a datum through this crate, in the order of the modules below: files are *read* into a
//! [`Dataset`], a [`partition`] method assigns its nodes to parts, the [`store`] writes and memory-maps those
//! parts, and a [`sample`]r turns target nodes into a [`Batch`] of [`Block`]s.
//!
//! This crate sees no tensor, no network and no terminal: it never prints.

pub mod error;
pub mod ids;
pub mod random;
pub mod registry;
pub mod marks;
pub mod array;
pub mod atomic;
pub mod dataset;
pub mod split;
pub mod read;
pub mod check;
pub mod convert;
pub mod synthetic;
pub mod partition;
pub mod quality;
pub mod nearby;
pub mod store;
pub mod links;
pub mod block;
pub mod sample;
pub mod predictions;
pub mod progress;

pub use block::{Batch, Block};
pub use dataset::Dataset;
pub use error::{Error, Result};
pub use ids::{GlobalId, LocalId, NodeId, PartId};
pub use links::Link;
pub use store::{Part, Store};
