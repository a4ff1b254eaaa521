//! R-GCN (Schlichtkrull et al., ESWC 2018): a matrix for each type of edge, made of a few that all types share.
//!
//! `out_i = W_self x_i + sum over types r of 1/|N_r(i)| sum_{j in N_r(i)} W_r x_j + b` with
//! `W_r = sum over b of c_rb V_b`. Nodes send `V_b x` for all `b` side by side, edges mix them by the shares of their type:
//! no product is made per type. What crosses part borders is `model.bases` times as wide as the output.
//! `|N_r(i)|` counts in-edges in the whole graph, also where a batch has only some of them.

use super::{EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::Var;
use crate::view::Edges;

pub(super) const ENTRY: Entry = Entry {
    name: "rgcn",
    summary: "a transform per type of edge, mixed from a few (model.bases)",
    paper: "Schlichtkrull et al., ESWC 2018",
    reads: |_| Reads::Transformed,
    edges: EdgeNeed::Types,
    build: |shape| Box::new(Rgcn { shape: shape.clone() }),
};

struct Rgcn {
    shape: LayerShape,
}

impl Layer for Rgcn {
    fn weights(&self) -> Vec<Weight> {
        let LayerShape { input, output, bases, edge_kinds, .. } = self.shape;
        vec![
            Weight::new("basis", bases * output, input, Start::GlorotOf(output + input)),
            Weight::new("shares", edge_kinds, bases, Start::Glorot),
            Weight::new("weight_self", output, input, Start::Glorot),
            Weight::new("bias", 1, output, Start::Zero),
        ]
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::linear(nodes, rows, "basis")
    }

    fn gather(&self, edges: &mut Edges<'_>) -> Message {
        let (source, shares) = (edges.source(), edges.weight("shares"));
        let mixed = edges.mixed_by_type(source, shares);
        Message::rows(edges.over_type_count(mixed))
    }

    fn sum(&self) -> Sum {
        Sum::Add
    }

    fn apply(&self, nodes: &mut Nodes<'_>, rows: Var, sum: Var) -> Var {
        nodes.linear_onto(sum, rows, "weight_self")
    }
}
