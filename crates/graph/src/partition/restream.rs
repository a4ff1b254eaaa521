//! Node by node: which part do most of a node's neighbours lie in, and has it room?
//!
//! A pass visits every node with its whole neighbour list and puts it where a score says, given how many of its
//! neighbours each part holds and how full the parts are. The first pass of a node-streaming method starts from
//! nothing; further passes start from the last assignment (restreaming, Nishimura & Ugander 2013), and so can mend
//! what any other method made.
//!
//! Memory: the assignment and [`Neighbors`], 8 bytes per node, and O(parts).

use super::neighbors::Neighbors;
use super::packing::room;
use super::passes::small_nodes;
use super::settings::{Setting, Values};
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
            let home = part_of[node as usize];
            if home != NOWHERE {
                sizes[home as usize] -= 1;
            }
            let best = best_part(&counts, sizes, *room, home, &score);
            sizes[best as usize] += 1;
            part_of[node as usize] = best;
            moved += u64::from(best != home);
        })?;
        Ok(moved)
    }

    /// The assignment.
    pub fn finish(self) -> Assignment {
        Assignment { parts: self.sizes.len() as u32, part_of: self.part_of }
    }
}

fn best_part(counts: &[u32], sizes: &[u64], room: u64, home: u32, score: impl Fn(u32, u64) -> f64) -> u32 {
    let mut best: Option<(f64, bool, u64, usize)> = None;
    for part in (0..counts.len()).filter(|&part| sizes[part] < room) {
        let rank = (score(counts[part], sizes[part]), part == home as usize, sizes[part], part);
        let better = match best {
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
