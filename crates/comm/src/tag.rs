//! Which conversation a message belongs to.
//!
//! A receiver asks for the next message with a given tag from a given rank; messages with other tags wait. A tag is
//! one number below 2^31, so that it is also a valid `int` tag of MPI:
//!
//! ```text
//! bit 30         29..24   23..16   15          14..0
//! collective     stream   layer    direction   sequence
//! ```
//!
//! Collectives share one tag: they are told apart by their order and their envelope.

use std::fmt;

/// Which way a message goes through the layers of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Towards the loss: features and embeddings.
    Forward,
    /// Away from the loss: gradients.
    Backward,
}

/// The name of a conversation between two ranks. Within one tag messages arrive in the order they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(u32);

impl Tag {
    pub(crate) const COLLECTIVE: Self = Self(1 << 30);

    /// The tag of `stream` (0 to 63, one per use: boundary, feature pull, …) for layer 0, forward, sequence 0.
    pub const fn new(stream: u8) -> Self {
        Self(((stream & 63) as u32) << 24)
    }

    /// The same for another layer.
    #[must_use]
    pub const fn layer(self, layer: u8) -> Self {
        Self(self.0 & !(255 << 16) | (layer as u32) << 16)
    }

    /// The same for another direction.
    #[must_use]
    pub const fn direction(self, direction: Direction) -> Self {
        Self(self.0 & !(1 << 15) | (direction as u32) << 15)
    }

    /// The same, going backward.
    #[must_use]
    pub const fn backward(self) -> Self {
        self.direction(Direction::Backward)
    }

    /// The same for the `sequence`-th message of its kind. Counts modulo 2^15; order within a tag does the rest.
    #[must_use]
    pub const fn sequence(self, sequence: u64) -> Self {
        Self(self.0 & !0x7fff | (sequence & 0x7fff) as u32)
    }

    /// The tag as a number below 2^31.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// The tag with this number, if it is one.
    pub const fn from_code(code: u32) -> Option<Self> {
        if code < 1 << 31 { Some(Self(code)) } else { None }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::COLLECTIVE {
            return f.write_str("collective");
        }
        let direction = if self.0 >> 15 & 1 == 0 { "forward" } else { "backward" };
        let (stream, layer, sequence) = (self.0 >> 24, self.0 >> 16 & 255, self.0 & 0x7fff);
        write!(f, "stream {stream}, layer {layer}, {direction}, #{sequence}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_tag_has_its_own_bits_below_2_to_the_31() {
        let tag = Tag::new(63).layer(255).backward().sequence(0x7fff);
        assert_eq!(tag.code(), (1 << 30) - 1);
        assert_eq!(tag.layer(0).direction(Direction::Forward).sequence(0), Tag::new(63));
        assert_eq!(Tag::new(5).layer(2).sequence(3).to_string(), "stream 5, layer 2, forward, #3");
        assert_eq!(Tag::from_code(tag.code()), Some(tag));
        assert_eq!(Tag::from_code(1 << 31), None);
    }

    #[test]
    fn a_sequence_counts_modulo_2_to_the_15_and_never_touches_other_fields() {
        assert_eq!(Tag::new(1).sequence(1 << 15), Tag::new(1));
        assert_ne!(Tag::new(1).sequence(u64::MAX), Tag::COLLECTIVE);
    }
}
