//! What do the attention kernels share? Scores of single rows, dropout of edges, and arithmetic by head.
//!
//! With `H` heads of width `C`, column `h * C + c` of a row belongs to head `h`.

use archipelago_graph::random::Key;

use super::dropout;
use super::epilogue::{load, store};
use super::gather::{add_row, store_row};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::rows::Rows;
use super::rows_per_task;

/// Edges whose weights are computed together.
pub(crate) const BLOCK: usize = 32;

/// Edges ahead of the current one whose rows are requested from memory: about a block, which is the time between
/// the score of an edge and the use of its row. Scores are wanted earlier, so they are requested a block before.
pub(crate) const ROWS_AHEAD: usize = 24;
/// See [`ROWS_AHEAD`].
pub(crate) const SCORES_AHEAD: usize = 48;

/// Floats for a number per head, padded to whole registers of any instruction set.
pub(crate) fn padded(heads: usize) -> usize {
    heads.next_multiple_of(16)
}

/// Which targets attend to their own local row besides their neighbours.
#[derive(Debug, Clone, Copy)]
pub enum Loops<'a> {
    /// None.
    None,
    /// All.
    All,
    /// Those that are marked.
    Of(&'a [bool]),
}

impl Loops<'_> {
    /// Whether `target` does.
    #[inline(always)]
    pub(crate) fn has(self, target: usize) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of(marked) => marked[target],
        }
    }
}

/// Dropout of attention coefficients, keyed by both ends of an edge and the head.
#[derive(Debug, Clone, Copy)]
pub struct EdgeDropout<'a> {
    /// Probability of zeroing a coefficient, in `[0, 1)`.
    pub rate: f32,
    /// The stream of this layer in this step.
    pub key: Key,
    /// Original id of each target.
    pub targets: &'a [u64],
    /// Original id of each source, local and halo.
    pub sources: &'a [u64],
}

impl EdgeDropout<'_> {
    /// Bits of target `i`, one half of [`edge_bits`].
    #[inline(always)]
    pub(crate) fn target(&self, i: usize) -> u64 {
        self.key.with(self.targets[i]).bits(0)
    }

    /// Bits of source `j`, the other half; `None` for the self-loop a layer adds.
    #[inline(always)]
    pub(crate) fn source(&self, j: Option<usize>) -> u64 {
        j.map_or(self.key.bits(2), |j| self.key.with(self.sources[j]).bits(1))
    }
}

/// What [`keeps`](dropout::keeps) needs for an edge; the column is the head.
#[inline(always)]
pub(crate) fn edge_bits(target: u64, source: u64) -> u64 {
    target ^ source
}

/// `scores[i][h] = z[i][h] . att[h]` for each head: the half of a GAT score that one end of an edge contributes.
pub fn head_scores(pool: &Pool, z: &[f32], att: &[f32], heads: usize, scores: &mut [f32]) {
    let width = att.len();
    if width == 0 || heads == 0 {
        return;
    }
    let rows = z.len() / width;
    assert!(scores.len() == rows * heads && width.is_multiple_of(heads), "a score per row and head");
    let out = Shared::new(scores);
    pool.for_ranges(rows, rows_per_task(width), |range| {
        // SAFETY: ranges do not overlap.
        let scores = unsafe { out.part(range.start * heads, range.len() * heads) };
        score_rows(&z[range.start * width..range.end * width], att, heads, scores);
    });
}

/// The gradient of [`head_scores`]: `dz[i] += ds[i] * att`, `datt += sum over i of ds[i] * z[i]`.
pub fn head_scores_backward(
    pool: &Pool,
    z: &[f32],
    att: &[f32],
    heads: usize,
    ds: &[f32],
    dz: &mut [f32],
    datt: &mut [f32],
) {
    let width = att.len();
    if width == 0 || heads == 0 {
        return;
    }
    assert!(
        dz.len() == z.len() && datt.len() == width && ds.len() == z.len() / width * heads,
        "shapes of scores"
    );
    let dz = Shared::new(dz);
    chunked_sum(pool, z.len() / width, rows_per_task(width), datt, true, |range, sum| {
        let cells = range.start * width..range.end * width;
        // SAFETY: ranges do not overlap.
        let dz = unsafe { dz.part(cells.start, cells.len()) };
        score_gradients(&z[cells], att, &ds[range.start * heads..range.end * heads], dz, sum);
    });
}

kernel! {
    fn score_rows<S>(z: &[f32], att: &[f32], heads: usize, scores: &mut [f32]) {
        let width = att.len() / heads;
        for (z, scores) in z.chunks_exact(att.len()).zip(scores.chunks_exact_mut(heads)) {
            for (h, score) in scores.iter_mut().enumerate() {
                *score = dot::<S>(&z[h * width..][..width], &att[h * width..][..width]);
            }
        }
    }
}

kernel! {
    fn score_gradients<S>(z: &[f32], att: &[f32], ds: &[f32], dz: &mut [f32], datt: &mut [f32]) {
        let heads = ds.len() * att.len() / z.len();
        let width = att.len() / heads;
        let rows = z.chunks_exact(att.len()).zip(dz.chunks_exact_mut(att.len())).zip(ds.chunks_exact(heads));
        for ((z, dz), ds) in rows {
            for (h, &ds) in ds.iter().enumerate() {
                let cells = h * width..(h + 1) * width;
                axpy::<S>(ds, &att[cells.clone()], &mut dz[cells.clone()]);
                axpy::<S>(ds, &z[cells.clone()], &mut datt[cells]);
            }
        }
    }
}

/// The dot product of two rows of equal length.
#[inline(always)]
pub(crate) fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    let b = &b[..a.len()];
    let mut sum = S::splat(0.0);
    for c in (0..a.len()).step_by(S::N) {
        let n = S::N.min(a.len() - c);
        // SAFETY: `c + n` is within both rows.
        sum = unsafe { S::fma(load::<S>(a.as_ptr().add(c), n), load::<S>(b.as_ptr().add(c), n), sum) };
    }
    S::sum(sum)
}

/// `y += a * x` for one row.
#[inline(always)]
pub(crate) fn axpy<S: Simd>(a: f32, x: &[f32], y: &mut [f32]) {
    let y = &mut y[..x.len()];
    for c in (0..x.len()).step_by(S::N) {
        let n = S::N.min(x.len() - c);
        // SAFETY: `c + n` is within both rows.
        unsafe {
            let v = S::fma(S::splat(a), load::<S>(x.as_ptr().add(c), n), load::<S>(y.as_ptr().add(c), n));
            store::<S>(y.as_mut_ptr().add(c), n, v);
        }
    }
}

/// The other ends of the edges of a node, in blocks of [`BLOCK`], the self-loop (if any) last.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    /// The ends of the stored edges.
    pub stored: &'a [u32],
    /// The node itself, if it has an added self-loop.
    pub own: Option<u32>,
}

impl Ends<'_> {
    /// How many edges there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.stored.len() + usize::from(self.own.is_some())
    }

    /// The ends of edges `from..from + n`, `n <= BLOCK`.
    #[inline(always)]
    pub fn block(&self, from: usize, n: usize) -> [u32; BLOCK] {
        let mut ends = [self.own.unwrap_or(0); BLOCK];
        let stored = &self.stored[from.min(self.stored.len())..self.stored.len().min(from + n)];
        ends[..stored.len()].copy_from_slice(stored);
        ends
    }
}

/// `out += sum over e of weights[e * stride + h] * row of ends[e]` head by head, in registers.
#[inline(always)]
pub(crate) fn add_weighted<S: Simd>(
    heads: usize,
    ends: &[u32],
    weights: &[f32],
    stride: usize,
    rows: &Rows,
    out: &mut [f32],
) {
    let width = out.len() / heads;
    for h in 0..heads {
        let (mut c, end) = (h * width, (h + 1) * width);
        while c < end {
            let take = (end - c).min(8 * S::N);
            let (weights, out) = (&weights[h..], &mut out[c..c + take]);
            macro_rules! block {
                ($($k:literal)*) => {
                    match (take.div_ceil(S::N), !take.is_multiple_of(S::N)) {
                        $(($k, false) => add_block::<S, $k, false>(ends, weights, stride, rows, c, out),
                        ($k, true) => add_block::<S, $k, true>(ends, weights, stride, rows, c, out),)*
                        _ => {}
                    }
                };
            }
            block!(1 2 3 4 5 6 7 8);
            c += take;
        }
    }
}

/// `K` registers of one head, from column `c` on.
#[inline(always)]
fn add_block<S: Simd, const K: usize, const PARTIAL: bool>(
    ends: &[u32],
    weights: &[f32],
    stride: usize,
    rows: &Rows,
    c: usize,
    out: &mut [f32],
) {
    let mut sum = [S::splat(0.0); K];
    for (e, &end) in ends.iter().enumerate() {
        add_row::<S, K, PARTIAL>(&mut sum, weights[e * stride], &rows.row(end as usize)[c..][..out.len()]);
    }
    add_row::<S, K, PARTIAL>(&mut sum, 1.0, out);
    store_row::<S, K, PARTIAL>(&sum, out);
}

/// `factor` where `keeps`, else 0, for `n` heads from `head` on: what dropout makes of coefficients.
#[inline(always)]
pub(crate) fn drop_lanes<S: Simd>(v: S::V, bits: u64, head: usize, rate: f32) -> S::V {
    let kept = S::draws(bits, head as u32, dropout::threshold(rate));
    S::keep(S::mul(v, S::splat(dropout::scale(rate))), kept)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{close, differences, numbers, wide};
    use super::*;

    fn reference(z: &[f64], att: &[f64], heads: usize) -> Vec<f64> {
        let c = att.len() / heads;
        let score = |k: usize| {
            let (i, h) = (k / heads, k % heads);
            (0..c).map(|x| z[i * heads * c + h * c + x] * att[h * c + x]).sum()
        };
        (0..z.len() / c).map(score).collect()
    }

    #[test]
    fn scores_and_their_gradients_match_the_definition() {
        for (heads, c) in [(1, 1), (1, 40), (4, 32), (8, 8), (3, 7)] {
            for rows in [0, 1, 5] {
                let (z, att) = (numbers(1, rows * heads * c), numbers(2, heads * c));
                let upstream = numbers(3, rows * heads);
                let mut scores = vec![0.0; rows * heads];
                head_scores(&Pool::new(2), &z, &att, heads, &mut scores);
                let narrow: Vec<f32> =
                    reference(&wide(&z), &wide(&att), heads).iter().map(|&v| v as f32).collect();
                close(&scores, &narrow, 1e-5);
                let loss = |z: &[f64], att: &[f64]| -> f64 {
                    reference(z, att, heads).iter().zip(&upstream).map(|(s, u)| s * f64::from(*u)).sum()
                };
                let (mut dz, mut datt) = (vec![0.0; z.len()], vec![0.0; att.len()]);
                head_scores_backward(&Pool::new(2), &z, &att, heads, &upstream, &mut dz, &mut datt);
                close(&dz, &differences(&z, |z| loss(z, &wide(&att))), 1e-4);
                close(&datt, &differences(&att, |att| loss(&wide(&z), att)), 1e-4);
            }
        }
    }
}
