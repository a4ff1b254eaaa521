//! A layer from which some source nodes are left out: Emma's chunks, BNS-GCN's boundary samples.
//!
//! Whether a source is left out is a function of its original id, so both ends of a route leave out the same rows and
//! no message is needed. Targets stay as they are, so that the rows of a step are those of every step.

use super::layout::{Layout, Routes};
use archipelago_graph::Block;
use archipelago_graph::block::Adjacency;
use std::sync::Arc;

/// What is left of a thinned layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Thinned {
    /// Share of the weight of each target's in-edges that is there, 0 for a target without any.
    pub shares: Vec<f32>,
    /// Whether each target attends to itself, where its own row is left out like any other.
    pub loops: Option<Vec<bool>>,
}

/// How sums are scaled where edges are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scales {
    /// As if all edges were there: what is missing is remembered, or stood for by heavier edges.
    OfAll,
    /// By the edges that are there.
    OfRest,
}

/// What to leave out, and what that does to the rest.
#[derive(Debug, Clone, Copy)]
pub struct Thinning<'a> {
    /// Whether edges of each source row stay, local rows first.
    pub stays: &'a [bool],
    /// Whether each row crosses where it is read elsewhere; of a halo row the same as whether it stays.
    pub sends: &'a [bool],
    /// What the weights of edges from halo rows are multiplied by.
    pub halo_weight: f32,
    /// How sums are scaled.
    pub scales: Scales,
    /// Whether nodes attend to themselves, as one more edge that may be left out.
    pub loops: bool,
}

/// What crosses of a layer whose edges all stay: some of its rows.
#[derive(Debug)]
pub struct Passage {
    /// The same rows without edges; of the halo, those that cross.
    pub layout: Layout,
    /// Where these stand in the whole halo.
    pub halo: Vec<u32>,
}

impl Layout {
    /// What crosses of this layer where only the rows do that `sends` has, local rows first.
    pub fn passage(&self, sends: &[bool]) -> Passage {
        let Block { local, .. } = *self.block;
        let halo: Vec<u32> =
            (0..self.block.halo).filter(|at| sends[local + at]).map(|at| at as u32).collect();
        let rows = || (0..local).chain(halo.iter().map(|&at| local + at as usize));
        let edges = Adjacency { offsets: vec![0], ..Adjacency::default() };
        let block = Arc::new(Block::new(edges, local, halo.len()));
        let nodes = Arc::new(rows().map(|row| self.nodes[row]).collect());
        let degrees = rows().map(|row| self.degrees[row]).collect();
        Passage { layout: Self::new(block, nodes, degrees, self.thinned_routes(sends)), halo }
    }

    /// This layer without the edges of some sources. Halo rows that are left out do not cross.
    pub fn thinned(&self, thinning: Thinning<'_>) -> Self {
        let (block, stays) = (&self.block, thinning.stays);
        let halo: Vec<usize> = (block.local..block.sources()).filter(|&row| stays[row]).collect();
        let mut place: Vec<u32> = (0..block.sources() as u32).collect();
        halo.iter().enumerate().for_each(|(at, &row)| place[row] = (block.local + at) as u32);
        let rows = || (0..block.local).chain(halo.iter().copied());
        let (lists, shares) = self.thinned_lists(thinning, &place);
        let thin = Block::new(lists, block.local, halo.len());
        let nodes = Arc::new(rows().map(|row| self.nodes[row]).collect());
        let degrees = rows().map(|row| self.degrees[row]).collect();
        let mut layout = Self::new(Arc::new(thin), nodes, degrees, self.thinned_routes(thinning.sends));
        if thinning.scales == Scales::OfAll {
            let whole = self.symmetric();
            let source = rows().map(|row| whole.source[row]).collect();
            let (target, back) = (Arc::clone(&whole.target), Arc::clone(&whole.back));
            layout.symmetric = super::Symmetric { source, target, back }.into();
            layout.means = Arc::clone(self.shared_means()).into();
        }
        layout.edges.clone_from(&self.edges);
        let loops = thinning.loops.then(|| stays[..block.targets].to_vec());
        layout.thinned = Some(Thinned { shares, loops });
        layout
    }

    /// The same layer with its local sources only: nothing crosses. Made once.
    pub fn near(&self) -> &Arc<Self> {
        self.near.get_or_init(|| {
            let stays: Vec<bool> = (0..self.block.sources()).map(|row| row < self.block.local).collect();
            Arc::new(self.half(&stays, &vec![false; stays.len()]))
        })
    }

    /// The same layer with the sources of other parts only. Made once.
    pub fn far(&self) -> &Arc<Self> {
        self.far.get_or_init(|| {
            let stays: Vec<bool> = (0..self.block.sources()).map(|row| row >= self.block.local).collect();
            Arc::new(self.half(&stays, &vec![true; stays.len()]))
        })
    }

    /// Half of the sources; what is missing of the layer itself is missing alike in both halves.
    fn half(&self, stays: &[bool], sends: &[bool]) -> Self {
        let scales = Scales::OfAll;
        let mut half = self.thinned(Thinning { stays, sends, halo_weight: 1.0, scales, loops: false });
        half.thinned.clone_from(&self.thinned);
        half
    }

    /// The edges that stay, and of each target the share of its edges' weight that they have.
    fn thinned_lists(&self, thinning: Thinning<'_>, place: &[u32]) -> (Adjacency, Vec<f32>) {
        let Adjacency { offsets, neighbors, weights, places } = &self.block.incoming;
        let weighted = !weights.is_empty() || thinning.halo_weight != 1.0;
        let mut lists = Adjacency { offsets: Vec::with_capacity(offsets.len()), ..Adjacency::default() };
        lists.offsets.push(0);
        let mut shares = Vec::with_capacity(self.block.targets);
        for target in 0..self.block.targets {
            let own = if thinning.loops { 1.0 } else { 0.0 };
            let (mut left, mut all) = (if thinning.stays[target] { own } else { 0.0 }, own);
            for edge in self.block.incoming.range(target) {
                let (source, weight) = (neighbors[edge] as usize, weights.get(edge).copied().unwrap_or(1.0));
                all += weight;
                if !thinning.stays[source] {
                    continue;
                }
                left += weight;
                lists.neighbors.push(place[source]);
                lists.places.extend(places.get(edge));
                if weighted {
                    let factor = if source < self.block.local { 1.0 } else { thinning.halo_weight };
                    lists.weights.push(factor * weight);
                }
            }
            lists.offsets.push(lists.neighbors.len() as u64);
            shares.push(if all == 0.0 { 0.0 } else { left / all });
        }
        (lists, shares)
    }

    fn thinned_routes(&self, sends: &[bool]) -> Routes {
        let sent = |rows: &Vec<u32>| rows.iter().copied().filter(|&row| sends[row as usize]).collect();
        let mut first = self.block.local;
        let received = |count: &usize| {
            let rows = first..first + count;
            first = rows.end;
            rows.filter(|&row| sends[row]).count()
        };
        Routes {
            send: self.routes.send.iter().map(sent).collect(),
            receive: self.routes.receive.iter().map(received).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two targets among three local rows, two halo rows from rank 1; rank 1 reads rows 0 and 2.
    fn layout() -> Layout {
        let incoming =
            Adjacency { offsets: vec![0, 3, 5], neighbors: vec![1, 3, 4, 2, 4], ..Adjacency::default() };
        let routes = Routes { send: vec![vec![], vec![0, 2]], receive: vec![0, 2] };
        let degrees = vec![3.0, 2.0, 1.0, 7.0, 3.0];
        let nodes = Arc::new(vec![10, 11, 12, 13, 14]);
        Layout::new(Arc::new(Block::new(incoming, 3, 2)), nodes, degrees, routes)
    }

    fn thinning(stays: &[bool]) -> Thinning<'_> {
        Thinning { stays, sends: stays, halo_weight: 1.0, scales: Scales::OfAll, loops: false }
    }

    #[test]
    fn sources_that_are_left_out_have_no_edges_and_do_not_cross() {
        let thin = layout().thinned(thinning(&[false, true, true, false, true]));
        assert_eq!((thin.block.targets, thin.block.local, thin.block.halo), (2, 3, 1));
        assert_eq!(thin.block.incoming.neighbors(0), [1, 3]);
        assert_eq!(thin.block.incoming.neighbors(1), [2, 3]);
        assert_eq!(*thin.nodes, [10, 11, 12, 14]);
        assert_eq!(thin.routes, Routes { send: vec![vec![], vec![2]], receive: vec![0, 1] });
        assert_eq!(thin.thinned.unwrap().shares, [2.0 / 3.0, 1.0]);
    }

    #[test]
    fn a_passage_has_the_routes_of_the_rows_that_cross_and_no_edges() {
        let Passage { layout: some, halo } = layout().passage(&[false, true, true, false, true]);
        assert_eq!((some.block.targets, some.block.local, some.block.halo), (0, 3, 1));
        assert_eq!(halo, [1]);
        assert_eq!(*some.nodes, [10, 11, 12, 14]);
        assert_eq!(some.routes, Routes { send: vec![vec![], vec![2]], receive: vec![0, 1] });
    }

    #[test]
    fn scales_are_those_of_all_edges_or_of_the_rest() {
        let (whole, stays) = (layout(), [false, true, true, false, true]);
        let of_all = whole.thinned(thinning(&stays));
        assert_eq!(of_all.means(), whole.means());
        assert_eq!(of_all.symmetric().target, whole.symmetric().target);
        assert_eq!(of_all.symmetric().source[3], whole.symmetric().source[4]);
        let of_rest = whole.thinned(Thinning { scales: Scales::OfRest, ..thinning(&stays) });
        assert_eq!(of_rest.means(), [1.0 / 2.0, 1.0 / 2.0]);
    }

    #[test]
    fn heavier_halo_edges_stand_for_those_that_are_missing() {
        let stays = [true, true, true, false, true];
        let thin = layout().thinned(Thinning { halo_weight: 2.0, ..thinning(&stays) });
        assert_eq!(thin.block.incoming.weights, [1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn the_halves_of_a_layer_have_all_its_edges_and_the_far_one_all_that_crosses() {
        let stays = [false, true, true, false, true];
        let thin = layout().thinned(thinning(&stays));
        let (near, far) = (thin.near(), thin.far());
        assert_eq!((near.block.edges(), far.block.edges()), (2, 2));
        assert_eq!((near.block.halo, far.block.halo), (0, 1));
        assert!(!near.crosses());
        assert_eq!(far.routes, thin.routes);
        assert_eq!((&near.thinned, &far.thinned), (&thin.thinned, &thin.thinned));
        assert_eq!((near.means(), far.means()), (thin.means(), thin.means()));
    }

    #[test]
    fn an_added_loop_is_one_more_edge() {
        let stays = [false, true, true, false, true];
        let thin = layout().thinned(Thinning { loops: true, ..thinning(&stays) }).thinned.unwrap();
        assert_eq!(thin.loops.unwrap(), [false, true]);
        assert_eq!(thin.shares, [2.0 / 4.0, 3.0 / 3.0]);
    }
}
