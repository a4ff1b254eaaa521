//! How are a node's features brought to mean 0 and variance 1? Layer normalisation (Ba, Kiros & Hinton 2016).
//!
//! `y = gamma * (x - mean) * rstd + beta` per row, with the biased variance of the row, followed in the same pass by an
//! activation and dropout. Backward, with `h = gamma * dy` and `z = (x - mean) * rstd`:
//! `dx = rstd * (h - mean(h) - z * mean(h * z))`.

use super::epilogue::{Epilogue, EpilogueBackward, activate_row, backward_row, load, store};
use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::rows_per_task;

/// The parameters of a normalisation.
#[derive(Debug, Clone, Copy)]
pub struct LayerNorm<'a> {
    /// Factor per column.
    pub gamma: &'a [f32],
    /// Added per column.
    pub beta: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// What the backward pass needs of the forward pass, per row.
#[derive(Debug)]
pub struct Moments<'a> {
    /// Mean of each row.
    pub mean: &'a mut [f32],
    /// One over the standard deviation of each row.
    pub rstd: &'a mut [f32],
}

/// Normalises the rows of `x` into `y`, then applies `after` (its bias is ignored: `beta` is one); fills `moments`, and
/// `mask` where `after` needs one.
pub fn layer_norm(
    pool: &Pool,
    norm: &LayerNorm,
    after: &Epilogue,
    x: &[f32],
    y: &mut [f32],
    moments: Moments,
    mask: &mut [u8],
) {
    let width = norm.gamma.len();
    assert!(x.len() == y.len() && after.width == width && norm.beta.len() == width, "shapes of a layer norm");
    if width == 0 {
        return;
    }
    let after = Epilogue { bias: None, ..*after };
    let stride = if after.needs_mask() { width.div_ceil(8) } else { 0 };
    let (y, mask) = (Shared::new(y), Shared::new(mask));
    let (mean, rstd) = (Shared::new(moments.mean), Shared::new(moments.rstd));
    pool.for_ranges(x.len() / width, rows_per_task(width), |range| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            unsafe {
                let y = y.part(i * width, width);
                let (m, r) =
                    forward_row(norm, &after, i, &x[i * width..][..width], y, mask.part(i * stride, stride));
                mean.part(i, 1)[0] = m;
                rstd.part(i, 1)[0] = r;
            }
        }
    });
}

/// What [`layer_norm_backward`] reads of the forward pass.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a> {
    /// The input.
    pub x: &'a [f32],
    /// The output (read for ELU only).
    pub y: &'a [f32],
    /// Mean of each row.
    pub mean: &'a [f32],
    /// One over the standard deviation of each row.
    pub rstd: &'a [f32],
    /// Bits of the epilogue, if it needed any.
    pub mask: &'a [u8],
}

/// Turns `grad` (of the output) into the gradient of the input, in place, and adds to the gradients of gamma and beta,
/// which are one after the other in `parameters`.
pub fn layer_norm_backward(
    pool: &Pool,
    gamma: &[f32],
    after: &EpilogueBackward,
    saved: Saved,
    grad: &mut [f32],
    parameters: &mut [f32],
) {
    let width = gamma.len();
    assert!(saved.x.len() == grad.len() && parameters.len() == 2 * width, "shapes of a layer norm");
    if width == 0 {
        return;
    }
    let rows = grad.len() / width;
    let grad = Shared::new(grad);
    chunked_sum(pool, rows, rows_per_task(width), parameters, true, |range, sums| {
        for i in range {
            // SAFETY: row `i` belongs to this range alone.
            let grad = unsafe { grad.part(i * width, width) };
            row_backward(gamma, after, &saved, i, grad, sums);
        }
    });
}

kernel! {
    fn forward_row<S>(
        norm: &LayerNorm,
        after: &Epilogue,
        i: usize,
        x: &[f32],
        y: &mut [f32],
        mask: &mut [u8],
    ) -> (f32, f32) {
        let width = x.len();
        let mean = fold::<S>(width, #[inline(always)] |c, n| lanes::<S>(x, c, n)) / width as f32;
        let variance = fold::<S>(width, #[inline(always)] |c, n| {
            let d = centred::<S>(x, mean, c, n);
            S::mul(d, d)
        }) / width as f32;
        let rstd = 1.0 / (variance + norm.epsilon).sqrt();
        for c in (0..width).step_by(S::N) {
            let n = S::N.min(width - c);
            let z = S::mul(centred::<S>(x, mean, c, n), S::splat(rstd));
            let v = S::fma(z, lanes::<S>(norm.gamma, c, n), lanes::<S>(norm.beta, c, n));
            // SAFETY: `y` is as long as `x`.
            unsafe { store::<S>(y.as_mut_ptr().add(c), n, v) };
        }
        activate_row::<S>(after, i, y, mask);
        (mean, rstd)
    }
}

kernel! {
    fn row_backward<S>(
        gamma: &[f32],
        after: &EpilogueBackward,
        saved: &Saved,
        i: usize,
        grad: &mut [f32],
        sums: &mut [f32],
    ) {
        let width = grad.len();
        let x = &saved.x[i * width..][..width];
        let stride = if after.masked { width.div_ceil(8) } else { 0 };
        let output = if saved.y.is_empty() { saved.y } else { &saved.y[i * width..][..width] };
        backward_row::<S>(after, &saved.mask[i * stride..][..stride], output, grad);
        let (mean, rstd) = (saved.mean[i], saved.rstd[i]);
        add_parameters(x, grad, mean, rstd, sums);
        let scale = S::splat(rstd);
        let first = fold::<S>(width, #[inline(always)] |c, n| scaled::<S>(grad, gamma, c, n));
        let second = fold::<S>(width, #[inline(always)] |c, n| {
            S::mul(scaled::<S>(grad, gamma, c, n), S::mul(centred::<S>(x, mean, c, n), scale))
        });
        let (first, second) = (S::splat(first / width as f32), S::splat(second / width as f32));
        for c in (0..width).step_by(S::N) {
            let n = S::N.min(width - c);
            let z = S::mul(centred::<S>(x, mean, c, n), scale);
            let inner = S::sub(S::sub(scaled::<S>(grad, gamma, c, n), first), S::mul(z, second));
            // SAFETY: `c + n` is within the row.
            unsafe { store::<S>(grad.as_mut_ptr().add(c), n, S::mul(inner, scale)) };
        }
    }
}

/// Adds a row's share of the gradients of gamma and beta.
#[inline(always)]
fn add_parameters(x: &[f32], grad: &[f32], mean: f32, rstd: f32, sums: &mut [f32]) {
    let (dgamma, dbeta) = sums.split_at_mut(x.len());
    for ((d, &g), &x) in dgamma.iter_mut().zip(grad).zip(x) {
        *d += g * (x - mean) * rstd;
    }
    for (d, &g) in dbeta.iter_mut().zip(grad) {
        *d += g;
    }
}

/// `x - mean`, 0 beyond the row.
#[inline(always)]
fn centred<S: Simd>(x: &[f32], mean: f32, c: usize, n: usize) -> S::V {
    let d = S::sub(lanes::<S>(x, c, n), S::splat(mean));
    if n == S::N { d } else { S::keep(d, (1 << n) - 1) }
}

/// `grad * gamma`.
#[inline(always)]
fn scaled<S: Simd>(grad: &[f32], gamma: &[f32], c: usize, n: usize) -> S::V {
    S::mul(lanes::<S>(grad, c, n), lanes::<S>(gamma, c, n))
}

/// The sum of `term(c, n)` over the registers of a row.
#[inline(always)]
fn fold<S: Simd>(width: usize, term: impl Fn(usize, usize) -> S::V) -> f32 {
    let mut sum = S::splat(0.0);
    for c in (0..width).step_by(S::N) {
        sum = S::add(sum, term(c, S::N.min(width - c)));
    }
    S::sum(sum)
}

/// Columns `c..c + n` of `row`.
#[inline(always)]
fn lanes<S: Simd>(row: &[f32], c: usize, n: usize) -> S::V {
    // SAFETY: the slice checks the bounds.
    unsafe { load::<S>(row[c..c + n].as_ptr(), n) }
}

#[cfg(test)]
mod tests {
    use archipelago_graph::random::{Key, Purpose};
    use proptest::prelude::*;

    use super::super::dropout::{self, Dropout};
    use super::super::epilogue::{Activation, mask_len};
    use super::super::testing::{close, differences, numbers, wide};
    use super::*;

    /// The definition in f64: normalise, ReLU if asked, dropout if any.
    fn reference(x: &[f64], gamma: &[f64], beta: &[f64], relu: bool, drop: Option<Dropout>) -> Vec<f64> {
        let width = gamma.len();
        let mut y = vec![0.0; x.len()];
        for (i, row) in x.chunks(width).enumerate() {
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            for c in 0..width {
                let v = gamma[c] * (row[c] - mean) / (variance + 1e-5).sqrt() + beta[c];
                let v = if relu { v.max(0.0) } else { v };
                let factor = drop.map_or(1.0, |d| {
                    match dropout::keeps(d.row(i), c as u32, dropout::threshold(d.rate)) {
                        true => f64::from(d.scale()),
                        false => 0.0,
                    }
                });
                y[i * width + c] = v * factor;
            }
        }
        y
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn the_norm_and_its_gradients_match_the_definition(
            rows in 0usize..4, width in prop::sample::select(&[1usize, 3, 7, 8, 17, 40][..]), with in any::<[bool; 2]>(), seed in any::<u64>(),
        ) {
            let nodes: Vec<u64> = (0..rows as u64).collect();
            let drop = with[1].then_some(Dropout { rate: 0.3, key: Key::new(seed, Purpose::Dropout), nodes: &nodes, column: 0 });
            let activation = if with[0] { Activation::Relu } else { Activation::Identity };
            let after = Epilogue { width, bias: None, activation, dropout: drop };
            let (x, gamma, beta) = (numbers(seed, rows * width), numbers(1, width), numbers(2, width));
            // ReLU has no slope at 0, so differences say nothing next to it.
            let before = reference(&wide(&x), &wide(&gamma), &wide(&beta), false, None);
            prop_assume!(!with[0] || before.iter().all(|v| v.abs() > 1e-3));
            let upstream = numbers(3, rows * width);
            let (mut y, mut mean, mut rstd) = (vec![0.0; x.len()], vec![0.0; rows], vec![0.0; rows]);
            let mut mask = vec![0; mask_len(rows, width)];
            let norm = LayerNorm { gamma: &gamma, beta: &beta, epsilon: 1e-5 };
            layer_norm(&Pool::new(2), &norm, &after, &x, &mut y, Moments { mean: &mut mean, rstd: &mut rstd }, &mut mask);
            let narrow: Vec<f32> = reference(&wide(&x), &wide(&gamma), &wide(&beta), with[0], drop).iter().map(|&v| v as f32).collect();
            close(&y, &narrow, 1e-5);

            let (mut grad, mut parameters) = (upstream.clone(), vec![0.0; 2 * width]);
            let saved = Saved { x: &x, y: &y, mean: &mean, rstd: &rstd, mask: &mask };
            layer_norm_backward(&Pool::new(2), &gamma, &after.backward(), saved, &mut grad, &mut parameters);
            let loss = |x: &[f64], g: &[f64], b: &[f64]| -> f64 {
                reference(x, g, b, with[0], drop).iter().zip(&upstream).map(|(y, u)| y * f64::from(*u)).sum()
            };
            if width > 1 {
                close(&grad, &differences(&x, |x| loss(x, &wide(&gamma), &wide(&beta))), 1e-3);
            }
            close(&parameters[..width], &differences(&gamma, |g| loss(&wide(&x), g, &wide(&beta))), 1e-3);
            close(&parameters[width..], &differences(&beta, |b| loss(&wide(&x), &wide(&gamma), b)), 1e-3);
        }
    }
}
