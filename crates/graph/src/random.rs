//! Counter-based random numbers: every draw is a function of what it is for, never of who draws it or when.
//!
//! A [`Key`] is built from the seed, the purpose and whatever else identifies the draw (epoch, step, layer,
//! original node id, …); numbers are then read from it by counter. So a result cannot depend on the number of
//! workers or threads, or on the order in which messages arrive.

/// What a draw is for. Two purposes never share numbers. The place in this list is part of every draw: new purposes
/// stand at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Initial weights.
    Init,
    /// Dropout masks on node rows.
    Dropout,
    /// Dropout masks on attention coefficients.
    AttentionDropout,
    /// Neighbour sampling.
    Sample,
    /// The order of targets in an epoch.
    Shuffle,
    /// Assigning nodes to parts.
    Partition,
    /// Synthetic graphs.
    Generate,
    /// Splits made by us.
    Split,
    /// Links that are not there.
    Negative,
    /// Numbers that are rounded up or down at random.
    Rounding,
    /// The same for rows on the wire.
    RowRounding,
    /// Which source nodes send in which step.
    Chunk,
    /// Which boundary nodes send in a step.
    Boundary,
    /// Which parts make up a batch.
    Cluster,
}

/// The identity of a stream of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Key {
    /// The stream for `purpose` in a run with this `seed`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN))).with(purpose as u64)
    }

    /// The sub-stream for one `value` of one more coordinate: an epoch, a layer, a node, …
    #[must_use]
    pub fn with(self, value: u64) -> Self {
        Self(mix(self.0 ^ mix(value.wrapping_add(GOLDEN))))
    }

    /// 64 random bits, the `counter`-th of this stream.
    pub fn bits(self, counter: u64) -> u64 {
        mix(self.0.wrapping_add(counter.wrapping_mul(GOLDEN)))
    }

    /// A number in `[0, 1)`.
    pub fn unit(self, counter: u64) -> f64 {
        (self.bits(counter) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A number in `0..bound` (multiply-shift; the bias is below `bound / 2^64`). `bound` must not be 0.
    pub fn below(self, counter: u64, bound: u64) -> u64 {
        ((u128::from(self.bits(counter)) * u128::from(bound)) >> 64) as u64
    }

    /// A standard normal number (Box–Muller); uses two counters of its own stream per draw.
    pub fn normal(self, counter: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit(2 * counter)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit(2 * counter + 1)).cos()
    }

    /// Where `item` stands in a random order of `0..count`: a bijection that nobody has to write down (a Feistel network
    /// over the next power of 4, walked until it is back below `count`). `item` must be below `count`.
    pub fn place(self, item: u64, count: u64) -> u64 {
        const ROUNDS: u64 = 4;
        let half = (64 - count.saturating_sub(1).leading_zeros()).div_ceil(2);
        let low = (1u64 << half) - 1;
        let mut place = item;
        loop {
            let (mut left, mut right) = (place >> half, place & low);
            for round in 0..ROUNDS {
                (left, right) = (right, left ^ (self.bits(right * ROUNDS + round) & low));
            }
            place = left << half | right;
            if place < count {
                return place;
            }
        }
    }

    /// Shuffles `items` in place (Fisher–Yates).
    pub fn shuffle<T>(self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64, i as u64 + 1) as usize);
        }
    }
}

/// The finaliser of splitmix64: a bijection on 64 bits in which every input bit moves every output bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_every_coordinate_and_on_nothing_else() {
        let draw = |seed, purpose, epoch, node| Key::new(seed, purpose).with(epoch).with(node).bits(0);
        let first = draw(1, Purpose::Dropout, 2, 3);
        assert_eq!(first, draw(1, Purpose::Dropout, 2, 3));
        for other in [
            draw(2, Purpose::Dropout, 2, 3),
            draw(1, Purpose::Sample, 2, 3),
            draw(1, Purpose::Dropout, 3, 2),
            draw(1, Purpose::Dropout, 2, 4),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn below_is_even_and_normal_has_mean_0_and_variance_1() {
        let key = Key::new(7, Purpose::Generate);
        let mut counts = [0u32; 10];
        let (mut sum, mut squares) = (0.0, 0.0);
        for i in 0..100_000 {
            counts[key.below(i, 10) as usize] += 1;
            let z = key.with(1).normal(i);
            sum += z;
            squares += z * z;
        }
        assert!(counts.iter().all(|&n| (9_600..10_400).contains(&n)), "{counts:?}");
        assert!((sum / 1e5).abs() < 0.02 && (squares / 1e5 - 1.0).abs() < 0.02, "{sum} {squares}");
    }

    #[test]
    fn places_are_a_permutation_that_looks_random() {
        for count in [1u64, 2, 3, 5, 64, 65, 1000, 4097] {
            let key = Key::new(11, Purpose::Chunk).with(count);
            let mut places: Vec<u64> = (0..count).map(|item| key.place(item, count)).collect();
            if count > 500 {
                // Half of all neighbours swap their order, and the first half is spread over both halves.
                let descents = places.windows(2).filter(|pair| pair[0] > pair[1]).count() as f64;
                assert!((descents / count as f64 - 0.5).abs() < 0.05, "{descents} descents in {count}");
                let low = places[..count as usize / 2].iter().filter(|&&place| place < count / 2).count();
                assert!((low as f64 / count as f64 - 0.25).abs() < 0.04, "{low} of {count}");
            }
            places.sort_unstable();
            assert_eq!(places, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..1000).collect();
        Key::new(3, Purpose::Shuffle).shuffle(&mut items);
        assert_ne!(items, (0..1000).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..1000).collect::<Vec<_>>());
    }
}
