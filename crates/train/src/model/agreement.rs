//! Oracle 14, layer by layer: forward and gradients agree with PyTorch Geometric and DGL on fixed small graphs.

use super::tgar::Wired;
use super::{Aggregator, LayerShape, find};
use crate::boundary::Isolated;
use crate::ops::Pool;
use crate::parameters::{Names, Parameter, Parameters};
use crate::reference::{self, Reference};
use crate::tape::{Activation, NormWeights, Tape, Var};
use crate::view::{Layout, Routes, View};
use archipelago_graph::Block;
use archipelago_graph::block::{Adjacency, EdgeValues};
use std::sync::Arc;

/// The reference graph of a case as the layout of one whole layer.
fn layout(case: &Reference, weighted: bool) -> Arc<Layout> {
    let nodes = case.f64("num_nodes")[0] as usize;
    let ends = case.f64("edge_index");
    let (sources, targets) = ends.split_at(ends.len() / 2);
    let weights = if weighted { case.f32("edge_weight") } else { Vec::new() };
    let mut lists = Adjacency { offsets: vec![0], ..Adjacency::default() };
    let mut degrees = vec![0f32; nodes];
    for (node, degree) in degrees.iter_mut().enumerate() {
        let mut edges: Vec<usize> = (0..targets.len()).filter(|&e| targets[e] as usize == node).collect();
        edges.sort_by_key(|&e| sources[e] as usize);
        for e in edges {
            lists.neighbors.push(sources[e] as u32);
            lists.weights.extend(weights.get(e));
            lists.places.push(e as u32);
            *degree += weights.get(e).copied().unwrap_or(1.0);
        }
        lists.offsets.push(lists.neighbors.len() as u64);
    }
    let block = Arc::new(Block::new(lists, nodes, 0));
    let layout = Layout::new(block, Arc::new((0..nodes as u64).collect()), degrees, Routes::default());
    let attributes = if case.has("edge_attr") { case.f32("edge_attr") } else { Vec::new() };
    let width = attributes.len() / targets.len();
    let types: Vec<u32> = match case.has("edge_type") {
        true => case.f64("edge_type").iter().map(|&kind| kind as u32).collect(),
        false => Vec::new(),
    };
    let alike =
        |e: usize| (0..types.len()).filter(|&o| targets[o] == targets[e] && types[o] == types[e]).count();
    let type_shares: Vec<f32> = (0..types.len()).map(|e| 1.0 / alike(e) as f32).collect();
    let values = EdgeValues {
        kinds: types.iter().max().map_or(0, |&kind| kind as usize + 1),
        types: types.into(),
        type_shares: type_shares.into(),
        attributes: attributes.into(),
        width,
    };
    Arc::new(layout.with_edges(Some(Arc::new(values))))
}

fn assert_close(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(f, e)| (f64::from(*f) - e).abs()).fold(0f64, f64::max);
    assert!(worst <= 1e-5 * largest.max(1e-30), "{what}: off by {worst:e}, largest {largest:e}");
}

/// A step of one layer, from the arrays of a case.
struct Trial {
    tape: Tape,
    input: Var,
}

impl Trial {
    fn new(case: &Reference, nodes: usize, names: &[&str]) -> Self {
        let parameters = names.iter().map(|name| {
            let value = case.f32(&format!("param_{name}"));
            let mut parameter = Parameter::zeros(*name, case.rows(&format!("param_{name}")), 0);
            parameter.cols = value.len() / parameter.rows;
            parameter.grad = vec![0.0; value.len()];
            parameter.value = value;
            parameter
        });
        let mut tape = Tape::new(Parameters::new(parameters.collect()), Parameters::default(), Pool::new(2));
        tape.begin_step(0, 1, 0);
        let x = case.f32("x");
        let mut buffer = tape.arena.take(x.len());
        buffer.copy_from_slice(&x);
        let input = tape.computed(nodes, x.len() / nodes, buffer, true);
        tape.keep(input);
        Self { tape, input }
    }

    /// Compares `output`, then sends the case's upstream gradient back and compares all gradients.
    fn check(mut self, case: &Reference, name: &str, output: Var) {
        assert_close(&format!("{name} out"), self.tape.value(output), &case.f64("out"));
        let upstream = case.f32("upstream");
        let mut buffer = self.tape.arena.take(upstream.len());
        buffer.copy_from_slice(&upstream);
        self.tape.put_gradient(output, buffer);
        self.tape.backward(&mut Isolated).unwrap();
        let x = self.tape.take_gradient(self.input).unwrap();
        assert_close(&format!("{name} grad_x"), &x, &case.f64("grad_x"));
        for parameter in self.tape.parameters.iter() {
            let expected = case.f64(&format!("grad_{}", parameter.name));
            assert_close(&format!("{name} grad_{}", parameter.name), &parameter.grad, &expected);
        }
    }
}

struct Case {
    name: &'static str,
    model: &'static str,
    heads: usize,
    concat: bool,
    loops: bool,
    aggregator: Aggregator,
}

const fn case(name: &'static str, model: &'static str) -> Case {
    Case { name, model, heads: 1, concat: true, loops: false, aggregator: Aggregator::Mean }
}

const CASES: &[Case] = &[
    case("gcn", "gcn"),
    case("gcn_weighted", "gcn"),
    case("sage_mean", "sage"),
    Case { aggregator: Aggregator::Sum, ..case("sage_sum", "sage") },
    Case { aggregator: Aggregator::Max, ..case("sage_max", "sage") },
    case("gat_h1", "gat"),
    Case { loops: true, ..case("gat_h1_loops", "gat") },
    Case { heads: 4, ..case("gat_h4_concat", "gat") },
    Case { heads: 4, loops: true, ..case("gat_h4_concat_loops", "gat") },
    Case { heads: 4, concat: false, ..case("gat_h4_mean", "gat") },
    Case { heads: 4, concat: false, loops: true, ..case("gat_h4_mean_loops", "gat") },
    Case { heads: 2, ..case("gatv2_h2", "gatv2") },
    Case { heads: 2, loops: true, ..case("gatv2_h2_loops", "gatv2") },
    case("gin", "gin"),
    Case { heads: 2, ..case("edge_gat", "gat-e") },
    case("rgcn", "rgcn"),
];

fn check_layer(case: &Case, size: &str) {
    let name = format!("{}_{size}", case.name);
    let reference = match case.model {
        "rgcn" => reference::stored(&name),
        _ => match reference::open(&name) {
            Some(reference) => reference,
            None => return,
        },
    };
    let layout = layout(&reference, case.name == "gcn_weighted");
    let nodes = layout.block.targets;
    let shape = LayerShape {
        input: reference.f64("x").len() / nodes,
        output: reference.f64("out").len() / nodes,
        inner: 10,
        heads: case.heads,
        concat: case.concat,
        aggregator: case.aggregator,
        attention_dropout: 0.0,
        self_loops: case.loops,
        edge_width: layout.edges.as_ref().map_or(0, |edges| edges.width),
        edge_kinds: layout.edges.as_ref().map_or(0, |edges| edges.kinds),
        bases: 2,
    };
    let layer = (find(case.model).unwrap().build)(&shape);
    // GIN's second bias is the one that the model adds; the reference calls it `bias2`.
    let stored = |weight: &'static str| match (case.model, weight) {
        ("gin", "bias") => "bias2",
        ("rgcn", "shares") => "comp",
        _ => weight,
    };
    let names: Vec<&str> = layer.weights().iter().map(|weight| stored(weight.name)).collect();
    let mut trial = Trial::new(&reference, nodes, &names);
    let ids: Vec<_> = layer
        .weights()
        .iter()
        .map(|weight| (weight.name, trial.tape.parameters.find(stored(weight.name)).unwrap()))
        .collect();
    let mut view = View {
        tape: &mut trial.tape,
        boundary: &mut Isolated,
        layout: &layout,
        layer: 0,
        half: crate::boundary::Half::Whole,
        statics: None,
        static_input: None,
    };
    let wired = Arc::new(Wired { layer, weights: Names::new(ids) });
    let output = wired.forward(&mut view, trial.input).unwrap();
    let bias = Some(wired.weights.get("bias"));
    let output = trial.tape.epilogue(output, bias, Activation::Identity, None);
    trial.check(&reference, &name, output);
}

#[test]
fn every_layer_agrees_with_pyg_and_dgl() {
    for case in CASES {
        for size in ["small", "medium"] {
            check_layer(case, size);
        }
    }
}

#[test]
fn layer_and_batch_norm_agree_with_pytorch() {
    for (kind, size) in [("layer", "small"), ("layer", "medium"), ("batch", "small"), ("batch", "medium")] {
        let name = format!("{kind}norm_relu_linear_{size}");
        let Some(reference) = reference::open(&name) else { return };
        let nodes = reference.f64("num_nodes")[0] as usize;
        let mut trial = Trial::new(&reference, nodes, &["gamma", "beta", "weight", "bias"]);
        let find = |tape: &Tape, name: &str| tape.parameters.find(name).unwrap();
        let weights =
            NormWeights { gamma: find(&trial.tape, "gamma"), beta: find(&trial.tape, "beta"), running: None };
        let normed = match kind {
            "layer" => trial.tape.layer_norm(trial.input, &weights),
            _ => trial.tape.batch_norm(&mut Isolated, trial.input, &weights).unwrap(),
        };
        assert_close(&format!("{name} normed"), trial.tape.value(normed), &reference.f64("normed"));
        let active = trial.tape.epilogue(normed, None, Activation::Relu, None);
        let (weight, bias) = (find(&trial.tape, "weight"), find(&trial.tape, "bias"));
        let output = trial.tape.linear(active, weight, nodes);
        let output = trial.tape.epilogue(output, Some(bias), Activation::Identity, None);
        trial.check(&reference, &name, output);
    }
}
