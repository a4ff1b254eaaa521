//! What a rank trains on: its share of the training nodes with their labels, or of the links; and what a step makes of
//! them.

use super::negative::NodeSpace;
use super::operators::Operators;
use super::share::Shares;
use crate::Result;
use crate::worker::{TargetLabels, Worker};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::store::PartLabels;
use archipelago_graph::{Link, Part};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Everything a rank trains on.
pub(super) enum Items {
    /// Nodes whose labels are learned.
    Nodes {
        /// Global ids.
        nodes: Vec<u64>,
        labels: Labels,
    },
    /// Links that are told from false ones.
    Links { links: Vec<Link>, undirected: bool, negatives: usize, excluded: bool },
}

/// The labels of all items of a rank.
pub(super) enum Labels {
    Classes(Vec<i64>),
    Multi(usize, Vec<u8>),
}

impl Labels {
    /// Those of these rows of `part`.
    fn of(part: &Part, rows: &[u32]) -> Self {
        match part.labels() {
            PartLabels::Multi(values) => {
                let width = part.classes();
                let row = |row: &u32| values[*row as usize * width..][..width].iter().copied();
                Self::Multi(width, rows.iter().flat_map(row).collect())
            }
            PartLabels::Classes(values) => {
                Self::Classes(rows.iter().map(|&row| values[row as usize]).collect())
            }
            PartLabels::None => Self::Classes(Vec::new()),
        }
    }
}

/// Links of a batch as pairs of its target rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkBatch {
    /// Row of the source of each link: true links first, then the false ones of each in turn.
    pub left: Vec<u32>,
    /// Row of its target.
    pub right: Vec<u32>,
    /// Its edge type.
    pub kinds: Vec<u32>,
    /// How many links are true.
    pub positives: usize,
    /// False links for each true one.
    pub negatives: usize,
}

/// What a step computes.
#[derive(Debug, Default)]
pub(super) struct Seeded {
    /// The items, in the order of the targets where items are nodes.
    pub items: Vec<u32>,
    /// Nodes to compute, global ids.
    pub targets: Vec<u64>,
    /// Where items are links: how they pair the targets.
    pub links: Option<LinkBatch>,
    /// Edges (source and target) that no message may pass along.
    pub excluded: Vec<(u64, u64)>,
}

impl Items {
    /// Deals out the training nodes of all ranks.
    pub fn nodes(worker: &Worker) -> Result<(Self, Shares)> {
        let (comm, part, rows) = (&*worker.comm, &worker.part, &worker.labelled);
        let shares = Shares::agree(comm, rows.len())?;
        let start = part.range().start;
        let nodes = rows.iter().map(|&row| start + u64::from(row)).collect();
        let nodes = shares.deal(comm, nodes, 1)?;
        let labels = match Labels::of(part, rows) {
            Labels::Multi(width, values) => Labels::Multi(width, shares.deal(comm, values, width)?),
            none if part.labels() == PartLabels::None => none,
            Labels::Classes(classes) => Labels::Classes(shares.deal(comm, classes, 1)?),
        };
        Ok((Self::Nodes { nodes, labels }, shares))
    }

    /// These rows of a part that is all there is, with their labels.
    pub fn on_island(part: &Part, rows: &[u32]) -> Self {
        Self::Nodes {
            nodes: rows.iter().map(|&row| u64::from(row)).collect(),
            labels: Labels::of(part, rows),
        }
    }

    /// Deals out the training links of all ranks.
    pub fn links(worker: &Worker, links: &[Link]) -> Result<(Self, Shares)> {
        let shares = Shares::agree(&worker.comm, links.len())?;
        let links = shares.deal(&worker.comm, links.to_vec(), 1)?;
        let (undirected, negatives) = (worker.part.undirected(), worker.config.train.negatives);
        let excluded = worker.config.train.exclude_targets;
        Ok((Self::Links { links, undirected, negatives, excluded }, shares))
    }

    /// How many items there are on this rank.
    pub fn len(&self) -> usize {
        match self {
            Self::Nodes { nodes, .. } => nodes.len(),
            Self::Links { links, .. } => links.len(),
        }
    }

    /// What the step that trains on `items` computes; `epoch` is the key of draws of false links.
    pub fn seed(&self, items: Vec<u32>, operators: &Operators, space: NodeSpace<'_>, epoch: Key) -> Seeded {
        match self {
            Self::Nodes { nodes, .. } => {
                let targets = items.iter().map(|&item| nodes[item as usize]).collect();
                Seeded { items, targets, ..Seeded::default() }
            }
            Self::Links { links, undirected, negatives, excluded } => {
                let seeds: Vec<Link> = items.iter().map(|&item| links[item as usize]).collect();
                let positives = operators.positives.links(&seeds, epoch);
                let drawn = operators.negatives.draw(space, &positives, *negatives, epoch);
                let (targets, links) = pair_up(&positives, &drawn, *negatives);
                let excluded = if *excluded { predicted(&positives, *undirected) } else { Vec::new() };
                Seeded { items, targets, links: Some(links), excluded }
            }
        }
    }

    /// The labels of these items; none where items are links.
    pub fn labels(&self, items: &[u32]) -> Option<TargetLabels> {
        match self {
            Self::Nodes { labels: Labels::Classes(classes), .. } => {
                let classes = items.iter().map(|&item| classes[item as usize]).collect();
                Some(TargetLabels::classes(classes))
            }
            Self::Nodes { labels: Labels::Multi(width, labels), .. } => {
                let row = |item: &u32| labels[*item as usize * width..][..*width].iter().copied();
                Some(TargetLabels::multi(items.len(), items.iter().flat_map(row).collect()))
            }
            Self::Links { .. } => None,
        }
    }
}

/// Edges that a batch must not read: those it predicts, and their reverse where every edge has one.
fn predicted(positives: &[Link], undirected: bool) -> Vec<(u64, u64)> {
    let there = positives.iter().map(|link| (link.source, link.target));
    let back = positives.iter().filter(|_| undirected).map(|link| (link.target, link.source));
    there.chain(back).collect()
}

/// Nodes of all links, each once, and the links as pairs of them.
fn pair_up(positives: &[Link], negatives: &[u64], each: usize) -> (Vec<u64>, LinkBatch) {
    let mut targets = Vec::new();
    let mut rows = Index::default();
    let mut row = |node: u64| {
        *rows.entry(node).or_insert_with(|| {
            targets.push(node);
            targets.len() as u32 - 1
        })
    };
    let mut batch = LinkBatch { positives: positives.len(), negatives: each, ..LinkBatch::default() };
    for link in positives {
        batch.left.push(row(link.source));
        batch.right.push(row(link.target));
        batch.kinds.push(link.kind);
    }
    for (link, drawn) in positives.iter().zip(negatives.chunks(each.max(1))) {
        for &node in drawn {
            batch.left.push(row(link.source));
            batch.right.push(row(node));
            batch.kinds.push(link.kind);
        }
    }
    (targets, batch)
}

/// Nodes that stand for the in-degrees of the whole graph: what a list of so many nodes may hold.
const DEGREE_DRAWS: u64 = 1 << 16;

/// Draws nodes of the whole graph, each likely by its in-degree: the edges of all ranks in a row are cut into equal
/// stretches, one edge is drawn from each, and its target is taken. All ranks get the same list.
pub(super) fn draw_by_degree(comm: &Comm, part: &Part, seed: u64, epoch: u64) -> Result<Vec<u64>> {
    let counts = comm.all_gather(&[part.edges() as u64], Kind::Control)?;
    let counts: Vec<u64> = counts.iter().map(|count| count[0]).collect();
    let (before, all) = (counts[..comm.rank()].iter().sum::<u64>(), counts.iter().sum::<u64>());
    let key = Key::new(seed, Purpose::Negative).with(epoch).with(DEGREE_DRAWS);
    let edge = |slot: u64| ((slot as f64 + key.unit(slot)) * all as f64 / DEGREE_DRAWS as f64) as u64;
    let own = before..before + counts[comm.rank()];
    let target = |edge: u64| {
        let row = part.offsets().partition_point(|&start| start <= edge - before) - 1;
        part.range().start + row as u64
    };
    let mine: Vec<u64> = (0..DEGREE_DRAWS).map(edge).filter(|edge| own.contains(edge)).map(target).collect();
    Ok(comm.all_gather(&mine, Kind::Control)?.concat())
}

/// Where nodes stand among the targets of a batch.
type Index = HashMap<u64, u32, BuildHasherDefault<IdHash>>;

/// Spreads node ids, which are distinct but not random, over the bits that a table looks at.
#[derive(Default)]
struct IdHash(u64);

impl Hasher for IdHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, id: u64) {
        let spread = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_pairs_of_distinct_targets_and_leave_the_messages_both_ways() {
        let positives = [Link::new(10, 20, 1), Link::new(20, 30, 0)];
        let (targets, batch) = pair_up(&positives, &[10, 40, 30, 50], 2);
        assert_eq!(targets, [10, 20, 30, 40, 50]);
        assert_eq!((batch.positives, batch.negatives), (2, 2));
        assert_eq!(batch.left, [0, 1, 0, 0, 1, 1]);
        assert_eq!(batch.right, [1, 2, 0, 3, 2, 4]);
        assert_eq!(batch.kinds, [1, 0, 1, 1, 0, 0]);
        assert_eq!(predicted(&positives, false), [(10, 20), (20, 30)]);
        assert_eq!(predicted(&positives, true).len(), 4);
    }
}
