//! How many parts does a graph need, so that every part fits into a worker's memory?
//!
//! The rule of SDT-GNN (Huang et al., "SDT-GNN: Streaming-based Distributed Training Framework for Graph Neural
//! Networks"): of the memory `M` of a worker, `T` is kept for training itself, and `M - T` holds data. `S` bytes of
//! data on `q` workers need
//!
//! ```text
//! parts = q                  if S <= q (M - T)     every worker holds one part
//!         ceil(S / (M - T))  otherwise             parts take turns in memory
//! ```
//!
//! `S` is what the parts hold in memory without their halos: edges, features and labels as the store lays them out.

use crate::dataset::{Dataset, EdgeColumns, Features, Labels};
use crate::{Error, Result};
use serde::Serialize;

/// The share of a worker's memory that is kept for training unless the user says otherwise.
pub const RESERVE: f64 = 2.0 / 3.0;

/// A number of parts, and what it follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Auto {
    /// How many parts.
    pub parts: u32,
    /// S: bytes of data in memory.
    pub data_bytes: u64,
    /// M: bytes of memory of a worker.
    pub memory_bytes: u64,
    /// T: of these, bytes kept for training.
    pub reserved_bytes: u64,
    /// q: how many workers there are.
    pub workers: u32,
}

impl Auto {
    /// Whether there is a part for every worker, and no more.
    pub fn fits(&self) -> bool {
        self.parts == self.workers
    }
}

/// Who will train.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workers {
    /// How many there are.
    pub count: u32,
    /// The memory of each, in bytes.
    pub memory_bytes: u64,
    /// The share of it that is kept for training itself.
    pub reserve: f64,
}

impl Workers {
    /// The number of parts for `data_bytes` of data on `nodes` nodes.
    pub fn parts_for(&self, data_bytes: u64, nodes: u64) -> Result<Auto> {
        let Self { count, memory_bytes, reserve } = *self;
        if count == 0 {
            return Err(Error::usage("expected at least 1 worker, found 0"));
        }
        if !(0.0..1.0).contains(&reserve) {
            return Err(Error::usage(format!(
                "expected a share to reserve from 0 to below 1, found {reserve}"
            )));
        }
        let reserved_bytes = ((memory_bytes as f64 * reserve) as u64).min(memory_bytes);
        let parts = match memory_bytes - reserved_bytes {
            room if data_bytes <= room.saturating_mul(count.into()) => Some(count),
            0 => None,
            room => u32::try_from(data_bytes.div_ceil(room)).ok().filter(|&parts| u64::from(parts) <= nodes),
        };
        match parts {
            Some(parts) => Ok(Auto { parts, data_bytes, memory_bytes, reserved_bytes, workers: count }),
            None => Err(Error::usage(format!(
                "a worker has {memory_bytes} bytes of memory, {reserved_bytes} of them kept for training: too \
                 little for {data_bytes} bytes of data on {nodes} nodes in any number of parts"
            ))
            .with_hint("give workers more memory, or say how many parts")),
        }
    }
}

/// Bytes of `dataset` in memory when it is trained on.
pub fn data_bytes(dataset: &Dataset) -> u64 {
    let nodes = dataset.nodes;
    let features = match &dataset.features {
        Features::None => 0,
        Features::Dense { width, .. } => nodes.saturating_mul(4 * *width as u64),
        Features::Sparse { values, .. } => 8 * (nodes + 1) + 8 * values.len() as u64,
    };
    let labels = match &dataset.labels {
        Labels::None => 0,
        Labels::Classes { .. } => 8 * nodes,
        Labels::Multi { classes, .. } => nodes.saturating_mul(*classes as u64),
    };
    let edges = dataset.edges.len().saturating_mul(edge_bytes(dataset.edge_columns));
    [8 * (nodes + 1), edges, features, labels].into_iter().fold(0, u64::saturating_add)
}

/// Bytes of one edge: its source, and what accompanies it.
fn edge_bytes(columns: EdgeColumns) -> u64 {
    4 + 4 * (u64::from(columns.weighted) + u64::from(columns.types > 0) + columns.attribute_width as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::small;
    use proptest::prelude::*;

    fn workers(count: u32, memory_bytes: u64, reserve: f64) -> Workers {
        Workers { count, memory_bytes, reserve }
    }

    /// Parts for data on a thousand nodes.
    fn parts(data: u64, memory: u64, count: u32) -> u32 {
        workers(count, memory, RESERVE).parts_for(data, 1000).unwrap().parts
    }

    #[test]
    fn data_that_fits_is_cut_into_a_part_per_worker() {
        // A third of 30 is 10 bytes of room.
        assert_eq!([parts(0, 30, 1), parts(10, 30, 1), parts(40, 30, 4)], [1, 1, 4]);
        assert!(workers(4, 30, RESERVE).parts_for(40, 1000).unwrap().fits());
    }

    #[test]
    fn data_that_does_not_fit_is_cut_into_parts_that_do() {
        assert_eq!([parts(11, 30, 1), parts(41, 30, 4), parts(95, 30, 4)], [2, 5, 10]);
    }

    #[test]
    fn what_is_kept_for_training_can_be_said() {
        let auto = workers(2, 40, 0.5).parts_for(100, 1000).unwrap();
        assert_eq!((auto.parts, auto.reserved_bytes), (5, 20));
        assert_eq!(workers(2, 40, 0.0).parts_for(100, 1000).unwrap().parts, 3);
    }

    #[test]
    fn memory_without_room_and_shares_that_are_none_are_refused() {
        let refused = [
            workers(1, 0, RESERVE).parts_for(1, 1000),
            workers(1, 2, 0.5).parts_for(1001, 1000),
            workers(1, 3, 0.5).parts_for(u64::MAX, u64::MAX),
            workers(1, 9, 1.0).parts_for(1, 1000),
            workers(0, 9, 0.5).parts_for(1, 1000),
        ];
        for refused in refused {
            assert!(matches!(refused, Err(Error::Usage { .. })), "{refused:?}");
        }
        assert!(workers(1, 2, 0.5).parts_for(1000, 1000).is_ok());
    }

    #[test]
    fn data_is_counted_as_the_store_lays_it_out() {
        let mut dataset = small::bare("test", 10, &[(0, 1), (1, 0)]);
        assert_eq!(data_bytes(&dataset), 8 * 11 + 2 * 4);
        dataset.features = Features::Dense { width: 3, values: vec![0.0; 30].into() };
        dataset.labels = Labels::Multi { classes: 5, values: vec![0; 50].into() };
        dataset.edge_columns = EdgeColumns { weighted: true, types: 2, attribute_width: 4 };
        assert_eq!(data_bytes(&dataset), 8 * 11 + 2 * (4 + 4 + 4 + 16) + 120 + 50);
    }

    proptest! {
        #[test]
        fn every_part_fits_into_its_worker(
            data in 0u64..1 << 40, memory in 3u64..1 << 36, reserve in 0.0f64..0.9, count in 1u32..64,
        ) {
            let Ok(auto) = workers(count, memory, reserve).parts_for(data, 1 << 20) else { return Ok(()) };
            prop_assert!(auto.parts >= count);
            let room = memory - auto.reserved_bytes;
            prop_assert!(data.div_ceil(u64::from(auto.parts)) <= room, "{auto:?}");
            let fewer = u64::from(auto.parts) - 1;
            prop_assert!(auto.fits() || data > fewer * room, "{auto:?}");
        }
    }
}
