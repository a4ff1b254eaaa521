//! How the gradient of a node moves its row: one row at a time, and only rows that a step has read.
//!
//! With g the summed gradient of a row and b1, b2, e as for [weights](crate::optimizer):
//!
//! - sgd: p -= lr g
//! - adagrad (Duchi et al., JMLR 2011): s += g^2; p -= lr g / (sqrt(s) + 1e-10)
//! - adam: as for weights, with moments that rest while a row is not read, and t the count of its own steps
//!
//! What is remembered: nothing (sgd), a number per number (adagrad), two and a count per row (adam).

use crate::optimizer::AdamStep;
use crate::run::EmbeddingOptimizer;

const EPSILON: f32 = 1e-10;

/// An optimiser of rows, and what it remembers of each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    kind: EmbeddingOptimizer,
    lr: f64,
    width: usize,
    /// Running mean of the gradient (adam).
    pub first: Vec<f32>,
    /// Running mean of the squared gradient (adam), or its sum (adagrad).
    pub second: Vec<f32>,
    /// Updates of each row (adam).
    pub steps: Vec<u64>,
}

impl Rule {
    /// Before the first step on so many rows.
    pub fn new(kind: EmbeddingOptimizer, lr: f64, rows: usize, width: usize) -> Self {
        let adam = kind == EmbeddingOptimizer::Adam;
        let numbers = |kept: bool| vec![0.0; if kept { rows * width } else { 0 }];
        Self {
            kind,
            lr,
            width,
            first: numbers(adam),
            second: numbers(kind != EmbeddingOptimizer::Sgd),
            steps: vec![0; if adam { rows } else { 0 }],
        }
    }

    /// Numbers that are remembered of each number of a row.
    pub fn copies(&self) -> usize {
        match self.kind {
            EmbeddingOptimizer::Sgd => 0,
            EmbeddingOptimizer::Adagrad => 1,
            EmbeddingOptimizer::Adam => 2,
        }
    }

    /// One update of the row with this number.
    pub fn step(&mut self, row: usize, values: &mut [f32], gradient: &[f32]) {
        let (lr, numbers) = (self.lr as f32, row * self.width..(row + 1) * self.width);
        match self.kind {
            EmbeddingOptimizer::Sgd => {
                values.iter_mut().zip(gradient).for_each(|(p, g)| *p -= lr * g);
            }
            EmbeddingOptimizer::Adagrad => {
                for ((p, g), sum) in values.iter_mut().zip(gradient).zip(&mut self.second[numbers]) {
                    *sum += g * g;
                    *p -= lr * (g / (sum.sqrt() + EPSILON));
                }
            }
            EmbeddingOptimizer::Adam => {
                self.steps[row] += 1;
                let (first, second) = (&mut self.first[numbers.clone()], &mut self.second[numbers]);
                AdamStep::new(self.steps[row], self.lr).update(values, gradient, first, second, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_graph::random::{Key, Purpose};

    const ROWS: usize = 5;
    const WIDTH: usize = 3;

    /// The gradient of a row in a step; `None` where the step does not read it.
    fn gradient(step: u64, row: usize) -> Option<[f32; WIDTH]> {
        let key = Key::new(4, Purpose::Generate).with(step).with(row as u64);
        (key.below(9, 3) > 0).then(|| std::array::from_fn(|column| key.normal(column as u64) as f32))
    }

    /// The rules of the module's first lines, one number at a time in double precision.
    fn by_the_book(kind: EmbeddingOptimizer, start: f64, gradients: &[f64], lr: f64) -> f64 {
        let (mut p, mut m, mut v) = (start, 0.0, 0.0);
        for (t, &g) in (1..).zip(gradients) {
            match kind {
                EmbeddingOptimizer::Sgd => p -= lr * g,
                EmbeddingOptimizer::Adagrad => {
                    v += g * g;
                    p -= lr * g / (v.sqrt() + 1e-10);
                }
                EmbeddingOptimizer::Adam => {
                    m = 0.9 * m + 0.1 * g;
                    v = 0.999 * v + 0.001 * g * g;
                    p -= lr * (m / (1.0 - 0.9f64.powi(t))) / ((v / (1.0 - 0.999f64.powi(t))).sqrt() + 1e-8);
                }
            }
        }
        p
    }

    #[test]
    fn touched_rows_follow_the_rules_and_others_rest() {
        use EmbeddingOptimizer::{Adagrad, Adam, Sgd};
        for kind in [Sgd, Adagrad, Adam] {
            let mut rule = Rule::new(kind, 0.05, ROWS, WIDTH);
            let mut rows = [0.5f32; ROWS * WIDTH];
            let mut heard = vec![Vec::new(); ROWS * WIDTH];
            for step in 0..20 {
                for row in 0..ROWS {
                    let values = &mut rows[row * WIDTH..][..WIDTH];
                    let before = (values.to_vec(), rule.clone());
                    let Some(gradient) = gradient(step, row) else {
                        assert_eq!((values.to_vec(), rule.clone()), before);
                        continue;
                    };
                    rule.step(row, values, &gradient);
                    (0..WIDTH).for_each(|c| heard[row * WIDTH + c].push(f64::from(gradient[c])));
                }
            }
            for (found, gradients) in rows.iter().zip(&heard) {
                let expected = by_the_book(kind, 0.5, gradients, 0.05);
                assert!((f64::from(*found) - expected).abs() < 1e-5, "{kind:?}: {found} {expected}");
            }
        }
    }
}
