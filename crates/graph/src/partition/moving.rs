//! Nodes move, one at a time, to the label that pulls them most: the inner loop of Louvain, of label propagation and
//! of the refinement of parts.
//!
//! A label is a community or a part. It pulls node v by
//!
//! `pull(v, L) = weight(v, L) - resolution * degree(v) * degree(L without v) / degree(all)`,
//!
//! which is the gain of modularity up to a factor; with resolution 0 it is the number of edges, as in label
//! propagation. A label that would hold more than `cap` nodes does not pull. Nodes are visited in a seeded order, and
//! again only after a neighbour moved. Ties: where the node is, then the lower label. A round costs O(edges of the
//! nodes that are visited). Memory: 5 bytes per node and 24 per label.

use super::adjacency::Adjacency;
use super::tally::Tally;
use crate::Result;
use crate::progress::Progress;
use crate::random::Key;

/// A graph whose nodes stand for one or more nodes of the dataset.
pub(super) struct Level {
    /// Who is joined to whom.
    pub graph: Adjacency,
    /// How many nodes of the dataset each node stands for.
    pub sizes: Vec<u32>,
    /// How many edges each node has, in the dataset, those inside it included.
    pub degrees: Vec<u64>,
}

impl Level {
    /// The dataset itself.
    pub fn finest(graph: Adjacency) -> Self {
        let degree = |node: u32| graph.of(node).map(|(_, weight)| u64::from(weight)).sum();
        let degrees = (0..graph.nodes() as u32).map(degree).collect();
        Self { sizes: vec![1; graph.nodes()], degrees, graph }
    }

    /// Each cluster as one node.
    pub fn contracted(&self, cluster_of: &[u32], clusters: usize) -> Self {
        let (mut sizes, mut degrees) = (vec![0; clusters], vec![0; clusters]);
        for (node, &cluster) in cluster_of.iter().enumerate() {
            sizes[cluster as usize] += self.sizes[node];
            degrees[cluster as usize] += self.degrees[node];
        }
        Self { graph: self.graph.contracted(cluster_of, clusters), sizes, degrees }
    }

    /// How many nodes there are at this level.
    pub fn nodes(&self) -> usize {
        self.sizes.len()
    }
}

/// What moves nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moving {
    /// The most nodes of the dataset that a label may hold.
    pub cap: u64,
    /// How much large labels are shunned; 0 counts edges only.
    pub resolution: f64,
    /// How often all nodes may be visited.
    pub rounds: u64,
    /// The order of visits.
    pub key: Key,
}

/// Labels of nodes, and what each holds.
struct Held<'a> {
    of: &'a mut [u32],
    sizes: Vec<u64>,
    degrees: Vec<u64>,
}

impl Moving {
    /// Moves the nodes of `level`, whose labels are below `labels`, until no one wants to move or rounds are over.
    pub fn run(
        &self,
        level: &Level,
        label_of: &mut [u32],
        labels: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut held = Held::new(level, label_of, labels);
        let mut order: Vec<u32> = (0..level.nodes() as u32).collect();
        self.key.shuffle(&mut order);
        let mut restless = vec![true; order.len()];
        let mut tally = Tally::new(labels);
        let rate = self.resolution / level.degrees.iter().sum::<u64>().max(1) as f64;
        for _ in 0..self.rounds {
            let mut moved = 0;
            for &node in &order {
                if !std::mem::take(&mut restless[node as usize]) {
                    continue;
                }
                let label = self.choose(level, &held, node, rate, &mut tally);
                if label != held.of[node as usize] {
                    held.put(level, node, label);
                    level.graph.of(node).for_each(|(other, _)| restless[other as usize] = true);
                    moved += 1;
                }
            }
            progress.tick(0)?;
            if moved == 0 {
                break;
            }
        }
        Ok(())
    }

    /// The label that pulls `node` most.
    fn choose(&self, level: &Level, held: &Held, node: u32, rate: f64, tally: &mut Tally) -> u32 {
        for (other, weight) in level.graph.of(node) {
            tally.add(held.of[other as usize], u64::from(weight));
        }
        let (home, degree) = (held.of[node as usize], level.degrees[node as usize]);
        let size = u64::from(level.sizes[node as usize]);
        let push = rate * degree as f64;
        let stay = tally.of(home) as f64 - push * (held.degrees[home as usize] - degree) as f64;
        let mut best = (stay, home);
        for (label, weight) in tally.drain().filter(|sum| sum.0 != home) {
            let pull = weight as f64 - push * held.degrees[label as usize] as f64;
            let better = pull > best.0 || (pull == best.0 && best.1 != home && label < best.1);
            if better && held.sizes[label as usize] + size <= self.cap {
                best = (pull, label);
            }
        }
        best.1
    }
}

impl<'a> Held<'a> {
    fn new(level: &Level, label_of: &'a mut [u32], labels: usize) -> Self {
        let (mut sizes, mut degrees) = (vec![0; labels], vec![0; labels]);
        for (node, &label) in label_of.iter().enumerate() {
            sizes[label as usize] += u64::from(level.sizes[node]);
            degrees[label as usize] += level.degrees[node];
        }
        Self { of: label_of, sizes, degrees }
    }

    fn put(&mut self, level: &Level, node: u32, label: u32) {
        let node = node as usize;
        let old = std::mem::replace(&mut self.of[node], label) as usize;
        let (size, degree) = (u64::from(level.sizes[node]), level.degrees[node]);
        self.sizes[old] -= size;
        self.degrees[old] -= degree;
        self.sizes[label as usize] += size;
        self.degrees[label as usize] += degree;
    }
}

/// Numbers the labels that occur from 0, in their order; how many there are.
pub(super) fn renumber(label_of: &mut [u32], labels: usize) -> usize {
    let mut number = vec![0u32; labels];
    label_of.iter().for_each(|&label| number[label as usize] = 1);
    let mut next = 0;
    for slot in &mut number {
        next += std::mem::replace(slot, next);
    }
    label_of.iter_mut().for_each(|label| *label = number[*label as usize]);
    next as usize
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;
    use crate::progress::Silent;
    use crate::random::Purpose;
    use crate::synthetic::small;

    fn moved(cap: u64, resolution: f64, mut label_of: Vec<u32>) -> Vec<u32> {
        // Two triangles joined by an edge.
        let pairs = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3), (2, 3)];
        let dataset = &mut small::bare("triangles", 6, &pairs);
        let level = Level::finest(Adjacency::read(dataset, &Request::new(1, 0), &Silent).unwrap());
        let key = Key::new(1, Purpose::Partition);
        Moving { cap, resolution, rounds: 9, key }.run(&level, &mut label_of, 6, &Silent).unwrap();
        label_of
    }

    #[test]
    fn nodes_take_the_label_of_most_neighbours() {
        assert_eq!(moved(6, 0.0, vec![0, 0, 1, 1, 1, 1]), [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn a_full_label_takes_no_one() {
        assert_eq!(moved(3, 0.0, vec![0, 0, 1, 0, 1, 1]), [0, 0, 1, 0, 1, 1]);
    }

    #[test]
    fn modularity_keeps_the_triangles_apart() {
        let label_of = moved(6, 1.0, (0..6).collect());
        assert!(label_of[..3].iter().all(|&label| label == label_of[0]), "{label_of:?}");
        assert!(label_of[3..].iter().all(|&label| label == label_of[3]), "{label_of:?}");
        assert_ne!(label_of[0], label_of[3]);
    }

    #[test]
    fn labels_are_renumbered_in_their_order() {
        let mut label_of = [7, 2, 7, 4];
        assert_eq!(renumber(&mut label_of, 9), 3);
        assert_eq!(label_of, [2, 0, 2, 1]);
    }
}
