//! Who runs the ranges of a loop? The calling thread, helped by the threads of a [`Pool`] that have nothing to do.
//!
//! A kernel splits its work into ranges that do not depend on the number of threads, so a pool decides only who
//! computes a range and never what is computed. It holds no data of any kernel.

use std::ops::Range;
use std::sync::Arc;

use super::crew::Crew;

/// Threads shared by the ranks of a process; with one thread, work runs where it is called.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    crew: Option<Arc<Crew>>,
}

impl Pool {
    /// A pool of `threads` threads, the calling one among them; 0 and 1 mean the calling thread alone. When the
    /// system gives fewer threads, those there are do all the work: slower, same numbers.
    pub fn new(threads: usize) -> Self {
        let crew = (threads > 1).then(|| Crew::new(threads - 1));
        Self { crew: crew.filter(|crew| crew.helpers() > 0).map(Arc::new) }
    }

    /// How many threads may work at once. Ranks that share the pool work in any case; helpers join while there are
    /// fewer.
    pub fn threads(&self) -> usize {
        self.crew.as_ref().map_or(1, |crew| crew.helpers() + 1)
    }

    /// Calls `body` for the ranges `0..grain`, `grain..2 * grain`, … of `0..count`, in any order and on any thread.
    pub fn for_ranges(&self, count: usize, grain: usize, body: impl Fn(Range<usize>) + Sync) {
        let grain = grain.max(1);
        let range = |c: usize| c * grain..count.min((c + 1) * grain);
        self.for_each(count.div_ceil(grain), |c| body(range(c)));
    }

    /// Calls `body` for `0..count`, in any order and on any thread. Each call should be worth some 20 microseconds.
    ///
    /// # Panics
    /// When `body` does, and once no thread is in it any more; indices that nobody has begun are then left out.
    pub fn for_each(&self, count: usize, body: impl Fn(usize) + Sync) {
        match &self.crew {
            Some(crew) if count > 1 => crew.for_each(count, &body),
            _ => (0..count).for_each(body),
        }
    }
}

/// A slice of which several threads write different parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: a `Shared` only hands out parts through `part`, whose callers promise that parts do not overlap.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Shares `slice` until the kernel call that borrows it ends.
    pub fn new(slice: &mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len() }
    }

    /// How many elements are shared.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The `len` elements from `at` on.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap, and the shared slice is still borrowed.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, at: usize, len: usize) -> &mut [T] {
        assert!(at <= self.len && len <= self.len - at, "rows {at}+{len} end after {}", self.len);
        // SAFETY: in bounds by the assertion, not aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_index_is_visited_once_whatever_the_threads_and_grain() {
        for threads in [1, 2, 3] {
            let pool = Pool::new(threads);
            for (count, grain) in [(0, 4), (1, 4), (7, 3), (100, 1), (5, 0)] {
                let visits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.for_ranges(count, grain, |range| {
                    range.for_each(|i| {
                        visits[i].fetch_add(1, Ordering::Relaxed);
                    })
                });
                assert!(visits.iter().all(|v| v.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn ranks_share_a_pool() {
        let pool = Pool::new(2);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let sum = AtomicUsize::new(0);
                    pool.for_each(1000, |i| {
                        sum.fetch_add(i, Ordering::Relaxed);
                    });
                    assert_eq!(sum.into_inner(), 499_500);
                });
            }
        });
    }
}
