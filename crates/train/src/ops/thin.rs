//! How does a product leave out the zeros that ReLU and dropout leave? By lists of the numbers that are none.
//!
//! Half the numbers of a hidden layer are zeros, with dropout three quarters; of the gradient that comes back to it the same
//! ones. Here some columns of the right operand are squeezed to lists of values and places at a time; each entry of a list
//! then adds a row of the packed left operand to sums in registers.
//!
//! Every number is made by the same operations in the same order as by the micro-kernels of [`tile`](super::tile), but for
//! the additions of zeros: the bits are the same, and either way may be taken for any block.

use super::LINE;
use super::isa::{Isa, Simd, kernel};
use super::reduce::add_to;
use super::scratch::with_scratch;
use super::tile::{DEPTH, Matrix, Output, Tile, transpose};
use std::ops::Range;

/// Columns of the right operand whose lists are made at a time: they, and sums for them, stay in the second-level cache.
const LINES: usize = 64;
/// Rows of a packed panel that the lists pick from at a time: they stay in the first-level cache.
const NEAR: usize = 128;
/// Numbers that are looked at to tell whether leaving out zeros pays.
const LOOK: usize = 1 << 12;
/// Columns ahead of the current one that are requested from memory.
const AHEAD: usize = 4;
/// Floats that may be written beyond the end of a list: a register, none of which is longer than a line.
const SLACK: usize = LINE;
/// Rows that lists pick from, as the bits of floats, which is how registers move them.
static PLACES: [f32; NEAR] = places();

const fn places() -> [f32; NEAR] {
    let mut all = [0.0; NEAR];
    let mut place = 0;
    while place < NEAR {
        all[place] = f32::from_bits(place as u32);
        place += 1;
    }
    all
}

/// Whether so many of these numbers are zeros that a product does better to leave them out.
pub(super) fn pays(numbers: &[f32]) -> bool {
    let look = &numbers[..LOOK.min(numbers.len())];
    Isa::current() != Isa::Plain && 16 * count(look) < 9 * look.len()
}

kernel! {
    /// How many numbers are not zero.
    fn count<S>(numbers: &[f32]) -> usize {
        numbers.iter().map(|&x| u32::from(x != 0.0)).sum::<u32>() as usize
    }
}

/// [`Tile::multiply`] for a right operand with many zeros.
pub(super) fn multiply(
    tile: &Tile,
    lhs: &[f32],
    rhs: Matrix,
    [m, n, k]: [usize; 3],
    out: Output,
    accumulate: bool,
) {
    let (height, column) = (m.next_multiple_of(tile.height), out.column);
    with_scratch(Desk::SIZE + LINES * m, |scratch| {
        let (desk, sums) = scratch.split_at_mut(Desk::SIZE);
        let mut desk = Desk::new(desk);
        for first in (0..n).step_by(LINES) {
            let lines = LINES.min(n - first);
            let out = &mut out.start[first * column..];
            for from in (0..k).step_by(DEPTH) {
                let shape = [m, lines, DEPTH.min(k - from)];
                let lhs = &lhs[from * height..];
                let rhs = Matrix { start: &rhs.start[from * rhs.row + first * rhs.column..], ..rhs };
                if !accumulate && from == 0 {
                    multiply_block(tile, lhs, rhs, shape, Output { start: out, column }, &mut desk);
                    continue;
                }
                // As the micro-kernels do: the sum of the block first, then what is there already.
                multiply_block(tile, lhs, rhs, shape, Output { start: sums, column: m }, &mut desk);
                for line in 0..lines {
                    add_to(&sums[line * m..][..m], &mut out[line * column..][..m]);
                }
            }
        }
    });
}

/// `sums = lhs rhs` for a block of the depth and a few columns.
fn multiply_block(
    tile: &Tile,
    lhs: &[f32],
    rhs: Matrix,
    [m, lines, depth]: [usize; 3],
    sums: Output,
    desk: &mut Desk,
) {
    let Output { start: sums, column } = sums;
    for from in (0..depth).step_by(NEAR) {
        let start = &rhs.start[from * rhs.row..];
        let lists = desk.squeeze(Matrix { start, ..rhs }, lines, NEAR.min(depth - from));
        let panels = Packed { start: &lhs[from * tile.height..], size: depth * tile.height, rows: m };
        add_products(&lists, panels, tile.height, Output { start: &mut *sums, column }, from > 0);
    }
}

/// Room for the lists of some columns, and for these columns side by side.
struct Desk<'a> {
    values: &'a mut [f32],
    places: &'a mut [f32],
    turned: &'a mut [f32],
    ends: [usize; LINES],
}

/// What is not zero in some columns, one after the other.
struct Lists<'a> {
    /// Where the list of each column ends.
    ends: &'a [usize],
    values: &'a [f32],
    /// The row of each value.
    places: &'a [u32],
    /// How many rows there are.
    depth: usize,
}

/// Packed rows, panel by panel; only the first columns of each are meant.
struct Packed<'a> {
    start: &'a [f32],
    /// Floats from one panel to the next.
    size: usize,
    /// Rows of all panels.
    rows: usize,
}

impl<'a> Desk<'a> {
    /// Floats of one of its three parts.
    const PART: usize = LINES * NEAR + SLACK;
    /// Floats in all.
    const SIZE: usize = 3 * Self::PART;

    fn new(scratch: &'a mut [f32]) -> Self {
        let (values, scratch) = scratch.split_at_mut(Self::PART);
        let (places, turned) = scratch.split_at_mut(Self::PART);
        Self { values, places, turned, ends: [0; LINES] }
    }

    /// The lists of `lines` columns with `depth` rows.
    fn squeeze(&mut self, columns: Matrix, lines: usize, depth: usize) -> Lists<'_> {
        let (mut start, mut step) = (columns.start, columns.column);
        if columns.row != 1 {
            transpose(start, [depth, lines], [columns.row, depth], self.turned);
            (start, step) = (&*self.turned, depth);
        }
        let ends = &mut self.ends[..lines];
        squeeze(start, step, depth, self.values, self.places, ends);
        Lists { ends, values: self.values, places: bytemuck::cast_slice(self.places), depth }
    }
}

kernel! {
    /// Makes a list of each `depth` numbers, `step` being from one to the next, and tells where each ends.
    fn squeeze<S>(
        numbers: &[f32],
        step: usize,
        depth: usize,
        values: &mut [f32],
        places: &mut [f32],
        ends: &mut [usize],
    ) {
        let room = values.len().min(places.len());
        assert!(ends.len() * depth + SLACK <= room && depth <= NEAR && S::N <= SLACK);
        let mut end = 0;
        for (line, list_end) in ends.iter_mut().enumerate() {
            let ahead = numbers.as_ptr().wrapping_add((line + AHEAD) * step);
            let numbers = &numbers[line * step..][..depth];
            // SAFETY: `lanes` numbers and places follow `at`; no list is longer than what it was made of, and a register
            // more has room.
            let mut add = |at: usize, lanes: usize| unsafe {
                S::prefetch(ahead.wrapping_add(at));
                let number = S::load_first(numbers.as_ptr().add(at), lanes);
                let place = S::load_first(PLACES.as_ptr().add(at), lanes);
                let kept = S::nonzero(number);
                S::squeeze(values.as_mut_ptr().add(end), number, kept);
                S::squeeze(places.as_mut_ptr().add(end), place, kept);
                end += kept.count_ones() as usize;
            };
            let whole = depth / S::N * S::N;
            (0..whole).step_by(S::N).for_each(|at| add(at, S::N));
            if whole < depth {
                add(whole, depth - whole);
            }
            *list_end = end;
        }
    }
}

kernel! {
    /// `sums (+)=` the product of panels of `height` rows with the columns of the lists.
    fn add_products<S>(lists: &Lists, panels: Packed, height: usize, sums: Output, accumulate: bool) {
        // Enough sums at a time that none has to wait for its last addition.
        match height / S::N {
            4 => add_stripes::<S, 4, 1>(lists, panels, sums, accumulate),
            2 => add_stripes::<S, 2, 4>(lists, panels, sums, accumulate),
            registers => unreachable!("panels of {registers} registers"),
        }
    }
}

/// [`add_products`] with `P` panels of `R` registers at a time.
#[inline(always)]
fn add_stripes<S: Simd, const R: usize, const P: usize>(
    lists: &Lists,
    panels: Packed,
    sums: Output,
    accumulate: bool,
) {
    let Packed { start, size, rows } = panels;
    let height = R * S::N;
    let panel = |row: usize| &start[row / height * size..][..lists.depth * height];
    let whole = rows / (P * height) * P * height;
    for row in (0..whole).step_by(P * height) {
        let panels: [_; P] = std::array::from_fn(|p| panel(row + p * height));
        add_lists::<S, R, P, true>(lists, panels, sums.start, sums.column, row..row + P * height, accumulate);
    }
    for row in (whole..rows).step_by(height) {
        let end = rows.min(row + height);
        add_lists::<S, R, 1, false>(lists, [panel(row)], sums.start, sums.column, row..end, accumulate);
    }
}

/// `sums (+)=` the product of these panels, which have `rows` of it, with the columns of the lists; `WHOLE` when they have
/// all rows that they can have.
#[inline(always)]
fn add_lists<S: Simd, const R: usize, const P: usize, const WHOLE: bool>(
    lists: &Lists,
    panels: [&[f32]; P],
    sums: &mut [f32],
    column: usize,
    rows: Range<usize>,
    accumulate: bool,
) {
    assert!(panels.iter().all(|panel| panel.len() == lists.depth * R * S::N));
    let lanes = |r: usize| if WHOLE { S::N } else { rows.len().saturating_sub(r * S::N).min(S::N) };
    let mut start = 0;
    for (line, &end) in lists.ends.iter().enumerate() {
        let list = lists.values[start..end].iter().zip(&lists.places[start..end]);
        let place = sums[line * column..][rows.clone()].as_mut_ptr();
        let mut sum = [[S::splat(0.0); R]; P];
        if accumulate {
            for (r, sum) in sum.as_flattened_mut().iter_mut().enumerate() {
                // SAFETY: so many rows are left from there on.
                *sum = unsafe { S::load_first(place.wrapping_add(r * S::N), lanes(r)) };
            }
        }
        for (&value, &place) in list {
            let value = S::splat(value);
            for (sum, panel) in sum.iter_mut().zip(panels) {
                for (r, sum) in sum.iter_mut().enumerate() {
                    // SAFETY: places are below the depth of the lists, which is that of a panel.
                    let row = unsafe { S::load(panel.as_ptr().add((place as usize * R + r) * S::N)) };
                    *sum = S::fma(row, value, *sum);
                }
            }
        }
        for (r, &sum) in sum.as_flattened().iter().enumerate() {
            // SAFETY: as above.
            unsafe { S::store_first(place.wrapping_add(r * S::N), lanes(r), sum) };
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::numbers;
    use super::*;

    /// Normal numbers, of which about `zeros` of a hundred are 0.
    fn thinned(seed: u64, len: usize, zeros: u64) -> Vec<f32> {
        let number = |(i, x): (usize, f32)| if (i as u64 * 7919 + seed) % 100 < zeros { 0.0 } else { x };
        numbers(seed, len).into_iter().enumerate().map(number).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn leaving_out_zeros_changes_no_bit(
            m in prop::sample::select(&[1usize, 24, 40, 64, 130, 256][..]),
            n in prop::sample::select(&[1usize, 7, 64, 200][..]),
            k in prop::sample::select(&[1usize, 15, 128, 129, 600][..]),
            zeros in prop::sample::select(&[0u64, 50, 75, 100][..]),
            lies in any::<bool>(), accumulate in any::<bool>(), seed in 0u64..1000,
        ) {
            let (lhs, rhs) = (numbers(seed, m * k), thinned(seed, k * n, zeros));
            let (row, column) = if lies { (1, k) } else { (n, 1) };
            let rhs = Matrix { start: &rhs, row, column };
            for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Plain) {
                isa.force(|| {
                    let tile = Tile::best();
                    let mut packed = vec![f32::NAN; tile.packed(m, k)];
                    tile.pack(Matrix { start: &lhs, row: k, column: 1 }, m, k, &mut packed);
                    let (mut expected, mut found) = (numbers(3, m * n), numbers(3, m * n));
                    let shape = [m, n, k];
                    tile.multiply(&packed, rhs, shape, Output { start: &mut expected, column: m }, accumulate);
                    multiply(&tile, &packed, rhs, shape, Output { start: &mut found, column: m }, accumulate);
                    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&found), bits(&expected));
                });
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_left_out() {
        for isa in Isa::available().into_iter().filter(|&isa| isa != Isa::Plain) {
            isa.force(|| {
                let tile = Tile::best();
                let mut packed = vec![0.0; tile.packed(1, 20)];
                tile.pack(Matrix { start: &[1.0; 20], row: 20, column: 1 }, 1, 20, &mut packed);
                let mut rhs = [0.0; 20];
                rhs[17] = f32::NAN;
                let (rhs, mut out) = (Matrix { start: &rhs, row: 1, column: 20 }, [0.0]);
                multiply(&tile, &packed, rhs, [1, 1, 20], Output { start: &mut out, column: 1 }, false);
                assert!(out[0].is_nan());
            });
        }
    }

    #[test]
    fn it_pays_where_about_half_the_numbers_are_zeros() {
        let pays = |zeros| pays(&thinned(1, 5000, zeros));
        assert!(Isa::current() == Isa::Plain || pays(50) && pays(100));
        assert!(!pays(0) && !pays(40));
        assert!(!super::pays(&[]), "there is nothing to leave out");
    }
}
