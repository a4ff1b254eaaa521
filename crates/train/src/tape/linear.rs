//! `x W^T`, dense or sparse, alone or added onto rows that are there already.

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::dense;
use crate::ops::sparse_linear::{TOGETHER, sparse_grad_weight, sparse_linear};
use crate::parameters::ParameterId;
use std::ops::Range;

struct Linear {
    input: Var,
    weight: ParameterId,
    output: Var,
    /// The variable whose rows the product was added to.
    onto: Option<Var>,
    /// What was brought to the input's gradient ahead of the backward pass.
    begun: Option<Begun>,
}

/// Rows of an input's gradient that have what the product brings.
#[derive(Clone)]
struct Begun {
    rows: Range<usize>,
    /// Whether the gradient had something before.
    adds: bool,
}

/// The gradient of a weight that nobody waits for: it is computed while this rank waits for others, or sums gradients with them.
pub(super) struct Owed {
    input: Var,
    weight: ParameterId,
    rows: usize,
    /// The gradient of the product.
    pub gradient: Buffer,
    /// So many rows of the gradient of the weight are complete.
    done: usize,
}

/// Rows of the gradient of a weight that are computed at once, at least: every time all rows of the input are read.
const LEAST_ROWS: usize = 64;

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
        self.record(output, Linear { input, weight, output, onto, begun: None });
        output
    }

    /// Computes what was put off until now.
    pub fn catch_up(&mut self) {
        if let Some(weight) = self.owed.as_ref().map(|owed| owed.weight) {
            self.complete(weight, usize::MAX);
        }
        self.may_owe = false;
    }

    /// Completes the first `rows` rows of the gradient of `weight`, if they were put off.
    pub fn complete(&mut self, weight: ParameterId, rows: usize) {
        let Some(owed) = self.owed.take_if(|owed| owed.weight == weight && owed.done < rows) else { return };
        let outputs = self.parameters.get(weight).rows;
        // A product of dense matrices is made at once: what its numbers are summed from depends on its shape.
        let apart = self.sparse(owed.input).is_some();
        let least = LEAST_ROWS.max(self.pool.threads() * TOGETHER);
        let until = if apart { rows.max(owed.done + least).min(outputs) } else { outputs };
        self.add_weight_gradient(owed.input, weight, owed.rows, &owed.gradient, owed.done..until);
        match until == outputs {
            true => self.arena.give(owed.gradient),
            false => self.owed = Some(Owed { done: until, ..owed }),
        }
    }

    /// Adds these `outputs`, which are rows of it, to the gradient of `weight`: of a dense matrix, all of them.
    fn add_weight_gradient(
        &mut self,
        input: Var,
        weight: ParameterId,
        rows: usize,
        gradient: &[f32],
        outputs: Range<usize>,
    ) {
        let inputs = self.cols(input);
        let all = self.parameters.get(weight).rows;
        self.with_weight_gradient(weight, |tape, weight| match tape.sparse(input) {
            Some((x, dropout)) => {
                let x = x.first_rows(rows, dropout);
                let weight = &mut weight[outputs.start * inputs..outputs.end * inputs];
                sparse_grad_weight(&tape.pool, &x, gradient, all, outputs, weight, true);
            }
            None => {
                debug_assert_eq!(outputs, 0..all);
                let x = &tape.value(input)[..rows * inputs];
                let shape = dense::Linear { rows, inputs, outputs: all };
                shape.grad_weight(&tape.pool, gradient, x, weight, true);
            }
        });
    }
}

impl Linear {
    /// Adds to the gradient of the input, or writes, what these rows of that of the output bring.
    fn put_input_gradient(
        &self,
        tape: &Tape,
        gradient: &[f32],
        rows: Range<usize>,
        input: &mut [f32],
        adds: bool,
    ) {
        let (inputs, outputs) = (tape.cols(self.input), tape.cols(self.output));
        let shape = dense::Linear { rows: rows.len(), inputs, outputs };
        let weight = &tape.parameters.get(self.weight).value;
        let (from, to) = (rows.start * outputs..rows.end * outputs, rows.start * inputs..rows.end * inputs);
        shape.grad_input(&tape.pool, &gradient[from], weight, &mut input[to], adds);
    }

    /// The gradient of the input to add to, or to write where nothing is known of it.
    fn input_gradient(&self, tape: &mut Tape) -> (Buffer, usize) {
        let all = tape.rows(self.output) * tape.cols(self.input);
        let (mut input, known) = tape.known_gradient(self.input);
        if 0 < known && known < all {
            input[known..all].fill(0.0);
        }
        (input, if known > 0 { known.max(all) } else { 0 })
    }
}

impl Op for Linear {
    fn begin_backward(&mut self, tape: &mut Tape, gradient: &[f32], rows: Range<usize>) {
        if tape.needs_gradient(self.input) && !rows.is_empty() {
            let (mut input, known) = self.input_gradient(tape);
            self.put_input_gradient(tape, gradient, rows.clone(), &mut input, known > 0);
            tape.put_known_gradient(self.input, input, known);
            self.begun = Some(Begun { rows, adds: known > 0 });
        }
    }

    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let rows = tape.rows(self.output);
        if tape.needs_gradient(self.input) {
            let (mut input, known) = self.input_gradient(tape);
            let Begun { rows: begun, adds } =
                self.begun.take().unwrap_or(Begun { rows: 0..0, adds: known > 0 });
            for rest in [0..begun.start, begun.end..rows] {
                self.put_input_gradient(tape, &gradient, rest, &mut input, adds);
            }
            let known = known.max(rows * tape.cols(self.input));
            tape.put_known_gradient(self.input, input, known);
        }
        let onto = self.onto.filter(|&onto| tape.needs_gradient(onto));
        if onto.is_none() && tape.can_owe() {
            let Self { input, weight, .. } = *self;
            tape.owed = Some(Owed { input, weight, rows, gradient, done: 0 });
            return Ok(());
        }
        let outputs = 0..tape.parameters.get(self.weight).rows;
        tape.add_weight_gradient(self.input, self.weight, rows, &gradient, outputs);
        match onto {
            Some(onto) => tape.put_gradient(onto, gradient),
            None => tape.arena.give(gradient),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::Isolated;
    use crate::ops::Pool;
    use crate::parameters::{Parameter, Parameters};

    const ROWS: usize = 700;
    const INPUTS: usize = 5;
    const OUTPUTS: usize = 3;

    /// Passes its gradient on, some rows ahead of the others.
    struct InTwo {
        rows: Var,
        output: Var,
        ahead: Range<usize>,
    }

    impl Op for InTwo {
        fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
            let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
            tape.begin_backward(self.rows, &gradient, self.ahead.clone());
            tape.put_gradient(self.rows, gradient);
            Ok(())
        }
    }

    fn numbers(seed: u32, count: usize) -> Vec<f32> {
        (0..count as u32).map(|i| ((i.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 1e6 - 8.0).collect()
    }

    fn filled(tape: &mut Tape, seed: u32, count: usize) -> Buffer {
        let mut buffer = tape.arena.take(count);
        buffer.copy_from_slice(&numbers(seed, count));
        buffer
    }

    /// The gradients of input and weight where these rows of the gradient of the product come ahead, and another operation has
    /// added to the gradient of the input before, or none.
    fn gradients(ahead: Range<usize>, before: bool) -> (Vec<f32>, Vec<f32>) {
        let mut weight = Parameter::zeros("weight", OUTPUTS, INPUTS);
        weight.value.copy_from_slice(&numbers(1, OUTPUTS * INPUTS));
        let weights = Parameters::new(vec![weight]);
        let mut tape = Tape::new(weights, Parameters::default(), Pool::new(1));
        tape.begin_step(0, 1, 1);
        let weight = tape.parameters.find("weight").unwrap();
        let values = filled(&mut tape, 2, ROWS * INPUTS);
        let input = tape.pinned(ROWS, INPUTS, values, true);
        let product = tape.linear(input, weight, ROWS);
        let copy = filled(&mut tape, 3, ROWS * OUTPUTS);
        let output = tape.computed(ROWS, OUTPUTS, copy, true);
        tape.record(output, InTwo { rows: product, output, ahead });
        let gradient = filled(&mut tape, 4, ROWS * OUTPUTS);
        tape.put_gradient(output, gradient);
        if before {
            // Of the first rows alone, as where targets are fewer than rows.
            let (mut sum, _) = tape.known_gradient(input);
            sum[..50 * INPUTS].copy_from_slice(&numbers(5, 50 * INPUTS));
            tape.put_known_gradient(input, sum, 50 * INPUTS);
        }
        tape.backward(&mut Isolated).unwrap();
        let found = tape.take_gradient(input).unwrap().to_vec();
        (found, tape.parameters.get(weight).grad.clone())
    }

    #[test]
    fn rows_of_a_gradient_that_come_ahead_of_the_others_change_no_bit() {
        for before in [false, true] {
            let at_once = gradients(0..0, before);
            for ahead in [0..1, 0..49, 20..50, 300..500, 600..ROWS, 0..ROWS] {
                assert_eq!(gradients(ahead.clone(), before), at_once, "{ahead:?} {before}");
            }
        }
    }
}
