//! What is written on a frame, so that a receiver knows whether it is the one it waits for.
//!
//! Ranks number their collectives; two ranks in the same exchange write the same envelope, bit for bit.

use bytemuck::{Pod, Zeroable};
use std::fmt;

/// The exchanges there are. The discriminant is what travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Operation {
    Message,
    Barrier,
    Broadcast,
    Gather,
    AllGather,
    AllToAll,
    AllReduceSumF32,
    AllReduceSumF64,
    AllReduceSumU64,
    AllReduceMaxU64,
}

const NAMES: [&str; 10] = [
    "message",
    "barrier",
    "broadcast",
    "gather",
    "all_gather",
    "all_to_all",
    "all_reduce_sum_f32",
    "all_reduce_sum_f64",
    "all_reduce_sum_u64",
    "all_reduce_max_u64",
];

/// In [`Envelope::root`]: all ranks play the same part. In [`Envelope::length`]: ranks may differ.
const NONE: u64 = u64::MAX;

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Envelope {
    /// How many collectives this rank had entered before this one.
    sequence: u64,
    /// The rank that gives or gets, or `NONE`.
    root: u64,
    /// How many elements every rank brings, or `NONE`.
    length: u64,
    /// The size of an element in bytes.
    element: u32,
    /// An [`Operation`].
    operation: u32,
}

impl Envelope {
    /// A message between two ranks.
    pub fn message() -> Self {
        Self { sequence: 0, root: NONE, length: NONE, element: 0, operation: Operation::Message as u32 }
    }

    /// The collective number `sequence`, on elements of type `T`.
    pub fn collective<T>(operation: Operation, sequence: u64) -> Self {
        let element = size_of::<T>() as u32;
        Self { sequence, root: NONE, length: NONE, element, operation: operation as u32 }
    }

    /// The same with a rank that gives or gets.
    pub fn with_root(self, root: usize) -> Self {
        Self { root: root as u64, ..self }
    }

    /// The same with a length that all ranks share.
    pub fn with_length(self, length: usize) -> Self {
        Self { length: length as u64, ..self }
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.get(self.operation as usize).unwrap_or(&"an unknown operation");
        write!(f, "{name} #{}", self.sequence)?;
        if self.root != NONE {
            write!(f, " with root {}", self.root)?;
        }
        match (self.length, self.element) {
            (_, 0) => Ok(()),
            (NONE, bytes) => write!(f, " of {bytes}-byte numbers"),
            (length, _) if name.starts_with("all_reduce") => write!(f, " of {length} numbers"),
            (length, bytes) => write!(f, " of {length} {bytes}-byte numbers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_reads_as_the_collective_it_is() {
        let text = |envelope: Envelope| envelope.to_string();
        assert_eq!(text(Envelope::collective::<()>(Operation::Barrier, 7)), "barrier #7");
        assert_eq!(
            text(Envelope::collective::<f32>(Operation::AllReduceSumF32, 7).with_length(12)),
            "all_reduce_sum_f32 #7 of 12 numbers"
        );
        assert_eq!(
            text(Envelope::collective::<u64>(Operation::Broadcast, 0).with_root(1).with_length(2)),
            "broadcast #0 with root 1 of 2 8-byte numbers"
        );
        assert_eq!(
            text(Envelope::collective::<u8>(Operation::AllReduceMaxU64, 1)),
            "all_reduce_max_u64 #1 of 1-byte numbers"
        );
    }
}
