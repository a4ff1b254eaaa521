//! Small shapes for tests and demonstrations: a star, a path, uniformly random edges.

use super::{Entry, Request, refuse_extras};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels, MemoryEdges, Splits};
use crate::random::{Key, Purpose};
use crate::split::{Shares, permuted};
use crate::{Error, Result};

/// The table line of [`uniform`].
pub const UNIFORM: Entry = Entry {
    name: "uniform",
    summary: "directed edges with uniformly random ends; duplicates and self-loops occur",
    paper: "Erdős & Rényi, On Random Graphs, Publ. Math. Debrecen 1959",
    defaults: || request(1_000, 10_000),
    generate: |request, _| from_request(request, "uniform", uniform_pairs),
};

/// The table line of [`star`].
pub const STAR: Entry = Entry {
    name: "star",
    summary: "node 0 joined with every other node, both directions",
    paper: "",
    defaults: || request(1_000, 0),
    generate: |request, _| from_request(request, "star", star_pairs),
};

/// The table line of [`path`].
pub const PATH: Entry = Entry {
    name: "path",
    summary: "every node joined with the next, both directions",
    paper: "",
    defaults: || request(1_000, 0),
    generate: |request, _| from_request(request, "path", path_pairs),
};

/// A graph of `nodes` nodes and these directed edges, without columns and splits. Ends must be below `nodes`.
pub fn bare(name: &str, nodes: u64, pairs: &[(u64, u64)]) -> Dataset {
    debug_assert!(pairs.iter().all(|&(source, target)| source < nodes && target < nodes));
    let (sources, targets) = pairs.iter().copied().unzip();
    let edges = EdgeChunk { sources, targets, ..EdgeChunk::default() };
    Dataset {
        name: name.to_owned(),
        nodes,
        undirected: false,
        edges: Box::new(MemoryEdges::new(edges, 0)),
        edge_columns: EdgeColumns::default(),
        features: Features::None,
        labels: Labels::None,
        splits: Splits::default(),
        names: None,
        class_names: None,
        notes: Vec::new(),
    }
}

/// Node 0 joined with every other node, both directions.
pub fn star(nodes: u64) -> Dataset {
    Dataset { undirected: true, ..bare("star", nodes, &star_pairs(&request(nodes, 0))) }
}

/// Every node joined with the next, both directions.
pub fn path(nodes: u64) -> Dataset {
    Dataset { undirected: true, ..bare("path", nodes, &path_pairs(&request(nodes, 0))) }
}

/// `edges` directed edges with uniformly random ends.
pub fn uniform(nodes: u64, edges: u64, seed: u64) -> Dataset {
    bare("uniform", nodes, &uniform_pairs(&Request { seed, ..request(nodes, edges) }))
}

fn star_pairs(request: &Request) -> Vec<(u64, u64)> {
    (1..request.nodes).flat_map(|leaf| [(0, leaf), (leaf, 0)]).collect()
}

fn path_pairs(request: &Request) -> Vec<(u64, u64)> {
    (1..request.nodes).flat_map(|node| [(node - 1, node), (node, node - 1)]).collect()
}

fn uniform_pairs(request: &Request) -> Vec<(u64, u64)> {
    let key = Key::new(request.seed, Purpose::Generate);
    let edges = if request.nodes == 0 { 0 } else { request.edges };
    (0..edges).map(|i| (key.below(2 * i, request.nodes), key.below(2 * i + 1, request.nodes))).collect()
}

fn request(nodes: u64, edges: u64) -> Request {
    Request {
        nodes,
        edges,
        features: 8,
        classes: 4,
        multilabel: false,
        edge_attributes: 0,
        seed: 0,
        scratch: None,
    }
}

/// The shape with random features, random classes and splits.
fn from_request(request: &Request, name: &str, pairs: fn(&Request) -> Vec<(u64, u64)>) -> Result<Dataset> {
    refuse_extras(request, name)?;
    if request.nodes > u64::from(u32::MAX) {
        return Err(Error::usage(format!("the generator `{name}` makes at most 2^32 - 1 nodes"))
            .with_hint("`rmat` makes graphs larger than memory"));
    }
    let key = Key::new(request.seed, Purpose::Generate);
    let mut dataset = bare(name, request.nodes, &pairs(request));
    dataset.undirected = name != "uniform";
    if request.features > 0 {
        let numbers = request.nodes * request.features as u64;
        let values: Vec<f32> = (0..numbers).map(|i| key.with(1).normal(i) as f32).collect();
        dataset.features = Features::Dense { width: request.features, values: values.into() };
    }
    if request.classes > 0 {
        let draw = |node| key.with(2).below(node, request.classes as u64) as i64;
        let values: Vec<i64> = (0..request.nodes).map(draw).collect();
        dataset.labels = Labels::Classes { classes: request.classes, values: values.into() };
        dataset.splits = permuted(0..request.nodes, request.seed, &Shares { train: 20, valid: 10, test: 70 });
    }
    Ok(dataset)
}
