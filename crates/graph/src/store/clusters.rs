//! Which nodes of a stored graph belong together?
//!
//! A batch that is made of whole clusters keeps most neighbours of its nodes (GraphTheta, Cluster-GCN). Clusters are
//! found by the partitioners that see the whole graph, in the graph, whatever parts it is stored in: they are a function
//! of graph, method, count and seed. This holds because those methods read edges into neighbour lists that they sort
//! before anything looks at them; streaming methods, whose answer depends on the order of edges, are not offered.
//!
//! Every rank may compute them for itself, but METIS draws from the C library: where hosts differ, let one rank compute
//! them for all.
//!
//! Memory: 8 bytes per directed edge while lists are filled, and what the method needs in the end (`metis` several times
//! the graph, `louvain` twice, `label-propagation` once; 50 to 60 bytes per node besides). Nothing is kept but 4 bytes
//! per node of the answer.

use super::Store;
use super::edges::StoreEdges;
use crate::dataset::{Dataset, EdgeColumns, Features, Labels, Splits};
use crate::partition::{self, Request};
use crate::progress::Progress;
use crate::{Error, Result};

/// The methods that find clusters, in the order in which they are listed to users.
pub const METHODS: &[&str] = &[
    #[cfg(feature = "metis")]
    "metis",
    "louvain",
    "label-propagation",
];

/// The cluster of every node of `store` by original id, each below `count`; some clusters may be empty.
///
/// The answer depends neither on how many parts the store has nor on which node is in which.
pub fn clusters(
    store: &Store,
    method: &str,
    count: u32,
    seed: u64,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    if !METHODS.contains(&method) {
        let (kind, name) = ("method of clustering", method.to_owned());
        return Err(Error::Unknown { kind, name, known: METHODS.to_vec() });
    }
    if count == 0 {
        return Err(Error::usage("expected at least 1 cluster, found 0"));
    }
    let entry = partition::find(method)?;
    let mut graph = bare(store)?;
    let found = (entry.build)().assign(&mut graph, &Request::new(count, seed), progress);
    // Methods are used to being asked for parts, and would recommend partitioners.
    found.map(|assignment| assignment.part_of).map_err(|error| {
        error.with_hint(format!("methods of clustering: {}; or ask for fewer clusters", METHODS.join(", ")))
    })
}

/// The nodes and edges of `store`, and nothing else.
fn bare(store: &Store) -> Result<Dataset> {
    let manifest = store.manifest();
    Ok(Dataset {
        name: manifest.dataset.clone(),
        nodes: manifest.nodes,
        undirected: manifest.undirected,
        edges: Box::new(StoreEdges::open(store)?),
        edge_columns: EdgeColumns::default(),
        features: Features::None,
        labels: Labels::None,
        splits: Splits::default(),
        names: None,
        class_names: None,
        notes: Vec::new(),
    })
}
