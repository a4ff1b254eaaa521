//! How a layer is written: NN-TGAR (GraphTheta, VLDB 2022): Transform on nodes, Gather on edges, Sum, Apply on nodes.
//!
//! A [`Layer`] says what nodes send, what passes along an edge, how a target sums that up, and what it makes of the sum.
//! Each stage computes on the tape, which differentiates; the stage that the paper calls Reduce, the sum of the gradients
//! of weights over all workers, is the strategy's. Who is asked for rows, on which rank an edge is computed and what
//! crosses is none of a layer's business, so it runs under every strategy.
//!
//! Where what passes is a row as it was sent, the engine sums without ever making a row per edge, and may
//! sum before it transforms where that is cheaper; attention of the common kinds is one kernel, too. Anything else is
//! computed on a stretch of edges at a time (see [`Edges`]).
//!
//! A layer that none of the papers has, neighbours behind gates that both ends open, in full:
//!
//! ```
//! use archipelago_train::model::{
//!     EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight,
//! };
//! use archipelago_train::tape::Var;
//! use archipelago_train::view::Edges;
//!
//! /// `out_i = W_self x_i + sum_j sigmoid(a_j + b_i) * z_j` with `z = W x`, `a = A x`, `b = B x`.
//! struct Gated(LayerShape);
//!
//! impl Layer for Gated {
//!     fn weights(&self) -> Vec<Weight> {
//!         let LayerShape { input, output, .. } = self.0;
//!         let square = |name| Weight::new(name, output, input, Start::Glorot);
//!         vec![square("weight"), square("near"), square("far"), square("own"), Weight::new("bias", 1, output, Start::Zero)]
//!     }
//!
//!     fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
//!         let (z, a) = (nodes.linear(rows, "weight"), nodes.linear(rows, "far"));
//!         let both = nodes.tape.beside(z, a);
//!         Sent::rows(both).to_targets(nodes.linear_of_targets(rows, "near"))
//!     }
//!
//!     fn gather(&self, edges: &mut Edges<'_>) -> Message {
//!         let (source, target) = (edges.source(), edges.target());
//!         let z = edges.tape.columns(source, 0..self.0.output);
//!         let a = edges.tape.columns(source, self.0.output..2 * self.0.output);
//!         let gate = edges.tape.add_rows(a, target);
//!         let gate = edges.tape.sigmoid(gate);
//!         Message::rows(edges.tape.multiply(gate, z))
//!     }
//!
//!     fn sum(&self) -> Sum {
//!         Sum::Add
//!     }
//!
//!     fn apply(&self, nodes: &mut Nodes<'_>, rows: Var, sum: Var) -> Var {
//!         nodes.linear_onto(sum, rows, "own")
//!     }
//! }
//!
//! const GATED: Entry = Entry {
//!     name: "gated",
//!     summary: "neighbours behind gates that both ends open",
//!     paper: "none",
//!     reads: |_| Reads::Transformed,
//!     edges: EdgeNeed::Nothing,
//!     build: |shape| Box::new(Gated(shape.clone())),
//! };
//!
//! // It learns which of three communities a node is in, as well as any built-in layer.
//! # use archipelago_train::model::{Init, Model, ModelShape, Norm, Aggregator, Pass};
//! # use archipelago_train::{boundary::Isolated, ops::Pool, optimizer::Optimizer, run::RunConfig};
//! # use archipelago_train::{tape::{Activation, Goal, Input, Matrix, Tape, Values, Wanted}, view::{Layout, Routes}};
//! # use archipelago_graph::{Block, block::Adjacency};
//! # use std::sync::Arc;
//! # let nodes = 30;
//! # let shape = ModelShape { input: 4, hidden: 8, output: 3, layers: 2, heads: 1, output_heads: 1,
//! #     aggregator: Aggregator::Mean, activation: Activation::Relu, norm: Norm::None, dropout: 0.0, input_dropout: 0.0,
//! #     attention_dropout: 0.0, residual: false, self_loops: false, edge_width: 0, edge_kinds: 0, bases: 1,
//! #     init: Init::Model };
//! # let mut lists = Adjacency { offsets: vec![0], ..Adjacency::default() };
//! # for node in 0..nodes as u32 {
//! #     lists.neighbors.extend((1..5).map(|hop| (node + 3 * hop) % nodes as u32));
//! #     lists.offsets.push(lists.neighbors.len() as u64);
//! # }
//! # let layout = Layout::new(Arc::new(Block::new(lists, nodes, 0)), Arc::new((0..nodes as u64).collect()), vec![4.0; nodes], Routes::default());
//! # let layouts = vec![Arc::new(layout); 2];
//! # let noise = |i: usize| (((i * 7919) % 101) as f32 / 50.0) - 1.0;
//! # let x: Vec<f32> = (0..4 * nodes).map(|i| noise(i) + if i % 4 == (i / 4) % 3 { 0.5 } else { 0.0 }).collect();
//! # let features = Input::Dense(Arc::new(Matrix { rows: nodes, cols: 4, values: Values::Stored(x.into()) }));
//! # let labels: Vec<i64> = (0..nodes as i64).map(|node| node % 3).collect();
//! let (model, weights, buffers) = Model::build(&GATED, shape, 1);
//! let mut tape = Tape::new(weights, buffers, Pool::new(1));
//! # let mut config = RunConfig::default();
//! # config.train.lr = 0.02;
//! # let mut optimizer = Optimizer::new(&config.train, &tape.parameters);
//! # let rows: Vec<u32> = (0..nodes as u32).collect();
//! let mut losses = Vec::new();
//! for step in 0..60 {
//!     tape.begin_step(1, 1, step);
//!     let input = tape.constant(&features, nodes);
//!     let pass = Pass { layouts: &layouts, input, statics: None, keep_embeddings: false };
//!     let scores = model.forward(&mut tape, &mut Isolated, pass)?.output;
//!     let goal = Goal { rows: &rows, labels: Wanted::Classes(&labels), weights: None };
//!     losses.push(tape.loss(scores, goal, 1.0 / nodes as f32));
//!     tape.backward(&mut Isolated)?;
//!     optimizer.step(&mut tape.parameters, 0.02);
//! }
//! assert!(losses[59] < 0.1 * losses[0], "{losses:?}");
//! # Ok::<(), archipelago_train::Error>(())
//! ```
//!
//! `examples/own-archi` is a crate that registers such a layer, and then trains it with `archi`'s own commands.

use super::Weight;
use crate::parameters::{Names, ParameterId};
use crate::tape::{Tape, Var};
use crate::view::{Attention, EdgeSum, Edges, Messages, OnEdges, SentRows, Verb, View};
use crate::{Error, Result};
use std::sync::Arc;

/// One layer of message passing.
pub trait Layer: Send + Sync {
    /// The weights it needs. One called `bias` is added to the layer's output by the [`Model`](super::Model), which can do
    /// so in the same pass as activation and dropout.
    fn weights(&self) -> Vec<Weight>;

    /// Transform: what nodes send, from their rows. By default the rows as they are.
    fn transform(&self, _nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::rows(rows)
    }

    /// Gather: what passes along an edge, of which both ends and the edge's own values are seen. By default what its source
    /// sent. Called for a stretch of edges at a time, first of all for none, and again in the backward pass: it must be a
    /// function of what it sees.
    fn gather(&self, _edges: &mut Edges<'_>) -> Message {
        Message::Source
    }

    /// Sum: how what passes along the in-edges of a target becomes one row.
    fn sum(&self) -> Sum;

    /// Apply: what a target makes of the sum; `rows` are the layer's input, the targets first. By default the sum as it is.
    /// Bias, normalisation, activation and dropout follow by themselves.
    fn apply(&self, _nodes: &mut Nodes<'_>, _rows: Var, sum: Var) -> Var {
        sum
    }
}

/// The nodes of a layer, as Transform and Apply see them.
pub struct Nodes<'a> {
    /// Where rows are computed.
    pub tape: &'a mut Tape,
    weights: &'a Names,
    targets: usize,
}

impl Nodes<'_> {
    /// How many targets there are: the first rows.
    pub fn targets(&self) -> usize {
        self.targets
    }

    /// The weight called `name`.
    ///
    /// # Panics
    /// When the layer did not declare it.
    pub fn weight(&self, name: &str) -> ParameterId {
        self.weights.get(name)
    }

    /// `W x` for all rows.
    pub fn linear(&mut self, rows: Var, weight: &str) -> Var {
        let count = self.tape.rows(rows);
        self.tape.linear(rows, self.weights.get(weight), count)
    }

    /// `W x` for the targets.
    pub fn linear_of_targets(&mut self, rows: Var, weight: &str) -> Var {
        self.tape.linear(rows, self.weights.get(weight), self.targets)
    }

    /// `onto + W x` for the targets, in the memory of `onto`.
    pub fn linear_onto(&mut self, onto: Var, rows: Var, weight: &str) -> Var {
        self.tape.linear_onto(onto, rows, self.weights.get(weight))
    }
}

/// What nodes send into the edges.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    source: Var,
    weight: Option<ParameterId>,
    own: Option<ParameterId>,
    target: Option<Var>,
}

impl Sent {
    /// These rows: along out-edges, those of other parts after crossing the border.
    pub fn rows(rows: Var) -> Self {
        Self { source: rows, weight: None, own: None, target: None }
    }

    /// `W x` of these rows. Said like this, the engine is free to sum first and transform then, which is the same for sums
    /// and means of what is sent, and do what costs less.
    pub fn linear(nodes: &Nodes<'_>, rows: Var, weight: &str) -> Self {
        Self { weight: Some(nodes.weight(weight)), ..Self::rows(rows) }
    }

    /// Also sums up what a target itself would have sent, `1 + eps` times (GIN); only where what passes is what was sent.
    pub fn and_own(self, nodes: &Nodes<'_>, eps: &str) -> Self {
        Self { own: Some(nodes.weight(eps)), ..self }
    }

    /// And these rows of the targets, for messages to read.
    pub fn to_targets(self, rows: Var) -> Self {
        Self { target: Some(rows), ..self }
    }
}

/// What passes along edges.
#[derive(Debug, Clone, Copy)]
pub enum Message {
    /// What the source sent.
    Source,
    /// The same, scored per head by `LeakyReLU(source . z_j + target . z_i)` (GAT); a kernel of its own.
    Scored {
        /// How, and with how many heads.
        attention: Attention,
        /// Weighs the row of the source.
        source: ParameterId,
        /// Weighs the row of the target.
        target: ParameterId,
    },
    /// The same, scored per head by `weight . LeakyReLU(l_j + r_i)`, with `r` what the target added (GATv2); a kernel of its
    /// own.
    ScoredTogether {
        /// How, and with how many heads.
        attention: Attention,
        /// Weighs the sum of both ends.
        weight: ParameterId,
    },
    /// A row that was computed for each edge, with or without scores.
    Computed(Messages),
}

impl Message {
    /// Rows that were computed for each edge.
    pub fn rows(rows: Var) -> Self {
        Self::Computed(Messages { rows, scores: None })
    }

    /// Rows that were computed for each edge, and a score for each head.
    pub fn with_scores(rows: Var, scores: Var) -> Self {
        Self::Computed(Messages { rows, scores: Some(scores) })
    }
}

/// How what passes along the in-edges of a target becomes one row; 0 where there is no in-edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sum {
    /// The sum, each times the weight of its edge.
    Add,
    /// The same over the sum of the weights.
    Mean,
    /// GCN's normalised sum, the target itself included; only of what was sent.
    Symmetric,
    /// The element-wise maximum.
    Max,
    /// The average by the softmax of scores, this share of whose coefficients is dropped in training.
    Softmax(f32),
}

/// A layer and the weights that it was given.
pub(super) struct Wired {
    pub layer: Box<dyn Layer>,
    pub weights: Names,
}

impl OnEdges for Wired {
    fn names(&self) -> &Names {
        &self.weights
    }

    fn messages(&self, edges: &mut Edges<'_>) -> Messages {
        match self.layer.gather(edges) {
            Message::Computed(messages) => messages,
            _ => Messages { rows: edges.source(), scores: None },
        }
    }
}

impl Wired {
    fn nodes<'a>(&'a self, view: &'a mut View<'_>) -> Nodes<'a> {
        let targets = view.targets();
        Nodes { tape: view.tape, weights: &self.weights, targets }
    }

    /// Target rows from source rows, before bias and activation.
    pub fn forward(self: &Arc<Self>, view: &mut View<'_>, rows: Var) -> Result<Var> {
        let sent = self.layer.transform(&mut self.nodes(view), rows);
        let sum = self.sum(view, sent)?;
        for var in [Some(sent.source), sent.target].into_iter().flatten().filter(|&var| var != rows) {
            view.tape.forget(var);
        }
        Ok(self.layer.apply(&mut self.nodes(view), rows, sum))
    }

    /// Gather and Sum, by the verb that fits.
    fn sum(self: &Arc<Self>, view: &mut View<'_>, sent: Sent) -> Result<Var> {
        let what = view.probe(&self.weights, sent.widths(view), |edges| self.layer.gather(edges));
        match (what, self.layer.sum()) {
            (Message::Source, Sum::Add) => sent.aggregated(view, Verb::Sum),
            (Message::Source, Sum::Mean) => sent.aggregated(view, Verb::Mean),
            (Message::Source, Sum::Symmetric) => sent.aggregated(view, Verb::Symmetric),
            (Message::Source, Sum::Max) => sent.transformed(view, |view, rows| view.max(rows)),
            (Message::Scored { attention, source, target }, Sum::Softmax(_)) => {
                sent.transformed(view, |view, rows| view.attend(attention, rows, source, target))
            }
            (Message::ScoredTogether { attention, weight }, Sum::Softmax(_)) => match sent.target {
                Some(right) => view.attend_v2(attention, sent.source, right, weight),
                None => Err(mistake("scores both ends together, and sends no rows to targets")),
            },
            (Message::Computed(messages), sum) => self.sum_computed(view, sent, messages, sum),
            (_, sum) => Err(unsummable(sum)),
        }
    }

    fn sum_computed(
        self: &Arc<Self>,
        view: &mut View<'_>,
        sent: Sent,
        messages: Messages,
        sum: Sum,
    ) -> Result<Var> {
        let sum = match (sum, messages.scores) {
            (Sum::Add, None) => EdgeSum::Add,
            (Sum::Mean, None) => EdgeSum::Mean,
            (Sum::Max, None) => EdgeSum::Max,
            (Sum::Softmax(dropout), Some(_)) => EdgeSum::Softmax { dropout },
            _ => return Err(unsummable(sum)),
        };
        let layer: Arc<dyn OnEdges> = Arc::clone(self) as Arc<dyn OnEdges>;
        sent.transformed(view, |view, source| {
            view.gather_edges(&layer, SentRows { source, target: sent.target }, sum)
        })
    }
}

impl Sent {
    /// Numbers per row of sources and of targets.
    fn widths(&self, view: &View<'_>) -> (usize, usize) {
        let source = match self.weight {
            Some(weight) => view.tape.parameters.get(weight).rows,
            None => view.tape.cols(self.source),
        };
        (source, self.target.map_or(0, |target| view.tape.cols(target)))
    }

    /// What `verb` makes of rows as they are sent, summed up before or after they are transformed.
    fn aggregated(self, view: &mut View<'_>, verb: Verb) -> Result<Var> {
        let input = view.tape.cols(self.source);
        let (output, _) = self.widths(view);
        let with_own = |view: &mut View<'_>, rows: Var| {
            let sum = view.aggregate(verb, rows)?;
            Ok(self.own.map_or(sum, |eps| view.tape.add_scaled_self(sum, rows, eps)))
        };
        match (self.weight, self.own) {
            (None, _) => with_own(view, self.source),
            (Some(weight), None) => view.transformed(verb, self.source, weight, input, output),
            (Some(weight), Some(_)) => {
                view.aggregate_and_transform(self.source, weight, input, output, with_own)
            }
        }
    }

    /// What `verb` makes of rows that are transformed first.
    fn transformed(
        self,
        view: &mut View<'_>,
        verb: impl FnOnce(&mut View<'_>, Var) -> Result<Var>,
    ) -> Result<Var> {
        let Some(weight) = self.weight else { return verb(view, self.source) };
        let rows = view.tape.linear(self.source, weight, view.tape.rows(self.source));
        let sum = verb(view, rows)?;
        view.tape.forget(rows);
        Ok(sum)
    }
}

fn unsummable(sum: Sum) -> Error {
    mistake(&format!("cannot be summed up by `{sum:?}`: scores and `Softmax` belong together"))
}

/// What a layer's author got wrong.
fn mistake(what: &str) -> Error {
    Error::Layer { message: format!("what passes along the edges of a layer {what}") }
}
