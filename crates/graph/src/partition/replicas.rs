//! In which parts does a node have a copy? One set of parts per node, as bits.
//!
//! A set takes the number of parts rounded up to a power of two, in bits, and whole 64-bit words beyond 64 parts: a
//! set never straddles a word, 16 parts cost 2 bytes per node, and set operations are those of words.

use super::passes::prefetch;

/// A set of parts for every node.
#[derive(Debug)]
pub(crate) struct Replicas {
    bits: Vec<u64>,
    /// Words per set; 1 where several sets share a word.
    words: usize,
    /// A word holds `2^packed` sets.
    packed: u32,
    /// The bits of the first set in a word.
    mask: u64,
}

impl Replicas {
    /// Empty sets for `nodes` nodes and `parts` parts.
    pub fn new(nodes: usize, parts: u32) -> Self {
        let words = (parts as usize).div_ceil(64).max(1);
        let width = if words > 1 { 64 } else { parts.max(1).next_power_of_two() };
        let packed = 6 - width.trailing_zeros();
        let bits = vec![0; (nodes * words).div_ceil(1 << packed)];
        Self { bits, words, packed, mask: u64::MAX >> (64 - width) }
    }

    /// How many words a set has.
    #[inline]
    pub fn words(&self) -> usize {
        self.words
    }

    /// Word `word` of the set of `node`: bit `b` stands for part `64 * word + b`.
    #[inline]
    pub fn word(&self, node: usize, word: usize) -> u64 {
        let (index, shift) = self.place(node);
        (self.bits[index + word] >> shift) & self.mask
    }

    /// Whether `node` has a copy in `part`.
    #[inline]
    pub fn has(&self, node: usize, part: u32) -> bool {
        self.word(node, part as usize / 64) >> (part % 64) & 1 == 1
    }

    /// Whether `node` has a copy anywhere.
    pub fn any(&self, node: usize) -> bool {
        (0..self.words).any(|word| self.word(node, word) != 0)
    }

    /// Gives `node` a copy in `part`; whether it had none there.
    #[inline]
    pub fn add(&mut self, node: usize, part: u32) -> bool {
        let (index, shift) = self.place(node);
        let (word, bit) = (&mut self.bits[index + part as usize / 64], 1 << (shift + part % 64));
        let first = *word & bit == 0;
        *word |= bit;
        first
    }

    /// Has the sets of `nodes` on their way from memory.
    #[inline]
    pub fn prefetch(&self, nodes: [u32; 2]) {
        nodes.iter().for_each(|&node| prefetch(&self.bits, self.place(node as usize).0));
    }

    /// The first word of a set and where the set begins in it.
    #[inline]
    fn place(&self, node: usize) -> (usize, u32) {
        ((node * self.words) >> self.packed, (node << (6 - self.packed)) as u32 & 63)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sets_hold_what_was_added_to_them_and_nothing_else_for_any_number_of_parts() {
        for parts in [1, 2, 3, 8, 16, 33, 64, 65, 200] {
            let (mut replicas, mut sets) = (Replicas::new(50, parts), BTreeSet::new());
            for step in 0..300 {
                let (node, part) = (step as usize * 7 % 50, step * step % parts);
                assert_eq!(replicas.add(node, part), sets.insert((node, part)));
            }
            for node in 0..50 {
                let found: Vec<u32> = (0..parts).filter(|&part| replicas.has(node, part)).collect();
                let expected: Vec<u32> = (0..parts).filter(|&part| sets.contains(&(node, part))).collect();
                assert_eq!((found, replicas.any(node)), (expected.clone(), !expected.is_empty()), "{parts}");
            }
        }
    }

    #[test]
    fn sets_are_packed() {
        assert_eq!(Replicas::new(128, 4).bits.len(), 8);
        assert_eq!(Replicas::new(128, 5).bits.len(), 16);
        assert_eq!(Replicas::new(128, 65).bits.len(), 256);
        assert_eq!(Replicas::new(0, 3).bits.len(), 0);
    }
}
