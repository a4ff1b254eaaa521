//! Layers one upon another, with bias, residual connection, normalisation, activation and dropout between them.
//!
//! After each layer but the last: `dropout(activation(norm(layer(x) + residual + bias)))`; after the last only the
//! bias is added. A layer under batch norm has no bias of its own.

use super::tgar::Wired;
use super::{Aggregator, Entry, Init, Layer, LayerShape, Reads, Start, Weight};
use crate::Result;
use crate::boundary::{Boundary, Half};
use crate::parameters::{Names, Parameter, ParameterId, Parameters};
use crate::tape::{Activation, DropoutRows, NormWeights, Tape, Var};
use crate::view::{Layout, Statics, Verb, View};
use std::sync::Arc;

/// What stands between a layer's output and its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// Nothing.
    None,
    /// Each row to mean 0 and variance 1.
    Layer,
    /// Each column to mean 0 and variance 1 over all rows of the step, on all ranks.
    Batch,
}

/// A whole model's shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelShape {
    /// Numbers per input row.
    pub input: usize,
    /// Numbers per row between layers.
    pub hidden: usize,
    /// Numbers per output row: classes or labels.
    pub output: usize,
    /// How many layers.
    pub layers: usize,
    /// Attention heads of hidden layers.
    pub heads: usize,
    /// Attention heads of the last layer, averaged.
    pub output_heads: usize,
    /// How SAGE pools its neighbours.
    pub aggregator: Aggregator,
    /// Between layers.
    pub activation: Activation,
    /// Between layers, before the activation.
    pub norm: Norm,
    /// Share of hidden numbers dropped in training.
    pub dropout: f32,
    /// Share of input numbers dropped in training.
    pub input_dropout: f32,
    /// Share of attention coefficients dropped in training.
    pub attention_dropout: f32,
    /// Whether a layer's input is added to its output.
    pub residual: bool,
    /// Whether attention includes the node itself.
    pub self_loops: bool,
    /// Attributes per edge.
    pub edge_width: usize,
    /// Types of edges.
    pub edge_kinds: usize,
    /// Matrices that those of all types of edges are mixed from (R-GCN).
    pub bases: usize,
    /// How its weights are drawn at the start.
    pub init: Init,
}

impl ModelShape {
    /// The shape of layer `index`.
    pub fn layer(&self, index: usize) -> LayerShape {
        let last = index + 1 == self.layers;
        LayerShape {
            input: if index == 0 { self.input } else { self.hidden },
            output: if last { self.output } else { self.hidden },
            inner: self.hidden,
            heads: if last { self.output_heads } else { self.heads },
            concat: !last,
            aggregator: self.aggregator,
            attention_dropout: self.attention_dropout,
            self_loops: self.self_loops,
            edge_width: self.edge_width,
            edge_kinds: self.edge_kinds,
            bases: self.bases,
        }
    }
}

/// Layers and everything around them. Knows where its weights stand, not what they are.
pub struct Model {
    shape: ModelShape,
    reads: Reads,
    stages: Vec<Stage>,
}

/// One layer with the weights around it.
struct Stage {
    wired: Arc<Wired>,
    norm: Option<NormWeights>,
    residual: Residual,
}

enum Residual {
    None,
    Identity,
    Projected(ParameterId),
}

/// What a forward pass gives.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// One row of scores per target.
    pub output: Var,
    /// The rows that the last layer read, where they were asked for.
    pub embeddings: Option<Var>,
}

/// What a forward pass runs on: one layout per layer, the input rows, and what is known of them.
pub struct Pass<'a> {
    /// One layout per layer, first layer first.
    pub layouts: &'a [Arc<Layout>],
    /// The input rows.
    pub input: Var,
    /// What is known of the input rows if they are the same in every step.
    pub statics: Option<&'a mut Statics>,
    /// Whether the rows that the last layer reads are wanted afterwards.
    pub keep_embeddings: bool,
}

impl Model {
    /// A model of this shape, and its weights as drawn for `seed`; also its buffers: numbers that belong to the
    /// model and are not trained (running statistics of batch norm).
    pub fn build(entry: &Entry, shape: ModelShape, seed: u64) -> (Self, Parameters, Parameters) {
        Self::build_beside(entry, shape, seed, Vec::new())
    }

    /// [`build`](Self::build), with the weights of `others` (such as a decoder) among those of the model: they are
    /// trained, agreed on and saved together.
    pub fn build_beside(
        entry: &Entry,
        shape: ModelShape,
        seed: u64,
        others: Vec<Parameter>,
    ) -> (Self, Parameters, Parameters) {
        let layers: Vec<_> = (0..shape.layers).map(|index| (entry.build)(&shape.layer(index))).collect();
        let mut declared = Vec::new();
        let mut buffers = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            let around = around(&shape, index);
            // Batch norm subtracts whatever a bias adds: it would only drift on rounding errors.
            let batch = normalised(&shape, index) && shape.norm == Norm::Batch;
            let own = layer.weights().into_iter().filter(|weight| !(batch && weight.name == "bias"));
            declared.extend(own.chain(around).map(|weight| (index, weight.started(shape.init))));
            if batch {
                buffers.extend(running_statistics(&shape, index));
            }
        }
        let own = declared.iter().map(|(i, weight)| weight.drawn(full_name(*i, weight.name), seed));
        let parameters = Parameters::new(own.chain(others).collect());
        let buffers = Parameters::new(buffers);
        let stages = layers
            .into_iter()
            .enumerate()
            .map(|(index, layer)| Stage::new(layer, &shape, index, &parameters, &buffers))
            .collect();
        (Self { reads: (entry.reads)(shape.aggregator), shape, stages }, parameters, buffers)
    }

    /// Whether its first layer aggregates static dense features, which is then done once.
    pub fn aggregates_input(&self) -> bool {
        let aggregates = matches!(self.reads, Reads::Aggregate(_) | Reads::AggregateAndOwn);
        aggregates && self.shape.input_dropout == 0.0
    }

    /// Whether layers keep their transformed rows for the backward pass, as attention does.
    pub fn keeps_transformed(&self) -> bool {
        matches!(self.reads, Reads::Transformed | Reads::Attended)
    }

    /// Whether layers read the rows of their sources as they are: a maximum does.
    pub fn reads_rows(&self) -> bool {
        self.reads == Reads::Rows
    }

    /// Whether nodes are among those that they attend to.
    pub fn attends_to_own(&self) -> bool {
        self.reads == Reads::Attended && self.shape.self_loops
    }

    /// The one verb through which static dense features are read, where nothing else reads them.
    pub fn only_verb(&self) -> Option<Verb> {
        match self.reads {
            Reads::Aggregate(verb) if self.aggregates_input() && !self.shape.residual => Some(verb),
            _ => None,
        }
    }

    /// The shape it was built with.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// Runs all layers.
    pub fn forward(&self, tape: &mut Tape, boundary: &mut dyn Boundary, pass: Pass<'_>) -> Result<Outcome> {
        let Pass { layouts, input, mut statics, keep_embeddings } = pass;
        let mut rows = self.drop_input(tape, layouts, input);
        let static_input = (rows == input && statics.is_some()).then_some(input);
        let mut embeddings = None;
        for (index, (stage, layout)) in self.stages.iter().zip(layouts).enumerate() {
            let last = index + 1 == self.stages.len();
            let mut view = View {
                tape: &mut *tape,
                boundary: &mut *boundary,
                layout,
                layer: index,
                half: Half::Whole,
                statics: statics.as_deref_mut(),
                static_input,
            };
            let output = self.run_stage(stage, &mut view, rows, last)?;
            if last && keep_embeddings {
                embeddings = Some(rows);
            } else {
                tape.forget(rows);
            }
            rows = output;
        }
        Ok(Outcome { output: rows, embeddings })
    }

    /// Runs layer `index` alone, without training: the rows that the next one reads.
    pub fn forward_layer(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        index: usize,
        layout: &Arc<Layout>,
        rows: Var,
    ) -> Result<Var> {
        let (half, last) = (Half::Whole, index + 1 == self.stages.len());
        let mut view = View { tape, boundary, layout, layer: index, half, statics: None, static_input: None };
        self.run_stage(&self.stages[index], &mut view, rows, last)
    }

    fn drop_input(&self, tape: &mut Tape, layouts: &[Arc<Layout>], input: Var) -> Var {
        match layouts.first() {
            Some(layout) if self.shape.input_dropout > 0.0 && tape.training => {
                let dropout = DropoutRows::new(tape.dropout_key(0), self.shape.input_dropout, &layout.nodes);
                tape.dropout(input, dropout)
            }
            _ => input,
        }
    }

    fn run_stage(&self, stage: &Stage, view: &mut View<'_>, rows: Var, last: bool) -> Result<Var> {
        let mut output = stage.wired.forward(view, rows)?;
        match stage.residual {
            Residual::None => {}
            Residual::Identity => output = view.tape.add_rows(output, rows),
            Residual::Projected(weight) => output = view.tape.linear_onto(output, rows, weight),
        }
        let bias = stage.wired.weights.find("bias");
        if last {
            return Ok(view.tape.epilogue(output, bias, Activation::Identity, None));
        }
        let rate = if view.tape.training { self.shape.dropout } else { 0.0 };
        let key = view.tape.dropout_key(view.layer + 1);
        let dropout = (rate > 0.0).then(|| DropoutRows::new(key, rate, &view.layout.nodes));
        let Some(norm) = &stage.norm else {
            return Ok(view.tape.epilogue(output, bias, self.shape.activation, dropout));
        };
        let biased = match bias {
            Some(_) => view.tape.epilogue(output, bias, Activation::Identity, None),
            None => output,
        };
        let normed = match self.shape.norm {
            Norm::Batch => view.tape.batch_norm(view.boundary, biased, norm)?,
            _ => view.tape.layer_norm(biased, norm),
        };
        Ok(view.tape.epilogue(normed, None, self.shape.activation, dropout))
    }
}

impl Stage {
    fn new(
        layer: Box<dyn Layer>,
        shape: &ModelShape,
        index: usize,
        parameters: &Parameters,
        buffers: &Parameters,
    ) -> Self {
        let find = |name: &str| parameters.find(&full_name(index, name));
        let weights = layer
            .weights()
            .iter()
            .filter_map(|weight| find(weight.name).map(|id| (weight.name, id)))
            .collect();
        let running = |name: &str| buffers.find(&full_name(index, name));
        let running = running("norm.running_mean").zip(running("norm.running_var"));
        let norm = find("norm.gamma").zip(find("norm.beta")).map(|(gamma, beta)| NormWeights {
            gamma,
            beta,
            running,
        });
        let residual = match find("residual") {
            Some(weight) => Residual::Projected(weight),
            None if shape.residual => Residual::Identity,
            None => Residual::None,
        };
        let wired = Arc::new(Wired { layer, weights: Names::new(weights) });
        Self { wired, norm, residual }
    }
}

fn full_name(layer: usize, name: &str) -> String {
    format!("layers.{layer}.{name}")
}

fn normalised(shape: &ModelShape, index: usize) -> bool {
    shape.norm != Norm::None && index + 1 < shape.layers
}

/// Weights around layer `index`: scale and shift of its norm, projection of its residual connection.
fn around(shape: &ModelShape, index: usize) -> Vec<Weight> {
    let LayerShape { input, output, .. } = shape.layer(index);
    let mut weights = Vec::new();
    if normalised(shape, index) {
        weights.push(Weight::new("norm.gamma", 1, output, Start::One));
        weights.push(Weight::new("norm.beta", 1, output, Start::Zero));
    }
    if shape.residual && input != output {
        weights.push(Weight::new("residual", output, input, Start::Glorot));
    }
    weights
}

fn running_statistics(shape: &ModelShape, index: usize) -> [Parameter; 2] {
    let width = shape.layer(index).output;
    let mut variance = Parameter::zeros(full_name(index, "norm.running_var"), 1, width);
    variance.value.fill(1.0);
    [Parameter::zeros(full_name(index, "norm.running_mean"), 1, width), variance]
}

#[cfg(test)]
mod tests {
    use super::super::{find, tests::shape};
    use super::*;

    #[test]
    fn a_model_finds_its_weights_among_those_of_others() {
        let entry = find("sage").unwrap();
        let others = vec![Parameter::zeros("decoder.weight", 2, 3), Parameter::zeros("x", 1, 1)];
        let (model, parameters, _) = Model::build_beside(entry, shape(), 1, others.clone());
        let (_, alone, _) = Model::build(entry, shape(), 1);
        for (index, stage) in model.stages.iter().enumerate() {
            for (name, id) in stage.wired.weights.iter() {
                assert_eq!(parameters.get(*id).name, full_name(index, name));
            }
        }
        let (mine, theirs): (Vec<_>, Vec<_>) =
            parameters.iter().cloned().partition(|weight| weight.name.starts_with("layers."));
        assert_eq!((Parameters::new(mine), theirs), (alone, others));
    }
}
