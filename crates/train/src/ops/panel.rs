//! How does a gather read its rows from the cache rather than from memory? One panel of columns at a time.
//!
//! Rows of 128 columns of a hundred thousand nodes (51 MB) lie beyond the cache, and a random row of them costs
//! several misses. A panel is the same 16 columns of every row (a cache line each, 6.4 MB): it is packed in order,
//! stays in the last-level cache, and is then read once per edge. Packing reads and writes each row once, so it pays
//! as soon as a row is read by a few edges. The source's factor is applied while packing.
//!
//! Sums run in the order of the edges, as without panels.

use super::edges_per_task;
use super::gather::{Gather, add_row, store_row};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Rows, Targets};
use super::scratch::with_scratch;

/// Columns of a panel: one cache line.
const COLUMNS: usize = 16;
/// Largest panel: half the last-level cache of the machines we know.
const LARGEST: usize = (16 << 20) / size_of::<f32>();
/// Edges per source row from which packing pays.
const READS: usize = 4;
/// Source rows that one task packs.
const PACKED: usize = 4096;
/// Edges ahead of the current one whose lines are requested: a line is less to fetch than a row, so more of them.
const AHEAD: usize = 16;

/// Whether a gather of `edges` edges over `sources` rows of `width` columns is faster by panels.
pub(super) fn pays(sources: usize, edges: usize, width: usize) -> bool {
    width > COLUMNS && sources * COLUMNS <= LARGEST && edges >= READS * sources
}

/// Bytes that panels of `sources` rows need while a gather runs.
pub(crate) fn bytes(sources: usize) -> usize {
    size_of::<f32>() * (sources * COLUMNS).min(LARGEST)
}

/// [`gather`](super::gather::gather), panel by panel.
pub(super) fn gather_panels(
    pool: &Pool,
    graph: &Gather,
    rows: Rows,
    targets: &Targets,
    out: Shared<f32>,
    accumulate: bool,
) {
    let sources = rows.count();
    with_scratch((sources + 1) * COLUMNS, |scratch| {
        let lines = scratch.as_ptr().align_offset(COLUMNS * size_of::<f32>());
        let panel = &mut scratch[lines..][..sources * COLUMNS];
        for column in (0..rows.width).step_by(COLUMNS) {
            let shared = Shared::new(panel);
            pool.for_ranges(sources, PACKED, |range| {
                // SAFETY: ranges do not overlap.
                let part = unsafe { shared.part(range.start * COLUMNS, range.len() * COLUMNS) };
                pack(&rows, range.start, column, graph.source_scale, part);
            });
            let job = Job { graph, rows, panel: &*panel, column, accumulate };
            targets.for_chunks(pool, graph.offsets, edges_per_task(COLUMNS), |chunk| {
                gather_chunk(&job, &chunk, targets.first(), out);
            });
        }
    });
}

/// One panel of a gather.
struct Job<'a> {
    graph: &'a Gather<'a>,
    rows: Rows<'a>,
    panel: &'a [f32],
    column: usize,
    accumulate: bool,
}

kernel! {
    /// Columns from `column` on of the rows from `first` on, scaled; columns past the end of a row are zero.
    fn pack<S>(rows: &Rows, first: usize, column: usize, scale: Option<&[f32]>, panel: &mut [f32]) {
        for (line, source) in panel.chunks_exact_mut(COLUMNS).zip(first..) {
            let row = &rows.row(source)[column..];
            let scale = scale.map_or(1.0, |scale| scale[source]);
            match row.first_chunk::<COLUMNS>() {
                Some(row) => line.iter_mut().zip(row).for_each(|(out, x)| *out = scale * x),
                None => {
                    line.fill(0.0);
                    line.iter_mut().zip(row).for_each(|(out, x)| *out = scale * x);
                }
            }
        }
    }
}

kernel! {
    fn gather_chunk<S>(job: &Job, chunk: &Chunk, first: usize, out: Shared<f32>) {
        let width = job.rows.width;
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            let mut line = [0.0; COLUMNS];
            match (S::N, job.graph.weights) {
                (16, weights) => sum_lines::<S, 1>(job, i, weights, &mut line),
                (_, None) => sum_lines::<S, 2>(job, i, None, &mut line),
                (_, weights) => sum_lines::<S, 2>(job, i, weights, &mut line),
            }
            // SAFETY: targets of different chunks are different rows.
            let out = unsafe { out.part((i - first) * width + job.column, COLUMNS.min(width - job.column)) };
            finish(job, i, &mut line);
            if job.accumulate {
                out.iter_mut().zip(&line).for_each(|(out, x)| *out += x);
            } else {
                out.copy_from_slice(&line[..out.len()]);
            }
        }
    }
}

/// The weighted sum of the lines of a target's sources, in `K` registers.
#[inline(always)]
fn sum_lines<S: Simd, const K: usize>(
    job: &Job,
    i: usize,
    weights: Option<&[f32]>,
    line: &mut [f32; COLUMNS],
) {
    let Gather { offsets, neighbors, .. } = job.graph;
    let mut sum = [S::splat(0.0); K];
    for e in offsets[i] as usize..offsets[i + 1] as usize {
        if let Some(&next) = neighbors.get(e + AHEAD) {
            S::prefetch(job.panel.as_ptr().wrapping_add(next as usize * COLUMNS));
        }
        let row = &job.panel[neighbors[e] as usize * COLUMNS..][..COLUMNS];
        add_row::<S, K, false>(&mut sum, weights.map_or(1.0, |weights| weights[e]), row);
    }
    store_row::<S, K, false>(&sum, line);
}

/// The target's factor, and its own row where it is added: from the panel, which holds it times its factor as a
/// source, because the row itself would be a miss.
#[inline(always)]
fn finish(job: &Job, i: usize, line: &mut [f32; COLUMNS]) {
    let graph = job.graph;
    if let Some(scale) = graph.target_scale {
        line.iter_mut().for_each(|x| *x *= scale[i]);
    }
    if let Some(own) = graph.self_scale
        && i < job.rows.split
    {
        let (factor, row) = match graph.source_scale.map_or(1.0, |scale| scale[i]) {
            0.0 => (own[i], &job.rows.row(i)[job.column..]),
            packed => (own[i] / packed, &job.panel[i * COLUMNS..][..COLUMNS]),
        };
        line.iter_mut().zip(row).for_each(|(x, own)| *x += factor * own);
    }
}
