//! What does a strategy do, as far as its cost goes? Its name and its dials, read in one place.
//!
//! Keys are read by their names, so that a key or a strategy that this build does not have costs nothing.

use crate::boundary::Order;
use crate::model;
use crate::run::{Backward, Broadcast, HistoryOf, Refresh, RunConfig, Staleness};

/// What a step trains on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// All training nodes.
    Global,
    /// All training nodes, in so many steps in which one chunk of the sources sends.
    Chunks(usize),
    /// `train.batch_size` training nodes, and neighbours by `train.fanouts`.
    Drawn,
}

/// Who computes a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Computes {
    /// All ranks together, layer by layer.
    Shared(Crossing),
    /// Each rank its own, with rows that it pulls from the others.
    Own,
    /// Each rank its own, with what lies on its island.
    Isolated(Island),
}

/// Which node features that other parts read cross once, and not in every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// None.
    None,
    /// Sparse ones.
    Sparse,
    /// All.
    All,
}

impl Home {
    /// Whether features cross once; `sparse` says what they are.
    pub fn brings(self, sparse: bool) -> bool {
        self == Self::All || self == Self::Sparse && sparse
    }
}

/// What crosses part borders in every layer, where ranks compute a batch together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// In how many of the steps rows cross.
    pub rows: f64,
    /// In how many of the steps gradients of rows cross.
    pub gradients: f64,
    /// Share of the halo that a step reads.
    pub halo: f64,
    /// Passes forward over all edges per epoch, beside the steps.
    pub refreshes: f64,
    /// In which order layers aggregate and transform.
    pub order: Order,
    /// Which inputs of the first layer cross once per run.
    pub home: Home,
    /// Whether nobody waits for what is under way.
    pub late: bool,
    /// Whether all rows of a part go to every part that reads some of them.
    pub block: bool,
    /// What is kept from step to step.
    pub keeps: Keeps,
}

/// What a rank keeps of a layer from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Nothing.
    Nothing,
    /// Sums at targets.
    Sums,
    /// Rows of the halo.
    Halo,
    /// Rows of the halo, and those that it sent.
    Rows,
}

/// The parts that a rank computes on at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Island {
    /// How many parts it is made of.
    pub parts: f64,
    /// Parts of these whose training nodes are in the loss.
    pub bases: f64,
    /// Hops of read-only rows around them.
    pub halo: u64,
    /// Epochs between two islands of the same base.
    pub switch_every: f64,
}

/// How ranks agree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Agreement {
    /// They sum gradients after every step.
    SumGradients,
    /// They average weights after so many epochs.
    AverageModels {
        /// Epochs of a round.
        every: f64,
    },
}

/// What a strategy does, as far as its cost goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// What users call it.
    pub name: String,
    /// What a step trains on.
    pub batch: Batch,
    /// Who computes it.
    pub computes: Computes,
    /// How ranks agree.
    pub agreement: Agreement,
    /// Parts in memory at a time, over all workers; as many as there are ranks. 0 = all.
    pub resident: u32,
    /// Whether the next parts are read while these are trained on.
    pub prefetch: bool,
}

const EXACT: Crossing = Crossing {
    rows: 1.0,
    gradients: 1.0,
    halo: 1.0,
    refreshes: 0.0,
    order: Order::Cheapest,
    home: Home::None,
    late: false,
    block: false,
    keeps: Keeps::Nothing,
};

impl Shape {
    /// What the strategy called `name` does with the dials of `config` on so many `parts`; none where its cost is not
    /// known.
    pub fn of(name: &str, config: &RunConfig, parts: u32) -> Option<Self> {
        let shape = |batch, computes| Self {
            name: name.to_owned(),
            batch,
            computes,
            agreement: agreement(config),
            resident: 0,
            prefetch: true,
        };
        let shared = |crossing| shape(Batch::Global, Computes::Shared(crossing));
        Some(match name {
            "full" | "graphtheta" => shared(Crossing { home: Home::Sparse, ..EXACT }),
            "pipegcn" => shared(Crossing { late: true, home: Home::All, keeps: Keeps::Rows, ..EXACT }),
            "bns" => shared(Crossing { halo: config.exchange.boundary_rate, ..EXACT }),
            "cagnet" | "sancus" | "skipg" => shared(stale(name, config)),
            "emma" => {
                let chunks = if config.exchange.chunking { config.exchange.chunks } else { 1 };
                shape(Batch::Chunks(chunks), Computes::Shared(moving(config, chunks)))
            }
            "mini" | "distdgl" | "bytegnn" => shape(Batch::Drawn, Computes::Own),
            "grappa" | "sdt" | "cluster-gcn" => island(name, config, parts, shape),
            _ => return None,
        })
    }

    /// The parts of a rank, if it computes on parts of its own.
    pub fn island(&self) -> Option<Island> {
        match self.computes {
            Computes::Isolated(island) => Some(island),
            _ => None,
        }
    }
}

/// Rows that are sent again when they are too old. How fast rows change is not known before: with
/// `staleness = "change"` they are taken to change in every epoch.
fn stale(name: &str, config: &RunConfig) -> Crossing {
    let exchange = &config.exchange;
    let every = 1.0 / (exchange.stale_epochs + 1) as f64;
    let (rows, gradients) = match name {
        "skipg" => (1.0, every),
        "sancus" if exchange.staleness != Staleness::Change => match exchange.backward {
            Backward::ExactStale => (every, every),
            Backward::StraightThrough => (every, 1.0),
        },
        _ => (1.0, 1.0),
    };
    let block = exchange.broadcast == Broadcast::Block;
    Crossing {
        rows,
        gradients,
        order: Order::AggregateFirst,
        home: Home::All,
        block,
        keeps: Keeps::Rows,
        ..EXACT
    }
}

/// One chunk after the other.
fn moving(config: &RunConfig, chunks: usize) -> Crossing {
    let exchange = &config.exchange;
    let refreshes = match exchange.history_refresh_every {
        _ if chunks == 1 || !exchange.moving => 0.0,
        Refresh::Chunks => 1.0 / exchange.chunks as f64,
        Refresh::Every(sweeps) => 1.0 / sweeps as f64,
        Refresh::Never => 0.0,
    };
    let order = match exchange.history_of {
        _ if !exchange.moving => Order::Cheapest,
        HistoryOf::Inputs => Order::AggregateFirst,
        HistoryOf::Narrowest => Order::Split,
        // Rows of a chunk cross, and all are read.
        // With one chunk nothing is remembered.
        HistoryOf::Halo if chunks == 1 => return Crossing { home: Home::All, ..EXACT },
        HistoryOf::Halo => {
            let share = 1.0 / chunks as f64;
            return Crossing {
                rows: share,
                gradients: share,
                refreshes,
                home: Home::All,
                keeps: Keeps::Halo,
                ..EXACT
            };
        }
    };
    // A first layer that attends is chunked like the others.
    let attends = model::find(&config.model.name).is_ok_and(|entry| {
        matches!((entry.reads)(model::Aggregator::Mean), model::Reads::Transformed | model::Reads::Attended)
    });
    let halo = 1.0 / chunks as f64;
    let keeps = if exchange.moving { Keeps::Sums } else { Keeps::Nothing };
    let home = if attends { Home::None } else { Home::All };
    Crossing { halo, refreshes, order, home, keeps, ..EXACT }
}

fn island(name: &str, config: &RunConfig, parts: u32, shape: impl Fn(Batch, Computes) -> Shape) -> Shape {
    let number = |key: &str| number(config, key);
    let count = f64::from(parts);
    let (several, bases, halo) = match name {
        "grappa" => (2.0, 1.0, 0),
        "sdt" => (1.0, 1.0, 1),
        _ => {
            let clusters = number("train.clusters").filter(|&n| n > 0.0).unwrap_or(1.0).min(count);
            (clusters, clusters, 0)
        }
    };
    let even = (config.train.epochs as f64 / (count - 1.0).max(1.0)).max(1.0);
    let switch_every = match (name, text(config, "residency.sweep_every").as_deref()) {
        ("cluster-gcn", _) => 1.0,
        // A part comes back as it was.
        ("sdt", _) | (_, Some("never")) => f64::INFINITY,
        (_, Some(every)) => every.parse().ok().filter(|&every| every > 0.0).unwrap_or(even),
        (_, None) => even,
    };
    let written = |key: &str| text(config, key).filter(|_| config.is_set(key));
    let halo = written("residency.halo").and_then(|hops| hops.parse().ok()).unwrap_or(halo);
    // A base of its own, where it is joined with no other.
    let alone = written("residency.mode").as_deref() == Some("all") && name == "grappa";
    let several = if alone { 1.0 } else { several };
    let island = Island { parts: several.min(count), bases, halo, switch_every };
    let global = name == "cluster-gcn" || text(config, "train.batch").as_deref() == Some("global");
    let batch = if global { Batch::Global } else { Batch::Drawn };
    let agreement = match (name, written("agree.method").as_deref()) {
        (_, Some("average-models")) | ("sdt", None) => average(config),
        _ => Agreement::SumGradients,
    };
    let resident = number("residency.resident").unwrap_or(0.0) as u32;
    let prefetch = text(config, "residency.prefetch").is_none_or(|text| text != "false" && text != "0");
    Shape { agreement, resident, prefetch, ..shape(batch, Computes::Isolated(island)) }
}

fn agreement(config: &RunConfig) -> Agreement {
    match config.agree.method.as_str() {
        "average-models" => average(config),
        _ => Agreement::SumGradients,
    }
}

fn average(config: &RunConfig) -> Agreement {
    Agreement::AverageModels { every: number(config, "agree.every").unwrap_or(1.0).max(1.0) }
}

/// The value of a key that may not be there.
fn number(config: &RunConfig, key: &str) -> Option<f64> {
    text(config, key)?.parse().ok()
}

fn text(config: &RunConfig, key: &str) -> Option<String> {
    config.show(key).map(|text| text.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::STRATEGIES;

    fn shape(name: &str, sets: &[&str]) -> Shape {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        Shape::of(name, &RunConfig::from_sources(None, &sets).unwrap(), 8).unwrap()
    }

    #[test]
    fn every_strategy_of_the_table_has_a_shape() {
        let config = RunConfig::default();
        for entry in STRATEGIES {
            let shape = Shape::of(entry.name, &config, 8);
            let shape = shape.unwrap_or_else(|| panic!("`{}` has no cost", entry.name));
            let shared = matches!(shape.computes, Computes::Shared(_));
            assert_eq!(shared, entry.behavior.global_batch, "{}", entry.name);
        }
    }

    #[test]
    fn dials_move_what_crosses() {
        let crossing = |name, sets: &[&str]| match shape(name, sets).computes {
            Computes::Shared(crossing) => crossing,
            other => panic!("{other:?}"),
        };
        assert_eq!(crossing("sancus", &["exchange.stale_epochs=3"]).rows, 0.25);
        assert_eq!(crossing("sancus", &["exchange.staleness=change"]).rows, 1.0);
        assert_eq!(crossing("skipg", &[]).gradients, 0.5);
        assert_eq!(crossing("bns", &["exchange.boundary_rate=0.2"]).halo, 0.2);
        let emma = crossing("emma", &["exchange.chunks=4"]);
        assert_eq!((emma.halo, emma.refreshes, emma.order), (0.25, 0.25, Order::Split));
        let recalls = crossing("emma", &["exchange.chunks=4", "exchange.history_of=halo"]);
        assert_eq!((recalls.halo, recalls.rows, recalls.gradients), (1.0, 0.25, 0.25));
    }

    #[test]
    fn islands_are_made_of_parts() {
        let grappa = shape("grappa", &["train.epochs=70"]);
        let island = grappa.island().unwrap();
        assert_eq!((island.parts, island.halo, island.switch_every), (2.0, 0, 10.0));
        assert_eq!(grappa.agreement, Agreement::SumGradients);
        let sdt = shape("sdt", &[]);
        assert_eq!(sdt.island().map(|island| (island.parts, island.halo)), Some((1.0, 1)));
        assert_eq!(sdt.agreement, Agreement::AverageModels { every: 1.0 });
        assert_eq!(shape("cluster-gcn", &[]).batch, Batch::Global);
        assert!(Shape::of("nobody", &RunConfig::default(), 8).is_none());
    }
}
