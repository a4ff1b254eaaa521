//! Pairs of rows: inner products with or without a relation, and products column by column.
//!
//! Which rows make a pair is kept beside the value, in buffers of the arena; the list of pairs by row is made only
//! when the gradient is asked for.

use super::{Buffer, Op, Tape, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops::Rows;
use crate::ops::pairs::{Incidence, PairRows};
use crate::parameters::ParameterId;

pub use crate::ops::pairs::Pairs;

/// What a backward pass must remember of pairs: left rows, right rows, kinds.
struct Kept {
    numbers: Buffer,
    count: usize,
}

struct PairScores {
    rows: Var,
    output: Var,
    relation: Option<ParameterId>,
    pairs: Option<Kept>,
}

struct PairProducts {
    rows: Var,
    output: Var,
    pairs: Option<Kept>,
}

impl Tape {
    /// The inner product of each pair of `rows`: one column. With a `relation`, a matrix with a row for each kind of
    /// pair, its columns weigh those of the pair (DistMult).
    pub fn pair_scores(&mut self, rows: Var, pairs: Pairs<'_>, relation: Option<ParameterId>) -> Var {
        let rows = self.dense(rows);
        let mut scores = self.arena.take(pairs.count());
        self.pair_rows(rows, pairs, relation).scores(&self.pool, &mut scores);
        let needs_gradient = relation.is_some() || self.needs_gradient(rows);
        let output = self.computed(pairs.count(), 1, scores, needs_gradient);
        if self.needs_gradient(output) {
            self.keep(rows);
            let pairs = Some(self.keep_pairs(pairs));
            self.record(output, PairScores { rows, output, relation, pairs });
        }
        output
    }

    /// The product of each pair of `rows`, column by column.
    pub fn pair_products(&mut self, rows: Var, pairs: Pairs<'_>) -> Var {
        let rows = self.dense(rows);
        let cols = self.cols(rows);
        let mut products = self.arena.take(pairs.count() * cols);
        self.pair_rows(rows, pairs, None).products(&self.pool, &mut products);
        let needs_gradient = self.needs_gradient(rows);
        let output = self.computed(pairs.count(), cols, products, needs_gradient);
        if self.needs_gradient(output) {
            self.keep(rows);
            let pairs = Some(self.keep_pairs(pairs));
            self.record(output, PairProducts { rows, output, pairs });
        }
        output
    }

    fn pair_rows<'a>(&'a self, rows: Var, pairs: Pairs<'a>, relation: Option<ParameterId>) -> PairRows<'a> {
        let relations = relation.map(|id| &self.parameters.get(id).value[..]);
        PairRows { rows: Rows::local(self.value(rows), self.cols(rows)), pairs, relations }
    }

    fn keep_pairs(&mut self, pairs: Pairs<'_>) -> Kept {
        let count = pairs.count();
        let mut numbers = self.arena.take(2 * count + pairs.kinds.len());
        let all: &mut [u32] = bytemuck::cast_slice_mut(&mut numbers);
        all[..count].copy_from_slice(pairs.left);
        all[count..2 * count].copy_from_slice(pairs.right);
        all[2 * count..].copy_from_slice(pairs.kinds);
        Kept { numbers, count }
    }

    /// Lends `work` the pairs sorted by row, and a gradient of `rows` to write or, if it says so, to add to.
    fn with_row_gradient(
        &mut self,
        rows: Var,
        pairs: Pairs<'_>,
        work: impl FnOnce(&Self, Incidence<'_>, &mut [f32], bool),
    ) {
        if !self.needs_gradient(rows) {
            return;
        }
        let mut offsets = self.arena.take(2 * (self.rows(rows) + 1));
        let mut ends = self.arena.take(2 * pairs.count());
        let (mut gradient, accumulate) = self.gradient_buffer(rows);
        let incidence = Incidence::fill(
            pairs,
            bytemuck::cast_slice_mut(&mut offsets),
            bytemuck::cast_slice_mut(&mut ends),
        );
        work(self, incidence, &mut gradient, accumulate);
        self.put_gradient(rows, gradient);
        self.arena.give(offsets);
        self.arena.give(ends);
    }
}

impl Kept {
    fn pairs(&self) -> Pairs<'_> {
        let numbers: &[u32] = bytemuck::cast_slice(&self.numbers);
        let (left, rest) = numbers.split_at(self.count);
        let (right, kinds) = rest.split_at(self.count);
        Pairs { left, right, kinds }
    }
}

impl Op for PairScores {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(kept) = self.pairs.take() else { return Ok(()) };
        if let Some(gradient) = tape.take_gradient(self.output) {
            let pairs = kept.pairs();
            if let Some(relation) = self.relation {
                tape.with_weight_gradient(relation, |tape, sum| {
                    tape.pair_rows(self.rows, pairs, None).relation_gradient(&tape.pool, &gradient, sum);
                });
            }
            tape.with_row_gradient(self.rows, pairs, |tape, incidence, out, accumulate| {
                let job = tape.pair_rows(self.rows, pairs, self.relation);
                job.score_gradient(&tape.pool, incidence, &gradient, out, accumulate);
            });
            tape.arena.give(gradient);
        }
        tape.arena.give(kept.numbers);
        Ok(())
    }
}

impl Op for PairProducts {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(kept) = self.pairs.take() else { return Ok(()) };
        if let Some(gradient) = tape.take_gradient(self.output) {
            let pairs = kept.pairs();
            tape.with_row_gradient(self.rows, pairs, |tape, incidence, out, accumulate| {
                let job = tape.pair_rows(self.rows, pairs, None);
                job.product_gradient(&tape.pool, incidence, &gradient, out, accumulate);
            });
            tape.arena.give(gradient);
        }
        tape.arena.give(kept.numbers);
        Ok(())
    }
}
