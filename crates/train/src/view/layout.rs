//! One layer of one step on one rank: who sends to whom, what the rows stand for, which of them cross.

use super::thin::Thinned;
use archipelago_graph::Block;
use archipelago_graph::block::EdgeValues;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A block together with what its rows stand for. Made once per block, shared by all operations on it.
#[derive(Debug)]
pub struct Layout {
    /// Who sends to whom.
    pub block: Arc<Block>,
    /// Original id of each source row, local rows first.
    pub nodes: Arc<Vec<u64>>,
    /// Weighted in-degree of each source row in the whole graph, self-loops that a model adds not counted.
    pub degrees: Vec<f32>,
    /// Which rows go where.
    pub routes: Routes,
    /// What stands on edges, where the model reads it.
    pub edges: Option<Arc<EdgeValues>>,
    /// Targets of other ranks, where edges are not with the owners of their targets.
    pub mirrors: Option<Mirrors>,
    /// What was left out, where this is a layout with fewer edges than its layer has.
    pub thinned: Option<Thinned>,
    pub(super) means: OnceLock<Arc<Vec<f32>>>,
    pub(super) symmetric: OnceLock<Symmetric>,
    own: OnceLock<Vec<f32>>,
    unsent: OnceLock<Range<usize>>,
    pub(super) near: OnceLock<Arc<Self>>,
    pub(super) far: OnceLock<Arc<Self>>,
}

/// Which local rows other ranks read, and where halo rows come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Routes {
    /// For each rank: the local rows that it reads, in the order in which it expects them.
    pub send: Vec<Vec<u32>>,
    /// For each rank: how many halo rows it owns. They are numbered rank by rank.
    pub receive: Vec<usize>,
}

impl Routes {
    /// The longest run of the `local` rows that no other rank reads.
    fn unsent(&self, local: usize) -> Range<usize> {
        let mut sent: Vec<usize> = self.send.iter().flatten().map(|&row| row as usize).collect();
        sent.sort_unstable();
        let mut start = 0;
        let runs = sent.into_iter().chain([local]).map(|end| std::mem::replace(&mut start, end + 1)..end);
        runs.max_by_key(Range::len).unwrap_or_default()
    }
}

/// Targets that other ranks own (their masters) and this one adds to, and copies of its own targets on other ranks.
#[derive(Debug)]
pub struct Mirrors {
    /// The edges to them; source rows are those of the layout's block, no target is one of them.
    pub block: Block,
    /// Original id of each.
    pub nodes: Vec<u64>,
    /// For each rank: how many it is the master of. They are numbered rank by rank.
    pub masters: Vec<usize>,
    /// The target behind each copy elsewhere, rank by rank, in the order of the mirrors there.
    pub copies: Vec<u32>,
    /// For each rank: how many of the copies it has.
    pub holders: Vec<usize>,
}

/// Factors of the symmetric normalisation of GCN.
#[derive(Debug)]
pub struct Symmetric {
    /// `1 / sqrt(1 + degree)` of each source row.
    pub source: Vec<f32>,
    /// The same for each target, times degree over degree-in-this-block where neighbours were sampled.
    pub target: Arc<Vec<f32>>,
    /// What makes `1 / (1 + degree)`, the weight of a target's own row, of `target`: what `source` is to itself.
    pub back: Arc<Vec<f32>>,
}

impl Layout {
    /// The layout of `block`; `nodes` and `degrees` have one entry per source row.
    pub fn new(block: Arc<Block>, nodes: Arc<Vec<u64>>, degrees: Vec<f32>, routes: Routes) -> Self {
        debug_assert!(nodes.len() >= block.sources() && degrees.len() == block.sources());
        Self {
            block,
            nodes,
            degrees,
            routes,
            edges: None,
            mirrors: None,
            thinned: None,
            means: OnceLock::new(),
            symmetric: OnceLock::new(),
            own: OnceLock::new(),
            unsent: OnceLock::new(),
            near: OnceLock::new(),
            far: OnceLock::new(),
        }
    }

    /// The same with these `edges` behind the places of the block.
    pub fn with_edges(self, edges: Option<Arc<EdgeValues>>) -> Self {
        Self { edges, ..self }
    }

    /// The same with targets of other ranks.
    pub fn with_mirrors(self, mirrors: Option<Mirrors>) -> Self {
        Self { mirrors, ..self }
    }

    /// Whether any row of this layer crosses a part border.
    pub fn crosses(&self) -> bool {
        let added = |mirrors: &Mirrors| mirrors.block.targets + mirrors.copies.len() > 0;
        self.block.halo > 0
            || self.routes.send.iter().any(|rows| !rows.is_empty())
            || self.mirrors.as_ref().is_some_and(added)
    }

    /// The longest run of local rows that no other rank reads.
    pub fn unsent(&self) -> Range<usize> {
        self.unsent.get_or_init(|| self.routes.unsent(self.block.local)).clone()
    }

    /// Bytes of memory that its lists of edges hold.
    pub fn list_bytes(&self) -> usize {
        let of_mirrors =
            |mirrors: &Mirrors| mirrors.block.bytes() + 8 * mirrors.nodes.len() + 4 * mirrors.copies.len();
        self.block.bytes() + self.mirrors.as_ref().map_or(0, of_mirrors)
    }

    /// Factors of the mean over in-edges: 1 / sum of the weights, 0 where there are none.
    pub fn means(&self) -> &[f32] {
        self.shared_means()
    }

    /// The same, to be shared with layouts that leave edges out.
    pub(super) fn shared_means(&self) -> &Arc<Vec<f32>> {
        self.means.get_or_init(|| {
            let inverse = |total: f32| if total > 0.0 { 1.0 / total } else { 0.0 };
            Arc::new((0..self.block.targets).map(|row| inverse(self.weight_here(row))).collect())
        })
    }

    /// Weight of a target's own row in GCN's normalised sum: `1 / (1 + degree)`.
    pub fn own_weights(&self) -> &[f32] {
        self.own.get_or_init(|| {
            self.symmetric().source[..self.block.targets].iter().map(|scale| scale * scale).collect()
        })
    }

    /// Factors of GCN's normalisation: `w_ji / sqrt(d_j d_i)` with `d = 1 + weighted in-degree`.
    pub fn symmetric(&self) -> &Symmetric {
        self.symmetric.get_or_init(|| {
            let source: Vec<f32> = self.degrees.iter().map(|d| 1.0 / (1.0 + d).sqrt()).collect();
            let targets = 0..self.block.targets;
            let target = targets.clone().map(|row| source[row] * self.share_sampled(row)).collect();
            let back = targets.map(|row| source[row] / self.share_sampled(row)).collect();
            Symmetric { source, target: Arc::new(target), back: Arc::new(back) }
        })
    }

    pub(super) fn weight_here(&self, row: usize) -> f32 {
        // Where some edges are on other ranks, all that there are count: none was sampled.
        if self.mirrors.is_some() {
            return self.degrees[row];
        }
        let edges = self.block.incoming.range(row);
        match self.block.incoming.weights.get(edges.clone()) {
            Some(weights) if !weights.is_empty() => weights.iter().sum(),
            _ => edges.len() as f32,
        }
    }

    /// By how much a sampled neighbourhood must be scaled to stand for the whole one; exactly 1 for a whole one.
    fn share_sampled(&self, row: usize) -> f32 {
        let here = self.weight_here(row);
        if here > 0.0 { self.degrees[row] / here } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_of_rows_that_nobody_else_reads_is_found_wherever_it_is() {
        let unsent = |send: &[&[u32]], local| {
            Routes { send: send.iter().map(|rows| rows.to_vec()).collect(), receive: Vec::new() }
                .unsent(local)
        };
        assert_eq!(unsent(&[], 5), 0..5);
        assert_eq!(unsent(&[&[], &[7, 2], &[2, 6]], 9), 3..6);
        assert_eq!(unsent(&[&[0]], 4), 1..4);
        assert_eq!(unsent(&[&[3, 4]], 5), 0..3);
        assert!(unsent(&[&[0, 1, 2], &[2, 0]], 3).is_empty());
        assert!(unsent(&[&[]], 0).is_empty());
    }
}
