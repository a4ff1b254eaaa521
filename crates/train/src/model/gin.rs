//! GIN (Xu et al., ICLR 2019).
//!
//! `out_i = W2 ReLU(W1 ((1 + eps) x_i + sum_{j -> i} x_j) + b1) + b2`, `eps` learned. The first transform
//! commutes with the sum, so it comes first where that is the narrower side.

use super::{EdgeNeed, Entry, Layer, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::{Activation, Var};

pub(super) const ENTRY: Entry = Entry {
    name: "gin",
    summary: "sum of neighbours through a two-layer perceptron",
    paper: "Xu et al., ICLR 2019",
    reads: |_| Reads::AggregateAndOwn,
    edges: EdgeNeed::Nothing,
    build: |shape| Box::new(Gin { input: shape.input, inner: shape.inner, output: shape.output }),
};

struct Gin {
    input: usize,
    inner: usize,
    output: usize,
}

impl Layer for Gin {
    fn weights(&self) -> Vec<Weight> {
        vec![
            Weight::new("eps", 1, 1, Start::Zero),
            Weight::new("weight1", self.inner, self.input, Start::Fan(self.input)),
            Weight::new("bias1", 1, self.inner, Start::Fan(self.input)),
            Weight::new("weight2", self.output, self.inner, Start::Fan(self.inner)),
            Weight::new("bias", 1, self.output, Start::Fan(self.inner)),
        ]
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::linear(nodes, rows, "weight1").and_own(nodes, "eps")
    }

    fn sum(&self) -> Sum {
        Sum::Add
    }

    fn apply(&self, nodes: &mut Nodes<'_>, _: Var, sum: Var) -> Var {
        let bias = Some(nodes.weight("bias1"));
        let inner = nodes.tape.epilogue(sum, bias, Activation::Relu, None);
        nodes.linear(inner, "weight2")
    }
}
