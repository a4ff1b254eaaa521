//! GCN (Kipf & Welling, ICLR 2017).
//!
//! `out_i = W x_i / d_i + sum_{j -> i} w_ji / sqrt(d_j d_i) W x_j + b` with `d = 1 + weighted in-degree`, both
//! ends by their in-degree (as PyTorch Geometric does; on a directed graph DGL uses the source's out-degree).
//! The self-loop that GCN adds is the fresh term `W x_i / d_i`; loops in the data are ordinary edges besides.

use super::{EdgeNeed, Entry, Layer, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::Var;
use crate::view::Verb;

pub(super) const ENTRY: Entry = Entry {
    name: "gcn",
    summary: "graph convolution, symmetrically normalised",
    paper: "Kipf & Welling, ICLR 2017",
    reads: |_| Reads::Aggregate(Verb::Symmetric),
    edges: EdgeNeed::Nothing,
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

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::linear(nodes, rows, "weight")
    }

    fn sum(&self) -> Sum {
        Sum::Symmetric
    }
}
