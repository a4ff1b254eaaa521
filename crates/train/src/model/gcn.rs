//! GCN (Kipf & Welling, ICLR 2017).
//!
//! `out_i = W x_i / d_i + sum_{j -> i} w_ji / sqrt(d_j d_i) W x_j + b` with `d = 1 + weighted in-degree`, both
//! ends by their in-degree (as PyTorch Geometric does; on a directed graph DGL uses the source's out-degree).
//! The self-loop that GCN adds is the fresh term `W x_i / d_i`; loops in the data are ordinary edges besides.

use super::{Entry, Layer, Names, Reads, Start, Weight};
use crate::Result;
use crate::tape::Var;
use crate::view::{Verb, View};

pub(super) const ENTRY: Entry = Entry {
    name: "gcn",
    summary: "graph convolution, symmetrically normalised",
    paper: "Kipf & Welling, ICLR 2017",
    reads: |_| Reads::Aggregate(Verb::Symmetric),
    build: |shape| Box::new(Gcn { input: shape.input, output: shape.output }),
};

struct Gcn {
    input: usize,
    output: usize,
}

impl Layer for Gcn {
    fn weights(&self) -> Vec<Weight> {
        vec![
            Weight::new("weight", self.output, self.input, Start::Glorot),
            Weight::new("bias", 1, self.output, Start::Zero),
        ]
    }

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let weight = weights.get("weight");
        view.transformed(Verb::Symmetric, rows, weight, self.input, self.output)
    }
}
