//! Graph neural networks, written once against a [`View`](crate::view::View).
//!
//! A [`Layer`] says in NN-TGAR what nodes send, what passes along edges and what becomes of it ([`tgar`]). A [`Model`]
//! stacks layers and puts bias, normalisation, activation, dropout and residual connections around them. Neither can tell
//! which strategy trains it. A new model is one file here and one line in [`MODELS`]; from another crate, [`add`].

pub mod tgar;
mod gcn;
mod sage;
mod gat;
mod gatv2;
mod gin;
mod gat_e;
mod rgcn;
mod init;
mod stack;

pub use init::{Init, Start};
pub use stack::{Model, ModelShape, Norm, Outcome, Pass};
pub use tgar::{Layer, Message, Nodes, Sent, Sum};

use crate::parameters::Parameter;
use crate::run::RunConfig;
use crate::view::Verb;
use crate::{Error, Result};
use archipelago_graph::dataset::EdgeColumns;
use archipelago_graph::registry::{Listed, Registry};

/// Widths of a layer and everything else it may want to know before it is built.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerShape {
    /// Numbers per source row.
    pub input: usize,
    /// Numbers per target row.
    pub output: usize,
    /// Width inside the layer, where it has an inside (GIN).
    pub inner: usize,
    /// Attention heads. Side by side, each is `output / heads` wide; averaged, each is `output` wide.
    pub heads: usize,
    /// Whether heads stand side by side (hidden layers) or are averaged (the last one).
    pub concat: bool,
    /// How SAGE pools its neighbours.
    pub aggregator: Aggregator,
    /// Share of attention coefficients dropped in training.
    pub attention_dropout: f32,
    /// Whether attention includes the node itself.
    pub self_loops: bool,
    /// Attributes per edge that it may read.
    pub edge_width: usize,
    /// Types of edges that it may read.
    pub edge_kinds: usize,
    /// Matrices that those of all types of edges are mixed from (R-GCN).
    pub bases: usize,
}

/// How SAGE pools its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregator {
    /// The mean of the neighbours.
    Mean,
    /// Their sum.
    Sum,
    /// Their element-wise maximum.
    Max,
}

/// A weight that a layer asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// Its name inside the layer.
    pub name: &'static str,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub cols: usize,
    /// How it is drawn at the start.
    pub start: Start,
}

impl Weight {
    /// A weight called `name` of `rows x cols` numbers, drawn as `start` says.
    pub fn new(name: &'static str, rows: usize, cols: usize, start: Start) -> Self {
        Self { name, rows, cols, start }
    }

    /// The weight itself, as drawn for `seed`, under its full `name`.
    pub fn drawn(&self, name: String, seed: u64) -> Parameter {
        let mut parameter = Parameter::zeros(name, self.rows, self.cols);
        self.start.draw(&mut parameter, seed);
        parameter
    }

    /// The same weight, drawn as `init` wants it.
    fn started(self, init: Init) -> Self {
        Self { start: init.start(self.start, self.cols), ..self }
    }
}

/// How a first layer reads dense node features: what must stay in memory from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Only their aggregate, which is computed once.
    Aggregate(Verb),
    /// Their aggregate and each node's own row.
    AggregateAndOwn,
    /// Every row, as it is.
    Rows,
    /// Every row, transformed; the transformed rows are kept for the backward pass.
    Transformed,
    /// The same, and nodes may be among those that they attend to (`model.self_loops`).
    Attended,
}

/// What a model reads of edges, besides their weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgeNeed {
    /// Nothing.
    Nothing,
    /// Types or attributes, whichever there are.
    Values,
    /// Types.
    Types,
}

impl EdgeNeed {
    /// Refuses a model that reads what the edges of a graph do not have.
    pub fn check(self, config: &RunConfig, columns: EdgeColumns) -> Result<()> {
        let typed = columns.types > 0;
        let (met, wanted) = match self {
            Self::Nothing => (true, ""),
            Self::Values => (typed || columns.attribute_width > 0, "edge types or attributes"),
            Self::Types => (typed, "edge types"),
        };
        if met {
            return Ok(());
        }
        let name = &config.model.name;
        let message = format!("expected {wanted} in the data with model `{name}`, found none");
        Err(Error::config(config.place("model.name"), "model.name", message).with_hint(
            "`gat` and `gcn` need none; `edge_type` and `edge_attr` are described in docs/formats.md",
        ))
    }
}

/// A row of the table of models.
pub struct Entry {
    /// What users call it.
    pub name: &'static str,
    /// One line for `archi list`.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// How its first layer reads node features, if it pools its neighbours like this.
    pub reads: fn(Aggregator) -> Reads,
    /// What it reads of edges.
    pub edges: EdgeNeed,
    /// Makes one layer of it.
    pub build: fn(&LayerShape) -> Box<dyn Layer>,
}

impl Listed for Entry {
    const KIND: &'static str = "model";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// Every built-in model.
pub const MODELS: &[Entry] =
    &[gcn::ENTRY, sage::ENTRY, gat::ENTRY, gatv2::ENTRY, gin::ENTRY, gat_e::ENTRY, rgcn::ENTRY];

static TABLE: Registry<Entry> = Registry::new(MODELS);

/// Every model that users can choose: built-in ones, then added ones.
pub fn models() -> impl Iterator<Item = &'static Entry> {
    TABLE.entries()
}

/// Adds models of one's own: once, before any was looked up (see [`archipelago_graph::registry`]).
pub fn add(models: Vec<Entry>) -> Result<()> {
    Ok(TABLE.add(models)?)
}

/// The model called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    Ok(TABLE.find(name)?)
}

#[cfg(test)]
mod agreement;

#[cfg(test)]
mod tests {
    use super::*;

    /// A small model of two layers.
    pub(super) fn shape() -> ModelShape {
        ModelShape {
            input: 4,
            hidden: 6,
            output: 3,
            layers: 2,
            heads: 1,
            output_heads: 1,
            aggregator: Aggregator::Mean,
            activation: crate::tape::Activation::Relu,
            norm: Norm::None,
            dropout: 0.0,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            residual: false,
            self_loops: true,
            edge_width: 0,
            edge_kinds: 0,
            bases: 1,
            init: Init::Model,
        }
    }

    #[test]
    fn an_unknown_model_is_answered_with_the_nearest() {
        let message = find("gatv3").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("did you mean `gatv2`"), "{message}");
    }
}
