//! GAT (Veličković et al., ICLR 2018).
//!
//! `z = W x`, `s_ji = LeakyReLU_0.2(a_src . z_j + a_dst . z_i)` per head, `alpha = softmax over in-edges of s`,
//! `out_i = sum alpha_ji z_j`, heads side by side or averaged, `+ b`. With `self_loops` every node attends to
//! itself as well. Only `z` crosses part borders; scores of halo rows are computed where they are used.

use super::{Entry, Layer, LayerShape, Names, Reads, Start, Weight};
use crate::Result;
use crate::tape::Var;
use crate::view::{Attention, View};

pub(super) const ENTRY: Entry = Entry {
    name: "gat",
    summary: "multi-head attention over neighbours",
    paper: "Veličković et al., ICLR 2018",
    reads: |_| Reads::Transformed,
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

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let transformed = view.tape.linear(rows, weights.get("weight"), view.tape.rows(rows));
        let attended =
            view.attend(attention(&self.shape), transformed, weights.get("att_src"), weights.get("att_dst"))?;
        view.tape.forget(transformed);
        Ok(if self.shape.concat { attended } else { view.tape.mean_of_heads(attended, self.shape.heads) })
    }
}
