//! How are messages averaged by a softmax over edges in one pass, whatever their number?
//!
//! Edges come in blocks. The largest score so far, the sum of exponentials and the weighted sum of messages are kept
//! per head; when a block brings a larger score, what was summed is scaled down (the online softmax of Milakov &
//! Gimelshein 2018). Nothing is stored per edge: `log sum exp` per target and head is enough to recompute a
//! coefficient, and with `D_i = grad_i . out_i` also its gradient (Dao et al. 2022): `ds = a (grad_i . message - D_i)`.

use super::attention::{EdgeDropout, dot, drop_lanes, edge_bits};
use super::isa::{Simd, exp, kernel};
use super::pool::{Pool, Shared};
use super::rows_per_task;

/// The running softmax of one target: `highest` score and `total` of exponentials per head, padded to registers.
pub(crate) struct Running<'a> {
    pub highest: &'a mut [f32],
    pub total: &'a mut [f32],
}

impl Running<'_> {
    /// Forgets all edges.
    #[inline(always)]
    pub fn reset(&mut self) {
        self.highest.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
    }

    /// Turns the scores of a block (rows of `highest.len()`) into exponentials and scales what `out` holds of earlier
    /// blocks to the new highest score.
    #[inline(always)]
    pub fn absorb<S: Simd>(&mut self, scores: &mut [f32], heads: usize, out: &mut [f32], earlier: bool) {
        let stride = self.highest.len();
        for v in (0..stride).step_by(S::N) {
            // SAFETY: rows are padded to whole registers.
            unsafe {
                let before = S::load(self.highest[v..].as_ptr());
                let mut now = before;
                for row in scores.chunks_exact(stride) {
                    now = S::max(S::load(row[v..].as_ptr()), now);
                }
                let shrink = exp::<S>(S::sub(before, now));
                let mut total = S::mul(S::load(self.total[v..].as_ptr()), shrink);
                for row in scores.chunks_exact_mut(stride) {
                    let e = exp::<S>(S::sub(S::load(row[v..].as_ptr()), now));
                    total = S::add(total, e);
                    S::store(row[v..].as_mut_ptr(), e);
                }
                S::store(self.highest[v..].as_mut_ptr(), now);
                S::store(self.total[v..].as_mut_ptr(), total);
                if earlier {
                    let mut shrinks = [0.0; 16];
                    S::store(shrinks.as_mut_ptr(), shrink);
                    scale_heads(out, heads, v, &shrinks[..S::N.min(heads - v)]);
                }
            }
        }
    }

    /// Divides `out` by the totals and writes `log sum exp`; -infinity and 0 where there was no edge.
    #[inline(always)]
    pub fn finish(&self, heads: usize, out: &mut [f32], lse: &mut [f32]) {
        for (h, lse) in lse.iter_mut().enumerate() {
            *lse = self.highest[h] + self.total[h].ln();
            let share = if self.total[h] > 0.0 { 1.0 / self.total[h] } else { 0.0 };
            scale_heads(out, heads, h, &[share]);
        }
    }
}

/// Multiplies heads from `first` on by `factors`.
#[inline(always)]
fn scale_heads(out: &mut [f32], heads: usize, first: usize, factors: &[f32]) {
    let width = out.len() / heads;
    for (h, &factor) in factors.iter().enumerate() {
        out[(first + h) * width..][..width].iter_mut().for_each(|x| *x *= factor);
    }
}

/// Drops coefficients of the edge from `source` (`None`: the added self-loop) to the target with these bits.
#[inline(always)]
pub(crate) fn drop_edge<S: Simd>(
    dropout: &EdgeDropout,
    target: u64,
    source: Option<usize>,
    coefficients: &mut [f32],
) {
    let bits = edge_bits(target, dropout.source(source));
    for v in (0..coefficients.len()).step_by(S::N) {
        // SAFETY: rows are padded to whole registers.
        unsafe {
            let p = coefficients[v..v + S::N].as_mut_ptr();
            S::store(p, drop_lanes::<S>(S::load(p), bits, v, dropout.rate));
        }
    }
}

/// Joins a softmax average over some edges of a target with `average`, that over others, head by head: of both the `log
/// sum exp` says how much they count, and becomes that of all.
pub fn join_pairs(more: &[f32], more_lse: &[f32], average: &mut [f32], lse: &mut [f32]) {
    let width = average.len() / lse.len();
    for (h, (lse, &more_lse)) in lse.iter_mut().zip(more_lse).enumerate() {
        if more_lse == f32::NEG_INFINITY {
            continue;
        }
        let highest = lse.max(more_lse);
        let (here, there) = ((*lse - highest).exp(), (more_lse - highest).exp());
        let total = here + there;
        let (here, there) = (here / total, there / total);
        let head = h * width..(h + 1) * width;
        for (x, more) in average[head.clone()].iter_mut().zip(&more[head]) {
            *x = here * *x + there * more;
        }
        *lse = highest + total.ln();
    }
}

/// What backward passes read of a target, in one place per target: `[score | log sum exp | grad . out]`, each per head.
/// `scores` may be empty for attention whose score is no sum of two halves; those entries are then 0.
pub fn pack_targets(
    pool: &Pool,
    heads: usize,
    scores: &[f32],
    lse: &[f32],
    out: &[f32],
    grad: &[f32],
    packed: &mut [f32],
) {
    let targets = lse.len().checked_div(heads).unwrap_or(0);
    assert!(packed.len() == 3 * lse.len() && out.len() == grad.len(), "three numbers per target and head");
    if targets == 0 {
        return;
    }
    let width = out.len() / targets;
    let packed = Shared::new(packed);
    pool.for_ranges(targets, rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let row = unsafe { packed.part(i * 3 * heads, 3 * heads) };
            match scores.is_empty() {
                true => row[..heads].fill(0.0),
                false => row[..heads].copy_from_slice(&scores[i * heads..][..heads]),
            }
            row[heads..2 * heads].copy_from_slice(&lse[i * heads..][..heads]);
            dots(&out[i * width..][..width], &grad[i * width..][..width], &mut row[2 * heads..]);
        }
    });
}

kernel! {
    fn dots<S>(a: &[f32], b: &[f32], out: &mut [f32]) {
        let width = a.len() / out.len();
        for (h, out) in out.iter_mut().enumerate() {
            *out = dot::<S>(&a[h * width..][..width], &b[h * width..][..width]);
        }
    }
}

/// In how many fixed chunks sources are cut when each chunk needs sums of its own: a function of the edges alone.
pub(crate) fn source_chunks(edges: usize) -> usize {
    (edges >> 14).clamp(1, 16)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, numbers};
    use super::*;

    /// The softmax average of `values` and the log-sum-exp of `scores`.
    fn averaged(scores: &[f32], values: &[f32]) -> (f32, f32) {
        let total: f32 = scores.iter().map(|s| s.exp()).sum();
        let sum: f32 = scores.iter().zip(values).map(|(s, v)| s.exp() * v).sum();
        (if total > 0.0 { sum / total } else { 0.0 }, total.ln())
    }

    #[test]
    fn averages_over_two_sets_of_edges_join_to_that_over_all_of_them() {
        let (scores, values) = (numbers(1, 9), numbers(2, 9));
        let (expected, expected_lse) = averaged(&scores, &values);
        for cut in 0..=9 {
            let (near, far) =
                (averaged(&scores[..cut], &values[..cut]), averaged(&scores[cut..], &values[cut..]));
            let (mut average, mut lse) = ([near.0], [near.1]);
            join_pairs(&[far.0], &[far.1], &mut average, &mut lse);
            close(&[average[0], lse[0]], &[expected, expected_lse], 1e-5);
        }
    }

    #[test]
    fn where_nobody_has_an_edge_the_average_stays_0() {
        let (mut average, mut lse) = ([0.0, 0.0], [f32::NEG_INFINITY]);
        join_pairs(&[0.0, 0.0], &[f32::NEG_INFINITY], &mut average, &mut lse);
        assert_eq!((average, lse), ([0.0, 0.0], [f32::NEG_INFINITY]));
    }
}
