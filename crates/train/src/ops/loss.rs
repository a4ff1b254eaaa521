//! How wrong are the logits, and in which direction? Softmax cross-entropy and the logistic loss, with gradients.
//!
//! Both take the rows that count and a factor (one over the global count), return the factored sum in f64, and write
//! the whole gradient: rows that do not count get 0.

use super::isa::{Simd, exp, kernel};
use super::pool::{Pool, Shared};
use super::scratch::with_scratch;

/// How much rows weigh: all alike, and each of them beside.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    /// What all are multiplied by.
    pub all: f32,
    /// What each row that counts is multiplied by besides; 1 where nothing is said.
    pub each: Option<&'a [f32]>,
}

impl Weights<'_> {
    fn of(&self, row: usize) -> f32 {
        self.each.map_or(1.0, |each| each[row])
    }
}

impl From<f32> for Weights<'_> {
    fn from(all: f32) -> Self {
        Self { all, each: None }
    }
}

/// Rows per partial sum of a loss.
const CHUNK: usize = 256;

/// `all * sum over k of each[k] (log sum exp z - z[labels[k]])` for rows `z = logits[rows[k]]`; `rows` ascending without
/// repetition, one label in `0..width` for each.
pub fn softmax_cross_entropy(
    pool: &Pool,
    logits: &[f32],
    width: usize,
    rows: &[u32],
    labels: &[i64],
    weights: Weights<'_>,
    grad: &mut [f32],
) -> f64 {
    assert!(
        rows.len() == labels.len() && grad.len() == logits.len(),
        "a label per row, a gradient per logit"
    );
    listed(pool, width, rows, grad, |k, i, grad| {
        let label = labels[k] as usize;
        assert!(label < width, "label {} of {width} classes", labels[k]);
        let weight = weights.of(k);
        f64::from(weight) * softmax_row(&logits[i * width..][..width], label, weights.all * weight, grad)
    }) * f64::from(weights.all)
}

/// `all * sum over k and c of each[k] (max(z, 0) - z y + log(1 + exp(-|z|)))` for rows `z = logits[rows[k]]`,
/// `y = targets[k]`; `rows` ascending without repetition, `width` zeros and ones for each.
pub fn logistic(
    pool: &Pool,
    logits: &[f32],
    width: usize,
    rows: &[u32],
    targets: &[u8],
    weights: Weights<'_>,
    grad: &mut [f32],
) -> f64 {
    assert!(
        targets.len() == rows.len() * width && grad.len() == logits.len(),
        "a target and a gradient per logit"
    );
    listed(pool, width, rows, grad, |k, i, grad| {
        let weight = weights.of(k);
        let (row, wanted) = (&logits[i * width..][..width], &targets[k * width..][..width]);
        f64::from(weight) * logistic_row(row, wanted, weights.all * weight, grad)
    }) * f64::from(weights.all)
}

/// Zeroes `grad` and sums `row(k, rows[k], gradient row)` over fixed chunks, in order.
fn listed(
    pool: &Pool,
    width: usize,
    rows: &[u32],
    grad: &mut [f32],
    row: impl Fn(usize, usize, &mut [f32]) -> f64 + Sync,
) -> f64 {
    assert!(rows.is_sorted_by(|a, b| a < b), "listed rows must be strictly ascending");
    let all = Shared::new(grad);
    pool.for_ranges(all.len(), 1 << 18, |range| {
        // SAFETY: ranges do not overlap.
        unsafe { all.part(range.start, range.len()) }.fill(0.0);
    });
    ordered_sum(pool, rows.len(), |k| {
        let i = rows[k] as usize;
        // SAFETY: listed rows are different.
        row(k, i, unsafe { all.part(i * width, width) })
    })
}

/// Sums `term(k)` for `k` below `count` over fixed chunks, in order.
pub(super) fn ordered_sum(pool: &Pool, count: usize, term: impl Fn(usize) -> f64 + Sync) -> f64 {
    with_scratch(2 * count.div_ceil(CHUNK) + 1, |buffer| {
        // SAFETY: any bits are an f64, and `align_to_mut` aligns.
        let sums = unsafe { &mut buffer.align_to_mut::<f64>().1[..count.div_ceil(CHUNK)] };
        let shared = Shared::new(sums);
        pool.for_ranges(count, CHUNK, |range| {
            let chunk = range.start / CHUNK;
            let sum = range.map(&term).sum();
            // SAFETY: each chunk has its own sum.
            let cell = unsafe { shared.part(chunk, 1) };
            cell[0] = sum;
        });
        sums.iter().sum()
    })
}

kernel! {
    fn softmax_row<S>(z: &[f32], label: usize, factor: f32, grad: &mut [f32]) -> f64 {
        let highest = z.iter().fold(f32::NEG_INFINITY, |m, &z| if z > m { z } else { m });
        exp_row::<S>(z, #[inline(always)] |v| S::sub(v, S::splat(highest)), grad);
        let total: f32 = grad.iter().sum();
        let share = factor / total;
        grad.iter_mut().for_each(|g| *g *= share);
        grad[label] -= factor;
        f64::from(total).ln() + f64::from(highest) - f64::from(z[label])
    }
}

kernel! {
    fn logistic_row<S>(z: &[f32], y: &[u8], factor: f32, grad: &mut [f32]) -> f64 {
        exp_row::<S>(z, #[inline(always)] |v| S::min(v, S::sub(S::splat(0.0), v)), grad);
        let mut sum = 0.0;
        for ((g, &z), &y) in grad.iter_mut().zip(z).zip(y) {
            let e = *g;
            let y = f32::from(y);
            sum += f64::from(z.max(0.0) - z * y) + f64::from(e.ln_1p());
            let sigmoid = if z >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) };
            *g = factor * (sigmoid - y);
        }
        sum
    }
}

/// `out = exp(inner(z))`.
#[inline(always)]
fn exp_row<S: Simd>(z: &[f32], inner: impl Fn(S::V) -> S::V, out: &mut [f32]) {
    for (z, out) in z.chunks(S::N).zip(out.chunks_mut(S::N)) {
        // SAFETY: both chunks have the same length, at most N.
        unsafe {
            let v = exp::<S>(inner(S::load_first(z.as_ptr(), z.len())));
            S::store_first(out.as_mut_ptr(), z.len(), v);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{close, differences, numbers, wide};
    use super::*;

    fn cross_entropy(z: &[f64], width: usize, rows: &[u32], labels: &[i64], factor: f64) -> f64 {
        let row = |(&i, &label): (&u32, &i64)| {
            let z = &z[i as usize * width..][..width];
            z.iter().map(|z| z.exp()).sum::<f64>().ln() - z[label as usize]
        };
        rows.iter().zip(labels).map(row).sum::<f64>() * factor
    }

    fn binary(z: &[f64], width: usize, rows: &[u32], targets: &[u8], factor: f64) -> f64 {
        let cell = |k: usize| {
            let z = z[rows[k / width] as usize * width + k % width];
            z.max(0.0) - z * f64::from(targets[k]) + (-z.abs()).exp().ln_1p()
        };
        (0..rows.len() * width).map(cell).sum::<f64>() * factor
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn losses_and_gradients_match_the_definition(n in 0usize..20, width in prop::sample::select(&[1usize, 2, 7, 8, 41][..]), seed in any::<u64>()) {
            let z = numbers(seed, n * width);
            let rows: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 0).collect();
            let labels: Vec<i64> = rows.iter().map(|&i| (i as usize * 5 % width) as i64).collect();
            let targets: Vec<u8> = (0..rows.len() * width).map(|k| (k * 7 % 3 == 0) as u8).collect();
            let mut grad = vec![9.0; z.len()];
            let pool = Pool::new(2);
            let found = softmax_cross_entropy(&pool, &z, width, &rows, &labels, 0.25.into(), &mut grad);
            prop_assert!((found - cross_entropy(&wide(&z), width, &rows, &labels, 0.25)).abs() < 1e-5);
            close(&grad, &differences(&z, |z| cross_entropy(z, width, &rows, &labels, 0.25)), 1e-5);
            let found = logistic(&pool, &z, width, &rows, &targets, 0.5.into(), &mut grad);
            prop_assert!((found - binary(&wide(&z), width, &rows, &targets, 0.5)).abs() < 1e-4);
            close(&grad, &differences(&z, |z| binary(z, width, &rows, &targets, 0.5)), 1e-5);
        }

        #[test]
        fn a_row_that_weighs_twice_counts_twice_and_one_that_weighs_nothing_does_not(seed in any::<u64>()) {
            let (z, width, pool) = (numbers(seed, 21), 7, Pool::new(1));
            let once = |row: u32, grad: &mut [f32]| {
                softmax_cross_entropy(&pool, &z, width, &[row], &[3], 1.0.into(), grad)
            };
            let (mut first, mut last, mut all) = (vec![0.0; 21], vec![0.0; 21], vec![0.0; 21]);
            let expected = 2.0 * once(0, &mut first) + 0.5 * once(2, &mut last);
            let weights = Weights { all: 1.0, each: Some(&[2.0, 0.0, 0.5]) };
            let found = softmax_cross_entropy(&pool, &z, width, &[0, 1, 2], &[3; 3], weights, &mut all);
            prop_assert!((found - expected).abs() < 1e-6);
            for (at, &found) in all.iter().enumerate() {
                prop_assert!((found - 2.0 * first[at] - 0.5 * last[at]).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let mut grad = vec![0.0; 3];
        let loss = softmax_cross_entropy(
            &Pool::new(1),
            &[1000.0, 0.0, -1000.0],
            3,
            &[0],
            &[1],
            1.0.into(),
            &mut grad,
        );
        assert_eq!(loss, 1000.0);
        assert_eq!(grad, [1.0, -1.0, 0.0]);
        let loss =
            logistic(&Pool::new(1), &[1000.0, -1000.0, 0.0], 3, &[0], &[0, 1, 1], 1.0.into(), &mut grad);
        assert!((loss - 2000.0 - std::f64::consts::LN_2).abs() < 1e-3);
        assert_eq!(grad, [1.0, -1.0, -0.5]);
    }

    #[test]
    fn the_loss_is_the_same_bits_for_any_number_of_threads() {
        let z = numbers(1, 5000 * 7);
        let rows: Vec<u32> = (0..5000).collect();
        let labels: Vec<i64> = rows.iter().map(|i| i64::from(i % 7)).collect();
        let run = |threads| {
            let mut grad = vec![0.0; z.len()];
            (
                softmax_cross_entropy(&Pool::new(threads), &z, 7, &rows, &labels, 1.0.into(), &mut grad)
                    .to_bits(),
                grad,
            )
        };
        assert_eq!(run(1), run(3));
    }
}
