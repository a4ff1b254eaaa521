//! Rows of other ranks that a rank has to do with, and its own rows that others have to do with: the two ends of a route.

use crate::Result;
use archipelago_comm::{Comm, Kind};
use bytemuck::Pod;

/// Rows of other ranks, numbered rank by rank.
#[derive(Debug, Default)]
pub(super) struct Remote {
    /// Row of each at its owner.
    pub rows: Vec<u32>,
    /// Where those of each rank begin; one more than there are ranks.
    pub starts: Vec<usize>,
    /// For each rank: our rows among its remote ones, in its order.
    pub wanted: Vec<Vec<u32>>,
}

impl Remote {
    /// Tells every rank which of its rows are remote rows here, in the order in which they are numbered.
    pub fn agree(comm: &Comm, of_ranks: Vec<Vec<u32>>) -> Result<Self> {
        let mut starts = vec![0];
        starts.extend(of_ranks.iter().scan(0, |end, rows| {
            *end += rows.len();
            Some(*end)
        }));
        let rows = of_ranks.concat();
        Ok(Self { rows, starts, wanted: comm.all_to_all(of_ranks, Kind::Control)? })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many of these remote rows, ascending, each rank owns.
    pub fn counts(&self, listed: &[u32]) -> Vec<usize> {
        let before = |end: usize| listed.partition_point(|&at| (at as usize) < end);
        self.starts.windows(2).map(|ends| before(ends[1]) - before(ends[0])).collect()
    }

    /// These remote rows, ascending, as rows of their owners, for each rank.
    pub fn by_owner(&self, listed: &[u32]) -> Vec<Vec<u32>> {
        let mut rest = listed;
        let of_rank = |count: usize| {
            let (of_rank, others) = rest.split_at(count);
            rest = others;
            of_rank.iter().map(|&at| self.rows[at as usize]).collect()
        };
        self.counts(listed).into_iter().map(of_rank).collect()
    }

    /// Values of all remote rows, from what is `known` of ours.
    pub fn values<T: Pod>(&self, comm: &Comm, known: &[T]) -> Result<Vec<T>> {
        let told = self.wanted.iter().map(|rows| rows.iter().map(|&row| known[row as usize]).collect());
        Ok(comm.all_to_all::<T>(told.collect(), Kind::Control)?.concat())
    }

    /// What each rank has to say of our rows among its remote ones, where `said` is what we have to say of ours: a row
    /// and a value at a time, in rank order.
    pub fn return_values<T: Pod>(
        &self,
        comm: &Comm,
        said: &[T],
        mut each: impl FnMut(usize, T),
    ) -> Result<()> {
        let told = self.starts.windows(2).map(|ends| said[ends[0]..ends[1]].to_vec()).collect();
        let heard = comm.all_to_all::<T>(told, Kind::Control)?;
        for (rows, values) in self.wanted.iter().zip(heard) {
            rows.iter().zip(values).for_each(|(&row, value)| each(row as usize, value));
        }
        Ok(())
    }
}
