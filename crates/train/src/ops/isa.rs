//! Which vector instructions does this machine have, and how is a kernel compiled for each of them?
//!
//! One binary runs everywhere: `kernel!` compiles a body three times (portable, AVX2 + FMA, AVX-512) and picks one
//! at run time. A body speaks to the registers through `Simd`; it never names an instruction set itself.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// What the compiler assumes on any machine of this architecture.
    Plain,
    /// AVX2, FMA and POPCNT (x86-64 since 2013).
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Isa {
    /// The instruction set kernels run with on this machine.
    #[inline]
    pub fn current() -> Self {
        #[cfg(test)]
        if let Some(isa) = FORCED.get() {
            return isa;
        }
        static CHOSEN: AtomicU8 = AtomicU8::new(u8::MAX);
        match CHOSEN.load(Ordering::Relaxed) {
            0 => Self::Plain,
            1 => Self::Avx2,
            2 => Self::Avx512,
            _ => {
                let isa = Self::detect();
                CHOSEN.store(isa as u8, Ordering::Relaxed);
                isa
            }
        }
    }

    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("popcnt");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match (avx2, avx512) {
                (true, true) => return Self::Avx512,
                (true, false) => return Self::Avx2,
                _ => {}
            }
        }
        Self::Plain
    }

    /// Every instruction set this machine can run, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        let best = Self::detect() as u8;
        [Self::Plain, Self::Avx2, Self::Avx512].into_iter().filter(|&isa| isa as u8 <= best).collect()
    }

    /// Runs `work` with this instruction set on the calling thread.
    #[cfg(test)]
    pub(crate) fn force<R>(self, work: impl FnOnce() -> R) -> R {
        FORCED.set(Some(self));
        let result = work();
        FORCED.set(None);
        result
    }
}

#[cfg(test)]
thread_local! { static FORCED: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) }; }

/// Declares a function whose body, generic over [`Simd`] as `S`, is compiled for every [`Isa`] and dispatched once
/// per call. Everything the body calls per element must be `#[inline(always)]`.
macro_rules! kernel {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$simd:ident>($($arg:ident: $ty:ty),* $(,)?) $(-> $out:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $out)? {
            #[allow(clippy::too_many_arguments, clippy::extra_unused_type_parameters)]
            #[inline(always)]
            fn body<$simd: $crate::ops::isa::Simd>($($arg: $ty),*) $(-> $out)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,popcnt")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $ty),*) $(-> $out)? {
                body::<$crate::ops::isa::Avx2>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512($($arg: $ty),*) $(-> $out)? {
                body::<$crate::ops::isa::Avx512>($($arg),*)
            }

            match $crate::ops::isa::Isa::current() {
                // SAFETY: `current` returns an instruction set only after detecting it on this machine.
                #[cfg(target_arch = "x86_64")]
                $crate::ops::isa::Isa::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::ops::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body::<$crate::ops::isa::Plain>($($arg),*),
            }
        }
    };
}
pub(crate) use kernel;

/// A register of `N` floats and what kernels do with it. Methods of the x86 implementations may only be reached
/// through [`kernel!`], which checks the machine first; that is what makes them safe to call.
///
/// A set of lanes is a `u32` with bit `i` for lane `i`.
pub(crate) trait Simd: Copy {
    /// One register.
    type V: Copy;
    /// Lanes in a register.
    const N: usize;

    /// `x` in every lane.
    fn splat(x: f32) -> Self::V;
    /// Reads `N` floats. `p` must be valid for them.
    unsafe fn load(p: *const f32) -> Self::V;
    /// Writes `N` floats. `p` must be valid for them.
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Reads the first `n <= N` floats, zero in the other lanes. `p` must be valid for `n`.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// Writes the first `n <= N` lanes. `p` must be valid for `n`.
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V);
    fn add(a: Self::V, b: Self::V) -> Self::V;
    fn sub(a: Self::V, b: Self::V) -> Self::V;
    fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, fused where the machine can.
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn max(a: Self::V, b: Self::V) -> Self::V;
    fn min(a: Self::V, b: Self::V) -> Self::V;
    /// Sum of the lanes, pairwise: lanes `i` and `i + N/2` first.
    fn sum(v: Self::V) -> f32;
    /// Lanes in which `a > b`.
    fn gt(a: Self::V, b: Self::V) -> u32;
    /// Lanes that are not 0.
    fn nonzero(v: Self::V) -> u32;
    /// Writes the lanes of `bits` side by side. `p` must be valid for `N` floats; what follows the lanes is arbitrary.
    unsafe fn squeeze(p: *mut f32, v: Self::V, bits: u32);
    /// `v` in the lanes of `bits`, 0 elsewhere.
    fn keep(v: Self::V, bits: u32) -> Self::V;
    /// `2^n` from `1.5 * 2^23 + n`: the last step of [`exp`].
    fn power_of_two(shifted: Self::V) -> Self::V;
    /// Lanes `i` that [`keeps`](super::dropout::keeps) column `column + i`.
    fn draws(row: u64, column: u32, threshold: u32) -> u32;
    /// Writes the 8 by 8 floats at `a` transposed to `out`, rows being `steps` apart. Both must be valid for them.
    unsafe fn turn(a: *const f32, out: *mut f32, steps: [usize; 2]);
    /// Asks for the cache line at `p`; any address is fine.
    fn prefetch(p: *const f32);
}

/// `e^x` to about 2 units in the last place; 0 below -87.3, finite above 88.3.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; `e^r` by a polynomial of degree 7, `2^n` by shifting `n` into the exponent.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: S::V) -> S::V {
    const SHIFT: f32 = 12_582_912.0;
    const LOWEST: f32 = -87.336_54;
    let above = S::gt(x, S::splat(LOWEST));
    let x = S::min(S::max(x, S::splat(LOWEST)), S::splat(88.376_26));
    let shifted = S::fma(x, S::splat(std::f32::consts::LOG2_E), S::splat(SHIFT));
    let n = S::sub(shifted, S::splat(SHIFT));
    let r = S::fma(n, S::splat(-0.693_359_4), x);
    let r = S::fma(n, S::splat(2.121_944_4e-4), r);
    let mut p = S::splat(1.987_569_1e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = S::fma(p, r, S::splat(c));
    }
    let p = S::add(S::fma(p, S::mul(r, r), r), S::splat(1.0));
    S::keep(S::mul(p, S::power_of_two(shifted)), above)
}

/// Portable: arrays the compiler turns into whatever vectors the architecture always has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

impl Plain {
    #[inline(always)]
    fn map(a: [f32; 8], b: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
        std::array::from_fn(|i| f(a[i], b[i]))
    }
}

impl Simd for Plain {
    type V = [f32; 8];
    const N: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> Self::V {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        let mut v = [0.0; 8];
        // SAFETY: the caller's promise, and n <= 8.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), n.min(8)) };
        v
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V) {
        // SAFETY: the caller's promise, and n <= 8.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, n.min(8)) };
    }
    #[inline(always)]
    fn add(a: Self::V, b: Self::V) -> Self::V {
        Self::map(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Self::V, b: Self::V) -> Self::V {
        Self::map(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Self::V, b: Self::V) -> Self::V {
        Self::map(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(a: Self::V, b: Self::V) -> Self::V {
        Self::map(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(a: Self::V, b: Self::V) -> Self::V {
        Self::map(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn sum(v: Self::V) -> f32 {
        let h: [f32; 4] = std::array::from_fn(|i| v[i] + v[i + 4]);
        (h[0] + h[2]) + (h[1] + h[3])
    }
    #[inline(always)]
    fn gt(a: Self::V, b: Self::V) -> u32 {
        (0..8).fold(0, |bits, i| bits | (u32::from(a[i] > b[i]) << i))
    }
    #[inline(always)]
    fn nonzero(v: Self::V) -> u32 {
        (0..8).fold(0, |bits, i| bits | (u32::from(v[i] != 0.0) << i))
    }
    #[inline(always)]
    unsafe fn squeeze(p: *mut f32, v: Self::V, bits: u32) {
        let mut next = 0;
        for (i, x) in v.into_iter().enumerate() {
            // SAFETY: the caller's promise, and no lane moves up.
            unsafe { p.add(next).write(x) };
            next += (bits >> i & 1) as usize;
        }
    }
    #[inline(always)]
    fn keep(v: Self::V, bits: u32) -> Self::V {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { v[i] } else { 0.0 })
    }
    #[inline(always)]
    fn power_of_two(shifted: Self::V) -> Self::V {
        shifted.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(0x3f80_0000)))
    }
    #[inline(always)]
    fn draws(row: u64, column: u32, threshold: u32) -> u32 {
        (0..8).fold(0, |bits, i| {
            bits | (u32::from(super::dropout::keeps(row, column.wrapping_add(i), threshold)) << i)
        })
    }
    #[inline(always)]
    unsafe fn turn(a: *const f32, out: *mut f32, [step, out_step]: [usize; 2]) {
        for i in 0..8 {
            for j in 0..8 {
                // SAFETY: the caller's promise.
                unsafe { out.add(j * out_step + i).write(a.add(i * step + j).read()) };
            }
        }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing; SSE is part of x86-64.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(p.cast())
        };
        let _ = p;
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
#[path = "isa_x86.rs"]
mod x86;

#[cfg(test)]
mod tests {
    use super::*;

    kernel! {
        fn exp_all<S>(xs: &mut [f32]) {
            for chunk in xs.chunks_mut(S::N) {
                // SAFETY: the chunk has `len` floats.
                unsafe {
                    let v = exp::<S>(S::load_first(chunk.as_ptr(), chunk.len()));
                    S::store_first(chunk.as_mut_ptr(), chunk.len(), v);
                }
            }
        }
    }

    kernel! {
        fn draw_all<S>(row: u64, threshold: u32, out: &mut [bool]) {
            for (b, chunk) in out.chunks_mut(S::N).enumerate() {
                let bits = S::draws(row, (b * S::N) as u32, threshold);
                for (i, kept) in chunk.iter_mut().enumerate() {
                    *kept = bits >> i & 1 == 1;
                }
            }
        }
    }

    kernel! {
        fn lane_results<S>(a: &[f32], b: &[f32]) -> Vec<f32> {
            // SAFETY: tests pass at least N floats.
            let (x, y) = unsafe { (S::load(a.as_ptr()), S::load(b.as_ptr())) };
            let bits = S::gt(x, y);
            let vectors = [S::add(x, y), S::sub(x, y), S::mul(x, y), S::max(x, y), S::min(x, y), S::keep(x, bits)];
            let mut out = vec![0.0; vectors.len() * S::N];
            for (chunk, v) in out.chunks_mut(S::N).zip(vectors) {
                // SAFETY: the chunk has N floats.
                unsafe { S::store(chunk.as_mut_ptr(), v) };
            }
            let mut first: Vec<f32> = out.chunks(S::N).flat_map(|c| c[..8].to_vec()).collect();
            first.push((bits & 0xff) as f32);
            first
        }
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for isa in Isa::available() {
            let xs: Vec<f32> = (-8700..8800).map(|i| i as f32 / 100.0 + 0.003).collect();
            let mut found = xs.clone();
            isa.force(|| exp_all(&mut found));
            for (x, f) in xs.iter().zip(&found) {
                let expected = f64::from(*x).exp();
                assert!(
                    (f64::from(*f) - expected).abs() <= 2.5e-7 * expected,
                    "{isa:?}: exp({x}) = {f}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn exp_of_minus_infinity_is_zero_and_of_zero_is_one() {
        for isa in Isa::available() {
            let mut xs = [f32::NEG_INFINITY, -1e30, -100.0, 0.0];
            isa.force(|| exp_all(&mut xs));
            assert_eq!(xs, [0.0, 0.0, 0.0, 1.0]);
        }
    }

    #[test]
    fn every_instruction_set_draws_the_same_mask() {
        let expected: Vec<bool> =
            (0..100).map(|c| super::super::dropout::keeps(0x1234_5678_9abc_def0, c, 1 << 31)).collect();
        for isa in Isa::available() {
            let mut found = vec![false; 100];
            isa.force(|| draw_all(0x1234_5678_9abc_def0, 1 << 31, &mut found));
            assert_eq!(found, expected, "{isa:?}");
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same_lanes() {
        let a: Vec<f32> = (0..16).map(|i| (i as f32 * 1.7).sin()).collect();
        let b: Vec<f32> = (0..16).map(|i| (i as f32 * 0.9).cos()).collect();
        let expected = Isa::Plain.force(|| lane_results(&a, &b));
        for isa in Isa::available() {
            assert_eq!(isa.force(|| lane_results(&a, &b)), expected, "{isa:?}");
        }
    }
}
