//! How well are links told from pairs of nodes that are none? Exact scores of held-out links on all ranks.
//!
//! Every rank has the final rows of the nodes that it owns and the links that end in them. A link is compared with
//! false ones: the same source, and targets drawn from all nodes. The draws are a function of the seed and the link,
//! so a link meets the same false ones in every epoch. Rows of other ranks are asked for once, each row once; counts
//! are summed over ranks, so the score is the same on all of them. Nothing here trains.

use crate::Result;
use crate::decoder::{Pairs, Scorer};
use crate::metric::{Metric, Ranks, Wins};
use crate::tape::{Input, Matrix, Tape};
use archipelago_comm::{Comm, Kind, Phase};
use archipelago_graph::links::Pair;
use archipelago_graph::marks::Marks;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::{GlobalId, Link, Part};
use std::sync::Arc;

/// Pairs that are scored at a time: what bounds memory beside the rows themselves.
const AT_ONCE: usize = 1 << 16;

/// What stands in the place of the epoch in the draws of training.
const EVALUATION: u64 = u64::MAX;

/// The final rows of the nodes that this rank owns.
#[derive(Clone, Copy)]
pub struct OwnRows<'a> {
    /// How to reach the rows of other ranks.
    pub comm: &'a Comm,
    /// Who owns which.
    pub part: &'a Part,
    /// One row for each owned node, in the order of the part.
    pub values: &'a [f32],
    /// Numbers per row.
    pub width: usize,
}

/// Rows in the order of a part from rows of which the `i`-th is the part's row `order[i]`: what an exact pass over all
/// nodes gives.
pub fn in_part_order(order: &[u32], rows: &[f32], width: usize) -> Vec<f32> {
    let mut ordered = vec![0.0; rows.len()];
    for (&row, values) in order.iter().zip(rows.chunks_exact(width.max(1))) {
        ordered[row as usize * width..][..width].copy_from_slice(values);
    }
    ordered
}

/// Links to be told from false ones.
#[derive(Debug, Clone, Copy)]
pub struct Examination<'a> {
    /// The links; those of this rank.
    pub links: &'a [Link],
    /// False links for each.
    pub negatives: usize,
    /// Seed of the false ones.
    pub seed: u64,
}

/// How links of all ranks compare with false ones.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkScores {
    area: Option<f64>,
    ranks: Ranks,
}

impl LinkScores {
    /// The score: ROC-AUC of all links against all false ones, or MRR or Hits@k of each link among its own. `None` of
    /// no links.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::RocAuc => self.area,
            _ => self.ranks.score(metric),
        }
    }
}

impl Examination<'_> {
    /// The false targets of `link` in a graph of `nodes` nodes: global ids, never its own target.
    pub fn false_targets(&self, link: Link, nodes: u64) -> impl Iterator<Item = u64> + use<> {
        let key = Key::new(self.seed, Purpose::Negative).with(EVALUATION).with(link.source).with(link.target);
        let others = nodes.saturating_sub(1);
        let draw = move |counter| key.below(counter, others);
        (0..self.negatives as u64).map(draw).map(move |node| node + u64::from(node >= link.target))
    }
}

/// Scores the links of all ranks. Every rank must call it, also without links.
pub fn evaluate_links(
    tape: &mut Tape,
    scorer: &Scorer,
    own: OwnRows<'_>,
    asked: Examination<'_>,
) -> Result<LinkScores> {
    own.comm.enter(Phase::new("evaluate links"));
    let table = Table::fetch(tape, own, asked)?;
    let positives = table.true_scores(tape, scorer, asked.links);
    let gathered = own.comm.all_gather(&positives, Kind::Control)?;
    let mut wins = Wins::new(gathered.concat());
    let mut ranks = Ranks::new(asked.negatives);
    let nodes = own.part.starts().last().copied().unwrap_or(0);
    let mut pairs = PairList::default();
    let block = (AT_ONCE / asked.negatives.max(1)).max(1);
    for (links, positives) in asked.links.chunks(block).zip(positives.chunks(block)) {
        pairs.clear();
        for &link in links {
            let source = table.place.rank(link.source);
            let targets = asked.false_targets(link, nodes);
            targets.for_each(|target| pairs.push(source, table.place.rank(target), link.kind));
        }
        let scores = table.scores(tape, scorer, pairs.pairs());
        for (&positive, negatives) in positives.iter().zip(scores.chunks(asked.negatives.max(1))) {
            ranks.add(positive, negatives);
            negatives.iter().for_each(|&negative| wins.add(negative));
        }
    }
    own.comm.all_reduce_sum_u64(wins.counts_mut(), Kind::Control)?;
    own.comm.all_reduce_sum_u64(ranks.counts_mut(), Kind::Control)?;
    Ok(LinkScores { area: wins.area(), ranks })
}

/// The score of each of `pairs`, in their order, at rank 0, whose pairs count; nothing elsewhere. Every rank must call
/// it.
pub fn score_pairs(
    tape: &mut Tape,
    scorer: &Scorer,
    own: OwnRows<'_>,
    pairs: &[Pair],
) -> Result<Option<Vec<f32>>> {
    own.comm.enter(Phase::new("score links"));
    let links = in_global_ids(own, if own.comm.rank() == 0 { pairs } else { &[] })?;
    let table = Table::fetch(tape, own, Examination { links: &links, negatives: 0, seed: 0 })?;
    Ok((own.comm.rank() == 0).then(|| table.true_scores(tape, scorer, &links)))
}

/// Pairs of original ids as links of global ones: every rank tells the new ids of the nodes that it owns.
fn in_global_ids(own: OwnRows<'_>, pairs: &[Pair]) -> Result<Vec<Link>> {
    let (comm, part) = (own.comm, own.part);
    let nodes = part.starts().last().copied().unwrap_or(0);
    let mut place = Marks::new(nodes as usize);
    for pair in pairs {
        place.mark(pair.source);
        place.mark(pair.target);
    }
    let wanted = comm.all_gather(&place.ranked(), Kind::Control)?.concat();
    // Rows of a part are in ascending original id.
    let row = |&node: &u64| part.original().binary_search(&node).ok();
    let known = wanted.iter().filter_map(|node| Some([*node, part.range().start + row(node)? as u64]));
    let known: Vec<u64> = known.flatten().collect();
    let Some(known) = comm.gather(0, &known, Kind::Control)? else { return Ok(Vec::new()) };
    let mut global = vec![0; wanted.len()];
    for two in known.iter().flat_map(|known| known.chunks_exact(2)) {
        global[place.rank(two[0]) as usize] = two[1];
    }
    let global = |node: u64| global[place.rank(node) as usize];
    Ok(pairs.iter().map(|pair| Link::new(global(pair.source), global(pair.target), pair.kind)).collect())
}

/// The rows of all nodes that are in a pair, in ascending global id.
struct Table {
    rows: Input,
    place: Marks,
}

impl Table {
    /// Asks their owners for the rows of all ends of true and false links.
    fn fetch(tape: &mut Tape, own: OwnRows<'_>, asked: Examination<'_>) -> Result<Self> {
        let (part, width) = (own.part, own.width);
        let nodes = part.starts().last().copied().unwrap_or(0);
        let mut place = Marks::new(nodes as usize);
        for &link in asked.links {
            place.mark(link.source);
            place.mark(link.target);
            asked.false_targets(link, nodes).for_each(|target| place.mark(target));
        }
        let wanted = place.ranked();
        let mut requests = vec![Vec::new(); own.comm.size()];
        for &node in &wanted {
            let owner = part.owner_of(GlobalId(node)).index();
            requests[owner].push((node - part.starts()[owner]) as u32);
        }
        let requests = own.comm.all_to_all(requests, Kind::Control)?;
        let row = |&row: &u32| &own.values[row as usize * width..][..width];
        let replies = requests.iter().map(|rows| rows.iter().flat_map(row).copied().collect()).collect();
        let replies = own.comm.all_to_all::<f32>(replies, Kind::Embeddings)?;
        // Owners have ascending ranges: their rows one after another are in ascending global id.
        let mut values = tape.arena.take(wanted.len() * width);
        let mut rest = &mut values[..];
        for reply in &replies {
            let (stretch, after) = rest.split_at_mut(reply.len());
            stretch.copy_from_slice(reply);
            rest = after;
        }
        let rows = Input::Dense(Arc::new(Matrix { rows: wanted.len(), cols: width, values: values.into() }));
        Ok(Self { rows, place })
    }

    /// The scores of `links`, in their order.
    fn true_scores(&self, tape: &mut Tape, scorer: &Scorer, links: &[Link]) -> Vec<f32> {
        let mut scores = Vec::with_capacity(links.len());
        let mut pairs = PairList::default();
        for links in links.chunks(AT_ONCE) {
            pairs.clear();
            let row = |node| self.place.rank(node);
            links.iter().for_each(|link| pairs.push(row(link.source), row(link.target), link.kind));
            scores.extend_from_slice(self.scores(tape, scorer, pairs.pairs()));
        }
        scores
    }

    fn scores<'a>(&self, tape: &'a mut Tape, scorer: &Scorer, pairs: Pairs<'_>) -> &'a [f32] {
        tape.begin_evaluation();
        let rows = tape.constant(&self.rows, self.rows.rows());
        let scores = scorer.scores(tape, rows, pairs);
        tape.value(scores)
    }
}

/// Pairs of rows, and memory for the next ones.
#[derive(Default)]
struct PairList {
    left: Vec<u32>,
    right: Vec<u32>,
    kinds: Vec<u32>,
}

impl PairList {
    fn clear(&mut self) {
        self.left.clear();
        self.right.clear();
        self.kinds.clear();
    }

    fn push(&mut self, left: u32, right: u32, kind: u32) {
        self.left.push(left);
        self.right.push(right);
        self.kinds.push(kind);
    }

    fn pairs(&self) -> Pairs<'_> {
        Pairs { left: &self.left, right: &self.right, kinds: &self.kinds }
    }
}
