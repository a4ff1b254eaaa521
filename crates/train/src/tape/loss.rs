//! The loss of a step: summed over this rank's targets, divided by the count on all ranks.

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::loss;

/// Which rows of scores count, and what they should have been.
#[derive(Debug, Clone, Copy)]
pub struct Goal<'a> {
    /// The rows, ascending.
    pub rows: &'a [u32],
    /// What each of them should have been.
    pub labels: Wanted<'a>,
    /// How often each of them counts; once where nothing is said.
    pub weights: Option<&'a [f32]>,
}

/// What rows should have been.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// One class per row.
    Classes(&'a [i64]),
    /// A 0/1 row per row.
    Multi(&'a [u8]),
}

struct Loss {
    scores: Var,
    output: Var,
    gradient: Option<Buffer>,
}

impl Tape {
    /// Softmax cross-entropy or logistic loss of `scores`, every target weighing `weight` (1 over the number of
    /// labelled targets on all ranks; for several labels also over the number of labels). Returns this rank's
    /// share of the loss; [`backward`](Self::backward) starts from here.
    ///
    /// A rank without targets takes part with an empty gradient, not a scaled one: it must still answer for the
    /// rows that others read.
    pub fn loss(&mut self, scores: Var, goal: Goal<'_>, weight: f32) -> f64 {
        let (rows, cols) = (self.rows(scores), self.cols(scores));
        let mut gradient = self.arena.take(rows * cols);
        let (pool, logits, into) = (&self.pool, self.value(scores), &mut gradient);
        let Goal { rows, labels, weights } = goal;
        let weights = loss::Weights { all: weight, each: weights };
        let sum = match labels {
            Wanted::Classes(classes) => {
                loss::softmax_cross_entropy(pool, logits, cols, rows, classes, weights, into)
            }
            Wanted::Multi(labels) => loss::logistic(pool, logits, cols, rows, labels, weights, into),
        };
        self.record_loss(scores, gradient);
        sum
    }

    /// Records a loss with this gradient by its `scores`: where [`backward`](Self::backward) starts from.
    pub(super) fn record_loss(&mut self, scores: Var, gradient: Buffer) {
        let nothing = self.arena.take(0);
        let output = self.computed(0, 0, nothing, true);
        self.record(output, Loss { scores, output, gradient: Some(gradient) });
    }
}

impl Op for Loss {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        debug_assert!(tape.take_gradient(self.output).is_none(), "nothing follows the loss");
        if let Some(gradient) = self.gradient.take() {
            tape.put_gradient(self.scores, gradient);
        }
        Ok(())
    }
}
