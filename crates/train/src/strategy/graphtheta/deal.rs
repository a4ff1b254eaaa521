//! Which training nodes are in which batch of an epoch? A function of the seed, the epoch and what a node is, so that all
//! ranks agree without a word and a batch does not depend on the parts.

use crate::Result;
use crate::index::Index;
use crate::run::BatchKind;
use crate::worker::Worker;
use archipelago_comm::Kind;
use archipelago_graph::random::{Key, Purpose};

/// Deals the training nodes of a rank out to batches.
pub(super) struct Dealer {
    batches: usize,
    clusters: Option<Clusters>,
}

/// The clusters that nodes belong to.
struct Clusters {
    /// That of every row of the index.
    of_rows: Vec<u32>,
    /// How many there are.
    count: usize,
    /// How many make up a batch.
    in_batch: usize,
    /// Hops that a batch sees around them.
    hops: usize,
}

/// The batches of an epoch on one rank.
pub(super) struct Deal {
    /// Targets of each batch, rows of the part.
    rows: Vec<Vec<u32>>,
    /// How many there are on all ranks.
    targets: Vec<u64>,
    /// The batch of each cluster.
    of_clusters: Vec<u32>,
}

impl Dealer {
    /// Agrees with the other ranks on what batches are made of.
    pub fn agree(worker: &Worker) -> Result<Self> {
        let train = &worker.config.train;
        if train.batch != BatchKind::Cluster {
            let size = train.batch_size.saturating_mul(worker.comm.size()) as u64;
            return Ok(Self { batches: worker.all_targets.div_ceil(size) as usize, clusters: None });
        }
        let of_rows = match &worker.index {
            Some(index) => index.spread(&worker.comm, worker.clusters.clone())?,
            None => Vec::new(),
        };
        let clusters = Clusters {
            of_rows,
            count: train.cluster_count,
            in_batch: train.clusters,
            hops: train.boundary_hops,
        };
        Ok(Self { batches: clusters.count.div_ceil(clusters.in_batch), clusters: Some(clusters) })
    }

    /// How many batches an epoch has, those without targets included.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// Bytes of memory that it holds.
    pub fn bytes(&self) -> usize {
        self.clusters.as_ref().map_or(0, |clusters| 4 * clusters.of_rows.len())
    }

    /// The batches of `epoch`.
    pub fn deal(&self, worker: &Worker, epoch: u64) -> Result<Deal> {
        let seed = worker.config.train.seed;
        let of_clusters =
            self.clusters.as_ref().map_or_else(Vec::new, |clusters| clusters.dealt(seed, epoch));
        let draws = Key::new(seed, Purpose::Shuffle).with(epoch);
        let mut rows = vec![Vec::new(); self.batches];
        for &row in &worker.labelled {
            let batch = match &self.clusters {
                Some(clusters) => of_clusters[clusters.of_rows[row as usize] as usize] as usize,
                None => draws.below(worker.originals[row as usize], self.batches as u64) as usize,
            };
            rows[batch].push(row);
        }
        let mut targets: Vec<u64> = rows.iter().map(|rows| rows.len() as u64).collect();
        worker.comm.all_reduce_sum_u64(&mut targets, Kind::Control)?;
        Ok(Deal { rows, targets, of_clusters })
    }

    /// Which rows of the index a batch sees, and their degrees among themselves; none where it sees all. All ranks ask
    /// together.
    pub fn inside(
        &self,
        worker: &Worker,
        index: &Index,
        deal: &Deal,
        batch: usize,
    ) -> Result<Option<(Vec<bool>, Vec<f32>)>> {
        let Some(clusters) = &self.clusters else { return Ok(None) };
        let of_batch = |&cluster: &u32| deal.of_clusters[cluster as usize] as usize == batch;
        let mut inside: Vec<bool> = clusters.of_rows.iter().map(of_batch).collect();
        for _ in 0..clusters.hops {
            index.widen(&worker.comm, &mut inside)?;
        }
        let degrees = index.degrees_within(&worker.comm, &inside)?;
        Ok(Some((inside, degrees)))
    }
}

impl Clusters {
    /// The batch of each cluster in `epoch`.
    fn dealt(&self, seed: u64, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.count as u32).collect();
        Key::new(seed, Purpose::Cluster).with(epoch).shuffle(&mut order);
        let mut batches = vec![0; self.count];
        for (batch, clusters) in order.chunks(self.in_batch).enumerate() {
            clusters.iter().for_each(|&cluster| batches[cluster as usize] = batch as u32);
        }
        batches
    }
}

impl Deal {
    /// The batches that have targets, and how many they have on all ranks.
    pub fn batches(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let targets = self.targets.clone().into_iter().enumerate();
        targets.filter(|&(_, targets)| targets > 0)
    }

    /// Targets of a batch on this rank.
    pub fn rows(&self, batch: usize) -> &[u32] {
        &self.rows[batch]
    }
}
