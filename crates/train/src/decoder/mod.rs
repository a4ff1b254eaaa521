//! How likely is this link? A score from the rows of its two ends.
//!
//! A [`Decoder`] sees rows that a model computed and pairs of them, nothing of the graph: it cannot tell true links
//! from false ones, and it never communicates. A [`Scorer`] is a decoder that knows where its weights stand among
//! those of the model. A new decoder is one file here and one line in [`DECODERS`].

mod dot;
mod distmult;
mod mlp;

pub use crate::tape::Pairs;

use crate::model::Weight;
use crate::parameters::{Names, Parameter, Parameters};
use crate::tape::{Tape, Var};
use crate::{Error, Result};

/// What a decoder may want to know before it is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderShape {
    /// Numbers per row.
    pub width: usize,
    /// Width inside the decoder, where it has an inside.
    pub hidden: usize,
    /// Kinds of links; those of a graph without edge types are all of one kind.
    pub kinds: usize,
}

/// Scores of links from rows of their ends.
pub trait Decoder: Send + Sync {
    /// The weights it needs.
    fn weights(&self) -> Vec<Weight>;

    /// One column: the score of each link, higher for a likelier one. Links are pairs of `rows`.
    fn scores(&self, tape: &mut Tape, weights: &Names, rows: Var, links: Pairs<'_>) -> Var;
}

/// A row of the table of decoders.
pub struct Entry {
    /// What users call it.
    pub name: &'static str,
    /// One line for `archi list`.
    pub summary: &'static str,
    /// Where it comes from.
    pub paper: &'static str,
    /// Makes one.
    pub build: fn(&DecoderShape) -> Box<dyn Decoder>,
}

/// Every decoder that Archipelago knows.
pub const DECODERS: &[Entry] = &[dot::ENTRY, distmult::ENTRY, mlp::ENTRY];

/// The decoder called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    DECODERS.iter().find(|entry| entry.name == name).ok_or_else(|| {
        Error::from(archipelago_graph::Error::Unknown {
            kind: "decoder",
            name: name.to_owned(),
            known: DECODERS.iter().map(|entry| entry.name).collect(),
        })
    })
}

/// The weights of `decoder` as drawn for `seed`: what a model is [built beside](crate::model::Model::build_beside).
pub fn drawn(decoder: &dyn Decoder, seed: u64) -> Vec<Parameter> {
    decoder.weights().iter().map(|weight| weight.drawn(full_name(weight.name), seed)).collect()
}

fn full_name(name: &str) -> String {
    format!("decoder.{name}")
}

/// A decoder that knows where its weights stand, not what they are.
pub struct Scorer {
    decoder: Box<dyn Decoder>,
    weights: Names,
}

impl Scorer {
    /// `decoder` with its weights among `parameters`, which must have what [`drawn`] gave.
    pub fn new(decoder: Box<dyn Decoder>, parameters: &Parameters) -> Self {
        let find = |weight: Weight| parameters.find(&full_name(weight.name)).map(|id| (weight.name, id));
        let weights = Names::new(decoder.weights().into_iter().filter_map(find).collect());
        Self { decoder, weights }
    }

    /// The score of each link, a pair of `rows`.
    pub fn scores(&self, tape: &mut Tape, rows: Var, links: Pairs<'_>) -> Var {
        self.decoder.scores(tape, &self.weights, rows, links)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::Isolated;
    use crate::ops::Pool;
    use crate::ops::testing::{close, numbers};
    use crate::tape::{Input, LinkLoss, Matrix};
    use std::sync::Arc;

    const SHAPE: DecoderShape = DecoderShape { width: 5, hidden: 7, kinds: 2 };
    const LINKS: Pairs<'_> = Pairs { left: &[0, 1, 0, 3], right: &[2, 2, 3, 3], kinds: &[0, 1, 1, 0] };

    fn row(rows: &[f32], row: u32) -> &[f32] {
        &rows[row as usize * 5..][..5]
    }

    /// A decoder on four rows: its scores, and the loss of one true link with three false ones.
    fn run(entry: &Entry, shift: Option<(usize, usize, f32)>, training: bool) -> (Vec<f32>, f64, Tape) {
        let decoder = (entry.build)(&SHAPE);
        let mut parameters = Parameters::new(drawn(&*decoder, 3));
        if let Some((weight, at, by)) = shift {
            parameters.iter_mut().nth(weight).unwrap().value[at] += by;
        }
        let scorer = Scorer::new(decoder, &parameters);
        let mut tape = Tape::new(parameters, Parameters::default(), Pool::new(2));
        let mut values = tape.arena.take(20);
        values.copy_from_slice(&numbers(1, 20));
        match training {
            true => tape.begin_step(1, 1, 1),
            false => tape.begin_evaluation(),
        }
        let rows =
            tape.constant(&Input::Dense(Arc::new(Matrix { rows: 4, cols: 5, values: values.into() })), 4);
        let scores = scorer.scores(&mut tape, rows, LINKS);
        let found = tape.value(scores).to_vec();
        assert_eq!((tape.rows(scores), tape.cols(scores)), (4, 1));
        let loss = tape.link_loss(scores, 1, 3, LinkLoss::Contrastive { temperature: 1.0 }, 1.0);
        tape.backward(&mut Isolated).unwrap();
        (found, loss, tape)
    }

    /// Scores of the links, link by link.
    fn by_hand(score: impl Fn(&[f32], &[f32], usize) -> f32) -> Vec<f32> {
        let rows = numbers(1, 20);
        let link =
            |p: usize| score(row(&rows, LINKS.left[p]), row(&rows, LINKS.right[p]), LINKS.kinds[p] as usize);
        (0..4).map(link).collect()
    }

    fn weight(tape: &Tape, name: &str) -> Vec<f32> {
        tape.parameters.get(tape.parameters.find(&full_name(name)).unwrap()).value.clone()
    }

    #[test]
    fn decoders_compute_what_they_are_defined_as() {
        let (found, _, _) = run(find("dot").unwrap(), None, false);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        close(&found, &by_hand(|a, b, _| dot(a, b)), 1e-5);

        let (found, _, tape) = run(find("distmult").unwrap(), None, false);
        let relations = weight(&tape, "relation");
        let expected = by_hand(|a, b, kind| {
            let weighted: Vec<f32> = a.iter().zip(&relations[5 * kind..]).map(|(a, r)| a * r).collect();
            dot(&weighted, b)
        });
        close(&found, &expected, 1e-5);

        let (found, _, tape) = run(find("mlp").unwrap(), None, false);
        let [first, bias1, second, bias] =
            ["weight1", "bias1", "weight2", "bias"].map(|name| weight(&tape, name));
        let expected = by_hand(|a, b, _| {
            let product: Vec<f32> = a.iter().zip(b).map(|(a, b)| a * b).collect();
            let unit = |h: usize| (dot(&first[5 * h..][..5], &product) + bias1[h]).max(0.0) * second[h];
            (0..7).map(unit).sum::<f32>() + bias[0]
        });
        close(&found, &expected, 1e-5);
    }

    #[test]
    fn gradients_of_every_decoder_are_the_slope_of_the_loss() {
        for entry in DECODERS {
            let tape = run(entry, None, true).2;
            for (index, weight) in tape.parameters.iter().enumerate() {
                let slope = |at: usize| {
                    let moved = |by| run(entry, Some((index, at, by)), true).1;
                    ((moved(1e-3) - moved(-1e-3)) / 2e-3) as f32
                };
                let expected: Vec<f32> = (0..weight.value.len()).map(slope).collect();
                close(&weight.grad, &expected, 1e-3);
            }
        }
    }

    #[test]
    fn weights_are_drawn_under_names_of_the_decoder() {
        let names = |name: &str| {
            let decoder = (find(name).unwrap().build)(&SHAPE);
            drawn(&*decoder, 1).into_iter().map(|weight| weight.name).collect::<Vec<_>>()
        };
        assert_eq!(names("dot"), Vec::<String>::new());
        assert_eq!(names("distmult"), ["decoder.relation"]);
        assert!(names("mlp").iter().all(|name| name.starts_with("decoder.")));
        let message = find("distmul").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(message.contains("did you mean `distmult`"), "{message}");
    }
}
