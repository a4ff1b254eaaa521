//! GraphSAGE (Hamilton et al., NeurIPS 2017).
//!
//! `out_i = W_neigh agg(x_j : j -> i) + W_self x_i + b`, agg = mean, sum or element-wise maximum, 0 where there is
//! no in-edge. Mean and sum commute with the transform, so the narrower side is aggregated and exchanged; the
//! maximum does not.

use super::{Aggregator, Entry, Layer, LayerShape, Names, Reads, Start, Weight};
use crate::Result;
use crate::tape::Var;
use crate::view::{Verb, View};

pub(super) const ENTRY: Entry = Entry {
    name: "sage",
    summary: "own row and pooled neighbours (aggregator: mean, sum or max)",
    paper: "Hamilton et al., NeurIPS 2017",
    reads: |aggregator| match aggregator {
        Aggregator::Mean | Aggregator::Sum => Reads::AggregateAndOwn,
        Aggregator::Max => Reads::Rows,
    },
    build: |shape| Box::new(Sage { shape: shape.clone() }),
};

struct Sage {
    shape: LayerShape,
}

impl Layer for Sage {
    fn weights(&self) -> Vec<Weight> {
        let LayerShape { input, output, .. } = self.shape;
        vec![
            Weight::new("weight_neigh", output, input, Start::GlorotRelu),
            Weight::new("weight_self", output, input, Start::GlorotRelu),
            Weight::new("bias", 1, output, Start::Zero),
        ]
    }

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let neighbors = weights.get("weight_neigh");
        let LayerShape { input, output, aggregator, .. } = self.shape;
        let pooled = match aggregator {
            Aggregator::Mean => view.transformed(Verb::Mean, rows, neighbors, input, output)?,
            Aggregator::Sum => view.transformed(Verb::Sum, rows, neighbors, input, output)?,
            Aggregator::Max => {
                let pooled = view.max(rows)?;
                view.tape.linear(pooled, neighbors, view.targets())
            }
        };
        Ok(view.tape.linear_onto(pooled, rows, weights.get("weight_self")))
    }
}
