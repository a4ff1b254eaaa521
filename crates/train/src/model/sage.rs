//! GraphSAGE (Hamilton et al., NeurIPS 2017).
//!
//! `out_i = W_neigh agg(x_j : j -> i) + W_self x_i + b`, agg = mean, sum or element-wise maximum, 0 where there is
//! no in-edge. Mean and sum commute with the transform, so the narrower side is aggregated and exchanged; the
//! maximum does not.

use super::{Aggregator, EdgeNeed, Entry, Layer, LayerShape, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::Var;

pub(super) const ENTRY: Entry = Entry {
    name: "sage",
    summary: "own row and pooled neighbours (aggregator: mean, sum or max)",
    paper: "Hamilton et al., NeurIPS 2017",
    reads: |aggregator| match aggregator {
        Aggregator::Mean | Aggregator::Sum => Reads::AggregateAndOwn,
        Aggregator::Max => Reads::Rows,
    },
    edges: EdgeNeed::Nothing,
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

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        match self.shape.aggregator {
            Aggregator::Mean | Aggregator::Sum => Sent::linear(nodes, rows, "weight_neigh"),
            Aggregator::Max => Sent::rows(rows),
        }
    }

    fn sum(&self) -> Sum {
        match self.shape.aggregator {
            Aggregator::Mean => Sum::Mean,
            Aggregator::Sum => Sum::Add,
            Aggregator::Max => Sum::Max,
        }
    }

    fn apply(&self, nodes: &mut Nodes<'_>, rows: Var, sum: Var) -> Var {
        let pooled = match self.shape.aggregator {
            Aggregator::Mean | Aggregator::Sum => sum,
            Aggregator::Max => nodes.linear_of_targets(sum, "weight_neigh"),
        };
        nodes.linear_onto(pooled, rows, "weight_self")
    }
}
