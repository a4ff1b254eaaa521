//! How is a product of matrices computed without taking memory? Tile by tile, by the micro-kernels of `gemm`.
//!
//! The `gemm` crate's own loop around them makes a list of flags per call, and copies of operands whose widths are no
//! multiple of a register. Here the left operand is packed by the caller into scratch, once for all rows that it meets.

use std::ops::Range;

use super::LINE;
#[cfg(target_arch = "x86_64")]
use super::isa::Isa;
use super::isa::kernel;
use gemm_common::microkernel::MicroKernelFn;

/// Terms of a sum that are added in registers before they go to the output: what a tile reads then fits the caches.
pub(super) const DEPTH: usize = 512;

/// Floats of packed rows that stay in the second-level cache while the right operand passes by.
const NEAR: usize = 1 << 16;

/// A matrix by the steps from one row and one column to the next.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub start: &'a [f32],
    pub row: usize,
    pub column: usize,
}

/// Where a product goes: rows are one apart, columns `column`.
pub(super) struct Output<'a> {
    pub start: &'a mut [f32],
    pub column: usize,
}

/// The part of an output that one call of a micro-kernel computes, and the micro-kernels for all smaller ones.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Floats in a register.
    lanes: usize,
    /// Rows: several registers.
    pub height: usize,
    /// Columns.
    width: usize,
    /// By registers and columns.
    kernels: &'static [MicroKernelFn<f32>],
}

impl Tile {
    /// The tile that suits this machine.
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        match Isa::current() {
            Isa::Avx512 => return Self::new(16, &gemm_f32::microkernel::avx512f::f32::UKR),
            Isa::Avx2 => return Self::new(8, &gemm_f32::microkernel::fma::f32::UKR),
            Isa::Plain => {}
        }
        #[cfg(target_arch = "aarch64")]
        return Self::new(4, &gemm_f32::microkernel::neon::f32::UKR);
        #[cfg(not(target_arch = "aarch64"))]
        Self::new(1, &gemm_f32::microkernel::scalar::f32::UKR)
    }

    fn new<const R: usize, const C: usize>(
        lanes: usize,
        kernels: &'static [[MicroKernelFn<f32>; C]; R],
    ) -> Self {
        Self { lanes, height: R * lanes, width: C, kernels: kernels.as_flattened() }
    }

    /// Floats that `rows` rows of `depth` columns take when packed.
    pub fn packed(&self, rows: usize, depth: usize) -> usize {
        rows.next_multiple_of(self.height) * depth
    }

    /// Packs `lhs [rows, depth]`: by blocks of the depth, then by tiles, then by columns, rows that are none being 0.
    pub fn pack(&self, lhs: Matrix, rows: usize, depth: usize, packed: &mut [f32]) {
        let packed = &mut packed[..self.packed(rows, depth)];
        let block = (DEPTH * rows.next_multiple_of(self.height)).max(1);
        for (from, block) in (0..depth).step_by(DEPTH).zip(packed.chunks_mut(block)) {
            let columns = DEPTH.min(depth - from);
            for (row, panel) in (0..rows).step_by(self.height).zip(block.chunks_mut(columns * self.height)) {
                let lhs = Matrix { start: &lhs.start[row * lhs.row + from * lhs.column..], ..lhs };
                pack_panel(lhs, self.height.min(rows - row), self.height, panel);
            }
        }
    }

    /// `out (+)= lhs rhs`, `lhs` being [packed](Self::pack) and `[m, n, k]` its rows, the columns of `rhs` and what
    /// they share.
    pub fn multiply(&self, lhs: &[f32], rhs: Matrix, [m, n, k]: [usize; 3], out: Output, accumulate: bool) {
        let within = |len: usize, row: usize, column: usize, rows: usize, columns: usize| {
            rows == 0 || columns == 0 || (rows - 1) * row + (columns - 1) * column < len
        };
        assert!(lhs.len() >= self.packed(m, k));
        assert!(within(rhs.start.len(), rhs.row, rhs.column, k, n));
        assert!(within(out.start.len(), 1, out.column, m, n));
        if m == 0 || n == 0 {
            return;
        }
        for from in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - from);
            let job = Panels {
                tile: *self,
                lhs: &lhs[from * m.next_multiple_of(self.height)..],
                rhs: &rhs.start[from * rhs.row..],
                rhs_steps: [rhs.row as isize, rhs.column as isize],
                depth,
                out: out.start.as_mut_ptr(),
                out_step: out.column,
                accumulate: accumulate || from > 0,
            };
            let near = (NEAR / (depth * self.height)).max(1) * self.height;
            for rows in (0..m).step_by(near) {
                // SAFETY: all rows and columns of the three matrices are in their slices by the assertions.
                unsafe { job.multiply(rows..m.min(rows + near), n) };
            }
        }
    }
}

/// A product over one block of the depth.
struct Panels<'a> {
    tile: Tile,
    lhs: &'a [f32],
    rhs: &'a [f32],
    rhs_steps: [isize; 2],
    depth: usize,
    out: *mut f32,
    out_step: usize,
    accumulate: bool,
}

impl Panels<'_> {
    /// Computes `rows` of all `columns`.
    ///
    /// # Safety
    /// `lhs` has these rows in whole tiles, `rhs` and `out` have these columns.
    unsafe fn multiply(&self, rows: Range<usize>, columns: usize) {
        let Tile { lanes, height, width, kernels } = self.tile;
        for column in (0..columns).step_by(width) {
            let n = width.min(columns - column);
            for row in rows.clone().step_by(height) {
                let m = height.min(rows.end - row);
                let kernel = kernels[(m.div_ceil(lanes) - 1) * width + n - 1];
                self.expect(row..row + m, column..column + n);
                // SAFETY: the caller's promise; micro-kernels read whole registers of `lhs` (packed so), `n` columns
                // of `rhs` and write `m` by `n` numbers. The one chosen is for instructions that `Isa` has found.
                unsafe {
                    kernel(
                        m,
                        n,
                        self.depth,
                        self.out.add(column * self.out_step + row),
                        self.lhs.as_ptr().add(row * self.depth),
                        self.rhs.as_ptr().offset(column as isize * self.rhs_steps[1]),
                        self.out_step as isize,
                        1,
                        height as isize,
                        self.rhs_steps[0],
                        self.rhs_steps[1],
                        1.0,
                        1.0,
                        u8::from(self.accumulate),
                        false,
                        false,
                        false,
                        std::ptr::null(),
                    );
                }
            }
        }
    }

    /// Asks for these rows and columns of the output while the sums for them are made: a micro-kernel stores them all at
    /// once at its end, and would wait for lines that are in no cache. 2 to 9 % of a product whose output is in memory.
    #[inline(always)]
    fn expect(&self, rows: Range<usize>, columns: Range<usize>) {
        for column in columns {
            for row in rows.clone().step_by(LINE) {
                prefetch_for_writing(self.out.wrapping_add(column * self.out_step + row));
            }
        }
    }
}

/// A hint that touches nothing, wherever it points.
#[inline(always)]
fn prefetch_for_writing(place: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch never faults; processors without the instruction do nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// `panel`: the first `rows` rows of `lhs` column by column, filled up to `height` with 0.
fn pack_panel(lhs: Matrix, rows: usize, height: usize, panel: &mut [f32]) {
    if lhs.row == 1 {
        for (p, column) in panel.chunks_exact_mut(height).enumerate() {
            copy_short(&lhs.start[p * lhs.column..][..rows], column);
        }
    } else {
        assert_eq!(lhs.column, 1, "either rows or columns are side by side");
        if rows < height {
            panel.fill(0.0);
        }
        transpose(lhs.start, [rows, panel.len() / height], [lhs.row, height], panel);
    }
}

/// `out`: the numbers of `a`, then 0. Few numbers: a call of `memcpy` would take longer.
#[inline(always)]
fn copy_short(a: &[f32], out: &mut [f32]) {
    let (whole, rest) = a.as_chunks::<8>();
    let (start, end) = out.split_at_mut(8 * whole.len());
    for (out, a) in start.as_chunks_mut::<8>().0.iter_mut().zip(whole) {
        *out = *a;
    }
    for (i, out) in end.iter_mut().enumerate() {
        *out = rest.get(i).copied().unwrap_or(0.0);
    }
}

kernel! {
    /// `out [columns, rows] = a [rows, columns]` transposed, `steps` leading from row to row of the two: whole tiles
    /// through registers, then the two edges.
    pub(super) fn transpose<S>(a: &[f32], shape: [usize; 2], steps: [usize; 2], out: &mut [f32]) {
        const TILE: usize = 8;
        let ([rows, columns], [step, out_step]) = (shape, steps);
        assert!(rows == 0 || columns == 0 || (rows - 1) * step + columns <= a.len());
        assert!(rows == 0 || columns == 0 || (columns - 1) * out_step + rows <= out.len());
        let (whole_rows, whole_columns) = (rows / TILE * TILE, columns / TILE * TILE);
        for i in (0..whole_rows).step_by(TILE) {
            for j in (0..whole_columns).step_by(TILE) {
                let (from, to) = (i * step + j, j * out_step + i);
                if j % LINE == 0 {
                    // Rows may lie so far apart that the processor does not foresee the next.
                    (TILE..2 * TILE).for_each(|next| S::prefetch(a.as_ptr().wrapping_add(from + next * step)));
                }
                // SAFETY: whole tiles of both are within the rows and columns, which are in their slices.
                unsafe { S::turn(a.as_ptr().add(from), out.as_mut_ptr().add(to), steps) };
            }
        }
        for i in 0..rows {
            let from = if i < whole_rows { whole_columns } else { 0 };
            for j in from..columns {
                out[j * out_step + i] = a[i * step + j];
            }
        }
    }
}
