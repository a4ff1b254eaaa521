//! What does a layer compute edge by edge? Rows of edges from rows of their ends, and sums over the edges of a target.
//!
//! A stretch of targets is computed at a time: their edges stand side by side, so rows of edges are rows of an ordinary
//! matrix to all that lies between. `out_i = sum_e f_e m_e`, `max_e m_e`, or with scores per head
//! `out_i = sum_e softmax(s)_e m_e`, which also gives the log-sum-exp of the scores.

use super::attention::{EdgeDropout, axpy, dot, edge_bits};
use super::dropout::{keeps, scale, threshold};
use super::isa::kernel;
use super::pool::{Pool, Shared};
use super::rows::Rows;
use super::{edges_per_task, rows_per_task};
use std::ops::Range;

/// Which edges belong to which target of a stretch.
#[derive(Debug, Clone, Copy)]
pub struct Segments<'a> {
    /// Where the edges of each target start; one more than there are targets. The first need not be 0.
    pub offsets: &'a [u64],
}

impl Segments<'_> {
    /// How many targets there are.
    pub fn targets(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// How many edges they have.
    pub fn edges(&self) -> usize {
        self.range(0..self.targets()).len()
    }

    /// Edges of the `targets`, counted from the first edge of the stretch.
    fn range(&self, targets: Range<usize>) -> Range<usize> {
        let at = |target: usize| (self.offsets[target] - self.offsets[0]) as usize;
        if self.offsets.is_empty() { 0..0 } else { at(targets.start)..at(targets.end) }
    }

    /// Calls `body` for ranges of targets, in any order and on any thread.
    fn for_targets(&self, pool: &Pool, width: usize, body: impl Fn(Range<usize>) + Sync) {
        let degree = self.edges() / self.targets().max(1) + 1;
        pool.for_ranges(self.targets(), edges_per_task(width) / degree + 1, body);
    }
}

/// The row of each edge's source.
pub fn rows_of_sources(pool: &Pool, rows: Rows<'_>, sources: &[u32], out: &mut [f32]) {
    let (width, out) = (rows.width, Shared::new(out));
    pool.for_ranges(sources.len(), rows_per_task(width), |range| {
        // SAFETY: ranges do not overlap.
        let out = unsafe { out.part(range.start * width, range.len() * width) };
        copy_rows(rows, &sources[range], out);
    });
}

kernel! {
    fn copy_rows<S>(rows: Rows<'_>, sources: &[u32], out: &mut [f32]) {
        for (at, (row, &source)) in out.chunks_exact_mut(rows.width.max(1)).zip(sources).enumerate() {
            rows.prefetch::<S>(sources, at + super::AHEAD);
            row.copy_from_slice(rows.row(source as usize));
        }
    }
}

/// The adjoint of [`rows_of_sources`]: adds the row of each edge to that of its source, edge after edge. Each thread adds
/// some of the columns.
pub fn add_to_sources(
    pool: &Pool,
    sources: &[u32],
    edges: &[f32],
    width: usize,
    local: &mut [f32],
    halo: &mut [f32],
) {
    /// Columns that one thread adds: a few cache lines, so that threads do not write to the same ones.
    const COLUMNS: usize = 32;
    let split = local.len().checked_div(width).unwrap_or(0);
    let rows = [Shared::new(local), Shared::new(halo)];
    pool.for_ranges(width, COLUMNS, |columns| add_columns(sources, edges, width, columns, &rows, split));
}

kernel! {
    fn add_columns<S>(
        sources: &[u32],
        edges: &[f32],
        width: usize,
        columns: Range<usize>,
        rows: &[Shared<f32>; 2],
        split: usize,
    ) {
        for (&source, edge) in sources.iter().zip(edges.chunks_exact(width)) {
            let (rows, row) = match (source as usize).checked_sub(split) {
                None => (&rows[0], source as usize),
                Some(row) => (&rows[1], row),
            };
            // SAFETY: ranges of columns do not overlap, and a range has one thread.
            let row = unsafe { rows.part(row * width + columns.start, columns.len()) };
            axpy::<S>(1.0, &edge[columns.clone()], row);
        }
    }
}

/// The row of each edge's target, times a factor of the edge where there is one.
pub fn rows_of_targets(
    pool: &Pool,
    segments: Segments<'_>,
    factors: Option<&[f32]>,
    rows: &[f32],
    width: usize,
    out: &mut [f32],
) {
    let out = Shared::new(out);
    segments.for_targets(pool, width, |targets| {
        for target in targets {
            let edges = segments.range(target..target + 1);
            // SAFETY: the edges of targets do not overlap.
            let out = unsafe { out.part(edges.start * width, edges.len() * width) };
            repeat(factors.map(|factors| &factors[edges]), &rows[target * width..][..width], out);
        }
    });
}

kernel! {
    fn repeat<S>(factors: Option<&[f32]>, row: &[f32], out: &mut [f32]) {
        for (at, edge) in out.chunks_exact_mut(row.len().max(1)).enumerate() {
            let factor = factors.map_or(1.0, |factors| factors[at]);
            edge.iter_mut().zip(row).for_each(|(edge, row)| *edge = factor * row);
        }
    }
}

/// The sum of the rows of each target's edges, times a factor of the edge where there is one; 0 without edges.
pub fn sum_of_edges(
    pool: &Pool,
    segments: Segments<'_>,
    factors: Option<&[f32]>,
    rows: &[f32],
    width: usize,
    out: &mut [f32],
) {
    let out = Shared::new(out);
    segments.for_targets(pool, width, |targets| {
        for target in targets {
            let edges = segments.range(target..target + 1);
            // SAFETY: targets do not overlap.
            let out = unsafe { out.part(target * width, width) };
            let rows = &rows[edges.start * width..edges.end * width];
            add_up(factors.map(|factors| &factors[edges]), rows, out);
        }
    });
}

kernel! {
    fn add_up<S>(factors: Option<&[f32]>, rows: &[f32], out: &mut [f32]) {
        out.fill(0.0);
        for (at, row) in rows.chunks_exact(out.len().max(1)).enumerate() {
            axpy::<S>(factors.map_or(1.0, |factors| factors[at]), row, out);
        }
    }
}

/// The element-wise maximum of the rows of each target's edges, 0 without edges, and which edge of the stretch each number
/// came from: the first of equal ones.
pub fn max_of_edges(
    pool: &Pool,
    segments: Segments<'_>,
    rows: &[f32],
    width: usize,
    out: &mut [f32],
    winner: &mut [u32],
) {
    let (out, winner) = (Shared::new(out), Shared::new(winner));
    segments.for_targets(pool, width, |targets| {
        for target in targets {
            // SAFETY: targets do not overlap.
            let (out, winner) =
                unsafe { (out.part(target * width, width), winner.part(target * width, width)) };
            out.fill(0.0);
            winner.fill(NOBODY);
            for edge in segments.range(target..target + 1) {
                let row = &rows[edge * width..][..width];
                for (column, &value) in row.iter().enumerate() {
                    if winner[column] == NOBODY || value > out[column] {
                        (out[column], winner[column]) = (value, edge as u32);
                    }
                }
            }
        }
    });
}

/// No edge won a maximum.
const NOBODY: u32 = u32::MAX;

/// The gradient of [`max_of_edges`]: that of each target goes to the edge that won.
pub fn max_of_edges_backward(
    pool: &Pool,
    segments: Segments<'_>,
    winner: &[u32],
    grad: &[f32],
    width: usize,
    out: &mut [f32],
) {
    let out = Shared::new(out);
    segments.for_targets(pool, width, |targets| {
        for target in targets {
            let edges = segments.range(target..target + 1);
            // SAFETY: the edges of targets do not overlap.
            let out = unsafe { out.part(edges.start * width, edges.len() * width) };
            out.fill(0.0);
            for column in 0..width {
                let (won, grad) = (winner[target * width + column], grad[target * width + column]);
                if won != NOBODY {
                    out[(won as usize - edges.start) * width + column] = grad;
                }
            }
        }
    });
}

/// Rows of edges averaged by the softmax of their scores.
#[derive(Debug, Clone, Copy)]
pub struct Averaged<'a> {
    /// Whose edges they are.
    pub segments: Segments<'a>,
    /// Heads side by side in a row.
    pub heads: usize,
    /// Numbers per row, all heads together.
    pub width: usize,
    /// A score for each edge and head.
    pub scores: &'a [f32],
    /// A row for each edge.
    pub rows: &'a [f32],
    /// Source of each edge, and the first target among all: what dropout is drawn by.
    pub sources: &'a [u32],
    /// See `sources`.
    pub first: usize,
    /// Dropout of coefficients.
    pub dropout: Option<EdgeDropout<'a>>,
}

impl Averaged<'_> {
    /// What dropout makes of the coefficients of an edge of a target with these bits, head by head: 0, or a factor.
    #[inline(always)]
    fn kept(&self, of_target: u64, edge: usize) -> impl Fn(usize) -> f32 {
        let dropout = self.dropout.as_ref().map(|dropout| {
            let bits = edge_bits(of_target, dropout.source(Some(self.sources[edge] as usize)));
            (bits, threshold(dropout.rate), scale(dropout.rate))
        });
        move |head| match dropout {
            None => 1.0,
            Some((bits, threshold, scale)) => {
                if keeps(bits, head as u32, threshold) {
                    scale
                } else {
                    0.0
                }
            }
        }
    }

    /// The bits that dropout draws for a target.
    #[inline(always)]
    fn target_bits(&self, target: usize) -> u64 {
        self.dropout.as_ref().map_or(0, |dropout| dropout.target(self.first + target))
    }
}

/// The average row of each target, and the log-sum-exp of the scores of its edges; 0 and minus infinity without edges.
pub fn average_of_edges(pool: &Pool, job: &Averaged<'_>, out: &mut [f32], logsumexp: &mut [f32]) {
    let (out, lse) = (Shared::new(out), Shared::new(logsumexp));
    job.segments.for_targets(pool, job.width, |targets| {
        for target in targets {
            // SAFETY: targets do not overlap.
            let (out, lse) =
                unsafe { (out.part(target * job.width, job.width), lse.part(target * job.heads, job.heads)) };
            average(job, target, out, lse);
        }
    });
}

kernel! {
    fn average<S>(job: &Averaged<'_>, target: usize, out: &mut [f32], lse: &mut [f32]) {
        let (heads, width, edges) = (job.heads, job.width / job.heads, job.segments.range(target..target + 1));
        out.fill(0.0);
        for (head, lse) in lse.iter_mut().enumerate() {
            let scores = edges.clone().map(|edge| job.scores[edge * heads + head]);
            let largest = scores.clone().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scores.map(|score| (score - largest).exp()).sum();
            *lse = if edges.is_empty() { f32::NEG_INFINITY } else { largest + total.ln() };
        }
        let bits = job.target_bits(target);
        for edge in edges {
            let kept = job.kept(bits, edge);
            for (head, lse) in lse.iter().enumerate() {
                let share = (job.scores[edge * heads + head] - lse).exp() * kept(head);
                let row = &job.rows[edge * job.width + head * width..][..width];
                axpy::<S>(share, row, &mut out[head * width..][..width]);
            }
        }
    }
}

/// What the gradient of [`average_of_edges`] reads, for the targets of the stretch.
#[derive(Debug, Clone, Copy)]
pub struct AveragedBackward<'a> {
    /// What came out, times its gradient, summed over the columns of each head.
    pub dots: &'a [f32],
    /// Log-sum-exp of the scores, that of other edges than these included where there are any.
    pub logsumexp: &'a [f32],
    /// The gradient of what came out.
    pub grad: &'a [f32],
}

/// The product of two rows of each target, head by head.
pub fn head_dots(pool: &Pool, left: &[f32], right: &[f32], heads: usize, width: usize, dots: &mut [f32]) {
    let (targets, dots) = (dots.len() / heads.max(1), Shared::new(dots));
    pool.for_ranges(targets, rows_per_task(width), |range| {
        // SAFETY: ranges do not overlap.
        let dots = unsafe { dots.part(range.start * heads, range.len() * heads) };
        let cells = range.start * width..range.end * width;
        dot_heads(&left[cells.clone()], &right[cells], width / heads, dots);
    });
}

kernel! {
    fn dot_heads<S>(left: &[f32], right: &[f32], width: usize, dots: &mut [f32]) {
        for (at, out) in dots.iter_mut().enumerate() {
            *out = dot::<S>(&left[at * width..][..width], &right[at * width..][..width]);
        }
    }
}

/// Gradients of scores and rows: `d m_e = a_e g_i`, `d s_e = a_e (m_e . g_i) - p_e (out_i . g_i)`, with `p` the softmax and
/// `a` what dropout left of it.
pub fn average_of_edges_backward(
    pool: &Pool,
    job: &Averaged<'_>,
    read: &AveragedBackward<'_>,
    scores: &mut [f32],
    rows: &mut [f32],
) {
    let (scores, rows) = (Shared::new(scores), Shared::new(rows));
    job.segments.for_targets(pool, job.width, |targets| {
        for target in targets {
            let edges = job.segments.range(target..target + 1);
            // SAFETY: the edges of targets do not overlap.
            let (scores, rows) = unsafe {
                let scores = scores.part(edges.start * job.heads, edges.len() * job.heads);
                (scores, rows.part(edges.start * job.width, edges.len() * job.width))
            };
            average_backward(job, read, target, scores, rows);
        }
    });
}

kernel! {
    fn average_backward<S>(
        job: &Averaged<'_>,
        read: &AveragedBackward<'_>,
        target: usize,
        scores: &mut [f32],
        rows: &mut [f32],
    ) {
        let (heads, width, edges) = (job.heads, job.width / job.heads, job.segments.range(target..target + 1));
        let bits = job.target_bits(target);
        for (at, edge) in edges.enumerate() {
            let kept = job.kept(bits, edge);
            for head in 0..heads {
                let of_target = target * heads + head;
                let grad = &read.grad[of_target * width..][..width];
                let share = (job.scores[edge * heads + head] - read.logsumexp[of_target]).exp();
                let left = share * kept(head);
                let row = &job.rows[edge * job.width + head * width..][..width];
                scores[at * heads + head] = left * dot::<S>(row, grad) - share * read.dots[of_target];
                let row = &mut rows[at * job.width + head * width..][..width];
                row.iter_mut().zip(grad).for_each(|(row, grad)| *row = left * grad);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{WIDTHS, close, graph, numbers};
    use super::*;

    const DEGREES: &[usize] = &[3, 0, 1, 40, 2, 0];

    /// A stretch of edges that does not begin at 0, its targets and sources.
    fn lists() -> (Vec<u64>, Vec<u32>) {
        let lists = graph(3, DEGREES, 9);
        (lists.offsets.iter().map(|at| at + 7).collect(), lists.neighbors)
    }

    #[test]
    fn rows_go_out_to_edges_and_come_back_as_sums() {
        let (offsets, sources) = lists();
        let segments = Segments { offsets: &offsets };
        for &width in WIDTHS {
            let (rows, factors) = (numbers(1, 9 * width), numbers(2, sources.len()));
            let (local, halo) = rows.split_at(6 * width);
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let mut edges = vec![f32::NAN; sources.len() * width];
                rows_of_sources(&pool, Rows::with_halo(local, halo, width), &sources, &mut edges);
                for (edge, &source) in edges.chunks(width).zip(&sources) {
                    assert_eq!(edge, &rows[source as usize * width..][..width]);
                }
                let mut sums = vec![f32::NAN; DEGREES.len() * width];
                sum_of_edges(&pool, segments, Some(&factors), &edges, width, &mut sums);
                let mut expected = vec![0.0; sums.len()];
                let owners = DEGREES.iter().enumerate().flat_map(|(i, &d)| std::iter::repeat_n(i, d));
                for (edge, owner) in owners.clone().enumerate() {
                    for c in 0..width {
                        expected[owner * width + c] += factors[edge] * edges[edge * width + c];
                    }
                }
                close(&sums, &expected, 1e-5);
                // <A x, y> = <x, A^T y> for both ways.
                let mut back = vec![f32::NAN; edges.len()];
                rows_of_targets(&pool, segments, Some(&factors), &sums, width, &mut back);
                for (edge, owner) in owners.enumerate() {
                    close(&back[edge * width..][..1], &[factors[edge] * sums[owner * width]], 1e-6);
                }
                let (mut near, mut far) = (vec![0.0; local.len()], vec![0.0; halo.len()]);
                add_to_sources(&pool, &sources, &edges, width, &mut near, &mut far);
                let norm: f32 = edges.iter().map(|x| x * x).sum();
                let paired: f32 = near.iter().chain(&far).zip(&rows).map(|(a, b)| a * b).sum();
                close(&[paired], &[norm], 1e-4);
            }
        }
    }

    #[test]
    fn averages_have_the_slopes_that_differences_show() {
        let (offsets, sources) = lists();
        let (heads, width) = (2, 6);
        let (scores, rows) = (numbers(4, sources.len() * heads), numbers(5, sources.len() * width));
        let grad = numbers(6, DEGREES.len() * width);
        let pool = Pool::new(1);
        let nodes: Vec<u64> = (0..20).collect();
        for rate in [0.0, 0.4] {
            let key = archipelago_graph::random::Key::new(1, archipelago_graph::random::Purpose::Dropout);
            let dropout = (rate > 0.0).then_some(EdgeDropout { rate, key, targets: &nodes, sources: &nodes });
            let run = |scores: &[f32], rows: &[f32]| {
                let segments = Segments { offsets: &offsets };
                let job =
                    Averaged { segments, heads, width, scores, rows, sources: &sources, first: 2, dropout };
                let (mut out, mut lse) = (vec![0.0; DEGREES.len() * width], vec![0.0; DEGREES.len() * heads]);
                average_of_edges(&pool, &job, &mut out, &mut lse);
                let loss: f64 = out.iter().zip(&grad).map(|(o, g)| f64::from(o * g)).sum();
                let mut dots = vec![0.0; lse.len()];
                head_dots(&pool, &out, &grad, heads, width, &mut dots);
                let read = AveragedBackward { dots: &dots, logsumexp: &lse, grad: &grad };
                let (mut ds, mut dr) = (vec![0.0; scores.len()], vec![0.0; rows.len()]);
                average_of_edges_backward(&pool, &job, &read, &mut ds, &mut dr);
                (loss, ds, dr)
            };
            let (_, ds, dr) = run(&scores, &rows);
            for at in [0, 1, 5, 17, 60] {
                let slope = |which: usize| {
                    let moved = |by: f32| {
                        let (mut s, mut r) = (scores.clone(), rows.clone());
                        if which == 0 {
                            s[at] += by
                        } else {
                            r[at] += by
                        }
                        run(&s, &r).0
                    };
                    ((moved(1e-2) - moved(-1e-2)) / 2e-2) as f32
                };
                close(&[ds[at]], &[slope(0)], 2e-3);
                close(&[dr[at]], &[slope(1)], 2e-3);
            }
        }
    }

    #[test]
    fn the_largest_edge_gets_the_gradient() {
        let (offsets, sources) = lists();
        let segments = Segments { offsets: &offsets };
        let (width, rows) = (5, numbers(8, sources.len() * 5));
        let (mut out, mut winner) = (vec![0.0; DEGREES.len() * 5], vec![0; DEGREES.len() * 5]);
        max_of_edges(&Pool::new(2), segments, &rows, width, &mut out, &mut winner);
        assert!(out[5..10].iter().all(|&x| x == 0.0), "a target without edges");
        let grad = numbers(9, out.len());
        let mut back = vec![f32::NAN; rows.len()];
        max_of_edges_backward(&Pool::new(2), segments, &winner, &grad, width, &mut back);
        let (paired, whole): (f32, f32) = (
            back.iter().zip(&rows).map(|(b, r)| b * r).sum(),
            grad.iter().zip(&out).map(|(g, o)| g * o).sum(),
        );
        close(&[paired], &[whole], 1e-5);
        let largest = rows.chunks(width).take(3).map(|row| row[0]).fold(f32::MIN, f32::max);
        assert_eq!(out[0], largest);
    }
}
