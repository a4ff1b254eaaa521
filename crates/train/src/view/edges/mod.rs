//! The general verb: whatever a layer computes of each edge, summed over the in-edges of each target.
//!
//! A layer sees [`Edges`]: a stretch of edges side by side, whose rows it computes on the tape from what source and target
//! sent and from what stands on the edge. A stretch is small enough for a cache, and nothing of an edge outlives it: the
//! backward pass computes the rows of a stretch again. So memory does not grow with the edges of a graph, only with those of
//! its largest target, which are never cut, at the price of a second forward pass.

mod stretch;
mod backward;

pub use stretch::Edges;

use super::mirrors::{Averages, add_at_masters, join_at_masters, to_mirrors};
use super::{Layout, Mirrors, Sources, View};
use crate::boundary::{Crossing, Relay};
use crate::ops::Rows;
use crate::ops::attention::EdgeDropout;
use crate::ops::moving::scale_rows;
use crate::parameters::Names;
use crate::tape::{Aside, Buffer, Tape, Var};
use crate::{Error, Result};
use archipelago_graph::Block;
use archipelago_graph::random::Key;
use backward::{Edgewise, Saved};
use std::borrow::Cow;
use std::iter;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use stretch::Cut;

/// What a layer computes of edges.
pub trait OnEdges: Send + Sync {
    /// The weights that messages may read.
    fn names(&self) -> &Names;

    /// The messages of these edges: a row for each, and scores where they are averaged by them.
    fn messages(&self, edges: &mut Edges<'_>) -> Messages;
}

/// What passes along a stretch of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages {
    /// A row for each edge.
    pub rows: Var,
    /// A score for each edge and head, where rows are averaged by the softmax of their scores.
    pub scores: Option<Var>,
}

/// How the messages of a target's in-edges become one row; 0 where there is no edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EdgeSum {
    /// Their sum, each times the weight of its edge.
    Add,
    /// The same over the sum of the weights.
    Mean,
    /// Their element-wise maximum.
    Max,
    /// Their average by the softmax of their scores, of which this share is dropped in training.
    Softmax {
        /// Share of coefficients dropped in training.
        dropout: f32,
    },
}

/// What a layer sends into its edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRows {
    /// Rows of the sources, which cross part borders.
    pub source: Var,
    /// Rows of the targets, where messages read any.
    pub target: Option<Var>,
}
/// How wide messages are and how many heads they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Width {
    rows: usize,
    heads: usize,
}
impl View<'_> {
    /// Sums up what `layer` computes of the in-edges of each target.
    pub fn gather_edges(&mut self, layer: &Arc<dyn OnEdges>, sent: SentRows, sum: EdgeSum) -> Result<Var> {
        let sent = SentRows {
            source: self.tape.dense(sent.source),
            target: sent.target.map(|rows| self.tape.dense(rows)),
        };
        let ends = (self.tape.cols(sent.source), sent.target.map_or(0, |target| self.tape.cols(target)));
        let width = self.probe(layer.names(), ends, |edges| {
            let messages = layer.messages(edges);
            let heads = messages.scores.map_or(1, |scores| edges.tape.cols(scores));
            Width { rows: edges.tape.cols(messages.rows), heads }
        });
        let Width { rows, heads } = width;
        let layout = Arc::clone(self.layout);
        let (crossing, sources) = (self.crossing(sent.source), self.sources(sent.source)?);
        let key = self.tape.attention_key(self.layer);
        let targets = layout.block.targets;
        let mut halo = self.tape.arena.take(layout.block.halo * crossing.width);
        let mut output = self.tape.arena.take(targets * rows);
        let mut logsumexp = self.tape.arena.take(targets * heads);
        let near = Side { block: &layout.block, target: sent.target, mirrored: None };
        let job = Job { layer: &**layer, sum, width, key, layout: &layout, crossing };
        let runs = runs(&layout.block);
        let [interior, border] = &*runs;
        if layout.crosses() {
            self.boundary.depart(crossing, &layout, self.tape.value(sources.read))?;
        }
        let meanwhile = self.boundary.overlaps();
        for (runs, arrives) in [(interior, !meanwhile), (border, meanwhile)] {
            if arrives && layout.crosses() {
                self.boundary.arrive(crossing, &layout, &mut halo)?;
            }
            let whole = Averages { average: &mut output, logsumexp: &mut logsumexp };
            job.sum_up(self.tape, near, runs, sources, &halo, whole);
        }
        let mirrored = match &layout.mirrors {
            Some(mirrors) => {
                let whole = Averages { average: &mut output, logsumexp: &mut logsumexp };
                job.join_mirrors(self, mirrors, sent.target, sources, &halo, whole)?
            }
            None => self.tape.arena.take(0),
        };
        self.join(sum, crossing, &mut output, &mut logsumexp, width);
        let kept = [Some(sources.read), Some(sent.source), sent.target];
        kept.into_iter().flatten().for_each(|var| self.tape.keep(var));
        let output = self.tape.computed(targets, rows, output, true);
        if matches!(sum, EdgeSum::Softmax { .. }) {
            self.tape.keep(output);
        }
        let mut saved = Some(Saved { halo, logsumexp, mirrored });
        if let Some(unread) = saved.take_if(|_| !self.tape.training) {
            unread.give_back(self.tape);
        }
        let (layer, target) = (Arc::clone(layer), sent.target);
        let op = Edgewise { layer, sum, width, key, layout, crossing, sources, target, output, saved };
        self.tape.record(output, op);
        Ok(output)
    }

    /// Scales what was summed up, and lets the boundary join it with what it remembers.
    fn join(
        &mut self,
        sum: EdgeSum,
        crossing: Crossing,
        output: &mut [f32],
        logsumexp: &mut [f32],
        width: Width,
    ) {
        let (pool, layout) = (&self.tape.pool, &**self.layout);
        if sum == EdgeSum::Mean {
            scale_rows(pool, layout.means(), width.rows, output);
        }
        let crossing = Crossing { width: width.rows, ..crossing };
        match sum {
            EdgeSum::Softmax { .. } => {
                self.boundary.join_attention(pool, crossing, layout, output, logsumexp);
            }
            EdgeSum::Add | EdgeSum::Mean if self.boundary.remembers(crossing.layer) => {
                self.boundary.join_sums(pool, crossing, layout, output);
            }
            _ => {}
        }
    }
}
/// Targets that are computed while rows of other parts are under way, and those that need them. All wait where those that need
/// none do not stand together.
fn runs(block: &Block) -> Cow<'_, [Vec<Range<usize>>; 2]> {
    let all_wait = || Cow::Owned([Vec::new(), iter::once(0..block.targets).collect()]);
    block.runs().map_or_else(all_wait, Cow::Borrowed)
}

/// Whose edges are summed up: those of targets that are here, or of mirrors of others.
#[derive(Clone, Copy)]
struct Side<'a> {
    block: &'a Block,
    /// What targets sent to their edges, if they did.
    target: Option<Var>,
    /// The same for mirrors, with their original ids.
    mirrored: Option<(&'a [f32], &'a Mirrors)>,
}

impl<'a> Side<'a> {
    fn cut<'t>(&self, layout: &'t Layout, aside: &'t Aside, sources: Rows<'t>, learns: bool) -> Cut<'t>
    where
        'a: 't,
    {
        let rows: &'t [f32] = match (self.mirrored, self.target) {
            (Some((rows, _)), _) => rows,
            (None, Some(target)) => aside.value(target),
            (None, None) => &[],
        };
        let width = self.target.map_or(0, |target| aside.cols(target));
        let targets = Rows::local(&rows[..self.block.targets * width], width);
        Cut { layout, block: self.block, sources, targets, learns }
    }

    fn dropout<'t>(
        &self,
        sum: EdgeSum,
        training: bool,
        key: Key,
        layout: &'t Layout,
    ) -> Option<EdgeDropout<'t>>
    where
        'a: 't,
    {
        let EdgeSum::Softmax { dropout: rate } = sum else { return None };
        let targets = match self.mirrored {
            Some((_, mirrors)) => &mirrors.nodes[..],
            None => &layout.nodes[..layout.block.targets],
        };
        (training && rate > 0.0).then_some(EdgeDropout { rate, key, targets, sources: &layout.nodes })
    }
}
/// What is summed up, and how.
#[derive(Clone, Copy)]
struct Job<'a> {
    layer: &'a dyn OnEdges,
    sum: EdgeSum,
    width: Width,
    key: Key,
    layout: &'a Layout,
    crossing: Crossing,
}

impl Job<'_> {
    /// Sums over the edges of runs of targets of one side.
    fn sum_up(
        &self,
        tape: &mut Tape,
        side: Side<'_>,
        runs: &[Range<usize>],
        sources: Sources,
        halo: &[f32],
        whole: Averages<'_>,
    ) {
        let (Width { rows, heads }, layout) = (self.width, self.layout);
        let dropout = side.dropout(self.sum, tape.training, self.key, layout);
        let aside = tape.set_aside(false);
        let ends = Rows::with_halo(aside.value(sources.read), halo, self.crossing.width);
        let cut = side.cut(layout, &aside, ends, false);
        let ranges = runs.iter().flat_map(|run| cut.ranges(run.clone(), rows.max(self.crossing.width)));
        for range in ranges {
            let (edges, messages) = cut.messages(tape, self.layer, range.clone());
            let out = &mut whole.average[range.start * rows..range.end * rows];
            let lse = &mut whole.logsumexp[range.start * heads..range.end * heads];
            edges.sum(self.sum, messages, dropout, out, lse);
            tape.reset();
        }
        tape.take_back(aside);
    }

    /// Sums over the edges of mirrors, and joins that with what their masters have; returns what masters sent.
    fn join_mirrors(
        &self,
        view: &mut View<'_>,
        mirrors: &Mirrors,
        target: Option<Var>,
        sources: Sources,
        halo: &[f32],
        whole: Averages<'_>,
    ) -> Result<Buffer> {
        let (Width { rows, heads }, layout, count) = (self.width, self.layout, mirrors.block.targets);
        let relay = Relay::forward(self.crossing);
        let sent = target.map_or(0, |target| view.tape.cols(target));
        let mirrored = match target {
            Some(target) => {
                to_mirrors(view.tape, view.boundary, layout, relay.exactly(sent), |tape, mirrors, copies| {
                    mirrors.copy(tape.value(target), sent, copies);
                })?
            }
            None => view.tape.arena.take(0),
        };
        let mut average = view.tape.arena.take(count * rows);
        let mut logsumexp = view.tape.arena.take(count * heads);
        let far = Side { block: &mirrors.block, target, mirrored: Some((&mirrored, mirrors)) };
        let partial = Averages { average: &mut average, logsumexp: &mut logsumexp };
        self.sum_up(view.tape, far, slice::from_ref(&(0..count)), sources, halo, partial);
        let crossing = Crossing { width: rows, ..self.crossing };
        let (tape, boundary) = (&mut *view.tape, &mut *view.boundary);
        match self.sum {
            EdgeSum::Add | EdgeSum::Mean => {
                let relay = Relay::forward(crossing);
                add_at_masters(tape, boundary, layout, relay, &average, whole.average)?;
            }
            EdgeSum::Softmax { .. } => {
                let partial = Averages { average: &mut average, logsumexp: &mut logsumexp };
                join_at_masters(tape, boundary, layout, crossing, heads, partial, whole)?;
            }
            EdgeSum::Max => return Err(max_of_many()),
        }
        [average, logsumexp].into_iter().for_each(|buffer| tape.arena.give(buffer));
        Ok(mirrored)
    }
}

/// Said where edges of a target are on several ranks.
fn max_of_many() -> Error {
    let message = "the maximum of messages that a layer computes needs all edges of a target in one place";
    Error::Layer { message: format!("{message}: set `exchange.placement = \"destination\"`") }
}
