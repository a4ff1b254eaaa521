//! Which edges between two parts should their target's owner hold, so that fewest rows cross?
//!
//! An edge that its target's owner holds needs the row of its source, once for all such edges of the source; one that its
//! source's owner holds needs a partial aggregate of its target, once for all such edges of the target. Rows that cross are
//! thus a vertex cover of the edges from one part to another, and the fewest are a smallest one. By König's theorem it is as
//! large as a largest matching and follows from it: with `Z` what alternating paths reach from sources without a partner,
//! sources outside `Z` and targets inside it.
//!
//! The matching is Hopcroft and Karp's (SIAM J. Comput. 1973): `edges * sqrt(nodes)` steps at most, by far fewer in
//! practice. Memory: 4 bytes per edge that is cut, 12 per node at either end.

use archipelago_graph::{GlobalId, Part};

/// No partner.
const NONE: u32 = u32::MAX;

/// For each node of the part's halo: whether its row should cross, because it is in a smallest cover of the edges that come
/// from its owner.
pub(super) fn crossing(part: &Part) -> Vec<bool> {
    let halo = part.halo();
    let (offsets, targets) = edges_by_source(part);
    let mut crosses = vec![false; halo.len()];
    let mut start = 0;
    while start < halo.len() {
        let owner = part.owner_of(GlobalId(halo[start])).index();
        let end = start + halo[start..].partition_point(|&node| node < part.starts()[owner + 1]);
        let edges = Edges { offsets: &offsets[start..=end], targets: &targets };
        edges.cover(part.owned(), &mut crosses[start..end]);
        start = end;
    }
    crosses
}

/// The edges from the halo, by source: where those of each begin, and their targets.
fn edges_by_source(part: &Part) -> (Vec<usize>, Vec<u32>) {
    let (lists, sources, owned) = (part.offsets(), part.sources(), part.owned());
    let mut offsets = vec![0; part.halo().len() + 1];
    let of_halo = |source: &u32| (*source as usize).checked_sub(owned);
    sources.iter().filter_map(of_halo).for_each(|at| offsets[at + 1] += 1);
    (1..offsets.len()).for_each(|at| offsets[at] += offsets[at - 1]);
    let (mut next, mut targets) = (offsets.clone(), vec![0; offsets[part.halo().len()]]);
    for row in 0..owned {
        for at in sources[lists[row] as usize..lists[row + 1] as usize].iter().filter_map(of_halo) {
            targets[next[at]] = row as u32;
            next[at] += 1;
        }
    }
    (offsets, targets)
}

/// Edges from some sources to targets.
struct Edges<'a> {
    /// Where those of each source begin; one more than there are sources.
    offsets: &'a [usize],
    targets: &'a [u32],
}

/// A matching in the making.
struct Matching {
    /// Source of each target.
    of_target: Vec<u32>,
    /// Target of each source.
    of_source: Vec<u32>,
    /// Shortest alternating path to each source from one without a partner, in edges of the matching; `NONE`: there is none.
    distance: Vec<u32>,
    /// The next edge that a search tries, of each source.
    next: Vec<usize>,
}

impl Edges<'_> {
    fn of(&self, source: usize) -> &[u32] {
        &self.targets[self.offsets[source]..self.offsets[source + 1]]
    }

    /// Marks the sources of a smallest cover; targets are fewer than `targets`.
    fn cover(&self, targets: usize, marks: &mut [bool]) {
        let sources = self.offsets.len() - 1;
        let mut matching = Matching {
            of_target: vec![NONE; targets],
            of_source: vec![NONE; sources],
            distance: vec![NONE; sources],
            next: vec![0; sources],
        };
        while matching.reach(self) {
            matching.next.copy_from_slice(&self.offsets[..sources]);
            for source in 0..sources as u32 {
                if matching.of_source[source as usize] == NONE {
                    matching.grow(self, source);
                }
            }
        }
        marks.iter_mut().zip(&matching.distance).for_each(|(mark, &distance)| *mark = distance == NONE);
    }
}

impl Matching {
    /// Measures distances, breadth first; whether some path leads to a target without a partner.
    fn reach(&mut self, edges: &Edges<'_>) -> bool {
        self.distance.fill(NONE);
        let free = (0..self.of_source.len() as u32).filter(|&source| self.of_source[source as usize] == NONE);
        let mut reached: Vec<u32> = free.collect();
        reached.iter().for_each(|&source| self.distance[source as usize] = 0);
        let (mut at, mut grows) = (0, false);
        while at < reached.len() {
            let source = reached[at] as usize;
            at += 1;
            for &target in edges.of(source) {
                match self.of_target[target as usize] {
                    NONE => grows = true,
                    other if self.distance[other as usize] == NONE => {
                        self.distance[other as usize] = self.distance[source] + 1;
                        reached.push(other);
                    }
                    _ => {}
                }
            }
        }
        grows
    }

    /// Searches a path that gets longer with every source, from `first` to a target without a partner, and exchanges partners
    /// along it.
    fn grow(&mut self, edges: &Edges<'_>, first: u32) {
        let mut path = vec![first];
        while let Some(&source) = path.last() {
            let source = source as usize;
            if self.next[source] == edges.offsets[source + 1] {
                path.pop();
                continue;
            }
            let target = edges.targets[self.next[source]];
            self.next[source] += 1;
            match self.of_target[target as usize] {
                NONE => return self.exchange(target, path),
                other if self.distance[other as usize] == self.distance[source] + 1 => path.push(other),
                _ => {}
            }
        }
    }

    /// Gives the last source of the path this target, the one before it the target that it had, and so on.
    fn exchange(&mut self, mut target: u32, path: Vec<u32>) {
        for source in path.into_iter().rev() {
            self.of_target[target as usize] = source;
            target = std::mem::replace(&mut self.of_source[source as usize], target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The sources of a smallest cover of these lists of targets.
    fn cover(lists: &[Vec<u32>], targets: usize) -> Vec<bool> {
        let mut offsets = vec![0];
        lists.iter().for_each(|list| offsets.push(offsets[offsets.len() - 1] + list.len()));
        let mut marks = vec![false; lists.len()];
        Edges { offsets: &offsets, targets: &lists.concat() }.cover(targets, &mut marks);
        marks
    }

    /// How many rows cross if those of marked sources do.
    fn rows(lists: &[Vec<u32>], marks: &[bool]) -> usize {
        let rest = lists.iter().zip(marks).filter(|(_, mark)| !**mark).flat_map(|(list, _)| list);
        let targets: std::collections::BTreeSet<_> = rest.collect();
        targets.len() + marks.iter().filter(|mark| **mark).count()
    }

    proptest! {
        #[test]
        fn no_choice_of_sources_makes_fewer_rows_cross(
            lists in prop::collection::vec(prop::collection::vec(0u32..8, 0..6), 0..9),
        ) {
            let least = (0..1u32 << lists.len()).map(|choice| {
                let marks: Vec<bool> = (0..lists.len()).map(|at| choice >> at & 1 > 0).collect();
                rows(&lists, &marks)
            });
            prop_assert_eq!(rows(&lists, &cover(&lists, 8)), least.min().unwrap_or(0));
        }
    }

    #[test]
    fn a_hub_crosses_once_whichever_end_it_is() {
        assert_eq!(cover(&[vec![0, 1, 2, 3]], 4), [true]);
        assert_eq!(cover(&[vec![2], vec![2], vec![2]], 4), [false; 3]);
        assert_eq!(cover(&[vec![0, 1, 2], vec![3], vec![3]], 4), [true, false, false]);
    }
}
