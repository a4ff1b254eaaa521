//! The registers of AVX2 and AVX-512 behind [`Simd`].

use std::arch::x86_64::*;

use super::Simd;

/// Methods that are one expression of intrinsics.
macro_rules! intrinsics {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {
        $(#[inline(always)]
        fn $name($($arg: $ty),*) -> $out {
            // SAFETY: `kernel!` runs these types only on machines that have the instructions (see `Simd`).
            unsafe { $body }
        })*
    };
}

/// Eight lanes, fused multiply-add.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2;

const MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
fn first_lanes(n: usize) -> __m256i {
    // SAFETY: 8 - n is in 0..=8 and 8 entries follow it; AVX as in `intrinsics!`.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n.min(8)).cast()) }
}

/// For every set of lanes, which lane comes to each place when they are moved side by side.
static SIDE_BY_SIDE: [[u8; 8]; 256] = side_by_side();

const fn side_by_side() -> [[u8; 8]; 256] {
    let mut all = [[0; 8]; 256];
    let mut bits = 0;
    while bits < 256 {
        let (mut lane, mut place) = (0, 0);
        while lane < 8 {
            if bits >> lane & 1 == 1 {
                all[bits][place] = lane as u8;
                place += 1;
            }
            lane += 1;
        }
        bits += 1;
    }
    all
}

impl Simd for Avx2 {
    type V = __m256;
    const N: usize = 8;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        // SAFETY: lanes outside the mask are not touched.
        unsafe { _mm256_maskload_ps(p, first_lanes(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V) {
        // SAFETY: lanes outside the mask are not touched.
        unsafe { _mm256_maskstore_ps(p, first_lanes(n), v) }
    }
    #[inline(always)]
    unsafe fn squeeze(p: *mut f32, v: Self::V, bits: u32) {
        let lanes = &SIDE_BY_SIDE[(bits & 0xff) as usize];
        // SAFETY: the caller's promise; eight bytes are read of eight.
        unsafe {
            let lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(lanes.as_ptr().cast()));
            _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(v, lanes));
        }
    }
    #[inline(always)]
    unsafe fn turn(a: *const f32, out: *mut f32, [step, out_step]: [usize; 2]) {
        // Pairs of rows, then of pairs, then of halves: after each, twice as many numbers of a column are side by side.
        // SAFETY: the caller's promise.
        unsafe {
            let row = |i: usize| _mm256_loadu_ps(a.add(i * step));
            let pair = |i: usize| {
                let (above, below) = (row(i), row(i + 1));
                [_mm256_unpacklo_ps(above, below), _mm256_unpackhi_ps(above, below)]
            };
            let four = |i: usize| {
                let ([a, b], [c, d]) = (pair(i), pair(i + 2));
                [
                    _mm256_shuffle_ps::<0x44>(a, c),
                    _mm256_shuffle_ps::<0xee>(a, c),
                    _mm256_shuffle_ps::<0x44>(b, d),
                    _mm256_shuffle_ps::<0xee>(b, d),
                ]
            };
            for (j, (above, below)) in four(0).into_iter().zip(four(4)).enumerate() {
                _mm256_storeu_ps(out.add(j * out_step), _mm256_permute2f128_ps::<0x20>(above, below));
                _mm256_storeu_ps(out.add((j + 4) * out_step), _mm256_permute2f128_ps::<0x31>(above, below));
            }
        }
    }
    intrinsics! {
        fn splat(x: f32) -> __m256 { _mm256_set1_ps(x) }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        fn gt(a: __m256, b: __m256) -> u32 { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) as u32 }
        fn nonzero(v: __m256) -> u32 {
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NEQ_UQ>(v, _mm256_setzero_ps())) as u32
        }
        fn sum(v: __m256) -> f32 {{
            let h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let h = _mm_add_ps(h, _mm_movehl_ps(h, h));
            _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)))
        }}
        fn keep(v: __m256, bits: u32) -> __m256 {{
            let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let set = _mm256_and_si256(_mm256_set1_epi32(bits as i32), lane);
            _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)))
        }}
        fn power_of_two(shifted: __m256) -> __m256 {{
            let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted));
            _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_set1_epi32(0x3f80_0000)))
        }}
        fn draws(row: u64, column: u32, threshold: u32) -> u32 {{
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let c = _mm256_add_epi32(_mm256_set1_epi32(column as i32), lane);
            let x = _mm256_mullo_epi32(c, _mm256_set1_epi32(super::super::dropout::STEP as i32));
            let x = _mm256_add_epi32(x, _mm256_set1_epi32(row as i32));
            let x = _mm256_xor_si256(x, _mm256_srli_epi32::<16>(x));
            let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(super::super::dropout::FIRST as i32));
            let x = _mm256_xor_si256(x, _mm256_srli_epi32::<15>(x));
            let x = _mm256_xor_si256(x, _mm256_set1_epi32((row >> 32) as i32));
            let x = _mm256_mullo_epi32(x, _mm256_set1_epi32(super::super::dropout::SECOND as i32));
            let x = _mm256_xor_si256(x, _mm256_srli_epi32::<16>(x));
            let kept = _mm256_cmpeq_epi32(_mm256_max_epu32(x, _mm256_set1_epi32(threshold as i32)), x);
            _mm256_movemask_ps(_mm256_castsi256_ps(kept)) as u32
        }}
        fn prefetch(p: *const f32) -> () { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}

/// Sixteen lanes with mask registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512;

impl Simd for Avx512 {
    type V = __m512;
    const N: usize = 16;

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        // SAFETY: lanes outside the mask are not touched.
        unsafe { _mm512_maskz_loadu_ps(((1u32 << n.min(16)) - 1) as __mmask16, p) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V) {
        // SAFETY: lanes outside the mask are not touched.
        unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n.min(16)) - 1) as __mmask16, v) }
    }
    #[inline(always)]
    unsafe fn squeeze(p: *mut f32, v: Self::V, bits: u32) {
        // In a register: the instruction that writes to memory is slow on some processors.
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(p, _mm512_maskz_compress_ps(bits as __mmask16, v)) }
    }
    #[inline(always)]
    unsafe fn turn(a: *const f32, out: *mut f32, steps: [usize; 2]) {
        // SAFETY: the caller's promise.
        unsafe { Avx2::turn(a, out, steps) }
    }
    #[inline(always)]
    fn draws(row: u64, column: u32, threshold: u32) -> u32 {
        Avx2::draws(row, column, threshold) | Avx2::draws(row, column.wrapping_add(8), threshold) << 8
    }
    intrinsics! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn gt(a: __m512, b: __m512) -> u32 { u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b)) }
        fn nonzero(v: __m512) -> u32 {
            u32::from(_mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(v, _mm512_setzero_ps()))
        }
        fn sum(v: __m512) -> f32 {
            Avx2::sum(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)))
        }
        fn keep(v: __m512, bits: u32) -> __m512 { _mm512_maskz_mov_ps(bits as __mmask16, v) }
        fn power_of_two(shifted: __m512) -> __m512 {{
            let n = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_set1_epi32(0x3f80_0000)))
        }}
        fn prefetch(p: *const f32) -> () { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
}
