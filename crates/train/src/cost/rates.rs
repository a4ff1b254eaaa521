//! How fast is this kind of machine, and what do seconds follow from? One number for each kind of work.
//!
//! The defaults are those of 2 cores with AVX-512 (an AMD EPYC of 2023; docs/scale.md). `copied_bytes` and `island_bytes` were chosen
//! for runs on R-MAT graphs of scale 18 to 22 there, which do not tell all rates apart; the others are what meters and benchmarks of the
//! kernels said on an Intel Xeon, or (steps, messages, `busy`) chosen.
//! Rates are of one core; a machine has as many as it computes with, and keeps a share of them busy.

use super::work::Work;
use serde::{Deserialize, Serialize};

/// How many kinds of work take processor seconds.
pub(super) const KINDS: usize = 6;

/// What a machine does in a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rates {
    /// Edges that a core draws.
    pub drawn_edges: f64,
    /// Bytes of rows that a core copies to places of no order.
    pub copied_bytes: f64,
    /// Bytes that a core sums along edges.
    pub gathered_bytes: f64,
    /// Floating-point operations of a core in dense products.
    pub flops: f64,
    /// Bytes of parts that a core looks through and puts in order to make an island of them.
    pub island_bytes: f64,
    /// Seconds of a core for what a step takes whatever its size.
    pub step_secs: f64,
    /// Seconds of a core for a message whatever its size.
    pub message_secs: f64,
    /// Share of the time in which cores have something to do.
    pub busy: f64,
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            drawn_edges: 40e6,
            copied_bytes: 0.5e9,
            gathered_bytes: 7.5e9,
            flops: 120e9,
            island_bytes: 0.9e9,
            step_secs: 1e-4,
            message_secs: 5e-6,
            busy: 0.9,
        }
    }
}

/// Where training runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Processes.
    pub workers: u32,
    /// Cores of each.
    pub cores: u32,
    /// Bytes of memory of each.
    pub memory_bytes: u64,
    /// Bytes per second that each sends.
    pub network_bytes: f64,
    /// Bytes per second that each reads from disk.
    pub disk_bytes: f64,
}

/// Seconds of an epoch by the clock, and what they are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// All together: what overlaps counts once.
    pub total: f64,
    /// Drawing edges.
    pub draw: f64,
    /// Copying rows: features of batches, messages.
    pub copy: f64,
    /// Summing along edges.
    pub gather: f64,
    /// Dense products.
    pub dense: f64,
    /// Making islands of parts.
    pub islands: f64,
    /// What steps and messages take whatever their size.
    pub fixed: f64,
    /// Bytes on the wire.
    pub wire: f64,
    /// Bytes from disk.
    pub disk: f64,
}

/// What of the exchange and the reading goes on while cores compute.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hidden {
    /// Share of the bytes on the wire.
    pub wire: f64,
    /// Share of the bytes from disk.
    pub disk: f64,
}

impl Rates {
    /// Processor seconds of `work`, by kind: drawing, copying, gathering, products, making islands, whatever the size.
    pub fn processor_secs(&self, work: &Work) -> [f64; KINDS] {
        [
            work.drawn_edges / self.drawn_edges,
            work.copied_bytes / self.copied_bytes,
            work.gathered_bytes / self.gathered_bytes,
            work.flops / self.flops,
            work.island_bytes / self.island_bytes,
            work.steps * self.step_secs + work.messages * self.message_secs,
        ]
    }

    /// Seconds of `work`, of which each worker sends so many bytes over the network; the slowest worker has `balance`
    /// times the average work.
    pub fn seconds(
        &self,
        work: &Work,
        cluster: &Cluster,
        sent: f64,
        balance: f64,
        hidden: Hidden,
    ) -> Seconds {
        let cores = f64::from(cluster.workers) * f64::from(cluster.cores) * self.busy;
        let [draw, copy, gather, dense, islands, fixed] =
            self.processor_secs(work).map(|secs| balance * secs / cores);
        let wire = sent / cluster.network_bytes;
        let disk = work.disk_bytes / f64::from(cluster.workers) / cluster.disk_bytes;
        let computing = draw + copy + gather + dense + islands + fixed;
        let waiting = (1.0 - hidden.wire) * wire + (1.0 - hidden.disk) * disk;
        let total = computing.max(hidden.wire * wire).max(hidden.disk * disk) + waiting;
        Seconds { total, draw, copy, gather, dense, islands, fixed, wire, disk }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_counts_once() {
        let rates = Rates { busy: 1.0, drawn_edges: 10.0, ..Rates::default() };
        let work = Work { drawn_edges: 80.0, disk_bytes: 60.0, ..Work::default() };
        let cluster = Cluster { workers: 2, cores: 2, memory_bytes: 0, network_bytes: 5.0, disk_bytes: 10.0 };
        let seconds = |hidden| rates.seconds(&work, &cluster, 20.0, 1.0, hidden);
        let apart = seconds(Hidden::default());
        assert_eq!((apart.draw, apart.wire, apart.disk, apart.total), (2.0, 4.0, 3.0, 9.0));
        assert_eq!(seconds(Hidden { wire: 1.0, disk: 1.0 }).total, 4.0);
        assert_eq!(seconds(Hidden { wire: 0.0, disk: 1.0 }).total, 7.0);
        assert_eq!(rates.seconds(&work, &cluster, 0.0, 1.5, Hidden::default()).draw, 3.0);
    }
}
