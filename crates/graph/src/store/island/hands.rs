//! Who does the work of making an island. This crate has no threads of its own for it: who asks for an island says
//! what may be used.

use std::sync::{Mutex, PoisonError};

/// Calls a body for every number below a count, in any order, on any threads, and returns when all calls have.
pub type Hands<'a> = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + 'a;

/// [`Hands`] of the calling thread alone.
pub fn one_by_one(count: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..count).for_each(body);
}

/// Has `body` called for every piece of something that is written.
pub(super) fn share_out<T: Send>(hands: &Hands<'_>, pieces: Vec<T>, body: impl Fn(usize, &mut T) + Sync) {
    // Each is locked once, by whoever takes it.
    let pieces: Vec<Mutex<T>> = pieces.into_iter().map(Mutex::new).collect();
    hands(pieces.len(), &|at| body(at, &mut pieces[at].lock().unwrap_or_else(PoisonError::into_inner)));
}
