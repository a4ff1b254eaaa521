//! `x W^T`, dense or sparse, alone or added onto rows that are there already.

use super::{Op, Tape, Var};
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
        mut buffer: super::Buffer,
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
        self.keep(input);
        let output = self.computed(rows, cols, buffer, true);
        self.record(output, Linear { input, weight, output, onto });
        output
    }
}

impl Op for Linear {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (rows, inputs, outputs) = (tape.rows(self.output), tape.cols(self.input), tape.cols(self.output));
        let shape = dense::Linear { rows, inputs, outputs };
        tape.with_weight_gradient(self.weight, |tape, weight| match tape.sparse(self.input) {
            Some((x, dropout)) => {
                let x = x.first_rows(rows, dropout);
                sparse_grad_weight(&tape.pool, &x, &gradient, outputs, weight, true);
            }
            None => {
                let x = &tape.value(self.input)[..rows * inputs];
                shape.grad_weight(&tape.pool, &gradient, x, weight, true);
            }
        });
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
        match self.onto {
            Some(onto) if tape.needs_gradient(onto) => tape.put_gradient(onto, gradient),
            _ => tape.arena.give(gradient),
        }
        Ok(())
    }
}
