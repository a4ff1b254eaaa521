//! A layer whose neighbours choose what they tell: what a row sends passes a ReLU of its own before the mean is taken.
//!
//! `out_i = mean_{j -> i} ReLU(W_sent x_j + b_sent) + W_own x_i + b`. In SAGE the mean comes first, so a neighbour cannot keep
//! anything to itself: what some say is averaged away by others. Here `b_sent` is a threshold below which nothing is sent.
//! Rows that cross are `output` wide. Every source row is transformed in every step, as nothing commutes with the ReLU.

use archipelago::train::Result;
use archipelago::train::model::{Entry, Layer, Names, Reads, Start, Weight};
use archipelago::train::tape::{Activation, Var};
use archipelago::train::view::View;

/// The table line of this model.
pub const ENTRY: Entry = Entry {
    name: "filtered",
    summary: "own row and the mean of neighbours that each passed a ReLU",
    paper: "",
    reads: |_| Reads::Rows,
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

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let sources = view.tape.rows(rows);
        let sent = view.tape.linear(rows, weights.get("weight_sent"), sources);
        let sent = view.tape.epilogue(sent, Some(weights.get("bias_sent")), Activation::Relu, None);
        let heard = view.mean(sent)?;
        view.tape.forget(sent);
        Ok(view.tape.linear_onto(heard, rows, weights.get("weight_own")))
    }
}
