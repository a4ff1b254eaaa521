//! The METIS library: multilevel k-way partitioning with several balance constraints.
//!
//! Karypis & Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, SIAM J. Sci. Comput.
//! 1998: the graph is coarsened by matching, the coarsest graph is cut, and the cut improved while it is projected
//! back. With several constraints (Karypis & Kumar, Multilevel algorithms for multi-constraint graph partitioning, SC
//! 1998) a node has a vector of weights: 1, and what the user asks to balance besides, as in DistDGL: 0 or 1 for each
//! split, and its in-edges. Edges weigh what `Adjacency` says; the objective is their cut, or the communication
//! volume (the number of pairs of a node and another part that it has neighbours in).
//!
//! Parts of fewer than 16 nodes are below what METIS is made for; they are grown node by node instead.
//!
//! METIS counts in 32 bits and takes its random numbers from the C library: calls are made one at a time, so that a
//! seed gives one answer, but that answer may differ between C libraries. A call cannot be interrupted. Memory: the
//! graph (see `Adjacency`) and what METIS needs, several times as much.

use super::adjacency::Adjacency;
use super::moving::Level;
use super::packing::{Packing, room};
use super::passes::{each_edge, small_nodes};
use super::settings::{Setting, Values};
use super::{Assignment, Balance, Entry, Memory, Partitioner, Request};
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};
use crate::{Error, Result};
use ::metis::option::{ObjType, Seed};
use std::sync::{Mutex, PoisonError};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "metis",
    summary: "the METIS library: multilevel k-way, smallest cut or volume, several balances",
    paper: "Karypis & Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, SISC 1998",
    memory: Memory::Graph,
    needs_file: false,
    balances: true,
    settings: &[
        Setting {
            name: "objective",
            default: "cut",
            about: "what to make small: edges between parts, or communication volume (much slower)",
            values: Values::Words(&["cut", "vol"]),
        },
        Setting {
            name: "imbalance",
            default: "0.03",
            about: "how far a part may exceed its equal share of whatever is balanced",
            values: Values::Number(0.001, 1000.0),
        },
        Setting {
            name: "method",
            default: "kway",
            about: "all parts at once, or by repeated bisection (cut only)",
            values: Values::Words(&["kway", "recursive"]),
        },
    ],
    build: || Box::new(Metis),
};

/// The METIS library.
#[derive(Debug, Clone, Copy)]
pub struct Metis;

/// METIS draws from a generator that the process has once.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Partitioner for Metis {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let nodes = small_nodes(dataset, request)?;
        let settings = Settings::new(request)?;
        if request.parts == 1 {
            return Ok(Assignment { parts: 1, part_of: vec![0; nodes] });
        }
        if nodes < FEWEST * request.parts as usize {
            return few(dataset, request, &settings, progress);
        }
        fits("edges", dataset.edges.len())?;
        let weights = node_weights(dataset, request, nodes, progress)?;
        let graph = Csr::new(Adjacency::read(dataset, request, progress)?, &settings)?;
        progress.begin("METIS", 0, "nodes");
        let parts = graph.partition(&weights, request, &settings)?;
        progress.tick(nodes as u64)?;
        Ok(Assignment { parts: request.parts, part_of: parts.into_iter().map(|part| part as u32).collect() })
    }
}

/// With fewer nodes per part METIS leaves parts empty, overfills others and complains on standard output.
const FEWEST: usize = 16;

/// The parts of a handful of nodes each: they grow node by node, and only nodes are balanced.
fn few(
    dataset: &mut Dataset,
    request: &Request,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Assignment> {
    let finest = Level::finest(Adjacency::read(dataset, request, progress)?);
    let packing = Packing {
        parts: request.parts,
        room: room(finest.nodes(), request.parts, f64::from(settings.tolerance) - 1.0),
        rounds: 10,
        key: Key::new(request.seed, Purpose::Partition),
    };
    let every_node: Vec<u32> = (0..finest.nodes() as u32).collect();
    packing.run(&finest, &every_node, finest.nodes(), progress)
}

/// Refuses numbers that METIS cannot count to.
fn fits(what: &str, count: u64) -> Result<()> {
    if count < i32::MAX as u64 {
        return Ok(());
    }
    Err(Error::usage(format!("METIS takes fewer than 2^31 - 1 {what}, found {count}"))
        .with_hint("the partitioner `spring` takes any number of edges in little memory"))
}

/// What the user set.
struct Settings {
    volume: bool,
    recursive: bool,
    tolerance: f32,
}

impl Settings {
    fn new(request: &Request) -> Result<Self> {
        let settings = Self {
            volume: request.is(&ENTRY, "objective", "vol")?,
            recursive: request.is(&ENTRY, "method", "recursive")?,
            tolerance: 1.0 + request.number(&ENTRY, "imbalance")? as f32,
        };
        if settings.volume && settings.recursive {
            return Err(Error::usage("METIS bisects by the cut only, found `objective` = `vol`")
                .with_hint("leave out `method`, or set it to `kway`"));
        }
        Ok(settings)
    }
}

/// The weights of every node, one column per constraint, row by row.
struct Weights {
    columns: usize,
    rows: Vec<i32>,
}

/// 1 for every node, and a column for each balance of the request that any node has a share in.
fn node_weights(
    dataset: &mut Dataset,
    request: &Request,
    nodes: usize,
    progress: &dyn Progress,
) -> Result<Weights> {
    let mut columns = vec![vec![1i32; nodes]];
    for &balance in &request.balance {
        let column = column(dataset, balance, nodes, progress)?;
        if column.iter().any(|&weight| weight != 0) {
            columns.push(column);
        }
    }
    fits("node weights", (nodes * columns.len()) as u64)?;
    let rows = (0..nodes).flat_map(|node| columns.iter().map(move |column| column[node])).collect();
    Ok(Weights { columns: columns.len(), rows })
}

/// How much of `balance` each node has.
fn column(
    dataset: &mut Dataset,
    balance: Balance,
    nodes: usize,
    progress: &dyn Progress,
) -> Result<Vec<i32>> {
    let mut column = vec![0i32; nodes];
    let split = match balance {
        Balance::Train => &dataset.splits.train,
        Balance::Valid => &dataset.splits.valid,
        Balance::Test => &dataset.splits.test,
        Balance::Edges => {
            each_edge(dataset, "counting in-edges", progress, |_, target| column[target as usize] += 1)?;
            return Ok(column);
        }
    };
    split.iter().for_each(|&node| column[node as usize] = 1);
    Ok(column)
}

/// The graph as METIS wants it.
struct Csr {
    offsets: Vec<i32>,
    neighbors: Vec<i32>,
    /// Empty when all edges weigh the same.
    weights: Vec<i32>,
}

impl Csr {
    fn new(graph: Adjacency, settings: &Settings) -> Result<Self> {
        fits("neighbours", graph.neighbors.len() as u64)?;
        let even = settings.volume || graph.weights.windows(2).all(|pair| pair[0] == pair[1]);
        let weights = if even { Vec::new() } else { graph.weights };
        fits("edges", weights.iter().map(|&weight| u64::from(weight)).sum())?;
        Ok(Self {
            offsets: graph.offsets.into_iter().map(|offset| offset as i32).collect(),
            neighbors: bytemuck::cast_vec(graph.neighbors),
            weights: bytemuck::cast_vec(weights),
        })
    }

    /// The part of every node.
    fn partition(&self, weights: &Weights, request: &Request, settings: &Settings) -> Result<Vec<i32>> {
        let parts = i32::try_from(request.parts).unwrap_or(i32::MAX);
        let tolerances = vec![settings.tolerance; weights.columns];
        let objective = if settings.volume { ObjType::Vol } else { ObjType::Cut };
        let seed = Key::new(request.seed, Purpose::Partition).bits(0) as i32 & i32::MAX;
        let mut graph = ::metis::Graph::new(weights.columns as i32, parts, &self.offsets, &self.neighbors)
            .map_err(|error| refused(&error))?
            .set_vwgt(&weights.rows)
            .set_ubvec(&tolerances)
            .set_option(objective)
            .set_option(Seed(seed));
        if !self.weights.is_empty() {
            graph = graph.set_adjwgt(&self.weights);
        }
        let mut part_of = vec![0i32; self.offsets.len() - 1];
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let result = match settings.recursive {
            true => graph.part_recursive(&mut part_of),
            false => graph.part_kway(&mut part_of),
        };
        drop(turn);
        result.map_err(|error| refused(&error))?;
        Ok(part_of)
    }
}

fn refused(error: &dyn std::error::Error) -> Error {
    Error::usage(format!("METIS gave up on this graph: {error}")).with_hint(
        "the partitioner `spring` needs far less memory, `louvain` is another that sees the whole graph",
    )
}

#[cfg(test)]
mod tests {
    use super::super::planted::{assign, communities, cuts_below_random, quality, separates_cliques, with};
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;

    #[test]
    fn cliques_are_separated() {
        separates_cliques("metis", 2, 20);
        separates_cliques("metis", 4, 20);
        separates_cliques("metis", 4, 12);
    }

    #[test]
    fn the_cut_is_far_below_that_of_random_parts_and_the_volume_objective_lowers_the_halo() {
        let mut dataset = communities();
        let mut figures = |request: Request| {
            let figures = cuts_below_random("metis", &mut dataset, &request, 0.5);
            assert!(figures.balance_nodes < 1.05, "{request:?}: {}", figures.balance_nodes);
            figures
        };
        figures(with(4, "method", "recursive"));
        let (cut, volume) = (figures(Request::new(4, 5)), figures(with(4, "objective", "vol")));
        assert_ne!(cut, volume);
        assert!(volume.replication_factor < 1.02 * cut.replication_factor);
    }

    #[test]
    fn what_is_asked_to_be_balanced_is() {
        let mut dataset = communities();
        dataset.splits.train = (0..200).collect();
        dataset.splits.valid = (1000..1300).step_by(3).collect();
        let mut request = Request { balance: vec![Balance::Train, Balance::Valid], ..Request::new(4, 5) };
        let figures = quality("metis", &mut dataset, &request);
        assert!(figures.balance_train < 1.1 && figures.balance_valid < 1.1, "{figures:?}");
        request.balance = vec![Balance::Edges];
        assert!(quality("metis", &mut dataset, &request).balance_edges < 1.05);
    }

    #[test]
    fn a_balance_that_no_node_has_a_share_in_is_left_out() {
        let balance = Balance::NAMED.iter().map(|named| named.1).collect();
        let request = Request { balance, ..Request::new(3, 5) };
        let sizes = assign("metis", &mut small::bare("bare", 90, &[]), &request).sizes();
        assert!(sizes.iter().all(|size| (29..=31).contains(size)), "{sizes:?}");
    }

    #[test]
    fn with_as_many_parts_as_nodes_each_node_has_its_own() {
        let sizes = assign("metis", &mut small::path(5), &Request::new(5, 5)).sizes();
        assert_eq!(sizes, [1, 1, 1, 1, 1]);
    }

    #[test]
    fn bisection_by_volume_and_more_edges_than_fit_32_bits_are_refused() {
        let mut request = with(2, "objective", "vol");
        request.settings.insert("method".into(), "recursive".into());
        let error = Metis.assign(&mut small::path(9), &request, &Silent).unwrap_err().to_string();
        assert!(error.contains("kway"), "{error}");
        let error = fits("edges", 3_000_000_000).unwrap_err().to_string();
        assert!(error.contains("3000000000") && error.contains("spring"), "{error}");
    }
}
