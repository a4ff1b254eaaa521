//! Columns of values put side by side, and taken apart again.

use super::{Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use std::ops::Range;

struct Beside {
    left: Var,
    right: Var,
    output: Var,
}

struct Columns {
    input: Var,
    output: Var,
    first: usize,
}

/// Copies `columns` of the rows `from` to the columns of `to` from `first` on; rows have `widths` numbers.
fn copy(from: &[f32], columns: Range<usize>, to: &mut [f32], first: usize, widths: [usize; 2]) {
    let there = first..first + columns.len();
    for (from, to) in from.chunks_exact(widths[0].max(1)).zip(to.chunks_exact_mut(widths[1].max(1))) {
        to[there.clone()].copy_from_slice(&from[columns.clone()]);
    }
}

impl Tape {
    /// Rows of `left` and of `right`, of which there are as many, side by side.
    pub fn beside(&mut self, left: Var, right: Var) -> Var {
        let (left, right) = (self.dense(left), self.dense(right));
        let (rows, widths) = (self.rows(left), [self.cols(left), self.cols(right)]);
        let width = widths[0] + widths[1];
        let mut both = self.arena.take(rows * width);
        copy(self.value(left), 0..widths[0], &mut both, 0, [widths[0], width]);
        copy(self.value(right), 0..widths[1], &mut both, widths[0], [widths[1], width]);
        let needs_gradient = self.needs_gradient(left) || self.needs_gradient(right);
        let output = self.computed(rows, width, both, needs_gradient);
        self.record(output, Beside { left, right, output });
        output
    }

    /// These columns of `input`.
    pub fn columns(&mut self, input: Var, columns: Range<usize>) -> Var {
        let input = self.dense(input);
        let (rows, cols, width) = (self.rows(input), self.cols(input), columns.len());
        let mut taken = self.arena.take(rows * width);
        copy(self.value(input), columns.clone(), &mut taken, 0, [cols, width]);
        let needs_gradient = self.needs_gradient(input);
        let output = self.computed(rows, width, taken, needs_gradient);
        self.record(output, Columns { input, output, first: columns.start });
        output
    }
}

impl Op for Beside {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (rows, width, left) = (tape.rows(self.output), tape.cols(self.output), tape.cols(self.left));
        for (var, columns) in [(self.left, 0..left), (self.right, left..width)] {
            if tape.needs_gradient(var) {
                let mut share = tape.arena.take(rows * columns.len());
                let count = columns.len();
                copy(&gradient, columns, &mut share, 0, [width, count]);
                tape.put_gradient(var, share);
            }
        }
        tape.arena.give(gradient);
        Ok(())
    }
}

impl Op for Columns {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (rows, cols, width) = (tape.rows(self.input), tape.cols(self.input), tape.cols(self.output));
        let mut whole = tape.arena.take_zeroed(rows * cols);
        copy(&gradient, 0..width, &mut whole, self.first, [width, cols]);
        tape.arena.give(gradient);
        tape.put_gradient(self.input, whole);
        Ok(())
    }
}
