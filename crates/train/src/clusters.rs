//! The clusters that batches are made of, found once by the first rank for all.

use crate::Result;
use crate::run::{BatchKind, RunConfig};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::progress::Silent;
use archipelago_graph::store::clusters;
use archipelago_graph::{Part, Store};

/// The cluster of each owned row of `part`; none where batches are not made of clusters. The first rank reads all parts
/// of the `store` for it.
pub fn agree(store: &Store, part: &Part, comm: &Comm, config: &RunConfig) -> Result<Vec<u32>> {
    let train = &config.train;
    if train.batch != BatchKind::Cluster {
        return Ok(Vec::new());
    }
    let find = || clusters(store, &train.cluster_method, train.cluster_count as u32, train.seed, &Silent);
    let found: Option<Vec<u32>> = comm.led_by_first(|| find().map_err(crate::Error::from))?;
    let mut asked = vec![Vec::new(); comm.size()];
    asked[0] = part.original().to_vec();
    let asked = comm.all_to_all::<u64>(asked, Kind::Control)?;
    let of = |node: u64| found.as_ref().map_or(0, |found| found[node as usize]);
    let told = asked.into_iter().map(|nodes| nodes.into_iter().map(of).collect()).collect();
    Ok(comm.all_to_all::<u32>(told, Kind::Control)?.swap_remove(0))
}
