//! Who sends to whom in one layer of one step.
//!
//! A block is bipartite: `targets` rows are computed from source rows. Source rows are numbered
//! `[targets | other local rows | halo rows]`, so that target `i` *is* source row `i` (destinations come first
//! among the sources) and the output rows of one layer are the local source rows of the next. The same structure
//! serves a whole part (layer-wise exchange: the halo arrives from other ranks) and a sampled mini-batch (no
//! halo: every source row is local). A block knows rows, never node ids; nothing here communicates.

use crate::array::Array;
use std::ops::Range;
use std::sync::OnceLock;

/// One layer's bipartite graph, and, once somebody asks for it, its transpose.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Rows that this layer computes.
    pub targets: usize,
    /// Source rows that this rank holds, the targets first; `local >= targets`.
    pub local: usize,
    /// Source rows that other ranks hold, numbered from `local`.
    pub halo: usize,
    /// In-edges by target: what the forward pass walks.
    pub incoming: Adjacency,
    outgoing: OnceLock<Adjacency>,
    /// Targets all of whose sources are local: computed while the halo is under way.
    pub interior: Vec<u32>,
    /// Targets that read at least one halo row.
    pub border: Vec<u32>,
    runs: OnceLock<Option<[Vec<Range<usize>>; 2]>>,
}

/// Compressed neighbour lists.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Adjacency {
    /// Where each row's list starts; one more than there are rows.
    pub offsets: Vec<u64>,
    /// The rows at the other end of the edges.
    pub neighbors: Vec<u32>,
    /// Weight of each edge; empty when edges are not weighted.
    pub weights: Vec<f32>,
    /// Where each edge stands among the [`EdgeValues`]; empty when nobody asks for them.
    pub places: Vec<u32>,
}

/// What stands on the edges of a rank besides their weights: columns that layers may read, shared by all blocks.
#[derive(Debug, Clone, Default)]
pub struct EdgeValues {
    /// Type of each edge; empty when edges have none.
    pub types: Array<u32>,
    /// How many types there are.
    pub kinds: usize,
    /// 1 over the number of in-edges that an edge's target has of the edge's type, in the whole graph.
    pub type_shares: Array<f32>,
    /// Row-major attributes of each edge; empty when edges have none.
    pub attributes: Array<f32>,
    /// Attributes per edge.
    pub width: usize,
}

impl Adjacency {
    /// The number of lists.
    pub fn rows(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The number of edges.
    pub fn edges(&self) -> usize {
        self.neighbors.len()
    }

    /// Positions of the edges of `row`.
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The rows at the other end of the edges of `row`.
    pub fn neighbors(&self, row: usize) -> &[u32] {
        &self.neighbors[self.range(row)]
    }

    /// The same edges listed by their other end, of which there are `rows`.
    pub fn transposed(&self, rows: usize) -> Self {
        let mut offsets = vec![0u64; rows + 1];
        for &neighbor in &self.neighbors {
            offsets[neighbor as usize + 1] += 1;
        }
        for row in 0..rows {
            offsets[row + 1] += offsets[row];
        }
        let mut cursor = offsets.clone();
        let mut neighbors = vec![0u32; self.edges()];
        let mut weights = vec![0f32; self.weights.len()];
        let mut places = vec![0u32; self.places.len()];
        for row in 0..self.rows() {
            for edge in self.range(row) {
                let slot = &mut cursor[self.neighbors[edge] as usize];
                neighbors[*slot as usize] = row as u32;
                if let Some(weight) = self.weights.get(edge) {
                    weights[*slot as usize] = *weight;
                }
                if let Some(place) = self.places.get(edge) {
                    places[*slot as usize] = *place;
                }
                *slot += 1;
            }
        }
        Self { offsets, neighbors, weights, places }
    }
}

/// Targets that stand together are computed together: so many runs of them at most, in the interior and at the border.
const MOST_RUNS: usize = 16;

impl Block {
    /// The block whose target `i` reads `incoming.neighbors(i)` among `local` local and `halo` remote rows; where there are
    /// remote ones, lists are ascending.
    pub fn new(incoming: Adjacency, local: usize, halo: usize) -> Self {
        debug_assert!(incoming.rows() <= local);
        Self::of_mirrors(incoming, local, halo)
    }

    /// The runs of targets in the interior, and those at the border; none where targets of both kinds alternate too often to be
    /// computed run by run. Found on the first call.
    pub fn runs(&self) -> Option<&[Vec<Range<usize>>; 2]> {
        self.runs.get_or_init(|| Some([runs(&self.interior)?, runs(&self.border)?])).as_ref()
    }

    /// The block of targets that other ranks own: none of them is a source row.
    pub fn of_mirrors(incoming: Adjacency, local: usize, halo: usize) -> Self {
        let targets = incoming.rows();
        let reads_halo = |row: u32| {
            let sources = incoming.neighbors(row as usize);
            debug_assert!(halo == 0 || sources.is_sorted(), "rows of the halo are last in every list");
            sources.last().is_some_and(|&source| source as usize >= local)
        };
        // As long as they may get at once: lists that grow cost more than all else here, for every layer of every batch.
        let (mut interior, mut border) = (vec![0; targets], vec![0; if halo > 0 { targets } else { 0 }]);
        let mut count = 0;
        for row in 0..targets as u32 {
            if reads_halo(row) {
                border[count] = row;
                count += 1;
            } else {
                interior[row as usize - count] = row;
            }
        }
        interior.truncate(targets - count);
        border.truncate(count);
        Self {
            targets,
            local,
            halo,
            incoming,
            outgoing: OnceLock::new(),
            interior,
            border,
            runs: OnceLock::new(),
        }
    }

    /// Out-edges by source row (`local + halo` of them): what the backward pass walks. Made on the first call.
    pub fn outgoing(&self) -> &Adjacency {
        self.outgoing.get_or_init(|| self.incoming.transposed(self.sources()))
    }

    /// All source rows, local and remote.
    pub fn sources(&self) -> usize {
        self.local + self.halo
    }

    /// The number of edges.
    pub fn edges(&self) -> usize {
        self.incoming.edges()
    }

    /// Bytes of memory that the block holds.
    pub fn bytes(&self) -> usize {
        let adjacency =
            |a: &Adjacency| 8 * a.offsets.len() + 4 * (a.neighbors.len() + a.weights.len() + a.places.len());
        adjacency(&self.incoming) + self.outgoing.get().map_or(0, adjacency) + 4 * self.targets
    }
}

/// The blocks of one step, input layer first, and the nodes behind their rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// One block per layer, first layer first; the targets of one are the local rows of the next.
    pub blocks: Vec<std::sync::Arc<Block>>,
    /// Global id of each source row of the first block; rows of a later layer are the first of them.
    pub nodes: Vec<u64>,
}

impl Batch {
    /// Rows of the last layer: what the loss reads.
    pub fn targets(&self) -> usize {
        self.blocks.last().map_or(self.nodes.len(), |block| block.targets)
    }
}

/// Ascending `rows` as runs, unless there are many.
fn runs(rows: &[u32]) -> Option<Vec<Range<usize>>> {
    let runs = rows.chunk_by(|&before, &row| before + 1 == row);
    let runs = runs.map(|run| run[0] as usize..run[0] as usize + run.len());
    let found: Vec<_> = runs.take(MOST_RUNS + 1).collect();
    (found.len() <= MOST_RUNS).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjacency(lists: &[&[u32]]) -> Adjacency {
        let mut made = Adjacency { offsets: vec![0], ..Adjacency::default() };
        for list in lists {
            made.neighbors.extend_from_slice(list);
            made.offsets.push(made.neighbors.len() as u64);
        }
        made
    }

    #[test]
    fn a_block_tells_interior_from_border_and_lists_edges_both_ways() {
        let block = Block::new(adjacency(&[&[0, 2], &[3], &[]]), 3, 1);
        assert_eq!((block.targets, block.local, block.halo, block.edges()), (3, 3, 1, 3));
        assert_eq!((&block.interior[..], &block.border[..]), (&[0, 2][..], &[1][..]));
        assert_eq!(block.outgoing().neighbors(0), [0]);
        assert_eq!(block.outgoing().neighbors(2), [0]);
        assert_eq!(block.outgoing().neighbors(3), [1]);
    }

    #[test]
    fn targets_that_stand_together_are_found_as_runs_unless_both_kinds_alternate() {
        let block = Block::new(adjacency(&[&[1], &[0], &[2, 5], &[5], &[4]]), 5, 1);
        assert_eq!(block.runs(), Some(&[vec![0..2, 4..5], vec![Range { start: 2, end: 4 }]]));
        let rows = 3 * MOST_RUNS;
        let (inside, halo) = ([0], [rows as u32]);
        let lists: Vec<&[u32]> =
            (0..rows).map(|row| if row % 2 == 0 { &inside[..] } else { &halo }).collect();
        assert_eq!(Block::new(adjacency(&lists), rows, 1).runs(), None);
    }

    #[test]
    fn transposing_twice_gives_the_same_lists_and_keeps_weights_on_their_edges() {
        let mut lists = adjacency(&[&[1, 2], &[0], &[]]);
        lists.weights = vec![0.5, 2.0, 3.0];
        lists.places = vec![7, 8, 9];
        let there = lists.transposed(3);
        assert_eq!(there.weights, [3.0, 0.5, 2.0]);
        assert_eq!(there.places, [9, 7, 8]);
        assert_eq!(there.transposed(3), lists);
    }
}
