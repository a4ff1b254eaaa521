//! Layers of one's own, of shapes that no built-in one has, make the same step on any number of parts. Models are added before
//! any is looked up, so what needs them is one test.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_train::model::{
    self, EdgeNeed, Entry, Layer, LayerShape, Message, Nodes, Reads, Sent, Start, Sum, Weight,
};
use archipelago_train::tape::Var;
use archipelago_train::view::Edges;
use common::{after_steps, communities, config, cut, gradients, relative_difference};

/// `out_i = W sum_j m(x_j)`: a map right behind edges, whose weight's gradient is put off until edges wait.
struct Told {
    shape: LayerShape,
    /// Whether `m` is the logistic function, or nothing.
    squashed: bool,
}

impl Layer for Told {
    fn weights(&self) -> Vec<Weight> {
        let LayerShape { input, output, .. } = self.shape;
        vec![Weight::new("weight", output, input, Start::Glorot), Weight::new("bias", 1, output, Start::Zero)]
    }

    fn transform(&self, _: &mut Nodes<'_>, rows: Var) -> Sent {
        Sent::rows(rows)
    }

    fn gather(&self, edges: &mut Edges<'_>) -> Message {
        let rows = edges.source();
        Message::rows(if self.squashed { edges.tape.sigmoid(rows) } else { rows })
    }

    fn sum(&self) -> Sum {
        Sum::Add
    }

    fn apply(&self, nodes: &mut Nodes<'_>, _: Var, sum: Var) -> Var {
        nodes.linear(sum, "weight")
    }
}

const TOLD: Entry = Entry {
    name: "told",
    summary: "what neighbours tell, summed, then transformed",
    paper: "",
    reads: |_| Reads::Rows,
    edges: EdgeNeed::Nothing,
    build: |shape| Box::new(Told { shape: shape.clone(), squashed: false }),
};

const SQUASHED: Entry = Entry {
    name: "told-squashed",
    build: |shape| Box::new(Told { shape: shape.clone(), squashed: true }),
    ..TOLD
};

#[test]
fn oracle_1_holds_for_layers_that_transform_what_comes_along_edges() {
    model::add(vec![TOLD, SQUASHED]).unwrap();
    let mut dataset = communities(300, 2400, 5);
    let [one, two, three] = [1, 2, 3].map(|parts| cut(&mut dataset, parts, "metis"));
    for model in ["model.name=told", "model.name=told-squashed"] {
        for placement in ["destination", "source", "2d", "cover"] {
            let placement = format!("exchange.placement={placement}");
            let config =
                config(&[model, "model.layers=3", "model.hidden=16", "train.optimizer=sgd", &placement]);
            let [expected, two, three] = [&one, &two, &three].map(|cut| after_steps(&cut.store, &config, 1));
            for (parts, (found, losses)) in [(2, two), (3, three)] {
                let off = relative_difference(&gradients(&found), &gradients(&expected.0));
                assert!(off < 1e-5, "{model} on {parts}, {placement}: gradient off by {off:e}");
                assert!(
                    (losses[0] / expected.1[0] - 1.0).abs() < 1e-5,
                    "{model} on {parts}, {placement}: {losses:?}"
                );
            }
        }
    }
}
