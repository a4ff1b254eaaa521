//! What does a linear map do to the rows of a matrix? Products with a weight stored `[out, in]`, and their gradients.
//!
//! `y = x w^T`, `dx = g w`, `dw = g^T x`, on the `gemm` crate. Rows are cut into blocks that are worth a task each;
//! the weight gradient, a sum over rows, is made over fixed chunks (see [`reduce`](super::reduce)). Operands are laid
//! out (the small one transposed first) so that `gemm` packs nothing it has to allocate for.

use gemm_common::Parallelism;

use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::scratch::with_scratch;

/// Rows of a product that one task computes.
const ROWS: usize = 1024;
/// Rows of which the weight gradient is one product.
const DEPTH: usize = 256;
/// Columns of the weight gradient that one product computes: so few that `gemm` reads both operands where they lie.
const SLICE: usize = 32;

/// The shape of a linear map of `rows` rows from `inputs` to `outputs` columns.
#[derive(Debug, Clone, Copy)]
pub struct Linear {
    /// Rows of `x` and `y`.
    pub rows: usize,
    /// Columns of `x` and of the weight.
    pub inputs: usize,
    /// Columns of `y`, rows of the weight.
    pub outputs: usize,
}

impl Linear {
    /// `y = x w^T` (or `y += x w^T`).
    pub fn forward(&self, pool: &Pool, x: &[f32], w: &[f32], y: &mut [f32], accumulate: bool) {
        self.check(x.len(), w.len(), y.len());
        let (k, n) = (self.inputs, self.outputs);
        with_scratch(k * n, |turned| {
            transpose(w, n, k, turned);
            product(pool, x, turned, y, Shape { rows: self.rows, depth: k, columns: n }, accumulate);
        });
    }

    /// `dx = g w` (or `dx += g w`), `g` being the gradient of `y`.
    pub fn grad_input(&self, pool: &Pool, g: &[f32], w: &[f32], dx: &mut [f32], accumulate: bool) {
        self.check(dx.len(), w.len(), g.len());
        product(
            pool,
            g,
            w,
            dx,
            Shape { rows: self.rows, depth: self.outputs, columns: self.inputs },
            accumulate,
        );
    }

    /// `dw = g^T x` (or `dw += g^T x`), `g` being the gradient of `y`.
    pub fn grad_weight(&self, pool: &Pool, g: &[f32], x: &[f32], dw: &mut [f32], accumulate: bool) {
        self.check(x.len(), dw.len(), g.len());
        let (k, n) = (self.inputs, self.outputs);
        chunked_sum(pool, self.rows, 4 * DEPTH, dw, accumulate, |range, sum| {
            for from in range.clone().step_by(DEPTH) {
                let depth = DEPTH.min(range.end - from);
                grad_weight_block(&g[from * n..][..depth * n], &x[from * k..][..depth * k], k, n, sum);
            }
        });
    }

    fn check(&self, x: usize, w: usize, y: usize) {
        let Self { rows, inputs, outputs } = *self;
        assert!(
            x == rows * inputs && w == inputs * outputs && y == rows * outputs,
            "shapes of {self:?}: {x}, {w}, {y}"
        );
    }
}

#[derive(Clone, Copy)]
struct Shape {
    rows: usize,
    depth: usize,
    columns: usize,
}

/// `c = a b` (or `c += a b`) with row-major `a [rows, depth]` and `b [depth, columns]`.
fn product(pool: &Pool, a: &[f32], b: &[f32], c: &mut [f32], shape: Shape, accumulate: bool) {
    let Shape { rows, depth, columns } = shape;
    let out = Shared::new(c);
    pool.for_ranges(rows, ROWS, |range| {
        let a = &a[range.start * depth..range.end * depth];
        // SAFETY: ranges do not overlap.
        let c = unsafe { out.part(range.start * columns, range.len() * columns) };
        // The transposed product: columns of `b^T` are then contiguous, as are rows of `a`.
        let lhs = Matrix { start: b, row: 1, column: columns };
        let rhs = Matrix { start: a, row: 1, column: depth };
        let out = Output { start: c, column: columns };
        multiply(lhs, rhs, [columns, range.len(), depth], out, accumulate);
    });
}

/// `sum += g^T x` for one block of rows.
fn grad_weight_block(g: &[f32], x: &[f32], k: usize, n: usize, sum: &mut [f32]) {
    let depth = g.len().checked_div(n).unwrap_or(0);
    for from in (0..k).step_by(SLICE) {
        let lhs = Matrix { start: &x[from..], row: 1, column: k };
        let rhs = Matrix { start: g, row: n, column: 1 };
        let out = Output { start: &mut sum[from..], column: k };
        multiply(lhs, rhs, [SLICE.min(k - from), n, depth], out, true);
    }
}

/// A matrix by the steps from one row and one column to the next.
struct Matrix<'a> {
    start: &'a [f32],
    row: usize,
    column: usize,
}

/// Where a product goes: rows are one apart, columns `column`.
struct Output<'a> {
    start: &'a mut [f32],
    column: usize,
}

/// `out (+)= lhs rhs`, `[m, n, k]` being the rows of `lhs`, the columns of `rhs` and what they share.
fn multiply(lhs: Matrix, rhs: Matrix, [m, n, k]: [usize; 3], out: Output, accumulate: bool) {
    let within = |len: usize, row: usize, column: usize, rows: usize, columns: usize| {
        rows == 0 || columns == 0 || (rows - 1) * row + (columns - 1) * column < len
    };
    assert!(within(lhs.start.len(), lhs.row, lhs.column, m, k));
    assert!(within(rhs.start.len(), rhs.row, rhs.column, k, n));
    assert!(within(out.start.len(), 1, out.column, m, n));
    let gemm = gemm_f32::gemm::f32::get_gemm_fn();
    // SAFETY: every element of the three matrices is in its slice by the assertion.
    unsafe {
        gemm(
            m,
            n,
            k,
            out.start.as_mut_ptr(),
            out.column as isize,
            1,
            accumulate,
            lhs.start.as_ptr(),
            lhs.column as isize,
            lhs.row as isize,
            rhs.start.as_ptr(),
            rhs.column as isize,
            rhs.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

kernel! {
    /// `out [columns, rows] = a [rows, columns]` transposed: whole tiles through registers, then the two edges.
    pub(crate) fn transpose<S>(a: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
        const TILE: usize = 8;
        assert!(a.len() == rows * columns && out.len() == a.len());
        let (whole_rows, whole_columns) = (rows / TILE * TILE, columns / TILE * TILE);
        for i in (0..whole_rows).step_by(TILE) {
            for j in (0..whole_columns).step_by(TILE) {
                turn_tile::<TILE>(&a[i * columns + j..], columns, &mut out[j * rows + i..], rows);
            }
        }
        for i in 0..rows {
            let from = if i < whole_rows { whole_columns } else { 0 };
            for j in from..columns {
                out[j * rows + i] = a[i * columns + j];
            }
        }
    }
}

/// One tile of [`transpose`]; `step` and `out_step` lead from row to row.
#[inline(always)]
fn turn_tile<const T: usize>(a: &[f32], step: usize, out: &mut [f32], out_step: usize) {
    let mut tile = [[0.0; T]; T];
    for (r, row) in tile.iter_mut().enumerate() {
        row.copy_from_slice(&a[r * step..][..T]);
    }
    for c in 0..T {
        let column: [f32; T] = std::array::from_fn(|r| tile[r][c]);
        out[c * out_step..][..T].copy_from_slice(&column);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{close, numbers};
    use super::*;

    /// `c[i, j] = before + sum_p a(i, p) b(p, j)` in f64.
    fn reference(
        m: usize,
        n: usize,
        k: usize,
        before: &[f32],
        term: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<f32> {
        (0..m * n)
            .map(|c| (f64::from(before[c]) + (0..k).map(|p| term(c / n, c % n, p)).sum::<f64>()) as f32)
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_three_products_match_the_definition(
            rows in prop::sample::select(&[0usize, 1, 5, 100, 1500][..]), inputs in prop::sample::select(&[1usize, 3, 7, 40, 41][..]),
            outputs in prop::sample::select(&[1usize, 2, 7, 16, 41][..]), accumulate in any::<bool>(), seed in any::<u64>(),
        ) {
            let map = Linear { rows, inputs, outputs };
            let (x, w, g) = (numbers(seed, rows * inputs), numbers(1, inputs * outputs), numbers(2, rows * outputs));
            let at = |a: &[f32], k: usize| f64::from(a[k]);
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let before = |len| if accumulate { numbers(3, len) } else { vec![0.0; len] };
                let start = |len| if accumulate { numbers(3, len) } else { vec![f32::NAN; len] };
                let mut y = start(g.len());
                map.forward(&pool, &x, &w, &mut y, accumulate);
                close(&y, &reference(rows, outputs, inputs, &before(g.len()), |i, j, p| at(&x, i * inputs + p) * at(&w, j * inputs + p)), 1e-5);
                let mut dx = start(x.len());
                map.grad_input(&pool, &g, &w, &mut dx, accumulate);
                close(&dx, &reference(rows, inputs, outputs, &before(x.len()), |i, j, p| at(&g, i * outputs + p) * at(&w, p * inputs + j)), 1e-5);
                let mut dw = start(w.len());
                map.grad_weight(&pool, &g, &x, &mut dw, accumulate);
                close(&dw, &reference(outputs, inputs, rows, &before(w.len()), |i, j, p| at(&g, p * outputs + i) * at(&x, p * inputs + j)), 1e-5);
            }
        }
    }

    #[test]
    fn products_are_the_same_bits_for_any_number_of_threads() {
        let map = Linear { rows: 5000, inputs: 40, outputs: 24 };
        let (x, w, g) = (numbers(1, 5000 * 40), numbers(2, 40 * 24), numbers(3, 5000 * 24));
        let run = |threads| {
            let pool = Pool::new(threads);
            let (mut y, mut dw) = (vec![0.0; g.len()], vec![0.0; w.len()]);
            map.forward(&pool, &x, &w, &mut y, false);
            map.grad_weight(&pool, &g, &x, &mut dw, false);
            (y, dw)
        };
        assert_eq!(run(1), run(3));
    }
}
