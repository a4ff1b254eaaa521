//! Normalisation of rows (layer norm) and of columns over all ranks (batch norm).

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::{batch_norm, epilogue, layer_norm};
use crate::parameters::ParameterId;

/// Added to variances so that constant rows stay finite.
const EPSILON: f32 = 1e-5;
/// Share of a step's statistics in the running ones.
const MOMENTUM: f64 = 0.1;

/// The weights and buffers of one normalisation.
#[derive(Debug, Clone, Copy)]
pub struct NormWeights {
    /// Scale of each column.
    pub gamma: ParameterId,
    /// Shift of each column.
    pub beta: ParameterId,
    /// Batch norm only: running mean and variance, among the tape's buffers.
    pub running: Option<(ParameterId, ParameterId)>,
}

struct LayerNorm {
    input: Var,
    output: Var,
    weights: NormWeights,
    /// Mean and inverse deviation of each row.
    rows: Buffer,
}

impl Tape {
    /// Each row to mean 0 and variance 1, then scaled and shifted by column.
    pub fn layer_norm(&mut self, input: Var, weights: &NormWeights) -> Var {
        let (rows, cols) = (self.rows(input), self.cols(input));
        let mut buffer = self.arena.take(rows * cols);
        let mut statistics = self.arena.take(2 * rows);
        let gamma = &self.parameters.get(weights.gamma).value;
        let beta = &self.parameters.get(weights.beta).value;
        let (mean, rstd) = statistics.split_at_mut(rows);
        let norm = layer_norm::LayerNorm { gamma, beta, epsilon: EPSILON };
        let moments = layer_norm::Moments { mean, rstd };
        let after = nothing_after(cols);
        layer_norm::layer_norm(&self.pool, &norm, &after, self.value(input), &mut buffer, moments, &mut []);
        self.keep(input);
        let output = self.computed(rows, cols, buffer, true);
        self.record(output, LayerNorm { input, output, weights: *weights, rows: statistics });
        output
    }

    /// Each column to mean 0 and variance 1 over the rows of all ranks, then scaled and shifted. In evaluation the
    /// running statistics stand for the step's own.
    pub fn batch_norm(
        &mut self,
        boundary: &mut dyn Boundary,
        input: Var,
        weights: &NormWeights,
    ) -> Result<Var> {
        let (rows, cols) = (self.rows(input), self.cols(input));
        let mut statistics = self.arena.take(2 * cols);
        let (mean, inverse) = statistics.split_at_mut(cols);
        let mut count = rows as u64;
        if self.training {
            count = self.batch_statistics(boundary, input, weights, mean, inverse)?;
        } else if let Some((running_mean, running_variance)) = weights.running {
            mean.copy_from_slice(&self.buffers.get(running_mean).value);
            for (inverse, variance) in inverse.iter_mut().zip(&self.buffers.get(running_variance).value) {
                *inverse = 1.0 / (variance + EPSILON).sqrt();
            }
        }
        let mut buffer = self.arena.take(rows * cols);
        let gamma = &self.parameters.get(weights.gamma).value;
        let beta = &self.parameters.get(weights.beta).value;
        let statistics_of = batch_norm::Statistics { mean, rstd: inverse };
        batch_norm::normalize(&self.pool, statistics_of, gamma, beta, self.value(input), &mut buffer);
        self.keep(input);
        let output = self.computed(rows, cols, buffer, true);
        self.record(output, BatchNorm { input, output, weights: *weights, statistics, count });
        Ok(output)
    }

    /// Mean and inverse deviation of each column over all ranks; moves the running statistics. Returns the number
    /// of rows on all ranks.
    fn batch_statistics(
        &mut self,
        boundary: &mut dyn Boundary,
        input: Var,
        weights: &NormWeights,
        mean: &mut [f32],
        inverse: &mut [f32],
    ) -> Result<u64> {
        let cols = mean.len();
        let mut buffer = self.arena.take(2 * (cols + 1));
        let sums: &mut [f64] = bytemuck::cast_slice_mut(&mut buffer);
        batch_norm::column_sums(&self.pool, self.value(input), &mut sums[..cols]);
        sums[cols] = self.rows(input) as f64;
        boundary.sum(sums)?;
        let count = sums[cols].max(1.0);
        for (mean, sum) in mean.iter_mut().zip(&*sums) {
            *mean = (sum / count) as f32;
        }
        let squares = &mut sums[..cols];
        batch_norm::centred_squares(&self.pool, self.value(input), mean, squares);
        boundary.sum(squares)?;
        for (inverse, square) in inverse.iter_mut().zip(&*squares) {
            *inverse = 1.0 / ((square / count) as f32 + EPSILON).sqrt();
        }
        self.move_running_statistics(weights, mean, squares, count);
        self.arena.give(buffer);
        Ok(count as u64)
    }

    fn move_running_statistics(&mut self, weights: &NormWeights, mean: &[f32], squares: &[f64], count: f64) {
        let Some((running_mean, running_variance)) = weights.running else { return };
        let blend =
            |old: &mut f32, new: f64| *old = ((1.0 - MOMENTUM) * f64::from(*old) + MOMENTUM * new) as f32;
        for (old, new) in self.buffers.get_mut(running_mean).value.iter_mut().zip(mean) {
            blend(old, f64::from(*new));
        }
        for (old, square) in self.buffers.get_mut(running_variance).value.iter_mut().zip(squares) {
            blend(old, square / (count - 1.0).max(1.0));
        }
    }
}

impl Op for LayerNorm {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let statistics = std::mem::replace(&mut self.rows, tape.arena.take(0));
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let cols = tape.cols(self.output);
        let (mean, rstd) = statistics.split_at(tape.rows(self.output));
        let NormWeights { gamma, beta, .. } = self.weights;
        let mut weights = tape.arena.take_zeroed(2 * cols);
        let saved = layer_norm::Saved { x: tape.value(self.input), y: &[], mean, rstd, mask: &[] };
        let scale = &tape.parameters.get(gamma).value;
        let after = epilogue::EpilogueBackward {
            width: cols,
            activation: epilogue::Activation::Identity,
            scale: 1.0,
            masked: false,
        };
        layer_norm::layer_norm_backward(&tape.pool, scale, &after, saved, &mut gradient, &mut weights);
        add(&mut tape.parameters.get_mut(gamma).grad, &weights[..cols]);
        add(&mut tape.parameters.get_mut(beta).grad, &weights[cols..]);
        tape.arena.give(weights);
        tape.arena.give(statistics);
        tape.put_gradient(self.input, gradient);
        Ok(())
    }
}

struct BatchNorm {
    input: Var,
    output: Var,
    weights: NormWeights,
    /// Mean and inverse deviation of each column.
    statistics: Buffer,
    /// Rows on all ranks.
    count: u64,
}

impl Op for BatchNorm {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let statistics = std::mem::replace(&mut self.statistics, tape.arena.take(0));
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let cols = tape.cols(self.output);
        let (mean, inverse) = statistics.split_at(cols);
        let mut buffer = tape.arena.take(4 * cols);
        let sums: &mut [f64] = bytemuck::cast_slice_mut(&mut buffer);
        let x = tape.value(self.input);
        let statistics_of = batch_norm::Statistics { mean, rstd: inverse };
        batch_norm::backward_sums(&tape.pool, statistics_of, x, &gradient, sums);
        let NormWeights { gamma, beta, .. } = self.weights;
        add_f64(&mut tape.parameters.get_mut(beta).grad, &sums[..cols]);
        add_f64(&mut tape.parameters.get_mut(gamma).grad, &sums[cols..]);
        boundary.sum(sums)?;
        let (gamma, x) = (&tape.parameters.get(gamma).value, tape.value(self.input));
        batch_norm::backward(&tape.pool, statistics_of, gamma, sums, self.count, x, &mut gradient);
        tape.arena.give(buffer);
        tape.arena.give(statistics);
        tape.put_gradient(self.input, gradient);
        Ok(())
    }
}

fn nothing_after(width: usize) -> epilogue::Epilogue<'static> {
    epilogue::Epilogue { width, bias: None, activation: epilogue::Activation::Identity, dropout: None }
}

fn add(sum: &mut [f32], more: &[f32]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn add_f64(sum: &mut [f32], more: &[f64]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += *more as f32;
    }
}
