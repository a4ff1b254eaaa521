//! SPRING: streaming clusters, merged along their richest neighbours, packed into parts.
//!
//! SDT-GNN (Huang et al.), Algorithm 1. One pass counts degrees, one pass clusters: an edge whose ends lie in
//! different clusters, both of volume at most `tau * E / P` (the volume of a cluster is the sum of its nodes'
//! degrees), moves the end in the smaller cluster to the larger (Hollocou et al. 2017). The same pass remembers each
//! node's richest neighbour, the one of highest degree. Then clusters, smallest first, merge into the cluster of the
//! richest neighbour of their representative (the node whose richest neighbour is the richest) while the union has
//! at most `(1 + slack) * V / P` nodes, and are packed into parts, largest first. Nodes without edges go to the smallest
//! parts.
//!
//! Where we differ: what the order of a stream spoils, later passes mend. With `passes` above 0 the clusters stay small
//! and are only the beginning of `semi_external` partitioning, which comes back to merging where there are too many of
//! them; 0 is the paper's method. Memory: 16 bytes per node, 28 for each of the clusters, and what restreaming takes.

use super::neighbors::{Neighbors, Sorter};
use super::pack::pack;
use super::passes::{DEGREES, each_chunk, prefetch, small_nodes};
use super::restream;
use super::semi_external::{self, Labels, Plan};
use super::settings::{Setting, Values};
use super::{Assignment, Entry, Memory, Partitioner, Request};
use crate::Result;
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;
use crate::random::{Key, Purpose};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "spring",
    summary: "streaming clusters merged along richest neighbours, then restreamed: good cuts in O(nodes) memory",
    paper: "Huang et al., SDT-GNN: Streaming-based Distributed Training Framework for Graph Neural Networks",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[
        Setting {
            name: "tau",
            default: "0.1",
            about: "largest volume of a cluster that still grows, in shares of edges / parts; with passes at most 32 mean nodes",
            values: Values::Number(0.0, f64::INFINITY),
        },
        restream::SLACK,
        restream::PASSES,
        DEGREES,
    ],
    build: || Box::new(Spring),
};

/// Streaming clustering with richest-neighbour merging.
#[derive(Debug, Clone, Copy)]
pub struct Spring;

impl Partitioner for Spring {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let nodes = small_nodes(dataset, request)?;
        let slack = request.number(&ENTRY, restream::SLACK.name)?;
        let most = ((1.0 + slack) * nodes as f64 / f64::from(request.parts)) as u32;
        let passes = request.count(&ENTRY, restream::PASSES.name)?;
        let mut clusters = Clusters::new(dataset, request)?;
        if clusters.remember {
            clusters.stream(dataset, progress)?;
            let (labels, merging) = clusters.merging();
            return Ok(merging.merge(most).assign(labels, request.parts));
        }
        let sorter = clusters.stream_and_sort(dataset, request, progress)?;
        let labels = clusters.labels();
        let neighbors = sorter.finish(progress)?;
        let key = Key::new(request.seed, Purpose::Partition);
        let plan = Plan { parts: request.parts, slack, passes, key };
        let merged = |labels| {
            Ok(Merging::of(&labels, &neighbors, progress)?.merge(most).assign(labels, request.parts))
        };
        semi_external::partition(&neighbors, labels, &plan, merged, progress)
    }
}

/// Nodes of mean degree whose volume ends the growth of a cluster when passes follow: they can join clusters, but
/// hardly part them.
const FEW: f64 = 32.0;

/// Edges ahead of the current one whose nodes are requested from memory.
const AHEAD: usize = 16;

/// No cluster, no node.
const NONE: u32 = u32::MAX;

/// What the clustering pass knows of a node; all of it in a quarter of a cache line.
#[derive(Clone, Copy)]
struct Node {
    degree: u32,
    cluster: u32,
    richest: u32,
    /// Sum of the degrees in the cluster that this node founded. One that has reached 2^32 - 1 may be larger: it is
    /// above `tau`, and who is above it no longer changes.
    volume: u32,
}

/// Clusters of nodes, each named by the node that founded it.
struct Clusters {
    nodes: Vec<Node>,
    tau: u32,
    /// Whether degrees are those seen so far.
    online: bool,
    /// Whether the stream is all that merging will know, and richest neighbours are to be remembered on the way.
    remember: bool,
}

impl Clusters {
    fn new(dataset: &Dataset, request: &Request) -> Result<Self> {
        let count = small_nodes(dataset, request)?;
        let edges = dataset.edges.len() as f64;
        let mut tau = request.number(&ENTRY, "tau")? * edges / f64::from(request.parts);
        let passes = request.count(&ENTRY, restream::PASSES.name)?;
        if passes > 0 {
            tau = tau.min(FEW * 2.0 * edges / count.max(1) as f64);
        }
        let tau = tau.min(f64::from(u32::MAX - 1)) as u32;
        let unseen = Node { degree: 0, cluster: NONE, richest: NONE, volume: 0 };
        let online = request.is(&ENTRY, DEGREES.name, "online")?;
        let remember = passes == 0 || request.parts == 1;
        Ok(Self { nodes: vec![unseen; count], tau, online, remember })
    }

    /// The degree pass and the clustering pass.
    fn stream(&mut self, dataset: &mut Dataset, progress: &dyn Progress) -> Result<()> {
        if self.online {
            return self.cluster::<true>(dataset, progress, |_| Ok(()));
        }
        self.count_degrees(dataset, progress)?;
        self.cluster::<false>(dataset, progress, |_| Ok(()))
    }

    /// [`Self::stream`], after which all edges are in their ranges too. That takes known degrees: where they are counted
    /// first it goes with the clustering, else it takes a pass of its own.
    fn stream_and_sort(
        &mut self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Sorter> {
        if self.online {
            self.cluster::<true>(dataset, progress, |_| Ok(()))?;
            let mut sorter = Sorter::new(dataset, request, self.degrees())?;
            each_chunk(dataset, "sorting by node", progress, |chunk| sorter.take(chunk))?;
            return Ok(sorter);
        }
        self.count_degrees(dataset, progress)?;
        let mut sorter = Sorter::new(dataset, request, self.degrees())?;
        self.cluster::<false>(dataset, progress, |chunk| sorter.take(chunk))?;
        Ok(sorter)
    }

    fn degrees(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.iter().map(|node| node.degree)
    }

    fn count_degrees(&mut self, dataset: &mut Dataset, progress: &dyn Progress) -> Result<()> {
        let nodes = &mut self.nodes;
        each_chunk(dataset, "counting degrees", progress, |chunk| {
            for ids in [&chunk.sources, &chunk.targets] {
                for (place, &id) in ids.iter().enumerate() {
                    if let Some(&next) = ids.get(place + AHEAD) {
                        prefetch(nodes, next as usize);
                    }
                    let degree = &mut nodes[id as usize].degree;
                    *degree = degree.saturating_add(1);
                }
            }
            Ok(())
        })
    }

    fn cluster<const ONLINE: bool>(
        &mut self,
        dataset: &mut Dataset,
        progress: &dyn Progress,
        mut also: impl FnMut(&EdgeChunk) -> Result<()>,
    ) -> Result<()> {
        each_chunk(dataset, "clustering", progress, |chunk| {
            for (place, (&source, &target)) in chunk.sources.iter().zip(&chunk.targets).enumerate() {
                self.request(chunk, place);
                self.meet::<ONLINE>(source as u32, target as u32);
            }
            also(chunk)
        })
    }

    /// Asks for what later edges will touch: first their nodes, then, when these are there, who they point to.
    #[inline]
    fn request(&self, chunk: &EdgeChunk, place: usize) {
        for ids in [&chunk.sources, &chunk.targets] {
            if let Some(&id) = ids.get(place + 2 * AHEAD) {
                prefetch(&self.nodes, id as usize);
            }
            if let Some(&id) = ids.get(place + AHEAD) {
                let node = self.nodes[id as usize];
                prefetch(&self.nodes, node.cluster as usize);
                if self.remember {
                    prefetch(&self.nodes, node.richest as usize);
                }
            }
        }
    }

    /// Lines 3 to 17 of Algorithm 1 for one edge.
    #[inline]
    fn meet<const ONLINE: bool>(&mut self, source: u32, target: u32) {
        let (u, v) = (self.seen::<ONLINE>(source), self.seen::<ONLINE>(target));
        if source == target {
            return;
        }
        if u.cluster != v.cluster {
            let (from, to) = (self.nodes[u.cluster as usize].volume, self.nodes[v.cluster as usize].volume);
            if from.max(to) <= self.tau {
                let (id, mover, home) =
                    if from <= to { (source, u, v.cluster) } else { (target, v, u.cluster) };
                self.nodes[mover.cluster as usize].volume -= mover.degree;
                let grown = &mut self.nodes[home as usize].volume;
                *grown = grown.saturating_add(mover.degree);
                self.nodes[id as usize].cluster = home;
            }
        }
        if self.remember {
            self.enrich(source, target, v.degree);
            self.enrich(target, source, u.degree);
        }
    }

    /// The node, in a cluster of its own if it was in none.
    #[inline]
    fn seen<const ONLINE: bool>(&mut self, id: u32) -> Node {
        let node = &mut self.nodes[id as usize];
        if ONLINE {
            node.degree = node.degree.saturating_add(1);
        }
        if node.cluster == NONE {
            (node.cluster, node.volume) = (id, node.degree);
        } else if ONLINE {
            let cluster = node.cluster as usize;
            self.nodes[cluster].volume = self.nodes[cluster].volume.saturating_add(1);
        }
        self.nodes[id as usize]
    }

    #[inline]
    fn enrich(&mut self, node: u32, neighbor: u32, wealth: u32) {
        let richest = self.nodes[node as usize].richest;
        if (wealth, Reverse(neighbor)) > (self.degree(richest), Reverse(richest)) {
            self.nodes[node as usize].richest = neighbor;
        }
    }

    /// The degree of `node`, which may be no one.
    #[inline]
    fn degree(&self, node: u32) -> u32 {
        self.nodes.get(node as usize).map_or(0, |node| node.degree)
    }

    /// The clusters, and what merging needs to know of them.
    fn merging(mut self) -> (Labels, Merging) {
        let count = self.number();
        let mut merging = Merging::new(count);
        for (id, node) in (0..).zip(&self.nodes) {
            let wanted = self.nodes.get(node.richest as usize).map_or(NONE, |richest| richest.cluster);
            let wealth = self.degree(node.richest);
            merging.count(node.cluster, Representative { wealth, node: Reverse(id), wanted });
        }
        (self.numbered(count), merging)
    }

    /// The clusters.
    fn labels(mut self) -> Labels {
        let count = self.number();
        self.numbered(count)
    }

    /// The clusters, which have numbers below `count`; they are written over the nodes, which nobody needs any more.
    fn numbered(self, count: usize) -> Labels {
        let mut of: Vec<u32> = self.nodes.into_iter().map(|node| node.cluster).collect();
        of.shrink_to_fit();
        Labels { of, count }
    }

    /// Numbers clusters from 0 in the order of their founders; how many there are. A node without edges is a cluster of
    /// its own. Numbers take the place of volumes: an array for them would be what this method needs most memory for.
    fn number(&mut self) -> usize {
        for id in 0..self.nodes.len() {
            let cluster = &mut self.nodes[id].cluster;
            *cluster = if *cluster == NONE { id as u32 } else { *cluster };
            let founder = *cluster as usize;
            self.nodes[founder].volume = NONE;
        }
        let mut count = 0;
        for founder in self.nodes.iter_mut().filter(|node| node.volume == NONE) {
            founder.volume = count;
            count += 1;
        }
        for id in 0..self.nodes.len() {
            self.nodes[id].cluster = self.nodes[self.nodes[id].cluster as usize].volume;
        }
        count as usize
    }
}

/// The node of a cluster whose richest neighbour is the richest; of several, the lowest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Representative {
    /// Degree of the richest neighbour.
    wealth: u32,
    node: Reverse<u32>,
    /// The cluster of the richest neighbour before any was merged, or [`NONE`].
    wanted: u32,
}

impl Default for Representative {
    fn default() -> Self {
        Self { wealth: 0, node: Reverse(NONE), wanted: NONE }
    }
}

/// Clusters that are being merged: a forest over them.
struct Merging {
    parents: Vec<u32>,
    sizes: Vec<u32>,
    representatives: Vec<Representative>,
}

impl Merging {
    /// `count` clusters that have no nodes yet.
    fn new(count: usize) -> Self {
        let parents = (0..count as u32).collect();
        Self { parents, sizes: vec![0; count], representatives: vec![Representative::default(); count] }
    }

    /// `clusters` whose nodes find their richest neighbours in the lists.
    fn of(clusters: &Labels, neighbors: &Neighbors, progress: &dyn Progress) -> Result<Self> {
        let mut merging = Self::new(clusters.count);
        neighbors.each("finding richest neighbours", progress, |node, list| {
            let wealth = |other: u32| neighbors.degree(other);
            let richest = list.iter().copied().max_by_key(|&other| (wealth(other), Reverse(other)));
            let (wealth, wanted) =
                richest.map_or((0, NONE), |other| (wealth(other), clusters.of[other as usize]));
            let candidate = Representative { wealth, node: Reverse(node), wanted };
            merging.count(clusters.of[node as usize], candidate);
        })?;
        Ok(merging)
    }

    /// A node of `cluster`, which might represent it.
    #[inline]
    fn count(&mut self, cluster: u32, candidate: Representative) {
        let cluster = cluster as usize;
        self.sizes[cluster] += 1;
        self.representatives[cluster] = self.representatives[cluster].max(candidate);
    }

    /// Lines 18 to 25: merges clusters, smallest first, while a union has at most `most` nodes.
    fn merge(mut self, most: u32) -> Self {
        let mut queue: BinaryHeap<Reverse<(u32, u32)>> =
            (0..).zip(&self.sizes).map(|(cluster, &size)| Reverse((size, cluster))).collect();
        while let Some(Reverse((size, cluster))) = queue.pop() {
            // A cluster that was merged or has grown since is in the queue again, or gone.
            if self.parents[cluster as usize] != cluster || self.sizes[cluster as usize] != size {
                continue;
            }
            let wanted = self.representatives[cluster as usize].wanted;
            if wanted == NONE {
                continue;
            }
            let target = self.root(wanted);
            if target != cluster && size + self.sizes[target as usize] <= most {
                self.join(cluster, target);
                queue.push(Reverse((self.sizes[target as usize], target)));
            }
        }
        self
    }

    fn join(&mut self, cluster: u32, target: u32) {
        let (from, to) = (cluster as usize, target as usize);
        self.parents[from] = target;
        self.sizes[to] += self.sizes[from];
        self.representatives[to] = self.representatives[to].max(self.representatives[from]);
    }

    /// The cluster that `cluster` has become, shortening the way there.
    fn root(&mut self, mut cluster: u32) -> u32 {
        while self.parents[cluster as usize] != cluster {
            let above = self.parents[self.parents[cluster as usize] as usize];
            self.parents[cluster as usize] = above;
            cluster = above;
        }
        cluster
    }

    /// Lines 26 to 29: clusters to parts.
    fn assign(mut self, mut clusters: Labels, parts: u32) -> Assignment {
        clusters.of.iter_mut().for_each(|label| *label = self.root(*label));
        pack(&clusters.of, clusters.count, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn assigned(pairs: &[(u64, u64)], nodes: u64, parts: u32, settings: &[(&str, &str)]) -> Vec<u32> {
        let mut request = Request::new(parts, 1);
        request.settings = settings.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Spring.assign(&mut small::bare("test", nodes, pairs), &request, &Silent).unwrap().part_of
    }

    /// Algorithm 1 with sets, as it is written.
    fn by_the_paper(pairs: &[(u64, u64)], nodes: u64, parts: u32) -> Vec<u32> {
        let degree = |v: u64| pairs.iter().map(|e| u64::from(e.0 == v) + u64::from(e.1 == v)).sum::<u64>();
        let tau = 0.1 * pairs.len() as f64 / f64::from(parts);
        let mut clusters: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        let mut home: BTreeMap<u64, u64> = BTreeMap::new();
        let mut richest: BTreeMap<u64, u64> = BTreeMap::new();
        for &(u, v) in pairs {
            for x in [u, v] {
                home.entry(x).or_insert_with(|| {
                    clusters.entry(x).or_default().insert(x);
                    x
                });
            }
            let volume = |c: u64| clusters[&c].iter().map(|&x| degree(x)).sum::<u64>();
            let (from, to) = (volume(home[&u]), volume(home[&v]));
            if home[&u] != home[&v] && from.max(to) as f64 <= tau {
                let (mover, target) = if from <= to { (u, home[&v]) } else { (v, home[&u]) };
                clusters.entry(home[&mover]).or_default().remove(&mover);
                clusters.entry(target).or_default().insert(mover);
                home.insert(mover, target);
            }
            for (x, y) in [(u, v), (v, u)] {
                let poorer = |z: &u64| (degree(*z), Reverse(*z)) < (degree(y), Reverse(y));
                if x != y && richest.get(&x).is_none_or(poorer) {
                    richest.insert(x, y);
                }
            }
        }
        let most = (1.05 * nodes as f64 / f64::from(parts)) as usize;
        let mut scanned = BTreeSet::new();
        while let Some((_, cluster)) = clusters
            .iter()
            .filter(|(c, m)| !m.is_empty() && !scanned.contains(*c))
            .map(|(c, m)| (m.len(), *c))
            .min()
        {
            scanned.insert(cluster);
            let wealth = |x: &u64| richest.get(x).map(|r| (degree(*r), Reverse(*x)));
            let Some(wanted) =
                clusters[&cluster].iter().copied().max_by_key(wealth).and_then(|r| richest.get(&r))
            else {
                continue;
            };
            let Some((&target, members)) = clusters.iter().find(|(_, members)| members.contains(wanted))
            else {
                continue;
            };
            if target != cluster && members.len() + clusters[&cluster].len() <= most {
                let mut moved = clusters.remove(&cluster).unwrap();
                clusters.entry(target).or_default().append(&mut moved);
                scanned.remove(&target);
            }
        }
        let mut cluster_of: Vec<u32> = (0..nodes as u32).collect();
        for (cluster, members) in &clusters {
            members.iter().for_each(|&x| cluster_of[x as usize] = *cluster as u32);
        }
        pack(&cluster_of, nodes as usize, parts).part_of
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn without_passes_it_is_the_algorithm_of_the_paper(
            pairs in prop::collection::vec((0u64..40, 0u64..40), 0..300), parts in 1u32..6,
        ) {
            prop_assert_eq!(assigned(&pairs, 40, parts, &[("passes", "0")]), by_the_paper(&pairs, 40, parts));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn merging_learns_from_lists_what_it_learns_from_the_stream(
            pairs in prop::collection::vec((0u64..40, 1u64..40), 0..300),
        ) {
            // No self-loops, which lists do not have.
            let pairs: Vec<_> = pairs.into_iter().map(|(a, b)| (a, (a + b) % 40)).collect();
            let dataset = &mut small::bare("test", 40, &pairs);
            let mut request = Request::new(3, 1);
            request.settings = [("passes".to_owned(), "0".to_owned())].into();
            let mut clusters = Clusters::new(dataset, &request).unwrap();
            clusters.stream(dataset, &Silent).unwrap();
            let (labels, streamed) = clusters.merging();
            let neighbors = Neighbors::sort(dataset, &request, &Silent).unwrap();
            let listed = Merging::of(&labels, &neighbors, &Silent).unwrap();
            prop_assert_eq!(&listed.sizes, &streamed.sizes);
            prop_assert!(listed.representatives == streamed.representatives);
        }
    }

    /// Two cliques of ten, joined by one edge, in an order that mixes them.
    fn cliques() -> Vec<(u64, u64)> {
        let pair = |a: u64, b: u64| [(a, b), (b, a), (a + 10, b + 10), (b + 10, a + 10)];
        let inside = (0..10).flat_map(|a| (0..a).map(move |b| (a, b)));
        inside.flat_map(|(a, b)| pair(a, b)).chain([(0, 10), (10, 0)]).collect()
    }

    #[test]
    fn cliques_are_kept_whole() {
        for settings in [&[("passes", "5")][..], &[("degrees", "online")]] {
            let part_of = assigned(&cliques(), 20, 2, settings);
            assert!(part_of[..10].iter().all(|&part| part == part_of[0]), "{part_of:?}");
            assert!(part_of[10..].iter().all(|&part| part == 1 - part_of[0]), "{part_of:?}");
        }
    }
}
