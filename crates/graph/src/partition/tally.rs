//! How much of a node's edge weight goes to which label?
//!
//! Sums by label in an array as long as there are labels, and the list of labels that were met, so that counting a
//! node's neighbours costs what it has neighbours, however many labels there are. Memory: 8 bytes per label.

/// Sums by label.
pub(crate) struct Tally {
    sums: Vec<u64>,
    met: Vec<u32>,
}

impl Tally {
    /// Nothing met yet, of labels below `labels`.
    pub fn new(labels: usize) -> Self {
        Self { sums: vec![0; labels], met: Vec::new() }
    }

    /// Adds `weight`, which is not 0, to the sum of `label`.
    #[inline]
    pub fn add(&mut self, label: u32, weight: u64) {
        let sum = &mut self.sums[label as usize];
        if *sum == 0 {
            self.met.push(label);
        }
        *sum += weight;
    }

    /// The sum of `label`.
    #[inline]
    pub fn of(&self, label: u32) -> u64 {
        self.sums[label as usize]
    }

    /// Puts the labels that were met into ascending order; before, they are in the order of meeting.
    pub fn sort(&mut self) {
        self.met.sort_unstable();
    }

    /// Forgets all sums.
    pub fn clear(&mut self) {
        self.drain().for_each(drop);
    }

    /// The labels that were met with their sums; all are forgotten, provided that the iterator is run to its end.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let sums = &mut self.sums;
        self.met.drain(..).map(|label| (label, std::mem::take(&mut sums[label as usize])))
    }
}

/// Whether `sums[home]` is larger than all others.
#[inline]
pub(super) fn leads<T: PartialOrd>(sums: &[T], home: usize) -> bool {
    let (before, after) = (&sums[..home], &sums[home + 1..]);
    before.iter().chain(after).all(|sum| *sum < sums[home])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_largest_sum_leads() {
        assert_eq!([0, 1, 2].map(|home| leads(&[3, 5, 4], home)), [false, true, false]);
        assert!(!leads(&[5, 5], 0) && !leads(&[5, 5], 1), "neither of two");
        assert!(leads(&[0], 0));
    }

    #[test]
    fn sums_are_those_of_what_was_added_since_the_last_drain() {
        let mut tally = Tally::new(4);
        [(2, 5), (0, 1), (2, 1)].iter().for_each(|&(label, weight)| tally.add(label, weight));
        assert_eq!((tally.of(2), tally.of(1)), (6, 0));
        tally.sort();
        assert_eq!(tally.drain().collect::<Vec<_>>(), [(0, 1), (2, 6)]);
        tally.add(0, 3);
        assert_eq!(tally.drain().collect::<Vec<_>>(), [(0, 3)]);
    }
}
