//! "I am one rank among several: let us talk."
//!
//! Tagged messages, deterministic collectives, meters, deadlines and a shared end: the little that training on
//! several ranks needs. This crate moves bytes and sums numbers; it never sees a graph and never prints.
//!
//! ```
//! use archipelago_comm::{Comm, Config, Error, Kind, launch};
//!
//! let sums = launch(&Config::threads(3), |comm: Comm| {
//!     let mut numbers = [comm.rank() as f32, 1.0];
//!     comm.all_reduce_sum_f32(&mut numbers, Kind::Gradients)?;
//!     Ok::<_, Error>(numbers)
//! })?;
//! assert_eq!(sums, [[3.0, 3.0]; 3]);
//! # Ok::<(), archipelago_comm::LaunchError<Error>>(())
//! ```

pub mod launch;
pub mod job;
pub mod comm;
mod collective;
pub mod terms;
mod envelope;
pub mod meters;
pub mod codec;
pub mod frame;
pub mod tag;
pub mod transport;
pub mod error;

pub use codec::{Codec, Rounding};
pub use collective::Stretches;
pub use comm::{Comm, Phase};
pub use error::{Error, Result};
pub use frame::{Frame, Pool, frames_of};
pub use job::Job;
pub use launch::{Config, Failure, LaunchError, launch, panic_text};
pub use meters::{Kind, Meter, Meters};
pub use tag::{Direction, Tag};
pub use transport::Transport;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks whatever a panicking rank left behind: its panic is reported by [`launch`](launch::launch), and none of
/// our critical sections leaves data half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
