//! What do several heads come to? Their mean, and the inner product of two row sets.

use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::rows_per_task;

/// `out[i] = mean over h of rows[i][h]`, heads of `width` side by side in a row.
pub fn mean_of_heads(pool: &Pool, rows: &[f32], heads: usize, width: usize, out: &mut [f32]) {
    assert_eq!(rows.len(), out.len() * heads, "one output per group of heads");
    let (out, share) = (Shared::new(out), 1.0 / heads as f32);
    pool.for_ranges(rows.len() / (heads * width).max(1), rows_per_task(heads * width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let mean = unsafe { out.part(i * width, width) };
            mean.fill(0.0);
            for head in rows[i * heads * width..][..heads * width].chunks_exact(width) {
                mean.iter_mut().zip(head).for_each(|(m, &x)| *m += x * share);
            }
        }
    });
}

/// The gradient of [`mean_of_heads`]: every head gets an equal share.
pub fn mean_of_heads_backward(pool: &Pool, grad: &[f32], heads: usize, width: usize, out: &mut [f32]) {
    assert_eq!(out.len(), grad.len() * heads, "one gradient per group of heads");
    let (out, share) = (Shared::new(out), 1.0 / heads as f32);
    pool.for_ranges(grad.len() / width.max(1), rows_per_task(heads * width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let row = unsafe { out.part(i * heads * width, heads * width) };
            for head in row.chunks_exact_mut(width) {
                head.iter_mut().zip(&grad[i * width..][..width]).for_each(|(o, &g)| *o = g * share);
            }
        }
    });
}

/// The inner product of `a` and `b`, over fixed chunks added in order.
pub fn dot(pool: &Pool, a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "both have the same shape");
    let mut sum = [0.0];
    chunked_sum(pool, a.len(), 1 << 14, &mut sum, false, |range, sum| {
        let products = a[range.clone()].iter().zip(&b[range]).map(|(x, y)| f64::from(x * y));
        sum[0] = products.sum::<f64>() as f32;
    });
    sum[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_heads_and_its_gradient_are_adjoint() {
        let pool = Pool::new(2);
        let rows: Vec<f32> = (0..24).map(|i| i as f32 * 0.5 - 3.0).collect();
        let grad: Vec<f32> = (0..8).map(|i| 1.0 - i as f32).collect();
        let (mut mean, mut back) = (vec![0.0; 8], vec![0.0; 24]);
        mean_of_heads(&pool, &rows, 3, 4, &mut mean);
        mean_of_heads_backward(&pool, &grad, 3, 4, &mut back);
        assert_eq!(mean[0], (rows[0] + rows[4] + rows[8]) / 3.0);
        assert!((dot(&pool, &mean, &grad) - dot(&pool, &rows, &back)).abs() < 1e-4);
    }
}
