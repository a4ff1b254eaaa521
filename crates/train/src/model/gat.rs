//! GAT (Veličković et al., ICLR 2018).
//!
//! `z = W x`, `s_ji = LeakyReLU_0.2(a_src . z_j + a_dst . z_i)` per head, `alpha = softmax over in-edges of s`,
//! `out_i = sum alpha_ji z_j`, heads side by side or averaged, `+ b`. With `self_loops` every node attends to
//! itself as well. Only `z` crosses part borders; scores of halo rows are computed where they are used.

use super::{EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::Var;
use crate::view::{Attention, Edges};

pub(super) const ENTRY: Entry = Entry {
    name: "gat",
    summary: "multi-head attention over neighbours",
    paper: "Veličković et al., ICLR 2018",
    reads: |_| Reads::Attended,
    edges: EdgeNeed::Nothing,
    build: |shape| Box::new(Gat { shape: shape.clone() }),
};

struct Gat {
    shape: LayerShape,
}

/// Width of each head and of all heads together.
pub(super) fn head_widths(shape: &LayerShape) -> (usize, usize) {
    let width = if shape.concat { shape.output / shape.heads } else { shape.output };
    (width, width * shape.heads)
}

/// What the attention verbs need to know of a layer's shape.
pub(super) fn attention(shape: &LayerShape) -> Attention {
    Attention { heads: shape.heads, self_loops: shape.self_loops, dropout: shape.attention_dropout }
}

/// Heads side by side, or their mean.
pub(super) fn heads_as_one(shape: &LayerShape, nodes: &mut Nodes<'_>, rows: Var) -> Var {
    if shape.concat { rows } else { nodes.tape.mean_of_heads(rows, shape.heads) }
}

impl Layer for Gat {
    fn weights(&self) -> Vec<Weight> {
        let (width, all) = head_widths(&self.shape);
        vec![
            Weight::new("weight", all, self.shape.input, Start::Glorot),
            Weight::new("att_src", self.shape.heads, width, Start::Glorot),
            Weight::new("att_dst", self.shape.heads, width, Start::Glorot),
            Weight::new("bias", 1, self.shape.output, Start::Zero),
        ]
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::linear(nodes, rows, "weight")
    }

    fn gather(&self, edges: &mut Edges<'_>) -> Message {
        let attention = attention(&self.shape);
        let (source, target) = (edges.weight("att_src"), edges.weight("att_dst"));
        Message::Scored { attention, source, target }
    }

    fn sum(&self) -> Sum {
        Sum::Softmax(self.shape.attention_dropout)
    }

    fn apply(&self, nodes: &mut Nodes<'_>, _: Var, sum: Var) -> Var {
        heads_as_one(&self.shape, nodes, sum)
    }
}
