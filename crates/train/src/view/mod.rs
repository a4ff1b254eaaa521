//! The few verbs that a layer may ask of the graph.
//!
//! A [`View`] is one layer of one step as seen by a model: so many target rows, computed from source rows. Behind
//! the verbs stand the block (who sends to whom), the boundary (what crosses part borders) and the tape (what
//! backward will need). A layer cannot tell whether its view is a whole graph, a part of one, or a sampled batch.

mod layout;
mod thin;
mod mirrors;
mod gather;
mod transform;
mod max;
mod attend;
mod attend_v2;
mod edges;

pub use edges::{EdgeSum, Edges, Messages, OnEdges, SentRows};
pub use layout::{Layout, Mirrors, Routes, Symmetric};
pub use thin::{Passage, Scales, Thinned, Thinning};

use crate::Result;
use crate::boundary::{Boundary, Crossing, Half, Order, Own, Passing};
use crate::ops::attention::{EdgeDropout, Loops};
use crate::parameters::ParameterId;
use crate::tape::{Buffer, Input, Matrix, Tape, Var};
use archipelago_graph::random::Key;
use std::sync::Arc;

/// Results that are the same in every step because they depend on the node features alone.
///
/// The first layer's aggregation of static features is the largest of all and never changes: it is computed once,
/// for all rows, and every step and every evaluation reads (a prefix of) it.
pub struct Statics {
    /// The layout of all rows of this rank.
    pub whole: Arc<Layout>,
    /// The node features, in the row order of `whole`.
    pub features: Input,
    /// The one verb through which the model reads the features, if there is only one.
    only: Option<Verb>,
    known: Vec<(Verb, Arc<Matrix>)>,
}

impl Statics {
    /// Nothing known yet. With `only`, the features themselves are let go once that verb of them is known.
    pub fn new(whole: Arc<Layout>, features: Input, only: Option<Verb>) -> Self {
        Self { whole, features, only, known: Vec::new() }
    }

    fn learn(&mut self, verb: Verb, matrix: &Arc<Matrix>) {
        self.known.push((verb, Arc::clone(matrix)));
        if self.only == Some(verb) {
            let (rows, cols) = (self.features.rows(), self.features.cols());
            self.features = Input::Dense(Arc::new(Matrix { rows, cols, values: Buffer::zeros(0).into() }));
        }
    }
}

/// How an attention verb attends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Heads side by side in a row.
    pub heads: usize,
    /// Whether every node attends to itself too.
    pub self_loops: bool,
    /// Share of coefficients dropped in training.
    pub dropout: f32,
}

/// Slope of LeakyReLU below 0 in attention scores.
pub const SLOPE: f32 = 0.2;

impl Attention {
    /// Which targets attend to themselves.
    fn loops<'a>(&self, layout: &'a Layout) -> Loops<'a> {
        let left = layout.thinned.as_ref().and_then(|thinned| thinned.loops.as_deref());
        match (self.self_loops, left) {
            (false, _) => Loops::None,
            (true, None) => Loops::All,
            (true, Some(left)) => Loops::Of(left),
        }
    }

    /// The dropout of this step's coefficients, if there is any.
    fn edge_dropout<'a>(&self, training: bool, key: Key, layout: &'a Layout) -> Option<EdgeDropout<'a>> {
        (training && self.dropout > 0.0).then(|| EdgeDropout {
            rate: self.dropout,
            key,
            targets: &layout.nodes[..layout.block.targets],
            sources: &layout.nodes,
        })
    }
}

/// A linear aggregation of source rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// The (weighted) sum over in-edges.
    Sum,
    /// The (weighted) mean over in-edges.
    Mean,
    /// GCN's symmetrically normalised sum, the node itself included.
    Symmetric,
}

/// The local source rows of a verb.
#[derive(Debug, Clone, Copy)]
struct Sources {
    /// The rows of this step, to which gradients go.
    rows: Var,
    /// What is read in their place: themselves, or an earlier version of them.
    read: Var,
    /// What they get of the gradient.
    gradient: Passing,
}

impl Sources {
    /// Whether the gradient of what is read goes to the rows of this step.
    fn passes(&self) -> bool {
        self.gradient == Passing::All
    }

    /// Gives the rows of this step the zeros that are theirs where they get nothing else.
    fn settle(&self, tape: &mut Tape) {
        if self.gradient == Passing::Zero && tape.needs_gradient(self.rows) {
            let (mut zeros, accumulate) = tape.gradient_buffer(self.rows);
            if !accumulate {
                zeros.fill(0.0);
            }
            tape.put_gradient(self.rows, zeros);
        }
    }
}

/// One layer of one step, as a model sees it.
pub struct View<'a> {
    /// Where values and operations are kept.
    pub tape: &'a mut Tape,
    /// What crosses part borders.
    pub boundary: &'a mut dyn Boundary,
    /// Who sends to whom.
    pub layout: &'a Arc<Layout>,
    /// Which layer this is; 0 is the first.
    pub layer: usize,
    /// Which of its sources this view shows.
    pub half: Half,
    /// What is known of the static input; none where inputs change from step to step.
    pub statics: Option<&'a mut Statics>,
    /// The variable that holds the static input itself.
    pub static_input: Option<Var>,
}

impl View<'_> {
    /// How many rows this layer computes.
    pub fn targets(&self) -> usize {
        self.layout.block.targets
    }

    /// Whether aggregating `rows` costs nothing after the first step, which is when a layer should aggregate
    /// before it transforms.
    pub fn is_static(&self, rows: Var) -> bool {
        self.static_input == Some(rows) && self.tape.sparse(rows).is_none()
    }

    /// `W agg(rows)`, in the order that costs least, for a linear aggregation commutes with the transform. Where rows
    /// cross part borders the narrower side is aggregated and exchanged, as on all ranks (of two as wide the rows
    /// before the transform: targets are never more than sources); else products count, of all source rows or of the
    /// targets alone, which are few in a sampled batch. Static rows are aggregated first
    /// because that is done once; sparse rows are transformed first because that is nearly free.
    pub fn aggregate_and_transform(
        &mut self,
        rows: Var,
        weight: ParameterId,
        input: usize,
        output: usize,
        aggregate: impl Fn(&mut Self, Var) -> Result<Var>,
    ) -> Result<Var> {
        if self.transforms_first(rows, input, output) {
            let transformed = self.tape.linear(rows, weight, self.tape.rows(rows));
            let aggregated = aggregate(self, transformed)?;
            self.tape.forget(transformed);
            return Ok(aggregated);
        }
        let aggregated = aggregate(self, rows)?;
        let transformed = self.tape.linear(aggregated, weight, self.targets());
        self.tape.forget(aggregated);
        Ok(transformed)
    }

    /// The same for one of the verbs, which needs less memory where no gradient is asked for.
    pub fn transformed(
        &mut self,
        verb: Verb,
        rows: Var,
        weight: ParameterId,
        input: usize,
        output: usize,
    ) -> Result<Var> {
        if self.splits(rows, input, output) {
            return self.transformed_by_halves(verb, rows, weight);
        }
        let plain = !self.tape.training && !self.layout.crosses() && !self.is_static(rows);
        if plain && !self.boundary.remembers(self.layer) && !self.transforms_first(rows, input, output) {
            return Ok(transform::gather_and_transform(self, verb, rows, weight));
        }
        if self.waits_for_far_rows() && self.tape.sparse(rows).is_none() && !self.is_static(rows) {
            let layout = Arc::clone(self.layout);
            if self.transforms_first(rows, input, output) {
                return transform::transform_and_gather(self, verb, rows, weight);
            }
            if let Some(runs) = layout.block.runs() {
                return transform::gather_while_transforming(self, verb, rows, weight, runs);
            }
        }
        self.aggregate_and_transform(rows, weight, input, output, |view, rows| view.aggregate(verb, rows))
    }

    /// Whether there is time for other work while rows of other parts are under way.
    fn waits_for_far_rows(&self) -> bool {
        let (layout, boundary) = (self.layout, &self.boundary);
        let waits = boundary.overlaps() && boundary.is_far() && !boundary.remembers(self.layer);
        waits && layout.crosses() && layout.mirrors.is_none()
    }

    /// Whether the sources of other parts are aggregated apart: theirs are narrower transformed, and several parts there are.
    fn splits(&self, rows: Var, input: usize, output: usize) -> bool {
        let several = self.layout.routes.send.len() > 1;
        let joins = self.boundary.order() == Order::Split && self.boundary.remembers(self.layer);
        several && joins && output < input && self.tape.sparse(rows).is_none() && !self.is_static(rows)
    }

    /// `W agg(near rows) + agg(W far rows)`.
    fn transformed_by_halves(&mut self, verb: Verb, rows: Var, weight: ParameterId) -> Result<Var> {
        let layout = Arc::clone(self.layout);
        let near = self.of_half(Half::Near, layout.near(), |view| gather::gather(view, verb, rows))?;
        let near_output = self.tape.linear(near, weight, layout.block.targets);
        self.tape.forget(near);
        let transformed = self.tape.linear(rows, weight, self.tape.rows(rows));
        let far = self.of_half(Half::Far, layout.far(), |view| gather::gather(view, verb, transformed))?;
        self.tape.forget(transformed);
        Ok(self.tape.add_rows(near_output, far))
    }

    fn of_half<T>(
        &mut self,
        half: Half,
        layout: &Arc<Layout>,
        work: impl FnOnce(&mut View<'_>) -> Result<T>,
    ) -> Result<T> {
        let (tape, boundary) = (&mut *self.tape, &mut *self.boundary);
        work(&mut View { tape, boundary, layout, layer: self.layer, half, statics: None, static_input: None })
    }

    fn transforms_first(&self, rows: Var, input: usize, output: usize) -> bool {
        let block = &self.layout.block;
        let cheaper = match (self.boundary.order(), self.layout.crosses()) {
            (Order::Cheapest | Order::FewTargets, false) => {
                transform_costs_less(block.sources(), block.targets, block.edges(), input, output)
            }
            (order, _) => order.transforms_before_crossing(input, output),
        };
        cheaper && !self.is_static(rows) || self.tape.sparse(rows).is_some()
    }

    /// How `rows` of this layer cross.
    fn crossing(&self, rows: Var) -> Crossing {
        Crossing { layer: self.layer, width: self.tape.cols(rows), fixed: false, half: self.half }
    }

    /// The local source rows of a verb that reads `rows`, as the boundary wants it.
    fn sources(&mut self, rows: Var) -> Result<Sources> {
        let crossing = self.crossing(rows);
        let count = self.tape.rows(rows);
        match self.boundary.own(crossing, self.tape.value(rows))? {
            Own::Fresh => Ok(Sources { rows, read: rows, gradient: Passing::All }),
            Own::Kept { rows: kept, gradient } => {
                let read = self.tape.constant(&Input::Dense(kept), count);
                Ok(Sources { rows, read, gradient })
            }
        }
    }

    /// What `verb` makes of the source rows.
    pub fn aggregate(&mut self, verb: Verb, rows: Var) -> Result<Var> {
        match self.statics.take() {
            Some(statics) if self.is_static(rows) => {
                let outcome = self.static_aggregate(statics, verb);
                self.statics = Some(statics);
                outcome
            }
            statics => {
                self.statics = statics;
                gather::gather(self, verb, rows)
            }
        }
    }

    fn static_aggregate(&mut self, statics: &mut Statics, verb: Verb) -> Result<Var> {
        let known = statics.known.iter().find(|(v, _)| *v == verb).map(|(_, matrix)| Arc::clone(matrix));
        let matrix = match known {
            Some(matrix) => matrix,
            None => {
                let matrix = gather::gather_static(self, &statics.whole, &statics.features, verb)?;
                statics.learn(verb, &matrix);
                matrix
            }
        };
        Ok(self.tape.constant(&Input::Dense(matrix), self.targets()))
    }
}

/// Whether transforming all source rows and summing what comes out takes less than summing rows and transforming the
/// targets. Summing a number along an edge waits for memory: it costs about as much as 16 multiplications of a product.
fn transform_costs_less(sources: usize, targets: usize, edges: usize, input: usize, output: usize) -> bool {
    const EDGE: usize = 16;
    sources * input * output + EDGE * edges * output < targets * input * output + EDGE * edges * input
}
