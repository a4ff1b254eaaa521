//! `x W^T`, dense or sparse, alone or added onto rows that are there already.

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::dense;
use crate::ops::sparse_linear::{sparse_grad_weight, sparse_linear};
use crate::parameters::ParameterId;

struct Linear {
    input: Var,
    weight: ParameterId,
    output: Var,
    /// The variable whose rows the product was added to.
    onto: Option<Var>,
}

/// The gradient of a weight that nobody waits for: it is computed while this rank waits for others.
pub(super) struct Owed {
    input: Var,
    weight: ParameterId,
    rows: usize,
    /// The gradient of the product.
    pub gradient: Buffer,
}

impl Tape {
    /// `W x` for the first `rows` rows of `input`.
    pub fn linear(&mut self, input: Var, weight: ParameterId, rows: usize) -> Var {
        let cols = self.parameters.get(weight).rows;
        let product = self.arena.take(rows * cols);
        self.linear_into(input, weight, rows, product, None)
    }

    /// `onto + W x`, in the memory of `onto`, for as many rows as it has.
    pub fn linear_onto(&mut self, onto: Var, input: Var, weight: ParameterId) -> Var {
        let rows = self.rows(onto);
        let sum = self.consume(onto);
        self.linear_into(input, weight, rows, sum, Some(onto))
    }

    fn linear_into(
        &mut self,
        input: Var,
        weight: ParameterId,
        rows: usize,
        mut buffer: Buffer,
        onto: Option<Var>,
    ) -> Var {
        let (inputs, cols) = (self.cols(input), self.parameters.get(weight).rows);
        let matrix = &self.parameters.get(weight).value;
        match self.sparse(input) {
            Some((x, dropout)) => {
                let x = x.first_rows(rows, dropout);
                sparse_linear(&self.pool, &x, matrix, cols, &mut buffer, onto.is_some());
            }
            None => {
                let x = &self.value(input)[..rows * inputs];
                let shape = dense::Linear { rows, inputs, outputs: cols };
                shape.forward(&self.pool, x, matrix, &mut buffer, onto.is_some());
            }
        }
        self.record_linear(input, weight, rows, buffer, onto)
    }

    /// `W x` for the first `rows` rows of `input`, which was computed already.
    pub(crate) fn linear_known(
        &mut self,
        input: Var,
        weight: ParameterId,
        rows: usize,
        product: Buffer,
    ) -> Var {
        self.record_linear(input, weight, rows, product, None)
    }

    fn record_linear(
        &mut self,
        input: Var,
        weight: ParameterId,
        rows: usize,
        buffer: Buffer,
        onto: Option<Var>,
    ) -> Var {
        let cols = self.parameters.get(weight).rows;
        self.keep(input);
        let output = self.computed(rows, cols, buffer, true);
        self.record(output, Linear { input, weight, output, onto });
        output
    }

    /// Computes what was put off until now.
    pub fn catch_up(&mut self) {
        if let Some(Owed { input, weight, rows, gradient }) = self.owed.take() {
            self.add_weight_gradient(input, weight, rows, &gradient);
            self.arena.give(gradient);
        }
    }

    fn add_weight_gradient(&mut self, input: Var, weight: ParameterId, rows: usize, gradient: &[f32]) {
        let (inputs, outputs) = (self.cols(input), self.parameters.get(weight).rows);
        self.with_weight_gradient(weight, |tape, weight| match tape.sparse(input) {
            Some((x, dropout)) => {
                let x = x.first_rows(rows, dropout);
                sparse_grad_weight(&tape.pool, &x, gradient, outputs, weight, true);
            }
            None => {
                let x = &tape.value(input)[..rows * inputs];
                dense::Linear { rows, inputs, outputs }.grad_weight(&tape.pool, gradient, x, weight, true);
            }
        });
    }
}

impl Op for Linear {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (rows, inputs, outputs) = (tape.rows(self.output), tape.cols(self.input), tape.cols(self.output));
        let shape = dense::Linear { rows, inputs, outputs };
        if tape.needs_gradient(self.input) {
            let (mut input, known) = tape.known_gradient(self.input);
            let first = rows * inputs;
            if 0 < known && known < first {
                input[known..first].fill(0.0);
            }
            let weight = &tape.parameters.get(self.weight).value;
            shape.grad_input(&tape.pool, &gradient, weight, &mut input[..first], known > 0);
            tape.put_known_gradient(self.input, input, known.max(first));
        }
        let onto = self.onto.filter(|&onto| tape.needs_gradient(onto));
        if onto.is_none() && tape.will_wait() {
            let Self { input, weight, .. } = *self;
            tape.owed = Some(Owed { input, weight, rows, gradient });
            return Ok(());
        }
        tape.add_weight_gradient(self.input, self.weight, rows, &gradient);
        match onto {
            Some(onto) => tape.put_gradient(onto, gradient),
            None => tape.arena.give(gradient),
        }
        Ok(())
    }
}
