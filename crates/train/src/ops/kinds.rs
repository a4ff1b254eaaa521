//! What do rows take from tables when each of them is of a kind? A row of a table, or a mixture of their own stretches.

use super::attention::{axpy, dot};
use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::rows_per_task;

/// `out_e = table[kind_e]`.
pub fn lookup(pool: &Pool, table: &[f32], width: usize, kinds: &[u32], out: &mut [f32]) {
    let out = Shared::new(out);
    pool.for_ranges(kinds.len(), rows_per_task(width), |range| {
        // SAFETY: ranges do not overlap.
        let out = unsafe { out.part(range.start * width, range.len() * width) };
        for (row, &kind) in out.chunks_exact_mut(width).zip(&kinds[range]) {
            row.copy_from_slice(&table[kind as usize * width..][..width]);
        }
    });
}

/// The gradient of [`lookup`]: adds the row of each to that of its kind.
pub fn lookup_backward(pool: &Pool, grad: &[f32], width: usize, kinds: &[u32], table: &mut [f32]) {
    chunked_sum(pool, kinds.len(), rows_per_task(width), table, true, |range, sum| {
        add_by_kind(&grad[range.start * width..range.end * width], width, &kinds[range], sum);
    });
}

kernel! {
    fn add_by_kind<S>(grad: &[f32], width: usize, kinds: &[u32], sum: &mut [f32]) {
        for (row, &kind) in grad.chunks_exact(width).zip(kinds) {
            axpy::<S>(1.0, row, &mut sum[kind as usize * width..][..width]);
        }
    }
}

/// `out_e = sum over b of shares[kind_e][b] rows_e[b]`: R-GCN's basis decomposition, once per edge.
#[derive(Debug, Clone, Copy)]
pub struct Mixture<'a> {
    /// A row per kind, with a share for each stretch.
    pub shares: &'a [f32],
    /// Stretches of a row.
    pub stretches: usize,
    /// The kind of each row.
    pub kinds: &'a [u32],
    /// Numbers per stretch.
    pub width: usize,
}

impl Mixture<'_> {
    fn for_rows(&self, pool: &Pool, body: impl Fn(std::ops::Range<usize>) + Sync) {
        pool.for_ranges(self.kinds.len(), rows_per_task(self.width * self.stretches), body);
    }

    /// The mixtures of `rows`.
    pub fn forward(&self, pool: &Pool, rows: &[f32], out: &mut [f32]) {
        let (width, whole, out) = (self.width, self.width * self.stretches, Shared::new(out));
        self.for_rows(pool, |range| {
            // SAFETY: ranges do not overlap.
            let out = unsafe { out.part(range.start * width, range.len() * width) };
            mix(self, &rows[range.start * whole..range.end * whole], &self.kinds[range], out);
        });
    }

    /// The gradient of the rows.
    pub fn grad_rows(&self, pool: &Pool, grad: &[f32], rows: &mut [f32]) {
        let (width, whole, rows) = (self.width, self.width * self.stretches, Shared::new(rows));
        self.for_rows(pool, |range| {
            // SAFETY: ranges do not overlap.
            let rows = unsafe { rows.part(range.start * whole, range.len() * whole) };
            unmix(self, &grad[range.start * width..range.end * width], &self.kinds[range], rows);
        });
    }

    /// Adds the gradient of the shares.
    pub fn grad_shares(&self, pool: &Pool, rows: &[f32], grad: &[f32], shares: &mut [f32]) {
        let (width, whole) = (self.width, self.width * self.stretches);
        chunked_sum(pool, self.kinds.len(), rows_per_task(whole), shares, true, |range, sum| {
            let rows = &rows[range.start * whole..range.end * whole];
            add_shares(self, rows, &grad[range.start * width..range.end * width], &self.kinds[range], sum);
        });
    }
}

kernel! {
    fn mix<S>(job: &Mixture<'_>, rows: &[f32], kinds: &[u32], out: &mut [f32]) {
        let rows = rows.chunks_exact(job.width * job.stretches);
        for ((out, row), &kind) in out.chunks_exact_mut(job.width).zip(rows).zip(kinds) {
            out.fill(0.0);
            let shares = &job.shares[kind as usize * job.stretches..][..job.stretches];
            for (&share, stretch) in shares.iter().zip(row.chunks_exact(job.width)) {
                axpy::<S>(share, stretch, out);
            }
        }
    }
}

kernel! {
    fn unmix<S>(job: &Mixture<'_>, grad: &[f32], kinds: &[u32], rows: &mut [f32]) {
        let rows = rows.chunks_exact_mut(job.width * job.stretches);
        for ((grad, row), &kind) in grad.chunks_exact(job.width).zip(rows).zip(kinds) {
            let shares = &job.shares[kind as usize * job.stretches..][..job.stretches];
            for (&share, stretch) in shares.iter().zip(row.chunks_exact_mut(job.width)) {
                stretch.iter_mut().zip(grad).for_each(|(cell, grad)| *cell = share * grad);
            }
        }
    }
}

kernel! {
    fn add_shares<S>(job: &Mixture<'_>, rows: &[f32], grad: &[f32], kinds: &[u32], sum: &mut [f32]) {
        let rows = rows.chunks_exact(job.width * job.stretches);
        for ((grad, row), &kind) in grad.chunks_exact(job.width).zip(rows).zip(kinds) {
            let sum = &mut sum[kind as usize * job.stretches..][..job.stretches];
            for (sum, stretch) in sum.iter_mut().zip(row.chunks_exact(job.width)) {
                *sum += dot::<S>(stretch, grad);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WIDTHS, close, numbers};
    use super::*;

    #[test]
    fn tables_are_looked_up_and_get_the_sums_of_their_kinds() {
        let kinds = [2u32, 0, 2, 2, 1, 0];
        for &width in WIDTHS {
            let (table, grad) = (numbers(1, 3 * width), numbers(2, kinds.len() * width));
            let mut out = vec![f32::NAN; grad.len()];
            lookup(&Pool::new(2), &table, width, &kinds, &mut out);
            let mut back = vec![1.0; table.len()];
            lookup_backward(&Pool::new(2), &grad, width, &kinds, &mut back);
            for (e, &kind) in kinds.iter().enumerate() {
                assert_eq!(out[e * width..][..width], table[kind as usize * width..][..width]);
            }
            let of_two: f32 = [0, 2, 3].iter().map(|e| grad[e * width]).sum();
            close(&back[2 * width..][..1], &[1.0 + of_two], 1e-5);
        }
    }

    #[test]
    fn mixtures_and_their_gradients_match_the_definition() {
        let kinds = [1u32, 0, 3, 1, 2];
        let stretches = 3;
        for &width in WIDTHS {
            let (shares, rows) = (numbers(3, 4 * stretches), numbers(4, kinds.len() * stretches * width));
            let grad = numbers(5, kinds.len() * width);
            let job = Mixture { shares: &shares, stretches, kinds: &kinds, width };
            let mut out = vec![f32::NAN; grad.len()];
            job.forward(&Pool::new(2), &rows, &mut out);
            let (mut expected, mut d_shares) = (vec![0.0; grad.len()], vec![0.0; shares.len()]);
            let mut d_rows = vec![0.0; rows.len()];
            for (e, &kind) in kinds.iter().enumerate() {
                for b in 0..stretches {
                    for c in 0..width {
                        let (share, cell) = (kind as usize * stretches + b, (e * stretches + b) * width + c);
                        expected[e * width + c] += shares[share] * rows[cell];
                        d_shares[share] += rows[cell] * grad[e * width + c];
                        d_rows[cell] = shares[share] * grad[e * width + c];
                    }
                }
            }
            close(&out, &expected, 1e-5);
            let (mut rows_back, mut shares_back) = (vec![f32::NAN; rows.len()], vec![0.0; shares.len()]);
            job.grad_rows(&Pool::new(2), &grad, &mut rows_back);
            job.grad_shares(&Pool::new(2), &rows, &grad, &mut shares_back);
            close(&rows_back, &d_rows, 1e-5);
            close(&shares_back, &d_shares, 1e-5);
        }
    }
}
