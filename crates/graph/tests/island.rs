//! Islands against their definition: the nodes of some parts and around them, and every edge between two of them.

#![allow(clippy::unwrap_used)]

use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::store::island::{GuestLists, Memory, one_by_one};
use archipelago_graph::store::{self, Guests, Island, Meta, PartFeatures, PartLabels};
use archipelago_graph::synthetic::sbm::{self, SbmOptions};
use archipelago_graph::{NodeId, Part, PartId, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tempfile::TempDir;

/// Edges of the whole graph as the user wrote them: source, target, weight.
type Edges = Vec<(u64, u64, f32)>;

struct World {
    parts: Vec<Arc<Part>>,
    owner: Vec<u32>,
    edges: Edges,
    _folder: TempDir,
}

/// A graph with weights and repeated edges, cut at random.
fn world(nodes: u64, count: u64, parts: u32, seed: u64) -> World {
    let key = Key::new(seed, Purpose::Generate).with(7);
    world_cut((nodes, count), parts, seed, true, |node| (key.bits(node) % u64::from(parts)) as u32)
}

/// Such a graph, with weights or without, cut as told. An edge in eight leads to one node.
fn world_cut(
    (nodes, count): (u64, u64),
    parts: u32,
    seed: u64,
    weighted: bool,
    part_of: impl Fn(u64) -> u32,
) -> World {
    let options =
        SbmOptions { nodes, edges: 4 * nodes, features: 3, classes: 2, seed, ..SbmOptions::default() };
    let like = sbm::generate(&options, &Silent).unwrap();
    let key = Key::new(seed, Purpose::Generate);
    let end = |place: u64| key.bits(place) % nodes;
    let target = |edge: u64| if edge.is_multiple_of(8) { nodes / 2 } else { end(3 * edge + 1) };
    let weight = |edge: u64| if weighted { key.unit(3 * edge + 2) as f32 + 0.5 } else { 1.0 };
    let edges: Edges = (0..count).map(|edge| (end(3 * edge), target(edge), weight(edge))).collect();
    let chunk = EdgeChunk {
        sources: edges.iter().map(|edge| edge.0).collect(),
        targets: edges.iter().map(|edge| edge.1).collect(),
        weights: edges.iter().filter(|_| weighted).map(|edge| edge.2).collect(),
        ..EdgeChunk::default()
    };
    let mut dataset = Dataset {
        edges: Box::new(MemoryEdges::new(chunk, 0)),
        edge_columns: EdgeColumns { weighted, ..EdgeColumns::default() },
        undirected: false,
        ..like
    };
    let owner: Vec<u32> = (0..nodes).map(part_of).collect();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("store");
    let assignment = Assignment { parts, part_of: owner.clone() };
    store::write(&mut dataset, &assignment, &Meta::default(), &out, &Silent).unwrap();
    let store = Store::open(&out).unwrap();
    let parts = (0..parts).map(|id| Arc::new(store.part(PartId(id)).unwrap())).collect();
    World { parts, owner, edges, _folder: folder }
}

/// The island of all parts.
fn full_of_something(world: &World) -> Island {
    Island::build(&world.parts[0], &world.parts, 1, &[], Memory::default(), &one_by_one)
}

/// Two threads, each of which takes what is left.
fn two_at_a_time(count: usize, body: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
                    .take_while(|&at| at < count)
                    .for_each(body)
            });
        }
    });
}

impl World {
    /// What the owners say of these nodes.
    fn guests(&self, ids: Vec<u64>, lists: bool) -> Guests {
        let mut guests = Guests { ids, ..Guests::default() };
        let mut told = GuestLists::default();
        for &id in &guests.ids {
            let part = self.parts.iter().find(|part| part.range().contains(&id)).unwrap();
            let row = (id - part.range().start) as usize;
            guests.originals.push(part.original()[row]);
            guests.degrees.push(part.weighted_degree(row));
            let PartFeatures::Dense { width, values } = part.features() else { panic!("dense") };
            guests.values.extend_from_slice(&values[row * width..][..width]);
            let list = part.offsets()[row] as usize..part.offsets()[row + 1] as usize;
            told.counts.push(list.len() as u32);
            for edge in list {
                told.sources.push(part.global(part.sources()[edge]));
                told.weights.extend(part.weights().map(|weights| weights[edge]));
            }
        }
        guests.lists = lists.then_some(told);
        guests
    }
}

/// In-edges of every node of an island, by original ids.
fn lists(island: &Island) -> BTreeMap<u64, Vec<(u64, u32)>> {
    let part = &island.part;
    let list = |row: usize| {
        let edges = part.offsets()[row] as usize..part.offsets()[row + 1] as usize;
        let mut found: Vec<(u64, u32)> = edges
            .map(|e| {
                (part.original()[part.sources()[e] as usize], part.weights().map_or(1.0, |w| w[e]).to_bits())
            })
            .collect();
        found.sort_unstable();
        found
    };
    (0..part.owned()).map(|row| (part.original()[row], list(row))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_island_has_all_its_nodes_and_every_edge_between_them(
        nodes in 6u64..60, count in 0u64..300, parts in 2u32..6, chosen in 1usize..4, hops in 0usize..3, some in any::<bool>(),
        first in 0usize..6, seed in any::<u64>(),
    ) {
        let world = world(nodes, count, parts, seed);
        // In any order, and not always from the first on.
        let own: Vec<Arc<Part>> = (0..chosen.min(parts as usize))
            .map(|next| Arc::clone(&world.parts[(first + next * (parts as usize - 1)) % parts as usize])).collect();
        let own_part = |id: u32| own.iter().any(|part| part.id().0 == id);
        let mut waves: Vec<Guests> = Vec::new();
        let mut next = if hops > 0 { Island::around(&own) } else { Vec::new() };
        for hop in 1..=hops {
            // Guests may be left out.
            next.retain(|id| !some || id % 3 > 0);
            let wave = world.guests(next, hop < hops);
            let inside = |id: &u64| own.iter().any(|part| part.range().contains(id));
            let sources: BTreeSet<u64> = wave.lists.iter().flat_map(|lists| lists.sources.iter().copied()).collect();
            let known = |id: &u64| inside(id) || waves.iter().chain([&wave]).any(|wave| wave.ids.contains(id));
            next = sources.into_iter().filter(|id| !known(id)).collect();
            waves.push(wave);
        }
        let island = Island::build(&world.parts[0], &own, 1, &waves, Memory::default(), &one_by_one);
        // Neither hands nor memory that something else was in make a difference.
        let memory = Memory::of(full_of_something(&world).part);
        let again = Island::build(&world.parts[0], &own, 1, &waves, memory, &two_at_a_time);
        prop_assert_eq!(again.part.offsets(), island.part.offsets());
        prop_assert_eq!(again.part.sources(), island.part.sources());
        prop_assert_eq!(again.part.weights(), island.part.weights());
        prop_assert_eq!(again.part.features(), island.part.features());

        // Who is there, and who of them hears of others.
        let hearing: BTreeSet<u64> = (0..nodes).filter(|&node| own_part(world.owner[node as usize]))
            .chain(waves.iter().filter(|wave| wave.lists.is_some()).flat_map(|wave| wave.originals.clone())).collect();
        let there: BTreeSet<u64> = hearing.iter().copied().chain(waves.iter().flat_map(|w| w.originals.clone())).collect();
        prop_assert_eq!(island.part.original().to_vec(), there.iter().copied().collect::<Vec<_>>());
        let mut expected: BTreeMap<u64, Vec<(u64, u32)>> = there.iter().map(|&node| (node, Vec::new())).collect();
        for &(source, target, weight) in &world.edges {
            if hearing.contains(&target) && there.contains(&source) {
                expected.get_mut(&target).unwrap().push((source, weight.to_bits()));
            }
        }
        expected.values_mut().for_each(|list| list.sort_unstable());
        prop_assert_eq!(lists(&island), expected);
        assert_ascending(&island);

        // What is known of its rows.
        let degree = |node: u64| world.edges.iter().filter(move |edge| edge.1 == node);
        for (row, &node) in island.part.original().iter().enumerate() {
            let weight: f32 = degree(node).map(|edge| edge.2).sum();
            prop_assert!((island.degrees[row] - weight).abs() < 1e-4);
            if hearing.contains(&node) {
                prop_assert_eq!(island.in_edges[row] as usize, degree(node).count());
                let here = island.part.offsets()[row + 1] - island.part.offsets()[row];
                let share = if degree(node).count() == 0 { 1.0 } else { here as f32 / degree(node).count() as f32 };
                prop_assert_eq!(island.coverage(row as u32), share);
            }
        }
        check_columns(&world, &island, &own);
    }
}

fn assert_ascending(island: &Island) {
    let sorted = |list: &[u64]| island.part.sources()[list[0] as usize..list[1] as usize].is_sorted();
    assert!(island.part.offsets().windows(2).all(sorted), "lists ascend");
}

/// Features and labels are those of the nodes, and targets are those of the first part.
fn check_columns(world: &World, island: &Island, own: &[Arc<Part>]) {
    let PartFeatures::Dense { width, values } = island.part.features() else { panic!("dense") };
    let PartLabels::Classes(labels) = island.part.labels() else { panic!("classes") };
    for (row, &node) in island.part.original().iter().enumerate() {
        let part = &world.parts[world.owner[node as usize] as usize];
        let at = part.row_of(NodeId(node)).unwrap() as usize;
        let PartFeatures::Dense { values: stored, .. } = part.features() else { panic!("dense") };
        assert_eq!(values[row * width..][..width], stored[at * width..][..width]);
        let PartLabels::Classes(classes) = part.labels() else { panic!("classes") };
        let here = own.iter().any(|own| own.id() == part.id());
        assert_eq!(labels[row], if here { classes[at] } else { -1 });
    }
    let first = &own[0];
    let targets: BTreeSet<u64> = first.train().iter().map(|&row| first.original()[row as usize]).collect();
    let found = island.part.train().iter().map(|&row| island.part.original()[row as usize]);
    assert_eq!(found.collect::<BTreeSet<_>>(), targets);
}

/// Many blocks of rows, lists long and short, and a part whose rows are far from each other on the island.
#[test]
fn a_part_that_is_scattered_among_another_keeps_its_edges() {
    for (weighted, with_guests) in [(true, false), (false, false), (false, true)] {
        let part_of =
            |node: u64| if node.is_multiple_of(600) { 0 } else { 1 + u32::from(node.is_multiple_of(7)) };
        let world = world_cut((5000, 30_000), 3, 5, weighted, part_of);
        let pair = [Arc::clone(&world.parts[1]), Arc::clone(&world.parts[0])];
        let guests: Vec<Guests> =
            with_guests.then(|| world.guests(Island::around(&pair), false)).into_iter().collect();
        let island = Island::build(&world.parts[0], &pair, 1, &guests, Memory::default(), &two_at_a_time);
        let own = |node: u64| world.owner[node as usize] < 2;
        let here: BTreeSet<u64> = (0..5000)
            .filter(|&node| own(node))
            .chain(guests.iter().flat_map(|wave| wave.originals.clone()))
            .collect();
        let mut expected: BTreeMap<u64, Vec<(u64, u32)>> =
            here.iter().map(|&node| (node, Vec::new())).collect();
        for &(source, target, weight) in
            world.edges.iter().filter(|edge| here.contains(&edge.0) && own(edge.1))
        {
            expected.get_mut(&target).unwrap().push((source, weight.to_bits()));
        }
        expected.values_mut().for_each(|list| list.sort_unstable());
        assert_eq!(lists(&island), expected);
        assert_ascending(&island);
        check_columns(&world, &island, &pair);
    }
}

#[test]
fn after_a_full_sweep_every_edge_has_been_on_some_island() {
    let world = world(80, 900, 5, 3);
    let mut met: Vec<(u64, u64)> = Vec::new();
    for base in 0..5 {
        for other in (0..5).filter(|&other| other != base) {
            let pair = [Arc::clone(&world.parts[base]), Arc::clone(&world.parts[other])];
            let island = Island::build(&world.parts[0], &pair, 1, &[], Memory::default(), &one_by_one);
            for (target, list) in lists(&island) {
                met.extend(list.into_iter().map(|(source, _)| (source, target)));
            }
        }
    }
    let met: BTreeSet<(u64, u64)> = met.into_iter().collect();
    assert!(world.edges.iter().all(|&(source, target, _)| met.contains(&(source, target))));
}

#[test]
fn the_island_of_the_only_part_is_that_part_and_one_of_nothing_is_empty() {
    let world = world(40, 200, 1, 9);
    let part = &world.parts[0];
    let island = Island::build(part, &world.parts, 1, &[], Memory::default(), &one_by_one);
    assert_eq!(island.part.original(), part.original());
    assert_eq!(island.part.offsets(), part.offsets());
    assert_eq!(island.part.sources(), part.sources());
    assert_eq!(island.part.train(), part.train());
    assert_eq!(island.part.features(), part.features());
    let nothing = Island::build(part, &[], 0, &[], Memory::default(), &one_by_one);
    assert_eq!((nothing.part.owned(), nothing.part.edges(), nothing.part.train().len()), (0, 0, 0));
}
