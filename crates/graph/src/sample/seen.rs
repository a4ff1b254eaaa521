//! Which rows were met already? Maps from numbers to rows that are emptied by counting on.

/// A map from small numbers.
#[derive(Debug, Default)]
pub(super) struct Stamped {
    slots: Vec<(u32, u32)>,
    now: u32,
}

impl Stamped {
    /// Empties the map and makes room for the numbers `0..len`.
    pub fn begin(&mut self, len: usize) {
        if self.slots.len() < len {
            self.slots.resize(len, (0, 0));
        }
        if self.now == u32::MAX {
            self.slots.fill((0, 0));
            self.now = 0;
        }
        self.now += 1;
    }

    pub fn get(&self, number: u32) -> Option<u32> {
        let (stamp, value) = self.slots[number as usize];
        (stamp == self.now).then_some(value)
    }

    pub fn insert(&mut self, number: u32, value: u32) {
        self.slots[number as usize] = (self.now, value);
    }
}

/// A map from global ids of any size: open addressing with linear probing, at most half full.
#[derive(Debug, Default)]
pub(super) struct Far {
    slots: Vec<Slot>,
    now: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    node: u64,
    stamp: u32,
    row: u32,
}

impl Far {
    /// Empties the map.
    pub fn begin(&mut self) {
        if self.now == u32::MAX {
            self.slots.fill(Slot::default());
            self.now = 0;
        }
        self.now += 1;
        self.len = 0;
    }

    /// The row of `node`, which is `row` from now on if it had none.
    pub fn get_or_insert(&mut self, node: u64, row: u32) -> u32 {
        if 2 * (self.len + 1) > self.slots.len() {
            self.grow();
        }
        let place = self.place(node);
        let slot = &mut self.slots[place];
        if slot.stamp != self.now {
            *slot = Slot { node, stamp: self.now, row };
            self.len += 1;
        }
        slot.row
    }

    /// Where `node` stands or would stand.
    fn place(&self, node: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = (node.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[place].stamp == self.now && self.slots[place].node != node {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(1024);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        for slot in old.into_iter().filter(|slot| slot.stamp == self.now) {
            let place = self.place(slot.node);
            self.slots[place] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_far_map_is_a_map_until_it_is_emptied() {
        let mut far = Far::default();
        for round in 0..3u64 {
            far.begin();
            let mut expected = HashMap::new();
            for i in 0..5000u64 {
                let node = ((i * i * (round + 7)) % 3001) << (i % 2 * 33);
                let next = expected.len() as u32;
                let row = *expected.entry(node).or_insert(next);
                assert_eq!(far.get_or_insert(node, next), row);
            }
        }
    }
}
