//! Sampling as several ranks do it, played by one thread: every part draws for the nodes that it owns, and the part that
//! asked stitches the answers. All ids here are original ones, so that batches of different assignments compare.
#![allow(dead_code)]

use crate::nasty::{Shape, home};
use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::{self, Answer, Draft, Drawn, Hop, Lists, Options, Sampler, Scratch, Sources};
use archipelago_graph::store::{Meta, write};
use archipelago_graph::{Batch, Block, Part, PartId, Store};
use std::collections::BTreeMap;

/// The key of a step.
pub fn key(step: u64) -> Key {
    Key::new(1, Purpose::Sample).with(step)
}

/// The sampler called `name`.
pub fn sampler(name: &str, fanouts: &[i64]) -> Box<dyn Sampler> {
    (sample::find(name).unwrap().build)(&Options { fanouts: fanouts.to_vec() }).unwrap()
}

pub fn counted<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    items.into_iter().for_each(|item| *counts.entry(item).or_default() += 1);
    counts
}

/// An in-edge of a known node: its source, and its weight as bits (those of 1 without weights).
pub type InEdge = (u64, u32);

/// A graph with or without weights.
#[derive(Debug, Clone)]
pub struct Graph {
    pub shape: Shape,
    /// By edge; empty without.
    pub weights: Vec<f32>,
}

impl From<Shape> for Graph {
    fn from(shape: Shape) -> Self {
        Self { shape, weights: Vec::new() }
    }
}

impl Graph {
    /// Every edge weighs what `weight` says of its number, its source and its target.
    pub fn weighted(shape: Shape, weight: impl Fn(usize, u64, u64) -> f32) -> Self {
        let weights = shape.pairs.iter().enumerate().map(|(i, &(source, target))| weight(i, source, target));
        Self { weights: weights.collect(), shape }
    }

    /// All in-edges of every node, in the order of the input.
    pub fn in_edges(&self) -> Vec<Vec<InEdge>> {
        let mut lists = vec![Vec::new(); self.shape.nodes as usize];
        for (i, &(source, target)) in self.shape.pairs.iter().enumerate() {
            let weight = self.weights.get(i).copied().unwrap_or(1.0);
            lists[target as usize].push((source, weight.to_bits()));
        }
        lists
    }

    fn dataset(&self) -> Dataset {
        let mut dataset = self.shape.dataset();
        if !self.weights.is_empty() {
            let (sources, targets) = self.shape.pairs.iter().copied().unzip();
            let chunk = EdgeChunk { sources, targets, weights: self.weights.clone(), ..EdgeChunk::default() };
            dataset.edges = Box::new(MemoryEdges::new(chunk, 0));
            dataset.edge_columns = EdgeColumns { weighted: true, ..EdgeColumns::default() };
        }
        dataset
    }

    pub fn parts(&self, assignment: &Assignment) -> Parts {
        let home = home();
        let out = home.path().join("store");
        let meta = Meta { method: "test".into(), seed: 0, ..Meta::default() };
        write(&mut self.dataset(), assignment, &meta, &out, &Silent).unwrap();
        let store = Store::open(&out).unwrap();
        Parts::new((0..store.parts()).map(|id| store.part(PartId(id)).unwrap()).collect())
    }

    /// The whole graph as one part.
    pub fn whole(&self) -> Parts {
        self.parts(&Assignment { parts: 1, part_of: vec![0; self.shape.nodes as usize] })
    }
}

/// All parts of a graph.
pub struct Parts {
    pub all: Vec<Part>,
    /// Original id of every row of each part.
    originals: Vec<Vec<u64>>,
    /// Original id by global id.
    original: Vec<u64>,
    /// Global id by original id.
    global: Vec<u64>,
}

impl Parts {
    fn new(all: Vec<Part>) -> Self {
        let original: Vec<u64> = all.iter().flat_map(|part| part.original().to_vec()).collect();
        let mut global = vec![0; original.len()];
        (0u64..).zip(&original).for_each(|(id, &node)| global[node as usize] = id);
        let halo = |part: &Part| part.halo().iter().map(|&id| original[id as usize]).collect::<Vec<_>>();
        let originals = all.iter().map(|part| [part.original(), &halo(part)].concat()).collect();
        Self { all, originals, original, global }
    }

    pub fn lists(&self, part: usize) -> Lists<'_> {
        Lists::new(&self.all[part], &self.originals[part])
    }

    fn globals(&self, nodes: &[u64]) -> Vec<u64> {
        nodes.iter().map(|&node| self.global[node as usize]).collect()
    }
}

/// What another part tells the one that asked.
#[derive(Default)]
struct Told {
    counts: Vec<u32>,
    sources: Vec<u64>,
    weights: Vec<f32>,
}

impl Told {
    fn new(parts: &Parts, part: usize, drawn: Drawn) -> Self {
        let (lists, part) = (parts.lists(part), &parts.all[part]);
        let source = |&edge: &u64| parts.global[lists.original(lists.source(edge)) as usize];
        let weights = part.weights().map(|weights| drawn.edges.iter().map(|&edge| weights[edge as usize]));
        let weights = weights.map(Iterator::collect).unwrap_or_default();
        Self { sources: drawn.edges.iter().map(source).collect(), weights, counts: drawn.counts }
    }

    fn answer(&self) -> Answer<'_> {
        Answer::There { counts: &self.counts, sources: Sources::Wide(&self.sources), weights: &self.weights }
    }
}

/// The batch of `targets` that part `asker` gets from all parts.
pub fn sample_across(parts: &Parts, sampler: &dyn Sampler, asker: usize, targets: &[u64], key: Key) -> Batch {
    sample_without(parts, sampler, (asker, &mut Draft::default()), targets, &[], key)
}

/// The same without the `excluded` edges (source, target), and with a draft that may have been used before.
pub fn sample_without(
    parts: &Parts,
    sampler: &dyn Sampler,
    (asker, draft): (usize, &mut Draft),
    targets: &[u64],
    excluded: &[(u64, u64)],
    key: Key,
) -> Batch {
    let part = &parts.all[asker];
    let draw = |from: usize, rows: &[u32], hop: Hop| {
        let mut drawn = Drawn::default();
        sampler.draw(&parts.lists(from), rows, hop, &mut Scratch::default(), &mut drawn);
        drawn.look_up(&parts.lists(from));
        drawn
    };
    draft.begin(part, &parts.globals(targets));
    let global = |node: u64| parts.global[node as usize];
    draft.exclude(part, excluded.iter().map(|&(source, target)| (global(source), global(target))));
    for number in 0..sampler.hops() {
        let hop = Hop::new(number, key);
        let question = draft.question(part);
        assert_eq!(question.asked.len(), parts.all.len());
        // Own rows in pieces, one of them empty; those who are not asked say nothing.
        let mut pieces: Vec<Drawn> =
            question.asked[asker].rows.chunks(3).map(|rows| draw(asker, rows, hop)).collect();
        pieces.insert(pieces.len() / 2, Drawn::default());
        let told: Vec<Told> = (0..parts.all.len())
            .map(|from| match &question.asked[from].rows[..] {
                rows if from != asker && !rows.is_empty() => Told::new(parts, from, draw(from, rows, hop)),
                _ => Told::default(),
            })
            .collect();
        let mut answers: Vec<Answer<'_>> = told.iter().map(Told::answer).collect();
        answers[asker] = Answer::Here(&pieces);
        draft.stitch(part, &question, &answers);
    }
    in_originals(parts, draft.finish())
}

/// The batch of `targets` on the only part.
pub fn sample_alone(parts: &Parts, sampler: &dyn Sampler, targets: &[u64], key: Key) -> Batch {
    let (mut draft, mut scratch) = (Draft::default(), Scratch::default());
    let batch =
        sample::sample(sampler, &parts.lists(0), &parts.globals(targets), key, &mut draft, &mut scratch);
    in_originals(parts, batch)
}

fn in_originals(parts: &Parts, batch: Batch) -> Batch {
    let nodes = batch.nodes.iter().map(|&id| parts.original[id as usize]).collect();
    Batch { nodes, ..batch }
}

/// The in-edges of `row` in a block of a batch with these nodes.
pub fn drawn(block: &Block, nodes: &[u64], row: usize) -> Vec<InEdge> {
    let edge = |edge: usize| {
        let weight = block.incoming.weights.get(edge).copied().unwrap_or(1.0);
        (nodes[block.incoming.neighbors[edge] as usize], weight.to_bits())
    };
    block.incoming.range(row).map(edge).collect()
}
