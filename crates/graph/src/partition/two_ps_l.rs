//! 2PS-L: cluster nodes in one pass, then place edges with two candidates each, whatever the number of parts.
//!
//! Mayer, Orujzade, Jacobsen, "Out-of-Core Edge Partitioning at Linear Run-Time", ICDE 2022.
//! Phase 1 ([`Clusters`]) clusters nodes: every node starts alone, a cluster's volume is the sum of its degrees, and an
//! edge between two clusters moves the end whose cluster is smaller without it into the other one, as long as no
//! volume exceeds `volume * 2E / P` (2E / P is the volume of an average part). Clusters go to parts in descending
//! volume, each to the part with the least.
//! Phase 2 places edges, at most `alpha * E / P` per part (or E / P rounded up, if that is more):
//! 1. first those whose ends' clusters share a part, to that part;
//! 2. then the others, to the part of either cluster, whichever has the higher
//!    `s(p) = g(u, p) + g(v, p) + sc(u, p) + sc(v, p)`, where `g(v, p) = 2 - d(v) / (d(u) + d(v))` if `v` has a copy in
//!    `p`, else 0, and `sc(v, p) = vol(c(v)) / (vol(c(u)) + vol(c(v)))` if the cluster of `v` lies in `p`, else 0
//!    (ties: the lower part);
//! 3. an edge whose part is full goes where its end with the higher degree is hashed to, and if that part is full too,
//!    to the least loaded one.
//!
//! Here edges come out in the order of the stream, so the choices of 1 are made twice: the second pass repeats them
//! from empty loads while it makes those of 2. With `degrees = online` the first clustering pass counts degrees on the
//! way. Passes: degrees, `passes` of clustering, 2 of placing, each O(1) per edge. Memory: 20 bytes and P bits per node.

use super::by_edges::place_each;
use super::loads::Loads;
use super::pack::schedule;
use super::passes::{DEGREES, Degrees, each_edge};
use super::replicas::Replicas;
use super::settings::{Setting, Values};
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

const ALPHA: Setting = Setting {
    name: "alpha",
    default: "1.05",
    about: "the most edges of a part, as a multiple of the average",
    values: Values::Number(1.0, 1e6),
};

const VOLUME: Setting = Setting {
    name: "volume",
    default: "1",
    about: "the largest volume of a cluster, as a multiple of that of an average part",
    values: Values::Number(0.0, 1e6),
};

const PASSES: Setting = Setting {
    name: "passes",
    default: "1",
    about: "how often clustering passes over the edges",
    values: Values::Count(1, 1000),
};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "2ps-l",
    summary: "clusters nodes, then places edges by cluster under a hard limit, in time linear in edges",
    paper: "Mayer et al., Out-of-Core Edge Partitioning at Linear Run-Time, ICDE 2022",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[ALPHA, VOLUME, PASSES, DEGREES],
    build: || Box::new(ByEdges(TwoPsL)),
};

/// Two-phase streaming in linear time.
#[derive(Debug, Clone, Copy)]
pub struct TwoPsL;

impl EdgePartitioner for TwoPsL {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        let limit = Limit::new(dataset, request)?;
        let clusters = Clusters::read(dataset, request, progress)?;
        let homes = clusters.homes(request.parts);
        let mut replicas = Replicas::new(homes.len(), request.parts);
        let mut first = Loads::new(request.parts);
        let at_home = |loads: &Loads, u: u32, v: u32| {
            let home = homes[u as usize];
            (home == homes[v as usize]).then(|| limit.admit(home, loads, u, v, &clusters.degrees))
        };
        each_edge(dataset, "placing edges within clusters", progress, |u, v| {
            if let Some(part) = at_home(&first, u, v) {
                first.add(part);
                replicas.add(u as usize, part);
                replicas.add(v as usize, part);
            }
        })?;
        let (mut loads, mut again) = (first, Loads::new(request.parts));
        place_each(dataset, progress, sink, |u, v| {
            if let Some(part) = at_home(&again, u, v) {
                again.add(part);
                return part;
            }
            let part = clusters.better([homes[u as usize], homes[v as usize]], u, v, &replicas);
            let part = limit.admit(part, &loads, u, v, &clusters.degrees);
            loads.add(part);
            replicas.add(u as usize, part);
            replicas.add(v as usize, part);
            part
        })
    }
}

/// How many edges a part may have, and where the others go.
struct Limit {
    edges: u64,
    parts: u64,
    key: Key,
}

impl Limit {
    fn new(dataset: &Dataset, request: &Request) -> Result<Self> {
        let (edges, parts) = (dataset.edges.len(), u64::from(request.parts.max(1)));
        let share = request.number(&ENTRY, ALPHA.name)? * edges as f64 / parts as f64;
        let key = Key::new(request.seed, Purpose::Partition);
        Ok(Self { edges: edges.div_ceil(parts).max(share as u64), parts, key })
    }

    /// `part` if it has room for the edge `(u, v)`, else one that has.
    #[inline]
    fn admit(&self, part: u32, loads: &Loads, u: u32, v: u32, degrees: &Degrees) -> u32 {
        if loads.of(part) < self.edges { part } else { self.elsewhere(loads, u, v, degrees) }
    }

    #[cold]
    fn elsewhere(&self, loads: &Loads, u: u32, v: u32, degrees: &Degrees) -> u32 {
        let hub = (degrees.of(u), u).max((degrees.of(v), v)).1;
        let part = self.key.below(u64::from(hub), self.parts) as u32;
        if loads.of(part) < self.edges { part } else { loads.least() }
    }
}

/// Clusters of nodes, each called after the node that it began with.
struct Clusters {
    of: Vec<u32>,
    volumes: Vec<u64>,
    degrees: Degrees,
    most: u64,
}

impl Clusters {
    /// Phase 1.
    fn read(dataset: &mut Dataset, request: &Request, progress: &dyn Progress) -> Result<Self> {
        let degrees = Degrees::new(dataset, request, &ENTRY, progress)?;
        let nodes = dataset.nodes as u32;
        let average = 2.0 * dataset.edges.len() as f64 / f64::from(request.parts);
        let most = (request.number(&ENTRY, VOLUME.name)? * average) as u64;
        let volumes = (0..nodes).map(|node| u64::from(degrees.of(node))).collect();
        let mut clusters = Self { of: (0..nodes).collect(), volumes, degrees, most };
        for _ in 0..request.count(&ENTRY, PASSES.name)? {
            each_edge(dataset, "clustering", progress, |u, v| clusters.meet(u, v))?;
            clusters.degrees.settle();
        }
        Ok(clusters)
    }

    /// The edge `(u, v)` may unite its ends.
    #[inline]
    fn meet(&mut self, u: u32, v: u32) {
        let [a, b] = [u, v].map(|node| self.of[node as usize]);
        if self.degrees.online() {
            self.degrees.meet(u, v);
            self.volumes[a as usize] += 1;
            self.volumes[b as usize] += 1;
        }
        let [volume_a, volume_b] = [a, b].map(|cluster| self.volumes[cluster as usize]);
        if a == b || volume_a.max(volume_b) > self.most {
            return;
        }
        let [degree_u, degree_v] = [u, v].map(|node| u64::from(self.degrees.of(node)));
        if (volume_a - degree_u, u) < (volume_b - degree_v, v) {
            self.move_node(u, degree_u, a, b);
        } else {
            self.move_node(v, degree_v, b, a);
        }
    }

    #[inline]
    fn move_node(&mut self, node: u32, degree: u64, from: u32, to: u32) {
        if self.volumes[to as usize] + degree <= self.most {
            self.volumes[from as usize] -= degree;
            self.volumes[to as usize] += degree;
            self.of[node as usize] = to;
        }
    }

    /// The part of every node's cluster.
    fn homes(&self, parts: u32) -> Vec<u32> {
        let part_of_cluster = schedule(&self.volumes, parts);
        self.of.iter().map(|&cluster| part_of_cluster[cluster as usize]).collect()
    }

    /// The part with the higher score for the edge `(u, v)`; `homes` are those of its ends.
    #[inline]
    fn better(&self, homes: [u32; 2], u: u32, v: u32, replicas: &Replicas) -> u32 {
        let [degree_u, degree_v] = [u, v].map(|node| f64::from(self.degrees.of(node)));
        let [volume_u, volume_v] = [u, v].map(|node| self.volumes[self.of[node as usize] as usize] as f64);
        let copies = |part: u32| {
            f64::from(replicas.has(u as usize, part)) * (2.0 - degree_u / (degree_u + degree_v))
                + f64::from(replicas.has(v as usize, part)) * (2.0 - degree_v / (degree_u + degree_v))
        };
        let at_u = copies(homes[0]) + volume_u / (volume_u + volume_v);
        let at_v = copies(homes[1]) + volume_v / (volume_u + volume_v);
        if at_u > at_v || (at_u == at_v && homes[0] < homes[1]) { homes[0] } else { homes[1] }
    }
}
