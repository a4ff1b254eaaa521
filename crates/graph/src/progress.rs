//! How long work tells its caller where it is and learns that it should stop.

use crate::{Error, Result};

/// Receives the progress of a long pass. The terminal implements it; tests and libraries use [`Silent`].
pub trait Progress: Sync {
    /// A pass named `name` begins; it will be `total` `unit`s long (0 = not known).
    fn begin(&self, name: &str, total: u64, unit: &'static str);

    /// `count` more units are done.
    fn advance(&self, count: u64);

    /// Whether the user asked to stop.
    fn cancelled(&self) -> bool {
        false
    }

    /// [`advance`](Self::advance), then [`Error::Interrupted`] when the user asked to stop.
    fn tick(&self, count: u64) -> Result<()> {
        self.advance(count);
        if self.cancelled() { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// Progress that nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _: &str, _: u64, _: &'static str) {}
    fn advance(&self, _: u64) {}
}
