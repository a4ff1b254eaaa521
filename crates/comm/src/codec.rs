//! How rows of `f32` are written on the wire: exactly, or in fewer bytes.
//!
//! A codec encodes rows of one width one after the other, each in the same number of bytes, so that a row can be
//! found without decoding those before it. Numbers are little-endian whatever the machine.
//!
//! | codec | bytes per row of w numbers | error of a number x |
//! | --- | --- | --- |
//! | `f32` | 4w | none |
//! | `bf16` | 2w | at most \|x\| / 256 (stochastic: / 128) |
//! | `int8` | 4 + w, rounded up to a multiple of 4 | at most m / 254 (stochastic: m / 127), m = largest \|x\| of the row |
//!
//! `int8` divides a row by its scale m / 127, kept as one `f32` in front of it. Rounding to nearest is the default;
//! stochastic rounding (up with probability equal to the fraction lost) is right on average, which is what sums of
//! many encoded rows need. NaN and infinity are never hidden (`bf16` keeps them, `int8` makes the whole row NaN) and
//! never made: what would round to infinity is cut.

use crate::{Error, Result};

/// What to do with the digits that do not fit.
#[derive(Clone, Copy)]
pub enum Rounding<'a> {
    /// To the nearest number.
    Nearest,
    /// Up or down at random, right on average: the function gives 64 random bits for a place in the rows, 16 for each of
    /// the four numbers from there on. A function of a counter-based key keeps runs reproducible.
    Stochastic(&'a dyn Fn(u64) -> u64),
}

/// A line of the table of codecs.
#[derive(Debug)]
pub struct Codec {
    /// The name users type.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Whether decoding gives back the bits that were encoded.
    pub exact: bool,
    row_bytes: fn(usize) -> usize,
    encode_row: fn(&[f32], Rounding<'_>, u64, &mut [u8]),
    decode_row: fn(&[u8], &mut [f32]),
}

/// All codecs, exact first.
pub const CODECS: &[Codec] = &[
    Codec {
        name: "f32",
        summary: "every bit",
        exact: true,
        row_bytes: |width| 4 * width,
        encode_row: encode_f32,
        decode_row: decode_f32,
    },
    Codec {
        name: "bf16",
        summary: "half the bytes: 8 significant bits, the range of f32",
        exact: false,
        row_bytes: |width| 2 * width,
        encode_row: encode_bf16,
        decode_row: decode_bf16,
    },
    Codec {
        name: "int8",
        summary: "a quarter of the bytes: 255 levels, one scale per row",
        exact: false,
        row_bytes: |width| 4 + width.next_multiple_of(4),
        encode_row: encode_int8,
        decode_row: decode_int8,
    },
];

impl Codec {
    /// The codec with this name.
    pub fn named(name: &str) -> Result<&'static Self> {
        CODECS.iter().find(|codec| codec.name == name).ok_or_else(|| Error::Unknown {
            kind: "codec",
            name: name.into(),
            known: CODECS.iter().map(|codec| codec.name).collect(),
        })
    }

    /// The bytes that `rows` rows of `width` numbers take: the size of the frame to ask for.
    pub fn bytes(&self, rows: usize, width: usize) -> usize {
        rows * (self.row_bytes)(width)
    }

    /// Writes `rows` (a whole number of rows of `width` numbers) into `out`, of exactly
    /// [`bytes`](Self::bytes) bytes.
    pub fn encode(&self, rows: &[f32], width: usize, rounding: Rounding<'_>, out: &mut [u8]) -> Result<()> {
        self.check(rows.len(), width, out.len())?;
        if width == 0 {
            return Ok(());
        }
        let encoded = out.chunks_exact_mut((self.row_bytes)(width));
        for (i, (row, out)) in rows.chunks_exact(width).zip(encoded).enumerate() {
            (self.encode_row)(row, rounding, (i * width) as u64, out);
        }
        Ok(())
    }

    /// Reads rows of `width` numbers from `bytes`, as many as `rows` holds.
    pub fn decode(&self, bytes: &[u8], width: usize, rows: &mut [f32]) -> Result<()> {
        self.check(rows.len(), width, bytes.len())?;
        if width == 0 {
            return Ok(());
        }
        if self.exact && cfg!(target_endian = "little") {
            bytemuck::cast_slice_mut(rows).copy_from_slice(bytes);
            return Ok(());
        }
        let encoded = bytes.chunks_exact((self.row_bytes)(width));
        for (row, bytes) in rows.chunks_exact_mut(width).zip(encoded) {
            (self.decode_row)(bytes, row);
        }
        Ok(())
    }

    fn check(&self, numbers: usize, width: usize, found: usize) -> Result<()> {
        let rows = numbers.checked_div(width).unwrap_or(0);
        if rows * width != numbers {
            let message = format!("expected whole rows of `{width}` numbers, found `{numbers}` numbers");
            return Err(Error::Usage { message, hint: "all rows of one message have the same width" });
        }
        let expected = if width == 0 { 0 } else { self.bytes(rows, width) };
        if expected != found {
            let what = format!("{rows} rows of {width} numbers as `{}`", self.name);
            return Err(Error::Length { what, expected, found });
        }
        Ok(())
    }
}

fn encode_f32(row: &[f32], _: Rounding<'_>, _: u64, out: &mut [u8]) {
    for (x, out) in row.iter().zip(out.chunks_exact_mut(4)) {
        out.copy_from_slice(&x.to_le_bytes());
    }
}

fn decode_f32(bytes: &[u8], row: &mut [f32]) {
    for (x, bytes) in row.iter_mut().zip(bytes.chunks_exact(4)) {
        *x = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
}

/// Numbers that share one draw of [`Rounding::Stochastic`].
const DRAWN: usize = 4;

/// Calls `each` with every number of a row that begins at place `first`, what is written of it, and its 16 random bits.
#[inline(always)]
fn at_random<'a, T: 'a>(
    row: &[f32],
    bits: &dyn Fn(u64) -> u64,
    first: u64,
    out: impl Iterator<Item = &'a mut [T]>,
    mut each: impl FnMut(f32, &mut T, u32),
) {
    for ((numbers, out), place) in row.chunks(DRAWN).zip(out).zip((first..).step_by(DRAWN)) {
        let drawn = bits(place);
        for (i, (x, out)) in numbers.iter().zip(out).enumerate() {
            each(*x, out, (drawn >> (16 * i)) as u16 as u32);
        }
    }
}

fn encode_bf16(row: &[f32], rounding: Rounding<'_>, first: u64, out: &mut [u8]) {
    let out = out.as_chunks_mut::<2>().0;
    match rounding {
        Rounding::Nearest => row.iter().zip(out).for_each(|(x, out)| {
            let half_or_even = 0x7fff + (x.to_bits() >> 16 & 1);
            *out = raised_bf16(*x, half_or_even).to_le_bytes();
        }),
        Rounding::Stochastic(bits) => {
            at_random(row, bits, first, out.chunks_mut(DRAWN), |x, out, raise| {
                *out = raised_bf16(x, raise).to_le_bytes();
            });
        }
    }
}

/// The upper half of `x` after adding `raise` to the lower half; without it where that would leave the finite numbers.
fn raised_bf16(x: f32, raise: u32) -> u16 {
    const INFINITE: u16 = 0x7f80;
    const QUIET: u16 = 0x0040;
    let cut = (x.to_bits() >> 16) as u16;
    let raised = (x.to_bits().wrapping_add(raise) >> 16) as u16;
    if x.is_nan() {
        cut | QUIET
    } else if raised & INFINITE == INFINITE {
        cut
    } else {
        raised
    }
}

fn decode_bf16(bytes: &[u8], row: &mut [f32]) {
    for (x, bytes) in row.iter_mut().zip(bytes.chunks_exact(2)) {
        *x = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
    }
}

fn encode_int8(row: &[f32], rounding: Rounding<'_>, first: u64, out: &mut [u8]) {
    let scale = int8_scale(row);
    let (head, levels) = out.split_at_mut(4);
    head.copy_from_slice(&scale.to_le_bytes());
    levels.fill(0);
    if scale.is_nan() || scale == 0.0 {
        return;
    }
    let scaled = |x: f32| (x / scale).clamp(-127.0, 127.0);
    match rounding {
        Rounding::Nearest => row.iter().zip(levels).for_each(|(x, level)| *level = nearest_int8(scaled(*x))),
        Rounding::Stochastic(bits) => {
            // Between -1/2 and 1/2, and neither: a level stays what it is.
            let shift = |drawn: u32| (drawn as f32 + 0.5) * (1.0 / (1 << 16) as f32) - 0.5;
            at_random(row, bits, first, levels.chunks_mut(DRAWN), |x, level, drawn| {
                *level = nearest_int8(scaled(x) + shift(drawn));
            });
        }
    }
}

/// The integer nearest to `x`, of at most 127 in magnitude, in two's complement.
///
/// At 1.5 * 2^23 the last binary digit of an `f32` is worth 1: adding rounds, and leaves the integer in the low bits.
/// Unlike `round`, this becomes vector instructions on every machine.
fn nearest_int8(x: f32) -> u8 {
    (x + 12_582_912.0).to_bits() as u8
}

/// A 127th of the largest magnitude; NaN when the row holds anything that is not finite.
///
/// Magnitudes are ordered like their bits, with infinity and NaN on top.
fn int8_scale(row: &[f32]) -> f32 {
    let magnitude = |x: &f32| x.to_bits() & 0x7fff_ffff;
    let largest = f32::from_bits(row.iter().map(magnitude).fold(0, u32::max));
    if largest.is_finite() { largest / 127.0 } else { f32::NAN }
}

fn decode_int8(bytes: &[u8], row: &mut [f32]) {
    let (head, levels) = bytes.split_at(4);
    let scale = f32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    for (x, level) in row.iter_mut().zip(levels) {
        // 127 times a rounded 127th of the largest f32 can be infinite; NaN passes through.
        *x = (f32::from(*level as i8) * scale).clamp(f32::MIN, f32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// splitmix64, as the random bits of a test.
    fn bits(seed: u64) -> impl Fn(u64) -> u64 {
        move |i| {
            let mut z = (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
    }

    fn there_and_back(codec: &Codec, rows: &[f32], width: usize, rounding: Rounding<'_>) -> Vec<f32> {
        let mut bytes = vec![0xab; codec.bytes(rows.len() / width, width)];
        codec.encode(rows, width, rounding, &mut bytes).unwrap();
        let mut back = vec![0.0; rows.len()];
        codec.decode(&bytes, width, &mut back).unwrap();
        back
    }

    /// The bound that the table at the top of this file states, with one part in a million for the arithmetic.
    fn bound(codec: &Codec, x: f32, row: &[f32], stochastic: bool) -> f32 {
        let largest = row.iter().fold(0f32, |m, x| m.max(x.abs()));
        let error = match codec.name {
            "f32" => return 0.0,
            "bf16" => x.abs() / 256.0,
            _ => largest / 254.0,
        };
        error * if stochastic { 2.0 } else { 1.0 } + largest * 1e-6 + f32::MIN_POSITIVE
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_number_comes_back_within_the_bound_of_its_codec(
            width in 1usize..40,
            numbers in prop::collection::vec(-3.3e38f32..3.3e38, 1..200),
            exponent in -40i32..1,
            seed: u64,
        ) {
            let rows: Vec<f32> = numbers.iter().map(|x| x * 10f32.powi(exponent)).collect();
            let rows = &rows[..rows.len() / width * width];
            let random = bits(seed);
            for codec in CODECS {
                for (rounding, stochastic) in
                    [(Rounding::Nearest, false), (Rounding::Stochastic(&random), true)]
                {
                    let back = there_and_back(codec, rows, width, rounding);
                    for (row, back) in rows.chunks(width).zip(back.chunks(width)) {
                        for (x, y) in row.iter().zip(back) {
                            let error = (x - y).abs();
                            prop_assert!(
                                error <= bound(codec, *x, row, stochastic),
                                "{}: {x} became {y}", codec.name
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bf16_to_nearest_is_that_of_the_crate_half() {
        let codec = Codec::named("bf16").unwrap();
        let random = bits(3);
        let row: Vec<f32> = (0..100_000).map(|i| f32::from_bits(random(i) as u32)).collect();
        let back = there_and_back(codec, &row, row.len(), Rounding::Nearest);
        for (x, back) in row.into_iter().zip(back) {
            let expected = half::bf16::from_f32(x).to_f32();
            let cut = x.is_finite() && !expected.is_finite();
            assert!(cut || back.to_bits() == expected.to_bits(), "{x} became {back}, not {expected}");
        }
    }

    #[test]
    fn int8_to_nearest_rounds_as_the_mathematician_does() {
        for x in -12_700..=12_700 {
            let x = x as f32 / 100.0;
            assert_eq!(nearest_int8(x) as i8, x.round_ties_even() as i8, "{x}");
        }
    }

    #[test]
    fn stochastic_rounding_is_right_on_average() {
        let row = [1.0, 0.3217, -0.0043, -0.77];
        for codec in CODECS {
            let mut mean = [0f64; 4];
            let rounds = 20_000;
            for round in 0..rounds {
                let random = bits(round << 8);
                let back = there_and_back(codec, &row, 4, Rounding::Stochastic(&random));
                mean.iter_mut().zip(back).for_each(|(mean, x)| *mean += f64::from(x) / rounds as f64);
            }
            for (x, mean) in row.iter().zip(mean) {
                assert!((f64::from(*x) - mean).abs() < 2e-4, "{}: {x} is on average {mean}", codec.name);
            }
        }
    }

    #[test]
    fn what_a_codec_can_write_is_not_rounded_whatever_is_drawn() {
        let row: Vec<f32> = (-127..=127).map(|level| level as f32).collect();
        for drawn in [0, u64::MAX, 0x8000_7fff_0001_ffff] {
            for codec in CODECS {
                assert_eq!(there_and_back(codec, &row, row.len(), Rounding::Stochastic(&|_| drawn)), row);
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_never_hidden() {
        for codec in CODECS {
            for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let random = bits(1);
                for rounding in [Rounding::Nearest, Rounding::Stochastic(&random)] {
                    let back = there_and_back(codec, &[1.0, x], 2, rounding);
                    assert!(!back[1].is_finite(), "{}: {x} became {}", codec.name, back[1]);
                }
            }
        }
    }

    #[test]
    fn zeros_and_the_largest_numbers_survive_every_codec() {
        for codec in CODECS {
            assert_eq!(there_and_back(codec, &[0.0; 5], 5, Rounding::Nearest), [0.0; 5]);
            let random = bits(2);
            for rounding in [Rounding::Nearest, Rounding::Stochastic(&random)] {
                let back = there_and_back(codec, &[f32::MAX, -f32::MAX], 2, rounding);
                assert!(back.iter().all(|x| x.is_finite()), "{}: {back:?}", codec.name);
            }
        }
    }

    #[test]
    fn buffers_of_the_wrong_size_are_refused() {
        let int8 = Codec::named("int8").unwrap();
        assert_eq!(int8.bytes(2, 5), 24);
        let short = int8.encode(&[0.0; 10], 5, Rounding::Nearest, &mut [0; 23]).unwrap_err();
        assert_eq!(short.to_string(), "2 rows of 5 numbers as `int8`: expected 24 bytes, found 23");
        assert!(int8.decode(&[0; 24], 5, &mut [0.0; 9]).is_err());
        assert!(int8.encode(&[], 0, Rounding::Nearest, &mut []).is_ok());
        assert!(int8.encode(&[1.0], 0, Rounding::Nearest, &mut []).is_err());
        assert_eq!(
            Codec::named("int4").unwrap_err().to_string(),
            "unknown codec `int4`; known: f32, bf16, int8"
        );
    }
}
