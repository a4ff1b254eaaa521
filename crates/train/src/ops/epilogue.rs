//! What happens to a layer's output before the next layer reads it? Bias, activation and dropout, in place, in one pass.
//!
//! `y = dropout(act(y + bias))`. For the gradient a bit per element is kept where it is needed (with ReLU: positive
//! *and* kept; else: kept), and for ELU the output itself, from which the derivative follows: no other copy is made.
//! A row's bits start on a byte: [`mask_len`].

use super::dropout::{self, Dropout};
use super::isa::{Simd, exp, kernel};
use super::pool::{Pool, Shared};
use super::rows_per_task;

/// The function applied after the bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// None.
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x` if positive, else `exp(x) - 1`.
    Elu,
}

/// Bias, activation and dropout of rows of `width`.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a> {
    /// Floats per row.
    pub width: usize,
    /// Added to each row first.
    pub bias: Option<&'a [f32]>,
    /// Applied second.
    pub activation: Activation,
    /// Applied last.
    pub dropout: Option<Dropout<'a>>,
}

impl Epilogue<'_> {
    /// Whether the gradient needs a bit per element.
    pub fn needs_mask(&self) -> bool {
        self.activation == Activation::Relu || self.dropout.is_some()
    }

    /// What turns the upstream gradient into that before the bias.
    pub fn backward(&self) -> EpilogueBackward {
        let scale = self.dropout.map_or(1.0, |d| d.scale());
        EpilogueBackward { width: self.width, activation: self.activation, scale, masked: self.needs_mask() }
    }
}

/// The gradient of an [`Epilogue`].
#[derive(Debug, Clone, Copy)]
pub struct EpilogueBackward {
    /// Floats per row.
    pub width: usize,
    /// As in the forward pass.
    pub activation: Activation,
    /// What dropout multiplied kept elements by; 1 without.
    pub scale: f32,
    /// Whether the forward pass wrote a mask.
    pub masked: bool,
}

/// Bytes of mask for `rows` rows of `width`.
pub fn mask_len(rows: usize, width: usize) -> usize {
    rows * width.div_ceil(8)
}

/// Applies the epilogue to `y` in place; writes `mask` (of [`mask_len`]) where [`Epilogue::needs_mask`], else ignores it.
pub fn epilogue(pool: &Pool, job: &Epilogue, y: &mut [f32], mask: &mut [u8]) {
    let width = job.width;
    if width == 0 {
        return;
    }
    let (rows, stride) = (y.len() / width, width.div_ceil(8));
    let (y, mask) = (Shared::new(y), Shared::new(mask));
    pool.for_ranges(rows, rows_per_task(width), |range| {
        let bytes = if job.needs_mask() { range.len() * stride } else { 0 };
        // SAFETY: ranges do not overlap.
        let (y, mask) = unsafe {
            (
                y.part(range.start * width, range.len() * width),
                mask.part(bytes.min(1) * range.start * stride, bytes),
            )
        };
        epilogue_rows(job, range.start, y, mask);
    });
}

/// Turns `grad` (of the output) into the gradient before the bias, in place. `output` is read for ELU only, `mask` if
/// there is one.
pub fn epilogue_backward(pool: &Pool, job: &EpilogueBackward, mask: &[u8], output: &[f32], grad: &mut [f32]) {
    let width = job.width;
    if width == 0 || (job.activation == Activation::Identity && !job.masked) {
        return;
    }
    let (rows, stride) = (grad.len() / width, width.div_ceil(8));
    let grad = Shared::new(grad);
    pool.for_ranges(rows, rows_per_task(width), |range| {
        let cells = range.start * width..range.end * width;
        // SAFETY: ranges do not overlap.
        let grad = unsafe { grad.part(cells.start, cells.len()) };
        let mask = if job.masked { &mask[range.start * stride..range.end * stride] } else { &[] };
        let output = if job.activation == Activation::Elu { &output[cells] } else { &[] };
        backward_rows(job, mask, output, grad);
    });
}

kernel! {
    fn epilogue_rows<S>(job: &Epilogue, first: usize, y: &mut [f32], mask: &mut [u8]) {
        let stride = if job.needs_mask() { job.width.div_ceil(8) } else { 0 };
        for (k, y) in y.chunks_exact_mut(job.width).enumerate() {
            activate_row::<S>(job, first + k, y, &mut mask[k * stride..][..stride]);
        }
    }
}

/// One row, `i` of the matrix.
#[inline(always)]
pub(crate) fn activate_row<S: Simd>(job: &Epilogue, i: usize, y: &mut [f32], mask: &mut [u8]) {
    match (job.activation, job.dropout.is_some()) {
        (Activation::Identity, false) => activate::<S, 0, false>(job, i, y, mask),
        (Activation::Identity, true) => activate::<S, 0, true>(job, i, y, mask),
        (Activation::Relu, false) => activate::<S, 1, false>(job, i, y, mask),
        (Activation::Relu, true) => activate::<S, 1, true>(job, i, y, mask),
        (Activation::Elu, false) => activate::<S, 2, false>(job, i, y, mask),
        (Activation::Elu, true) => activate::<S, 2, true>(job, i, y, mask),
    }
}

/// `ACT` is 0, 1, 2 for identity, ReLU, ELU: constants, so that no element is asked twice what it is.
#[inline(always)]
fn activate<S: Simd, const ACT: u8, const DROP: bool>(
    job: &Epilogue,
    i: usize,
    y: &mut [f32],
    mask: &mut [u8],
) {
    let (row, column, rate) = job.dropout.map_or((0, 0, 0.0), |d| (d.row(i), d.column, d.rate));
    let (threshold, scale) = (dropout::threshold(rate), S::splat(dropout::scale(rate)));
    let zero = S::splat(0.0);
    for c in (0..y.len()).step_by(S::N) {
        let n = S::N.min(y.len() - c);
        // SAFETY: `c + n` is within the row, and within the bias, which is as long.
        let mut v = unsafe { load::<S>(y.as_ptr().add(c), n) };
        if let Some(bias) = job.bias {
            // SAFETY: as above; the slice checks it.
            v = S::add(v, unsafe { load::<S>(bias[c..c + n].as_ptr(), n) });
        }
        let mut bits = u32::MAX;
        if ACT == 1 {
            bits = S::gt(v, zero);
            v = S::max(v, zero);
        }
        if ACT == 2 {
            let below = S::sub(exp::<S>(S::min(v, zero)), S::splat(1.0));
            v = S::add(S::max(v, zero), S::min(below, zero));
        }
        if DROP {
            bits &= S::draws(row, column.wrapping_add(c as u32), threshold);
            v = S::keep(S::mul(v, scale), bits);
        }
        if ACT == 1 || DROP {
            write_bits(&mut mask[c / 8..(c + n).div_ceil(8)], bits);
        }
        // SAFETY: as above.
        unsafe { store::<S>(y.as_mut_ptr().add(c), n, v) };
    }
}

kernel! {
    fn backward_rows<S>(job: &EpilogueBackward, mask: &[u8], output: &[f32], grad: &mut [f32]) {
        let stride = if job.masked { job.width.div_ceil(8) } else { 0 };
        let cells = if job.activation == Activation::Elu { job.width } else { 0 };
        for (k, g) in grad.chunks_exact_mut(job.width).enumerate() {
            backward_row::<S>(job, &mask[k * stride..][..stride], &output[k * cells..][..cells], g);
        }
    }
}

/// One row of [`epilogue_backward`].
#[inline(always)]
pub(crate) fn backward_row<S: Simd>(job: &EpilogueBackward, mask: &[u8], output: &[f32], grad: &mut [f32]) {
    let (scale, inverse) = (S::splat(job.scale), S::splat(1.0 / job.scale));
    for c in (0..grad.len()).step_by(S::N) {
        let n = S::N.min(grad.len() - c);
        // SAFETY: `c + n` is within the row.
        let mut g = unsafe { load::<S>(grad.as_ptr().add(c), n) };
        if job.masked {
            g = S::keep(S::mul(g, scale), read_bits(&mask[c / 8..(c + n).div_ceil(8)]));
        }
        if job.activation == Activation::Elu {
            // SAFETY: as above; the slice checks it.
            let out = S::mul(unsafe { load::<S>(output[c..c + n].as_ptr(), n) }, inverse);
            g = S::mul(g, S::add(S::min(out, S::splat(0.0)), S::splat(1.0)));
        }
        // SAFETY: as above.
        unsafe { store::<S>(grad.as_mut_ptr().add(c), n, g) };
    }
}

/// Loads `n <= N` floats, without a mask when the register is full.
///
/// # Safety
/// `p` is valid for `n` floats.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd>(p: *const f32, n: usize) -> S::V {
    // SAFETY: the caller's promise.
    unsafe { if n == S::N { S::load(p) } else { S::load_first(p, n) } }
}

/// Stores `n <= N` floats, without a mask when the register is full.
///
/// # Safety
/// `p` is valid for `n` floats.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(p: *mut f32, n: usize, v: S::V) {
    // SAFETY: the caller's promise.
    unsafe { if n == S::N { S::store(p, v) } else { S::store_first(p, n, v) } }
}

#[inline(always)]
fn write_bits(mask: &mut [u8], bits: u32) {
    for (b, byte) in mask.iter_mut().enumerate() {
        *byte = (bits >> (8 * b)) as u8;
    }
}

#[inline(always)]
fn read_bits(mask: &[u8]) -> u32 {
    mask.iter().enumerate().fold(0, |bits, (b, &byte)| bits | u32::from(byte) << (8 * b))
}

#[cfg(test)]
mod tests {
    use archipelago_graph::random::{Key, Purpose};
    use proptest::prelude::*;

    use super::super::isa::Isa;
    use super::super::testing::{WIDTHS, away_from_0, close, differences, numbers};
    use super::*;

    /// The definition for one element, in f64.
    fn reference(job: &Epilogue, i: usize, c: usize, y: f64) -> f64 {
        let v = y + job.bias.map_or(0.0, |b| f64::from(b[c]));
        let v = match job.activation {
            Activation::Identity => v,
            Activation::Relu => v.max(0.0),
            Activation::Elu => {
                if v > 0.0 {
                    v
                } else {
                    v.exp() - 1.0
                }
            }
        };
        match job.dropout {
            Some(d) if dropout::keeps(d.row(i), d.column + c as u32, dropout::threshold(d.rate)) => {
                v * f64::from(d.scale())
            }
            Some(_) => 0.0,
            None => v,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_epilogue_and_its_gradient_match_the_definition(
            rows in 0usize..6, width in prop::sample::select(WIDTHS), with in any::<[bool; 2]>(),
            activation in prop::sample::select(&[Activation::Identity, Activation::Relu, Activation::Elu][..]), seed in any::<u64>(),
        ) {
            let nodes: Vec<u64> = (0..rows as u64).map(|i| i * 7 + 3).collect();
            let drop = Dropout { rate: 0.4, key: Key::new(seed, Purpose::Dropout), nodes: &nodes, column: 2 };
            let bias = numbers(seed ^ 1, width);
            let job = Epilogue { width, bias: with[0].then_some(&bias[..]), activation, dropout: with[1].then_some(drop) };
            let (x, upstream) = (numbers(seed ^ 2, rows * width), numbers(seed ^ 3, rows * width));
            // ReLU has no slope at 0, so differences say nothing next to it.
            prop_assume!(x.iter().enumerate().all(|(k, &x)| away_from_0(&[x], &[0.0, bias[k % width]])));
            let at = |k: usize, y: f64| reference(&job, k / width, k % width, y);
            let expected: Vec<f32> = x.iter().enumerate().map(|(k, &x)| at(k, f64::from(x)) as f32).collect();
            let slopes: Vec<f32> = (0..x.len())
                .map(|k| differences(&x[k..=k], |v| at(k, v[0]) * f64::from(upstream[k]))[0]).collect();
            for isa in Isa::available() {
                isa.force(|| {
                    let (mut y, mut mask) = (x.clone(), vec![0; mask_len(rows, width)]);
                    epilogue(&Pool::new(1), &job, &mut y, &mut mask);
                    close(&y, &expected, 1e-6);
                    let mut grad = upstream.clone();
                    epilogue_backward(&Pool::new(1), &job.backward(), &mask, &y, &mut grad);
                    close(&grad, &slopes, 1e-4);
                });
            }
        }
    }

    #[test]
    fn without_need_no_mask_is_touched() {
        let job = Epilogue { width: 3, bias: None, activation: Activation::Elu, dropout: None };
        let mut y = [-1.0, 0.0, 1.0];
        epilogue(&Pool::new(1), &job, &mut y, &mut []);
        close(&y, &[(-1.0f32).exp() - 1.0, 0.0, 1.0], 1e-6);
    }
}
