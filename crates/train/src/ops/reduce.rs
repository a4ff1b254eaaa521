//! How are rows summed so that the result does not depend on the number of threads?
//!
//! Rows are cut into chunks whose size depends on the shape alone; each chunk is summed by one thread in row order;
//! the chunks' sums are added in chunk order.

use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::scratch::with_scratch;

/// At most this many partial sums are kept.
const MOST_CHUNKS: usize = 64;

/// Rows per chunk for `rows` rows: a function of the shape alone.
pub(crate) fn rows_per_chunk(rows: usize, least: usize) -> usize {
    least.max(rows.div_ceil(MOST_CHUNKS))
}

/// Sums `partial(range, sum)` over chunks of `0..rows` into `out` (or adds to it). `partial` finds `sum` zeroed.
pub(crate) fn chunked_sum(
    pool: &Pool,
    rows: usize,
    least: usize,
    out: &mut [f32],
    accumulate: bool,
    partial: impl Fn(std::ops::Range<usize>, &mut [f32]) + Sync,
) {
    let (size, len) = (rows_per_chunk(rows, least), out.len());
    let chunks = rows.div_ceil(size.max(1));
    if !accumulate {
        out.fill(0.0);
    }
    with_scratch(chunks * len, |sums| {
        let shared = Shared::new(sums);
        pool.for_each(chunks, |c| {
            // SAFETY: each chunk has its own part.
            let sum = unsafe { shared.part(c * len, len) };
            sum.fill(0.0);
            partial(c * size..rows.min((c + 1) * size), sum);
        });
        add_in_order(pool, sums, out);
    });
}

/// `out += ` each of the consecutive parts of `parts`, in order.
pub(crate) fn add_in_order(pool: &Pool, parts: &[f32], out: &mut [f32]) {
    let len = out.len();
    let out = Shared::new(out);
    pool.for_ranges(len, 1 << 13, |range| {
        // SAFETY: ranges do not overlap.
        let out = unsafe { out.part(range.start, range.len()) };
        for part in parts.chunks_exact(len) {
            add_to(&part[range.clone()], out);
        }
    });
}

kernel! {
    /// `sum += row`.
    pub(crate) fn add_to<S>(row: &[f32], sum: &mut [f32]) {
        for (s, &x) in sum.iter_mut().zip(row) {
            *s += x;
        }
    }
}

kernel! {
    fn add_rows<S>(rows: &[f32], sum: &mut [f32]) {
        for row in rows.chunks_exact(sum.len()) {
            for (s, &x) in sum.iter_mut().zip(row) {
                *s += x;
            }
        }
    }
}

/// The sum of each column of `x`, `out.len()` columns: the gradient of a bias.
pub fn column_sums(pool: &Pool, x: &[f32], out: &mut [f32], accumulate: bool) {
    let width = out.len();
    if width == 0 {
        return;
    }
    chunked_sum(pool, x.len() / width, 1024, out, accumulate, |range, sum| {
        add_rows(&x[range.start * width..range.end * width], sum);
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WIDTHS, close, numbers};
    use super::*;

    #[test]
    fn column_sums_are_right_and_the_same_bits_for_any_number_of_threads() {
        for &width in WIDTHS {
            for rows in [0, 1, 1023, 3000] {
                let x = numbers(1, rows * width);
                let expected: Vec<f32> = (0..width)
                    .map(|c| (0..rows).map(|i| f64::from(x[i * width + c])).sum::<f64>() as f32 + 1.0)
                    .collect();
                let run = |threads| {
                    let mut out = vec![1.0; width];
                    column_sums(&Pool::new(threads), &x, &mut out, true);
                    out
                };
                close(&run(1), &expected, 1e-4);
                assert_eq!(run(1), run(3));
            }
        }
    }
}
