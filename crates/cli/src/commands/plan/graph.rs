//! What is known of the graph: counted in a store, or as a generator would make it.

use crate::commands::generate::Size;
use crate::commands::partition::parts::Parts;
use crate::commands::session::is_store;
use archipelago_graph::partition::auto::{RESERVE, Workers};
use archipelago_graph::{Error, PartId, Store, synthetic};
use archipelago_train::cost::{Cluster, Degrees, GraphFacts};
use std::path::Path;

/// Flags that describe a graph that there is none of yet.
#[derive(clap::Args)]
#[command(next_help_heading = "A graph that is not there yet, instead of --data")]
pub struct GraphFlags {
    /// Generator whose degrees it has (`archi list generators`); without one, edges fall anywhere
    #[arg(long, value_name = "NAME")]
    graph: Option<String>,
    #[command(flatten)]
    size: Size,
    /// How many parts it will be cut into, or `auto`
    #[arg(long, value_name = "P|auto", default_value = "1")]
    parts: Parts,
    /// Share of the nodes that are trained on
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    train_share: f64,
    /// Share of the edges that will be cut; as by chance when not given
    #[arg(long, value_name = "SHARE")]
    cut: Option<f64>,
}

/// Counts of a graph.
struct Counts {
    nodes: u64,
    edges: u64,
    features: usize,
    classes: usize,
}

impl GraphFlags {
    /// Whether a graph is described.
    pub fn given(&self) -> bool {
        self.graph.is_some() || self.size.node_count().is_some()
    }

    /// The graph that is described.
    pub fn facts(&self, cluster: &Cluster) -> anyhow::Result<GraphFacts> {
        let counts = self.counts()?;
        let (parts, cut) = (self.parts(&counts, cluster)?, self.shares()?);
        let chance = f64::from(parts - 1) / f64::from(parts);
        let mut assumed =
            vec![format!("{} of the nodes are trained on, spread evenly", percent(self.train_share))];
        if parts > 1 {
            let how = if cut.is_some() { "--cut" } else { "as by chance: no partitioner helps" };
            assumed.push(format!("{} of the edges are cut ({how})", percent(cut.unwrap_or(chance))));
            assumed.push("parts are equal".to_owned());
        }
        let (degrees, how) = self.degrees(&counts)?;
        assumed.push(format!("degrees: {how}"));
        let facts = GraphFacts {
            name: self.graph.clone().unwrap_or_else(|| "graph".into()),
            nodes: counts.nodes as f64,
            edges: counts.edges as f64,
            features: counts.features.max(1),
            dense: true,
            stored_features: counts.features.max(1) as f64,
            classes: counts.classes,
            multilabel: false,
            weighted: false,
            train: (self.train_share * counts.nodes as f64).ceil(),
            parts,
            cut: cut.unwrap_or(chance),
            halo: 0.0,
            balance: 1.0,
            store_bytes: 0.0,
            degrees,
            assumed,
        };
        Ok(facts.expected())
    }

    /// What the generator makes where nothing else is said.
    fn counts(&self) -> anyhow::Result<Counts> {
        let entry = self.graph.as_deref().map(synthetic::find).transpose()?;
        let defaults = entry.map(|entry| (entry.defaults)());
        let number = |of: fn(&synthetic::Request) -> u64| defaults.as_ref().map(of);
        let nodes = self.size.node_count().or(number(|d| d.nodes)).unwrap_or(1);
        let per_node = defaults.as_ref().and_then(|d| d.edges.checked_div(d.nodes));
        let Some(edges) = self.size.edges.or(per_node.map(|edges| nodes.saturating_mul(edges))) else {
            return Err(Error::usage("expected a number of edges, found none")
                .with_hint("give `--edges E`")
                .into());
        };
        Ok(Counts {
            nodes,
            edges,
            features: self.size.features.or(defaults.as_ref().map(|d| d.features)).unwrap_or(128),
            classes: self.size.classes.or(defaults.as_ref().map(|d| d.classes)).unwrap_or(10),
        })
    }

    fn parts(&self, counts: &Counts, cluster: &Cluster) -> anyhow::Result<u32> {
        let Parts::Count(parts) = self.parts else {
            let row = 8 + 8 + 4 * counts.features as u64;
            let bytes = counts.nodes.saturating_mul(row).saturating_add(counts.edges.saturating_mul(4));
            let memory_bytes = cluster.memory_bytes;
            let workers = Workers { count: cluster.workers, memory_bytes, reserve: RESERVE };
            return Ok(workers.parts_for(bytes, counts.nodes)?.parts);
        };
        Ok(parts)
    }

    /// The share that is cut, if it is given; refuses shares that are none.
    fn shares(&self) -> anyhow::Result<Option<f64>> {
        for (flag, share) in [("--train-share", Some(self.train_share)), ("--cut", self.cut)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                let found = share.unwrap_or_default();
                return Err(
                    Error::usage(format!("`{flag}`: expected a share from 0 to 1, found `{found}`")).into()
                );
            }
        }
        Ok(self.cut)
    }

    fn degrees(&self, counts: &Counts) -> anyhow::Result<(Degrees, &'static str)> {
        let (nodes, edges) = (counts.nodes, counts.edges as f64);
        if self.graph.as_deref() != Some("rmat") {
            return Ok((Degrees::even(nodes as f64, edges), "edges fall anywhere (Poisson)"));
        }
        if !nodes.is_power_of_two() {
            let message = format!("the generator `rmat` needs a power of two of nodes, found {nodes}");
            return Err(Error::usage(message)
                .with_hint(format!("the next one is {}", nodes.next_power_of_two()))
                .into());
        }
        Ok((Degrees::rmat(nodes.trailing_zeros(), edges), "those that R-MAT gives, by its formula"))
    }
}

fn percent(share: f64) -> String {
    crate::terminal::units::percent(share)
}

/// The store at `path`, whose degrees are counted.
pub fn of_path(path: &Path) -> anyhow::Result<GraphFacts> {
    if !is_store(path) {
        std::fs::metadata(path).map_err(Error::io("open", path))?;
        return Err(Error::input(path, "", "a store", "none")
            .with_hint("cut the dataset with `archi partition`, or describe it with `--nodes N --edges E`")
            .into());
    }
    of_store(&Store::open(path)?)
}

/// A store, whose degrees are counted.
pub fn of_store(store: &Store) -> anyhow::Result<GraphFacts> {
    let parts = (0..store.parts()).map(|id| store.part(PartId(id))).collect::<Result<Vec<_>, _>>()?;
    let degrees = parts.iter().flat_map(|part| part.offsets().windows(2).map(|pair| pair[1] - pair[0]));
    let mut facts = GraphFacts::of_store(store.manifest(), Degrees::counted(degrees));
    if !store.manifest().undirected {
        facts.assumed.push("nodes are the source of as many edges as they are the target of".to_owned());
    }
    Ok(facts)
}
