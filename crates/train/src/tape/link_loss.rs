//! The loss of a step over links: summed over this rank's links, divided by their count on all ranks.

use super::{Tape, Var};

pub use crate::ops::link_loss::LinkLoss;

impl Tape {
    /// The loss of one column of `scores`: first those of `positives` true links, then those of `negatives` false ones
    /// for each, in the order of the true ones. Every true link weighs `weight` (1 over their number on all ranks).
    /// Returns this rank's share of the loss; [`backward`](Self::backward) starts from here.
    ///
    /// A rank without links takes part with an empty gradient, as in [`loss`](Self::loss).
    pub fn link_loss(
        &mut self,
        scores: Var,
        positives: usize,
        negatives: usize,
        kind: LinkLoss,
        weight: f32,
    ) -> f64 {
        let mut gradient = self.arena.take(self.rows(scores) * self.cols(scores));
        let counts = (positives, negatives);
        let sum = kind.evaluate(&self.pool, self.value(scores), counts, weight, &mut gradient);
        self.record_loss(scores, gradient);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::Isolated;
    use crate::ops::Pool;
    use crate::ops::testing::{close, numbers};
    use crate::parameters::{Parameter, Parameters};
    use crate::tape::{Activation, Input, Matrix, Pairs};
    use std::sync::Arc;

    const ROWS: usize = 6;
    const WIDTH: usize = 4;

    fn weights() -> Parameters {
        let mut mapped = Parameter::zeros("map", WIDTH, WIDTH);
        let mut relation = Parameter::zeros("relation", 2, WIDTH);
        let mut last = Parameter::zeros("last", 1, WIDTH);
        for (seed, weight) in (20..).zip([&mut mapped, &mut relation, &mut last]) {
            weight.value = numbers(seed, weight.rows * weight.cols);
        }
        Parameters::new(vec![mapped, relation, last])
    }

    /// The loss of links between mapped rows, scored in all three ways, and the gradients by all weights.
    fn step(parameters: Parameters, threads: usize, positives: usize) -> (f64, Tape) {
        let mut tape = Tape::new(parameters, Parameters::default(), Pool::new(threads));
        let id = |tape: &Tape, name: &str| tape.parameters.find(name).unwrap();
        let mut values = tape.arena.take(ROWS * WIDTH);
        values.copy_from_slice(&numbers(7, ROWS * WIDTH));
        let input = Input::Dense(Arc::new(Matrix { rows: ROWS, cols: WIDTH, values: values.into() }));
        let mut loss = 0.0;
        tape.begin_step(1, 1, 1);
        let input = tape.constant(&input, ROWS);
        let (map, relation, last) = (id(&tape, "map"), id(&tape, "relation"), id(&tape, "last"));
        let rows = tape.linear(input, map, ROWS);
        let all: ([u32; 6], [u32; 6], [u32; 6]) =
            ([0, 1, 0, 2, 5, 0], [3, 1, 2, 0, 5, 3], [0, 1, 1, 0, 1, 1]);
        let pairs = Pairs {
            left: &all.0[..3 * positives],
            right: &all.1[..3 * positives],
            kinds: &all.2[..3 * positives],
        };
        let plain = tape.pair_scores(rows, Pairs { kinds: &[], ..pairs }, None);
        let related = tape.pair_scores(rows, pairs, Some(relation));
        let products = tape.pair_products(rows, pairs);
        let hidden = tape.epilogue(products, None, Activation::Elu, None);
        let learned = tape.linear(hidden, last, 3 * positives);
        for (scores, kind) in [
            (plain, LinkLoss::Logistic),
            (related, LinkLoss::Contrastive { temperature: 0.7 }),
            (learned, LinkLoss::Logistic),
        ] {
            loss += tape.link_loss(scores, positives, 2, kind, 0.5);
        }
        tape.backward(&mut Isolated).unwrap();
        (loss, tape)
    }

    #[test]
    fn gradients_of_scored_pairs_are_the_slope_of_the_loss() {
        let tape = step(weights(), 2, 2).1;
        for (index, weight) in tape.parameters.iter().enumerate() {
            let mut slopes = Vec::new();
            for at in 0..weight.value.len() {
                let moved = |by: f32| {
                    let mut parameters = weights();
                    parameters.iter_mut().nth(index).unwrap().value[at] += by;
                    step(parameters, 1, 2).0
                };
                slopes.push(((moved(1e-2) - moved(-1e-2)) / 2e-2) as f32);
            }
            assert!(weight.grad.iter().any(|slope| *slope != 0.0));
            close(&weight.grad, &slopes, 2e-3);
        }
        assert_eq!(step(weights(), 1, 2).1.parameters, step(weights(), 3, 2).1.parameters);
    }

    #[test]
    fn a_rank_without_links_takes_part_with_an_empty_gradient() {
        let (loss, tape) = step(weights(), 1, 0);
        assert_eq!(loss, 0.0);
        assert!(tape.parameters.iter().all(|weight| weight.grad.iter().all(|slope| *slope == 0.0)));
    }
}
