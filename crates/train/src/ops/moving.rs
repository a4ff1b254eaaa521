//! How does a new aggregate join the one that a node remembers? Emma's moving aggregation.
//!
//! Of the weight of a target's in-edges a share `s = n / d` is in the current chunk, so the history counts
//! `b = 1 - s`:
//!
//! - sum and mean: `z = b z_old + new`, the new messages already divided by the whole degree for a mean;
//! - attention, per head: with `l` the log-sum-exp of the chunk's scores, `x` its softmax average and `u_old` what `l`
//!   was when `z_old` was made, `M = max(l, u_old)`, `p = b exp(u_old - M)`, `q = exp(l - M)`:
//!   `z = (p z_old + q x) / (p + q)`, `u = M + ln(p + q)`; where `p + q = 0`, `z_old` stays.
//!
//! The history is a constant to the gradient. For attention it acts like one more edge with score `u_old + ln b`, so a
//! backward pass that reads `z` and `u` in place of the softmax average and the log-sum-exp of the chunk is exact.

use super::pool::{Pool, Shared};
use super::rows_per_task;

/// What a node remembers of an attention.
#[derive(Debug)]
pub struct AttentionHistory<'a> {
    /// The average, all heads side by side.
    pub average: &'a mut [f32],
    /// The log-sum-exp of each head.
    pub logsumexp: &'a mut [f32],
}

/// Joins sums (or means) with their history, which becomes the result. `shares` has one entry per row.
pub fn join_sums(pool: &Pool, shares: &[f32], width: usize, sums: &mut [f32], history: &mut [f32]) {
    assert_eq!(sums.len(), history.len(), "one remembered row per row");
    let (sums, history) = (Shared::new(sums), Shared::new(history));
    pool.for_ranges(shares.len(), rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let (sum, old) = unsafe { (sums.part(i * width, width), history.part(i * width, width)) };
            let kept = kept(shares[i]);
            for (sum, old) in sum.iter_mut().zip(old) {
                *sum += kept * *old;
                *old = *sum;
            }
        }
    });
}

/// Joins averages and log-sum-exps with their history, which becomes the result.
pub fn join_attention(
    pool: &Pool,
    shares: &[f32],
    heads: usize,
    average: &mut [f32],
    logsumexp: &mut [f32],
    history: AttentionHistory<'_>,
) {
    let width = average.len().checked_div(logsumexp.len()).unwrap_or(0);
    let (average, logsumexp) = (Shared::new(average), Shared::new(logsumexp));
    let (old_average, old_logsumexp) = (Shared::new(history.average), Shared::new(history.logsumexp));
    pool.for_ranges(shares.len(), rows_per_task(heads * width), |range| {
        for i in range {
            for head in i * heads..(i + 1) * heads {
                // SAFETY: head `head` of row `i` belongs to this range alone.
                let (new, old, l, u) = unsafe {
                    (
                        average.part(head * width, width),
                        old_average.part(head * width, width),
                        &mut logsumexp.part(head, 1)[0],
                        &mut old_logsumexp.part(head, 1)[0],
                    )
                };
                join_head(kept(shares[i]), new, l, old, u);
            }
        }
    });
}

/// What the history counts where a share of the messages is new.
fn kept(share: f32) -> f32 {
    (1.0 - share).clamp(0.0, 1.0)
}

fn join_head(kept: f32, new: &mut [f32], l: &mut f32, old: &mut [f32], u: &mut f32) {
    let highest = l.max(*u);
    let (p, q) = match highest == f32::NEG_INFINITY {
        true => (0.0, 0.0),
        false => (kept * (*u - highest).exp(), (*l - highest).exp()),
    };
    if p + q > 0.0 {
        let (p, q, total) = (p / (p + q), q / (p + q), p + q);
        new.iter_mut().zip(&*old).for_each(|(new, old)| *new = p * old + q * *new);
        *l = highest + total.ln();
        *u = *l;
        old.copy_from_slice(new);
    } else {
        // Nothing is new and nothing counts: no edge has a part in the result, and none gets a gradient.
        new.copy_from_slice(old);
        *l = *u;
    }
}

/// `out_i += factors_i * rows_i`.
pub fn add_scaled_rows(pool: &Pool, factors: &[f32], rows: &[f32], width: usize, out: &mut [f32]) {
    let out = Shared::new(out);
    pool.for_ranges(factors.len(), rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let sum = unsafe { out.part(i * width, width) };
            sum.iter_mut().zip(&rows[i * width..][..width]).for_each(|(sum, x)| *sum += factors[i] * x);
        }
    });
}

/// `rows_i *= factors_i`.
pub fn scale_rows(pool: &Pool, factors: &[f32], width: usize, rows: &mut [f32]) {
    let rows = Shared::new(rows);
    pool.for_ranges(factors.len(), rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let row = unsafe { rows.part(i * width, width) };
            row.iter_mut().for_each(|x| *x *= factors[i]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, numbers};
    use super::*;

    #[test]
    fn oracle_3_constant_messages_are_a_fixed_point_of_sums() {
        let pool = Pool::new(2);
        let (degree, message) = (7.0, 0.3);
        let mut history = vec![degree * message; 4];
        for new in [0.0, 1.0, 3.0, 7.0] {
            let mut sums = vec![new * message; 4];
            join_sums(&pool, &[new / degree; 2], 2, &mut sums, &mut history);
            close(&sums, &[degree * message; 4], 1e-6);
            assert_eq!(sums, history);
        }
    }

    #[test]
    fn oracle_3_constant_messages_are_a_fixed_point_of_attention() {
        // Any scores average equal messages to the message; a history that forgets nothing keeps the sum of scores.
        let pool = Pool::new(1);
        let (mut z, mut u) = (vec![0.5, -2.0], vec![1.3f32]);
        let (mut new, mut l) = (vec![0.5, -2.0], vec![0.4f32]);
        let history = AttentionHistory { average: &mut z, logsumexp: &mut u };
        join_attention(&pool, &[0.25], 1, &mut new, &mut l, history);
        close(&new, &[0.5, -2.0], 1e-6);
        close(&l, &[(0.75 * 1.3f32.exp() + 0.4f32.exp()).ln()], 1e-6);
    }

    #[test]
    fn oracle_3_where_nothing_is_new_the_history_stays() {
        let pool = Pool::new(1);
        let (mut sums, mut history) = (vec![0.0; 3], vec![1.0, -2.0, 0.1]);
        join_sums(&pool, &[0.0], 3, &mut sums, &mut history);
        assert_eq!(sums, [1.0, -2.0, 0.1]);
        for u in [f32::NEG_INFINITY, 0.7] {
            let (mut z, mut old_u) = (vec![1.0, -2.0], vec![u]);
            let (mut new, mut l) = (vec![0.0; 2], vec![f32::NEG_INFINITY]);
            let history = AttentionHistory { average: &mut z, logsumexp: &mut old_u };
            join_attention(&pool, &[0.0], 1, &mut new, &mut l, history);
            assert_eq!((&new[..], l[0], old_u[0]), (&[1.0, -2.0][..], u, u));
        }
    }

    #[test]
    fn oracle_3_the_variance_of_a_sum_stays_bounded_over_1000_steps() {
        // Degree 20 in 5 chunks of random size: the stationary variance of a sum of unit messages is below its degree.
        let pool = Pool::new(1);
        let (targets, degree) = (500, 20);
        let mut history = vec![0.0; targets];
        for step in 0..1000u64 {
            let noise = numbers(step, targets * degree);
            let new = |i: usize| (noise[i * degree].abs() * 1e4) as usize % 9;
            let mut sums: Vec<f32> =
                (0..targets).map(|i| noise[i * degree..][..new(i)].iter().sum()).collect();
            let shares: Vec<f32> = (0..targets).map(|i| new(i) as f32 / degree as f32).collect();
            join_sums(&pool, &shares, 1, &mut sums, &mut history);
            let variance = history.iter().map(|z| z * z).sum::<f32>() / targets as f32;
            assert!(variance < degree as f32, "{variance} after {step} steps");
        }
    }

    #[test]
    fn a_first_aggregate_takes_the_place_of_an_empty_history() {
        let pool = Pool::new(1);
        let (mut z, mut u) = (vec![0.0; 2], vec![f32::NEG_INFINITY]);
        let (mut new, mut l) = (vec![3.0, 4.0], vec![-80.0]);
        let history = AttentionHistory { average: &mut z, logsumexp: &mut u };
        join_attention(&pool, &[0.1], 1, &mut new, &mut l, history);
        assert_eq!((new, l, z, u), (vec![3.0, 4.0], vec![-80.0], vec![3.0, 4.0], vec![-80.0]));
    }
}
