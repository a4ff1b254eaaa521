//! What leaves for one process, in order.

use super::library::{Flight, Library, Result};
use crate::Frame;
use std::collections::VecDeque;

/// How many bytes the library is given before earlier ones have left: more would only fill the memory between two sockets, from
/// where it takes longer to read than from a cache.
const WINDOW: usize = 1 << 18;

/// The frames that leave for one process.
#[derive(Default)]
pub(super) struct Lane {
    waiting: VecDeque<Frame>,
    /// With the library until it is done with them: the first has those behind it wait, which need not be asked for.
    leaving: VecDeque<Flight>,
    /// The bytes of those.
    given: usize,
}

impl Lane {
    /// Has `frame` leave after all others.
    pub fn push(&mut self, frame: Frame) {
        self.waiting.push_back(frame);
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leaving.is_empty()
    }

    /// Forgets what has left for process `to`, and gives the library what may follow. Whether anything moved.
    pub fn advance(&mut self, library: &Library, to: usize) -> Result<bool> {
        let mut moved = false;
        while let Some(first) = self.leaving.front_mut() {
            if !library.landed(first)? {
                break;
            }
            self.given -= first.bytes();
            self.leaving.pop_front();
            moved = true;
        }
        while self.given < WINDOW
            && let Some(frame) = self.waiting.pop_front()
        {
            let flight = library.send(to, frame)?;
            self.given += flight.bytes();
            self.leaving.push_back(flight);
            moved = true;
        }
        Ok(moved)
    }
}
