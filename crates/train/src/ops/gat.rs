//! What does a node make of its neighbours when it weighs them by attention? GAT (Veličković et al. 2018).
//!
//! Per head: `s_ji = LeakyReLU(p_j + q_i)`, `a_ji = softmax over in(i) of s_ji`, `out_i = sum of a_ji z_j`, where `p` and
//! `q` are the [`head_scores`](super::attention::head_scores) of `z`. With self-loops, a target attends to its own row
//! too. No per-edge value is stored (see [`softmax`](super::softmax)).
//!
//! Backward is one pass over outgoing lists: `dz_j += a g_i`, `ds_ji = a (g_i . z_j - D_i) LeakyReLU'`, `dp_j = sum of
//! ds_ji`; `dq_i` is summed per fixed chunk of sources, then over chunks in order.

use std::ops::Range;

use super::attention::{
    BLOCK, EdgeDropout, Ends, Loops, ROWS_AHEAD, SCORES_AHEAD, add_weighted, dot, padded,
};
use super::edges_per_task;
use super::epilogue::load;
use super::isa::{Simd, exp, kernel};
use super::pool::{Pool, Shared};
use super::reduce::add_in_order;
use super::rows::{Chunk, Rows, Targets, edge_range};
use super::scratch::with_scratch;
use super::softmax::{Running, drop_edge, source_chunks};

/// One attention layer: who attends to whom, and how much.
#[derive(Debug, Clone, Copy)]
pub struct Gat<'a> {
    /// Edges of target `i` (backward: of source `j`) are `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [u64],
    /// Source (backward: target) of each edge.
    pub neighbors: &'a [u32],
    /// Number of heads.
    pub heads: usize,
    /// Slope of LeakyReLU below 0, in `[0, 1]`.
    pub slope: f32,
    /// Which targets also attend to their own local row.
    pub loops: Loops<'a>,
    /// `p`, a score per source and head.
    pub source_scores: Rows<'a>,
    /// `q`, a score per target and head.
    pub target_scores: &'a [f32],
    /// Dropout of the coefficients.
    pub dropout: Option<EdgeDropout<'a>>,
}

/// Writes the attention output and `log sum exp` (per head) of every target.
pub fn gat(pool: &Pool, job: &Gat, z: Rows, targets: Targets, out: &mut [f32], lse: &mut [f32]) {
    let first = targets.first();
    let (out, lse) = (Shared::new(out), Shared::new(lse));
    targets.for_chunks(pool, job.offsets, edges_per_task(z.width), |chunk| {
        with_scratch((BLOCK + 2) * padded(job.heads), |buffer| {
            forward_chunk(job, &z, &chunk, first, out, lse, buffer);
        });
    });
}

kernel! {
    fn forward_chunk<S>(
        job: &Gat,
        z: &Rows,
        chunk: &Chunk,
        first: usize,
        out: Shared<f32>,
        lse: Shared<f32>,
        buffer: &mut [f32],
    ) {
        let (heads, stride) = (job.heads, job.heads.next_multiple_of(S::N));
        let (scores, state) = buffer.split_at_mut(BLOCK * stride);
        let (highest, total) = state.split_at_mut(stride);
        let mut running = Running { highest, total: &mut total[..stride] };
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let (out, lse) =
                unsafe { (out.part((i - first) * z.width, z.width), lse.part((i - first) * heads, heads)) };
            out.fill(0.0);
            running.reset();
            attend::<S>(job, z, i, scores, &mut running, out);
            running.finish(heads, out, lse);
        }
    }
}

/// Adds the blocks of edges of target `i` to `out`.
#[inline(always)]
fn attend<S: Simd>(
    job: &Gat,
    z: &Rows,
    i: usize,
    scores: &mut [f32],
    running: &mut Running,
    out: &mut [f32],
) {
    let edges = job.offsets[i] as usize..job.offsets[i + 1] as usize;
    let start = edges.start;
    let ends = Ends { stored: &job.neighbors[edges], own: job.loops.has(i).then_some(i as u32) };
    let stride = running.highest.len();
    let target_bits = job.dropout.map_or(0, |d| d.target(i));
    for from in (0..ends.len()).step_by(BLOCK) {
        let n = BLOCK.min(ends.len() - from);
        let (block, scores) = (&ends.block(from, n)[..n], &mut scores[..n * stride]);
        for (e, row) in scores.chunks_exact_mut(stride).enumerate() {
            z.prefetch::<S>(job.neighbors, start + from + e + ROWS_AHEAD);
            job.source_scores.prefetch::<S>(job.neighbors, start + from + e + SCORES_AHEAD);
            let q = &job.target_scores[i * job.heads..];
            score_edge::<S>(job, job.source_scores.row(block[e] as usize), q, row);
        }
        running.absorb::<S>(scores, job.heads, out, from > 0);
        if let Some(dropout) = &job.dropout {
            for (e, row) in scores.chunks_exact_mut(stride).enumerate() {
                let source = (from + e < ends.stored.len()).then_some(block[e] as usize);
                drop_edge::<S>(dropout, target_bits, source, row);
            }
        }
        add_weighted::<S>(job.heads, block, scores, stride, z, out);
    }
}

/// `LeakyReLU(p + q)` for all heads of an edge.
#[inline(always)]
fn score_edge<S: Simd>(job: &Gat, p: &[f32], q: &[f32], row: &mut [f32]) {
    for v in (0..job.heads).step_by(S::N) {
        let n = S::N.min(job.heads - v);
        // SAFETY: `v + n` heads are in both slices, and the row is padded to whole registers.
        unsafe {
            let raw = S::add(load::<S>(p[v..v + n].as_ptr(), n), load::<S>(q[v..v + n].as_ptr(), n));
            S::store(row[v..v + S::N].as_mut_ptr(), S::max(raw, S::mul(raw, S::splat(job.slope))));
        }
    }
}

/// What the backward pass reads besides the layer.
#[derive(Debug, Clone, Copy)]
pub struct GatBackward<'a> {
    /// The sources' rows.
    pub z: Rows<'a>,
    /// Gradient of the output.
    pub grad: &'a [f32],
    /// What [`pack_targets`](super::softmax::pack_targets) made of the targets.
    pub packed: &'a [f32],
}

/// Gradients that [`gat_backward`] writes; rows of sources start at the first of `sources`.
#[derive(Debug)]
pub struct GatGradients<'a> {
    /// Of the sources' rows: written.
    pub z: &'a mut [f32],
    /// Of the sources' scores: written.
    pub source_scores: &'a mut [f32],
    /// Of the targets' scores: added to.
    pub target_scores: &'a mut [f32],
}

/// The gradients of [`gat`] for a range of sources (local ones, or the halo); `job` holds **outgoing** lists here.
pub fn gat_backward(
    pool: &Pool,
    job: &Gat,
    saved: &GatBackward,
    sources: Range<usize>,
    gradients: GatGradients,
) {
    let GatGradients { z: dz, source_scores, target_scores } = gradients;
    if sources.is_empty() {
        return;
    }
    let edges = (job.offsets[sources.end] - job.offsets[sources.start]) as usize;
    let (chunks, len) = (source_chunks(edges), target_scores.len());
    let (dz, dp) = (Shared::new(dz), Shared::new(source_scores));
    with_scratch(chunks * len, |parts| {
        let shared = Shared::new(parts);
        pool.for_each(chunks, |c| {
            // SAFETY: each chunk has its own part.
            let part = unsafe { shared.part(c * len, len) };
            part.fill(0.0);
            let rows = edge_range(job.offsets, &sources, chunks, c);
            with_scratch(3 * BLOCK * padded(job.heads), |buffer| {
                backward_rows(job, saved, rows, sources.start, dz, dp, part, buffer);
            });
        });
        add_in_order(pool, parts, target_scores);
    });
}

kernel! {
    fn backward_rows<S>(
        job: &Gat,
        saved: &GatBackward,
        rows: Range<usize>,
        first: usize,
        dz: Shared<f32>,
        dp: Shared<f32>,
        dq: &mut [f32],
        buffer: &mut [f32],
    ) {
        let (heads, width) = (job.heads, saved.z.width);
        for j in rows {
            // SAFETY: sources of different chunks are different rows.
            let (dz, dp) =
                unsafe { (dz.part((j - first) * width, width), dp.part((j - first) * heads, heads)) };
            dz.fill(0.0);
            dp.fill(0.0);
            backward_row::<S>(job, saved, j, buffer, dz, dp, dq);
        }
    }
}

/// One source: blocks of its outgoing edges.
#[inline(always)]
fn backward_row<S: Simd>(
    job: &Gat,
    saved: &GatBackward,
    j: usize,
    buffer: &mut [f32],
    dz: &mut [f32],
    dp: &mut [f32],
    dq: &mut [f32],
) {
    let (heads, width) = (job.heads, saved.z.width);
    let stride = heads.next_multiple_of(S::N);
    let edges = job.offsets[j] as usize..job.offsets[j + 1] as usize;
    let start = edges.start;
    let own = j < saved.z.split && j < saved.packed.len() / (3 * heads) && job.loops.has(j);
    let ends = Ends { stored: &job.neighbors[edges], own: own.then_some(j as u32) };
    let (grads, packed) = (Rows::local(saved.grad, width), Rows::local(saved.packed, 3 * heads));
    for from in (0..ends.len()).step_by(BLOCK) {
        let n = BLOCK.min(ends.len() - from);
        let block = &ends.block(from, n)[..n];
        let (kept, rest) = buffer.split_at_mut(BLOCK * stride);
        let (slope, offset) = rest.split_at_mut(BLOCK * stride);
        for (e, &i) in block.iter().enumerate() {
            grads.prefetch::<S>(job.neighbors, start + from + e + ROWS_AHEAD);
            packed.prefetch::<S>(job.neighbors, start + from + e + SCORES_AHEAD);
            Rows::local(dq, heads).prefetch::<S>(job.neighbors, start + from + e + ROWS_AHEAD);
            let row = e * stride..(e + 1) * stride;
            let out = [&mut kept[row.clone()], &mut slope[row.clone()], &mut offset[row]];
            let loop_edge = from + e >= ends.stored.len();
            coefficients::<S>(job, packed.row(i as usize), j, i as usize, loop_edge, out);
        }
        for (e, &i) in block.iter().enumerate() {
            let row = e * stride..e * stride + heads;
            let dq = &mut dq[i as usize * heads..][..heads];
            let (g, z) = (grads.row(i as usize), saved.z.row(j));
            score_gradients::<S>(g, z, &slope[row.clone()], &offset[row], dp, dq);
        }
        add_weighted::<S>(heads, block, kept, stride, &grads, dz);
    }
}

/// `ds = slope (g . z) - offset`, head by head, for one edge: added to both ends.
#[inline(always)]
fn score_gradients<S: Simd>(
    g: &[f32],
    z: &[f32],
    slope: &[f32],
    offset: &[f32],
    dp: &mut [f32],
    dq: &mut [f32],
) {
    let c = g.len() / dp.len();
    for h in 0..dp.len() {
        let ds = slope[h] * dot::<S>(&g[h * c..][..c], &z[h * c..][..c]) - offset[h];
        dp[h] += ds;
        dq[h] += ds;
    }
}

/// For all heads of edge `j -> i`, with `a` the coefficient, `m` what dropout makes of it and `l` LeakyReLU's slope at the
/// score: `[m, m l, a D_i l]`, so that `ds = (m l) (g . z) - a D_i l`.
#[inline(always)]
fn coefficients<S: Simd>(
    job: &Gat,
    target: &[f32],
    j: usize,
    i: usize,
    loop_edge: bool,
    out: [&mut [f32]; 3],
) {
    let heads = job.heads;
    let p = job.source_scores.row(j);
    let [kept, slope, offset] = out;
    let zero = S::splat(0.0);
    for v in (0..heads).step_by(S::N) {
        let n = S::N.min(heads - v);
        // SAFETY: `v + n` heads are in all slices, and the rows of `out` are padded to whole registers.
        unsafe {
            let [q, lse, d] = [0, heads, 2 * heads].map(|at| target[at + v..at + v + n].as_ptr());
            let raw = S::add(load::<S>(p[v..v + n].as_ptr(), n), load::<S>(q, n));
            let score = S::max(raw, S::mul(raw, S::splat(job.slope)));
            let a = exp::<S>(S::sub(score, load::<S>(lse, n)));
            let l = S::add(S::keep(S::splat(1.0 - job.slope), S::gt(raw, zero)), S::splat(job.slope));
            S::store(kept[v..v + S::N].as_mut_ptr(), a);
            S::store(slope[v..v + S::N].as_mut_ptr(), l);
            S::store(offset[v..v + S::N].as_mut_ptr(), S::mul(S::mul(a, l), load::<S>(d, n)));
        }
    }
    if let Some(dropout) = &job.dropout {
        drop_edge::<S>(dropout, dropout.target(i), (!loop_edge).then_some(j), kept);
    }
    slope.iter_mut().zip(kept.iter()).for_each(|(l, &m)| *l *= m);
}

#[cfg(test)]
pub(crate) mod tests {
    use archipelago_graph::random::{Key, Purpose};
    use proptest::prelude::*;

    use super::super::attention::edge_bits;
    use super::super::dropout;
    use super::super::softmax::pack_targets;
    use super::super::testing::{Lists, away_from_0, close, differences, graph, numbers, wide};
    use super::*;

    /// Scores, softmax, dropout and sum as defined, in f64. `score(j, i, h)`, `message(j)[h * c + x]`.
    pub(crate) fn reference(
        g: &Lists,
        heads: usize,
        c: usize,
        loops: Loops,
        drop: Option<EdgeDropout>,
        score: impl Fn(usize, usize, usize) -> f64,
        message: &[f64],
    ) -> Vec<f64> {
        let n = g.offsets.len() - 1;
        let mut out = vec![0.0; n * heads * c];
        for i in 0..n {
            let mut edges: Vec<(usize, Option<usize>)> = g.neighbors
                [g.offsets[i] as usize..g.offsets[i + 1] as usize]
                .iter()
                .map(|&j| (j as usize, Some(j as usize)))
                .collect();
            if loops.has(i) {
                edges.push((i, None));
            }
            for h in 0..heads {
                let total: f64 = edges.iter().map(|&(j, _)| score(j, i, h).exp()).sum();
                for &(j, key) in &edges {
                    let factor = drop.map_or(1.0, |d| {
                        let bits = edge_bits(d.target(i), d.source(key));
                        if dropout::keeps(bits, h as u32, dropout::threshold(d.rate)) {
                            f64::from(dropout::scale(d.rate))
                        } else {
                            0.0
                        }
                    });
                    for x in 0..c {
                        let at = h * c + x;
                        out[i * heads * c + at] +=
                            score(j, i, h).exp() / total * factor * message[j * heads * c + at];
                    }
                }
            }
        }
        out
    }

    fn leaky(x: f64) -> f64 {
        if x > 0.0 { x } else { 0.2 * x }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn attention_and_its_gradients_match_the_definition(
            degrees in prop::collection::vec(prop_oneof![0usize..6, 30usize..70], 1..5), halo in 0usize..3,
            shape in prop::sample::select(&[(1usize, 1usize), (1, 5), (2, 3), (4, 8), (3, 1), (9, 2)][..]),
            loops in 0usize..3, marks in prop::collection::vec(any::<bool>(), 5), drop in any::<bool>(), seed in any::<u64>(),
        ) {
            let ((heads, c), n) = (shape, degrees.len());
            let (sources, width) = (n + halo, heads * c);
            let g = graph(seed, &degrees, sources);
            let (z, p, q) = (numbers(seed ^ 1, sources * width), numbers(seed ^ 2, sources * heads), numbers(seed ^ 3, n * heads));
            // LeakyReLU has no slope at 0, so differences say nothing next to it.
            prop_assume!(away_from_0(&p, &q));
            let ids: Vec<u64> = (0..sources as u64).map(|i| i * 3 + 1).collect();
            let drop = drop.then_some(EdgeDropout { rate: 0.3, key: Key::new(seed, Purpose::AttentionDropout), targets: &ids[..n], sources: &ids });
            let rows = Rows { local: &z[..n * width], halo: &z[n * width..], split: n, width };
            let scores = Rows { local: &p[..n * heads], halo: &p[n * heads..], split: n, width: heads };
            let loops = [Loops::None, Loops::All, Loops::Of(&marks)][loops];
            let job = Gat {
                offsets: &g.offsets, neighbors: &g.neighbors, heads, slope: 0.2, loops,
                source_scores: scores, target_scores: &q, dropout: drop,
            };
            let model = |z: &[f64], p: &[f64], q: &[f64]| reference(&g, heads, c, loops, drop, |j, i, h| leaky(p[j * heads + h] + q[i * heads + h]), z);
            let (mut out, mut lse) = (vec![9.0; n * width], vec![9.0; n * heads]);
            gat(&Pool::new(2), &job, rows, Targets::All(n), &mut out, &mut lse);
            let expected: Vec<f32> = model(&wide(&z), &wide(&p), &wide(&q)).iter().map(|&v| v as f32).collect();
            close(&out, &expected, 1e-5);

            let upstream = numbers(seed ^ 4, n * width);
            let back = g.transposed(sources);
            let mut packed = vec![0.0; 3 * n * heads];
            pack_targets(&Pool::new(2), heads, &q, &lse, &out, &upstream, &mut packed);
            let job = Gat { offsets: &back.offsets, neighbors: &back.neighbors, ..job };
            let saved = GatBackward { z: rows, grad: &upstream, packed: &packed };
            let (mut dz, mut dp, mut dq) = (vec![0.0; z.len()], vec![0.0; p.len()], vec![0.0; q.len()]);
            for (range, at) in [(0..n, 0), (n..sources, n)] {
                let gradients = GatGradients { z: &mut dz[at * width..], source_scores: &mut dp[at * heads..], target_scores: &mut dq };
                gat_backward(&Pool::new(2), &job, &saved, range, gradients);
            }
            let loss = |z: &[f64], p: &[f64], q: &[f64]| -> f64 {
                model(z, p, q).iter().zip(&upstream).map(|(y, u)| y * f64::from(*u)).sum()
            };
            close(&dz, &differences(&z, |z| loss(z, &wide(&p), &wide(&q))), 1e-4);
            close(&dp, &differences(&p, |p| loss(&wide(&z), p, &wide(&q))), 1e-4);
            close(&dq, &differences(&q, |q| loss(&wide(&z), &wide(&p), q)), 1e-4);
        }
    }

    #[test]
    fn both_passes_give_the_same_bits_for_any_number_of_threads() {
        let (n, heads, c) = (3000, 4, 8);
        let g = graph(1, &[20; 3000], n);
        let back = g.transposed(n);
        let (z, p, q) = (numbers(1, n * heads * c), numbers(2, n * heads), numbers(3, n * heads));
        let rows = Rows::local(&z, heads * c);
        let job = Gat {
            offsets: &g.offsets,
            neighbors: &g.neighbors,
            heads,
            slope: 0.2,
            loops: Loops::All,
            source_scores: Rows::local(&p, heads),
            target_scores: &q,
            dropout: None,
        };
        let run = |threads| {
            let pool = Pool::new(threads);
            let (mut out, mut lse, mut packed) =
                (vec![0.0; z.len()], vec![0.0; p.len()], vec![0.0; 3 * p.len()]);
            gat(&pool, &job, rows, Targets::All(n), &mut out, &mut lse);
            pack_targets(&pool, heads, &q, &lse, &out, &z, &mut packed);
            let (mut dz, mut dp, mut dq) = (vec![0.0; z.len()], vec![0.0; p.len()], vec![0.0; q.len()]);
            let gradients = GatGradients { z: &mut dz, source_scores: &mut dp, target_scores: &mut dq };
            let job = Gat { offsets: &back.offsets, neighbors: &back.neighbors, ..job };
            gat_backward(&pool, &job, &GatBackward { z: rows, grad: &z, packed: &packed }, 0..n, gradients);
            (out, dz, dp, dq)
        };
        assert!(run(1) == run(3));
    }
}
