//! GATv2 (Brody et al., ICLR 2022): attention whose ranking of neighbours depends on the node that asks.
//!
//! `l = W_src x + b_src`, `r = W_dst x + b_dst`, `s_ji = a . LeakyReLU_0.2(l_j + r_i)` per head,
//! `out_i = sum over in-edges of softmax(s)_ji l_j`, `+ b`. Only `l` crosses part borders.

use super::gat::{attention, head_widths, heads_as_one};
use super::{EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::{Activation, Var};
use crate::view::Edges;

pub(super) const ENTRY: Entry = Entry {
    name: "gatv2",
    summary: "attention scored by both ends together",
    paper: "Brody et al., ICLR 2022",
    reads: |_| Reads::Attended,
    edges: EdgeNeed::Nothing,
    build: |shape| Box::new(GatV2 { shape: shape.clone() }),
};

struct GatV2 {
    shape: LayerShape,
}

impl Layer for GatV2 {
    fn weights(&self) -> Vec<Weight> {
        let (width, all) = head_widths(&self.shape);
        vec![
            Weight::new("weight_src", all, self.shape.input, Start::Glorot),
            Weight::new("weight_dst", all, self.shape.input, Start::Glorot),
            Weight::new("bias_src", 1, all, Start::Zero),
            Weight::new("bias_dst", 1, all, Start::Zero),
            Weight::new("att", self.shape.heads, width, Start::Glorot),
            Weight::new("bias", 1, self.shape.output, Start::Zero),
        ]
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        let (left, right) = (nodes.linear(rows, "weight_src"), nodes.linear_of_targets(rows, "weight_dst"));
        let (left_bias, right_bias) = (nodes.weight("bias_src"), nodes.weight("bias_dst"));
        let left = nodes.tape.epilogue(left, Some(left_bias), Activation::Identity, None);
        Sent::rows(left).to_targets(nodes.tape.epilogue(right, Some(right_bias), Activation::Identity, None))
    }

    fn gather(&self, edges: &mut Edges<'_>) -> Message {
        Message::ScoredTogether { attention: attention(&self.shape), weight: edges.weight("att") }
    }

    fn sum(&self) -> Sum {
        Sum::Softmax(self.shape.attention_dropout)
    }

    fn apply(&self, nodes: &mut Nodes<'_>, _: Var, sum: Var) -> Var {
        heads_as_one(&self.shape, nodes, sum)
    }
}
