//! How does a gather read its rows from the cache rather than from memory? One panel of columns at a time.
//!
//! Rows of 128 columns of a hundred thousand nodes (51 MB) lie beyond the cache, and a random row of them costs
//! several misses. A panel is the same 16 columns of every row (a cache line each, 6.4 MB): it is packed in order,
//! stays in the last-level cache, and is then read once per edge. Packing reads and writes each row once, so it pays
//! as soon as a row is read by a few edges.
//!
//! Every number is made by the same operations in the same order as without panels: the bits are the same.

use super::edges_per_task;
use super::gather::{Gather, add_row, scale_sum, store_row};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Rows, Targets};
use super::scratch::with_scratch;

/// Columns of a panel: one cache line.
const COLUMNS: usize = 16;
/// Floats that stay in the cache, half the last level of the machines we know: the largest panel, and the largest
/// matrix that needs none.
const LARGEST: usize = (16 << 20) / size_of::<f32>();
/// Edges per source row from which packing pays.
const READS: usize = 4;
/// Source rows that one task packs.
const PACKED: usize = 4096;
/// Edges ahead of the current one whose lines are requested: a line is less to fetch than a row, so more of them.
const AHEAD: usize = 16;

/// Whether a gather of `edges` edges over `sources` rows of `width` columns is faster by panels.
pub(super) fn pays(sources: usize, edges: usize, width: usize) -> bool {
    let (rows, panel) = (sources * width, sources * COLUMNS);
    rows > LARGEST && panel <= LARGEST && edges >= READS * sources
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
                pack(graph, &rows, range.start, column, part);
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

/// Columns from `column` on of the rows from `first` on, each times its factor; columns past the end of a row are zero.
fn pack(graph: &Gather, rows: &Rows, first: usize, column: usize, panel: &mut [f32]) {
    for (line, source) in panel.chunks_exact_mut(COLUMNS).zip(first..) {
        let row = &rows.row(source)[column..];
        match row.first_chunk::<COLUMNS>() {
            Some(row) => line.copy_from_slice(row),
            None => {
                line.fill(0.0);
                line[..row.len()].copy_from_slice(row);
            }
        }
        if let Some(scale) = graph.source_scale {
            line.iter_mut().for_each(|x| *x *= scale[source]);
        }
    }
}

kernel! {
    fn gather_chunk<S>(job: &Job, chunk: &Chunk, first: usize, out: Shared<f32>) {
        let width = job.rows.width;
        let columns = COLUMNS.min(width - job.column);
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let out = unsafe { out.part((i - first) * width + job.column, columns) };
            match S::N {
                16 => gather_line::<S, 1>(job, i, out),
                _ => gather_line::<S, 2>(job, i, out),
            }
        }
    }
}

/// One target's columns in the panel, `K` registers of them.
#[inline(always)]
fn gather_line<S: Simd, const K: usize>(job: &Job, i: usize, out: &mut [f32]) {
    let graph = job.graph;
    let mut sum = [S::splat(0.0); K];
    match graph.weights {
        None => sum_lines::<S, K>(job, i, &mut sum, |_| 1.0),
        Some(weights) => sum_lines::<S, K>(job, i, &mut sum, |e| weights[e]),
    }
    scale_sum::<S, K>(graph, i, &mut sum);
    if let Some(scale) = graph.self_scale.filter(|_| i < job.rows.split) {
        add_row::<S, K, false>(&mut sum, scale[i], job.line(i));
    }
    if out.len() == COLUMNS {
        put_row::<S, K>(&mut sum, out, job.accumulate);
    } else {
        // The last columns of a row that is no whole number of panels.
        let mut line = [0.0; COLUMNS];
        line[..out.len()].copy_from_slice(out);
        put_row::<S, K>(&mut sum, &mut line, job.accumulate);
        out.copy_from_slice(&line[..out.len()]);
    }
}

impl Job<'_> {
    /// The columns of row `source`.
    #[inline(always)]
    fn line(&self, source: usize) -> &[f32] {
        &self.panel[source * COLUMNS..][..COLUMNS]
    }
}

/// Adds the lines of a target's sources, each times the weight of its edge.
#[inline(always)]
fn sum_lines<S: Simd, const K: usize>(
    job: &Job,
    i: usize,
    sum: &mut [S::V; K],
    weight: impl Fn(usize) -> f32,
) {
    let Gather { offsets, neighbors, .. } = job.graph;
    for e in offsets[i] as usize..offsets[i + 1] as usize {
        if let Some(&next) = neighbors.get(e + AHEAD) {
            S::prefetch(job.panel.as_ptr().wrapping_add(next as usize * COLUMNS));
        }
        let j = neighbors[e] as usize;
        add_row::<S, K, false>(sum, weight(e), job.line(j));
    }
}

/// Adds what is in `out` if asked to, and writes the sum there.
#[inline(always)]
fn put_row<S: Simd, const K: usize>(sum: &mut [S::V; K], out: &mut [f32], accumulate: bool) {
    if accumulate {
        add_row::<S, K, false>(sum, 1.0, out);
    }
    store_row::<S, K, false>(sum, out);
}
