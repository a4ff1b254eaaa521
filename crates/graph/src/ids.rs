//! The four kinds of numbers that name a node or a part, kept apart by type.
//!
//! Hot arrays hold the raw integers; the newtypes stand wherever an id crosses a function boundary and could be
//! mistaken for another kind.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable, Serialize, Deserialize)]
        #[repr(transparent)]
        #[serde(transparent)]
        pub struct $name(pub $raw);

        impl $name {
            /// The id as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A node as the user numbers it: the row of the dataset. The only id that ever leaves the program.
    NodeId(u64)
}
id! {
    /// A node after relabelling: the owned nodes of a part are one contiguous range of these.
    GlobalId(u64)
}
id! {
    /// A row inside one part: owned nodes first, then the halo. Never leaves its rank.
    LocalId(u32)
}
id! {
    /// A part of the graph.
    PartId(u32)
}
