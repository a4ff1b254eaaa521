//! Number by number: products of two values, and the functions that gates and scores are made of.

use super::{Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::elementwise;

/// A function of one number whose slope follows from what came out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Curve {
    /// `x` above 0, `slope x` below.
    Leaky(f32),
    Sigmoid,
    Tanh,
}

impl Curve {
    fn of(self, x: f32) -> f32 {
        match self {
            Self::Leaky(slope) => {
                if x > 0.0 {
                    x
                } else {
                    slope * x
                }
            }
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
        }
    }

    /// The slope where the function is `y`.
    fn slope(self, y: f32) -> f32 {
        match self {
            Self::Leaky(slope) => {
                if y > 0.0 {
                    1.0
                } else {
                    slope
                }
            }
            Self::Sigmoid => y * (1.0 - y),
            Self::Tanh => 1.0 - y * y,
        }
    }
}

struct Curved {
    curve: Curve,
    input: Var,
    output: Var,
}

struct Product {
    left: Var,
    right: Var,
    output: Var,
}

impl Tape {
    /// `input` above 0, `slope` times it below; `slope` must be above 0.
    pub fn leaky_relu(&mut self, input: Var, slope: f32) -> Var {
        self.curved(input, Curve::Leaky(slope))
    }

    /// `1 / (1 + exp(-input))`.
    pub fn sigmoid(&mut self, input: Var) -> Var {
        self.curved(input, Curve::Sigmoid)
    }

    /// The hyperbolic tangent.
    pub fn tanh(&mut self, input: Var) -> Var {
        self.curved(input, Curve::Tanh)
    }

    fn curved(&mut self, input: Var, curve: Curve) -> Var {
        let input = self.dense(input);
        let (rows, cols) = (self.rows(input), self.cols(input));
        let mut buffer = self.consume(input);
        elementwise::map(&self.pool, &mut buffer, |x| curve.of(x));
        let needs_gradient = self.needs_gradient(input);
        let output = self.computed(rows, cols, buffer, needs_gradient);
        self.keep(output);
        self.record(output, Curved { curve, input, output });
        output
    }

    /// `left * right`, number by number; both have the same shape.
    pub fn multiply(&mut self, left: Var, right: Var) -> Var {
        let (left, right) = (self.dense(left), self.dense(right));
        let (rows, cols) = (self.rows(left), self.cols(left));
        let mut product = self.arena.take(rows * cols);
        product.copy_from_slice(self.value(left));
        elementwise::zip(&self.pool, self.value(right), &mut product, |right, left| left * right);
        self.keep(left);
        self.keep(right);
        let needs_gradient = self.needs_gradient(left) || self.needs_gradient(right);
        let output = self.computed(rows, cols, product, needs_gradient);
        self.record(output, Product { left, right, output });
        output
    }
}

impl Op for Curved {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let curve = self.curve;
        elementwise::zip(&tape.pool, tape.value(self.output), &mut gradient, |y, g| g * curve.slope(y));
        tape.put_gradient(self.input, gradient);
        Ok(())
    }
}

impl Op for Product {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        for (to, other) in [(self.left, self.right), (self.right, self.left)] {
            if tape.needs_gradient(to) {
                let mut share = tape.arena.take(gradient.len());
                share.copy_from_slice(&gradient);
                elementwise::zip(&tape.pool, tape.value(other), &mut share, |other, g| g * other);
                tape.put_gradient(to, share);
            }
        }
        tape.arena.give(gradient);
        Ok(())
    }
}
