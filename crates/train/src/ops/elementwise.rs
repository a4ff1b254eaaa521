//! Sums and multiples of whole buffers.

use super::isa::kernel;
use super::pool::{Pool, Shared};

const GRAIN: usize = 1 << 16;

/// `y += x`.
pub fn add(pool: &Pool, x: &[f32], y: &mut [f32]) {
    combine(pool, 1.0, x, 1.0, y);
}

/// `y = a * y`.
pub fn scale(pool: &Pool, a: f32, y: &mut [f32]) {
    let out = Shared::new(y);
    pool.for_ranges(out.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        scale_range(a, unsafe { out.part(range.start, range.len()) });
    });
}

/// `y += a * x`.
pub fn axpy(pool: &Pool, a: f32, x: &[f32], y: &mut [f32]) {
    combine(pool, a, x, 1.0, y);
}

/// `y = a * x + b * y`: with `a = 1 + eps`, `b = 1` the input of GIN's network.
pub fn combine(pool: &Pool, a: f32, x: &[f32], b: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "both buffers have the same shape");
    let out = Shared::new(y);
    pool.for_ranges(x.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start, range.len()) };
        combine_range(a, &x[range], b, y);
    });
}

/// `y = a + b`.
pub fn sum(pool: &Pool, a: &[f32], b: &[f32], y: &mut [f32]) {
    assert!(a.len() == y.len() && b.len() == y.len(), "all buffers have the same shape");
    let out = Shared::new(y);
    pool.for_ranges(a.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let y = unsafe { out.part(range.start, range.len()) };
        sum_range(&a[range.clone()], &b[range], y);
    });
}

kernel! {
    fn scale_range<S>(a: f32, y: &mut [f32]) {
        y.iter_mut().for_each(|y| *y *= a);
    }
}

kernel! {
    fn combine_range<S>(a: f32, x: &[f32], b: f32, y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = a * x + b * *y;
        }
    }
}

kernel! {
    fn sum_range<S>(a: &[f32], b: &[f32], y: &mut [f32]) {
        for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
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
                assert_eq!(run(&|y| scale(&pool, 3.0, y)), expect(&|_, y| 3.0 * y));
                assert_eq!(run(&|y| axpy(&pool, -2.0, &x, y)), expect(&|x, y| -2.0 * x + y));
                assert_eq!(run(&|y| combine(&pool, 1.5, &x, 0.5, y)), expect(&|x, y| 1.5 * x + 0.5 * y));
                assert_eq!(run(&|out| sum(&pool, &x, &y, out)), expect(&|x, y| x + y));
            }
        }
    }
}
