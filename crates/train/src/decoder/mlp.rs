//! A perceptron on the product of both rows (as in Hu et al., Open Graph Benchmark):
//! `w2 . ReLU(W1 (a * b) + b1) + b`.

use super::{Decoder, DecoderShape, Entry, Pairs};
use crate::model::{Start, Weight};
use crate::parameters::Names;
use crate::tape::{Activation, Tape, Var};

pub(super) const ENTRY: Entry = Entry {
    name: "mlp",
    summary: "two-layer perceptron on the product of both ends",
    paper: "Hu et al., Open Graph Benchmark, NeurIPS 2020",
    build: |shape| Box::new(Mlp { shape: *shape }),
};

struct Mlp {
    shape: DecoderShape,
}

impl Decoder for Mlp {
    fn weights(&self) -> Vec<Weight> {
        let DecoderShape { width, hidden, .. } = self.shape;
        vec![
            Weight::new("weight1", hidden, width, Start::Fan(width)),
            Weight::new("bias1", 1, hidden, Start::Fan(width)),
            Weight::new("weight2", 1, hidden, Start::Fan(hidden)),
            Weight::new("bias", 1, 1, Start::Fan(hidden)),
        ]
    }

    fn scores(&self, tape: &mut Tape, weights: &Names, rows: Var, links: Pairs<'_>) -> Var {
        let products = tape.pair_products(rows, links);
        let hidden = tape.linear(products, weights.get("weight1"), links.count());
        tape.forget(products);
        let hidden = tape.epilogue(hidden, Some(weights.get("bias1")), Activation::Relu, None);
        let scores = tape.linear(hidden, weights.get("weight2"), links.count());
        tape.forget(hidden);
        tape.epilogue(scores, Some(weights.get("bias")), Activation::Identity, None)
    }
}
