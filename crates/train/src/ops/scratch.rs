//! Where does a kernel put what it needs only until it returns? In buffers that each thread keeps and reuses, so that
//! nothing is allocated after the first step.

use super::LINE;
use archipelago_graph::array::advise_huge;
use std::cell::RefCell;

thread_local! { static FREE: RefCell<Vec<Vec<f32>>> = RefCell::new(prepared()); }

/// Floats that the task of any kernel here needs at most, but for very wide layers.
const TASK: usize = 1 << 16;

/// Buffers of one thread that are in use at the same time: that of a kernel, that of a task, and one to spare.
const NESTED: usize = 3;

/// What a thread has from the start, so that it does not matter in which step it first gets a task of a kind. Pages
/// that are never written cost nothing.
fn prepared() -> Vec<Vec<f32>> {
    (0..NESTED).map(|_| vec![0.0; TASK + LINE - 1]).collect()
}

/// Makes what the calling thread would otherwise make when it first gets work, be it in the hundredth step.
pub(crate) fn prepare() {
    FREE.with_borrow(|_| ());
}

/// Lends `work` a buffer of `len` floats **of unspecified value** that starts at a line of the caches: a register that is read
/// across two lines takes twice as long. Calls may be nested.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let room = len + LINE - 1;
    let mut buffer = FREE.with_borrow_mut(|free| take_best(free, room));
    if buffer.len() < room {
        buffer.reserve_exact(room - buffer.len());
        advise_huge(&mut buffer);
        buffer.resize(room, 0.0);
    }
    let start = buffer.as_ptr().align_offset(LINE * size_of::<f32>());
    let result = work(&mut buffer[start..][..len]);
    FREE.with_borrow_mut(|free| free.push(buffer));
    result
}

/// The smallest kept buffer that is large enough, else the largest; of equals that which was used last.
fn take_best(free: &mut Vec<Vec<f32>>, len: usize) -> Vec<f32> {
    let best = (0..free.len()).rev().min_by_key(|&i| match free[i].len() {
        n if n >= len => (0, n),
        n => (1, usize::MAX - n),
    });
    best.map(|i| free.swap_remove(i)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_buffers_are_different_and_the_next_call_reuses_them() {
        let first = with_scratch(10, |a| with_scratch(10, |b| (a.as_ptr() as usize, b.as_ptr() as usize)));
        assert_ne!(first.0, first.1);
        let again = with_scratch(5, |a| a.as_ptr() as usize);
        assert!(again == first.0 || again == first.1);
    }
}
