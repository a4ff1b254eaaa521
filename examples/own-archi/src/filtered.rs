//! A layer whose neighbours choose what they tell: what a row sends passes a ReLU of its own before the mean is taken.
//!
//! `out_i = mean_{j -> i} ReLU(W_sent x_j + b_sent) + W_own x_i + b`. In SAGE the mean comes first, so a neighbour cannot keep
//! anything to itself: what some say is averaged away by others. Here `b_sent` is a threshold below which nothing is sent.
//! Rows that cross are `output` wide. Every source row is transformed in every step, as nothing commutes with the ReLU.

use archipelago::train::model::{EdgeNeed, Entry, Layer, Nodes, Reads, Sent, Start, Sum, Weight};
use archipelago::train::tape::{Activation, Var};

/// The table line of this model.
pub const ENTRY: Entry = Entry {
    name: "filtered",
    summary: "own row and the mean of neighbours that each passed a ReLU",
    paper: "",
    reads: |_| Reads::Rows,
    edges: EdgeNeed::Nothing,
    build: |shape| Box::new(Filtered { input: shape.input, output: shape.output }),
};

struct Filtered {
    input: usize,
    output: usize,
}

impl Layer for Filtered {
    fn weights(&self) -> Vec<Weight> {
        vec![
            Weight::new("weight_sent", self.output, self.input, Start::GlorotRelu),
            Weight::new("bias_sent", 1, self.output, Start::Zero),
            Weight::new("weight_own", self.output, self.input, Start::Glorot),
            // Added by the model, together with the activation.
            Weight::new("bias", 1, self.output, Start::Zero),
        ]
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        let (sent, bias) = (nodes.linear(rows, "weight_sent"), nodes.weight("bias_sent"));
        Sent::rows(nodes.tape.epilogue(sent, Some(bias), Activation::Relu, None))
    }

    fn sum(&self) -> Sum {
        Sum::Mean
    }

    fn apply(&self, nodes: &mut Nodes<'_>, rows: Var, heard: Var) -> Var {
        nodes.linear_onto(heard, rows, "weight_own")
    }
}
