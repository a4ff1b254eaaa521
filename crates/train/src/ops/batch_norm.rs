//! How are the columns of all nodes brought to mean 0 and variance 1? Batch normalisation (Ioffe & Szegedy 2015).
//!
//! Every sum is a step of its own, so that ranks can add theirs up in between: [`column_sums`] gives the means,
//! [`centred_squares`] around them the variances, [`normalize`] the output; [`backward_sums`] gives the gradients of
//! beta and gamma, and [`backward`] with the sums over all ranks that of the input:
//! `dx = gamma * rstd * (dy - sum(dy) / N - z * sum(dy * z) / N)`, `z = (x - mean) * rstd`.

use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::rows_per_task;

/// What normalises a column: `z = (x - mean) * rstd`.
#[derive(Debug, Clone, Copy)]
pub struct Statistics<'a> {
    /// Mean of each column, over all ranks.
    pub mean: &'a [f32],
    /// One over the root of variance + epsilon of each column.
    pub rstd: &'a [f32],
}

/// Sums over fixed chunks of rows in f64, added in chunk order; `term(row, sums)` adds one row.
fn sums(pool: &Pool, width: usize, rows: usize, out: &mut [f64], add: impl Fn(usize, &mut [f64]) + Sync) {
    out.fill(0.0);
    let (size, len) = (super::reduce::rows_per_chunk(rows, 2048), out.len());
    if width == 0 || rows == 0 {
        return;
    }
    super::scratch::with_scratch(2 * rows.div_ceil(size) * len + 1, |buffer| {
        // SAFETY: any bits are an f64, and `align_to_mut` aligns.
        let parts = unsafe { &mut buffer.align_to_mut::<f64>().1[..rows.div_ceil(size) * len] };
        let shared = Shared::new(parts);
        pool.for_ranges(rows, size, |range| {
            // SAFETY: each chunk has its own part.
            let part = unsafe { shared.part(range.start / size * len, len) };
            part.fill(0.0);
            range.for_each(|i| add(i, part));
        });
        for part in parts.chunks_exact(len) {
            out.iter_mut().zip(part).for_each(|(o, p)| *o += p);
        }
    });
}

/// The sum of each column.
pub fn column_sums(pool: &Pool, x: &[f32], out: &mut [f64]) {
    let width = out.len();
    sums(pool, width, x.len().checked_div(width).unwrap_or(0), out, |i, part| {
        add_row(&x[i * width..][..width], part)
    });
}

/// The sum of the squared distances of each column from its mean.
pub fn centred_squares(pool: &Pool, x: &[f32], mean: &[f32], out: &mut [f64]) {
    let width = out.len();
    sums(pool, width, x.len().checked_div(width).unwrap_or(0), out, |i, part| {
        add_squares(&x[i * width..][..width], mean, part);
    });
}

/// `y = gamma * (x - mean) * rstd + beta`.
pub fn normalize(pool: &Pool, statistics: Statistics, gamma: &[f32], beta: &[f32], x: &[f32], y: &mut [f32]) {
    let width = gamma.len();
    assert!(
        x.len() == y.len() && beta.len() == width && statistics.mean.len() == width,
        "shapes of a batch norm"
    );
    if width == 0 {
        return;
    }
    let out = Shared::new(y);
    pool.for_ranges(x.len() / width, rows_per_task(width), |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start * width, range.len() * width) };
        normalize_rows(&statistics, gamma, beta, &x[range.start * width..range.end * width], y);
    });
}

/// `sum(dy)` of each column, then `sum(dy * z)`: the gradients of beta and gamma. `out` has room for both.
pub fn backward_sums(pool: &Pool, statistics: Statistics, x: &[f32], grad: &[f32], out: &mut [f64]) {
    let width = out.len() / 2;
    sums(pool, width, x.len().checked_div(width).unwrap_or(0), out, |i, part| {
        add_gradients(&statistics, &x[i * width..][..width], &grad[i * width..][..width], part);
    });
}

/// Turns `grad` (of the output) into the gradient of the input, in place. `totals` are the [`backward_sums`] over all
/// ranks, `count` the rows over all ranks.
pub fn backward(
    pool: &Pool,
    statistics: Statistics,
    gamma: &[f32],
    totals: &[f64],
    count: u64,
    x: &[f32],
    grad: &mut [f32],
) {
    let width = gamma.len();
    assert!(x.len() == grad.len() && totals.len() == 2 * width, "shapes of a batch norm");
    if width == 0 || x.is_empty() {
        return;
    }
    super::scratch::with_scratch(2 * width, |means| {
        means.iter_mut().zip(totals).for_each(|(m, &t)| *m = (t / count as f64) as f32);
        let (means, grad) = (&*means, Shared::new(grad));
        pool.for_ranges(x.len() / width, rows_per_task(width), |range| {
            // SAFETY: ranges do not overlap.
            let grad = unsafe { grad.part(range.start * width, range.len() * width) };
            backward_rows(&statistics, gamma, means, &x[range.start * width..range.end * width], grad);
        });
    });
}

kernel! {
    fn add_row<S>(x: &[f32], sums: &mut [f64]) {
        for (s, &x) in sums.iter_mut().zip(x) {
            *s += f64::from(x);
        }
    }
}

kernel! {
    fn add_squares<S>(x: &[f32], mean: &[f32], sums: &mut [f64]) {
        for ((s, &x), &m) in sums.iter_mut().zip(x).zip(mean) {
            let d = f64::from(x) - f64::from(m);
            *s += d * d;
        }
    }
}

kernel! {
    fn add_gradients<S>(statistics: &Statistics, x: &[f32], grad: &[f32], sums: &mut [f64]) {
        let (plain, scaled) = sums.split_at_mut(x.len());
        let Statistics { mean, rstd } = *statistics;
        for (s, &g) in plain.iter_mut().zip(grad) {
            *s += f64::from(g);
        }
        for ((((s, &g), &x), &m), &r) in scaled.iter_mut().zip(grad).zip(x).zip(mean).zip(rstd) {
            *s += f64::from(g * ((x - m) * r));
        }
    }
}

kernel! {
    fn normalize_rows<S>(statistics: &Statistics, gamma: &[f32], beta: &[f32], x: &[f32], y: &mut [f32]) {
        let width = gamma.len();
        let (mean, rstd, beta) = (&statistics.mean[..width], &statistics.rstd[..width], &beta[..width]);
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            for c in 0..width {
                y[c] = gamma[c] * ((x[c] - mean[c]) * rstd[c]) + beta[c];
            }
        }
    }
}

kernel! {
    fn backward_rows<S>(statistics: &Statistics, gamma: &[f32], means: &[f32], x: &[f32], grad: &mut [f32]) {
        let width = gamma.len();
        let (mean, rstd) = (&statistics.mean[..width], &statistics.rstd[..width]);
        let (plain, scaled) = means.split_at(width);
        for (x, g) in x.chunks_exact(width).zip(grad.chunks_exact_mut(width)) {
            for c in 0..width {
                let z = (x[c] - mean[c]) * rstd[c];
                g[c] = gamma[c] * rstd[c] * (g[c] - plain[c] - z * scaled[c]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, differences, numbers, wide};
    use super::*;

    fn reference(x: &[f64], gamma: &[f64], beta: &[f64]) -> Vec<f64> {
        let (width, rows) = (gamma.len(), x.len() / gamma.len());
        let mut y = vec![0.0; x.len()];
        for c in 0..width {
            let column = || (0..rows).map(|i| x[i * width + c]);
            let mean = column().sum::<f64>() / rows as f64;
            let variance = column().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
            for i in 0..rows {
                y[i * width + c] = gamma[c] * (x[i * width + c] - mean) / (variance + 1e-5).sqrt() + beta[c];
            }
        }
        y
    }

    #[test]
    fn the_norm_and_its_gradients_match_the_definition() {
        for width in [1, 3, 7, 40] {
            let rows = 5;
            let (x, gamma, beta) = (numbers(1, rows * width), numbers(2, width), numbers(3, width));
            let upstream = numbers(4, rows * width);
            let pool = Pool::new(2);
            let mut total = vec![0.0; width];
            column_sums(&pool, &x, &mut total);
            let mean: Vec<f32> = total.iter().map(|t| (t / rows as f64) as f32).collect();
            centred_squares(&pool, &x, &mean, &mut total);
            let rstd: Vec<f32> =
                total.iter().map(|t| (1.0 / (t / rows as f64 + 1e-5).sqrt()) as f32).collect();
            let statistics = Statistics { mean: &mean, rstd: &rstd };
            let mut y = vec![0.0; x.len()];
            normalize(&pool, statistics, &gamma, &beta, &x, &mut y);
            let expected = reference(&wide(&x), &wide(&gamma), &wide(&beta));
            close(&y, &expected.iter().map(|&v| v as f32).collect::<Vec<_>>(), 1e-5);

            let (mut grad, mut totals) = (upstream.clone(), vec![0.0; 2 * width]);
            backward_sums(&pool, statistics, &x, &grad, &mut totals);
            backward(&pool, statistics, &gamma, &totals, rows as u64, &x, &mut grad);
            let loss = |x: &[f64], g: &[f64], b: &[f64]| -> f64 {
                reference(x, g, b).iter().zip(&upstream).map(|(y, u)| y * f64::from(*u)).sum()
            };
            close(&grad, &differences(&x, |x| loss(x, &wide(&gamma), &wide(&beta))), 1e-3);
            let narrow: Vec<f32> = totals.iter().map(|&t| t as f32).collect();
            close(&narrow[..width], &differences(&beta, |b| loss(&wide(&x), &wide(&gamma), b)), 1e-3);
            close(&narrow[width..], &differences(&gamma, |g| loss(&wide(&x), g, &wide(&beta))), 1e-3);
        }
    }

    #[test]
    fn sums_are_the_same_bits_for_any_number_of_threads() {
        let x = numbers(1, 9000 * 3);
        let run = |threads| {
            let mut out = vec![0.0; 3];
            column_sums(&Pool::new(threads), &x, &mut out);
            out
        };
        assert_eq!(run(1), run(3));
    }
}
