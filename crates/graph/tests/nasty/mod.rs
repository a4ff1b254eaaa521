//! Graphs and assignments that break careless code, shared by the test suites.
#![allow(dead_code)]

use archipelago_graph::dataset::Dataset;
use archipelago_graph::partition::Assignment;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::synthetic::small;

/// A temporary folder, in memory where the system has one: stores are synced file by file, which disks do slowly.
pub fn home() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A graph by its nodes and directed edges.
#[derive(Debug, Clone)]
pub struct Shape {
    pub name: &'static str,
    pub nodes: u64,
    pub pairs: Vec<(u64, u64)>,
}

impl Shape {
    /// Random ends: self-loops and duplicates occur.
    pub fn random(nodes: u64, edges: u64, seed: u64) -> Self {
        let key = Key::new(seed, Purpose::Generate);
        let pairs = (0..edges).map(|i| (key.below(2 * i, nodes), key.below(2 * i + 1, nodes))).collect();
        Self { name: "random", nodes, pairs }
    }

    /// The edges into these nodes.
    pub fn pairs_into(&self, targets: &[u64]) -> Vec<(u64, u64)> {
        self.pairs.iter().filter(|(_, target)| targets.contains(target)).copied().collect()
    }

    pub fn dataset(&self) -> Dataset {
        small::bare(self.name, self.nodes, &self.pairs)
    }
}

/// One of every kind.
pub fn shapes() -> Vec<Shape> {
    let shape = |name, nodes, pairs: &[(u64, u64)]| Shape { name, nodes, pairs: pairs.to_vec() };
    let star: Vec<(u64, u64)> = (1..20).flat_map(|leaf| [(0, leaf), (leaf, 0)]).collect();
    let path: Vec<(u64, u64)> = (1..20).map(|node| (node - 1, node)).collect();
    vec![
        shape("no nodes", 0, &[]),
        shape("one node", 1, &[]),
        shape("one self-loop", 1, &[(0, 0), (0, 0)]),
        shape("no edges", 7, &[]),
        shape("isolated nodes", 9, &[(2, 5), (5, 2)]),
        shape("self-loops", 4, &[(0, 0), (1, 1), (1, 0), (3, 3)]),
        shape("duplicates", 3, &[(0, 1), (0, 1), (2, 1), (0, 1), (1, 2), (1, 2)]),
        shape("star", 20, &star),
        shape("path", 20, &path),
        Shape::random(30, 150, 11),
    ]
}

/// One part; more parts than nodes; parts without nodes; a scattered one.
pub fn assignments(nodes: u64) -> Vec<Assignment> {
    let assignment = |parts, part: fn(u32) -> u32| Assignment {
        parts,
        part_of: (0..nodes as u32).map(|node| part(node) % parts).collect(),
    };
    vec![
        assignment(1, |_| 0),
        assignment(2, |node| node),
        assignment(4, |node| 2 * (node * 7 % 5)),
        assignment(64, |node| 63 - node * 11 % 61),
    ]
}
