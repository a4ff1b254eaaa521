//! How ranks agree on weights: the gradient of a step is the sum over all ranks.
//!
//! Every rank starts from the same weights and makes the same update with the same summed gradient, so weights
//! stay equal bit for bit and are never sent. The sum runs in rank order whatever the timing.

use crate::Result;
use crate::parameters::Parameters;
use archipelago_comm::{Comm, Kind};

/// Sums gradients over ranks; keeps its buffer from step to step.
#[derive(Debug, Default)]
pub struct SumGradients {
    flat: Vec<f32>,
}

impl SumGradients {
    /// Replaces every gradient by its sum over all ranks.
    pub fn agree(&mut self, comm: &Comm, parameters: &mut Parameters) -> Result<()> {
        if comm.size() == 1 {
            return Ok(());
        }
        self.flat.clear();
        for parameter in parameters.iter() {
            self.flat.extend_from_slice(&parameter.grad);
        }
        comm.all_reduce_sum_f32(&mut self.flat, Kind::Gradients)?;
        let mut rest = &self.flat[..];
        for parameter in parameters.iter_mut() {
            let (mine, further) = rest.split_at(parameter.grad.len());
            parameter.grad.copy_from_slice(mine);
            rest = further;
        }
        Ok(())
    }
}
