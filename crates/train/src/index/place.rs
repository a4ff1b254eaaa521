//! Who holds an edge? Its target's owner, as the store has it, or another rank, to which it is sent once, at set-up.
//!
//! In a grid of parts, as square as their number allows, the holder of an edge is in the row of its source's part and in
//! the column of its target's part: a rank then reads rows of its own grid row only, and adds to targets of its own grid
//! column only. Where as few rows as possible are to cross, it is the source's or the target's owner ([`cover`]).

use super::{Lists, cover};
use crate::Result;
use crate::run::Placement;
use archipelago_comm::{Comm, Kind};
use archipelago_graph::block::EdgeValues;
use archipelago_graph::store::InEdges;
use archipelago_graph::{GlobalId, Part};
use bytemuck::Pod;
use std::sync::Arc;

/// What a rank holds.
pub(super) struct Held {
    /// In-edges of its own rows, then of mirrors.
    pub lists: Lists,
    /// Sources that other ranks own, as rows of each.
    pub halo: Vec<Vec<u32>>,
    /// Targets that other ranks own, as rows of each; none where the owner of a target holds all its edges.
    pub mirrors: Option<Vec<Vec<u32>>>,
}

impl Placement {
    /// The part that holds edges from nodes of part `source` to nodes of part `target`, among `parts` of them; none where
    /// it may be one for some of them and another for others.
    pub fn holder(self, source: usize, target: usize, parts: usize) -> Option<usize> {
        match self {
            Self::Destination => Some(target),
            Self::Source => Some(source),
            Self::Grid => {
                let columns = parts / grid_rows(parts);
                Some(source / columns * columns + target % columns)
            }
            Self::Cover => (source == target).then_some(target),
        }
    }

    /// The ranks that hold the edges from each node of the part's halo.
    fn holders(self, part: &Part, own: usize, ranks: usize) -> Vec<usize> {
        let owners = part.halo().iter().map(|&node| part.owner_of(GlobalId(node)).index());
        if self == Self::Cover {
            let crossing = cover::crossing(part);
            return owners.zip(crossing).map(|(owner, crosses)| if crosses { own } else { owner }).collect();
        }
        owners.map(|owner| self.holder(owner, own, ranks).unwrap_or(own)).collect()
    }

    /// Whether all in-edges of a node are held by its owner, on so many parts.
    fn keeps_in_edges(self, parts: usize) -> bool {
        match self {
            Self::Destination => true,
            Self::Source | Self::Cover => parts == 1,
            Self::Grid => grid_rows(parts) == 1,
        }
    }
}

/// The largest divisor of `parts` that is not above its root.
fn grid_rows(parts: usize) -> usize {
    (1..=parts.isqrt().max(1)).rev().find(|&rows| parts.is_multiple_of(rows)).unwrap_or(1)
}

impl Held {
    /// What this rank holds of the edges of all parts; with `edges`, also what stands on them.
    pub fn agree(part: &Part, comm: &Comm, placement: Placement, edges: bool) -> Result<Self> {
        match placement.keeps_in_edges(comm.size()) {
            true => Ok(Self::of_part(part, comm.size(), edges)),
            false => Deal::of(part, comm, placement).exchange(part, comm, edges),
        }
    }

    /// The edges of the part itself; nothing is sent.
    pub fn of_part(part: &Part, ranks: usize, edges: bool) -> Self {
        let InEdges { offsets, sources, weights } = part.in_edges();
        let values = if edges { part.edge_values() } else { None };
        let lists = Lists { offsets, sources, weights, values };
        Self { lists, halo: rows_by_owner(part, ranks, part.halo()), mirrors: None }
    }
}

/// These nodes of other parts, ascending, as rows of their owners, for each rank.
fn rows_by_owner(part: &Part, ranks: usize, nodes: &[u64]) -> Vec<Vec<u32>> {
    let mut rows = vec![Vec::new(); ranks];
    for &node in nodes {
        let owner = part.owner_of(GlobalId(node)).index();
        rows[owner].push((node - part.starts()[owner]) as u32);
    }
    rows
}

/// The edges of a part, dealt out to their holders.
struct Deal {
    /// For each rank: positions of the edges that it gets, ascending.
    edges: Vec<Vec<usize>>,
    /// For each rank: the targets of these edges.
    targets: Vec<Vec<u32>>,
}

impl Deal {
    fn of(part: &Part, comm: &Comm, placement: Placement) -> Self {
        let (own, ranks) = (comm.rank(), comm.size());
        let halo = placement.holders(part, own, ranks);
        let (mut edges, mut targets) = (vec![Vec::new(); ranks], vec![Vec::new(); ranks]);
        let (offsets, sources) = (part.offsets(), part.sources());
        let own = placement.holder(own, own, ranks).unwrap_or(own);
        for row in 0..part.owned() {
            let list = offsets[row] as usize..offsets[row + 1] as usize;
            for (edge, &source) in list.clone().zip(&sources[list]) {
                let to = (source as usize).checked_sub(part.owned()).map_or(own, |at| halo[at]);
                edges[to].push(edge);
                targets[to].push(row as u32);
            }
        }
        Self { edges, targets }
    }

    /// Sends every rank its edges; returns what this one got.
    fn exchange(self, part: &Part, comm: &Comm, edges: bool) -> Result<Held> {
        let own = comm.rank();
        let (sources, range) = (part.sources(), part.range());
        let globals: Vec<u64> = (0..part.rows() as u32).map(|row| part.global(row)).collect();
        let of_edges = self.edges.iter().map(|edges| edges.iter().map(|&e| globals[sources[e] as usize]));
        let got = comm.all_to_all::<u64>(of_edges.map(Iterator::collect).collect(), Kind::Control)?;
        let globals = own_first(got, own);
        let weights = part.weights().map(|weights| self.column(comm, 1, weights)).transpose()?;
        let values = if edges { self.values(part, comm)? } else { None };
        let (offsets, mirrors) = lists_of(comm.all_to_all(self.targets, Kind::Control)?, own, part.owned());
        let mut halo: Vec<u64> = globals.iter().copied().filter(|node| !range.contains(node)).collect();
        halo.sort_unstable();
        halo.dedup();
        let row = |node: u64| match range.contains(&node) {
            true => (node - range.start) as u32,
            false => (part.owned() + halo.partition_point(|&other| other < node)) as u32,
        };
        let sources: Vec<u32> = globals.into_iter().map(row).collect();
        let weights = weights.map(Into::into);
        let lists = Lists { offsets: offsets.into(), sources: sources.into(), weights, values };
        Ok(Held { lists, halo: rows_by_owner(part, comm.size(), &halo), mirrors: Some(mirrors) })
    }

    /// What stands on the edges that this rank gets.
    fn values(&self, part: &Part, comm: &Comm) -> Result<Option<Arc<EdgeValues>>> {
        let Some(own) = part.edge_values() else { return Ok(None) };
        let types = match own.kinds {
            0 => Vec::new(),
            _ => self.column(comm, 1, &own.types)?,
        };
        let attributes = match own.width {
            0 => Vec::new(),
            width => self.column(comm, width, &own.attributes)?,
        };
        let shares = match own.kinds {
            0 => Vec::new(),
            _ => self.column(comm, 1, &own.type_shares)?,
        };
        Ok(Some(Arc::new(EdgeValues {
            types: types.into(),
            kinds: own.kinds,
            type_shares: shares.into(),
            attributes: attributes.into(),
            width: own.width,
        })))
    }

    /// `width` values of each edge that this rank gets, from those of its own.
    fn column<T: Pod>(&self, comm: &Comm, width: usize, values: &[T]) -> Result<Vec<T>> {
        let of_edge = |edge: &usize| values[edge * width..][..width].iter().copied();
        let told = self.edges.iter().map(|edges| edges.iter().flat_map(of_edge).collect()).collect();
        Ok(own_first(comm.all_to_all::<T>(told, Kind::Control)?, comm.rank()))
    }
}

/// Everything from this rank, then from the others in rank order.
fn own_first<T: Pod>(mut of_ranks: Vec<Vec<T>>, own: usize) -> Vec<T> {
    let mut all = std::mem::take(&mut of_ranks[own]);
    of_ranks.into_iter().for_each(|values| all.extend(values));
    all
}

/// Where lists start, of all `owned` rows and then of mirrors, and the mirrors as rows of each rank; `targets` are those of
/// the edges from each rank, ascending.
fn lists_of(targets: Vec<Vec<u32>>, own: usize, owned: usize) -> (Vec<u64>, Vec<Vec<u32>>) {
    let mut offsets = vec![0u64; owned + 1];
    targets[own].iter().for_each(|&row| offsets[row as usize + 1] += 1);
    (0..owned).for_each(|row| offsets[row + 1] += offsets[row]);
    let mut end = offsets[owned];
    let mut of_rank = |(rank, mut rows): (usize, Vec<u32>)| {
        if rank == own {
            return Vec::new();
        }
        for list in rows.chunk_by(|a, b| a == b) {
            end += list.len() as u64;
            offsets.push(end);
        }
        rows.dedup();
        rows
    };
    let mirrors = targets.into_iter().enumerate().map(&mut of_rank).collect();
    (offsets, mirrors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_as_square_as_the_number_of_parts_allows() {
        assert_eq!([1, 2, 3, 4, 6, 7, 12, 16, 36].map(grid_rows), [1, 1, 1, 2, 2, 1, 3, 4, 6]);
    }

    #[test]
    fn edges_are_held_in_the_grid_row_of_their_source_and_the_grid_column_of_their_target() {
        // Six parts in two rows of three: 0 1 2 over 3 4 5.
        for (source, target) in (0..6).flat_map(|source| (0..6).map(move |target| (source, target))) {
            let holder = Placement::Grid.holder(source, target, 6);
            assert_eq!(holder.map(|holder| (holder / 3, holder % 3)), Some((source / 3, target % 3)));
            assert_eq!(Placement::Source.holder(source, target, 6), Some(source));
            assert_eq!(Placement::Destination.holder(source, target, 6), Some(target));
        }
    }

    #[test]
    fn lists_of_mirrors_follow_those_of_own_rows() {
        let (offsets, mirrors) = lists_of(vec![vec![2, 2, 5], vec![0, 2], vec![1]], 1, 3);
        assert_eq!(offsets, [0, 1, 1, 2, 4, 5, 6]);
        assert_eq!(mirrors, [vec![2, 5], vec![], vec![1]]);
    }
}
