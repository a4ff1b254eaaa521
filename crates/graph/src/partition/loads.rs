//! How many edges does each part hold, and which part holds fewest?
//!
//! The least and the most loaded are known at any time in O(1): loads only grow, so the sweeps for the next least
//! loaded part cost O(parts) per level of load, and there are at most edges / parts levels.

/// Edges per part.
#[derive(Debug, Clone)]
pub(super) struct Loads {
    counts: Vec<u64>,
    most: u64,
    /// The first part among those with the smallest load.
    least: usize,
}

impl Loads {
    /// `parts` parts without edges; at least one.
    pub fn new(parts: u32) -> Self {
        Self { counts: vec![0; parts as usize], most: 0, least: 0 }
    }

    /// One more edge for `part`.
    #[inline]
    pub fn add(&mut self, part: u32) {
        let count = self.counts[part as usize] + 1;
        self.counts[part as usize] = count;
        self.most = self.most.max(count);
        if part as usize == self.least {
            self.find_least(count - 1);
        }
    }

    /// The edges of `part`.
    #[inline]
    pub fn of(&self, part: u32) -> u64 {
        self.counts[part as usize]
    }

    /// The most edges of any part.
    #[inline]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// The part with the fewest edges; ties: the lower number.
    #[inline]
    pub fn least(&self) -> u32 {
        self.least as u32
    }

    /// The part with the fewest edges among those in a set of `words` words, if any; ties: the lower number.
    #[inline]
    pub fn least_of(&self, words: usize, set: impl Fn(usize) -> u64) -> Option<u32> {
        if set(self.least / 64) >> (self.least % 64) & 1 == 1 {
            return Some(self.least as u32);
        }
        let mut best = (u64::MAX, None);
        for word in 0..words {
            let mut rest = set(word);
            while rest != 0 {
                let part = 64 * word + rest.trailing_zeros() as usize;
                let count = self.counts[part];
                if count < best.0 {
                    best = (count, Some(part as u32));
                }
                rest &= rest - 1;
            }
        }
        best.1
    }

    /// The least loaded part has left the level `load`: the next on it, or the first on the next level.
    fn find_least(&mut self, load: u64) {
        let after = self.least + 1;
        let same = self.counts[after..].iter().position(|&count| count == load);
        self.least = same.map_or_else(
            || (0..self.counts.len()).min_by_key(|&part| self.counts[part]).unwrap_or(0),
            |position| after + position,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_and_most_are_those_of_a_search_through_all_parts() {
        let mut loads = Loads::new(70);
        for step in 0u32..5_000 {
            loads.add(if step % 3 == 0 { loads.least() } else { step * step % 70 });
            let first = (0..70).min_by_key(|&part| (loads.of(part), part));
            assert_eq!(Some(loads.least()), first);
            assert_eq!(loads.most(), (0..70).map(|part| loads.of(part)).max().unwrap());
            let odd = |_: usize| 0xaaaa_aaaa_aaaa_aaaa;
            let set = |word| if word == 0 { odd(0) } else { odd(1) & 0x3f };
            let expected = (0..70).filter(|part| part % 2 == 1).min_by_key(|&part| (loads.of(part), part));
            assert_eq!(loads.least_of(2, set), expected);
        }
        assert_eq!(loads.least_of(2, |_| 0), None);
    }
}
