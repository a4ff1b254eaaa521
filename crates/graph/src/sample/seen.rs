//! Which rows were met already? Maps from numbers to rows that are emptied by counting on.

use crate::array::with_room;
use crate::store::Part;

/// A map from small numbers to values below 2^31. Four bytes per number: what is asked for all the time stays close.
#[derive(Debug, Default)]
pub(super) struct Stamped {
    /// A value stands as `base` more; what is below was there before the map was emptied.
    slots: Vec<u32>,
    base: u32,
    /// More than any slot holds.
    top: u32,
}

impl Stamped {
    /// Empties the map and makes room for the numbers `0..len`.
    pub fn begin(&mut self, len: usize) {
        if self.slots.len() < len {
            // Nothing of it is worth a copy: what was met before counts no more.
            (self.slots, self.top) = (with_room(len), 0);
            self.slots.resize(len, 0);
        }
        if self.top > u32::MAX / 2 {
            self.slots.fill(0);
            self.top = 0;
        }
        self.base = self.top.max(1);
    }

    #[inline]
    pub fn get(&self, number: u32) -> Option<u32> {
        self.slots[number as usize].checked_sub(self.base)
    }

    #[inline]
    pub fn insert(&mut self, number: u32, value: u32) {
        self.slots[number as usize] = self.base + value;
        self.top = self.top.max(self.base + value + 1);
    }
}

/// Which rows nodes of other parts have: a map from global ids.
///
/// Where the graph has few nodes for each row of the part, a slot for every node, which is found at once; else a hash.
#[derive(Debug)]
pub struct Met(Kind);

#[derive(Debug)]
enum Kind {
    Few(Stamped),
    Many(Hashed),
}

impl Default for Met {
    fn default() -> Self {
        Self(Kind::Many(Hashed::default()))
    }
}

impl Met {
    /// Nodes of the graph for each row of a part, up to which every node has a slot of four bytes.
    const FEW: u64 = 2;

    /// Empties the map; `part` is the one that meets nodes of others.
    pub fn begin(&mut self, part: &Part) {
        let nodes = part.starts().last().copied().unwrap_or(0);
        let few = nodes <= Self::FEW * part.rows() as u64 && nodes <= u64::from(u32::MAX);
        match &mut self.0 {
            Kind::Few(map) if few => map.begin(nodes as usize),
            Kind::Many(map) if !few => map.begin(),
            _ => {
                let other = if few { Kind::Few(Stamped::default()) } else { Kind::Many(Hashed::default()) };
                self.0 = other;
                self.begin(part);
            }
        }
    }

    /// The row of `node`, if it has one.
    #[inline]
    pub fn find(&self, node: u64) -> Option<u32> {
        match &self.0 {
            Kind::Few(map) => map.get(node as u32),
            Kind::Many(map) => map.get(node),
        }
    }

    /// The row of `node`, which is `row` from now on if it had none.
    #[inline]
    pub fn find_or_insert(&mut self, node: u64, row: u32) -> u32 {
        match &mut self.0 {
            Kind::Few(map) => map.get(node as u32).unwrap_or_else(|| {
                map.insert(node as u32, row);
                row
            }),
            Kind::Many(map) => map.get_or_insert(node, row),
        }
    }
}

/// A map from global ids of any size: open addressing with linear probing, at most half full.
#[derive(Debug, Default)]
struct Hashed {
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

impl Hashed {
    fn begin(&mut self) {
        if self.now == u32::MAX {
            self.slots.fill(Slot::default());
            self.now = 0;
        }
        self.now += 1;
        self.len = 0;
    }

    fn get(&self, node: u64) -> Option<u32> {
        // Before the first node there are no slots.
        let slot = (!self.slots.is_empty()).then(|| self.slots[self.place(node)])?;
        (slot.stamp == self.now).then_some(slot.row)
    }

    fn get_or_insert(&mut self, node: u64, row: u32) -> u32 {
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
    fn a_hashed_map_is_a_map_until_it_is_emptied() {
        let mut hashed = Hashed::default();
        assert_eq!(hashed.get(7), None);
        for round in 0..3u64 {
            hashed.begin();
            let mut expected = HashMap::new();
            for i in 0..5000u64 {
                let node = ((i * i * (round + 7)) % 3001) << (i % 2 * 33);
                let next = expected.len() as u32;
                assert_eq!(hashed.get(node), expected.get(&node).copied());
                let row = *expected.entry(node).or_insert(next);
                assert_eq!(hashed.get_or_insert(node, next), row);
            }
        }
    }

    #[test]
    fn a_stamped_map_is_a_map_until_it_is_emptied_also_when_it_has_counted_to_its_end() {
        let mut stamped = Stamped::default();
        for len in [10, 20, 15] {
            stamped.begin(len);
            assert!((0..len as u32).all(|number| stamped.get(number).is_none()));
            (0..len as u32).step_by(2).for_each(|number| stamped.insert(number, len as u32 - number));
            for number in 0..len as u32 {
                assert_eq!(stamped.get(number), (number % 2 == 0).then_some(len as u32 - number));
            }
            stamped.insert(1, u32::MAX / 2);
        }
    }
}
