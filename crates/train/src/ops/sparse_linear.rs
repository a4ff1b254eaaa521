//! What does a linear map do to rows that are mostly zero (words, categories)? The products of [`dense`](super::dense)
//! for a matrix in compressed rows, with dropout of the stored values drawn as for dense rows.
//!
//! Forward, a row of the output is a weighted sum of rows of `w^T`. The weight gradient adds rows of `g` to rows of
//! `dw^T`: threads take columns of it, so each element is summed in row order whatever their number. Cost: stored
//! values times outputs.

use super::dropout::{self, Dropout};
use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Targets};
use super::scratch::with_scratch;
use super::tile::transpose;
use std::ops::Range;

/// Outputs that a thread takes at once, at least: a cache line of numbers.
pub const TOGETHER: usize = 16;

/// Rows that are mostly zero.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a> {
    /// Stored values of row `i` are `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [u64],
    /// Column of each stored value.
    pub columns: &'a [u32],
    /// The stored values.
    pub values: &'a [f32],
    /// Columns of the matrix.
    pub width: usize,
    /// Dropout of the stored values.
    pub dropout: Option<Dropout<'a>>,
}

impl SparseRows<'_> {
    fn rows(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Writes the rows with every number stored into `out`, which must be zero.
    pub fn to_dense(&self, out: &mut [f32]) {
        for i in 0..self.rows() {
            let row = &mut out[i * self.width..][..self.width];
            self.for_kept(i, |column, value| row[column] += value);
        }
    }

    /// Calls `each` with column and value of what is stored and kept in row `i`.
    #[inline(always)]
    fn for_kept(&self, i: usize, mut each: impl FnMut(usize, f32)) {
        let stored = self.offsets[i] as usize..self.offsets[i + 1] as usize;
        let cells = self.columns[stored.clone()].iter().zip(&self.values[stored]);
        match self.dropout {
            None => cells.for_each(|(&c, &v)| each(c as usize, v)),
            Some(d) => {
                let (row, threshold, scale) = (d.row(i), dropout::threshold(d.rate), d.scale());
                cells
                    .filter(|(c, _)| dropout::keeps(row, c.wrapping_add(d.column), threshold))
                    .for_each(|(&c, &v)| each(c as usize, v * scale));
            }
        }
    }
}

/// `y = x w^T` (or `y += x w^T`) with `w [outputs, x.width]`.
pub fn sparse_linear(
    pool: &Pool,
    x: &SparseRows,
    w: &[f32],
    outputs: usize,
    y: &mut [f32],
    accumulate: bool,
) {
    assert!(w.len() == outputs * x.width && y.len() == outputs * x.rows(), "shapes of a sparse product");
    with_scratch(w.len(), |turned| {
        transpose(w, [outputs, x.width], [x.width, outputs], turned);
        let (turned, out) = (&*turned, Shared::new(y));
        Targets::All(x.rows()).for_chunks(pool, x.offsets, super::edges_per_task(outputs), |chunk| {
            forward_chunk(x, turned, outputs, &chunk, out, accumulate);
        });
    });
}

/// Rows `range` of `dw = g^T x` (or of `dw += g^T x`), in `dw [range, x.width]`, with `g [x.rows, outputs]` the gradient of `y`.
/// Whatever the ranges, each number is the same.
pub fn sparse_grad_weight(
    pool: &Pool,
    x: &SparseRows,
    g: &[f32],
    outputs: usize,
    range: Range<usize>,
    dw: &mut [f32],
    accumulate: bool,
) {
    let count = range.len();
    let shapes = dw.len() == count * x.width && g.len() == outputs * x.rows() && range.end <= outputs;
    assert!(shapes, "shapes of a sparse product");
    with_scratch(2 * dw.len(), |buffer| {
        let (turned, straight) = buffer.split_at_mut(dw.len());
        turned.fill(0.0);
        let columns = count.div_ceil(pool.threads()).next_multiple_of(TOGETHER);
        let shared = Shared::new(turned);
        pool.for_ranges(count, columns, |part| scatter_columns(x, g, outputs, &range, &part, shared));
        transpose(turned, [x.width, count], [count, x.width], straight);
        match accumulate {
            true => super::elementwise::add(pool, straight, dw),
            false => dw.copy_from_slice(straight),
        }
    });
}

kernel! {
    fn forward_chunk<S>(x: &SparseRows, turned: &[f32], outputs: usize, chunk: &Chunk, out: Shared<f32>, accumulate: bool) {
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: rows of different chunks are different.
            let y = unsafe { out.part(i * outputs, outputs) };
            if !accumulate {
                y.fill(0.0);
            }
            x.for_kept(i, |c, v| {
                for (y, &w) in y.iter_mut().zip(&turned[c * outputs..][..outputs]) {
                    *y += v * w;
                }
            });
        }
    }
}

kernel! {
    // `part` counts from the start of `range`.
    fn scatter_columns<S>(x: &SparseRows, g: &[f32], outputs: usize, range: &Range<usize>, part: &Range<usize>, out: Shared<f32>) {
        for i in 0..x.rows() {
            let g = &g[i * outputs..][range.clone()][part.clone()];
            x.for_kept(i, |c, v| {
                // SAFETY: these columns of `out` belong to this part alone.
                let dw = unsafe { out.part(c * range.len() + part.start, part.len()) };
                for (d, &g) in dw.iter_mut().zip(g) {
                    *d += v * g;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use archipelago_graph::random::{Key, Purpose};
    use proptest::prelude::*;

    use super::super::dense::Linear;
    use super::super::testing::{close, graph, numbers};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn sparse_products_equal_dense_ones(
            degrees in prop::collection::vec(0usize..9, 0..20), inputs in 1usize..30, outputs in prop::sample::select(&[1usize, 7, 40, 41][..]),
            drop in any::<bool>(), accumulate in any::<bool>(), seed in any::<u64>(),
        ) {
            let rows = degrees.len();
            let lists = graph(seed, &degrees, inputs);
            let values = numbers(seed ^ 1, lists.neighbors.len());
            let nodes: Vec<u64> = (0..rows as u64).collect();
            let d = Dropout { rate: 0.4, key: Key::new(seed, Purpose::Dropout), nodes: &nodes, column: 0 };
            let x = SparseRows {
                offsets: &lists.offsets, columns: &lists.neighbors, values: &values, width: inputs, dropout: drop.then_some(d),
            };
            let mut full = vec![0.0; rows * inputs];
            for i in 0..rows {
                for e in lists.offsets[i] as usize..lists.offsets[i + 1] as usize {
                    full[i * inputs + lists.neighbors[e] as usize] += values[e];
                }
            }
            if drop {
                let before = full.clone();
                dropout::dropout(&Pool::new(1), &d, inputs, &before, &mut full);
            }
            let (w, g) = (numbers(2, inputs * outputs), numbers(3, rows * outputs));
            let map = Linear { rows, inputs, outputs };
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let (mut y, mut expected) = (numbers(4, g.len()), numbers(4, g.len()));
                sparse_linear(&pool, &x, &w, outputs, &mut y, accumulate);
                map.forward(&pool, &full, &w, &mut expected, accumulate);
                close(&y, &expected, 1e-5);
                let (mut dw, mut expected) = (numbers(5, w.len()), numbers(5, w.len()));
                let mut pieces = dw.clone();
                sparse_grad_weight(&pool, &x, &g, outputs, 0..outputs, &mut dw, accumulate);
                map.grad_weight(&pool, &g, &full, &mut expected, accumulate);
                close(&dw, &expected, 1e-5);
                for range in [0..outputs / 3, outputs / 3..outputs] {
                    let piece = &mut pieces[range.start * inputs..range.end * inputs];
                    sparse_grad_weight(&pool, &x, &g, outputs, range, piece, accumulate);
                }
                prop_assert_eq!(&pieces, &dw, "in pieces");
            }
        }
    }
}
