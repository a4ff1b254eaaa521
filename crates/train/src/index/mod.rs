//! What does a rank know of its rows and edges for as long as it trains, so that the layers of a batch cost what is active in
//! it and not what the part holds?
//!
//! Rows of an index are those that the rank owns, then its **halo**: sources of its edges that other ranks own, grouped by
//! owner in rank order. Its edges are listed by target. Targets are own rows and, where edges are not with the owners of
//! their targets ([`Placement`]), **mirrors**: rows whose **master** is another rank. All ranks call together; nothing
//! here computes with rows.

mod remote;
mod cover;
mod place;
mod batch;

pub use crate::run::Placement;
pub use batch::{Active, Wanted, Within};

use crate::{Error, Result};
use archipelago_comm::Comm;
use archipelago_graph::Part;
use archipelago_graph::array::Array;
use archipelago_graph::block::EdgeValues;
use bytemuck::Pod;
use place::Held;
use remote::Remote;
use std::ops::Range;
use std::sync::Arc;

/// The rows and edges of one rank, and where they stand among those of others.
#[derive(Debug)]
pub struct Index {
    owned: usize,
    originals: Arc<Vec<u64>>,
    degrees: Vec<f32>,
    lists: Lists,
    halo: Remote,
    mirrors: Option<Mirrored>,
    /// Where each row stands in the batch that is being made; all `NONE` between two.
    position: Vec<u32>,
}

/// In-edges of own rows, then of mirrors.
#[derive(Debug)]
struct Lists {
    offsets: Array<u64>,
    sources: Array<u32>,
    weights: Option<Array<f32>>,
    values: Option<Arc<EdgeValues>>,
}

/// Targets that other ranks own, and own targets that other ranks hold edges of.
#[derive(Debug)]
struct Mirrored {
    remote: Remote,
    /// Original id of each mirror.
    originals: Vec<u64>,
    /// Where the copies of each own row begin.
    offsets: Vec<usize>,
    /// The rank of each copy, and its place among those there whose master is this rank.
    copies: Vec<(u32, u32)>,
}

impl Index {
    /// Agrees with the other ranks on who holds which edges and reads which rows. With `edges`, what stands on edges besides
    /// weights is part of the layers.
    pub fn agree(part: &Part, comm: &Comm, placement: Placement, edges: bool) -> Result<Self> {
        let Held { lists, halo, mirrors } = Held::agree(part, comm, placement, edges)?;
        if edges && u32::try_from(lists.sources.len()).is_err() {
            return Err(too_many_edges(lists.sources.len()));
        }
        let halo = Remote::agree(comm, halo)?;
        let degrees: Vec<f32> = (0..part.owned()).map(|row| part.weighted_degree(row)).collect();
        let mirrors = mirrors.map(|rows| Mirrored::agree(comm, rows, part.original())).transpose()?;
        let originals = Arc::new(spread(&halo, comm, part.original().to_vec())?);
        let degrees = spread(&halo, comm, degrees)?;
        let position = vec![batch::NONE; originals.len()];
        Ok(Self { owned: part.owned(), originals, degrees, lists, halo, mirrors, position })
    }

    /// The index of a `part` that is all there is; `degrees` are those of its rows in the whole graph.
    pub fn alone(part: &Part, degrees: &[f32], edges: bool) -> Self {
        let Held { lists, .. } = Held::of_part(part, 1, edges);
        Self {
            owned: part.owned(),
            originals: Arc::new(part.original().to_vec()),
            degrees: degrees.to_vec(),
            lists,
            halo: Remote { rows: Vec::new(), starts: vec![0, 0], wanted: vec![Vec::new()] },
            mirrors: None,
            position: vec![batch::NONE; part.owned()],
        }
    }

    /// How many rows the rank owns.
    pub fn owned(&self) -> usize {
        self.owned
    }

    /// How many rows it knows: its own and the halo.
    pub fn rows(&self) -> usize {
        self.originals.len()
    }

    /// Original id of every row.
    pub fn originals(&self) -> &Arc<Vec<u64>> {
        &self.originals
    }

    /// Weighted in-degree of every row in the whole graph.
    pub fn degrees(&self) -> &[f32] {
        &self.degrees
    }

    /// Values of all rows, from those of the `own` ones: the halo's come from their owners.
    pub fn spread<T: Pod>(&self, comm: &Comm, own: Vec<T>) -> Result<Vec<T>> {
        spread(&self.halo, comm, own)
    }

    /// Marks own rows that are marked in the halo of another rank; `marks` has one entry per row.
    pub fn collect(&self, comm: &Comm, marks: &mut [bool]) -> Result<()> {
        let (own, halo) = marks.split_at_mut(self.owned);
        let halo: Vec<u8> = halo.iter().map(|&mark| u8::from(mark)).collect();
        self.halo.return_values(comm, &halo, |row, mark| own[row] |= mark > 0)
    }

    /// Marks the sources of all edges to marked rows, here and on other ranks: one hop more. `marks` has one entry per
    /// row; those of the halo need not be known before and are known afterwards.
    pub fn widen(&self, comm: &Comm, marks: &mut [bool]) -> Result<()> {
        let own: Vec<u8> = marks[..self.owned].iter().map(|&mark| u8::from(mark)).collect();
        marks[self.owned..].fill(false);
        let mut targets: Vec<usize> = (0..self.owned).filter(|&row| own[row] > 0).collect();
        if let Some(mirrors) = &self.mirrors {
            let marked = mirrors.remote.values(comm, &own)?.into_iter().enumerate();
            targets.extend(marked.filter(|(_, mark)| *mark > 0).map(|(at, _)| self.owned + at));
        }
        let sources = &self.lists.sources[..];
        for target in targets {
            sources[self.lists.range(target)].iter().for_each(|&source| marks[source as usize] = true);
        }
        self.collect(comm, marks)?;
        let own = marks[..self.owned].iter().map(|&mark| u8::from(mark)).collect();
        let all = self.spread(comm, own)?;
        marks.iter_mut().zip(all).for_each(|(mark, all)| *mark = all > 0);
        Ok(())
    }

    /// Weighted in-degree of every row that is `inside` among such rows, 0 of others; one entry per row, as in what is
    /// returned.
    pub fn degrees_within(&self, comm: &Comm, inside: &[bool]) -> Result<Vec<f32>> {
        let (sources, weights) = (&self.lists.sources[..], self.lists.weights.as_deref());
        let of_list = |list: usize| -> f32 {
            let kept = self.lists.range(list).filter(|&edge| inside[sources[edge] as usize]);
            kept.map(|edge| weights.map_or(1.0, |weights| weights[edge])).sum()
        };
        // Those of nodes outside are read by nobody.
        let of_row = |row: usize| if inside[row] { of_list(row) } else { 0.0 };
        let mut degrees: Vec<f32> = (0..self.owned).map(of_row).collect();
        if let Some(mirrors) = &self.mirrors {
            let own: Vec<u8> = inside[..self.owned].iter().map(|&inside| u8::from(inside)).collect();
            let of_mirrors = mirrors.remote.values(comm, &own)?;
            let of_mirror =
                |(at, &inside): (usize, &u8)| if inside > 0 { of_list(self.owned + at) } else { 0.0 };
            let partial: Vec<f32> = of_mirrors.iter().enumerate().map(of_mirror).collect();
            mirrors.remote.return_values(comm, &partial, |row, more| degrees[row] += more)?;
        }
        self.spread(comm, degrees)
    }

    /// Bytes of memory that the index holds beside the part's own files.
    pub fn bytes(&self) -> usize {
        let remote = |remote: &Remote| 4 * (remote.len() + remote.wanted.iter().map(Vec::len).sum::<usize>());
        let held = |mirrors: &Mirrored| {
            let values = self.lists.values.as_ref().map_or(0, |v| 4 * (v.types.len() + v.attributes.len()));
            let lists = 8 * self.lists.offsets.len() + 4 * self.lists.sources.len();
            let weights = 4 * self.lists.weights.as_ref().map_or(0, |weights| weights.len());
            let copies = 8 * (mirrors.originals.len() + mirrors.offsets.len() + mirrors.copies.len());
            lists + weights + values + copies + remote(&mirrors.remote)
        };
        16 * self.rows() + remote(&self.halo) + self.mirrors.as_ref().map_or(0, held)
    }
}

impl Lists {
    /// Positions of the edges of a list: of an own row, or of a mirror from the number of own rows on.
    fn range(&self, list: usize) -> Range<usize> {
        self.offsets[list] as usize..self.offsets[list + 1] as usize
    }
}

impl Mirrored {
    /// Tells masters which of their rows are mirrored here.
    fn agree(comm: &Comm, rows: Vec<Vec<u32>>, originals: &[u64]) -> Result<Self> {
        let remote = Remote::agree(comm, rows)?;
        let mut offsets = vec![0; originals.len() + 1];
        remote.wanted.iter().flatten().for_each(|&row| offsets[row as usize + 1] += 1);
        (0..originals.len()).for_each(|row| offsets[row + 1] += offsets[row]);
        let mut next = offsets.clone();
        let mut copies = vec![(0, 0); offsets[originals.len()]];
        for (rank, rows) in remote.wanted.iter().enumerate() {
            for (at, &row) in rows.iter().enumerate() {
                copies[next[row as usize]] = (rank as u32, at as u32);
                next[row as usize] += 1;
            }
        }
        Ok(Self { originals: remote.values(comm, originals)?, remote, offsets, copies })
    }
}

/// Places of edges are numbers of 32 bits.
fn too_many_edges(found: usize) -> Error {
    let message =
        format!("expected fewer than 4294967296 edges on a rank with a model that reads them, found {found}");
    archipelago_graph::Error::usage(message).with_hint("cut the graph into more parts".to_owned()).into()
}

/// What is `known` of own rows, and the same of the halo.
fn spread<T: Pod>(halo: &Remote, comm: &Comm, mut known: Vec<T>) -> Result<Vec<T>> {
    let more = halo.values(comm, &known)?;
    known.extend(more);
    Ok(known)
}

/// The original id of every row of `part`, its halo included.
pub fn originals(part: &Part, comm: &Comm) -> Result<Vec<u64>> {
    let Held { halo, .. } = Held::of_part(part, comm.size(), false);
    spread(&Remote::agree(comm, halo)?, comm, part.original().to_vec())
}
