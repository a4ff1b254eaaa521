//! In which order do the rows of a part stand near those that they read?
//!
//! A layer reads the rows of a target's sources. If nodes that share many edges are next to each other in memory, most of
//! these rows are still in a cache since the targets before. So rows are put into clusters that a cache holds, clusters
//! into larger ones, and the order is that of the larger clusters, in each of them of the smaller ones, in each of those of
//! the rows. Clusters are numbered by their first row.
//!
//! Clusters are those of size-constrained label propagation (see
//! [`label_propagation`](crate::partition::label_propagation)), but a few rounds over in-edges as they stand, in the order
//! of rows: the graph is neither copied nor made undirected, and nothing is drawn. One thread: the order is a function of
//! the lists alone. Sources that are not rows (a halo) are passed over.
//!
//! Whatever their order, rows that read a halo can be put behind the others ([`border_last`]).
//!
//! Cost: some passes over the edges. Memory while it works: 28 bytes per row and 8 per pair of clusters that edges join;
//! the answer has 4 bytes per row.

use crate::partition::adjacency::grouped;
use crate::partition::tally::Tally;
use std::borrow::Cow;

/// The most rows of a small and of a large cluster: half a megabyte of rows of 128 columns, and a megabyte of rows of one
/// cache line. Fewer rows than the latter need no order.
const ROOM: [u32; 2] = [1 << 10, 1 << 14];
/// How often every row may change its cluster.
const ROUNDS: usize = 3;
/// One edge in so many is inside a small cluster, or else there are none worth the name.
const INSIDE: u64 = 4;

/// The place of each row in the order, where the sources of row `i` are `sources[offsets[i]..offsets[i + 1]]`; none if there
/// are few rows, or edges do not cluster.
pub fn places(offsets: &[u64], sources: &[u32]) -> Option<Vec<u32>> {
    let rows = offsets.len().saturating_sub(1);
    if rows <= ROOM[1] as usize {
        return None;
    }
    let (offsets, sources) = (Cow::Borrowed(offsets), Cow::Borrowed(sources));
    let finest = Level { offsets, sources, weights: Vec::new(), sizes: vec![1; rows] };
    let (small_of, small) = finest.clusters(ROOM[0]);
    if !finest.is_inside(&small_of) {
        return None;
    }
    let (large_of, large) = finest.contracted(&small_of, small).clusters(ROOM[1]);
    let small_places = ranked(&large_of, large);
    let place_of = small_of.iter().map(|&cluster| small_places[cluster as usize]).collect::<Vec<u32>>();
    Some(ranked(&place_of, small))
}

/// The order of `places`, or as rows stand where there is none, but with rows that read others than rows (a halo) behind all that
/// do not; none if neither asks for one. So a layer computes one run of rows while the halo is under way, and another when it
/// is there.
pub fn border_last(offsets: &[u64], sources: &[u32], places: Option<Vec<u32>>) -> Option<Vec<u32>> {
    let rows = offsets.len().saturating_sub(1);
    let reads_halo = |row: u32| {
        let list = offsets[row as usize] as usize..offsets[row as usize + 1] as usize;
        sources[list].iter().any(|&source| source as usize >= rows)
    };
    let mut order: Vec<u32> = (0..rows as u32).collect();
    if let Some(places) = &places {
        (0..).zip(places).for_each(|(row, &place)| order[place as usize] = row);
    }
    let (interior, border): (Vec<u32>, Vec<u32>) = order.into_iter().partition(|&row| !reads_halo(row));
    if border.is_empty() {
        return places;
    }
    let mut places = places.unwrap_or_else(|| vec![0; rows]);
    interior.iter().chain(&border).zip(0..).for_each(|(&row, place)| places[row as usize] = place);
    Some(places)
}

/// The place of each node where those of lower groups, and of those in the same the lower ones, come first.
fn ranked(group_of: &[u32], groups: usize) -> Vec<u32> {
    let mut places = vec![0; group_of.len()];
    let (_, order) = grouped(group_of, groups);
    order.iter().zip(0..).for_each(|(&node, place)| places[node as usize] = place);
    places
}

/// Rows, or clusters of them, and what they read.
struct Level<'a> {
    offsets: Cow<'a, [u64]>,
    sources: Cow<'a, [u32]>,
    /// How many edges each entry of `sources` stands for; empty where it is one.
    weights: Vec<u32>,
    /// How many rows each node stands for.
    sizes: Vec<u32>,
}

impl Level<'_> {
    fn nodes(&self) -> usize {
        self.sizes.len()
    }

    /// What `node` reads of the level's nodes, with the number of edges.
    #[inline]
    fn edges_of(&self, node: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
        let list = self.offsets[node] as usize..self.offsets[node + 1] as usize;
        let weight = |edge: usize| self.weights.get(edge).map_or(1, |&weight| u64::from(weight));
        let edges = list.clone().zip(&self.sources[list]);
        let edges = edges.map(move |(edge, &source)| (source as usize, weight(edge)));
        edges.filter(|(source, _)| *source < self.nodes())
    }

    /// The cluster of each node, none of more than `room` rows (unless a node is), and how many there are.
    fn clusters(&self, room: u32) -> (Vec<u32>, usize) {
        let mut label_of: Vec<u32> = (0..self.nodes() as u32).collect();
        let (mut held, mut tally) = (self.sizes.clone(), Tally::new(self.nodes()));
        for _ in 0..ROUNDS {
            for node in 0..self.nodes() {
                self.edges_of(node).for_each(|(source, weight)| tally.add(label_of[source], weight));
                let (home, size) = (label_of[node], self.sizes[node]);
                let mut best = (tally.of(home), home);
                for (label, weight) in tally.drain().filter(|sum| sum.0 != home) {
                    let better = weight > best.0 || (weight == best.0 && best.1 != home && label < best.1);
                    if better && held[label as usize] + size <= room {
                        best = (weight, label);
                    }
                }
                held[home as usize] -= size;
                held[best.1 as usize] += size;
                label_of[node] = best.1;
            }
        }
        let clusters = number_by_first(&mut label_of);
        (label_of, clusters)
    }

    /// Whether enough edges have both ends in one cluster.
    fn is_inside(&self, cluster_of: &[u32]) -> bool {
        let (mut inside, mut all) = (0, 0);
        for (node, cluster) in cluster_of.iter().enumerate() {
            for (source, _) in self.edges_of(node) {
                inside += u64::from(cluster_of[source] == *cluster);
                all += 1;
            }
        }
        INSIDE * inside > all
    }

    /// Each cluster as one node; edges inside one are dropped.
    fn contracted(&self, cluster_of: &[u32], clusters: usize) -> Level<'static> {
        let (starts, members) = grouped(cluster_of, clusters);
        let (mut offsets, mut sources, mut weights) = (vec![0], Vec::new(), Vec::new());
        let (mut sizes, mut tally) = (vec![0; clusters], Tally::new(clusters));
        for cluster in 0..clusters {
            for &node in &members[starts[cluster]..starts[cluster + 1]] {
                sizes[cluster] += self.sizes[node as usize];
                self.edges_of(node as usize)
                    .for_each(|(source, weight)| tally.add(cluster_of[source], weight));
            }
            for (other, weight) in tally.drain().filter(|sum| sum.0 as usize != cluster) {
                sources.push(other);
                weights.push(u32::try_from(weight).unwrap_or(u32::MAX));
            }
            offsets.push(sources.len() as u64);
        }
        Level { offsets: offsets.into(), sources: sources.into(), weights, sizes }
    }
}

/// Numbers labels from 0 in the order in which they first occur; how many there are. Labels are below the number of nodes.
fn number_by_first(label_of: &mut [u32]) -> usize {
    let (mut number, mut next) = (vec![u32::MAX; label_of.len()], 0);
    for label in label_of {
        let number = &mut number[*label as usize];
        if *number == u32::MAX {
            *number = next;
            next += 1;
        }
        *label = *number;
    }
    next as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Key, Purpose};

    const ROWS: usize = 40_000;
    const DEGREE: usize = 8;

    /// Random in-edges; of ten, so many come from the same one of 80 communities that are spread over all rows.
    fn graph(of_ten: u64) -> (Vec<u64>, Vec<u32>) {
        let key = Key::new(1, Purpose::Generate);
        let source = |edge: usize| {
            let any = key.below(2 * edge as u64, ROWS as u64);
            match key.below(2 * edge as u64 + 1, 10) < of_ten {
                true => (any / 80 * 80) as u32 + (edge / DEGREE % 80) as u32,
                false => any as u32,
            }
        };
        let offsets = (0..=ROWS as u64).map(|row| row * DEGREE as u64).collect();
        (offsets, (0..ROWS * DEGREE).map(source).collect())
    }

    /// The share of edges whose ends are less than `distance` apart.
    fn near(places: &[u32], sources: &[u32], distance: u32) -> f64 {
        let apart = |(edge, &source): (usize, &u32)| places[edge / DEGREE].abs_diff(places[source as usize]);
        let near = sources.iter().enumerate().map(apart).filter(|&apart| apart < distance).count();
        near as f64 / sources.len() as f64
    }

    #[test]
    fn planted_communities_come_to_stand_together() {
        let (offsets, sources) = graph(8);
        let places = places(&offsets, &sources).unwrap();
        let mut sorted = places.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..ROWS as u32), "every place is taken once");
        let before = near(&(0..ROWS as u32).collect::<Vec<_>>(), &sources, ROOM[0]);
        let after = near(&places, &sources, ROOM[0]);
        assert!(before < 0.15 && after > 0.7, "{before} {after}");
    }

    #[test]
    fn random_edges_and_few_rows_have_no_order() {
        let (offsets, sources) = graph(0);
        assert_eq!(places(&offsets, &sources), None);
        assert_eq!(places(&[0, 1, 2], &[1, 0]), None);
        assert_eq!(places(&[], &[]), None);
        assert_eq!(places(&vec![0; ROWS + 1], &[]), None);
    }

    #[test]
    fn rows_that_read_a_halo_stand_behind_the_others_and_else_the_order_stays() {
        // Rows 0 and 2 of four read a fifth.
        let (offsets, sources) = ([0, 2, 3, 4, 4], [1, 4, 0, 4]);
        assert_eq!(border_last(&offsets, &sources, None), Some(vec![2, 0, 3, 1]));
        assert_eq!(border_last(&offsets, &sources, Some(vec![1, 2, 0, 3])), Some(vec![3, 0, 2, 1]));
        let inside = [1, 3, 0, 2];
        assert_eq!(border_last(&offsets, &inside, None), None);
        assert_eq!(border_last(&offsets, &inside, Some(vec![1, 2, 0, 3])), Some(vec![1, 2, 0, 3]));
        assert_eq!(border_last(&[], &[], None), None);
    }

    #[test]
    fn what_is_not_a_row_is_passed_over() {
        let (offsets, sources) = graph(8);
        let halo = |(edge, &source): (usize, &u32)| if edge % DEGREE == 0 { u32::MAX } else { source };
        let with_halo: Vec<u32> = sources.iter().enumerate().map(halo).collect();
        let without: Vec<u32> = with_halo.iter().copied().filter(|&source| source != u32::MAX).collect();
        let fewer: Vec<u64> = (0..=ROWS as u64).map(|row| row * (DEGREE as u64 - 1)).collect();
        let found = places(&offsets, &with_halo);
        assert!(found.is_some() && found == places(&fewer, &without));
    }

    #[test]
    fn no_cluster_has_more_rows_than_there_is_room_for() {
        let (offsets, sources) = graph(8);
        let sizes = vec![1; ROWS];
        let level = Level { offsets: offsets.into(), sources: sources.into(), weights: Vec::new(), sizes };
        let (cluster_of, clusters) = level.clusters(300);
        let coarse = level.contracted(&cluster_of, clusters);
        assert!(coarse.sizes.iter().all(|&size| 0 < size && size <= 300));
        assert_eq!(coarse.sizes.iter().sum::<u32>() as usize, ROWS);
        let (_, fewer) = coarse.clusters(3000);
        assert!(fewer < clusters);
    }
}
