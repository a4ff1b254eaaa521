//! LDG: each node joins the part that holds most of its neighbours, weighed by the room that is left there.
//!
//! Linear deterministic greedy (Stanton & Kliot 2012): nodes in the order of their ids, each to the part with the
//! highest `neighbours there * (1 - size / room)`, `room = (1 + slack) * V / P`. Further passes restream (Nishimura &
//! Ugander 2013). Nodes arrive with their whole neighbour lists, which `neighbors` sorts on disk.
//! Memory: 8 bytes per node and a fixed buffer.

use super::restream;
use super::settings::Setting;
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "ldg",
    summary: "node by node to the part with most neighbours, weighed by the room left there",
    paper: "Stanton & Kliot, Streaming Graph Partitioning for Large Distributed Graphs, KDD 2012",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[
        restream::SLACK,
        Setting { default: "1", about: "passes over the nodes", ..restream::PASSES },
    ],
    build: || Box::new(Ldg),
};

/// Linear deterministic greedy.
#[derive(Debug, Clone, Copy)]
pub struct Ldg;

impl Partitioner for Ldg {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        restream::place(dataset, request, &ENTRY, progress, |_, room| {
            move |count, size| f64::from(count) * (1.0 - size as f64 / room as f64)
        })
    }
}
