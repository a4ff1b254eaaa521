//! What every method that places edges promises: one part per edge, in the order of the stream, figures and owners
//! as brute force finds them, and the rule of each method, spelled out without its shortcuts.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::partition::{self, PARTITIONERS, Partitioner, Request};
use archipelago_graph::progress::Silent;
use archipelago_graph::quality::{EdgeMeter, EdgeQuality};
use archipelago_graph::random::{Key, Purpose};
use nasty::{Shape, shapes};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Every method that places edges, by name.
fn methods() -> Vec<(&'static str, Box<dyn Partitioner>)> {
    let built = PARTITIONERS.iter().map(|entry| (entry.name, (entry.build)()));
    built.filter(|(_, method)| method.edges().is_some()).collect()
}

/// Nasty graphs, and larger ones so that choices, limits and full words of parts occur.
fn graphs() -> Vec<Shape> {
    let hubs = Shape::random(40, 400, 3).pairs.iter().map(|&(u, v)| (u * v / 40, v)).collect();
    let larger = [Shape::random(200, 1500, 7), Shape { name: "hubs", nodes: 40, pairs: hubs }];
    shapes().into_iter().chain(larger).collect()
}

fn request(parts: u32, settings: &[(&str, &str)]) -> Request {
    let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Request { settings, ..Request::new(parts, 5) }
}

/// The part of every edge, after checking that edges came as they are in the stream, and their figures.
fn place(name: &str, shape: &Shape, request: &Request) -> (Vec<u32>, EdgeQuality) {
    let method = (partition::find(name).unwrap().build)();
    let mut meter = EdgeMeter::new(shape.nodes as usize, request.parts);
    let (mut pairs, mut placed) = (Vec::new(), Vec::new());
    let sink = &mut |chunk: &archipelago_graph::dataset::EdgeChunk, parts: &[u32]| {
        meter.count(chunk, parts);
        pairs.extend(chunk.sources.iter().copied().zip(chunk.targets.iter().copied()));
        placed.extend_from_slice(parts);
        Ok(())
    };
    method.edges().unwrap().place(&mut shape.dataset(), request, &Silent, sink).unwrap();
    assert_eq!(pairs, shape.pairs, "{name} on {}", shape.name);
    assert_eq!(placed.len(), pairs.len(), "{name} on {}", shape.name);
    (placed, meter.finish())
}

/// The definitions, with sets.
fn brute_force(shape: &Shape, placed: &[u32], parts: u32) -> EdgeQuality {
    let ends = shape.pairs.iter().zip(placed).flat_map(|(&(u, v), &part)| [(u, part), (v, part)]);
    let copies: BTreeSet<(u64, u32)> = ends.collect();
    let nodes: BTreeSet<u64> = copies.iter().map(|copy| copy.0).collect();
    let edges: Vec<u64> =
        (0..parts).map(|part| placed.iter().filter(|&&other| other == part).count() as u64).collect();
    let ratio = |a: u64, b: usize| if b == 0 { 1.0 } else { a as f64 / b as f64 };
    EdgeQuality {
        replication_factor: ratio(copies.len() as u64, nodes.len()),
        balance_edges: ratio(edges.iter().max().unwrap() * u64::from(parts), placed.len()),
        edges,
    }
}

fn check_placement(name: &str, shape: &Shape, request: &Request) {
    let (placed, quality) = place(name, shape, request);
    assert!(placed.iter().all(|&part| part < request.parts), "{name} on {}", shape.name);
    assert_eq!(placed, place(name, shape, request).0, "{name} on {}", shape.name);
    assert_eq!(quality, brute_force(shape, &placed, request.parts), "{name} on {}", shape.name);
}

/// Checks that every node with edges is owned by a part with most of them, and others by the smallest part.
fn check_owners(name: &str, method: &dyn Partitioner, shape: &Shape, request: &Request) {
    let (placed, _) = place(name, shape, request);
    let assignment = method.assign(&mut shape.dataset(), request, &Silent).unwrap();
    let (mut sizes, mut isolated) = (vec![0u64; request.parts as usize], Vec::new());
    for (node, &owner) in assignment.part_of.iter().enumerate() {
        let mut counts = vec![0; request.parts as usize];
        for (&(u, v), &part) in shape.pairs.iter().zip(&placed) {
            counts[part as usize] += [u, v].iter().filter(|&&end| end == node as u64).count();
        }
        let most = *counts.iter().max().unwrap();
        assert_eq!(counts[owner as usize], most, "{name} on {}, node {node}", shape.name);
        if most > 0 { sizes[owner as usize] += 1 } else { isolated.push(owner) }
    }
    for owner in isolated {
        assert_eq!(sizes[owner as usize], *sizes.iter().min().unwrap(), "{name} on {}", shape.name);
        sizes[owner as usize] += 1;
    }
}

#[test]
fn every_method_places_every_edge_of_every_nasty_graph_in_the_order_of_the_stream_and_repeats_itself() {
    for (name, _) in methods() {
        for shape in graphs() {
            for parts in [1, 2, 7, 64, 100] {
                check_placement(name, &shape, &Request::new(parts, 5));
            }
        }
    }
}

#[test]
fn a_node_is_owned_by_the_part_with_most_of_its_edges() {
    for (name, method) in methods() {
        for shape in graphs() {
            for parts in [1, 3, 70] {
                check_owners(name, &*method, &shape, &Request::new(parts, 2));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_method_places_every_edge_of_any_graph(
        nodes in 1u64..40,
        ends in prop::collection::vec((0u64..1000, 0u64..1000), 0..200),
        parts in 1u32..80,
    ) {
        let pairs = ends.iter().map(|&(u, v)| (u % nodes, v % nodes)).collect();
        let shape = Shape { name: "any", nodes, pairs };
        for (name, method) in methods() {
            check_placement(name, &shape, &Request::new(parts, 5));
            check_owners(name, &*method, &shape, &Request::new(parts, 5));
        }
    }
}

/// Degrees of all nodes after the first `edges` edges.
fn degrees(shape: &Shape, edges: usize) -> Vec<u64> {
    let mut degrees = vec![0; shape.nodes as usize];
    for &(u, v) in &shape.pairs[..edges] {
        degrees[u as usize] += 1;
        degrees[v as usize] += 1;
    }
    degrees
}

/// Each edge's degrees under both settings: all edges, and those up to and including itself.
fn degrees_at(shape: &Shape, edge: usize, setting: &str) -> Vec<u64> {
    degrees(shape, if setting == "online" { edge + 1 } else { shape.pairs.len() })
}

#[test]
fn dbh_keeps_all_edges_with_the_same_weaker_end_together() {
    for shape in graphs() {
        for setting in ["exact", "online"] {
            let (placed, _) = place("dbh", &shape, &request(7, &[("degrees", setting)]));
            let mut part_of = std::collections::BTreeMap::new();
            for (edge, &(u, v)) in shape.pairs.iter().enumerate() {
                let degrees = degrees_at(&shape, edge, setting);
                let weaker = [u, v].into_iter().min_by_key(|&node| (degrees[node as usize], node)).unwrap();
                assert_eq!(*part_of.entry(weaker).or_insert(placed[edge]), placed[edge], "{}", shape.name);
            }
        }
    }
}

/// Copies and loads of edges placed so far, by the book.
struct State {
    copies: BTreeSet<(u64, u32)>,
    loads: Vec<u64>,
}

impl State {
    fn new(parts: u32) -> Self {
        Self { copies: BTreeSet::new(), loads: vec![0; parts as usize] }
    }

    fn add(&mut self, (u, v): (u64, u64), part: u32) {
        self.copies.extend([(u, part), (v, part)]);
        self.loads[part as usize] += 1;
    }

    fn parts(&self) -> std::ops::Range<u32> {
        0..self.loads.len() as u32
    }

    fn has(&self, node: u64, part: u32) -> bool {
        self.copies.contains(&(node, part))
    }

    /// The least loaded of the parts that satisfy `wanted`.
    fn least(&self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.parts().filter(|&part| wanted(part)).min_by_key(|&part| self.loads[part as usize])
    }
}

#[test]
fn greedy_follows_the_four_cases() {
    for shape in graphs() {
        for parts in [2, 7, 100] {
            let (placed, _) = place("greedy", &shape, &request(parts, &[]));
            let mut state = State::new(parts);
            for (&(u, v), &part) in shape.pairs.iter().zip(&placed) {
                let both = state.least(|part| state.has(u, part) && state.has(v, part));
                let either = state.least(|part| state.has(u, part) || state.has(v, part));
                assert_eq!(Some(part), both.or(either).or(state.least(|_| true)), "{}", shape.name);
                state.add((u, v), part);
            }
        }
    }
}

/// HDRF's choice among all parts.
fn highest_score(state: &State, (u, v): (u64, u64), degrees: &[u64], lambda: f64) -> u32 {
    let total = (degrees[u as usize] + degrees[v as usize]) as f64;
    let most = *state.loads.iter().max().unwrap();
    let spread = (1 + most - state.loads.iter().min().unwrap()) as f64;
    let score = |part: u32| {
        let copy = |node: u64| {
            if state.has(node, part) { 2.0 - degrees[node as usize] as f64 / total } else { 0.0 }
        };
        copy(u) + copy(v) + lambda * (most - state.loads[part as usize]) as f64 / spread
    };
    let load = |part: u32| state.loads[part as usize];
    let better = |&a: &u32, &b: &u32| score(b).total_cmp(&score(a)).then(load(a).cmp(&load(b)));
    state.parts().min_by(better).unwrap()
}

#[test]
fn hdrf_finds_the_highest_score_without_looking_at_every_part() {
    for shape in graphs() {
        for (setting, lambda, parts) in [
            ("exact", "1.1", 7),
            ("online", "1.1", 3),
            ("online", "0", 7),
            ("exact", "5", 100),
            ("exact", "1", 2),
        ] {
            let request = request(parts, &[("degrees", setting), ("lambda", lambda)]);
            let (placed, _) = place("hdrf", &shape, &request);
            let mut state = State::new(parts);
            for (edge, &ends) in shape.pairs.iter().enumerate() {
                let degrees = degrees_at(&shape, edge, setting);
                let expected = highest_score(&state, ends, &degrees, lambda.parse().unwrap());
                assert_eq!(placed[edge], expected, "{}, edge {edge}, lambda {lambda}", shape.name);
                state.add(ends, placed[edge]);
            }
        }
    }
}

#[test]
fn hdrf_balances_a_path_if_told_to_while_greedy_puts_it_into_one_part() {
    let path = Shape { name: "path", nodes: 1000, pairs: (1..1000).map(|node| (node - 1, node)).collect() };
    assert_eq!(place("greedy", &path, &request(4, &[])).1.edges, [999, 0, 0, 0]);
    assert_eq!(place("hdrf", &path, &request(4, &[])).1.edges, [999, 0, 0, 0]);
    let balanced = place("hdrf", &path, &request(4, &[("lambda", "2.5")])).1;
    assert!(balanced.balance_edges < 1.05, "{balanced:?}");
}

#[test]
fn loads_of_2ps_l_stay_within_alpha_times_the_average() {
    for shape in graphs() {
        for (parts, alpha, degrees) in [(2, 1.0, "exact"), (7, 1.05, "exact"), (3, 1.3, "online")] {
            let settings = [("alpha", &*alpha.to_string()), ("degrees", degrees), ("passes", "2")];
            let (_, quality) = place("2ps-l", &shape, &request(parts, &settings));
            let edges = shape.pairs.len() as u64;
            let limit = ((alpha * edges as f64 / f64::from(parts)) as u64).max(edges.div_ceil(parts.into()));
            assert!(quality.edges.iter().all(|&load| load <= limit), "{} {quality:?} {limit}", shape.name);
        }
    }
}

/// Cluster of every node and volume of every cluster after one pass of 2PS-L, none above `most`.
fn clusters(shape: &Shape, most: u64) -> (Vec<usize>, Vec<u64>) {
    let degrees = degrees(shape, shape.pairs.len());
    let (mut of, mut volumes) = ((0..degrees.len()).collect::<Vec<_>>(), degrees.clone());
    for &(u, v) in &shape.pairs {
        let rest = |node: u64| (volumes[of[node as usize]] - degrees[node as usize], node);
        let (small, large) =
            if rest(u) < rest(v) { (u as usize, v as usize) } else { (v as usize, u as usize) };
        let (from, to) = (of[small], of[large]);
        let fits = volumes[from] <= most && volumes[to] <= most && volumes[to] + degrees[small] <= most;
        if from != to && fits {
            volumes[from] -= degrees[small];
            volumes[to] += degrees[small];
            of[small] = to;
        }
    }
    (of, volumes)
}

/// The part of every node's cluster: the largest first, each to the part with the smallest volume.
fn homes((of, volumes): &(Vec<usize>, Vec<u64>), parts: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..volumes.len()).collect();
    order.sort_by_key(|&cluster| std::cmp::Reverse(volumes[cluster]));
    let (mut filled, mut part_of) = (vec![0; parts as usize], vec![0; volumes.len()]);
    for cluster in order {
        let least = (0..parts).min_by_key(|&part| filled[part as usize]).unwrap();
        filled[least as usize] += volumes[cluster];
        part_of[cluster] = least;
    }
    of.iter().map(|&cluster| part_of[cluster]).collect()
}

/// 2PS-L as the paper runs it: edges within a part in one pass, the others in another, parts noted by edge.
fn two_ps_l(shape: &Shape, parts: u32, seed: u64) -> Vec<u32> {
    let edges = shape.pairs.len() as u64;
    let limit = ((1.05 * edges as f64 / f64::from(parts)) as u64).max(edges.div_ceil(parts.into()));
    let clusters = clusters(shape, (0.6 * 2.0 * edges as f64 / f64::from(parts)) as u64);
    let (homes, degrees) = (homes(&clusters, parts), degrees(shape, shape.pairs.len()));
    let volume = |node: u64| clusters.1[clusters.0[node as usize]] as f64;
    let (home, degree) = (|node: u64| homes[node as usize], |node: u64| degrees[node as usize]);
    let (mut state, mut placed) = (State::new(parts), vec![u32::MAX; shape.pairs.len()]);
    for within in [true, false] {
        for (edge, &(u, v)) in shape.pairs.iter().enumerate() {
            if (home(u) == home(v)) != within {
                continue;
            }
            let score = |part: u32| {
                let copy = |node| {
                    if state.has(node, part) {
                        2.0 - degree(node) as f64 / (degree(u) + degree(v)) as f64
                    } else {
                        0.0
                    }
                };
                let near =
                    |node| if home(node) == part { volume(node) / (volume(u) + volume(v)) } else { 0.0 };
                copy(u) + copy(v) + near(u) + near(v)
            };
            let (low, high) = (home(u).min(home(v)), home(u).max(home(v)));
            let hub = [u, v].into_iter().max_by_key(|&node| (degree(node), node)).unwrap();
            let hashed = Key::new(seed, Purpose::Partition).below(hub, parts.into()) as u32;
            let best = if score(high) > score(low) { high } else { low };
            let free = [best, hashed].into_iter().find(|&part| state.loads[part as usize] < limit);
            placed[edge] = free.or(state.least(|_| true)).unwrap();
            state.add((u, v), placed[edge]);
        }
    }
    placed
}

#[test]
fn edges_of_2ps_l_come_in_the_order_of_the_stream_but_lie_where_two_separate_passes_put_them() {
    for shape in graphs() {
        for parts in [2, 7, 20] {
            let request = request(parts, &[("volume", "0.6")]);
            assert_eq!(
                place("2ps-l", &shape, &request).0,
                two_ps_l(&shape, parts, request.seed),
                "{}",
                shape.name
            );
        }
    }
}

/// Groups of `size` nodes, each a complete graph, the edges of all groups in turn.
fn cliques(groups: u64, size: u64) -> Shape {
    let pairs = (0..size).flat_map(|u| (0..u).map(move |v| (u, v)));
    let all = pairs.flat_map(|(u, v)| (0..groups).map(move |group| (group * size + u, group * size + v)));
    Shape { name: "cliques", nodes: groups * size, pairs: all.collect() }
}

#[test]
fn methods_that_cluster_or_remember_do_not_cut_separate_cliques() {
    let shape = cliques(8, 12);
    for degrees in ["exact", "online"] {
        let settings = [("degrees", degrees), ("volume", "0.6")];
        let quality = place("2ps-l", &shape, &request(4, &settings)).1;
        assert!(quality.replication_factor < 1.05, "{degrees} {quality:?}");
    }
    assert!(place("hdrf", &shape, &request(4, &[])).1.replication_factor < 1.5);
    assert!(place("dbh", &shape, &request(4, &[])).1.replication_factor > 2.0);
}

#[test]
fn edge_1d_keeps_the_out_edges_of_a_node_together_in_ascending_stretches_of_equal_edges() {
    for shape in graphs() {
        for (setting, end) in [("source", 0), ("target", 1)] {
            let (placed, quality) = place("edge-1d", &shape, &request(7, &[("by", setting)]));
            let with = |&(u, v): &(u64, u64)| [u, v][end];
            let homes: BTreeSet<(u64, u32)> = shape.pairs.iter().map(with).zip(placed).collect();
            let parts: Vec<u32> = homes.iter().map(|home| home.1).collect();
            assert!(parts.is_sorted(), "{}", shape.name);
            assert_eq!(homes.iter().map(|home| home.0).collect::<BTreeSet<_>>().len(), homes.len());
            let count = |node: u64| shape.pairs.iter().filter(|pair| with(pair) == node).count() as f64;
            let most = (0..shape.nodes).map(count).fold(0.0, f64::max);
            let average = shape.pairs.len() as f64 / 7.0;
            assert!(quality.edges.iter().all(|&load| (load as f64 - average).abs() <= most), "{quality:?}");
        }
    }
}

#[test]
fn vertex_cut_2d_gives_a_node_at_most_a_row_and_a_column_of_copies() {
    let star =
        Shape { name: "star", nodes: 5000, pairs: (0..4999).flat_map(|v| [(4999, v), (v, 4999)]).collect() };
    for (parts, most) in [(16, 7), (7, 5), (2, 2), (100, 19)] {
        let (placed, quality) = place("vertex-cut-2d", &star, &request(parts, &[]));
        let at_hub = placed.iter().collect::<BTreeSet<_>>();
        assert!(at_hub.len() <= most, "{parts} {at_hub:?}");
        assert_eq!(quality.edges.iter().sum::<u64>(), 9998);
    }
    let even = place("vertex-cut-2d", &Shape::random(3000, 40_000, 1), &request(7, &[])).1;
    assert!(even.balance_edges < 1.1, "{even:?}");
}

#[test]
fn a_wrong_setting_is_answered_with_what_is_possible() {
    for (name, setting, value) in [
        ("hdrf", "lambda", "-1"),
        ("2ps-l", "alpha", "0.5"),
        ("dbh", "degrees", "some"),
        ("edge-1d", "by", "x"),
    ] {
        let request = request(2, &[(setting, value)]);
        let method = (partition::find(name).unwrap().build)();
        let error = method.assign(&mut Shape::random(5, 5, 1).dataset(), &request, &Silent).unwrap_err();
        assert!(error.to_string().contains(setting) && error.to_string().contains("expected"), "{error}");
    }
}
