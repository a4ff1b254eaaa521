//! GAT-E: attention that reads edges (GraphTheta, VLDB 2022; DGL's `EdgeGATConv` is the same layer).
//!
//! `z = W x`, `f = W_e e` of the edge's attributes and, where edges have types, a row per type, and per head
//! `s_ji = LeakyReLU_0.2(a_s . z_j + a_d . z_i + a_e . f_ji)`, `alpha = softmax over in-edges of s`,
//! `out_i = sum alpha_ji (z_j + f_ji)`, heads side by side or averaged, `+ W_self x_i + b`. A type is an attribute of its
//! own (one-hot), so that both together are one product. Only `z` crosses part borders.

use super::gat::{head_widths, heads_as_one};
use super::{EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight};
use crate::tape::Var;
use crate::view::{Edges, SLOPE};

pub(super) const ENTRY: Entry = Entry {
    name: "gat-e",
    summary: "attention that reads attributes and types of edges",
    paper: "GraphTheta, VLDB 2022",
    reads: |_| Reads::Transformed,
    edges: EdgeNeed::Values,
    build: |shape| Box::new(GatE { shape: shape.clone() }),
};

struct GatE {
    shape: LayerShape,
}

impl GatE {
    /// `W_e e` of each edge.
    fn edge_rows(&self, edges: &mut Edges<'_>) -> Option<Var> {
        let of_type = (self.shape.edge_kinds > 0).then(|| {
            let table = edges.weight("weight_type");
            edges.type_rows(table)
        });
        let Some(attributes) = edges.attributes() else { return of_type };
        let (weight, count) = (edges.weight("weight_edge"), edges.count());
        Some(match of_type {
            Some(rows) => edges.tape.linear_onto(rows, attributes, weight),
            None => edges.tape.linear(attributes, weight, count),
        })
    }
}

impl Layer for GatE {
    fn weights(&self) -> Vec<Weight> {
        let ((width, all), shape) = (head_widths(&self.shape), &self.shape);
        let values = shape.edge_width + shape.edge_kinds;
        let mut weights = vec![
            Weight::new("weight", all, shape.input, Start::Glorot),
            Weight::new("weight_self", shape.output, shape.input, Start::Glorot),
            Weight::new("att_src", shape.heads, width, Start::Glorot),
            Weight::new("att_dst", shape.heads, width, Start::Glorot),
            Weight::new("att_edge", shape.heads, width, Start::Glorot),
            Weight::new("bias", 1, shape.output, Start::Zero),
        ];
        if shape.edge_width > 0 {
            weights.push(Weight::new("weight_edge", all, shape.edge_width, Start::Fan(values)));
        }
        if shape.edge_kinds > 0 {
            weights.push(Weight::new("weight_type", shape.edge_kinds, all, Start::Glorot));
        }
        weights
    }

    fn transform(&self, nodes: &mut Nodes<'_>, rows: Var) -> Sent {
        let transformed = nodes.linear(rows, "weight");
        let (count, weight) = (nodes.targets(), nodes.weight("att_dst"));
        let scores = nodes.tape.head_scores(transformed, weight, count);
        Sent::rows(transformed).to_targets(scores)
    }

    fn gather(&self, edges: &mut Edges<'_>) -> Message {
        let (source, target, count) = (edges.source(), edges.target(), edges.count());
        let [of_source, of_edge] = ["att_src", "att_edge"].map(|name| edges.weight(name));
        let mut scores = edges.tape.head_scores(source, of_source, count);
        scores = edges.tape.add_rows(scores, target);
        let mut rows = source;
        if let Some(values) = self.edge_rows(edges) {
            let of_values = edges.tape.head_scores(values, of_edge, count);
            scores = edges.tape.add_rows(scores, of_values);
            rows = edges.tape.add_rows(values, source);
        }
        Message::with_scores(rows, edges.tape.leaky_relu(scores, SLOPE))
    }

    fn sum(&self) -> Sum {
        Sum::Softmax(self.shape.attention_dropout)
    }

    fn apply(&self, nodes: &mut Nodes<'_>, rows: Var, sum: Var) -> Var {
        let heads = heads_as_one(&self.shape, nodes, sum);
        nodes.linear_onto(heads, rows, "weight_self")
    }
}
