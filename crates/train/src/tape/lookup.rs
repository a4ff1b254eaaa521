//! Rows of which each is of a kind: rows of a table, mixtures of stretches, scores by head, rows times a factor.

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::attention::{head_scores, head_scores_backward};
use crate::ops::kinds::{self, Mixture};
use crate::ops::moving::scale_rows;
use crate::parameters::ParameterId;

struct Lookup {
    table: ParameterId,
    output: Var,
    kinds: Option<Buffer>,
}

struct Mixed {
    rows: Var,
    shares: ParameterId,
    output: Var,
    kinds: Option<Buffer>,
}

struct HeadScores {
    rows: Var,
    weight: ParameterId,
    output: Var,
}

struct Scaled {
    rows: Var,
    output: Var,
    factors: Option<Buffer>,
}

impl Tape {
    /// A row of the weight `table` for each of `kinds`, which are rows of it.
    pub fn lookup(&mut self, table: ParameterId, kinds: &[u32]) -> Var {
        let width = self.parameters.get(table).cols;
        let mut rows = self.arena.take(kinds.len() * width);
        kinds::lookup(&self.pool, &self.parameters.get(table).value, width, kinds, &mut rows);
        let output = self.computed(kinds.len(), width, rows, true);
        let kinds = self.kept_list(bytemuck::cast_slice(kinds));
        self.record(output, Lookup { table, output, kinds });
        output
    }

    /// Mixes stretches of rows: `out_e = sum over b of shares[kind_e][b] rows_e[b]`, where a row has as many equally wide
    /// stretches as the weight `shares` has columns.
    pub fn mix(&mut self, rows: Var, shares: ParameterId, kinds: &[u32]) -> Var {
        let width = self.cols(rows) / self.parameters.get(shares).cols;
        let mut out = self.arena.take(kinds.len() * width);
        self.mixture(shares, kinds, width).forward(&self.pool, self.value(rows), &mut out);
        self.keep(rows);
        let output = self.computed(kinds.len(), width, out, true);
        let kinds = self.kept_list(bytemuck::cast_slice(kinds));
        self.record(output, Mixed { rows, shares, output, kinds });
        output
    }

    /// The product of each head of the first `count` rows with its row of `weight`: one number per row and head.
    pub fn head_scores(&mut self, rows: Var, weight: ParameterId, count: usize) -> Var {
        let heads = self.parameters.get(weight).rows;
        let mut scores = self.arena.take(count * heads);
        let first = &self.value(rows)[..count * self.cols(rows)];
        head_scores(&self.pool, first, &self.parameters.get(weight).value, heads, &mut scores);
        self.keep(rows);
        let output = self.computed(count, heads, scores, true);
        self.record(output, HeadScores { rows, weight, output });
        output
    }

    /// `rows`, each times its factor.
    pub fn scale_rows(&mut self, rows: Var, factors: &[f32]) -> Var {
        let (count, cols) = (self.rows(rows), self.cols(rows));
        let mut buffer = self.consume(rows);
        scale_rows(&self.pool, factors, cols, &mut buffer);
        let needs_gradient = self.needs_gradient(rows);
        let output = self.computed(count, cols, buffer, needs_gradient);
        let factors = self.kept_list(factors);
        self.record(output, Scaled { rows, output, factors });
        output
    }

    fn mixture<'a>(&'a self, shares: ParameterId, kinds: &'a [u32], width: usize) -> Mixture<'a> {
        let parameter = self.parameters.get(shares);
        Mixture { shares: &parameter.value, stretches: parameter.cols, kinds, width }
    }

    /// A copy for the backward pass, if there will be one.
    fn kept_list(&mut self, list: &[f32]) -> Option<Buffer> {
        self.training.then(|| {
            let mut kept = self.arena.take(list.len());
            kept.copy_from_slice(list);
            kept
        })
    }
}

impl Op for Lookup {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(kinds) = self.kinds.take() else { return Ok(()) };
        if let Some(gradient) = tape.take_gradient(self.output) {
            let width = tape.cols(self.output);
            tape.with_weight_gradient(self.table, |tape, table| {
                kinds::lookup_backward(&tape.pool, &gradient, width, bytemuck::cast_slice(&kinds), table);
            });
            tape.arena.give(gradient);
        }
        tape.arena.give(kinds);
        Ok(())
    }
}

impl Op for Mixed {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(kept) = self.kinds.take() else { return Ok(()) };
        if let Some(gradient) = tape.take_gradient(self.output) {
            let (width, kinds) = (tape.cols(self.output), bytemuck::cast_slice(&kept));
            tape.with_weight_gradient(self.shares, |tape, shares| {
                let job = tape.mixture(self.shares, kinds, width);
                job.grad_shares(&tape.pool, tape.value(self.rows), &gradient, shares);
            });
            if tape.needs_gradient(self.rows) {
                let mut rows = tape.arena.take(tape.rows(self.rows) * tape.cols(self.rows));
                tape.mixture(self.shares, kinds, width).grad_rows(&tape.pool, &gradient, &mut rows);
                tape.put_gradient(self.rows, rows);
            }
            tape.arena.give(gradient);
        }
        tape.arena.give(kept);
        Ok(())
    }
}

impl Op for HeadScores {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (mut rows, accumulate) = tape.gradient_buffer(self.rows);
        if !accumulate {
            rows.fill(0.0);
        }
        tape.with_weight_gradient(self.weight, |tape, sum| {
            let (weight, count) = (tape.parameters.get(self.weight), tape.rows(self.output));
            let (z, heads) = (tape.value(self.rows), weight.rows);
            let (z, dz) = (&z[..count * weight.value.len()], &mut rows[..count * weight.value.len()]);
            head_scores_backward(&tape.pool, z, &weight.value, heads, &gradient, dz, sum);
        });
        tape.arena.give(gradient);
        match tape.needs_gradient(self.rows) {
            true => tape.put_gradient(self.rows, rows),
            false => tape.arena.give(rows),
        }
        Ok(())
    }
}

impl Op for Scaled {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(factors) = self.factors.take() else { return Ok(()) };
        if let Some(mut gradient) = tape.take_gradient(self.output) {
            scale_rows(&tape.pool, &factors, tape.cols(self.output), &mut gradient);
            tape.put_gradient(self.rows, gradient);
        }
        tape.arena.give(factors);
        Ok(())
    }
}
