//! Node by node: which part do most of a node's neighbours lie in, and has it room?
//!
//! A pass visits every node with its whole neighbour list and puts it where a score says, given how many of its
//! neighbours each part holds and how full the parts are. The first pass of a node-streaming method starts from
//! nothing; further passes start from the last assignment (restreaming, Nishimura & Ugander 2013), and so can mend
//! what any other method made.
//!
//! Memory: the assignment and [`Neighbors`], 8 bytes per node, one more while parts are mended, and O(parts).

use super::neighbors::Neighbors;
use super::packing::room;
use super::passes::small_nodes;
use super::settings::{Setting, Values};
use super::tally::leads;
use super::{Assignment, Entry, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

/// How much larger than the mean a part may get.
pub(super) const SLACK: Setting = Setting {
    name: "slack",
    default: "0.05",
    about: "how much larger than the mean a part may get, as a share",
    values: Values::Number(0.0, f64::INFINITY),
};

/// How often nodes are placed again.
pub(super) const PASSES: Setting = Setting {
    name: "passes",
    default: "5",
    about: "restreaming passes that move nodes to the part of most of their neighbours",
    values: Values::Count(0, 1000),
};

/// Passes end when fewer than one of so many nodes moved.
const FEW_OF: u64 = 500;

/// A node that has no part yet.
const NOWHERE: u32 = u32::MAX;

/// An assignment in the making.
pub(super) struct Restream<'a> {
    neighbors: &'a Neighbors,
    part_of: Vec<u32>,
    sizes: Vec<u64>,
    /// Nodes that a part may have.
    room: u64,
}

impl<'a> Restream<'a> {
    /// Starts from `part_of`, where nodes may still be [`NOWHERE`].
    pub fn new(neighbors: &'a Neighbors, part_of: Vec<u32>, parts: u32, slack: f64) -> Self {
        let mut sizes = vec![0; parts as usize];
        part_of.iter().filter(|&&part| part != NOWHERE).for_each(|&part| sizes[part as usize] += 1);
        let room = room(part_of.len(), parts, slack);
        Self { neighbors, part_of, sizes, room }
    }

    /// One pass: every node goes to the part with room whose `score(neighbours there, nodes there)` is highest; ties
    /// go to the part it is in, then the smaller, then the lower. How many nodes moved.
    pub fn pass(
        &mut self,
        name: &str,
        progress: &dyn Progress,
        score: impl Fn(u32, u64) -> f64,
    ) -> Result<u64> {
        let mut counts = vec![0u32; self.sizes.len()];
        let mut moved = 0;
        let Self { neighbors, part_of, sizes, room } = self;
        neighbors.each(name, progress, |node, list| {
            counts.fill(0);
            for &neighbor in list {
                if let Some(count) = counts.get_mut(part_of[neighbor as usize] as usize) {
                    *count += 1;
                }
            }
            moved += u64::from(put(&mut part_of[node as usize], &counts, sizes, *room, &score));
        })?;
        Ok(moved)
    }

    /// Up to `passes` times [`Self::pass`] by the number of neighbours alone, when every node has a part; the last is
    /// one in which hardly a node moved.
    pub fn mend(&mut self, passes: u64, progress: &dyn Progress) -> Result<()> {
        let mut counts = vec![0u32; self.sizes.len()];
        let Self { neighbors, part_of, sizes, room } = self;
        // Who has most neighbours at home stays there until one of them leaves.
        let mut settled = vec![false; part_of.len()];
        for _ in 0..passes {
            let mut moved = 0;
            neighbors.each("moving nodes between parts", progress, |node, list| {
                let home = part_of[node as usize] as usize;
                if settled[node as usize] && sizes[home] <= *room {
                    return;
                }
                counts.fill(0);
                list.iter().for_each(|&neighbor| counts[part_of[neighbor as usize] as usize] += 1);
                settled[node as usize] = leads(&counts, home);
                if settled[node as usize] && sizes[home] <= *room {
                    return;
                }
                if put(&mut part_of[node as usize], &counts, sizes, *room, |count, _| count) {
                    list.iter().for_each(|&neighbor| settled[neighbor as usize] = false);
                    settled[node as usize] = false;
                    moved += 1;
                }
            })?;
            if moved * FEW_OF < neighbors.nodes() {
                break;
            }
        }
        Ok(())
    }

    /// The assignment.
    pub fn finish(self) -> Assignment {
        Assignment { parts: self.sizes.len() as u32, part_of: self.part_of }
    }
}

/// Moves a node from the part `home` to the one that [`best_part`] names; whether that is another.
#[inline]
fn put<S: PartialOrd>(
    home: &mut u32,
    counts: &[u32],
    sizes: &mut [u64],
    room: u64,
    score: impl Fn(u32, u64) -> S,
) -> bool {
    if *home != NOWHERE {
        sizes[*home as usize] -= 1;
    }
    let best = best_part(counts, sizes, room, *home, score);
    sizes[best as usize] += 1;
    std::mem::replace(home, best) != best
}

fn best_part<S: PartialOrd>(
    counts: &[u32],
    sizes: &[u64],
    room: u64,
    home: u32,
    score: impl Fn(u32, u64) -> S,
) -> u32 {
    let mut best: Option<(S, bool, u64, usize)> = None;
    for part in (0..counts.len()).filter(|&part| sizes[part] < room) {
        let rank = (score(counts[part], sizes[part]), part == home as usize, sizes[part], part);
        let better = match &best {
            None => true,
            Some(best) if rank.0 != best.0 => rank.0 > best.0,
            Some(best) => (rank.1, best.2) > (best.1, rank.2),
        };
        if better {
            best = Some(rank);
        }
    }
    best.map_or(0, |best| best.3 as u32)
}

/// A node-streaming method: every node placed as often as the request asks of `entry`, by the score that `score` makes
/// of the lists and the room of a part.
pub(super) fn place<S: Fn(u32, u64) -> f64>(
    dataset: &mut Dataset,
    request: &Request,
    entry: &Entry,
    progress: &dyn Progress,
    score: impl FnOnce(&Neighbors, u64) -> S,
) -> Result<Assignment> {
    let nowhere = vec![NOWHERE; small_nodes(dataset, request)?];
    let slack = request.number(entry, SLACK.name)?;
    let passes = request.count(entry, PASSES.name)?.max(1);
    let neighbors = Neighbors::sort(dataset, request, progress)?;
    let mut stream = Restream::new(&neighbors, nowhere, request.parts, slack);
    let score = score(&neighbors, stream.room);
    for _ in 0..passes {
        stream.pass("placing nodes", progress, &score)?;
    }
    Ok(stream.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;

    #[test]
    fn mending_visits_fewer_nodes_than_passes_by_count_and_moves_the_same() {
        let (nodes, parts) = (600, 5);
        for seed in 0..8 {
            let dataset = &mut small::uniform(nodes, 1500, seed);
            let neighbors = Neighbors::sort(dataset, &Request::new(parts, 0), &Silent).unwrap();
            // Parts that begin too full, just right and, with the last seeds, all too small to take anyone.
            let slack = [0.3, 0.05, 0.0][seed as usize % 3];
            let start: Vec<u32> = (0..nodes as u32).map(|node| (node * node / 7) % parts).collect();
            let (mut mended, mut passed) = (
                Restream::new(&neighbors, start.clone(), parts, slack),
                Restream::new(&neighbors, start, parts, slack),
            );
            mended.mend(6, &Silent).unwrap();
            for _ in 0..6 {
                passed.pass("", &Silent, |count, _| f64::from(count)).unwrap();
            }
            assert_eq!(mended.finish(), passed.finish(), "seed {seed}");
        }
    }
}
