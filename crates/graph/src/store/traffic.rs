//! Who sends how much to whom in a store: rows of halo from every part to every other.
//!
//! Halo ids are ascending and parts own contiguous ranges of them, so a part's column of the matrix is a search per
//! part in a mapped file: cheap for a store of any size.

use super::part::Files;
use super::{Store, layout};
use crate::Result;

/// Rows that cross from part to part when every halo row is sent once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    parts: usize,
    rows: Vec<u64>,
}

impl Traffic {
    /// No rows between `parts` parts.
    pub fn new(parts: usize) -> Self {
        Self { parts, rows: vec![0; parts * parts] }
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Rows that part `from` owns and part `to` needs.
    pub fn rows(&self, from: usize, to: usize) -> u64 {
        self.rows[from * self.parts + to]
    }

    /// `count` more rows from part `from` to part `to`.
    pub fn add(&mut self, from: usize, to: usize, count: u64) {
        self.rows[from * self.parts + to] += count;
    }

    /// The most rows that cross between any two parts.
    pub fn most(&self) -> u64 {
        self.rows.iter().copied().max().unwrap_or(0)
    }

    /// Rows from one part to all, part after part.
    pub fn lines(&self) -> impl Iterator<Item = &[u64]> {
        self.rows.chunks(self.parts.max(1))
    }

    /// The same between groups of `size` consecutive parts.
    pub fn grouped(&self, size: usize) -> Self {
        let mut groups = Self::new(self.parts.div_ceil(size.max(1)));
        for (from, line) in self.lines().enumerate() {
            for (to, &count) in line.iter().enumerate() {
                groups.add(from / size.max(1), to / size.max(1), count);
            }
        }
        groups
    }
}

impl Store {
    /// Counts the halo rows of every part by owner.
    pub fn traffic(&self) -> Result<Traffic> {
        let mut traffic = Traffic::new(self.manifest.parts.len());
        for (to, entry) in self.manifest.parts.iter().enumerate() {
            let folder = self.path.join(layout::part_folder(to as u32));
            let halo = Files { folder, entry }.map::<u64>(layout::HALO, entry.halo)?;
            let below: Vec<usize> =
                self.starts.iter().map(|&start| halo.partition_point(|&id| id < start)).collect();
            for (from, range) in below.windows(2).enumerate() {
                traffic.add(from, to, range[1].saturating_sub(range[0]) as u64);
            }
        }
        Ok(traffic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_add_up_the_rows_of_their_parts() {
        let mut traffic = Traffic::new(3);
        for (from, to, rows) in [(0, 1, 5), (1, 0, 2), (2, 0, 3), (0, 2, 7)] {
            traffic.add(from, to, rows);
        }
        let groups = traffic.grouped(2);
        assert_eq!(groups.lines().collect::<Vec<_>>(), [[7, 7], [3, 0]]);
        assert_eq!((traffic.most(), traffic.grouped(1)), (7, traffic));
    }
}
