//! 2PS-L: cluster nodes in one pass, then place edges with two candidates each, whatever the number of parts.
//!
//! Mayer, Orujzade, Jacobsen, "Out-of-Core Edge Partitioning at Linear Run-Time", ICDE 2022.
//! Phase 1 (`Clusters`) clusters nodes: every node starts alone, a cluster's volume is the sum of its degrees, and an
//! edge between two clusters moves the end whose cluster is smaller without it into the other one, as long as no
//! volume exceeds `volume * 2E / P` (2E / P is the volume of an average part). Clusters go to parts in descending
//! volume, each to the part with the least. With `volume = 1` a single cluster may fill a part, and much of what it
//! attracts then meets the limit of phase 2: on rmat and on planted communities a bound of 0.05 to 0.1 leaves 5 to 20 %
//! fewer copies, hence the default.
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
//! way. Passes: degrees, `passes` of clustering, 2 of placing, each O(1) per edge. Memory: 40 bytes per node while clusters
//! are given parts, 16 bytes and P bits per node before and after.

use super::by_edges::place_each;
use super::loads::Loads;
use super::pack::schedule;
use super::passes::{DEGREES, Degrees, Passing, each_chunk, prefetch};
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
    default: "0.1",
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
        let seats = Clusters::read(dataset, request, progress)?.seats(request.parts);
        let mut replicas = Replicas::new(seats.len(), request.parts);
        let mut first = Loads::new(request.parts);
        each_chunk(dataset, "placing edges within clusters", progress, |chunk| {
            for edge in Passing::all(chunk) {
                edge.later(Passing::AHEAD).iter().for_each(|&node| prefetch(&seats, node as usize));
                let ends = edge.ends();
                if let Some(part) = limit.within(ends.map(|node| seats[node as usize]), ends, &first) {
                    first.add(part);
                    ends.iter().for_each(|&node| _ = replicas.add(node as usize, part));
                }
            }
            Ok(())
        })?;
        let (mut loads, mut again) = (first, Loads::new(request.parts));
        place_each(dataset, progress, sink, |edge| {
            edge.later(Passing::AHEAD).iter().for_each(|&node| prefetch(&seats, node as usize));
            replicas.prefetch(edge.later(Passing::AHEAD));
            let ends = edge.ends();
            let pair = ends.map(|node| seats[node as usize]);
            if let Some(part) = limit.within(pair, ends, &again) {
                again.add(part);
                return part;
            }
            let part = limit.admit(better(pair, ends, &replicas), pair, ends, &loads);
            loads.add(part);
            ends.iter().for_each(|&node| _ = replicas.add(node as usize, part));
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

    /// The part of an edge whose ends share one, if they do.
    #[inline]
    fn within(&self, pair: [Seat; 2], ends: [u32; 2], loads: &Loads) -> Option<u32> {
        (pair[0].home == pair[1].home).then(|| self.admit(pair[0].home, pair, ends, loads))
    }

    /// `part` if it has room for the edge between `ends`, else one that has.
    #[inline]
    fn admit(&self, part: u32, pair: [Seat; 2], ends: [u32; 2], loads: &Loads) -> u32 {
        if loads.of(part) < self.edges { part } else { self.elsewhere(pair, ends, loads) }
    }

    #[cold]
    fn elsewhere(&self, pair: [Seat; 2], ends: [u32; 2], loads: &Loads) -> u32 {
        let hub = (pair[0].degree, ends[0]).max((pair[1].degree, ends[1])).1;
        let part = self.key.below(u64::from(hub), self.parts) as u32;
        if loads.of(part) < self.edges { part } else { loads.least() }
    }
}

/// Clusters of nodes, each called after the node that it began with.
struct Clusters {
    members: Vec<Member>,
    volumes: Vec<u64>,
    most: u64,
}

/// What phase 1 knows of a node; together, as they are read together.
#[derive(Clone, Copy)]
struct Member {
    cluster: u32,
    degree: u32,
}

/// What phase 2 knows of a node: the part and the volume of its cluster, and its degree.
#[derive(Clone, Copy)]
struct Seat {
    home: u32,
    degree: u32,
    volume: u64,
}

impl Clusters {
    /// Phase 1.
    fn read(dataset: &mut Dataset, request: &Request, progress: &dyn Progress) -> Result<Self> {
        let average = 2.0 * dataset.edges.len() as f64 / f64::from(request.parts);
        let most = (request.number(&ENTRY, VOLUME.name)? * average) as u64;
        let degrees = Degrees::new(dataset, request, &ENTRY, progress)?;
        let mut online = degrees.online();
        let nodes = 0..dataset.nodes as u32;
        let members =
            nodes.map(|node| Member { cluster: node, degree: degrees.of(node) }).collect::<Vec<_>>();
        let volumes = members.iter().map(|member| u64::from(member.degree)).collect();
        let mut clusters = Self { members, volumes, most };
        for _ in 0..request.count(&ENTRY, PASSES.name)? {
            each_chunk(dataset, "clustering", progress, |chunk| {
                Passing::all(chunk).for_each(|edge| clusters.meet(edge, online));
                Ok(())
            })?;
            online = false;
        }
        Ok(clusters)
    }

    /// The edge may unite its ends; it is counted if degrees are to be.
    #[inline]
    fn meet(&mut self, edge: Passing, online: bool) {
        self.prefetch(edge);
        let [u, v] = edge.ends();
        if online {
            self.count(u);
            self.count(v);
        }
        let [a, b] = [u, v].map(|node| self.members[node as usize]);
        let [volume_a, volume_b] = [a, b].map(|member| self.volumes[member.cluster as usize]);
        if a.cluster == b.cluster || volume_a.max(volume_b) > self.most {
            return;
        }
        if (volume_a - u64::from(a.degree), u) < (volume_b - u64::from(b.degree), v) {
            self.change(u, b.cluster);
        } else {
            self.change(v, a.cluster);
        }
    }

    /// Has what later edges need on its way from memory: members, and from those the volumes of their clusters.
    #[inline]
    fn prefetch(&self, edge: Passing) {
        for node in edge.later(2 * Passing::AHEAD) {
            prefetch(&self.members, node as usize);
        }
        for node in edge.later(Passing::AHEAD) {
            prefetch(&self.volumes, self.members[node as usize].cluster as usize);
        }
    }

    fn count(&mut self, node: u32) {
        let member = &mut self.members[node as usize];
        member.degree = member.degree.saturating_add(1);
        self.volumes[member.cluster as usize] += 1;
    }

    /// Moves `node` to another cluster, if that has room.
    #[inline]
    fn change(&mut self, node: u32, to: u32) {
        let member = &mut self.members[node as usize];
        let degree = u64::from(member.degree);
        if self.volumes[to as usize] + degree <= self.most {
            self.volumes[member.cluster as usize] -= degree;
            self.volumes[to as usize] += degree;
            member.cluster = to;
        }
    }

    /// Every node's cluster as phase 2 sees it.
    fn seats(self, parts: u32) -> Vec<Seat> {
        let part_of_cluster = schedule(&self.volumes, parts);
        let seat = |member: &Member| Seat {
            home: part_of_cluster[member.cluster as usize],
            degree: member.degree,
            volume: self.volumes[member.cluster as usize],
        };
        self.members.iter().map(seat).collect()
    }
}

/// The home with the higher score for the edge between `ends`.
#[inline]
fn better(pair: [Seat; 2], ends: [u32; 2], replicas: &Replicas) -> u32 {
    let degrees = f64::from(pair[0].degree) + f64::from(pair[1].degree);
    let volumes = (pair[0].volume + pair[1].volume) as f64;
    let worth = pair.map(|seat| 2.0 - f64::from(seat.degree) / degrees);
    let [first, second] = pair.map(|seat| {
        let copy = |end: usize| f64::from(replicas.has(ends[end] as usize, seat.home)) * worth[end];
        copy(0) + copy(1) + seat.volume as f64 / volumes
    });
    let homes = pair.map(|seat| seat.home);
    if first > second || (first == second && homes[0] < homes[1]) { homes[0] } else { homes[1] }
}
