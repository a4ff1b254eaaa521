//! Communities by greedy modularity, packed into parts.
//!
//! Blondel, Guillaume, Lambiotte & Lefebvre, Fast unfolding of communities in large networks, J. Stat. Mech. 2008:
//! every node is a community; nodes move to the neighbouring community that raises modularity
//!
//! `Q = sum over communities of inside/2m - resolution * (degree/2m)^2`
//!
//! most, until none does; communities become the nodes of the next level, and so on while there are fewer of them.
//! Then communities are packed into parts by the edges between them, and the parts refined.
//!
//! Where we differ: a community holds no more nodes than a fraction of a part (setting `clusters`), since larger ones
//! could not be packed; nodes are visited in a seeded order, and again only after a neighbour moved; ties go to the
//! lower community. Cost: a few passes over the edges per level, levels shrink fast. Memory: the graph twice at most
//! (see `Adjacency`) and about 60 bytes per node.

use super::adjacency::Adjacency;
use super::label_propagation::{CLUSTERS, Frame, REFINE, SLACK};
use super::moving::{Level, Moving, renumber};
use super::settings::{Setting, Values};
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "louvain",
    summary: "communities of high modularity, packed into parts and refined",
    paper: "Blondel et al., Fast unfolding of communities in large networks, J. Stat. Mech. 2008",
    memory: Memory::Graph,
    needs_file: false,
    balances: false,
    settings: &[
        Setting {
            name: "resolution",
            default: "1",
            about: "above 1: smaller communities; below: larger ones",
            values: Values::Number(0.0, 1e6),
        },
        Setting {
            name: "levels",
            default: "20",
            about: "how often communities may become nodes of the next level",
            values: Values::Count(1, 1000),
        },
        SLACK,
        CLUSTERS,
        REFINE,
    ],
    build: || Box::new(Louvain),
};

/// How often all nodes of a level may be visited; nearly all moves happen in the first few.
const ROUNDS: u64 = 32;

/// Modularity optimisation.
#[derive(Debug, Clone, Copy)]
pub struct Louvain;

impl Partitioner for Louvain {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let levels = request.count(&ENTRY, "levels")?;
        let resolution = request.number(&ENTRY, "resolution")?;
        let frame = Frame::new(&ENTRY, dataset, request)?;
        let finest = Level::finest(Adjacency::read(dataset, request, progress)?);
        progress.begin("louvain", 0, "nodes");
        let moving = Moving { cap: frame.cap, resolution, rounds: ROUNDS, key: frame.key };
        let (cluster_of, clusters) = communities(&finest, &moving, levels, progress)?;
        frame.packing.run(&finest, &cluster_of, clusters, progress)
    }
}

/// The community of every node of `finest`, and how many there are.
fn communities(
    finest: &Level,
    moving: &Moving,
    levels: u64,
    progress: &dyn Progress,
) -> Result<(Vec<u32>, usize)> {
    let mut cluster_of: Vec<u32> = (0..finest.nodes() as u32).collect();
    let mut coarse: Option<Level> = None;
    for depth in 0..levels {
        let level = coarse.as_ref().unwrap_or(finest);
        let mut label_of: Vec<u32> = (0..level.nodes() as u32).collect();
        let moving = Moving { key: moving.key.with(depth), ..*moving };
        moving.run(level, &mut label_of, level.nodes(), progress)?;
        let clusters = renumber(&mut label_of, level.nodes());
        if clusters == level.nodes() {
            break;
        }
        cluster_of.iter_mut().for_each(|cluster| *cluster = label_of[*cluster as usize]);
        coarse = Some(level.contracted(&label_of, clusters));
    }
    let clusters = coarse.map_or(finest.nodes(), |level| level.nodes());
    Ok((cluster_of, clusters))
}

#[cfg(test)]
mod tests {
    use super::super::planted::{cliques, cuts_little_within_its_slack, separates_cliques};
    use super::*;
    use crate::progress::Silent;
    use crate::random::{Key, Purpose};

    #[test]
    fn cliques_are_separated() {
        separates_cliques("louvain", 2, 12);
        separates_cliques("louvain", 4, 12);
    }

    #[test]
    fn cliques_are_communities_and_a_cap_splits_them() {
        let graph = Adjacency::read(&mut cliques(6, 8), &Request::new(2, 0), &Silent).unwrap();
        let finest = Level::finest(graph);
        let key = Key::new(1, Purpose::Partition);
        let found = |cap, resolution| {
            let moving = Moving { cap, resolution, rounds: ROUNDS, key };
            communities(&finest, &moving, 20, &Silent).unwrap()
        };
        let (cluster_of, clusters) = found(100, 1.0);
        assert_eq!(clusters, 6);
        assert!((0..48).all(|node| cluster_of[node] == cluster_of[node % 6]), "{cluster_of:?}");
        assert_eq!(found(100, 0.0).1, 1);
        let (cluster_of, clusters) = found(4, 1.0);
        let sizes = (0..clusters as u32).map(|c| cluster_of.iter().filter(|&&of| of == c).count());
        assert!(sizes.max() <= Some(4), "{cluster_of:?}");
    }

    #[test]
    fn the_cut_is_far_below_that_of_random_parts_and_no_part_exceeds_its_slack() {
        cuts_little_within_its_slack("louvain");
    }
}
