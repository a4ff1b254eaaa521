//! Which elements does dropout keep? A function of the key, the original node id and the column, and of nothing else:
//! any rank that holds a copy of a row draws the same mask, forward and backward, dense and sparse.
//!
//! [`keeps`] is the one definition; every kernel uses it or its vector form.

use archipelago_graph::random::Key;

use super::isa::kernel;
use super::pool::{Pool, Shared};

pub(crate) const STEP: u32 = 0x9e37_79b1;
pub(crate) const FIRST: u32 = 0x7feb_352d;
pub(crate) const SECOND: u32 = 0x846c_a68b;

/// Dropout of the elements of node rows.
#[derive(Debug, Clone, Copy)]
pub struct Dropout<'a> {
    /// Probability of zeroing an element, in `[0, 1)`.
    pub rate: f32,
    /// The stream of this layer in this step.
    pub key: Key,
    /// Original id of the node of each row.
    pub nodes: &'a [u64],
    /// Column of the whole matrix at which these rows start.
    pub column: u32,
}

impl Dropout<'_> {
    /// What [`keeps`] needs for row `i`.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> u64 {
        row_bits(self.key, self.nodes[i])
    }

    /// What kept elements are multiplied by.
    pub fn scale(&self) -> f32 {
        scale(self.rate)
    }
}

/// What kept elements are multiplied by at this rate.
#[inline(always)]
pub fn scale(rate: f32) -> f32 {
    1.0 / (1.0 - rate)
}

/// The draws below which elements are dropped at this rate.
#[inline(always)]
pub fn threshold(rate: f32) -> u32 {
    (f64::from(rate) * 4_294_967_296.0).round().clamp(0.0, 4_294_967_295.0) as u32
}

/// The random bits all columns of a node's row start from.
#[inline(always)]
pub fn row_bits(key: Key, node: u64) -> u64 {
    key.with(node).bits(0)
}

/// Whether an element is kept: 32 mixed bits of row and column against the threshold.
#[inline(always)]
pub fn keeps(row: u64, column: u32, threshold: u32) -> bool {
    let mut x = column.wrapping_mul(STEP).wrapping_add(row as u32);
    x = (x ^ (x >> 16)).wrapping_mul(FIRST);
    x = (x ^ (x >> 15) ^ (row >> 32) as u32).wrapping_mul(SECOND);
    (x ^ (x >> 16)) >= threshold
}

/// `y = x` with dropped elements 0 and the others scaled. The gradient is the same function of the upstream gradient.
pub fn dropout(pool: &Pool, dropout: &Dropout, width: usize, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "dropout changes no shape");
    if width == 0 {
        return;
    }
    let rows = x.len() / width;
    let out = Shared::new(y);
    pool.for_ranges(rows, super::rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let y = unsafe { out.part(i * width, width) };
            dropout_row(dropout.row(i), dropout.column, dropout.rate, &x[i * width..][..width], y);
        }
    });
}

kernel! {
    fn dropout_row<S>(row: u64, column: u32, rate: f32, x: &[f32], y: &mut [f32]) {
        let (threshold, scale) = (threshold(rate), S::splat(scale(rate)));
        for c in (0..x.len()).step_by(S::N) {
            let n = S::N.min(x.len() - c);
            let bits = S::draws(row, column.wrapping_add(c as u32), threshold);
            // SAFETY: `c + n` is within both rows, which have equal length.
            unsafe {
                let v = S::keep(S::mul(S::load_first(x.as_ptr().add(c), n), scale), bits);
                S::store_first(y.as_mut_ptr().add(c), n, v);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use archipelago_graph::random::Purpose;

    use super::*;

    #[test]
    fn the_share_of_dropped_elements_is_the_rate_in_every_row_and_column() {
        let key = Key::new(5, Purpose::Dropout);
        for rate in [0.1f32, 0.5, 0.9] {
            let kept: Vec<Vec<bool>> = (0..400)
                .map(|node| (0..400).map(|c| keeps(row_bits(key, node), c, threshold(rate))).collect())
                .collect();
            let expected = 400.0 * (1.0 - f64::from(rate));
            let slack = 5.0 * (expected * f64::from(rate)).sqrt();
            for i in 0..400 {
                let row = kept[i].iter().filter(|&&k| k).count() as f64;
                let column = kept.iter().filter(|r| r[i]).count() as f64;
                assert!(
                    (row - expected).abs() < slack && (column - expected).abs() < slack,
                    "{rate}: {row} {column}"
                );
            }
        }
    }

    #[test]
    fn neighbouring_elements_are_dropped_independently() {
        let key = Key::new(6, Purpose::Dropout);
        let draw = |node, c| keeps(row_bits(key, node), c, 1 << 31);
        for (dn, dc) in [(0, 1), (1, 0), (1, 1), (0, 2), (0, 64)] {
            let equal = (0..20_000u64)
                .filter(|&i| draw(i / 200, (i % 200) as u32) == draw(i / 200 + dn, (i % 200) as u32 + dc));
            let equal = equal.count() as i64;
            assert!((equal - 10_000).abs() < 400, "({dn}, {dc}): {equal}");
        }
    }

    #[test]
    fn a_row_keeps_what_keeps_says_whatever_the_width_and_the_threads() {
        let key = Key::new(7, Purpose::Dropout);
        for width in [1, 3, 7, 40, 41, 128, 256] {
            let nodes: Vec<u64> = (0..9).map(|i| i * 1000).collect();
            let d = Dropout { rate: 0.3, key, nodes: &nodes, column: 5 };
            let x: Vec<f32> = (0..9 * width).map(|i| i as f32 + 1.0).collect();
            for threads in [1, 2] {
                let mut y = vec![0.0; x.len()];
                dropout(&Pool::new(threads), &d, width, &x, &mut y);
                for (e, &found) in y.iter().enumerate() {
                    let kept = keeps(row_bits(key, nodes[e / width]), (e % width) as u32 + 5, threshold(0.3));
                    assert_eq!(found, if kept { x[e] * scale(0.3) } else { 0.0 });
                }
            }
        }
    }
}
