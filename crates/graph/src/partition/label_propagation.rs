//! Clusters by size-constrained label propagation, packed into parts.
//!
//! Every node starts with a label of its own and takes the label that most of its neighbours have (Raghavan, Albert &
//! Kumara, Near linear time algorithm to detect community structures in large-scale networks, Phys. Rev. E 2007),
//! unless that label already holds as many nodes as it may (Meyerhenke, Sanders & Schulz, Partitioning complex
//! networks via size-constrained clustering, SEA 2014). Clusters are packed into parts by the edges between them, and
//! the same propagation on the labels of parts improves them, as in Ugander & Backstrom (Balanced label propagation
//! for partitioning massive graphs, WSDM 2013).
//!
//! Where we differ: ties go to the lower label and the order of visits is drawn once, so that a seed gives one
//! answer; nodes whose neighbours have not moved are not visited again. Cost: O(rounds * edges). Memory: the graph
//! (see `Adjacency`) and about 50 bytes per node.

use super::adjacency::Adjacency;
use super::moving::{Level, Moving, renumber};
use super::packing::{Packing, room};
use super::settings::{Setting, Values};
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "label-propagation",
    summary: "clusters by size-constrained label propagation, packed into parts and refined",
    paper: "Raghavan et al., Near linear time algorithm to detect community structures in large-scale networks, \
            Phys. Rev. E 2007",
    memory: Memory::Graph,
    needs_file: false,
    balances: false,
    settings: &[
        Setting {
            name: "rounds",
            default: "10",
            about: "how often every node may change its label",
            values: Values::Count(0, 1000),
        },
        SLACK,
        CLUSTERS,
        REFINE,
    ],
    build: || Box::new(LabelPropagation),
};

/// The setting of methods that bound the size of parts.
pub(super) const SLACK: Setting = Setting {
    name: "slack",
    default: "0.05",
    about: "how far a part may exceed its equal share of nodes",
    values: Values::Number(0.0, 1e6),
};

/// The setting of methods that pack clusters into parts.
pub(super) const CLUSTERS: Setting = Setting {
    name: "clusters",
    default: "8",
    about: "clusters per part at least: none holds more than this fraction of a part",
    values: Values::Count(1, 1_000_000),
};

/// The setting of methods that improve parts in the end.
pub(super) const REFINE: Setting = Setting {
    name: "refine",
    default: "10",
    about: "how often every node may change its part in the end",
    values: Values::Count(0, 1000),
};

/// Label propagation.
#[derive(Debug, Clone, Copy)]
pub struct LabelPropagation;

impl Partitioner for LabelPropagation {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let rounds = request.count(&ENTRY, "rounds")?;
        let frame = Frame::new(&ENTRY, dataset, request)?;
        let finest = Level::finest(Adjacency::read(dataset, request, progress)?);
        progress.begin("label propagation", 0, "nodes");
        let mut cluster_of: Vec<u32> = (0..finest.nodes() as u32).collect();
        let moving = Moving { cap: frame.cap, resolution: 0.0, rounds, key: frame.key };
        moving.run(&finest, &mut cluster_of, finest.nodes(), progress)?;
        let clusters = renumber(&mut cluster_of, finest.nodes());
        frame.packing.run(&finest, &cluster_of, clusters, progress)
    }
}

/// What the methods that pack clusters have in common.
pub(super) struct Frame {
    /// The most nodes of a cluster.
    pub cap: u64,
    /// The order of visits.
    pub key: Key,
    /// From clusters to parts.
    pub packing: Packing,
}

impl Frame {
    /// What `request` says about it.
    pub fn new(entry: &Entry, dataset: &Dataset, request: &Request) -> Result<Self> {
        let nodes = super::passes::small_nodes(dataset, request)?;
        let key = Key::new(request.seed, Purpose::Partition);
        let room = room(nodes, request.parts, request.number(entry, SLACK.name)?);
        let cap = (room / request.count(entry, CLUSTERS.name)?).max(1);
        let rounds = request.count(entry, REFINE.name)?;
        let packing = Packing { parts: request.parts, room, rounds, key: key.with(1) };
        Ok(Self { cap, key: key.with(0), packing })
    }
}

#[cfg(test)]
mod tests {
    use super::super::planted::{
        communities, cuts_little_within_its_slack, quality, separates_cliques, with,
    };
    use super::*;

    #[test]
    fn cliques_are_separated() {
        separates_cliques("label-propagation", 2, 12);
        separates_cliques("label-propagation", 4, 12);
    }

    #[test]
    fn the_cut_is_far_below_that_of_random_parts_and_no_part_exceeds_its_slack() {
        cuts_little_within_its_slack("label-propagation");
    }

    #[test]
    fn refinement_lowers_the_cut() {
        let mut dataset = communities();
        let plain = quality("label-propagation", &mut dataset, &with(4, "refine", "0"));
        let refined = quality("label-propagation", &mut dataset, &Request::new(4, 5));
        assert!(refined.cut_edges < plain.cut_edges, "{} {}", refined.cut_edges, plain.cut_edges);
    }
}
