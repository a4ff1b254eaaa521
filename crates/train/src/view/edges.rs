//! The general verb: whatever a layer computes of each edge, summed over the in-edges of each target.
//!
//! A layer sees [`Edges`]: a stretch of edges side by side, whose rows it computes on the tape from what source and target
//! sent and from what stands on the edge. A stretch is small enough for a cache, and nothing of an edge outlives it: the
//! backward pass computes the rows of a stretch again. So memory does not grow with the edges of a graph, only with those of
//! its largest target, which are never cut, at the price of a second forward pass.

use super::mirrors::{Averages, add_at_masters, join_at_masters, to_mirrors};
use super::{Layout, Mirrors, Sources, View};
use crate::boundary::{Boundary, Crossing, Isolated, Relay};
use crate::ops::Rows;
use crate::ops::attention::EdgeDropout;
use crate::ops::edges::{self, Averaged, AveragedBackward, Segments, head_dots};
use crate::ops::moving::scale_rows;
use crate::parameters::{Names, ParameterId};
use crate::tape::{Aside, Buffer, Op, Tape, Var};
use crate::{Error, Result};
use archipelago_graph::Block;
use archipelago_graph::block::EdgeValues;
use archipelago_graph::random::Key;
use std::ops::Range;
use std::sync::Arc;

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

/// A stretch of edges, as a layer sees it. Rows of edges are values of its tape, made from those that are here.
pub struct Edges<'a> {
    /// Where rows of edges are computed.
    pub tape: &'a mut Tape,
    names: &'a Names,
    stretch: Stretch<'a>,
    learns: bool,
    source: Option<Var>,
    target: Option<Var>,
    types: Option<Buffer>,
}

/// What is behind the edges of a stretch.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    sources: Rows<'a>,
    targets: Rows<'a>,
    segments: Segments<'a>,
    neighbors: &'a [u32],
    weights: Option<&'a [f32]>,
    places: &'a [u32],
    values: Option<&'a EdgeValues>,
    /// The first target, among all.
    first: usize,
}

impl Edges<'_> {
    /// How many edges there are.
    pub fn count(&self) -> usize {
        self.stretch.neighbors.len()
    }

    /// The weight called `name`.
    ///
    /// # Panics
    /// When the layer did not declare it.
    pub fn weight(&self, name: &str) -> ParameterId {
        self.names.get(name)
    }

    /// The row that each edge's source sent.
    pub fn source(&mut self) -> Var {
        if let Some(var) = self.source {
            return var;
        }
        let Stretch { sources, neighbors, .. } = self.stretch;
        let mut rows = self.tape.arena.take(neighbors.len() * sources.width);
        edges::rows_of_sources(&self.tape.pool, sources, neighbors, &mut rows);
        let var = self.tape.pinned(neighbors.len(), sources.width, rows, self.learns);
        self.source = Some(var);
        var
    }

    /// The row that each edge's target added; without columns where the layer did not send any.
    pub fn target(&mut self) -> Var {
        if let Some(var) = self.target {
            return var;
        }
        let (Stretch { targets, segments, .. }, count) = (self.stretch, self.count());
        let mut rows = self.tape.arena.take(count * targets.width);
        let first = &targets.local[self.stretch.first * targets.width..];
        edges::rows_of_targets(&self.tape.pool, segments, None, first, targets.width, &mut rows);
        let var = self.tape.pinned(count, targets.width, rows, true);
        self.target = Some(var);
        var
    }

    /// The attributes of each edge, if edges have any.
    pub fn attributes(&mut self) -> Option<Var> {
        let (Stretch { values, places, .. }, count) = (self.stretch, self.count());
        let values = values.filter(|values| values.width > 0)?;
        let mut rows = self.tape.arena.take(count * values.width);
        let table = Rows::local(&values.attributes, values.width);
        edges::rows_of_sources(&self.tape.pool, table, places, &mut rows);
        Some(self.tape.pinned(count, values.width, rows, false))
    }

    /// The row of the weight `table` that belongs to each edge's type.
    pub fn type_rows(&mut self, table: ParameterId) -> Var {
        let types = self.types();
        let var = self.tape.lookup(table, bytemuck::cast_slice(&types));
        self.types = Some(types);
        var
    }

    /// A mixture of the equally wide stretches of each row, by the shares that the weight `shares` gives the edge's type.
    pub fn mixed_by_type(&mut self, rows: Var, shares: ParameterId) -> Var {
        let types = self.types();
        let var = self.tape.mix(rows, shares, bytemuck::cast_slice(&types));
        self.types = Some(types);
        var
    }

    /// `rows`, each over the number of in-edges of its target that have its type, in the whole graph.
    pub fn over_type_count(&mut self, rows: Var) -> Var {
        let mut shares = self.tape.arena.take(self.count());
        let values = self.stretch.values.map_or(&[][..], |values| &values.type_shares);
        for (share, &place) in shares.iter_mut().zip(self.stretch.places) {
            *share = values.get(place as usize).copied().unwrap_or(1.0);
        }
        let var = self.tape.scale_rows(rows, &shares);
        self.tape.arena.give(shares);
        var
    }

    /// The type of each edge as bits, 0 where edges have none.
    fn types(&mut self) -> Buffer {
        if let Some(types) = self.types.take() {
            return types;
        }
        let mut types = self.tape.arena.take(self.count());
        let values = self.stretch.values.map_or(&[][..], |values| &values.types);
        let list: &mut [u32] = bytemuck::cast_slice_mut(&mut types);
        for (kind, &place) in list.iter_mut().zip(self.stretch.places) {
            *kind = values.get(place as usize).copied().unwrap_or(0);
        }
        types
    }
}

/// The edges of a layer to targets that are here, or to mirrors, cut into stretches.
struct Cut<'a> {
    layout: &'a Layout,
    block: &'a Block,
    sources: Rows<'a>,
    targets: Rows<'a>,
    /// Whether gradients of the sources are wanted.
    learns: bool,
}

/// Numbers in the rows of the edges of a stretch: what a core's cache holds of a few such matrices.
const STRETCH: usize = 1 << 17;

impl<'a> Cut<'a> {
    /// Ranges of targets whose edges have about [`STRETCH`] numbers.
    fn ranges(&self, width: usize) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let offsets = &self.block.incoming.offsets;
        let (targets, most) = (self.block.targets, (STRETCH / width.max(1)).max(64) as u64);
        let mut start = 0;
        std::iter::from_fn(move || {
            let end = offsets[start..=targets].partition_point(|&at| at <= offsets[start] + most);
            let range = start..(start + end - 1).max(start + 1).min(targets);
            start = range.end;
            (!range.is_empty()).then_some(range)
        })
    }

    fn stretch(&self, targets: Range<usize>) -> Stretch<'a> {
        let lists = &self.block.incoming;
        let all = lists.offsets[targets.start] as usize..lists.offsets[targets.end] as usize;
        Stretch {
            sources: self.sources,
            targets: self.targets,
            segments: Segments { offsets: &lists.offsets[targets.start..=targets.end] },
            neighbors: &lists.neighbors[all.clone()],
            weights: (!lists.weights.is_empty()).then(|| &lists.weights[all.clone()]),
            places: if lists.places.is_empty() { &[] } else { &lists.places[all] },
            values: self.layout.edges.as_deref(),
            first: targets.start,
        }
    }

    /// The stretch of these targets, and what passes along its edges.
    fn messages<'t>(
        &self,
        tape: &'t mut Tape,
        layer: &'t dyn OnEdges,
        targets: Range<usize>,
    ) -> (Edges<'t>, Messages)
    where
        'a: 't,
    {
        let stretch = self.stretch(targets);
        let (names, learns) = (layer.names(), self.learns);
        let mut edges = Edges { tape, names, stretch, learns, source: None, target: None, types: None };
        let messages = layer.messages(&mut edges);
        (edges, messages)
    }
}

/// How wide messages are and how many heads they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Width {
    rows: usize,
    heads: usize,
}

struct Edgewise {
    layer: Arc<dyn OnEdges>,
    sum: EdgeSum,
    width: Width,
    key: Key,
    layout: Arc<Layout>,
    crossing: Crossing,
    sources: Sources,
    target: Option<Var>,
    output: Var,
    saved: Option<Saved>,
}

/// What backward reads besides values of the tape.
struct Saved {
    halo: Buffer,
    logsumexp: Buffer,
    /// What the masters of mirrors here sent to their edges.
    mirrored: Buffer,
}

impl View<'_> {
    /// Asks `what` of a stretch without edges, between ends whose rows have these widths: shows what messages are like.
    pub fn probe<T>(
        &mut self,
        names: &Names,
        widths: (usize, usize),
        what: impl FnOnce(&mut Edges<'_>) -> T,
    ) -> T {
        let aside = self.tape.set_aside(false);
        let stretch = Stretch {
            sources: Rows::local(&[], widths.0),
            targets: Rows::local(&[], widths.1),
            segments: Segments { offsets: &[0] },
            neighbors: &[],
            weights: None,
            places: &[],
            values: self.layout.edges.as_deref(),
            first: 0,
        };
        let tape = &mut *self.tape;
        let mut edges =
            Edges { tape, names, stretch, learns: false, source: None, target: None, types: None };
        let found = what(&mut edges);
        if let Some(types) = edges.types.take() {
            edges.tape.arena.give(types);
        }
        edges.tape.take_back(aside);
        found
    }

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
        if layout.crosses() {
            self.boundary.depart(crossing, &layout, self.tape.value(sources.read))?;
            self.boundary.arrive(crossing, &layout, &mut halo)?;
        }
        let whole = Averages { average: &mut output, logsumexp: &mut logsumexp };
        let near = Side { block: &layout.block, target: sent.target, mirrored: None };
        let job = Job { layer: &**layer, sum, width, key, layout: &layout, crossing };
        job.sum_up(self.tape, near, sources, &halo, whole);
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
        if !self.tape.training {
            give_back(self.tape, saved.take());
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
    /// Sums over the edges of one side.
    fn sum_up(&self, tape: &mut Tape, side: Side<'_>, sources: Sources, halo: &[f32], whole: Averages<'_>) {
        let (Width { rows, heads }, layout) = (self.width, self.layout);
        let dropout = side.dropout(self.sum, tape.training, self.key, layout);
        let aside = tape.set_aside(false);
        let ends = Rows::with_halo(aside.value(sources.read), halo, self.crossing.width);
        let cut = side.cut(layout, &aside, ends, false);
        for range in cut.ranges(rows.max(self.crossing.width)) {
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
        self.sum_up(view.tape, far, sources, halo, partial);
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

    /// Gradients of the ends of the edges of one side, and of the weights that messages read.
    fn sum_down(
        &self,
        tape: &mut Tape,
        side: Side<'_>,
        sources: Sources,
        read: &Read<'_>,
        written: &mut Written,
    ) -> Result<()> {
        let learns = tape.needs_gradient(sources.rows);
        let dropout = side.dropout(self.sum, true, self.key, self.layout);
        let aside = tape.set_aside(true);
        let ends = Rows::with_halo(aside.value(sources.read), read.halo, self.crossing.width);
        let cut = side.cut(self.layout, &aside, ends, learns);
        for range in cut.ranges(self.width.rows.max(self.crossing.width)) {
            let (mut edges, messages) = cut.messages(tape, self.layer, range.clone());
            edges.sum_back(self.sum, messages, read, dropout, range);
            edges.tape.backward(&mut Isolated)?;
            edges.ends_back(written);
            tape.reset();
        }
        tape.take_back(aside);
        Ok(())
    }
}

/// Said where edges of a target are on several ranks.
fn max_of_many() -> Error {
    let message = "the maximum of messages that a layer computes needs all edges of a target in one place";
    Error::Layer { message: format!("{message}: set `exchange.placement = \"destination\"`") }
}

fn give_back(tape: &mut Tape, saved: Option<Saved>) {
    if let Some(Saved { halo, logsumexp, mirrored }) = saved {
        [halo, logsumexp, mirrored].into_iter().for_each(|buffer| tape.arena.give(buffer));
    }
}

impl Edges<'_> {
    /// Sums the messages up.
    fn sum(
        self,
        sum: EdgeSum,
        messages: Messages,
        dropout: Option<EdgeDropout<'_>>,
        out: &mut [f32],
        logsumexp: &mut [f32],
    ) {
        let (tape, Stretch { segments, weights, .. }) = (&*self.tape, self.stretch);
        let (rows, width) = (tape.value(messages.rows), tape.cols(messages.rows));
        match (sum, messages.scores) {
            (EdgeSum::Max, _) => {
                let mut winner = self.tape.arena.take(out.len());
                let (rows, list) = (self.tape.value(messages.rows), bytemuck::cast_slice_mut(&mut winner));
                edges::max_of_edges(&self.tape.pool, segments, rows, width, out, list);
                self.tape.arena.give(winner);
            }
            (EdgeSum::Softmax { .. }, Some(scores)) => {
                let job = self.averaged(messages.rows, scores, dropout);
                edges::average_of_edges(&tape.pool, &job, out, logsumexp);
            }
            _ => edges::sum_of_edges(&tape.pool, segments, weights, rows, width, out),
        }
        if let Some(types) = self.types {
            self.tape.arena.give(types);
        }
    }

    fn averaged<'a>(&'a self, rows: Var, scores: Var, dropout: Option<EdgeDropout<'a>>) -> Averaged<'a> {
        let Stretch { segments, neighbors, first, .. } = self.stretch;
        Averaged {
            segments,
            heads: self.tape.cols(scores),
            width: self.tape.cols(rows),
            scores: self.tape.value(scores),
            rows: self.tape.value(rows),
            sources: neighbors,
            first,
            dropout,
        }
    }

    /// Sends the gradient of the sums of this stretch back to its messages.
    fn sum_back(
        &mut self,
        sum: EdgeSum,
        messages: Messages,
        read: &Read<'_>,
        dropout: Option<EdgeDropout<'_>>,
        targets: Range<usize>,
    ) {
        let Stretch { segments, weights, .. } = self.stretch;
        let width = self.tape.cols(messages.rows);
        let grad = &read.gradient[targets.start * width..targets.end * width];
        let mut rows = self.tape.arena.take(self.count() * width);
        match (sum, messages.scores) {
            (EdgeSum::Max, _) => {
                let (mut out, mut winner) =
                    (self.tape.arena.take(grad.len()), self.tape.arena.take(grad.len()));
                let values = self.tape.value(messages.rows);
                let list = bytemuck::cast_slice_mut(&mut winner);
                edges::max_of_edges(&self.tape.pool, segments, values, width, &mut out, list);
                edges::max_of_edges_backward(&self.tape.pool, segments, list, grad, width, &mut rows);
                [out, winner].into_iter().for_each(|buffer| self.tape.arena.give(buffer));
            }
            (EdgeSum::Softmax { .. }, Some(scores)) => {
                let heads = self.tape.cols(scores);
                let mut back = self.tape.arena.take(self.count() * heads);
                let job = self.averaged(messages.rows, scores, dropout);
                let read = AveragedBackward {
                    dots: &read.dots[targets.start * heads..targets.end * heads],
                    logsumexp: &read.logsumexp[targets.start * heads..targets.end * heads],
                    grad,
                };
                edges::average_of_edges_backward(&self.tape.pool, &job, &read, &mut back, &mut rows);
                self.tape.put_gradient(scores, back);
            }
            _ => edges::rows_of_targets(&self.tape.pool, segments, weights, grad, width, &mut rows),
        }
        self.tape.put_gradient(messages.rows, rows);
        if let Some(types) = self.types.take() {
            self.tape.arena.give(types);
        }
    }

    /// Adds what came back to the ends of the edges.
    fn ends_back(self, written: &mut Written) {
        let Stretch { sources, targets, segments, neighbors, first, .. } = self.stretch;
        if let Some(gradient) = self.source.and_then(|var| self.tape.take_gradient(var)) {
            let (local, halo) = (&mut written.rows, &mut written.halo);
            edges::add_to_sources(&self.tape.pool, neighbors, &gradient, sources.width, local, halo);
            self.tape.arena.give(gradient);
        }
        if let Some(gradient) = self.target.and_then(|var| self.tape.take_gradient(var)) {
            let cells = first * targets.width..(first + segments.targets()) * targets.width;
            let out = &mut written.targets[cells];
            edges::sum_of_edges(&self.tape.pool, segments, None, &gradient, targets.width, out);
            self.tape.arena.give(gradient);
        }
    }
}

/// What the backward pass of a layer's edges reads of their sums.
#[derive(Clone, Copy)]
struct Read<'a> {
    halo: &'a [f32],
    gradient: &'a [f32],
    /// Of a softmax: the sum over the columns of a head of what came out times its gradient.
    dots: &'a [f32],
    logsumexp: &'a [f32],
}

/// What it writes: gradients of the rows of all ends.
struct Written {
    rows: Buffer,
    halo: Buffer,
    targets: Buffer,
}

impl Edgewise {
    fn job(&self) -> Job<'_> {
        let Self { layer, sum, width, key, layout, crossing, .. } = self;
        Job { layer: &**layer, sum: *sum, width: *width, key: *key, layout, crossing: *crossing }
    }

    /// Gradients of the rows of all ends, and of the weights that messages read.
    fn ends(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        saved: &Saved,
        gradient: &[f32],
    ) -> Result<Written> {
        let (block, crossing, heads) = (&self.layout.block, self.crossing, self.width.heads);
        let target_width = self.target.map_or(0, |target| tape.cols(target));
        let mut written = Written {
            rows: tape.arena.take_zeroed(block.local * crossing.width),
            halo: tape.arena.take_zeroed(block.halo * crossing.width),
            targets: tape.arena.take_zeroed(block.targets * target_width),
        };
        let averaged = matches!(self.sum, EdgeSum::Softmax { .. });
        let mut dots = tape.arena.take(if averaged { block.targets * heads } else { 0 });
        if averaged {
            head_dots(&tape.pool, tape.value(self.output), gradient, heads, self.width.rows, &mut dots);
        }
        let read = Read { halo: &saved.halo, gradient, dots: &dots, logsumexp: &saved.logsumexp };
        let near = Side { block, target: self.target, mirrored: None };
        self.job().sum_down(tape, near, self.sources, &read, &mut written)?;
        if let Some(mirrors) = &self.layout.mirrors {
            self.mirrored_ends(tape, boundary, mirrors, saved, read, &mut written)?;
        }
        tape.arena.give(dots);
        Ok(written)
    }

    /// The same for the edges of mirrors, which get what they read of sums from their masters; `read` has that of the
    /// targets that are here.
    fn mirrored_ends(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        mirrors: &Mirrors,
        saved: &Saved,
        read: Read<'_>,
        written: &mut Written,
    ) -> Result<()> {
        let (layout, Width { rows, heads }) = (&self.layout, self.width);
        let relay = Relay::backward(Crossing { width: rows, ..self.crossing });
        let mut bring = |relay: Relay, of_targets: &[f32]| {
            to_mirrors(tape, boundary, layout, relay, |_, mirrors, copies| {
                mirrors.copy(of_targets, relay.width(), copies);
            })
        };
        let gradient = bring(relay, read.gradient)?;
        let [dots, logsumexp] = match self.sum {
            EdgeSum::Softmax { .. } => {
                let relay = relay.exactly(heads);
                [bring(relay, read.dots)?, bring(relay, read.logsumexp)?]
            }
            _ => [tape.arena.take(0), tape.arena.take(0)],
        };
        let target_width = self.target.map_or(0, |target| tape.cols(target));
        let of_mirrors = tape.arena.take_zeroed(mirrors.block.targets * target_width);
        let targets = std::mem::replace(&mut written.targets, of_mirrors);
        let far =
            Side { block: &mirrors.block, target: self.target, mirrored: Some((&saved.mirrored, mirrors)) };
        let read = Read { gradient: &gradient, dots: &dots, logsumexp: &logsumexp, ..read };
        self.job().sum_down(tape, far, self.sources, &read, written)?;
        let of_mirrors = std::mem::replace(&mut written.targets, targets);
        if target_width > 0 {
            let relay = relay.exactly(target_width);
            add_at_masters(tape, boundary, layout, relay, &of_mirrors, &mut written.targets)?;
        }
        for buffer in [gradient, dots, logsumexp, of_mirrors] {
            tape.arena.give(buffer);
        }
        Ok(())
    }
}

impl Op for Edgewise {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        if let Some(factors) = boundary.gradient_factors(&self.layout) {
            scale_rows(&tape.pool, &factors, self.width.rows, &mut gradient);
        }
        if self.sum == EdgeSum::Mean {
            scale_rows(&tape.pool, self.layout.means(), self.width.rows, &mut gradient);
        }
        let Written { mut rows, halo, targets } = self.ends(tape, boundary, &saved, &gradient)?;
        let learns = tape.needs_gradient(self.sources.rows);
        let crosses = learns && self.layout.crosses();
        if crosses {
            boundary.depart_back(self.crossing, &self.layout, &halo)?;
        }
        if learns && self.sources.passes() {
            if crosses {
                boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
            }
            tape.put_gradient(self.sources.rows, rows);
        } else {
            tape.arena.give(rows);
        }
        self.sources.settle(tape);
        match self.target.filter(|&target| tape.needs_gradient(target)) {
            Some(target) => tape.put_gradient(target, targets),
            None => tape.arena.give(targets),
        }
        tape.arena.give(halo);
        tape.arena.give(gradient);
        give_back(tape, Some(saved));
        Ok(())
    }
}
