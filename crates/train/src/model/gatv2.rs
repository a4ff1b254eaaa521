//! GATv2 (Brody et al., ICLR 2022): attention whose ranking of neighbours depends on the node that asks.
//!
//! `l = W_src x + b_src`, `r = W_dst x + b_dst`, `s_ji = a . LeakyReLU_0.2(l_j + r_i)` per head,
//! `out_i = sum over in-edges of softmax(s)_ji l_j`, `+ b`. Only `l` crosses part borders.

use super::gat::{attention, head_widths};
use super::{Entry, Layer, LayerShape, Names, Reads, Start, Weight};
use crate::Result;
use crate::tape::{Activation, Var};
use crate::view::View;

pub(super) const ENTRY: Entry = Entry {
    name: "gatv2",
    summary: "attention scored by both ends together",
    paper: "Brody et al., ICLR 2022",
    reads: |_| Reads::Transformed,
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

    fn forward(&self, view: &mut View<'_>, weights: Names<'_>, rows: Var) -> Result<Var> {
        let affine = |view: &mut View<'_>, weight, bias, count| {
            let product = view.tape.linear(rows, weights.get(weight), count);
            view.tape.epilogue(product, Some(weights.get(bias)), Activation::Identity, None)
        };
        let (sources, targets) = (view.tape.rows(rows), view.targets());
        let left = affine(view, "weight_src", "bias_src", sources);
        let right = affine(view, "weight_dst", "bias_dst", targets);
        let attended = view.attend_v2(attention(&self.shape), left, right, weights.get("att"))?;
        view.tape.forget(left);
        view.tape.forget(right);
        Ok(if self.shape.concat { attended } else { view.tape.mean_of_heads(attended, self.shape.heads) })
    }
}
