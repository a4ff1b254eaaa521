//! Numbers on their way between targets and their mirrors on other ranks.
//!
//! Where a rank adds to a target of another, the master of the target sends what an edge reads of it, and the mirror sends
//! a partial aggregate; backward, gradients go the same ways reversed. Copies of targets stand rank by rank in the order of
//! the mirrors there, so a message is one stretch of memory at both ends.

use super::Crossing;
use super::ferry::{Ferry, stretches};
use crate::Result;
use crate::view::Layout;

/// Numbers of targets on their way: which layer's and how wide, in which pass, and how they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    crossing: Crossing,
    back: bool,
    exact: bool,
}

impl Relay {
    /// Rows of the forward pass, written as rows that cross are.
    pub fn forward(crossing: Crossing) -> Self {
        Self { crossing, back: false, exact: false }
    }

    /// Rows of the backward pass, written as rows that cross are.
    pub fn backward(crossing: Crossing) -> Self {
        Self { back: true, ..Self::forward(crossing) }
    }

    /// The same with so many numbers in a row, each of which keeps all its bits: scores, maxima, sums of exponentials.
    #[must_use]
    pub fn exactly(self, width: usize) -> Self {
        Self { crossing: Crossing { width, ..self.crossing }, exact: true, ..self }
    }

    /// Numbers per row.
    pub fn width(&self) -> usize {
        self.crossing.width
    }

    fn carried(&self) -> Crossing {
        Crossing { fixed: self.exact || self.crossing.fixed, ..self.crossing }
    }
}

impl Ferry {
    /// Sends one row for each copy of our targets to the rank that has it.
    pub fn tell_mirrors(&mut self, relay: Relay, layout: &Layout, copies: &[f32]) -> Result<()> {
        let Some(ends) = &layout.mirrors else { return Ok(()) };
        let width = relay.width();
        stretches(&ends.holders).try_for_each(|(peer, of)| {
            let copy = |at: usize| (&copies[at * width..][..width], layout.nodes[ends.copies[at] as usize]);
            self.send(peer, relay.carried(), relay.back, of.map(copy))
        })
    }

    /// Receives one row for each mirror here.
    pub fn hear_masters(&mut self, relay: Relay, layout: &Layout, mirrors: &mut [f32]) -> Result<()> {
        let Some(ends) = &layout.mirrors else { return Ok(()) };
        self.relayed(&ends.masters, relay, mirrors)
    }

    /// Sends one row for each mirror here to its master.
    pub fn tell_masters(&mut self, relay: Relay, layout: &Layout, mirrors: &[f32]) -> Result<()> {
        let Some(ends) = &layout.mirrors else { return Ok(()) };
        let width = relay.width();
        stretches(&ends.masters).try_for_each(|(peer, of)| {
            // A partial aggregate is a row, however it is written; scores beside rows are not.
            self.count(if relay.exact && !relay.back { of.len() } else { 0 });
            let mirror = |at: usize| (&mirrors[at * width..][..width], ends.nodes[at]);
            self.send(peer, relay.carried(), relay.back, of.map(mirror))
        })
    }

    /// Receives one row for each copy of our targets.
    pub fn hear_mirrors(&mut self, relay: Relay, layout: &Layout, copies: &mut [f32]) -> Result<()> {
        let Some(ends) = &layout.mirrors else { return Ok(()) };
        self.relayed(&ends.holders, relay, copies)
    }

    /// Receives so many rows from each rank, one rank after the other.
    fn relayed(&mut self, counts: &[usize], relay: Relay, rows: &mut [f32]) -> Result<()> {
        let (crossing, width) = (relay.carried(), relay.width());
        let (codec, tag) = (self.codec(crossing), self.tag(crossing, relay.back));
        stretches(counts).try_for_each(|(peer, of)| {
            self.receive_parts(peer, crossing, codec, tag, &mut rows[of.start * width..of.end * width])
        })
    }
}
