//! How much does a layer compute and send for each row and edge? The model's widths, and the order of its work.

use super::held::Widths;
use crate::Result;
use crate::boundary::Order;
use crate::model::{self, Model};
use crate::run::{Features, RunConfig};
use crate::worker::model_shape;
use archipelago_graph::dataset::EdgeColumns;

/// A model, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Net {
    /// Its widths.
    pub widths: Widths,
    /// Numbers in all weights together.
    pub parameters: usize,
    /// Numbers in the matrices of each layer that rows are multiplied by.
    matrices: Vec<usize>,
    /// Whether the first layer's aggregate never changes, where the batch is always the same.
    pub static_first: bool,
    /// Whether the first layer reads sparse rows.
    pub sparse: bool,
    /// Whether all hidden rows are computed in every step.
    pub all_hidden: bool,
    /// Whether layers have an inside: two products, one after the other (GIN).
    inside: bool,
    /// Whether they take the maximum of their neighbours (SAGE).
    maximum: bool,
    /// Whether features are read where they lie.
    pub in_place: bool,
}

/// What one layer does for its rows and edges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Numbers that are summed along an edge.
    pub width: usize,
    /// Multiplications for each source row.
    pub per_source: f64,
    /// Multiplications for each target row.
    pub per_target: f64,
}

impl Net {
    /// The model of `config` on so many features and classes.
    pub fn of(config: &RunConfig, features: usize, classes: usize, dense: bool) -> Result<Self> {
        let entry = model::find(&config.model.name)?;
        let shape = model_shape(config, features + config.model.embedding, classes, EdgeColumns::default());
        let matrix = |weight: &model::Weight| if weight.rows > 1 { weight.rows * weight.cols } else { 0 };
        let matrices = (0..shape.layers)
            .map(|index| (entry.build)(&shape.layer(index)).weights().iter().map(matrix).sum());
        let matrices = matrices.collect();
        let (model, parameters, _) = Model::build(entry, shape.clone(), 0);
        Ok(Self {
            parameters: parameters.count(),
            matrices,
            static_first: dense && model.aggregates_input(),
            sparse: !dense,
            inside: entry.name == "gin",
            maximum: entry.name == "sage" && shape.aggregator == model::Aggregator::Max,
            all_hidden: shape.norm == model::Norm::Batch,
            in_place: dense && config.data.features == Features::AsIs,
            widths: Widths { attends: model.keeps_transformed(), shape },
        })
    }

    /// How many layers it has.
    pub fn layers(&self) -> usize {
        self.widths.shape.layers
    }

    /// Numbers per row of layer `index` that cross part borders, if it aggregates in this `order`.
    pub fn crossing_width(&self, index: usize, order: Order) -> usize {
        let layer = self.widths.shape.layer(index);
        let inner = if self.inside { layer.inner } else { layer.output };
        match order {
            _ if self.widths.attends => self.widths.head_width(index),
            _ if self.maximum => layer.input,
            _ if index == 0 && self.sparse => inner,
            Order::Split => layer.input.min(inner),
            _ if order.transforms_before_crossing(layer.input, inner) => inner,
            _ => layer.input,
        }
    }

    /// What layer `index` does, with so many rows and edges per step; `crosses` where rows come from other parts.
    pub fn cost(&self, index: usize, order: Order, crosses: bool, rows: [f64; 3]) -> Cost {
        let layer = self.widths.shape.layer(index);
        let (input, [sources, targets, edges]) = (layer.input as f64, rows);
        let inner = if self.inside { layer.inner } else { layer.output };
        let width = if self.widths.attends { self.widths.head_width(index) } else { inner };
        let product = input * width as f64;
        let rest = (self.matrices[index] as f64 - product).max(0.0);
        let first = match order {
            _ if self.widths.attends => true,
            _ if self.maximum => false,
            _ if index == 0 && self.sparse => true,
            Order::AggregateFirst | Order::Split => false,
            _ if crosses => order.transforms_before_crossing(layer.input, width),
            // As the view decides: a number summed along an edge costs as much as 16 multiplications.
            _ => {
                let edge = 16.0 * edges;
                sources * product + edge * (width as f64) < targets * product + edge * input
            }
        };
        match first {
            true => Cost { width, per_source: product, per_target: rest },
            false => Cost { width: layer.input, per_source: 0.0, per_target: product + rest },
        }
    }
}
