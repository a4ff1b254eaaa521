//! Methods that promise O(nodes) memory keep the promise: their peak does not follow the number of edges, and neither
//! does that of writing the store.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod counting;

use archipelago_graph::Result;
use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeStream};
use archipelago_graph::partition::{Assignment, Memory, PARTITIONERS, Request};
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::store::{Meta, write};
use archipelago_graph::synthetic::small;
use counting::{alone, peak_of};

/// Edges that exist only while they pass.
struct Drawn {
    nodes: u64,
    edges: u64,
    next: u64,
}

impl EdgeStream for Drawn {
    fn len(&self) -> u64 {
        self.edges
    }

    fn rewind(&mut self) -> Result<()> {
        self.next = 0;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        let key = Key::new(1, Purpose::Generate);
        let end = self.edges.min(self.next + EdgeChunk::EDGES as u64);
        for edge in self.next..end {
            let source = key.below(2 * edge, self.nodes);
            chunk.sources.push(source);
            chunk.targets.push((source + key.below(2 * edge + 1, 50)) % self.nodes);
        }
        self.next = end;
        Ok(!chunk.is_empty())
    }
}

const NODES: u64 = 20_000;
/// What may be held whatever the graph: chunks, ranges of lists, buckets.
const FIXED: usize = 40 << 20;
/// Bytes per node: the method's own, and 4 per part where it counts edges by part.
const PER_NODE: usize = 300;

fn drawn(edges: u64) -> Dataset {
    Dataset { edges: Box::new(Drawn { nodes: NODES, edges, next: 0 }), ..small::bare("drawn", NODES, &[]) }
}

#[test]
fn the_memory_of_a_streaming_method_is_bounded_by_its_nodes() {
    let _alone = alone();
    // The edges alone would take 64 MB as two ids of 8 bytes each, the lists of both ends as much again.
    let edges = 4_000_000;
    for entry in PARTITIONERS.iter().filter(|entry| entry.memory == Memory::Nodes && !entry.needs_file) {
        let mut dataset = drawn(edges);
        let (result, bytes) =
            peak_of(|| (entry.build)().assign(&mut dataset, &Request::new(8, 1), &Silent).unwrap());
        result.check(NODES).unwrap();
        let most = FIXED + PER_NODE * NODES as usize;
        assert!(bytes <= most, "`{}` held {bytes} bytes, expected at most {most}", entry.name);
    }
}

#[test]
fn spring_holds_little_beside_the_nodes_of_a_sparse_graph() {
    let _alone = alone();
    let (nodes, edges) = (200_000, 600_000);
    let entry = PARTITIONERS.iter().find(|entry| entry.name == "spring").unwrap();
    let edges = Box::new(Drawn { nodes, edges, next: 0 });
    let mut dataset = Dataset { edges, ..small::bare("drawn", nodes, &[]) };
    let (result, bytes) =
        peak_of(|| (entry.build)().assign(&mut dataset, &Request::new(8, 1), &Silent).unwrap());
    result.check(nodes).unwrap();
    // A chunk of edges and 24 bytes per node; the lists alone would take 24 more.
    let most = 16 * EdgeChunk::EDGES + 24 * nodes as usize;
    assert!(bytes <= most, "held {bytes} bytes, expected at most {most}");
}

#[test]
fn the_memory_of_writing_a_store_does_not_follow_the_edges() {
    let _alone = alone();
    let assignment = Assignment { parts: 3, part_of: (0..NODES as u32).map(|node| node % 3).collect() };
    let held = |edges: u64| {
        let home = tempfile::tempdir().unwrap();
        let (mut dataset, meta) = (drawn(edges), Meta::default());
        let work = || write(&mut dataset, &assignment, &meta, &home.path().join("store"), &Silent).unwrap();
        peak_of(work).1
    };
    let (less, more) = (held(5_000_000), held(10_000_000));
    assert!(more < less + less / 4, "{less} bytes for 5 million edges, {more} for 10 million");
}
