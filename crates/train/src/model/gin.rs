//! GIN (Xu et al., ICLR 2019).
//!
//! `out_i = W2 ReLU(W1 ((1 + eps) x_i + sum_{j -> i} x_j) + b1) + b2`, `eps` learned. The first transform
//! commutes with the sum, so it comes first where that is the narrower side.

use super::{Entry, Layer, Names, Reads, Start, Weight};
use crate::Result;
use crate::tape::{Activation, Var};
use crate::view::View;

pub(super) const ENTRY: Entry = Entry {
    name: "gin",
    summary: "sum of neighbours through a two-layer perceptron",
    paper: "Xu et al., ICLR 2019",
    reads: |_| Reads::AggregateAndOwn,
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

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let (eps, first) = (weights.get("eps"), weights.get("weight1"));
        let inner = view.aggregate_and_transform(rows, first, self.input, self.inner, |view, rows| {
            let sum = view.sum(rows)?;
            Ok(view.tape.add_scaled_self(sum, rows, eps))
        })?;
        let inner = view.tape.epilogue(inner, Some(weights.get("bias1")), Activation::Relu, None);
        Ok(view.tape.linear(inner, weights.get("weight2"), view.targets()))
    }
}
