//! The edges of a store as a stream: part after part, in original ids.
//!
//! What reads a [`Dataset`](crate::Dataset) edge by edge can so read a store. Edges come in the order of the parts, which
//! differs from that of the files the store was made of and between two stores of one graph: whoever must not depend on
//! it sorts. Only ends are given, neither weights nor types nor attributes.
//!
//! All parts are mapped and checked once; pages of a part are given back when a pass has left it. Memory: 8 bytes per
//! halo node of one part, and the mapped ids of nodes (8 bytes each), which the system can take back.

use super::{Part, Store};
use crate::dataset::{EdgeChunk, EdgeStream};
use crate::{GlobalId, PartId, Result};

/// A stream of the edges of all parts of a store.
#[derive(Debug)]
pub struct StoreEdges {
    parts: Vec<Part>,
    len: u64,
    place: Place,
}

/// The edge that comes next.
#[derive(Debug, Default)]
struct Place {
    part: usize,
    /// The owned row whose in-edge it is, or an earlier one whose list ends here.
    row: usize,
    edge: usize,
    /// Original ids of the halo of `part`; empty before its first edge.
    halo: Vec<u64>,
}

impl StoreEdges {
    /// Maps and checks every part of `store`.
    pub fn open(store: &Store) -> Result<Self> {
        let parts = (0..store.parts()).map(|id| store.part(PartId(id))).collect::<Result<Vec<_>>>()?;
        parts.iter().for_each(Part::release_all);
        Ok(Self { parts, len: store.manifest().edges, place: Place::default() })
    }

    /// The original id of each halo row of `part`.
    fn originals(&self, part: &Part) -> Vec<u64> {
        let original = |&node: &u64| {
            let owner = &self.parts[part.owner_of(GlobalId(node)).index()];
            owner.original()[(node - owner.range().start) as usize]
        };
        part.halo().iter().map(original).collect()
    }
}

impl EdgeStream for StoreEdges {
    fn len(&self) -> u64 {
        self.len
    }

    fn rewind(&mut self) -> Result<()> {
        self.place = Place::default();
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        while let Some(part) = self.parts.get(self.place.part) {
            if self.place.edge == 0 {
                self.place.halo = self.originals(part);
            }
            self.place.fill(part, chunk);
            if self.place.edge < part.edges() {
                break;
            }
            part.release();
            self.place = Place { part: self.place.part + 1, ..Place::default() };
        }
        Ok(!chunk.is_empty())
    }
}

impl Place {
    /// Appends in-edges of `part` from here until there are no more or the chunk is full.
    fn fill(&mut self, part: &Part, chunk: &mut EdgeChunk) {
        let (offsets, sources, original) = (part.offsets(), part.sources(), part.original());
        let end = sources.len().min(self.edge + EdgeChunk::EDGES - chunk.len());
        while self.edge < end {
            let stop = end.min(offsets[self.row + 1] as usize);
            for &source in &sources[self.edge..stop] {
                let halo = (source as usize).checked_sub(original.len());
                chunk.sources.push(halo.map_or_else(|| original[source as usize], |row| self.halo[row]));
                chunk.targets.push(original[self.row]);
            }
            self.edge = stop;
            // The list goes on in the next chunk if that one was full.
            self.row += usize::from(stop == offsets[self.row + 1] as usize);
        }
    }
}
