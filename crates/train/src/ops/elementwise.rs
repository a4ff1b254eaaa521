//! Sums and multiples of whole buffers, or of some of their rows.

use super::isa::kernel;
use super::pool::{Pool, Shared};

const GRAIN: usize = 1 << 16;

/// `y += x`.
pub fn add(pool: &Pool, x: &[f32], y: &mut [f32]) {
    axpy(pool, 1.0, x, y);
}

/// `y += a * x`.
pub fn axpy(pool: &Pool, a: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "both buffers have the same shape");
    let out = Shared::new(y);
    pool.for_ranges(x.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start, range.len()) };
        axpy_range(a, &x[range], y);
    });
}

/// `y = f(y)`.
pub fn map(pool: &Pool, y: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    let (len, out) = (y.len(), Shared::new(y));
    pool.for_ranges(len, GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start, range.len()) };
        y.iter_mut().for_each(|y| *y = f(*y));
    });
}

/// `y = f(x, y)`.
pub fn zip(pool: &Pool, x: &[f32], y: &mut [f32], f: impl Fn(f32, f32) -> f32 + Sync) {
    assert_eq!(x.len(), y.len(), "both buffers have the same shape");
    let out = Shared::new(y);
    pool.for_ranges(x.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start, range.len()) };
        y.iter_mut().zip(&x[range]).for_each(|(y, &x)| *y = f(x, *y));
    });
}

kernel! {
    /// Adds one row of `more` to each of the `listed` rows of `out`.
    pub fn add_rows<S>(listed: &[u32], more: &[f32], width: usize, out: &mut [f32]) {
        for (more, &row) in more.chunks_exact(width).zip(listed) {
            for (sum, more) in out[row as usize * width..][..width].iter_mut().zip(more) {
                *sum += more;
            }
        }
    }
}

kernel! {
    /// The sum of the squares: in so many lanes, then over these in their order.
    pub fn sum_of_squares<S>(x: &[f32]) -> f64 {
        let mut lanes = [0.0; 16];
        let (whole, rest) = x.as_chunks::<16>();
        for x in whole {
            for (sum, &x) in lanes.iter_mut().zip(x) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        rest.iter().fold(lanes.iter().sum(), |sum: f64, &x| sum + f64::from(x) * f64::from(x))
    }
}

kernel! {
    fn axpy_range<S>(a: f32, x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y += a * x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::numbers;
    use super::*;

    #[test]
    fn buffers_are_added_and_scaled_element_by_element() {
        for len in [0, 1, 7, 100_003] {
            let (x, y) = (numbers(1, len), numbers(2, len));
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let run = |f: &dyn Fn(&mut [f32])| {
                    let mut out = y.clone();
                    f(&mut out);
                    out
                };
                let expect = |f: &dyn Fn(f32, f32) -> f32| {
                    x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect::<Vec<_>>()
                };
                assert_eq!(run(&|y| add(&pool, &x, y)), expect(&|x, y| x + y));
                assert_eq!(run(&|y| axpy(&pool, -2.0, &x, y)), expect(&|x, y| -2.0 * x + y));
                assert_eq!(run(&|y| zip(&pool, &x, y, |x, y| x * y)), expect(&|x, y| x * y));
                assert_eq!(run(&|y| map(&pool, y, |y| 1.0 - y)), expect(&|_, y| 1.0 - y));
            }
        }
    }
}
