//! Fennel: each node joins the part that holds most of its neighbours, less what the part's size costs.
//!
//! Tsourakakis et al. 2014: nodes in the order of their ids, each to the part with the highest
//! `neighbours there - alpha * gamma * size^(gamma - 1)`, `alpha = sqrt(P) * E / V^1.5` with `E` undirected edges,
//! `gamma = 1.5`, and at most `(1 + slack) * V / P` nodes. Further passes restream (Nishimura & Ugander 2013). Nodes
//! arrive with their whole neighbour lists, which `neighbors` sorts on disk. Memory: 8 bytes per
//! node and a fixed buffer.

use super::restream;
use super::settings::{Setting, Values};
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "fennel",
    summary: "node by node to the part with most neighbours, less what its size costs",
    paper: "Tsourakakis et al., FENNEL: Streaming Graph Partitioning for Massive Scale Graphs, WSDM 2014",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[
        Setting {
            name: "gamma",
            default: "1.5",
            about: "how steeply the cost of a part grows with its size",
            values: Values::Number(1.0, 10.0),
        },
        restream::SLACK,
        Setting { default: "1", about: "passes over the nodes", ..restream::PASSES },
    ],
    build: || Box::new(Fennel),
};

/// Greedy with a cost of size.
#[derive(Debug, Clone, Copy)]
pub struct Fennel;

impl Partitioner for Fennel {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let gamma = request.number(&ENTRY, "gamma")?;
        restream::place(dataset, request, &ENTRY, progress, |neighbors, _| {
            let (edges, nodes) = (neighbors.edges(), neighbors.nodes() as f64);
            let alpha = f64::from(request.parts).powf(gamma - 1.0) * edges / nodes.powf(gamma);
            move |count, size| f64::from(count) - alpha * gamma * (size as f64).powf(gamma - 1.0)
        })
    }
}
