//! What if attention may depend on both ends of an edge at once? GATv2 (Brody, Alon & Yahav 2022).
//!
//! Per head: `s_ji = att . LeakyReLU(l_j + r_i)`, `a_ji = softmax over in(i) of s_ji`, `out_i = sum of a_ji l_j`. As in
//! [`gat`](super::gat) nothing is stored per edge. Backward has two passes, each recomputing the coefficients, with
//! `ds_ji = a (g_i . l_j - D_i)` and `t = l_j + r_i`:
//! along in-edges `dr_i = sum of ds att LeakyReLU'(t)` and `datt = sum of ds LeakyReLU(t)`;
//! along out-edges `dl_j = sum of a g_i + ds att LeakyReLU'(t)`.

use std::ops::Range;

use super::attention::{BLOCK, EdgeDropout, Ends, Loops, ROWS_AHEAD, add_weighted, axpy, dot, padded};
use super::epilogue::{load, store};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::reduce::add_in_order;
use super::rows::{Chunk, Rows, Targets, edge_range};
use super::scratch::with_scratch;
use super::softmax::{Running, drop_edge, source_chunks};
use super::{AHEAD, edges_per_task};

/// One attention layer: who attends to whom, and how much.
#[derive(Debug, Clone, Copy)]
pub struct Gatv2<'a> {
    /// Edges of target `i` (of source `j` in [`gatv2_backward_sources`]) are `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [u64],
    /// Source (or target) of each edge.
    pub neighbors: &'a [u32],
    /// Number of heads.
    pub heads: usize,
    /// Slope of LeakyReLU below 0, in `[0, 1]`.
    pub slope: f32,
    /// Which targets also attend to their own local row.
    pub loops: Loops<'a>,
    /// The attention vector, a part per head.
    pub att: &'a [f32],
    /// `l`, a row per source.
    pub sources: Rows<'a>,
    /// `r`, a row per target.
    pub targets: &'a [f32],
    /// Dropout of the coefficients.
    pub dropout: Option<EdgeDropout<'a>>,
}

impl Gatv2<'_> {
    #[inline(always)]
    fn target_row(&self, i: usize) -> &[f32] {
        &self.targets[i * self.sources.width..][..self.sources.width]
    }

    /// The score of edge `j -> i`, head by head.
    #[inline(always)]
    fn score<S: Simd>(&self, j: usize, i: usize, out: &mut [f32]) {
        let (l, r, c) = (self.sources.row(j), self.target_row(i), self.sources.width / self.heads);
        for (h, out) in out.iter_mut().take(self.heads).enumerate() {
            let head = h * c..(h + 1) * c;
            *out = leaky_dot::<S>(&self.att[head.clone()], &l[head.clone()], &r[head], self.slope);
        }
    }

    /// For edge `j -> i` and gradient `g` of target `i`: `[coefficients after dropout, ds]`, head by head.
    #[inline(always)]
    fn gradients<S: Simd>(
        &self,
        packed: &[f32],
        g: &[f32],
        j: usize,
        i: usize,
        loop_edge: bool,
        kept: &mut [f32],
        ds: &mut [f32],
    ) {
        let (heads, c) = (self.heads, self.sources.width / self.heads);
        let (l, target) = (self.sources.row(j), &packed[i * 3 * heads..][..3 * heads]);
        self.score::<S>(j, i, kept);
        for h in 0..heads {
            kept[h] = (kept[h] - target[heads + h]).exp();
            ds[h] = kept[h] * target[2 * heads + h];
        }
        if let Some(dropout) = &self.dropout {
            drop_edge::<S>(dropout, dropout.target(i), (!loop_edge).then_some(j), kept);
        }
        for h in 0..heads {
            ds[h] = kept[h] * dot::<S>(&g[h * c..][..c], &l[h * c..][..c]) - ds[h];
        }
    }
}

/// Writes the attention output and `log sum exp` (per head) of every target.
pub fn gatv2(pool: &Pool, job: &Gatv2, targets: Targets, out: &mut [f32], lse: &mut [f32]) {
    let first = targets.first();
    let (out, lse) = (Shared::new(out), Shared::new(lse));
    targets.for_chunks(pool, job.offsets, edges_per_task(job.sources.width), |chunk| {
        with_scratch((BLOCK + 2) * padded(job.heads), |buffer| {
            forward_chunk(job, &chunk, first, out, lse, buffer);
        });
    });
}

kernel! {
    fn forward_chunk<S>(
        job: &Gatv2,
        chunk: &Chunk,
        first: usize,
        out: Shared<f32>,
        lse: Shared<f32>,
        buffer: &mut [f32],
    ) {
        let (heads, width, stride) = (job.heads, job.sources.width, job.heads.next_multiple_of(S::N));
        let (scores, state) = buffer.split_at_mut(BLOCK * stride);
        scores.fill(0.0);
        let (highest, total) = state.split_at_mut(stride);
        let mut running = Running { highest, total: &mut total[..stride] };
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let (out, lse) =
                unsafe { (out.part((i - first) * width, width), lse.part((i - first) * heads, heads)) };
            out.fill(0.0);
            running.reset();
            attend::<S>(job, i, scores, &mut running, out);
            running.finish(heads, out, lse);
        }
    }
}

/// Adds the blocks of edges of target `i` to `out`.
#[inline(always)]
fn attend<S: Simd>(job: &Gatv2, i: usize, scores: &mut [f32], running: &mut Running, out: &mut [f32]) {
    let edges = job.offsets[i] as usize..job.offsets[i + 1] as usize;
    let start = edges.start;
    let ends = Ends { stored: &job.neighbors[edges], own: job.loops.has(i).then_some(i as u32) };
    let stride = running.highest.len();
    let target_bits = job.dropout.map_or(0, |d| d.target(i));
    for from in (0..ends.len()).step_by(BLOCK) {
        let n = BLOCK.min(ends.len() - from);
        let (block, scores) = (&ends.block(from, n)[..n], &mut scores[..n * stride]);
        for (e, row) in scores.chunks_exact_mut(stride).enumerate() {
            job.sources.prefetch::<S>(job.neighbors, start + from + e + ROWS_AHEAD);
            job.score::<S>(block[e] as usize, i, row);
        }
        running.absorb::<S>(scores, job.heads, out, from > 0);
        if let Some(dropout) = &job.dropout {
            for (e, row) in scores.chunks_exact_mut(stride).enumerate() {
                let source = (from + e < ends.stored.len()).then_some(block[e] as usize);
                drop_edge::<S>(dropout, target_bits, source, row);
            }
        }
        add_weighted::<S>(job.heads, block, scores, stride, &job.sources, out);
    }
}

/// Backward along in-edges: writes `dr` of all `targets` targets and adds to `datt`. `packed` is what
/// [`pack_targets`](super::softmax::pack_targets) made of the targets (without scores), `grad` the gradient of the output.
pub fn gatv2_backward_targets(
    pool: &Pool,
    job: &Gatv2,
    packed: &[f32],
    grad: &[f32],
    targets: usize,
    dr: &mut [f32],
    datt: &mut [f32],
) {
    if targets == 0 {
        return;
    }
    let (chunks, len) = (source_chunks(job.offsets[targets] as usize), datt.len());
    let dr = Shared::new(dr);
    with_scratch(chunks * len, |parts| {
        let shared = Shared::new(parts);
        pool.for_each(chunks, |c| {
            // SAFETY: each chunk has its own part.
            let part = unsafe { shared.part(c * len, len) };
            part.fill(0.0);
            let rows = edge_range(job.offsets, &(0..targets), chunks, c);
            with_scratch(2 * padded(job.heads), |buffer| {
                buffer.fill(0.0);
                target_rows(job, packed, grad, rows, dr, part, buffer);
            });
        });
        add_in_order(pool, parts, datt);
    });
}

kernel! {
    fn target_rows<S>(
        job: &Gatv2,
        packed: &[f32],
        grad: &[f32],
        rows: Range<usize>,
        dr: Shared<f32>,
        datt: &mut [f32],
        buffer: &mut [f32],
    ) {
        let (width, heads) = (job.sources.width, job.heads);
        for i in rows {
            // SAFETY: targets of different chunks are different rows.
            let dr = unsafe { dr.part(i * width, width) };
            dr.fill(0.0);
            let (start, last) = (job.offsets[i] as usize, job.offsets[i + 1] as usize);
            for e in start..last + usize::from(job.loops.has(i)) {
                job.sources.prefetch::<S>(job.neighbors, e + AHEAD);
                let j = if e < last { job.neighbors[e] as usize } else { i };
                let (kept, ds) = buffer.split_at_mut(padded(heads));
                job.gradients::<S>(packed, &grad[i * width..][..width], j, i, e >= last, kept, ds);
                let (l, r) = (job.sources.row(j), job.target_row(i));
                for (h, &ds) in ds[..heads].iter().enumerate() {
                    let c = h * width / heads..(h + 1) * width / heads;
                    let (l, r) = (&l[c.clone()], &r[c.clone()]);
                    pull_back::<S>(ds, &job.att[c.clone()], l, r, job.slope, &mut dr[c.clone()]);
                    leaky_axpy::<S>(ds, l, r, job.slope, &mut datt[c]);
                }
            }
        }
    }
}

/// Backward along **outgoing** lists (held by `job` here): writes `dl` of a range of sources, from its first on.
pub fn gatv2_backward_sources(
    pool: &Pool,
    job: &Gatv2,
    packed: &[f32],
    grad: &[f32],
    sources: Range<usize>,
    dl: &mut [f32],
) {
    let (first, dl) = (sources.start, Shared::new(dl));
    Targets::Range(sources).for_chunks(pool, job.offsets, edges_per_task(job.sources.width), |chunk| {
        with_scratch(2 * padded(job.heads), |buffer| {
            buffer.fill(0.0);
            source_rows(job, packed, grad, &chunk, first, dl, buffer);
        });
    });
}

kernel! {
    fn source_rows<S>(
        job: &Gatv2,
        packed: &[f32],
        grad: &[f32],
        chunk: &Chunk,
        first: usize,
        dl: Shared<f32>,
        buffer: &mut [f32],
    ) {
        let (width, heads) = (job.sources.width, job.heads);
        let (grads, targets) = (Rows::local(grad, width), Rows::local(job.targets, width));
        let packs = Rows::local(packed, 3 * heads);
        for k in 0..chunk.len() {
            let j = chunk.target(k);
            // SAFETY: sources of different chunks are different rows.
            let dl = unsafe { dl.part((j - first) * width, width) };
            dl.fill(0.0);
            let (start, last) = (job.offsets[j] as usize, job.offsets[j + 1] as usize);
            let own = j < job.sources.split && j < packed.len() / (3 * heads) && job.loops.has(j);
            for e in start..last + usize::from(own) {
                grads.prefetch::<S>(job.neighbors, e + AHEAD);
                targets.prefetch::<S>(job.neighbors, e + AHEAD);
                packs.prefetch::<S>(job.neighbors, e + AHEAD);
                let i = if e < last { job.neighbors[e] as usize } else { j };
                let (kept, ds) = buffer.split_at_mut(padded(heads));
                job.gradients::<S>(packed, grads.row(i), j, i, e >= last, kept, ds);
                let (l, r, g) = (job.sources.row(j), job.target_row(i), grads.row(i));
                for h in 0..heads {
                    let c = h * width / heads..(h + 1) * width / heads;
                    let dl = &mut dl[c.clone()];
                    axpy::<S>(kept[h], &g[c.clone()], dl);
                    pull_back::<S>(ds[h], &job.att[c.clone()], &l[c.clone()], &r[c], job.slope, dl);
                }
            }
        }
    }
}

/// Calls `each(c, n, l + r, LeakyReLU of it)` for the registers of a head.
#[inline(always)]
fn for_lanes<S: Simd>(l: &[f32], r: &[f32], slope: f32, mut each: impl FnMut(usize, usize, S::V, S::V)) {
    let r = &r[..l.len()];
    for c in (0..l.len()).step_by(S::N) {
        let n = S::N.min(l.len() - c);
        // SAFETY: `c + n` is within both rows.
        let t = unsafe { S::add(load::<S>(l.as_ptr().add(c), n), load::<S>(r.as_ptr().add(c), n)) };
        each(c, n, t, S::max(t, S::mul(t, S::splat(slope))));
    }
}

/// `att . LeakyReLU(l + r)`.
#[inline(always)]
fn leaky_dot<S: Simd>(att: &[f32], l: &[f32], r: &[f32], slope: f32) -> f32 {
    let mut sum = S::splat(0.0);
    for_lanes::<S>(
        l,
        r,
        slope,
        #[inline(always)]
        |c, n, _, leaky| {
            // SAFETY: the slice checks the bounds.
            let att = unsafe { load::<S>(att[c..c + n].as_ptr(), n) };
            sum = S::fma(leaky, att, sum);
        },
    );
    S::sum(sum)
}

/// `out += ds * LeakyReLU(l + r)`.
#[inline(always)]
fn leaky_axpy<S: Simd>(ds: f32, l: &[f32], r: &[f32], slope: f32, out: &mut [f32]) {
    for_lanes::<S>(
        l,
        r,
        slope,
        #[inline(always)]
        |c, n, _, leaky| {
            let out = &mut out[c..c + n];
            // SAFETY: `out` has `n` floats.
            unsafe {
                store::<S>(out.as_mut_ptr(), n, S::fma(S::splat(ds), leaky, load::<S>(out.as_ptr(), n)))
            };
        },
    );
}

/// `out += ds * att * LeakyReLU'(l + r)`.
#[inline(always)]
fn pull_back<S: Simd>(ds: f32, att: &[f32], l: &[f32], r: &[f32], slope: f32, out: &mut [f32]) {
    for_lanes::<S>(
        l,
        r,
        slope,
        #[inline(always)]
        |c, n, t, _| {
            let (att, out) = (&att[c..c + n], &mut out[c..c + n]);
            let steep =
                S::add(S::keep(S::splat(ds - ds * slope), S::gt(t, S::splat(0.0))), S::splat(ds * slope));
            // SAFETY: both have `n` floats.
            unsafe {
                store::<S>(
                    out.as_mut_ptr(),
                    n,
                    S::fma(steep, load::<S>(att.as_ptr(), n), load::<S>(out.as_ptr(), n)),
                )
            };
        },
    );
}

#[cfg(test)]
mod tests {
    use archipelago_graph::random::{Key, Purpose};
    use proptest::prelude::*;

    use super::super::gat::tests::reference;
    use super::super::softmax::pack_targets;
    use super::super::testing::{away_from_0, close, differences, graph, numbers, wide};
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn attention_and_its_gradients_match_the_definition(
            degrees in prop::collection::vec(prop_oneof![0usize..6, 30usize..70], 1..4), halo in 0usize..3,
            shape in prop::sample::select(&[(1usize, 1usize), (1, 5), (2, 3), (4, 8), (9, 2)][..]),
            loops in 0usize..3, marks in prop::collection::vec(any::<bool>(), 5), drop in any::<bool>(), seed in any::<u64>(),
        ) {
            let ((heads, c), n) = (shape, degrees.len());
            let (sources, width) = (n + halo, heads * c);
            let g = graph(seed, &degrees, sources);
            let (l, r, att) = (numbers(seed ^ 1, sources * width), numbers(seed ^ 2, n * width), numbers(seed ^ 3, width));
            // LeakyReLU has no slope at 0, so differences say nothing next to it.
            prop_assume!(away_from_0(&l, &r));
            let ids: Vec<u64> = (0..sources as u64).map(|i| i * 3 + 1).collect();
            let drop = drop.then_some(EdgeDropout { rate: 0.3, key: Key::new(seed, Purpose::AttentionDropout), targets: &ids[..n], sources: &ids });
            let rows = Rows { local: &l[..n * width], halo: &l[n * width..], split: n, width };
            let loops = [Loops::None, Loops::All, Loops::Of(&marks)][loops];
            let job = Gatv2 {
                offsets: &g.offsets, neighbors: &g.neighbors, heads, slope: 0.2, loops, att: &att, sources: rows, targets: &r, dropout: drop,
            };
            let model = |l: &[f64], r: &[f64], att: &[f64]| {
                let score = |j: usize, i: usize, h: usize| {
                    let term = |x: usize| {
                        let t = l[j * width + h * c + x] + r[i * width + h * c + x];
                        att[h * c + x] * if t > 0.0 { t } else { 0.2 * t }
                    };
                    (0..c).map(term).sum::<f64>()
                };
                reference(&g, heads, c, loops, drop, score, l)
            };
            let (mut out, mut lse) = (vec![9.0; n * width], vec![9.0; n * heads]);
            gatv2(&Pool::new(2), &job, Targets::All(n), &mut out, &mut lse);
            let expected: Vec<f32> = model(&wide(&l), &wide(&r), &wide(&att)).iter().map(|&v| v as f32).collect();
            close(&out, &expected, 1e-5);

            let upstream = numbers(seed ^ 4, n * width);
            let mut packed = vec![0.0; 3 * n * heads];
            let pool = Pool::new(2);
            pack_targets(&pool, heads, &[], &lse, &out, &upstream, &mut packed);
            let (mut dl, mut dr, mut datt) = (vec![0.0; l.len()], vec![0.0; r.len()], vec![0.0; width]);
            gatv2_backward_targets(&pool, &job, &packed, &upstream, n, &mut dr, &mut datt);
            let back = g.transposed(sources);
            let job = Gatv2 { offsets: &back.offsets, neighbors: &back.neighbors, ..job };
            gatv2_backward_sources(&pool, &job, &packed, &upstream, 0..n, &mut dl[..n * width]);
            gatv2_backward_sources(&pool, &job, &packed, &upstream, n..sources, &mut dl[n * width..]);
            let loss = |l: &[f64], r: &[f64], att: &[f64]| -> f64 {
                model(l, r, att).iter().zip(&upstream).map(|(y, u)| y * f64::from(*u)).sum()
            };
            close(&dl, &differences(&l, |l| loss(l, &wide(&r), &wide(&att))), 2e-4);
            close(&dr, &differences(&r, |r| loss(&wide(&l), r, &wide(&att))), 2e-4);
            close(&datt, &differences(&att, |att| loss(&wide(&l), &wide(&r), att)), 2e-4);
        }
    }
}
