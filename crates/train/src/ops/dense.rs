//! What does a linear map do to the rows of a matrix? Products with a weight stored `[out, in]`, and their gradients.
//!
//! `y = x w^T`, `dx = g w`, `dw = g^T x`, by the micro-kernels of the `gemm` crate (see `tile.rs`). Rows are cut into
//! blocks that are worth a task each; the weight gradient, a sum over rows, is made over fixed chunks (see
//! [`reduce`](super::reduce)).

use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::scratch::with_scratch;
use super::thin;
use super::tile::{Matrix, Output, Tile};

/// Rows of a product that one task computes.
const ROWS: usize = 256;
/// Rows of which the weight gradient is one product.
const DEPTH: usize = 256;
/// Columns of the weight gradient that one product computes, or a whole tile of them: so few that they stay near the
/// first-level cache.
const SLICE: usize = 32;
/// The same where zeros are left out: what is not is listed once per slice.
const WIDE: usize = 256;

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
        let weight = Matrix { start: w, row: self.inputs, column: 1 };
        product(pool, x, weight, y, [self.rows, self.inputs, self.outputs], accumulate);
    }

    /// `dx = g w` (or `dx += g w`), `g` being the gradient of `y`.
    pub fn grad_input(&self, pool: &Pool, g: &[f32], w: &[f32], dx: &mut [f32], accumulate: bool) {
        self.check(dx.len(), w.len(), g.len());
        let weight = Matrix { start: w, row: 1, column: self.inputs };
        product(pool, g, weight, dx, [self.rows, self.outputs, self.inputs], accumulate);
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

/// `c = a b` (or `c += a b`) with row-major `a [rows, depth]`, given the transposed `b [columns, depth]`.
fn product(
    pool: &Pool,
    a: &[f32],
    b: Matrix,
    c: &mut [f32],
    [rows, depth, columns]: [usize; 3],
    accumulate: bool,
) {
    if depth == 0 && !accumulate {
        c.fill(0.0);
    }
    let tile = Tile::best();
    with_scratch(tile.packed(columns, depth), |packed| {
        tile.pack(b, columns, depth, packed);
        let (packed, out) = (&*packed, Shared::new(c));
        pool.for_ranges(rows, ROWS, |range| {
            let a = Matrix { start: &a[range.start * depth..range.end * depth], row: 1, column: depth };
            // SAFETY: ranges do not overlap.
            let c = unsafe { out.part(range.start * columns, range.len() * columns) };
            // The transposed product: its columns are the rows of `c`, which are contiguous.
            let out = Output { start: c, column: columns };
            let shape = [columns, range.len(), depth];
            if thin::pays(a.start) {
                thin::multiply(&tile, packed, a, shape, out, accumulate);
            } else {
                tile.multiply(packed, a, shape, out, accumulate);
            }
        });
    });
}

/// `sum += g^T x` for one block of rows.
fn grad_weight_block(g: &[f32], x: &[f32], k: usize, n: usize, sum: &mut [f32]) {
    let depth = g.len().checked_div(n).unwrap_or(0);
    let tile = Tile::best();
    let thin = thin::pays(g);
    let slice = if thin { WIDE } else { SLICE }.min(k).next_multiple_of(tile.height);
    with_scratch(tile.packed(slice, depth), |packed| {
        for from in (0..k).step_by(slice) {
            let columns = slice.min(k - from);
            tile.pack(Matrix { start: &x[from..], row: 1, column: k }, columns, depth, packed);
            let rhs = Matrix { start: g, row: n, column: 1 };
            let out = Output { start: &mut sum[from..], column: k };
            if thin {
                thin::multiply(&tile, packed, rhs, [columns, n, depth], out, true);
            } else {
                tile.multiply(packed, rhs, [columns, n, depth], out, true);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::isa::Isa;
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
            rows in prop::sample::select(&[0usize, 1, 5, 100, 1500][..]), inputs in prop::sample::select(&[1usize, 3, 7, 40, 41, 600][..]),
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
    fn products_of_every_instruction_set_agree() {
        let map = Linear { rows: 300, inputs: 1100, outputs: 37 };
        let (x, w, g) = (numbers(1, 300 * 1100), numbers(2, 1100 * 37), numbers(3, 300 * 37));
        let run = |isa: Isa| {
            let (pool, mut y, mut dx, mut dw) =
                (Pool::new(1), numbers(4, g.len()), vec![f32::NAN; x.len()], numbers(5, w.len()));
            isa.force(|| {
                map.forward(&pool, &x, &w, &mut y, true);
                map.grad_input(&pool, &g, &w, &mut dx, false);
                map.grad_weight(&pool, &g, &x, &mut dw, true);
            });
            [y, dx, dw]
        };
        let plain = run(Isa::Plain);
        for isa in Isa::available() {
            for (found, expected) in run(isa).iter().zip(&plain) {
                close(found, expected, 1e-4);
            }
        }
    }

    #[test]
    fn maps_from_or_to_no_columns_are_zero() {
        let pool = Pool::new(1);
        let mut y = [1.0; 6];
        Linear { rows: 3, inputs: 0, outputs: 2 }.forward(&pool, &[], &[], &mut y, true);
        assert_eq!(y, [1.0; 6]);
        Linear { rows: 3, inputs: 0, outputs: 2 }.forward(&pool, &[], &[], &mut y, false);
        assert_eq!(y, [0.0; 6]);
        Linear { rows: 3, inputs: 2, outputs: 0 }.forward(&pool, &y, &[], &mut [], false);
        Linear { rows: 3, inputs: 2, outputs: 0 }.grad_weight(&pool, &[], &y, &mut [], false);
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
