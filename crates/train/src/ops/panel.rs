//! How does a gather read its rows from the cache rather than from memory? One panel of columns at a time.
//!
//! Rows of 128 columns of a hundred thousand nodes (51 MB) lie beyond the cache, and a random row of them costs
//! several misses. A panel is the same 32 columns of every row (two cache lines each, 12.8 MB), or 16 where there are more
//! rows: it is packed in order, stays in the last-level cache, and is then read once per edge. Packing reads and writes each
//! row once, so it pays as soon as a row is read by some edges, unless the lists read rows again that they have just read:
//! these are in the cache anyway.
//!
//! Every number is made by the same operations in the same order as without panels: the bits are the same.

use super::gather::{Gather, add_row, scale_sum, store_row};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Rows, Targets};
use super::scratch::with_scratch;
use super::{LINE, edges_per_task};

/// Columns of a wide panel; a narrow one has those of a line.
const WIDE: usize = 2 * LINE;
/// Floats that stay in the cache, half the last level of the machines we know: the largest panel, and the largest
/// matrix that needs none.
const LARGEST: usize = (16 << 20) / size_of::<f32>();
/// Edges per source row from which packing pays.
const READS: usize = 8;
/// Source rows that one task packs.
const PACKED: usize = 4096;
/// Edges ahead of the current one whose lines are requested: a line is less to fetch than a row, so more of them.
const AHEAD: usize = 16;
/// Floats that a core's own cache has room for.
const NEAR: usize = (1 << 20) / size_of::<f32>();
/// The most rows of them that are followed to tell whether rows are read again soon.
const FOLLOWED: usize = 1 << 12;
/// Stretches of the lists that are looked at for it, and the edges of each.
const LOOKS: (usize, usize) = (4, 1 << 14);

/// Whether a gather of `edges` edges over `sources` rows of `width` columns is faster by panels; `neighbors` are the sources
/// of all edges.
pub(super) fn pays(sources: usize, edges: usize, width: usize, neighbors: &[u32]) -> bool {
    let (rows, panel) = (sources * width, sources * LINE);
    rows > LARGEST && panel <= LARGEST && edges >= READS * sources && !reads_again(neighbors, width)
}

/// Whether a quarter of the edges read a row that a core still has in its cache, as some stretches tell.
fn reads_again(neighbors: &[u32], width: usize) -> bool {
    let ((looks, edges), near) = (LOOKS, (NEAR / width).clamp(1, FOLLOWED));
    let mut again = 0;
    for look in 0..looks {
        let mut recent = [u32::MAX; FOLLOWED];
        for &source in neighbors[neighbors.len() / looks * look..].iter().take(edges) {
            let place = &mut recent[source as usize % near];
            again += usize::from(*place == source);
            *place = source;
        }
    }
    4 * again >= (looks * edges).min(neighbors.len())
}

/// Columns of the panels of so many rows.
fn columns(sources: usize) -> usize {
    if sources * WIDE <= LARGEST { WIDE } else { LINE }
}

/// Bytes that panels of `sources` rows need while a gather runs.
pub(crate) fn bytes(sources: usize) -> usize {
    size_of::<f32>() * (sources * columns(sources)).min(LARGEST)
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
    match columns(rows.count()) {
        WIDE => gather_columns::<WIDE>(pool, graph, rows, targets, out, accumulate),
        _ => gather_columns::<LINE>(pool, graph, rows, targets, out, accumulate),
    }
}

/// The same by panels of `C` columns.
pub(super) fn gather_columns<const C: usize>(
    pool: &Pool,
    graph: &Gather,
    rows: Rows,
    targets: &Targets,
    out: Shared<f32>,
    accumulate: bool,
) {
    let sources = rows.count();
    with_scratch(sources * C, |panel| {
        for column in (0..rows.width).step_by(C) {
            let shared = Shared::new(panel);
            pool.for_ranges(sources, PACKED, |range| {
                // SAFETY: ranges do not overlap.
                let part = unsafe { shared.part(range.start * C, range.len() * C) };
                pack::<C>(graph, &rows, range.start, column, part);
            });
            let job = Job { graph, rows, panel: &*panel, column, columns: C, accumulate };
            targets.for_chunks(pool, graph.offsets, edges_per_task(C), |chunk| {
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
    /// The first of its columns.
    column: usize,
    /// How many it has.
    columns: usize,
    accumulate: bool,
}

/// Columns from `column` on of the rows from `first` on, each times its factor; columns past the end of a row are zero.
fn pack<const C: usize>(graph: &Gather, rows: &Rows, first: usize, column: usize, panel: &mut [f32]) {
    for (line, source) in panel.chunks_exact_mut(C).zip(first..) {
        let row = &rows.row(source)[column..];
        match row.first_chunk::<C>() {
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
        let columns = job.columns.min(width - job.column);
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let out = unsafe { out.part((i - first) * width + job.column, columns) };
            match (job.columns, S::N) {
                (LINE, 16) => gather_line::<S, 1, LINE>(job, i, out),
                (LINE, _) => gather_line::<S, 2, LINE>(job, i, out),
                (_, 16) => gather_line::<S, 2, WIDE>(job, i, out),
                _ => gather_line::<S, 4, WIDE>(job, i, out),
            }
        }
    }
}

/// One target's `C` columns in the panel, `K` registers of them.
#[inline(always)]
fn gather_line<S: Simd, const K: usize, const C: usize>(job: &Job, i: usize, out: &mut [f32]) {
    let graph = job.graph;
    let mut sum = [S::splat(0.0); K];
    match graph.weights {
        None => sum_lines::<S, K, C>(job, i, &mut sum, |_| 1.0),
        Some(weights) => sum_lines::<S, K, C>(job, i, &mut sum, |e| weights[e]),
    }
    scale_sum::<S, K>(graph, i, &mut sum);
    if let Some(scale) = graph.self_scale.filter(|_| i < job.rows.split) {
        add_row::<S, K, false>(&mut sum, scale[i], job.line::<C>(i));
    }
    if out.len() == C {
        put_row::<S, K>(&mut sum, out, job.accumulate);
    } else {
        // The last columns of a row that is no whole number of panels.
        let mut line = [0.0; C];
        line[..out.len()].copy_from_slice(out);
        put_row::<S, K>(&mut sum, &mut line, job.accumulate);
        out.copy_from_slice(&line[..out.len()]);
    }
}

impl Job<'_> {
    /// The columns of row `source`.
    #[inline(always)]
    fn line<const C: usize>(&self, source: usize) -> &[f32] {
        &self.panel[source * C..][..C]
    }
}

/// Adds the lines of a target's sources, each times the weight of its edge.
#[inline(always)]
fn sum_lines<S: Simd, const K: usize, const C: usize>(
    job: &Job,
    i: usize,
    sum: &mut [S::V; K],
    weight: impl Fn(usize) -> f32,
) {
    let Gather { offsets, neighbors, .. } = job.graph;
    for e in offsets[i] as usize..offsets[i + 1] as usize {
        if let Some(&next) = neighbors.get(e + AHEAD) {
            for line in (0..C).step_by(LINE) {
                S::prefetch(job.panel.as_ptr().wrapping_add(next as usize * C + line));
            }
        }
        let j = neighbors[e] as usize;
        add_row::<S, K, false>(sum, weight(e), job.line::<C>(j));
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

#[cfg(test)]
mod tests {
    use archipelago_graph::random::{Key, Purpose};

    use super::*;

    /// A million edges over a hundred thousand rows; each stays among the 500 rows around its target where `stays` says so.
    fn neighbors(stays: impl Fn(u64) -> bool) -> Vec<u32> {
        let key = Key::new(1, Purpose::Generate);
        let source = |edge: u64| match stays(edge) {
            true => edge / 10 / 500 * 500 + key.below(edge, 500),
            false => key.below(edge, 100_000),
        };
        (0..1_000_000).map(|edge| source(edge) as u32).collect()
    }

    #[test]
    fn panels_pay_where_rows_are_beyond_the_cache_and_not_read_again_soon() {
        let (random, near) = (neighbors(|_| false), neighbors(|edge| edge % 3 > 0));
        assert!(pays(100_000, random.len(), 128, &random));
        assert!(!pays(100_000, near.len(), 128, &near));
        assert!(!pays(100_000, random.len(), 40, &random), "all rows are in the cache");
        assert!(!pays(300_000, 10 * random.len(), 128, &random), "no panel would be");
        assert!(!pays(200_000, random.len(), 128, &random), "too few edges to pack for");
        assert!(!pays(0, 0, 128, &[]));
    }

    #[test]
    fn a_panel_is_wide_where_a_wide_one_fits() {
        assert_eq!([1, 100_000, 131_072, 131_073, 262_144].map(columns), [WIDE, WIDE, WIDE, LINE, LINE]);
        assert_eq!(bytes(100_000), 12_800_000);
    }
}
