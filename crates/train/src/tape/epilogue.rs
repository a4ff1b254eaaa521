//! What follows a layer, in one pass over its rows: bias, activation, dropout.

use super::{Buffer, DropoutRows, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::epilogue;
use crate::ops::reduce::column_sums;
use crate::parameters::ParameterId;

pub use crate::ops::epilogue::Activation;

struct Epilogue {
    input: Var,
    output: Var,
    bias: Option<ParameterId>,
    activation: Activation,
    /// What dropout multiplied kept numbers by.
    scale: f32,
    /// One bit per number: whether its gradient passes; none where all do.
    mask: Option<Buffer>,
}

impl Tape {
    /// `dropout(activation(input + bias))`, in the memory of `input`.
    pub fn epilogue(
        &mut self,
        input: Var,
        bias: Option<ParameterId>,
        activation: Activation,
        dropout: Option<DropoutRows>,
    ) -> Var {
        let (rows, cols) = (self.rows(input), self.cols(input));
        let mut buffer = self.consume(input);
        let mut mask = self.arena.take(epilogue::mask_len(rows, cols).div_ceil(4));
        let job = epilogue::Epilogue {
            width: cols,
            bias: bias.map(|id| &self.parameters.get(id).value[..]),
            activation,
            dropout: dropout.as_ref().map(|dropout| dropout.kernel(rows)),
        };
        let masked = job.needs_mask();
        epilogue::epilogue(&self.pool, &job, &mut buffer, bytemuck::cast_slice_mut(&mut mask));
        let scale = dropout.as_ref().map_or(1.0, |dropout| dropout.kernel(rows).scale());
        let mask = self.keep_mask(mask, masked);
        let needs_gradient = bias.is_some() || self.needs_gradient(input);
        let output = self.computed(rows, cols, buffer, needs_gradient);
        if activation == Activation::Elu {
            self.keep(output);
        }
        self.record(output, Epilogue { input, output, bias, activation, scale, mask });
        output
    }

    fn keep_mask(&mut self, mask: Buffer, masked: bool) -> Option<Buffer> {
        if masked && self.training {
            return Some(mask);
        }
        self.arena.give(mask);
        None
    }
}

impl Op for Epilogue {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let mask = self.mask.take();
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let job = epilogue::EpilogueBackward {
            width: tape.cols(self.output),
            activation: self.activation,
            scale: self.scale,
            masked: mask.is_some(),
        };
        let bits: &[u8] = mask.as_deref().map_or(&[], bytemuck::cast_slice);
        epilogue::epilogue_backward(&tape.pool, &job, bits, tape.value(self.output), &mut gradient);
        if let Some(mask) = mask {
            tape.arena.give(mask);
        }
        if let Some(bias) = self.bias {
            tape.with_weight_gradient(bias, |tape, sums| column_sums(&tape.pool, &gradient, sums, true));
        }
        if tape.needs_gradient(self.input) {
            tape.put_gradient(self.input, gradient);
        } else {
            tape.arena.give(gradient);
        }
        Ok(())
    }
}
