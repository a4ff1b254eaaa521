//! What does a rank compute in an epoch? Rows and edges of every layer of a step, and how many steps there are.
//!
//! A batch that all ranks compute is what its training nodes reach over all edges, spread evenly over the parts. One that
//! a rank draws starts at its share of the training nodes. An island draws among its own parts, and finds nothing
//! beyond them but the halo that it was given.

use super::graph::GraphFacts;
use super::net::Net;
use super::rows::{Drawn, Ground, Hop, draw, draw_all};
use super::shape::{Batch, Computes, Island, Shape};
use crate::run::RunConfig;

/// Rows and edges of one layer, of one rank in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LayerRows {
    /// Rows that it computes.
    pub targets: f64,
    /// Rows near at hand that it reads.
    pub local: f64,
    /// Rows of other parts that it reads.
    pub halo: f64,
    /// Edges along which it sums.
    pub edges: f64,
}

/// What every rank does in an epoch, on average.
#[derive(Debug, Clone, PartialEq)]
pub struct Epoch {
    /// How many ranks there are.
    pub ranks: f64,
    /// Steps of each.
    pub steps: f64,
    /// The layers of a step, first layer first.
    pub layers: Vec<LayerRows>,
    /// The batch that a rank draws, if it does.
    pub drawn: Option<Drawn>,
    /// What a rank has in memory of its parts, if it copies them.
    pub island: Option<IslandRows>,
}

/// An island as it lies in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IslandRows {
    /// Nodes of its parts.
    pub owned: f64,
    /// Read-only rows around them.
    pub halo: f64,
    /// Edges that may be used.
    pub edges: f64,
    /// Share of the in-edges of its nodes that these are.
    pub coverage: f64,
    /// How many of them a rank computes on in an epoch.
    pub per_epoch: f64,
}

impl Epoch {
    /// What `shape` does with `facts` on so many ranks.
    pub fn of(facts: &GraphFacts, net: &Net, shape: &Shape, config: &RunConfig, ranks: f64) -> Self {
        let fanouts = fanouts(config, net.layers());
        match shape.computes {
            Computes::Shared(_) => shared(facts, net, shape),
            Computes::Own => {
                let (ranks, most) = (f64::from(facts.parts), config.train.batch_size as f64);
                let (drawn, steps) =
                    draw_all(&facts.degrees, &open_ground(facts), facts.train / ranks, most, &fanouts);
                Self { ranks, steps, layers: layers(&drawn.hops, 1.0), drawn: Some(drawn), island: None }
            }
            Computes::Isolated(island) => {
                let ground = fenced_ground(facts, island);
                let share = facts.train * island.bases / f64::from(facts.parts);
                let per_epoch = f64::from(facts.parts) / (island.bases * ranks);
                let (most, fanouts) = match shape.batch {
                    Batch::Drawn => (config.train.batch_size as f64, fanouts),
                    _ => (share, vec![-1; net.layers()]),
                };
                let (drawn, steps) = draw_all(&facts.degrees, &ground, share, most, &fanouts);
                let rows = IslandRows { per_epoch, ..island_rows(facts, island, &ground) };
                let (layers, steps) = (layers(&drawn.hops, 1.0), steps * per_epoch);
                Self { ranks, steps, layers, drawn: Some(drawn), island: Some(rows) }
            }
        }
    }

    /// Rows whose features a step reads.
    pub fn inputs(&self) -> f64 {
        self.layers.first().map_or(0.0, |layer| layer.local + layer.halo)
    }
}

/// One fan-out per layer, whatever the run file has.
fn fanouts(config: &RunConfig, layers: usize) -> Vec<i64> {
    let mut fanouts = config.train.fanouts.clone();
    fanouts.resize(layers, fanouts.last().copied().unwrap_or(-1));
    fanouts
}

/// A part of a graph whose other parts answer.
fn open_ground(facts: &GraphFacts) -> Ground {
    let parts = f64::from(facts.parts);
    if facts.parts < 2 {
        return Ground::WHOLE;
    }
    Ground {
        near: 1.0 / parts,
        leads_out: facts.cut,
        leads_in: facts.cut / (parts - 1.0),
        border: facts.border(),
        usable: 1.0,
        far_lists: true,
    }
}

/// A few parts on their own.
fn fenced_ground(facts: &GraphFacts, island: Island) -> Ground {
    let parts = f64::from(facts.parts);
    if island.parts >= parts {
        return Ground::WHOLE;
    }
    let between = facts.cut * (island.parts - 1.0) / (parts - 1.0);
    let inside = 1.0 - facts.cut + between;
    let near = island.parts / parts;
    if island.halo == 0 {
        return Ground { near, usable: inside, ..Ground::WHOLE };
    }
    Ground {
        near,
        leads_out: 1.0 - inside,
        leads_in: facts.cut * island.parts / (parts - 1.0),
        border: facts.border(),
        usable: 1.0,
        far_lists: island.halo > 1,
    }
}

/// What is copied into memory: all nodes of the island, and what they reach in so many hops.
fn island_rows(facts: &GraphFacts, island: Island, ground: &Ground) -> IslandRows {
    let owned = ground.near * facts.nodes;
    let reached = draw(&facts.degrees, ground, owned, &vec![-1; island.halo.max(1) as usize]);
    let halo = reached.hops.last().map_or(0.0, |hop| hop.far);
    let edges = reached.hops.iter().rev().nth(1).map_or(0.0, Hop::all_edges);
    let own = reached.hops.first().map_or(0.0, |hop| hop.edges);
    let coverage = (own / (ground.near * facts.edges).max(1.0)).min(1.0);
    IslandRows { owned, halo, edges, coverage, per_epoch: 1.0 }
}

/// Layers of hops from the targets outward, of which each of `ranks` ranks has its share.
fn layers(hops: &[Hop], ranks: f64) -> Vec<LayerRows> {
    let layer = |pair: &[Hop]| LayerRows {
        targets: pair[0].rows() / ranks,
        local: pair[1].rows() / ranks,
        halo: 0.0,
        edges: pair[0].all_edges() / ranks,
    };
    hops.windows(2).rev().map(layer).collect()
}

fn shared(facts: &GraphFacts, net: &Net, shape: &Shape) -> Epoch {
    let Computes::Shared(crossing) = shape.computes else { unreachable!("a batch of all ranks") };
    let (parts, count) = (f64::from(facts.parts), net.layers());
    let mut hops = draw(&facts.degrees, &Ground::WHOLE, facts.train, &vec![-1; count]).hops;
    if net.all_hidden {
        hops[1..].iter_mut().for_each(|hop| (hop.near, hop.edges) = (facts.nodes, facts.edges));
    }
    let mut layers = layers(&hops, parts);
    let chunked = if net.widths.attends { 0 } else { 1 };
    for (index, layer) in layers.iter_mut().enumerate() {
        let active = (layer.edges * parts / facts.edges.max(1.0)).min(1.0);
        layer.halo = facts.halo_read(active);
        match shape.batch {
            // Where rows are remembered rather than sums, a step is computed on all edges.
            Batch::Chunks(chunks) if index >= chunked && crossing.halo < 1.0 => {
                layer.halo /= chunks as f64;
                layer.edges /= chunks as f64;
            }
            Batch::Global if crossing.halo < 1.0 && !(index == 0 && net.static_first) => {
                layer.halo *= crossing.halo;
                layer.edges *= 1.0 - facts.cut * (1.0 - crossing.halo);
            }
            _ => {}
        }
    }
    let steps = match shape.batch {
        Batch::Chunks(chunks) => chunks as f64,
        _ => 1.0,
    };
    Epoch { ranks: parts, steps, layers, drawn: None, island: None }
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::rmat;
    use super::*;

    fn epoch(name: &str, sets: &[&str], ranks: f64) -> Epoch {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let config = RunConfig::from_sources(None, &sets).unwrap();
        let facts = rmat(8);
        let net = Net::of(&config, facts.features, facts.classes, facts.dense).unwrap();
        Epoch::of(&facts, &net, &Shape::of(name, &config, 8).unwrap(), &config, ranks)
    }

    #[test]
    fn a_batch_of_all_ranks_computes_only_what_the_loss_needs() {
        let epoch = epoch("full", &[], 8.0);
        assert_eq!((epoch.steps, epoch.ranks), (1.0, 8.0));
        let targets: Vec<f64> = epoch.layers.iter().map(|layer| 8.0 * layer.targets).collect();
        assert!((targets[1] / 6553.6 - 1.0).abs() < 1e-9, "{targets:?}");
        assert!(targets[0] > 3.0 * targets[1] && targets[0] < 65536.0, "{targets:?}");
        assert!((epoch.layers[0].targets - epoch.layers[1].local).abs() < 1e-9);
    }

    #[test]
    fn chunks_share_the_edges_and_the_halo_of_a_full_step() {
        let (full, emma) = (epoch("full", &[], 8.0), epoch("emma", &["exchange.chunks=5"], 8.0));
        assert_eq!(emma.steps, 5.0);
        assert!((5.0 * emma.layers[1].halo / full.layers[1].halo - 1.0).abs() < 1e-9);
        assert_eq!(emma.layers[1].targets, full.layers[1].targets);
    }

    #[test]
    fn an_island_holds_its_parts_and_loses_edges_to_others() {
        let strict = epoch("grappa", &["train.batch_size=100"], 2.0);
        let rows = strict.island.unwrap();
        assert!((rows.owned - 16384.0).abs() < 1e-6 && rows.halo == 0.0, "{rows:?}");
        // Cut at random into 8 parts, 2 of which are there: a quarter of the edges of a quarter of the nodes.
        assert!((rows.edges / (2_097_152.0 / 16.0) - 1.0).abs() < 1e-6, "{rows:?}");
        assert!((rows.coverage - 0.25).abs() < 1e-6, "{rows:?}");
        // 819 training nodes a part, 9 steps each, 4 parts a rank.
        assert_eq!((rows.per_epoch, strict.steps), (4.0, 36.0));
        let sdt = epoch("sdt", &[], 2.0).island.unwrap();
        assert!((sdt.owned - 8192.0).abs() < 1e-6);
        assert!(sdt.halo > 0.2 * 65536.0 && (sdt.edges / 262_144.0 - 1.0).abs() < 1e-6, "{sdt:?}");
    }

    #[test]
    fn own_batches_are_a_share_of_the_training_nodes() {
        let epoch = epoch("distdgl", &["train.batch_size=500"], 8.0);
        // 819 of a part.
        assert_eq!(epoch.steps, 2.0);
        assert!(epoch.inputs() > epoch.layers[1].targets);
        let far = epoch.drawn.unwrap().hops[2].far;
        assert!(far > 0.5 * epoch.layers[0].local, "{far}");
    }
}
