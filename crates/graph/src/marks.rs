//! Which nodes are needed, and in what place does each stand among them? A bit per node of the graph, with counts.

/// A set of global ids that can say how many smaller members a member has.
#[derive(Debug, Clone)]
pub struct Marks {
    words: Vec<u64>,
    /// Members before each word.
    before: Vec<u32>,
}

impl Marks {
    /// An empty set of ids below `nodes`.
    pub fn new(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)], before: vec![0; nodes.div_ceil(64)] }
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds `id`.
    pub fn mark(&mut self, id: u64) {
        self.words[id as usize / 64] |= 1 << (id % 64);
    }

    /// The members in ascending order; from now on until the next mark, [`rank`](Self::rank) may be asked.
    pub fn ranked(&mut self) -> Vec<u64> {
        let mut members = Vec::new();
        for (index, &word) in self.words.iter().enumerate() {
            self.before[index] = members.len() as u32;
            let mut rest = word;
            while rest != 0 {
                members.push(index as u64 * 64 + u64::from(rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        members
    }

    /// How many members are smaller than the member `id`.
    pub fn rank(&self, id: u64) -> u32 {
        let word = id as usize / 64;
        let below = self.words[word] & ((1 << (id % 64)) - 1);
        self.before[word] + below.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn members_come_in_ascending_order_and_know_their_place(ids in prop::collection::btree_set(0u64..300, 0..40)) {
            let mut marks = Marks::new(300);
            ids.iter().rev().chain(&ids).for_each(|&id| marks.mark(id));
            let members = marks.ranked();
            prop_assert!(members.iter().eq(&ids));
            prop_assert!(members.iter().zip(0..).all(|(&id, place)| marks.rank(id) == place));
            marks.clear();
            prop_assert!(marks.ranked().is_empty());
        }
    }
}
