//! Graphs with a known right answer, for the tests of the methods that see the whole graph.

use super::{Assignment, Request, find};
use crate::dataset::Dataset;
use crate::progress::Silent;
use crate::quality::{Quality, measure};
use crate::synthetic::sbm::{SbmOptions, generate};
use crate::synthetic::small;

/// Cliques of `size` nodes each, node `v` in clique `v % count`; consecutive cliques are joined by one edge.
pub(super) fn cliques(count: u64, size: u64) -> Dataset {
    let nodes = count * size;
    let mut pairs: Vec<(u64, u64)> = (1..count).map(|clique| (clique - 1, clique)).collect();
    for node in 0..nodes {
        pairs.extend((node % count..node).step_by(count as usize).map(|other| (other, node)));
    }
    small::bare("cliques", nodes, &pairs)
}

/// 2000 nodes in 20 communities on a ring.
pub(super) fn communities() -> Dataset {
    let options = SbmOptions {
        nodes: 2_000,
        edges: 40_000,
        features: 0,
        classes: 4,
        communities: 20,
        ..SbmOptions::default()
    };
    generate(&options, &Silent).unwrap()
}

/// What the method called `name` makes of `dataset`.
pub(super) fn assign(name: &str, dataset: &mut Dataset, request: &Request) -> Assignment {
    let entry = find(name).unwrap();
    entry.check(request).unwrap();
    let assignment = (entry.build)().assign(dataset, request, &Silent).unwrap();
    assignment.check(dataset.nodes).unwrap();
    assignment
}

/// How good that is.
pub(super) fn quality(name: &str, dataset: &mut Dataset, request: &Request) -> Quality {
    let assignment = assign(name, dataset, request);
    measure(dataset, &assignment, &Silent).unwrap()
}

/// How good that is, which must cut less than `share` of the edges that random parts cut.
pub(super) fn cuts_below_random(name: &str, dataset: &mut Dataset, request: &Request, share: f64) -> Quality {
    let random = quality("random", dataset, &Request::new(request.parts, 5)).cut_fraction;
    let figures = quality(name, dataset, request);
    assert!(figures.cut_fraction < share * random, "{request:?}: {} {random}", figures.cut_fraction);
    figures
}

/// Asserts that the method cuts far less than random parts do, and that no part exceeds its slack.
pub(super) fn cuts_little_within_its_slack(name: &str) {
    for slack in ["0", "0.05", "0.3"] {
        let figures = cuts_below_random(name, &mut communities(), &with(4, "slack", slack), 0.5);
        let most = 1.0 + slack.parse::<f64>().unwrap();
        assert!(figures.balance_nodes <= most + 1e-9, "slack {slack}: {}", figures.balance_nodes);
    }
}

/// A request with one setting.
pub(super) fn with(parts: u32, name: &str, value: &str) -> Request {
    Request { settings: [(name.to_owned(), value.to_owned())].into(), ..Request::new(parts, 5) }
}

/// Asserts that each of `parts` cliques of `size` nodes is a part.
pub(super) fn separates_cliques(name: &str, parts: u32, size: u64) {
    let part_of = assign(name, &mut cliques(u64::from(parts), size), &Request::new(parts, 5)).part_of;
    let mut parts_of_cliques: Vec<u32> = part_of[..parts as usize].to_vec();
    assert!((0..part_of.len()).all(|node| part_of[node] == part_of[node % parts as usize]), "{part_of:?}");
    parts_of_cliques.sort_unstable();
    assert_eq!(parts_of_cliques, (0..parts).collect::<Vec<_>>());
}
