//! What do a node's neighbours add up to? Linear aggregation, forward and (on the transposed lists) backward.
//!
//! `out_i (+)= t_i * sum over edges e = (j -> i) of w_e * (s_j * row_j)  +  c_i * (s_i * row_i)`
//!
//! Sum, mean, GCN's normalisation and GIN's self term are choices of the scales. The gradient of this map is the same
//! map along outgoing edges with `s` and `t` exchanged, so there is no backward kernel.
//!
//! A block of columns is accumulated in registers while the rows of later edges are requested from memory: the time
//! is that of reading `edges * width` floats. Where every row is read by several edges, they are read from the cache
//! (see `panel`).

use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::rows::{Chunk, Rows, Targets};
use super::{AHEAD, edges_per_task, panel};

/// The adjacency and scales of one aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Gather<'a> {
    /// Edges of target `i` are `offsets[i]..offsets[i + 1]`.
    pub offsets: &'a [u64],
    /// Source of each edge.
    pub neighbors: &'a [u32],
    /// Weight of each edge, else 1.
    pub weights: Option<&'a [f32]>,
    /// Factor of each source row, else 1.
    pub source_scale: Option<&'a [f32]>,
    /// Factor of each target's sum, else 1.
    pub target_scale: Option<&'a [f32]>,
    /// Factor of a target's own local row, times that of the row as a source, else the row is not added. Targets outside
    /// the local rows have none.
    pub self_scale: Option<&'a [f32]>,
}

impl<'a> Gather<'a> {
    /// The plain sum over in-edges.
    pub fn sum(offsets: &'a [u64], neighbors: &'a [u32]) -> Self {
        Self { offsets, neighbors, weights: None, source_scale: None, target_scale: None, self_scale: None }
    }
}

/// Writes (or, with `accumulate`, adds) the aggregate of every target.
pub fn gather(pool: &Pool, graph: &Gather, rows: Rows, targets: Targets, out: &mut [f32], accumulate: bool) {
    let (first, out) = (targets.first(), Shared::new(out));
    if panel::pays(rows.count(), targets.edges(graph.offsets), rows.width, graph.neighbors) {
        return panel::gather_panels(pool, graph, rows, &targets, out, accumulate);
    }
    targets.for_chunks(pool, graph.offsets, edges_per_task(rows.width), |chunk| {
        gather_chunk(graph, &rows, &chunk, first, out, accumulate);
    });
}

kernel! {
    fn gather_chunk<S>(graph: &Gather, rows: &Rows, chunk: &Chunk, first: usize, out: Shared<f32>, accumulate: bool) {
        for k in 0..chunk.len() {
            let i = chunk.target(k);
            // SAFETY: targets of different chunks are different rows.
            let out = unsafe { out.part((i - first) * rows.width, rows.width) };
            gather_row::<S>(graph, rows, i, out, accumulate);
        }
    }
}

/// One target: blocks of sixteen registers (a row of 128 columns is then read once, from end to end; that an AVX2
/// machine keeps one or two of them in the cache costs less than reading in two halves), then of eight, then fewer.
#[inline(always)]
fn gather_row<S: Simd>(graph: &Gather, rows: &Rows, i: usize, out: &mut [f32], accumulate: bool) {
    let mut c = 0;
    while rows.width - c >= 16 * S::N {
        gather_block::<S, 16, false>(graph, rows, i, c, out, accumulate);
        c += 16 * S::N;
    }
    if rows.width - c >= 8 * S::N {
        gather_block::<S, 8, false>(graph, rows, i, c, out, accumulate);
        c += 8 * S::N;
    }
    let left = rows.width - c;
    let partial = !left.is_multiple_of(S::N);
    macro_rules! block {
        ($($k:literal)*) => {
            match (left.div_ceil(S::N), partial) {
                $(($k, false) => gather_block::<S, $k, false>(graph, rows, i, c, out, accumulate),
                ($k, true) => gather_block::<S, $k, true>(graph, rows, i, c, out, accumulate),)*
                _ => {}
            }
        };
    }
    block!(1 2 3 4 5 6 7 8);
}

/// `K` registers of columns from `c` on; with `PARTIAL`, the last register reaches past the end of the row.
#[inline(always)]
fn gather_block<S: Simd, const K: usize, const PARTIAL: bool>(
    graph: &Gather,
    rows: &Rows,
    i: usize,
    c: usize,
    out: &mut [f32],
    accumulate: bool,
) {
    let mut sum = [S::splat(0.0); K];
    let edges = graph.offsets[i] as usize..graph.offsets[i + 1] as usize;
    let neighbors = &graph.neighbors[edges.clone()];
    for (&j, e) in neighbors.iter().zip(edges) {
        if c == 0 {
            rows.prefetch::<S>(graph.neighbors, e + AHEAD);
        }
        let weight = graph.weights.map_or(1.0, |w| w[e]);
        add_source::<S, K, PARTIAL>(graph, &mut sum, weight, j as usize, &rows.row(j as usize)[c..]);
    }
    scale_sum::<S, K>(graph, i, &mut sum);
    if let Some(scale) = graph.self_scale.filter(|_| i < rows.split) {
        add_source::<S, K, PARTIAL>(graph, &mut sum, scale[i], i, &rows.row(i)[c..]);
    }
    if accumulate {
        add_row::<S, K, PARTIAL>(&mut sum, 1.0, &out[c..]);
    }
    store_row::<S, K, PARTIAL>(&sum, &mut out[c..]);
}

/// Adds the row of source `j`, times its factor, times `weight`: two roundings, as when the product is kept in a panel.
#[inline(always)]
fn add_source<S: Simd, const K: usize, const PARTIAL: bool>(
    graph: &Gather,
    sum: &mut [S::V; K],
    weight: f32,
    j: usize,
    row: &[f32],
) {
    let Some(scale) = graph.source_scale else { return add_row::<S, K, PARTIAL>(sum, weight, row) };
    let mut scaled = [S::splat(-0.0); K];
    add_row::<S, K, PARTIAL>(&mut scaled, scale[j], row);
    let weight = S::splat(weight);
    for (sum, scaled) in sum.iter_mut().zip(scaled) {
        *sum = S::fma(weight, scaled, *sum);
    }
}

/// The target's factor.
#[inline(always)]
pub(super) fn scale_sum<S: Simd, const K: usize>(graph: &Gather, i: usize, sum: &mut [S::V; K]) {
    if let Some(scale) = graph.target_scale {
        let scale = S::splat(scale[i]);
        for v in sum.iter_mut() {
            *v = S::mul(*v, scale);
        }
    }
}

/// `sum += scale * row`, over `K` registers.
#[inline(always)]
pub(crate) fn add_row<S: Simd, const K: usize, const PARTIAL: bool>(
    sum: &mut [S::V; K],
    scale: f32,
    row: &[f32],
) {
    let scale = S::splat(scale);
    assert!(row.len() > (K - 1) * S::N && (PARTIAL || row.len() >= K * S::N));
    for (r, sum) in sum.iter_mut().enumerate() {
        // SAFETY: the row reaches into the last register, and past it unless that register is partial.
        let v = unsafe {
            let p = row.as_ptr().add(r * S::N);
            if PARTIAL && r + 1 == K { S::load_first(p, row.len() - r * S::N) } else { S::load(p) }
        };
        *sum = S::fma(scale, v, *sum);
    }
}

/// Writes `K` registers to `row`.
#[inline(always)]
pub(crate) fn store_row<S: Simd, const K: usize, const PARTIAL: bool>(sum: &[S::V; K], row: &mut [f32]) {
    assert!(row.len() > (K - 1) * S::N && (PARTIAL || row.len() >= K * S::N));
    for (r, &v) in sum.iter().enumerate() {
        // SAFETY: as in `add_row`.
        unsafe {
            let p = row.as_mut_ptr().add(r * S::N);
            if PARTIAL && r + 1 == K { S::store_first(p, row.len() - r * S::N, v) } else { S::store(p, v) }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::isa::Isa;
    use super::super::testing::{WIDTHS, close, graph, numbers};
    use super::*;

    /// The definition, in f64.
    fn reference(g: &Gather, rows: Rows, i: usize) -> Vec<f32> {
        let at = |s: Option<&[f32]>, k: usize| f64::from(s.map_or(1.0, |s| s[k]));
        let mut sum = vec![0.0f64; rows.width];
        for e in g.offsets[i] as usize..g.offsets[i + 1] as usize {
            let j = g.neighbors[e] as usize;
            let w = at(g.weights, e) * at(g.source_scale, j) * at(g.target_scale, i);
            sum.iter_mut().zip(rows.row(j)).for_each(|(s, &x)| *s += w * f64::from(x));
        }
        if let Some(scale) = g.self_scale {
            let own = f64::from(scale[i]) * at(g.source_scale, i);
            sum.iter_mut().zip(rows.row(i)).for_each(|(s, &x)| *s += own * f64::from(x));
        }
        sum.into_iter().map(|s| s as f32).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn a_gather_is_the_weighted_sum_of_its_rows(
            degrees in prop::collection::vec(0usize..30, 0..24), halo in 0usize..9, width in prop::sample::select(WIDTHS),
            scaled in any::<[bool; 4]>(), accumulate in any::<bool>(), seed in any::<u64>(),
        ) {
            let n = degrees.len();
            let g = graph(seed, &degrees, n + halo);
            let (local, far) = (numbers(seed ^ 1, n * width), numbers(seed ^ 2, halo * width));
            let rows = Rows { local: &local, halo: &far, split: n, width };
            let (w, s, t, own) = (numbers(3, g.neighbors.len()), numbers(4, n + halo), numbers(5, n), numbers(6, n));
            let pick = |on: bool, v| if on { Some(v) } else { None };
            let job = Gather {
                offsets: &g.offsets, neighbors: &g.neighbors, weights: pick(scaled[0], &w[..]),
                source_scale: pick(scaled[1], &s[..]), target_scale: pick(scaled[2], &t[..]), self_scale: pick(scaled[3], &own[..]),
            };
            let before = numbers(7, n * width);
            let expected: Vec<f32> = (0..n).flat_map(|i| reference(&job, rows, i)).zip(&before)
                .map(|(x, b)| if accumulate { x + b } else { x }).collect();
            for isa in Isa::available() {
                let mut out = before.clone();
                isa.force(|| gather(&Pool::new(1), &job, rows, Targets::All(n), &mut out, accumulate));
                close(&out, &expected, 1e-5);
            }
            let (mut one, mut two) = (before.clone(), before.clone());
            gather(&Pool::new(1), &job, rows, Targets::All(n), &mut one, accumulate);
            gather(&Pool::new(2), &job, rows, Targets::All(n), &mut two, accumulate);
            prop_assert_eq!(&one, &two);
            let listed: Vec<u32> = (0..n as u32).filter(|i| i % 3 != 1).collect();
            let mut some = before.clone();
            gather(&Pool::new(2), &job, rows, Targets::Listed(&listed), &mut some, accumulate);
            for i in 0..n {
                let from = if i % 3 == 1 { &before } else { &one };
                prop_assert_eq!(&some[i * width..][..width], &from[i * width..][..width]);
            }
            let from = n / 2;
            let mut tail = before[from * width..].to_vec();
            gather(&Pool::new(2), &job, rows, Targets::Range(from..n), &mut tail, accumulate);
            prop_assert_eq!(&tail[..], &one[from * width..]);
        }
    }

    fn by_panels(threads: usize, job: &Gather, rows: Rows, n: usize, out: &mut [f32], accumulate: bool) {
        panel::gather_panels(&Pool::new(threads), job, rows, &Targets::All(n), Shared::new(out), accumulate);
    }

    fn by_narrow_panels(job: &Gather, rows: Rows, n: usize, out: &mut [f32], accumulate: bool) {
        let (pool, targets) = (Pool::new(2), Targets::All(n));
        panel::gather_columns::<{ super::super::LINE }>(
            &pool,
            job,
            rows,
            &targets,
            Shared::new(out),
            accumulate,
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_gather_by_panels_has_the_bits_of_one_without(
            n in 1usize..40, halo in 0usize..9, width in prop::sample::select(&[17usize, 32, 40, 47, 64][..]),
            scaled in any::<[bool; 4]>(), accumulate in any::<bool>(), seed in any::<u64>(),
        ) {
            let g = graph(seed, &vec![20; n], n + halo);
            let (local, far) = (numbers(seed ^ 1, n * width), numbers(seed ^ 2, halo * width));
            let rows = Rows { local: &local, halo: &far, split: n, width };
            let (w, mut s, t, own) = (numbers(3, g.neighbors.len()), numbers(4, n + halo), numbers(5, n), numbers(6, n));
            s[0] = 0.0;
            let pick = |on: bool, v| if on { Some(v) } else { None };
            let job = Gather {
                offsets: &g.offsets, neighbors: &g.neighbors, weights: pick(scaled[0], &w[..]),
                source_scale: pick(scaled[1], &s[..]), target_scale: pick(scaled[2], &t[..]), self_scale: pick(scaled[3], &own[..]),
            };
            let before = numbers(7, n * width);
            let expected: Vec<f32> = (0..n).flat_map(|i| reference(&job, rows, i)).zip(&before)
                .map(|(x, b)| if accumulate { x + b } else { x }).collect();
            for isa in Isa::available() {
                let mut out = before.clone();
                isa.force(|| by_panels(1, &job, rows, n, &mut out, accumulate));
                close(&out, &expected, 1e-5);
                let mut narrow = before.clone();
                isa.force(|| by_narrow_panels(&job, rows, n, &mut narrow, accumulate));
                prop_assert_eq!(&out, &narrow);
                let mut plain = before.clone();
                isa.force(|| gather(&Pool::new(1), &job, rows, Targets::All(n), &mut plain, accumulate));
                prop_assert_eq!(&out, &plain);
            }
            let (mut one, mut two) = (before.clone(), before.clone());
            by_panels(1, &job, rows, n, &mut one, accumulate);
            by_panels(2, &job, rows, n, &mut two, accumulate);
            prop_assert_eq!(&one, &two);
        }
    }

    #[test]
    fn gathering_along_outgoing_edges_is_the_adjoint() {
        let (n, width) = (20, 13);
        let g = graph(9, &[5; 20], n);
        let back = g.transposed(n);
        let (x, y) = (numbers(1, n * width), numbers(2, n * width));
        let (s, t) = (numbers(3, n), numbers(4, n));
        let forward = Gather {
            source_scale: Some(&s),
            target_scale: Some(&t),
            ..Gather::sum(&g.offsets, &g.neighbors)
        };
        let backward = Gather {
            source_scale: Some(&t),
            target_scale: Some(&s),
            ..Gather::sum(&back.offsets, &back.neighbors)
        };
        let (mut ax, mut aty) = (vec![0.0; n * width], vec![0.0; n * width]);
        gather(&Pool::new(1), &forward, Rows::local(&x, width), Targets::All(n), &mut ax, false);
        gather(&Pool::new(1), &backward, Rows::local(&y, width), Targets::All(n), &mut aty, false);
        let dot =
            |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        assert!((dot(&ax, &y) - dot(&x, &aty)).abs() < 1e-3 * dot(&ax, &y).abs().max(1.0));
    }
}
