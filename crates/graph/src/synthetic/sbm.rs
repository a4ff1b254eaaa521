//! Planted communities on a ring, with power-law degrees and features that say something about the class.
//!
//! A degree-corrected stochastic block model (Karrer & Newman, Stochastic blockmodels and community structure in
//! networks, Phys. Rev. E 2011). Every node has a mass theta drawn from a Pareto law, capped so that no expected
//! degree exceeds a hundredth of the nodes. Nodes lie on a ring in the order of their communities. An edge takes
//! one end by mass, and the other by mass
//!
//! - from the same community, with probability `homophily`;
//! - from anywhere, with probability `far`;
//! - else at a log-uniform distance along the ring, so that, as in real graphs, a good partitioner finds a small
//!   cut but not a trivial one.
//!
//! A community has a class, a node the class of its community except with probability `label_mix`. Features are
//! `signal * (unit vector of the class) + N(0, I)`: by themselves they are mediocre, neighbours help much.
//! Self-loops and duplicates are redrawn; both directions are stored; ids hide the ring.
//!
//! Cost: O(E log E) time; about 40 bytes per directed edge at the peak, 4 per feature. All in memory.

use super::{Entry, Request};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels, MemoryEdges};
use crate::progress::Progress;
use crate::random::{Key, Purpose};
use crate::split::{Shares, permuted};
use crate::{Error, Result};
use rayon::prelude::*;

/// The table line of this generator.
pub const ENTRY: Entry = Entry {
    name: "sbm",
    summary: "planted communities with power-law degrees and informative features",
    paper: "Karrer & Newman, Stochastic blockmodels and community structure in networks, Phys. Rev. E 2011",
    defaults: || SbmOptions::default().into(),
    generate: |request, progress| generate(&request.into(), progress),
};

/// What the graph looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct SbmOptions {
    /// How many nodes.
    pub nodes: u64,
    /// How many directed edges, both directions counted; rounded down to an even number.
    pub edges: u64,
    /// Numbers per node; 0 = no features.
    pub features: usize,
    /// How many classes, at least 1.
    pub classes: usize,
    /// How many communities; 0 = one per 500 nodes, and at least one per class.
    pub communities: usize,
    /// Probability that an edge stays in its community.
    pub homophily: f64,
    /// Probability that an edge goes anywhere.
    pub far: f64,
    /// Probability that a node's class is random.
    pub label_mix: f64,
    /// Exponent of the degree distribution, above 1.
    pub gamma: f64,
    /// Length of a class's mean feature vector; the noise has variance 1 in every direction.
    pub signal: f64,
    /// Whether a node also carries a second label that its class determines.
    pub multilabel: bool,
    /// Width of edge attributes; 0 = none. An edge inside a class points in the class's direction.
    pub edge_attributes: usize,
    /// The seed of every draw.
    pub seed: u64,
}

impl Default for SbmOptions {
    fn default() -> Self {
        Self {
            nodes: 10_000,
            edges: 200_000,
            features: 128,
            classes: 40,
            communities: 0,
            homophily: 0.7,
            far: 0.03,
            label_mix: 0.05,
            gamma: 2.5,
            signal: 2.6,
            multilabel: false,
            edge_attributes: 0,
            seed: 0,
        }
    }
}

impl From<&Request> for SbmOptions {
    fn from(request: &Request) -> Self {
        Self {
            nodes: request.nodes,
            edges: request.edges,
            features: request.features,
            classes: request.classes,
            multilabel: request.multilabel,
            edge_attributes: request.edge_attributes,
            seed: request.seed,
            ..Self::default()
        }
    }
}

impl From<SbmOptions> for Request {
    fn from(options: SbmOptions) -> Self {
        Self {
            nodes: options.nodes,
            edges: options.edges,
            features: options.features,
            classes: options.classes,
            multilabel: options.multilabel,
            edge_attributes: options.edge_attributes,
            seed: options.seed,
            scratch: None,
        }
    }
}

impl SbmOptions {
    fn check(&self) -> Result<()> {
        let shares = [self.homophily, self.far, self.label_mix];
        let probable = shares.iter().all(|share| (0.0..=1.0).contains(share));
        let wrong = if self.nodes > u64::from(u32::MAX) {
            "at most 2^32 - 1 nodes"
        } else if self.classes == 0 {
            "at least 1 class"
        } else if !probable || self.homophily + self.far > 1.0 {
            "homophily, far and label_mix between 0 and 1, the first two at most 1 together"
        } else if !(self.gamma > 1.0 && self.signal.is_finite()) {
            "gamma above 1 and a finite signal"
        } else if self.edges / 2 > self.nodes.saturating_mul(self.nodes.saturating_sub(1)) / 2 {
            "no more edges than there are pairs of nodes"
        } else {
            return Ok(());
        };
        Err(Error::usage(format!("the generator `sbm` needs {wrong}")))
    }

    fn communities(&self) -> usize {
        match self.communities {
            0 => self.classes.max(self.nodes as usize / 500),
            given => given,
        }
    }

    fn key(&self, purpose: Draw) -> Key {
        Key::new(self.seed, Purpose::Generate).with(purpose as u64)
    }
}

/// What a draw of this generator decides.
#[derive(Clone, Copy)]
enum Draw {
    CommunitySize,
    Mass,
    Edge,
    Surplus,
    CommunityClass,
    Mixing,
    Relabel,
    Centroid,
    Noise,
    EdgeNoise,
}

/// Makes the graph.
pub fn generate(options: &SbmOptions, progress: &dyn Progress) -> Result<Dataset> {
    options.check()?;
    let ring = Ring::new(options);
    let (pairs, notes) = draw_pairs(options, &ring, progress)?;
    let mut id_of: Vec<u32> = (0..options.nodes as u32).collect();
    options.key(Draw::Relabel).shuffle(&mut id_of);
    let classes = draw_classes(options, &ring, &id_of);
    let mut edges = both_directions(pairs, &id_of);
    drop(id_of);
    progress.begin("features", options.nodes, "nodes");
    edges.attributes = edge_attributes(options, &edges, &classes);
    let features = features(options, &classes);
    progress.tick(options.nodes)?;
    let shares = Shares { train: 20, valid: 10, test: 70 };
    Ok(Dataset {
        name: "sbm".to_owned(),
        nodes: options.nodes,
        undirected: true,
        edges: Box::new(MemoryEdges::new(edges, options.edge_attributes)),
        edge_columns: EdgeColumns { attribute_width: options.edge_attributes, ..EdgeColumns::default() },
        features,
        labels: labels(options, classes),
        splits: permuted(0..options.nodes, options.seed, &shares),
        names: None,
        class_names: None,
        notes,
    })
}

/// The nodes as stretches of mass along a ring, community by community.
struct Ring {
    /// Where each node's mass begins, and the total.
    mass: Vec<f64>,
    /// The node at each of `nodes` equidistant points: where the search for a point begins.
    guide: Vec<u32>,
    /// First node of each community, and the number of nodes.
    starts: Vec<usize>,
}

impl Ring {
    fn new(options: &SbmOptions) -> Self {
        let (nodes, communities) = (options.nodes as usize, options.communities());
        let key = options.key(Draw::CommunitySize);
        // Sums of ten exponential draws: mildly unequal shares, the Dirichlet distribution with parameter 10.
        let size = |community: usize| -> f64 {
            (0..10).map(|i| -(1.0 - key.with(community as u64).unit(i)).ln()).sum()
        };
        let ends = cumulative((0..communities).map(size));
        let total = ends[communities].max(f64::MIN_POSITIVE);
        let starts = ends.iter().map(|end| (end / total * nodes as f64).round() as usize).collect();
        let mass = cumulative(masses(options).into_iter());
        let step = mass[nodes] / nodes as f64;
        let guide = (0..nodes).scan(0, |node, point| {
            while *node + 1 < nodes && mass[*node + 1] <= point as f64 * step {
                *node += 1;
            }
            Some(*node as u32)
        });
        Self { guide: guide.collect(), mass, starts }
    }

    fn total(&self) -> f64 {
        self.mass[self.mass.len() - 1]
    }

    /// The node whose stretch of mass holds `point`; a few steps from the guide, whatever the number of nodes.
    fn node_at(&self, point: f64) -> usize {
        let last = self.guide.len() - 1;
        let near = (point / self.total() * self.guide.len() as f64) as usize;
        let mut node = self.guide[near.min(last)] as usize;
        while node > 0 && self.mass[node] > point {
            node -= 1;
        }
        while node < last && self.mass[node + 1] <= point {
            node += 1;
        }
        node
    }

    fn community_of(&self, node: usize) -> usize {
        self.starts.partition_point(|&start| start <= node) - 1
    }
}

/// 0, then the running sums of `items`.
fn cumulative(items: impl Iterator<Item = f64>) -> Vec<f64> {
    let sums = items.scan(0.0, |sum, item| {
        *sum += item;
        Some(*sum)
    });
    std::iter::once(0.0).chain(sums).collect()
}

/// Pareto masses whose expected degrees stay below a hundredth of the nodes.
fn masses(options: &SbmOptions) -> Vec<f64> {
    let (key, exponent) = (options.key(Draw::Mass), -1.0 / (options.gamma - 1.0));
    let mut masses: Vec<f64> =
        (0..options.nodes).into_par_iter().map(|node| (1.0 - key.unit(node)).powf(exponent)).collect();
    let nodes = options.nodes as f64;
    let mean = masses.iter().sum::<f64>() / nodes.max(1.0);
    let cap = (0.01 * nodes * mean / (options.edges.max(1) as f64 / nodes.max(1.0))).max(mean);
    masses.iter_mut().for_each(|mass| *mass = mass.min(cap));
    masses
}

/// Distinct unordered pairs of ring positions, packed as `low << 32 | high`; and what the user may want to know.
fn draw_pairs(options: &SbmOptions, ring: &Ring, progress: &dyn Progress) -> Result<(Vec<u64>, Vec<String>)> {
    let want = (options.edges / 2) as usize;
    let (mut pairs, mut drawn, mut accepted): (Vec<u64>, u64, f64) = (Vec::new(), 0, 0.75);
    progress.begin("drawing edges", want as u64, "edges");
    while pairs.len() < want {
        let before = pairs.len();
        let count = ((want - before) as f64 * 1.1 / accepted) as u64 + 1024;
        let candidates = (drawn..drawn + count).into_par_iter();
        pairs.par_extend(candidates.filter_map(|edge| draw_pair(options, ring, edge)));
        pairs.par_sort_unstable();
        pairs.dedup();
        drawn += count;
        let gained = pairs.len() - before;
        progress.tick(gained as u64)?;
        accepted = (gained as f64 / count as f64).max(0.02);
        if (gained as u64) < count / 1000 {
            break; // The communities are as good as full.
        }
    }
    let key = options.key(Draw::Surplus);
    for removal in 0..pairs.len().saturating_sub(want) {
        let index = key.below(removal as u64, pairs.len() as u64) as usize;
        pairs.swap_remove(index);
    }
    let notes = match want - pairs.len() {
        0 => Vec::new(),
        missing => vec![format!("{} edges fewer than asked for: the communities are full", 2 * missing)],
    };
    Ok((pairs, notes))
}

/// The `edge`-th candidate; `None` for a self-loop.
fn draw_pair(options: &SbmOptions, ring: &Ring, edge: u64) -> Option<u64> {
    let key = options.key(Draw::Edge).with(edge);
    let total = ring.total();
    let (place, kind, other) = (key.unit(0) * total, key.unit(1), key.unit(2));
    let first = ring.node_at(place);
    let point = if kind < options.homophily {
        let community = ring.community_of(first);
        let (begin, end) = (ring.mass[ring.starts[community]], ring.mass[ring.starts[community + 1]]);
        begin + other * (end - begin)
    } else if kind >= 1.0 - options.far {
        other * total
    } else {
        let (nearest, farthest) = ((total / (ring.starts.len() - 1) as f64).ln(), (total / 2.0).ln());
        let distance = (nearest + other * (farthest - nearest)).exp();
        (if key.bits(3) & 1 == 0 { place + distance } else { place - distance }).rem_euclid(total)
    };
    let second = ring.node_at(point);
    let (low, high) = (first.min(second) as u64, first.max(second) as u64);
    (low != high).then_some(low << 32 | high)
}

/// The class of each node, by its final id.
fn draw_classes(options: &SbmOptions, ring: &Ring, id_of: &[u32]) -> Vec<u32> {
    let mut class_of: Vec<u32> = (0..options.communities()).map(|c| (c % options.classes) as u32).collect();
    options.key(Draw::CommunityClass).shuffle(&mut class_of);
    let key = options.key(Draw::Mixing);
    let mut classes = vec![0; id_of.len()];
    for (community, stretch) in ring.starts.windows(2).enumerate() {
        for position in stretch[0]..stretch[1] {
            let draws = key.with(position as u64);
            let mixed = draws.unit(0) < options.label_mix;
            let random = draws.below(1, options.classes as u64) as u32;
            classes[id_of[position] as usize] = if mixed { random } else { class_of[community] };
        }
    }
    classes
}

/// Both directions of every pair, renamed, sorted by source and target.
fn both_directions(pairs: Vec<u64>, id_of: &[u32]) -> EdgeChunk {
    let renamed = |pair: u64| {
        let (u, v) = (id_of[(pair >> 32) as usize], id_of[pair as u32 as usize]);
        [u64::from(u) << 32 | u64::from(v), u64::from(v) << 32 | u64::from(u)]
    };
    let mut edges: Vec<u64> = pairs.into_par_iter().flat_map_iter(renamed).collect();
    edges.par_sort_unstable();
    EdgeChunk {
        sources: edges.par_iter().map(|edge| edge >> 32).collect(),
        targets: edges.par_iter().map(|edge| edge & u64::from(u32::MAX)).collect(),
        ..EdgeChunk::default()
    }
}

/// A vector of length `length` for each class.
fn centroids(options: &SbmOptions, width: usize, length: f64) -> Vec<Vec<f32>> {
    let key = options.key(Draw::Centroid).with(width as u64);
    let direction = |class: usize| {
        let raw: Vec<f64> = (0..width as u64).map(|i| key.with(class as u64).normal(i)).collect();
        let norm = raw.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        raw.into_iter().map(|x| (length * x / norm) as f32).collect()
    };
    (0..options.classes).map(direction).collect()
}

fn features(options: &SbmOptions, classes: &[u32]) -> Features {
    let width = options.features;
    if width == 0 {
        return Features::None;
    }
    let (key, centroids) = (options.key(Draw::Noise), centroids(options, width, options.signal));
    let mut values = vec![0f32; classes.len() * width];
    values.par_chunks_exact_mut(width).enumerate().for_each(|(node, row)| {
        let (noise, mean) = (key.with(node as u64), &centroids[classes[node] as usize]);
        row.iter_mut().zip(mean).zip(0..).for_each(|((x, m), i)| *x = m + noise.normal(i) as f32);
    });
    Features::Dense { width, values: values.into() }
}

/// Noise, moved along the direction of the class on edges whose ends share one.
fn edge_attributes(options: &SbmOptions, edges: &EdgeChunk, classes: &[u32]) -> Vec<f32> {
    let width = options.edge_attributes;
    if width == 0 {
        return Vec::new();
    }
    let (key, centroids) = (options.key(Draw::EdgeNoise), centroids(options, width, options.signal));
    let mut values = vec![0f32; edges.len() * width];
    values.par_chunks_exact_mut(width).enumerate().for_each(|(edge, row)| {
        let [source, target] = [edges.sources[edge], edges.targets[edge]].map(|node| classes[node as usize]);
        let (noise, share) = (key.with(edge as u64), if source == target { 1.0 } else { 0.0 });
        let mean = &centroids[source as usize];
        row.iter_mut().zip(mean).zip(0..).for_each(|((x, m), i)| *x = share * m + noise.normal(i) as f32);
    });
    values
}

/// The classes, or own class and the one that follows from it.
fn labels(options: &SbmOptions, classes: Vec<u32>) -> Labels {
    let count = options.classes;
    if !options.multilabel {
        let values: Vec<i64> = classes.into_iter().map(i64::from).collect();
        return Labels::Classes { classes: count, values: values.into() };
    }
    let mut values = vec![0u8; classes.len() * count];
    for (row, class) in values.chunks_exact_mut(count).zip(classes) {
        row[class as usize] = 1;
        row[(class as usize * 7 + 3) % count] = 1;
    }
    Labels::Multi { classes: count, values: values.into() }
}
