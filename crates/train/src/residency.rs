//! Which parts are in memory where and when.
//!
//! Where all parts are resident, every rank holds the part of its number for the whole run. With fewer ranks than
//! parts, an epoch runs in phases: in phase `f` rank `r` of `M` holds part `f M + r`. So part `p` always belongs to
//! rank `p mod M`, which reads its files and answers for its nodes, in memory or not.

use archipelago_graph::PartId;

/// The turns that parts take on ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    parts: usize,
    ranks: usize,
}

impl Turns {
    /// `parts` parts on at most as many `ranks`.
    pub fn new(parts: usize, ranks: usize) -> Self {
        Self { parts, ranks: ranks.clamp(1, parts.max(1)) }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Phases of an epoch: 1 where all parts are resident.
    pub fn phases(&self) -> usize {
        self.parts.div_ceil(self.ranks).max(1)
    }

    /// Whether parts take turns at all.
    pub fn rotate(&self) -> bool {
        self.phases() > 1
    }

    /// The part that `rank` holds in a phase; none in the last one where parts have run out.
    pub fn part(&self, rank: usize, phase: usize) -> Option<PartId> {
        let part = phase * self.ranks + rank;
        (part < self.parts).then_some(PartId(part as u32))
    }

    /// The parts that are resident in a phase, in rank order.
    pub fn of_phase(&self, phase: usize) -> impl Iterator<Item = PartId> + use<> {
        let turns = *self;
        (0..self.ranks).filter_map(move |rank| turns.part(rank, phase))
    }

    /// The rank that a part belongs to.
    pub fn rank_of(&self, part: PartId) -> usize {
        part.index() % self.ranks
    }

    /// The parts that belong to `rank`, in the order of their phases.
    pub fn of_rank(&self, rank: usize) -> impl Iterator<Item = PartId> + use<> {
        let turns = *self;
        (0..self.phases()).filter_map(move |phase| turns.part(rank, phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_part_has_one_turn_in_an_epoch_on_the_rank_it_belongs_to(parts in 1usize..40, ranks in 1usize..50) {
            let turns = Turns::new(parts, ranks);
            let mut seen = vec![0; parts];
            for phase in 0..turns.phases() {
                for (rank, part) in turns.of_phase(phase).enumerate() {
                    prop_assert_eq!(turns.rank_of(part), rank);
                    seen[part.index()] += 1;
                }
            }
            prop_assert!(seen.iter().all(|&turns| turns == 1));
            let of_ranks: usize = (0..ranks.min(parts)).map(|rank| turns.of_rank(rank).count()).sum();
            prop_assert_eq!(of_ranks, parts);
            prop_assert_eq!(turns.rotate(), ranks < parts);
        }
    }
}
