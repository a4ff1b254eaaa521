//! Which rows does a message-passing kernel read, and which does it write?
//!
//! Sources are numbered through: local rows first, then halo rows, which live in a buffer of their own. Targets are
//! all rows, a range of them, or a list.

use std::ops::Range;

use super::isa::Simd;
use super::pool::Pool;

/// The rows of the sources of a layer: `split` local ones, then the halo.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// Rows `0..split`.
    pub local: &'a [f32],
    /// Rows from `split` on.
    pub halo: &'a [f32],
    /// The first source that is a halo row.
    pub split: usize,
    /// Floats per row.
    pub width: usize,
}

impl<'a> Rows<'a> {
    /// Rows without a halo.
    pub fn local(rows: &'a [f32], width: usize) -> Self {
        Self { local: rows, halo: &[], split: rows.len().checked_div(width).unwrap_or(0), width }
    }

    /// Local rows, then halo rows.
    pub fn with_halo(local: &'a [f32], halo: &'a [f32], width: usize) -> Self {
        Self { halo, ..Self::local(local, width) }
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.split + self.halo.len().checked_div(self.width).unwrap_or(0)
    }

    /// Row `source`.
    #[inline(always)]
    pub fn row(&self, source: usize) -> &'a [f32] {
        if source < self.split {
            &self.local[source * self.width..][..self.width]
        } else {
            &self.halo[(source - self.split) * self.width..][..self.width]
        }
    }

    /// Asks for all cache lines of the row of the source at `place` of `list`, if the list is that long.
    #[inline(always)]
    pub(crate) fn prefetch<S: Simd>(&self, list: &[u32], place: usize) {
        let Some(&source) = list.get(place) else { return };
        let source = source as usize;
        let base = if source < self.split {
            self.local.as_ptr().wrapping_add(source.wrapping_mul(self.width))
        } else {
            self.halo.as_ptr().wrapping_add((source - self.split).wrapping_mul(self.width))
        };
        for line in (0..self.width).step_by(16) {
            S::prefetch(base.wrapping_add(line));
        }
    }
}

/// The rows a kernel computes.
#[derive(Debug, Clone)]
pub enum Targets<'a> {
    /// Rows `0..n`.
    All(usize),
    /// These rows, strictly ascending; each is written at its own place in the output.
    Listed(&'a [u32]),
    /// These rows; the output starts at the first of them.
    Range(Range<usize>),
}

/// The rows one task computes.
#[derive(Debug, Clone)]
pub(crate) enum Chunk<'a> {
    Listed(&'a [u32]),
    Range(Range<usize>),
}

impl Chunk<'_> {
    #[inline(always)]
    pub fn len(&self) -> usize {
        match self {
            Self::Listed(list) => list.len(),
            Self::Range(range) => range.len(),
        }
    }

    #[inline(always)]
    pub fn target(&self, k: usize) -> usize {
        match self {
            Self::Listed(list) => list[k] as usize,
            Self::Range(range) => range.start + k,
        }
    }
}

impl Targets<'_> {
    /// The row that is written at the start of the output.
    pub fn first(&self) -> usize {
        match self {
            Self::Range(range) => range.start,
            _ => 0,
        }
    }

    /// How many edges the targets have; a list's are estimated by the mean.
    pub(crate) fn edges(&self, offsets: &[u64]) -> usize {
        let all = offsets.last().map_or(0, |&end| end as usize);
        match self {
            Self::All(n) => offsets[*n] as usize,
            Self::Range(rows) => (offsets[rows.end] - offsets[rows.start]) as usize,
            Self::Listed(list) => all / offsets.len().max(1) * list.len(),
        }
    }

    /// Calls `body` for chunks of the targets with about `grain` edges each, in any order and on any thread.
    pub(crate) fn for_chunks(&self, pool: &Pool, offsets: &[u64], grain: usize, body: impl Fn(Chunk) + Sync) {
        match self {
            Self::All(n) => for_edge_ranges(pool, offsets, 0..*n, grain, |range| body(Chunk::Range(range))),
            Self::Range(rows) => {
                for_edge_ranges(pool, offsets, rows.clone(), grain, |range| body(Chunk::Range(range)))
            }
            Self::Listed(list) => {
                assert!(list.is_sorted_by(|a, b| a < b), "listed targets must be strictly ascending");
                let degree =
                    (offsets.last().copied().unwrap_or(0) as usize).checked_div(offsets.len()).unwrap_or(0);
                pool.for_ranges(list.len(), grain / (degree + 1) + 1, |range| {
                    body(Chunk::Listed(&list[range]))
                });
            }
        }
    }
}

/// Splits `rows` into ranges of about `grain` edges (plus one per row) and calls `body` for each.
fn for_edge_ranges(
    pool: &Pool,
    offsets: &[u64],
    rows: Range<usize>,
    grain: usize,
    body: impl Fn(Range<usize>) + Sync,
) {
    let chunks = edge_chunks(offsets, &rows, grain);
    pool.for_each(chunks, |c| body(edge_range(offsets, &rows, chunks, c)));
}

/// In how many chunks of about `grain` edges `rows` are split.
pub(crate) fn edge_chunks(offsets: &[u64], rows: &Range<usize>, grain: usize) -> usize {
    if rows.is_empty() { 0 } else { cost(offsets, rows, rows.end).div_ceil(grain.max(1)) }
}

/// The rows of chunk `c` of `chunks`: equal shares of edges, whole rows.
pub(crate) fn edge_range(offsets: &[u64], rows: &Range<usize>, chunks: usize, c: usize) -> Range<usize> {
    let total = cost(offsets, rows, rows.end);
    let boundary = |c: usize| {
        let bound = (total as u128 * c as u128 / chunks as u128) as usize;
        let (mut low, mut high) = (rows.start, rows.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if cost(offsets, rows, middle) < bound { low = middle + 1 } else { high = middle }
        }
        low
    };
    boundary(c)..boundary(c + 1)
}

/// Edges before row `i`, and one for each row.
fn cost(offsets: &[u64], rows: &Range<usize>, i: usize) -> usize {
    (offsets[i] - offsets[rows.start]) as usize + (i - rows.start)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edge_ranges_cover_every_row_once_and_are_balanced(degrees in prop::collection::vec(0u64..40, 1..200), grain in 1usize..100) {
            let mut offsets = vec![0];
            offsets.extend(degrees.iter().scan(0, |sum, d| { *sum += d; Some(*sum) }));
            let rows = 0..degrees.len();
            let chunks = edge_chunks(&offsets, &rows, grain);
            let mut next = 0;
            for c in 0..chunks {
                let range = edge_range(&offsets, &rows, chunks, c);
                prop_assert_eq!(range.start, next);
                prop_assert!(cost(&offsets, &range, range.end) <= grain + 41);
                next = range.end;
            }
            prop_assert_eq!(next, degrees.len());
        }
    }
}
