//! How much was said, about what, and how long this rank waited to hear it.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Index, IndexMut, Sub};

/// What a message carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Input features of nodes.
    Features,
    /// Rows computed by a layer.
    Embeddings,
    /// Gradients of rows or weights.
    Gradients,
    /// Weights of the model.
    Weights,
    /// Everything that is not data: counts, losses, barriers, set-up.
    Control,
}

impl Kind {
    /// All kinds, in the order in which they are reported.
    pub const ALL: [Self; 5] =
        [Self::Features, Self::Embeddings, Self::Gradients, Self::Weights, Self::Control];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Features => "features",
            Self::Embeddings => "embeddings",
            Self::Gradients => "gradients",
            Self::Weights => "weights",
            Self::Control => "control",
        }
    }
}

/// The meter of one kind on one rank. What a rank sends to itself is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Meter {
    /// Payload bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Messages sent to other ranks, empty ones included.
    pub messages_sent: u64,
    /// Seconds spent waiting for messages.
    pub seconds_waited: f64,
}

impl Add for Meter {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent + other.bytes_sent,
            messages_sent: self.messages_sent + other.messages_sent,
            seconds_waited: self.seconds_waited + other.seconds_waited,
        }
    }
}

impl Sub for Meter {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            messages_sent: self.messages_sent - earlier.messages_sent,
            seconds_waited: self.seconds_waited - earlier.seconds_waited,
        }
    }
}

impl Sum for Meter {
    fn sum<I: Iterator<Item = Self>>(meters: I) -> Self {
        meters.fold(Self::default(), Add::add)
    }
}

/// One [`Meter`] per [`Kind`]: read with `meters[Kind::Gradients]`, subtract an earlier reading for a delta.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Meters([Meter; 5]);

impl Meters {
    /// All kinds together.
    pub fn total(&self) -> Meter {
        self.0.iter().copied().sum()
    }

    /// Every kind with its meter, in the order of [`Kind::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Kind, Meter)> + '_ {
        Kind::ALL.into_iter().zip(self.0)
    }
}

impl Index<Kind> for Meters {
    type Output = Meter;

    fn index(&self, kind: Kind) -> &Meter {
        &self.0[kind as usize]
    }
}

impl IndexMut<Kind> for Meters {
    fn index_mut(&mut self, kind: Kind) -> &mut Meter {
        &mut self.0[kind as usize]
    }
}

impl Add for Meters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
}

impl AddAssign for Meters {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Meters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - earlier.0[i]))
    }
}

impl Sum for Meters {
    fn sum<I: Iterator<Item = Self>>(meters: I) -> Self {
        meters.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_reading_minus_an_earlier_one_is_what_happened_between() {
        let mut meters = Meters::default();
        meters[Kind::Features].bytes_sent = 10;
        let earlier = meters;
        meters[Kind::Features] =
            meters[Kind::Features] + Meter { bytes_sent: 5, messages_sent: 1, seconds_waited: 0.5 };
        meters[Kind::Control].messages_sent = 2;
        let delta = meters - earlier;
        assert_eq!(delta[Kind::Features], Meter { bytes_sent: 5, messages_sent: 1, seconds_waited: 0.5 });
        assert_eq!(delta.total(), Meter { bytes_sent: 5, messages_sent: 3, seconds_waited: 0.5 });
        assert_eq!(earlier + delta, meters);
        assert_eq!([earlier, delta].into_iter().sum::<Meters>(), meters);
    }

    #[test]
    fn every_kind_has_its_own_meter_and_name() {
        for (i, kind) in Kind::ALL.into_iter().enumerate() {
            let mut meters = Meters::default();
            meters[kind].bytes_sent = 1;
            let read: Vec<u64> = meters.iter().map(|(_, meter)| meter.bytes_sent).collect();
            assert_eq!(read.iter().position(|&bytes| bytes == 1), Some(i), "{}", kind.name());
        }
    }
}
