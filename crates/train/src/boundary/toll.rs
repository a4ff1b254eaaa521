//! What crossing took: rows sent, blocks that were not sent again, and how old what was read is.

/// What crossing took on one rank since it was last asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Toll {
    /// Steps.
    pub steps: u64,
    /// Rows sent to other ranks, gradients of rows included.
    pub rows: u64,
    /// Blocks of rows that other ranks were sent.
    pub sent: u64,
    /// Blocks whose last version served once more.
    pub skipped: u64,
    /// How many versions behind the rows were that each layer read.
    pub gaps: Vec<Gaps>,
}

impl Toll {
    /// Counts `rows` rows that `layer` read, `gap` versions behind.
    pub fn read(&mut self, layer: usize, gap: f32, rows: u64) {
        if self.gaps.len() <= layer {
            self.gaps.resize(layer + 1, Gaps::default());
        }
        self.gaps[layer].count(gap, rows);
    }
}

impl Toll {
    /// Takes in what crossing took elsewhere; gaps are not known there.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.rows += other.rows;
        self.sent += other.sent;
        self.skipped += other.skipped;
    }

    /// How many facts stand before the gaps of the layers.
    pub const COUNTS: usize = 4;

    /// All of it as a list that can be added up: steps, rows, blocks sent, blocks skipped, then the gaps of each of
    /// `layers` layers.
    pub fn facts(&self, layers: usize) -> Vec<u64> {
        let mut facts = vec![self.steps, self.rows, self.sent, self.skipped];
        for layer in 0..layers {
            facts.extend(self.gaps.get(layer).copied().unwrap_or_default().0);
        }
        facts
    }
}

/// How many rows were how many versions behind: 0, 1, 2 to 3, 4 to 7, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gaps(pub [u64; Gaps::BINS]);

impl Gaps {
    /// The last bin holds everything from 512 versions on.
    pub const BINS: usize = 11;

    /// Counts `rows` rows. A gap that is a mean is rounded.
    pub fn count(&mut self, gap: f32, rows: u64) {
        let gap = gap.round().max(0.0) as u64;
        let bin = (u64::BITS - gap.leading_zeros()) as usize;
        self.0[bin.min(Self::BINS - 1)] += rows;
    }

    /// The first gap of a bin.
    pub fn first(bin: usize) -> u64 {
        if bin == 0 { 0 } else { 1 << (bin - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_in_bins_that_double() {
        let mut gaps = Gaps::default();
        for gap in [0.0, 0.4, 0.6, 1.0, 2.0, 3.0, 4.0, 7.4, 8.0, 511.0, 512.0, 1e9] {
            gaps.count(gap, 1);
        }
        assert_eq!(gaps.0, [2, 2, 2, 2, 1, 0, 0, 0, 0, 1, 2]);
        assert_eq!([0, 1, 2, 3, 10].map(Gaps::first), [0, 1, 2, 4, 512]);
    }
}
