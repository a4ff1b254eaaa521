//! Graph neural networks, written once against a [`View`].
//!
//! A [`Layer`] computes target rows from source rows by asking the view for sums, means or attentions. A
//! [`Model`] stacks layers and puts bias, normalisation, activation, dropout and residual connections around
//! them. Neither can tell which strategy trains it. A new model is one file here and one line in [`MODELS`];
//! from another crate, [`add`].

mod gcn;
mod sage;
mod gat;
mod gatv2;
mod gin;
mod init;
mod stack;

pub use init::Start;
pub use stack::{Model, ModelShape, Norm, Outcome, Pass};

use crate::Result;
use crate::parameters::{Parameter, ParameterId};
use crate::tape::Var;
use crate::view::{Verb, View};
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
}

/// One layer of message passing.
pub trait Layer: Send + Sync {
    /// The weights it needs. One called `bias` is added to the layer's output by the [`Model`], which can do so
    /// in the same pass as activation and dropout.
    fn weights(&self) -> Vec<Weight>;

    /// Target rows from source rows, before bias and activation.
    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var>;
}

/// Looks up a layer's weights by their name inside the layer.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a>(pub(crate) &'a [(&'static str, ParameterId)]);

impl Names<'_> {
    /// The weight called `name`, if this model has it.
    pub fn find(self, name: &str) -> Option<ParameterId> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, id)| *id)
    }

    /// The weight called `name`.
    ///
    /// # Panics
    /// When the layer did not declare it in [`Layer::weights`], which is a mistake of the layer's author.
    pub fn get(self, name: &str) -> ParameterId {
        match self.find(name) {
            Some(id) => id,
            None => panic!("a layer asks for weight `{name}`, which it did not declare"),
        }
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
pub const MODELS: &[Entry] = &[gcn::ENTRY, sage::ENTRY, gat::ENTRY, gatv2::ENTRY, gin::ENTRY];

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
        }
    }

    #[test]
    fn an_unknown_model_is_answered_with_the_nearest() {
        let message = find("gatv3").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("did you mean `gatv2`"), "{message}");
    }
}
