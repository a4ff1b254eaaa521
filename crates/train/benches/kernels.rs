//! How fast are the kernels, and how far from what the machine can do?
//!
//! `cargo bench -p archipelago-train --bench kernels` first prints a table of best-of-several times with the fraction of
//! the machine's limit measured in the same run (stream bandwidth for gathers, `gemm` alone for products), for one
//! thread and for all; then divan times the same kernels one by one. One graph for all: 100,000 nodes, 2,000,000 random
//! edges, the worst case; gathers and attention also on one with communities, in the row order that training uses.

#![allow(clippy::print_stdout, reason = "a bench reports on the terminal")]

use std::hint::black_box;
use std::time::Instant;

use archipelago_graph::block::Adjacency;
use archipelago_graph::dataset::EdgeChunk;
use archipelago_graph::nearby;
use archipelago_graph::partition::each_chunk;
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::synthetic::sbm::{self, SbmOptions};
use archipelago_train::ops::attention::Loops;
use archipelago_train::ops::dense::Linear;
use archipelago_train::ops::epilogue::{Activation, Epilogue, epilogue, epilogue_backward, mask_len};
use archipelago_train::ops::gat::{Gat, GatBackward, GatGradients, gat, gat_backward};
use archipelago_train::ops::gather::{Gather, gather};
use archipelago_train::ops::layer_norm::{LayerNorm, Moments, layer_norm};
use archipelago_train::ops::softmax::pack_targets;
use archipelago_train::ops::{Dropout, Pool, Rows, Targets};
use divan::Bencher;
use gemm_common::Parallelism;

const NODES: usize = 100_000;
const DEGREE: usize = 20;
const HEADS: usize = 4;

/// In-edges, and the same by their sources.
struct Graph {
    offsets: Vec<u64>,
    neighbors: Vec<u32>,
    back_offsets: Vec<u64>,
    back_neighbors: Vec<u32>,
}

/// Every node has `DEGREE` random in-edges.
fn graph() -> Graph {
    let key = Key::new(1, Purpose::Generate);
    let neighbors = (0..(NODES * DEGREE) as u64).map(|e| key.below(e, NODES as u64) as u32).collect();
    let offsets = (0..=NODES as u64).map(|i| i * DEGREE as u64).collect();
    Graph::of(Adjacency { offsets, neighbors, ..Adjacency::default() })
}

/// A graph with planted communities in the order of rows that training gives it: training nodes first, then the others, of
/// both those near each other that share edges.
fn communities() -> Graph {
    let options = SbmOptions {
        nodes: NODES as u64,
        edges: (NODES * DEGREE) as u64,
        features: 0,
        ..SbmOptions::default()
    };
    let mut dataset = sbm::generate(&options, &Silent).expect("the options are in range");
    let mut ends: Vec<(u32, u32)> = Vec::new();
    let keep = |chunk: &EdgeChunk| {
        ends.extend(chunk.targets.iter().zip(&chunk.sources).map(|(&i, &j)| (i as u32, j as u32)));
        Ok(())
    };
    each_chunk(&mut dataset, "reading edges", &Silent, keep).expect("edges are in memory");
    let found = lists(&mut ends);
    let start = Instant::now();
    let places = nearby::places(&found.offsets, &found.neighbors).expect("communities were planted");
    println!("1 thread(s)  order of rows, once per run, {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let mut trains = vec![false; NODES];
    dataset.splits.train.iter().for_each(|&node| trains[node as usize] = true);
    let mut order: Vec<usize> = (0..NODES).collect();
    order.sort_unstable_by_key(|&node| (!trains[node], places[node]));
    let mut position = vec![0; NODES];
    order.iter().zip(0..).for_each(|(&node, row)| position[node] = row);
    ends.iter_mut().for_each(|(i, j)| (*i, *j) = (position[*i as usize], position[*j as usize]));
    Graph::of(lists(&mut ends))
}

/// The lists of pairs of targets and sources.
fn lists(ends: &mut [(u32, u32)]) -> Adjacency {
    ends.sort_unstable();
    let offsets = (0..=NODES as u32).map(|i| ends.partition_point(|end| end.0 < i) as u64).collect();
    Adjacency { offsets, neighbors: ends.iter().map(|end| end.1).collect(), ..Adjacency::default() }
}

impl Graph {
    fn of(lists: Adjacency) -> Self {
        let back = lists.transposed(NODES);
        Self {
            offsets: lists.offsets,
            neighbors: lists.neighbors,
            back_offsets: back.offsets,
            back_neighbors: back.neighbors,
        }
    }
}

fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let key = Key::new(seed, Purpose::Generate);
    let mut values = aligned(len);
    values.iter_mut().enumerate().for_each(|(i, v)| *v = key.unit(i as u64) as f32 - 0.5);
    values
}

/// Zeroes on huge pages where the system gives them, as the arena of a tape has them.
fn aligned(len: usize) -> Vec<f32> {
    let mut values: Vec<f32> = Vec::with_capacity(len);
    // SAFETY: the range lies in the allocation; the advice changes no contents.
    #[cfg(target_os = "linux")]
    unsafe {
        const PAGE: usize = 1 << 12;
        let start = (values.as_mut_ptr() as usize).next_multiple_of(PAGE);
        let bytes = (len * 4).saturating_sub(PAGE) / PAGE * PAGE;
        libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE);
    }
    values.resize(len, 0.0);
    values
}

/// Best seconds of several runs.
fn best(mut work: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn line(threads: usize, name: &str, seconds: f64, rate: f64, unit: &str, limit: f64) {
    let share =
        if limit > 0.0 { format!("{:5.0} % of {limit:.1}", 100.0 * rate / limit) } else { String::new() };
    println!("{threads} thread(s)  {name:<46} {:8.2} ms  {rate:7.1} {unit}  {share}", seconds * 1e3);
}

/// GB/s of reading two arrays and writing a third, all beyond the caches.
fn stream(pool: &Pool) -> f64 {
    let (a, b, mut c) = (numbers(1, 1 << 25), numbers(2, 1 << 25), aligned(1 << 25));
    let seconds = best(|| {
        let out = c.as_mut_ptr() as usize;
        pool.for_ranges(a.len(), 1 << 20, |range| {
            // SAFETY: ranges are disjoint parts of `c`.
            let c =
                unsafe { std::slice::from_raw_parts_mut((out as *mut f32).add(range.start), range.len()) };
            c.iter_mut().zip(&a[range.clone()]).zip(&b[range]).for_each(|((c, a), b)| *c = *a + 3.0 * *b);
        });
        black_box(&c);
    });
    (3 * a.len() * 4) as f64 / seconds / 1e9
}

fn report_gather(pool: &Pool, g: &Graph, which: &str) {
    let limit = stream(pool);
    println!("{} thread(s)  stream (triad) {limit:.1} GB/s", pool.threads());
    for width in [40, 128, 256] {
        let (x, mut out) = (numbers(3, NODES * width), aligned(NODES * width));
        let scale = numbers(4, NODES);
        let job = Gather {
            source_scale: Some(&scale),
            target_scale: Some(&scale),
            self_scale: Some(&scale),
            ..Gather::sum(&g.offsets, &g.neighbors)
        };
        let back = Gather { offsets: &g.back_offsets, neighbors: &g.back_neighbors, ..job };
        let rows = Rows::local(&x, width);
        let bytes = (g.neighbors.len() * width * 4) as f64;
        for (way, job) in [("forward", job), ("backward", back)] {
            let seconds = best(|| gather(pool, &job, rows, Targets::All(NODES), &mut out, false));
            let name = format!("gather, {width} columns, {which}, {way}");
            line(pool.threads(), &name, seconds, bytes / seconds / 1e9, "GB/s", limit);
        }
    }
}

/// Products of which three of four numbers are zeros, as ReLU and dropout leave them, beside the same without zeros.
fn report_thin_products(pool: &Pool) {
    for (inputs, outputs) in [(128, 256), (256, 256), (256, 40)] {
        let rows = NODES / 4;
        let map = Linear { rows, inputs, outputs };
        let (x, w, g) = (numbers(1, rows * inputs), numbers(2, inputs * outputs), numbers(3, rows * outputs));
        let thin = |a: &[f32]| -> Vec<f32> {
            let key = Key::new(7, Purpose::Dropout);
            (0..).zip(a).map(|(i, &x)| if key.below(i, 4) == 0 { x } else { 0.0 }).collect()
        };
        let (thin_x, thin_g) = (thin(&x), thin(&g));
        let (mut y, mut dx, mut dw) = (aligned(g.len()), aligned(x.len()), vec![0.0; w.len()]);
        let mut forward = |x: &[f32]| best(|| map.forward(pool, x, &w, &mut y, false));
        let forward = (forward(&thin_x), forward(&x));
        let mut grad_input = |g: &[f32]| best(|| map.grad_input(pool, g, &w, &mut dx, false));
        let grad_input = (grad_input(&thin_g), grad_input(&g));
        let mut grad_weight = |g: &[f32]| best(|| map.grad_weight(pool, g, &x, &mut dw, false));
        let grad_weight = (grad_weight(&thin_g), grad_weight(&g));
        let work = (2 * rows * inputs * outputs) as f64 / 1e9;
        for (name, (thin, full)) in
            [("forward", forward), ("grad input", grad_input), ("grad weight", grad_weight)]
        {
            let name = format!("linear {inputs} -> {outputs}, 3/4 zeros, {name}");
            line(pool.threads(), &name, thin, work / thin, "GFLOP/s", work / full);
        }
    }
}

fn report_products(pool: &Pool) {
    for (inputs, outputs) in [(128, 128), (128, 40), (128, 256), (40, 128)] {
        let map = Linear { rows: NODES, inputs, outputs };
        let (x, w, g) =
            (numbers(1, NODES * inputs), numbers(2, inputs * outputs), numbers(3, NODES * outputs));
        let (mut y, mut dx, mut dw) = (aligned(g.len()), aligned(x.len()), vec![0.0; w.len()]);
        let back = Linear { rows: NODES, inputs: outputs, outputs: inputs };
        let forward =
            (best(|| map.forward(pool, &x, &w, &mut y, false)), best(|| alone(pool, map, &x, &w, &mut y)));
        let grad_input = (
            best(|| map.grad_input(pool, &g, &w, &mut dx, false)),
            best(|| alone(pool, back, &g, &w, &mut dx)),
        );
        let grad_weight = (
            best(|| map.grad_weight(pool, &g, &x, &mut dw, false)),
            best(|| weight_alone(pool, map, &g, &x, &mut dw)),
        );
        let work = (2 * NODES * inputs * outputs) as f64 / 1e9;
        for (name, (ours, alone)) in
            [("forward", forward), ("grad input", grad_input), ("grad weight", grad_weight)]
        {
            let name = format!("linear {inputs} -> {outputs}, {name}");
            line(pool.threads(), &name, ours, work / ours, "GFLOP/s", work / alone);
        }
    }
}

/// `y = x w^T` by one call of the `gemm` crate per thread.
fn alone(pool: &Pool, map: Linear, x: &[f32], w: &[f32], y: &mut [f32]) {
    let (k, n, out) = (map.inputs, map.outputs, y.as_mut_ptr() as usize);
    pool.for_ranges(map.rows, map.rows.div_ceil(pool.threads()), |range| {
        let (x, y) = (x[range.start * k..].as_ptr(), (out as *mut f32).wrapping_add(range.start * n));
        // SAFETY: the three matrices have these shapes, and ranges are disjoint rows of `y`.
        unsafe { gemm([n, range.len(), k], (w.as_ptr(), [1, k]), (x, [k, 1]), (y, [n, 1])) };
    });
}

/// `dw = g^T x` by one call of the `gemm` crate per thread, each with a sum of its own.
fn weight_alone(pool: &Pool, map: Linear, g: &[f32], x: &[f32], dw: &mut [f32]) {
    let (k, n) = (map.inputs, map.outputs);
    let mut sums: Vec<Vec<f32>> = vec![vec![0.0; k * n]; pool.threads()];
    let (share, first) = (map.rows.div_ceil(pool.threads()), sums.as_mut_ptr() as usize);
    pool.for_ranges(map.rows, share, |range| {
        // SAFETY: each range has a sum of its own, and the three matrices have these shapes.
        unsafe {
            let sum = &mut *(first as *mut Vec<f32>).add(range.start / share);
            let (x, g) = (x[range.start * k..].as_ptr(), g[range.start * n..].as_ptr());
            gemm([k, n, range.len()], (x, [k, 1]), (g, [1, n]), (sum.as_mut_ptr(), [k, 1]));
        }
    });
    dw.fill(0.0);
    sums.iter().for_each(|sum| dw.iter_mut().zip(sum).for_each(|(all, part)| *all += part));
}

/// `out = lhs rhs`, `[m, n, k]` being the rows of `lhs`, the columns of `rhs` and what they share; each operand with
/// the steps from column to column and from row to row.
unsafe fn gemm(
    [m, n, k]: [usize; 3],
    (lhs, l): (*const f32, [usize; 2]),
    (rhs, r): (*const f32, [usize; 2]),
    (out, o): (*mut f32, [usize; 2]),
) {
    let step = |step: usize| step as isize;
    // SAFETY: the caller's promise.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            k,
            out,
            step(o[0]),
            step(o[1]),
            false,
            lhs,
            step(l[0]),
            step(l[1]),
            rhs,
            step(r[0]),
            step(r[1]),
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

fn report_attention(pool: &Pool, g: &Graph, which: &str) {
    for (heads, width) in [(HEADS, 128), (1, 40), (8, 64)] {
        let mut layer = Attention::new(heads, width);
        let forward = best(|| layer.forward(pool, g));
        let backward = best(|| layer.backward(pool, g));
        let bytes = (g.neighbors.len() * width * 4) as f64;
        let name = format!("GAT, {heads} x {}, {which}", width / heads);
        line(pool.threads(), &format!("{name}, forward"), forward, bytes / forward / 1e9, "GB/s", 0.0);
        line(pool.threads(), &format!("{name}, backward"), backward, bytes / backward / 1e9, "GB/s", 0.0);
    }
}

/// The buffers of one GAT layer.
struct Attention {
    heads: usize,
    width: usize,
    z: Vec<f32>,
    scores: Vec<f32>,
    out: Vec<f32>,
    lse: Vec<f32>,
    packed: Vec<f32>,
    dz: Vec<f32>,
    dscores: [Vec<f32>; 2],
}

impl Attention {
    fn new(heads: usize, width: usize) -> Self {
        let per_head = || aligned(NODES * heads);
        let (z, scores) = (numbers(1, NODES * width), numbers(2, NODES * heads));
        let (out, dz, packed) = (aligned(NODES * width), aligned(NODES * width), aligned(3 * NODES * heads));
        Self { heads, width, z, scores, out, lse: per_head(), packed, dz, dscores: [per_head(), per_head()] }
    }

    fn forward(&mut self, pool: &Pool, g: &Graph) {
        let job = Gat {
            offsets: &g.offsets,
            neighbors: &g.neighbors,
            heads: self.heads,
            slope: 0.2,
            loops: Loops::All,
            source_scores: Rows::local(&self.scores, self.heads),
            target_scores: &self.scores,
            dropout: None,
        };
        gat(pool, &job, Rows::local(&self.z, self.width), Targets::All(NODES), &mut self.out, &mut self.lse);
    }

    fn backward(&mut self, pool: &Pool, g: &Graph) {
        let job = Gat {
            offsets: &g.back_offsets,
            neighbors: &g.back_neighbors,
            heads: self.heads,
            slope: 0.2,
            loops: Loops::All,
            source_scores: Rows::local(&self.scores, self.heads),
            target_scores: &self.scores,
            dropout: None,
        };
        let grad = &self.z;
        pack_targets(pool, self.heads, &self.scores, &self.lse, &self.out, grad, &mut self.packed);
        let saved = GatBackward { z: Rows::local(&self.z, self.width), grad, packed: &self.packed };
        let [source_scores, target_scores] = &mut self.dscores;
        let gradients = GatGradients { z: &mut self.dz, source_scores, target_scores };
        gat_backward(pool, &job, &saved, 0..NODES, gradients);
    }
}

fn report_rows(pool: &Pool) {
    let width = 128;
    let nodes: Vec<u64> = (0..NODES as u64).collect();
    let key = Key::new(1, Purpose::Dropout);
    let dropout = Some(Dropout { rate: 0.5, key, nodes: &nodes, column: 0 });
    let (x, bias, gamma) = (numbers(1, NODES * width), numbers(2, width), numbers(3, width));
    let (mut y, mut mask) = (x.clone(), vec![0; mask_len(NODES, width)]);
    let (mut mean, mut rstd) = (vec![0.0; NODES], vec![0.0; NODES]);
    let bytes = (2 * x.len() * 4) as f64;
    for activation in [Activation::Relu, Activation::Elu] {
        let job = Epilogue { width, bias: Some(&bias), activation, dropout };
        let forward = best(|| epilogue(pool, &job, &mut y, &mut mask));
        let backward = best(|| epilogue_backward(pool, &job.backward(), &mask, &x, &mut y));
        let name = format!("bias + {activation:?} + dropout");
        line(pool.threads(), &format!("{name}, forward"), forward, bytes / forward / 1e9, "GB/s", 0.0);
        line(pool.threads(), &format!("{name}, backward"), backward, bytes / backward / 1e9, "GB/s", 0.0);
    }
    let after = Epilogue { width, bias: None, activation: Activation::Relu, dropout };
    let norm = LayerNorm { gamma: &gamma, beta: &bias, epsilon: 1e-5 };
    let seconds = best(|| {
        let moments = Moments { mean: &mut mean, rstd: &mut rstd };
        layer_norm(pool, &norm, &after, &x, &mut y, moments, &mut mask);
    });
    line(pool.threads(), "layer norm + ReLU + dropout", seconds, bytes / seconds / 1e9, "GB/s", 0.0);
}

fn main() {
    let graphs = [("random", graph()), ("communities", communities())];
    for threads in [1, std::thread::available_parallelism().map_or(2, usize::from)] {
        let pool = Pool::new(threads);
        graphs.iter().for_each(|(which, g)| report_gather(&pool, g, which));
        report_products(&pool);
        report_thin_products(&pool);
        graphs.iter().for_each(|(which, g)| report_attention(&pool, g, which));
        report_rows(&pool);
    }
    divan::main();
}

#[divan::bench(args = [1, 2], sample_count = 10)]
fn gather_128(bencher: Bencher, threads: usize) {
    let (pool, g, x, mut out) = (Pool::new(threads), graph(), numbers(1, NODES * 128), aligned(NODES * 128));
    let job = Gather::sum(&g.offsets, &g.neighbors);
    bencher.bench_local(|| gather(&pool, &job, Rows::local(&x, 128), Targets::All(NODES), &mut out, false));
}

#[divan::bench(args = [1, 2], sample_count = 10)]
fn gat_forward_4x32(bencher: Bencher, threads: usize) {
    let (pool, g, mut layer) = (Pool::new(threads), graph(), Attention::new(HEADS, 128));
    bencher.bench_local(|| layer.forward(&pool, &g));
}

#[divan::bench(args = [1, 2], sample_count = 10)]
fn gat_backward_4x32(bencher: Bencher, threads: usize) {
    let (pool, g, mut layer) = (Pool::new(threads), graph(), Attention::new(HEADS, 128));
    layer.forward(&pool, &g);
    bencher.bench_local(|| layer.backward(&pool, &g));
}

#[divan::bench(args = [1, 2], sample_count = 10)]
fn linear_128_128(bencher: Bencher, threads: usize) {
    let (pool, map) = (Pool::new(threads), Linear { rows: NODES, inputs: 128, outputs: 128 });
    let (x, w, mut y) = (numbers(1, NODES * 128), numbers(2, 128 * 128), aligned(NODES * 128));
    bencher.bench_local(|| map.forward(&pool, &x, &w, &mut y, false));
}
