//! Degree-based hashing: an edge goes where its less connected end is hashed to.
//!
//! Xie, Yan, Li, Zhang, "Distributed Power-law Graph Computing: Theoretical and Empirical Analysis", NIPS 2014.
//! In a power-law graph most edges touch a hub. Cutting hubs spares all others: `part(u, v) = hash(w) mod P`, `w` the
//! end with the lower degree (ties: the lower id), so a node of low degree tends to have all its edges in one part.
//! Degrees count in- and out-edges. One pass over the edges after the degrees; memory: 4 bytes per node.

use super::by_edges::place_each;
use super::passes::{DEGREES, Degrees, Passing};
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "dbh",
    summary: "edges by a hash of their end with the lower degree: cuts hubs, spares the rest",
    paper: "Xie et al., Distributed Power-law Graph Computing: Theoretical and Empirical Analysis, NIPS 2014",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[DEGREES],
    build: || Box::new(ByEdges(Dbh)),
};

/// Degree-based hashing.
#[derive(Debug, Clone, Copy)]
pub struct Dbh;

impl EdgePartitioner for Dbh {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        let mut degrees = Degrees::new(dataset, request, &ENTRY, progress)?;
        let (key, parts) = (Key::new(request.seed, Purpose::Partition), u64::from(request.parts));
        place_each(dataset, progress, sink, |edge| {
            let [source, target] = edge.ends();
            degrees.prefetch(edge.later(Passing::AHEAD));
            degrees.meet(source, target);
            let low = (degrees.of(source), source).min((degrees.of(target), target)).1;
            key.below(u64::from(low), parts) as u32
        })
    }
}
