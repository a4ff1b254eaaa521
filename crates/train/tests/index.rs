//! What an index says of a batch, beside a search of the whole graph: rows, edges, and the ends of every route.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::{Comm, Config, launch};
use archipelago_graph::PartId;
use archipelago_graph::block::EdgeValues;
use archipelago_graph::dataset::{Dataset, EdgeChunk, EdgeColumns, MemoryEdges};
use archipelago_graph::partition::Assignment;
use archipelago_train::Error;
use archipelago_train::index::{Active, Index, Placement, Wanted, Within};
use archipelago_train::view::Layout;
use common::{TempStore, cut_as, graph};
use proptest::prelude::*;
use std::collections::BTreeSet;

const PLACEMENTS: [Placement; 4] =
    [Placement::Destination, Placement::Source, Placement::Grid, Placement::Cover];

/// A graph in pieces, and what is asked of it; nodes by their original ids.
#[derive(Debug, Clone)]
struct Question {
    nodes: u64,
    edges: Vec<(u64, u64)>,
    part_of: Vec<u32>,
    parts: u32,
    targets: BTreeSet<u64>,
    inside: Option<BTreeSet<u64>>,
    layers: usize,
    all_hidden_rows: bool,
}

/// An edge: which of the graph's it is, source, target, weight as bits.
type Edge = (u64, u64, u64, u32);

fn weight(edge: usize) -> f32 {
    1.0 + (edge % 5) as f32 / 4.0
}

fn questions() -> impl Strategy<Value = Question> {
    (1u64..24, 1u32..7, 1usize..4, any::<bool>(), any::<bool>()).prop_flat_map(
        |(nodes, parts, layers, all_hidden_rows, cluster)| {
            let node = 0..nodes;
            let edges = prop::collection::vec((node.clone(), node.clone()), 0..60);
            let part_of = prop::collection::vec(0..parts, nodes as usize);
            let some = || prop::collection::btree_set(0..nodes, 0..nodes as usize);
            (edges, part_of, some(), some()).prop_map(move |(edges, part_of, mut targets, inside)| {
                if cluster {
                    targets.retain(|node| inside.contains(node));
                }
                let inside = cluster.then_some(inside);
                Question { nodes, edges, part_of, parts, targets, inside, layers, all_hidden_rows }
            })
        },
    )
}

impl Question {
    /// The graph, each of whose edges has a number of its own as attribute.
    fn store(&self) -> TempStore {
        let mut dataset: Dataset = graph(self.nodes, &[], Vec::new());
        dataset.edges = Box::new(MemoryEdges::new(
            EdgeChunk {
                sources: self.edges.iter().map(|edge| edge.0).collect(),
                targets: self.edges.iter().map(|edge| edge.1).collect(),
                weights: (0..self.edges.len()).map(weight).collect(),
                types: (0..self.edges.len() as u32).map(|edge| edge % 3).collect(),
                attributes: (0..self.edges.len()).map(|edge| edge as f32).collect(),
            },
            1,
        ));
        dataset.edge_columns = EdgeColumns { weighted: true, types: 3, attribute_width: 1 };
        let assignment = Assignment { parts: self.parts, part_of: self.part_of.clone() };
        cut_as(&mut dataset, &assignment, "by hand")
    }

    fn is_inside(&self, node: u64) -> bool {
        self.inside.as_ref().is_none_or(|inside| inside.contains(&node))
    }

    /// Rows of each layer, input rows first, and the edges of each layer.
    fn answer(&self) -> (Vec<BTreeSet<u64>>, Vec<Vec<Edge>>) {
        let (mut rows, mut edges) = (vec![self.targets.clone()], Vec::new());
        for _ in 0..self.layers {
            let mut of_layer = self.edges_to(&rows[0]);
            of_layer.sort_unstable();
            let mut before = rows[0].clone();
            before.extend(of_layer.iter().map(|edge| edge.1));
            if self.all_hidden_rows {
                before.extend((0..self.nodes).filter(|&node| self.is_inside(node)));
            }
            rows.insert(0, before);
            edges.insert(0, of_layer);
        }
        (rows, edges)
    }

    fn edges_to(&self, targets: &BTreeSet<u64>) -> Vec<Edge> {
        let kept = |edge: &(usize, &(u64, u64))| targets.contains(&edge.1.1) && self.is_inside(edge.1.0);
        let edge =
            |(at, &(source, target)): (usize, &(u64, u64))| (at as u64, source, target, weight(at).to_bits());
        self.edges.iter().enumerate().filter(kept).map(edge).collect()
    }

    /// Weighted degree of a node among those inside.
    fn degree(&self, node: u64) -> f32 {
        self.edges_to(&BTreeSet::from([node])).iter().map(|edge| f32::from_bits(edge.3)).sum()
    }
}

/// Runs `work` on every rank with its index; what it gives, in rank order.
fn on_ranks<T: Send>(
    store: &TempStore,
    placement: Placement,
    work: impl Fn(&Comm, &mut Index) -> Result<T, Error> + Sync,
) -> Vec<T> {
    let ranks = store.store.parts() as usize;
    let outcome = launch(&Config::threads(ranks), |comm| {
        let part = store.store.part(PartId(comm.rank() as u32))?;
        let mut index = Index::agree(&part, &comm, placement, true)?;
        work(&comm, &mut index)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

/// The batch that a question asks for, and another one before it: nothing may be left of that.
fn batch(question: &Question, comm: &Comm, index: &mut Index) -> Result<Active, Error> {
    let every: Vec<u32> = (0..index.owned() as u32).step_by(2).collect();
    index.batch(
        comm,
        Wanted { targets: &every, layers: 2, all_hidden_rows: false, within: None, places: None },
    )?;
    let own = &index.originals()[..index.owned()];
    let target = |row: &u32| question.targets.contains(&own[*row as usize]);
    let targets: Vec<u32> = (0..index.owned() as u32).filter(target).collect();
    let inside: Vec<bool> = index.originals().iter().map(|&node| question.is_inside(node)).collect();
    let degrees = index.degrees_within(comm, &inside)?;
    let within = question.inside.as_ref().map(|_| Within { inside: &inside, degrees: &degrees });
    let (layers, all_hidden_rows) = (question.layers, question.all_hidden_rows);
    let downwards: Vec<u32> = (0..index.owned() as u32).rev().collect();
    let places = targets.len().is_multiple_of(2).then_some(&downwards[..]);
    index.batch(comm, Wanted { targets: &targets, layers, all_hidden_rows, within, places })
}

/// The edges of a layer on one rank, with those of mirrors.
fn edges_of(layout: &Layout) -> Vec<Edge> {
    let values: &EdgeValues = layout.edges.as_ref().unwrap();
    let own = (&*layout.block, &layout.nodes[..]);
    let mirrored = layout.mirrors.iter().map(|mirrors| (&mirrors.block, &mirrors.nodes[..]));
    let mut edges = Vec::new();
    for (block, targets) in std::iter::once(own).chain(mirrored) {
        for (target, &node) in targets.iter().enumerate().take(block.targets) {
            for at in block.incoming.range(target) {
                let place = block.incoming.places[at] as usize;
                let (edge, source) = (values.attributes[place] as u64, block.incoming.neighbors[at]);
                assert_eq!(u64::from(values.types[place]), edge % 3);
                let weight = block.incoming.weights[at].to_bits();
                edges.push((edge, layout.nodes[source as usize], node, weight));
            }
        }
    }
    edges
}

/// Rows that one rank sends another are those that the other expects, in its order; likewise copies and mirrors.
fn routes_meet(layers: &[&Layout]) {
    let stretch = |counts: &[usize], rank: usize| {
        let first: usize = counts[..rank].iter().sum();
        first..first + counts[rank]
    };
    for (here, layout) in layers.iter().enumerate() {
        for (there, other) in layers.iter().enumerate() {
            let sent = layout.routes.send[there].iter().map(|&row| layout.nodes[row as usize]);
            let halo = &other.nodes[other.block.local..][stretch(&other.routes.receive, here)];
            assert_eq!(sent.collect::<Vec<_>>(), halo);
            if let (Some(near), Some(far)) = (&layout.mirrors, &other.mirrors) {
                let copies = &near.copies[stretch(&near.holders, there)];
                let copied = copies.iter().map(|&row| layout.nodes[row as usize]);
                assert_eq!(copied.collect::<Vec<_>>(), far.nodes[stretch(&far.masters, here)]);
            }
        }
    }
}

fn check(question: &Question, placement: Placement) {
    let (rows, edges) = question.answer();
    let store = question.store();
    let ranks = on_ranks(&store, placement, |comm, index| {
        let active = batch(question, comm, index)?;
        let originals: Vec<u64> = active.order.iter().map(|&row| index.originals()[row as usize]).collect();
        Ok((active, originals))
    });
    let union =
        |rows: &mut dyn Iterator<Item = &[u64]>| -> BTreeSet<u64> { rows.flatten().copied().collect() };
    assert_eq!(union(&mut ranks.iter().map(|rank| &rank.1[..])), rows[0]);
    for layer in 0..question.layers {
        let layouts: Vec<&Layout> = ranks.iter().map(|rank| &*rank.0.layers[layer]).collect();
        for (layout, (_, order)) in layouts.iter().zip(&ranks) {
            let (targets, local) = (layout.block.targets, layout.block.local);
            assert_eq!(layout.nodes[..local], order[..local], "rows of a layer are a prefix");
            assert!(
                layer + 1 < question.layers
                    || targets == order.iter().filter(|node| question.targets.contains(node)).count()
            );
            for (row, &node) in layout.nodes.iter().enumerate() {
                assert_eq!(layout.degrees[row], question.degree(node), "degree of {node}");
            }
        }
        let computed = union(&mut layouts.iter().map(|layout| &layout.nodes[..layout.block.targets]));
        assert_eq!(computed, rows[layer + 1], "layer {layer}");
        let mut found: Vec<Edge> = layouts.iter().flat_map(|layout| edges_of(layout)).collect();
        found.sort_unstable();
        assert_eq!(found, edges[layer], "layer {layer}");
        for (rank, layout) in layouts.iter().enumerate() {
            for (_, source, target, _) in edges_of(layout) {
                let part = |node: u64| question.part_of[node as usize] as usize;
                match placement.holder(part(source), part(target), question.parts as usize) {
                    Some(holder) => assert_eq!(holder, rank),
                    None => assert!([part(source), part(target)].contains(&rank)),
                }
            }
        }
        routes_meet(&layouts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_batch_has_the_rows_and_edges_of_a_search_of_the_whole_graph(question in questions()) {
        for placement in PLACEMENTS {
            check(&question, placement);
        }
    }

    #[test]
    fn a_hop_marks_all_sources_of_marked_rows_and_rows_know_what_their_owners_know(question in questions()) {
        let (store, marked) = (question.store(), &question.targets);
        let mut expected = marked.clone();
        expected.extend(question.edges.iter().filter(|edge| marked.contains(&edge.1)).map(|edge| edge.0));
        for placement in PLACEMENTS {
            on_ranks(&store, placement, |comm, index| {
                let own = &index.originals()[..index.owned()];
                let spread = index.spread(comm, own.iter().map(|node| 3 * node).collect())?;
                assert!(spread.iter().zip(index.originals().iter()).all(|(found, node)| *found == 3 * node));
                let mut marks: Vec<bool> = own.iter().map(|node| marked.contains(node)).collect();
                marks.resize(index.rows(), false);
                index.widen(comm, &mut marks)?;
                for (&node, mark) in index.originals().iter().zip(marks) {
                    assert_eq!(mark, expected.contains(&node), "node {node}");
                }
                Ok(())
            });
        }
    }
}
