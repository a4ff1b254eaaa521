//! How what is trained on is dealt out to ranks: an even share for each, its own first.
//!
//! Every rank brings the training nodes (or links) that its part owns. A rank that has more than an even share gives
//! the rest to those that have fewer, so that all make the same number of steps with batches of nearly the same
//! size; what was given away is remote where it is trained on. Shares differ by at most one.

use crate::Result;
use archipelago_comm::{Comm, Kind};
use bytemuck::Pod;
use std::ops::Range;

/// Who trains on how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares {
    /// Items of each rank.
    pub counts: Vec<usize>,
    /// How many items rank `from` gives to rank `to`.
    moves: Vec<Vec<usize>>,
}

impl Shares {
    /// Agrees on shares; this rank brings `mine` items.
    pub fn agree(comm: &Comm, mine: usize) -> Result<Self> {
        let brought = comm.all_gather(&[mine as u64], Kind::Control)?;
        Ok(Self::of(&brought.iter().map(|counts| counts[0] as usize).collect::<Vec<_>>()))
    }

    /// Everybody keeps what they have.
    pub fn kept(counts: Vec<usize>) -> Self {
        Self { counts, moves: Vec::new() }
    }

    /// The shares of ranks that bring so many items each.
    pub fn of(brought: &[usize]) -> Self {
        let (ranks, total) = (brought.len(), brought.iter().sum::<usize>());
        let counts: Vec<usize> = (0..ranks).map(|r| (r + 1) * total / ranks - r * total / ranks).collect();
        let mut moves = vec![vec![0; ranks]; ranks];
        let mut room: Vec<usize> = counts.iter().zip(brought).map(|(c, b)| c.saturating_sub(*b)).collect();
        let mut to = 0;
        for from in 0..ranks {
            let mut surplus = brought[from].saturating_sub(counts[from]);
            while surplus > 0 {
                let moved = surplus.min(room[to]);
                moves[from][to] += moved;
                room[to] -= moved;
                surplus -= moved;
                to += usize::from(room[to] == 0);
            }
        }
        Self { counts, moves }
    }

    /// Gives and takes: `items` holds `width` values for each item that this rank brings; the same for its share is
    /// returned, its own first.
    pub fn deal<T: Pod>(&self, comm: &Comm, mut items: Vec<T>, width: usize) -> Result<Vec<T>> {
        let mine = &self.moves[comm.rank()];
        let given: usize = mine.iter().sum();
        let mut rest = items.split_off(items.len() - given * width);
        let mut outgoing = Vec::with_capacity(mine.len());
        for &moved in mine {
            let further = rest.split_off(moved * width);
            outgoing.push(std::mem::replace(&mut rest, further));
        }
        items.extend(comm.all_to_all(outgoing, Kind::Control)?.into_iter().flatten());
        Ok(items)
    }

    /// Steps of an epoch in batches of `batch` items: the same for all ranks.
    pub fn steps(&self, batch: usize) -> u64 {
        self.counts.iter().max().copied().unwrap_or(0).div_ceil(batch) as u64
    }

    /// Items of `rank` in a step, counted in the order of its epoch; empty when it has run out.
    pub fn range(&self, rank: usize, batch: usize, step: u64) -> Range<usize> {
        let (count, start) = (self.counts[rank], step as usize * batch);
        start.min(count)..(start + batch).min(count)
    }

    /// Items of all ranks in a step.
    pub fn in_step(&self, batch: usize, step: u64) -> u64 {
        (0..self.counts.len()).map(|rank| self.range(rank, batch, step).len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_comm::{Config, launch};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_even_and_nobody_gives_and_takes(brought in prop::collection::vec(0usize..50, 1..8)) {
            let shares = Shares::of(&brought);
            let (least, most) = (shares.counts.iter().min(), shares.counts.iter().max());
            prop_assert!(most.unwrap() - least.unwrap() <= 1);
            for (rank, &count) in brought.iter().enumerate() {
                let given: usize = shares.moves[rank].iter().sum();
                let taken: usize = shares.moves.iter().map(|to| to[rank]).sum();
                prop_assert_eq!(count + taken - given, shares.counts[rank]);
                prop_assert!(given == 0 || taken == 0);
            }
        }

        #[test]
        fn the_steps_of_an_epoch_cover_every_item_once(brought in prop::collection::vec(0usize..50, 1..6), batch in 1usize..9) {
            let shares = Shares::of(&brought);
            let total: u64 = (0..shares.steps(batch)).map(|step| shares.in_step(batch, step)).sum();
            prop_assert_eq!(total as usize, brought.iter().sum::<usize>());
            for rank in 0..brought.len() {
                let ranges = (0..shares.steps(batch)).flat_map(|step| shares.range(rank, batch, step));
                prop_assert_eq!(ranges.collect::<Vec<_>>(), (0..shares.counts[rank]).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_one_rank_gives_away_another_gets_with_all_its_values() {
        let dealt = launch(&Config::threads(3), |comm| {
            let brought = [7usize, 0, 2][comm.rank()];
            let shares = Shares::agree(&comm, brought)?;
            let items = (0..2 * brought).map(|i| (100 * comm.rank() + i) as u64).collect();
            shares.deal(&comm, items, 2)
        });
        let dealt = dealt.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(dealt[0], (0..6).collect::<Vec<_>>());
        assert_eq!(dealt[1], (6..12).collect::<Vec<_>>());
        assert_eq!(dealt[2], [200, 201, 202, 203, 12, 13]);
    }
}
