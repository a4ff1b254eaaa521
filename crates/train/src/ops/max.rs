//! What is the largest value among a node's neighbours, column by column, and who had it?
//!
//! `out[i][c] = max over j in in(i) of x[j][c]`, 0 where `in(i)` is empty; of equal values the first edge's wins. The
//! source is kept per element (`u32`), so that backward a source takes from each of its targets the columns it won.

use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Rows, Targets};
use super::{AHEAD, edges_per_task};

/// The winner where there is no edge.
pub const NOBODY: u32 = u32::MAX;

/// Writes the maximum and the winning source of every element of the targets' rows.
pub fn gather_max(
    pool: &Pool,
    offsets: &[u64],
    neighbors: &[u32],
    rows: Rows,
    targets: Targets,
    out: &mut [f32],
    winner: &mut [u32],
) {
    assert_eq!(out.len(), winner.len(), "a winner per element");
    let (first, out, winner) = (targets.first(), Shared::new(out), Shared::new(winner));
    targets.for_chunks(pool, offsets, edges_per_task(rows.width), |chunk| {
        max_chunk(offsets, neighbors, &rows, &chunk, first, out, winner);
    });
}

/// What a source won: `dx[j][c] = sum of grad[i][c] over its targets i with winner[i][c] = j`.
#[derive(Debug, Clone, Copy)]
pub struct Won<'a> {
    /// Targets of source `j` are `offsets[j]..offsets[j + 1]`.
    pub offsets: &'a [u64],
    /// The targets of each source, ascending: an edge that occurs twice stands beside itself and counts once.
    pub targets: &'a [u32],
    /// The winners the forward pass wrote.
    pub winner: &'a [u32],
    /// Gradient of the maxima.
    pub grad: &'a [f32],
    /// Floats per row.
    pub width: usize,
}

/// Writes (or adds) the gradient of every source's row.
pub fn gather_max_backward(pool: &Pool, won: &Won, sources: Targets, dx: &mut [f32], accumulate: bool) {
    let (first, dx) = (sources.first(), Shared::new(dx));
    sources.for_chunks(pool, won.offsets, edges_per_task(won.width), |chunk| {
        won_chunk(won, &chunk, first, dx, accumulate);
    });
}

kernel! {
    fn max_chunk<S>(offsets: &[u64], neighbors: &[u32], rows: &Rows, chunk: &Chunk, first: usize, out: Shared<f32>, winner: Shared<u32>) {
        let width = rows.width;
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let (best, who) = unsafe { (out.part((i - first) * width, width), winner.part((i - first) * width, width)) };
            let edges = offsets[i] as usize..offsets[i + 1] as usize;
            best.fill(if edges.is_empty() { 0.0 } else { f32::NEG_INFINITY });
            who.fill(NOBODY);
            for e in edges {
                rows.prefetch::<S>(neighbors, e + AHEAD);
                let j = neighbors[e];
                for ((b, w), &x) in best.iter_mut().zip(who.iter_mut()).zip(rows.row(j as usize)) {
                    let wins = x > *b;
                    *b = if wins { x } else { *b };
                    *w = if wins { j } else { *w };
                }
            }
        }
    }
}

kernel! {
    fn won_chunk<S>(won: &Won, chunk: &Chunk, first: usize, dx: Shared<f32>, accumulate: bool) {
        let width = won.width;
        for k in 0..chunk.len() {
            let j = chunk.target(k);
            // SAFETY: sources of different chunks are different rows.
            let dx = unsafe { dx.part((j - first) * width, width) };
            if !accumulate {
                dx.fill(0.0);
            }
            let mut last = NOBODY;
            for &i in &won.targets[won.offsets[j] as usize..won.offsets[j + 1] as usize] {
                if i == last {
                    continue;
                }
                last = i;
                let at = i as usize * width;
                let (grad, who) = (&won.grad[at..][..width], &won.winner[at..][..width]);
                for ((d, &g), &w) in dx.iter_mut().zip(grad).zip(who) {
                    *d += if w == j as u32 { g } else { 0.0 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{WIDTHS, close, differences, graph, numbers, wide};
    use super::*;

    fn reference(offsets: &[u64], neighbors: &[u32], x: &[f64], width: usize) -> Vec<f64> {
        let cell = |k: usize| {
            let edges = offsets[k / width] as usize..offsets[k / width + 1] as usize;
            let values = neighbors[edges].iter().map(|&j| x[j as usize * width + k % width]);
            values.reduce(f64::max).unwrap_or(0.0)
        };
        (0..(offsets.len() - 1) * width).map(cell).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn maxima_match_and_gradients_go_to_the_winners(
            degrees in prop::collection::vec(0usize..9, 1..12), halo in 0usize..4, width in prop::sample::select(WIDTHS), seed in any::<u64>(),
        ) {
            let n = degrees.len();
            let g = graph(seed, &degrees, n + halo);
            let x = numbers(seed ^ 1, (n + halo) * width);
            let (local, far) = x.split_at(n * width);
            let rows = Rows { local, halo: far, split: n, width };
            let (mut out, mut winner) = (vec![0.0; n * width], vec![0; n * width]);
            gather_max(&Pool::new(2), &g.offsets, &g.neighbors, rows, Targets::All(n), &mut out, &mut winner);
            let expected: Vec<f32> = reference(&g.offsets, &g.neighbors, &wide(&x), width).iter().map(|&v| v as f32).collect();
            prop_assert_eq!(&out, &expected);

            let upstream = numbers(seed ^ 2, n * width);
            let back = g.transposed(n + halo);
            let won = Won { offsets: &back.offsets, targets: &back.neighbors, winner: &winner, grad: &upstream, width };
            let mut dx = vec![0.0; x.len()];
            let (near, far) = dx.split_at_mut(n * width);
            gather_max_backward(&Pool::new(2), &won, Targets::All(n), near, false);
            gather_max_backward(&Pool::new(2), &won, Targets::Range(n..n + halo), far, false);
            if width < 9 {
                let loss = |x: &[f64]| {
                    reference(&g.offsets, &g.neighbors, x, width).iter().zip(&upstream).map(|(y, u)| y * f64::from(*u)).sum()
                };
                close(&dx, &differences(&x, loss), 1e-4);
            }
        }
    }

    #[test]
    fn an_edge_that_occurs_twice_counts_once() {
        let won = Won { offsets: &[0, 2], targets: &[0, 0], winner: &[0], grad: &[3.0], width: 1 };
        let mut dx = [0.0];
        gather_max_backward(&Pool::new(1), &won, Targets::All(1), &mut dx, false);
        assert_eq!(dx, [3.0]);
    }
}
