//! Rows put together: residual sums, GIN's weighted self term, the mean of heads, sparse rows made dense.

use super::{Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::{elementwise, heads};
use crate::parameters::ParameterId;

struct AddRows {
    sum: Var,
    rows: Var,
    output: Var,
}

struct AddScaledSelf {
    sum: Var,
    rows: Var,
    eps: ParameterId,
    output: Var,
}

struct MeanOfHeads {
    input: Var,
    output: Var,
    heads: usize,
}

impl Tape {
    /// `sum + rows`, in the memory of `sum`; of `rows`, as many as `sum` has.
    pub fn add_rows(&mut self, sum: Var, rows: Var) -> Var {
        let (count, cols) = (self.rows(sum), self.cols(sum));
        let rows = self.dense(rows);
        let mut buffer = self.consume(sum);
        elementwise::add(&self.pool, &self.value(rows)[..count * cols], &mut buffer);
        let needs_gradient = self.needs_gradient(sum) || self.needs_gradient(rows);
        let output = self.computed(count, cols, buffer, needs_gradient);
        self.record(output, AddRows { sum, rows, output });
        output
    }

    /// `sum + (1 + eps) rows`, in the memory of `sum`; of `rows`, as many as `sum` has.
    pub fn add_scaled_self(&mut self, sum: Var, rows: Var, eps: ParameterId) -> Var {
        let (count, cols) = (self.rows(sum), self.cols(sum));
        let factor = 1.0 + self.parameters.get(eps).value[0];
        let mut buffer = self.consume(sum);
        elementwise::axpy(&self.pool, factor, &self.value(rows)[..count * cols], &mut buffer);
        self.keep(rows);
        let output = self.computed(count, cols, buffer, true);
        self.record(output, AddScaledSelf { sum, rows, eps, output });
        output
    }

    /// The mean of `count` equally wide stretches of each row.
    pub fn mean_of_heads(&mut self, input: Var, count: usize) -> Var {
        if count == 1 {
            return input;
        }
        let (rows, cols) = (self.rows(input), self.cols(input) / count);
        let mut mean = self.arena.take(rows * cols);
        heads::mean_of_heads(&self.pool, self.value(input), count, cols, &mut mean);
        let needs_gradient = self.needs_gradient(input);
        let output = self.computed(rows, cols, mean, needs_gradient);
        self.record(output, MeanOfHeads { input, output, heads: count });
        output
    }

    /// `input` with every number stored; itself if it is dense already.
    pub fn dense(&mut self, input: Var) -> Var {
        let (rows, cols) = (self.rows(input), self.cols(input));
        if self.sparse(input).is_none() {
            return input;
        }
        let mut buffer = self.arena.take_zeroed(rows * cols);
        if let Some((matrix, dropout)) = self.sparse(input) {
            matrix.first_rows(rows, dropout).to_dense(&mut buffer);
        }
        self.computed(rows, cols, buffer, false)
    }
}

impl Op for AddRows {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        add_to_first_rows(tape, self.rows, 1.0, &gradient);
        pass_on(tape, self.sum, gradient);
        Ok(())
    }
}

impl Op for AddScaledSelf {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        tape.with_weight_gradient(self.eps, |tape, eps| {
            eps[0] += heads::dot(&tape.pool, &gradient, &tape.value(self.rows)[..gradient.len()]);
        });
        let factor = 1.0 + tape.parameters.get(self.eps).value[0];
        add_to_first_rows(tape, self.rows, factor, &gradient);
        pass_on(tape, self.sum, gradient);
        Ok(())
    }
}

impl Op for MeanOfHeads {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let mut input = tape.arena.take(gradient.len() * self.heads);
        let cols = tape.cols(self.output);
        heads::mean_of_heads_backward(&tape.pool, &gradient, self.heads, cols, &mut input);
        tape.arena.give(gradient);
        tape.put_gradient(self.input, input);
        Ok(())
    }
}

/// Adds `factor * gradient` to the gradient of the first rows of `var`, if it has one.
fn add_to_first_rows(tape: &mut Tape, var: Var, factor: f32, gradient: &[f32]) {
    if !tape.needs_gradient(var) {
        return;
    }
    let (mut sum, accumulate) = tape.gradient_buffer(var);
    if !accumulate {
        sum.fill(0.0);
    }
    elementwise::axpy(&tape.pool, factor, gradient, &mut sum[..gradient.len()]);
    tape.put_gradient(var, sum);
}

fn pass_on(tape: &mut Tape, var: Var, gradient: super::Buffer) {
    if tape.needs_gradient(var) {
        tape.put_gradient(var, gradient);
    } else {
        tape.arena.give(gradient);
    }
}
