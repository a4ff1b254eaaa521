//! A stretch of edges side by side: what a layer sees of it, how what passes is summed up, and what comes back.

use super::backward::{Read, Written};
use super::{EdgeSum, Messages, OnEdges};
use crate::ops::Rows;
use crate::ops::attention::EdgeDropout;
use crate::ops::edges::{self, Averaged, AveragedBackward, Segments};
use crate::parameters::{Names, ParameterId};
use crate::tape::{Buffer, Tape, Var};
use crate::view::{Layout, View};
use archipelago_graph::Block;
use archipelago_graph::block::EdgeValues;
use std::ops::Range;

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
}

/// The edges of a layer to targets that are here, or to mirrors, cut into stretches.
pub(super) struct Cut<'a> {
    pub layout: &'a Layout,
    pub block: &'a Block,
    pub sources: Rows<'a>,
    pub targets: Rows<'a>,
    /// Whether gradients of the sources are wanted.
    pub learns: bool,
}

/// Numbers in the rows of the edges of a stretch: what a core's cache holds of a few such matrices.
const STRETCH: usize = 1 << 17;

impl<'a> Cut<'a> {
    /// Ranges within a run of targets whose edges have about [`STRETCH`] numbers.
    pub(super) fn ranges(
        &self,
        run: Range<usize>,
        width: usize,
    ) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let offsets = &self.block.incoming.offsets;
        let most = (STRETCH / width.max(1)).max(64) as u64;
        let mut start = run.start;
        std::iter::from_fn(move || {
            let end = start + offsets[start..=run.end].partition_point(|&at| at <= offsets[start] + most);
            let range = start..(end - 1).max(start + 1).min(run.end);
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
    pub(super) fn messages<'t>(
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
impl Edges<'_> {
    /// Sums the messages up.
    pub(super) fn sum(
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
    pub(super) fn sum_back(
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
    pub(super) fn ends_back(self, written: &mut Written) {
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
