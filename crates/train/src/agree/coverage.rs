//! How much a gradient counts that was made of a part of every neighbourhood (Grappa, section 3.4).
//!
//! On an island a target `v` hears of `d_local` of its `d_global` in-edges. Its coverage is `d_local / d_global`, 1
//! for a node without in-edges. A batch of targets `S` is corrected before gradients are summed:
//!
//! | correction | what the batch's gradient is multiplied by |
//! | --- | --- |
//! | `none` | 1 |
//! | `uniform` | `c = mean_v min(1, d_local / d_global)` (12) |
//! | `resampling` | `c = 1 / (1 + mean_v [(d_global / d_local - 1) s_v])`, `s_v` neighbours drawn |
//! | `node` | nothing; the loss of each target is, by its own coverage (9) |
//!
//! The paper's (18) is a sum without the 1 and divides by zero where coverage is complete; `resampling` is its finite
//! form. A target without a local in-edge contributes 0 to either mean.

use crate::run::Correction;

/// Coverage of the targets of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coverage {
    /// Mean share of a target's in-edges that are on the island.
    pub mean: f64,
    /// Mean of `(d_global / d_local - 1) s_v`.
    pub resampled: f64,
}

impl Coverage {
    /// Of these items, whose targets have such `shares` of their in-edges here, and whose last layer reads `drawn(i)`
    /// in-edges of the `i`-th of them; none for an empty batch.
    pub fn of(shares: &[f32], items: &[u32], drawn: impl Fn(usize) -> usize) -> Option<Self> {
        if items.is_empty() {
            return None;
        }
        let (mut mean, mut resampled) = (0.0, 0.0);
        for (at, &item) in items.iter().enumerate() {
            let share = f64::from(shares[item as usize]);
            mean += share;
            if share > 0.0 {
                resampled += (1.0 / share - 1.0) * drawn(at) as f64;
            }
        }
        let count = items.len() as f64;
        Some(Self { mean: mean / count, resampled: resampled / count })
    }

    /// What the batch's gradient is multiplied by.
    pub fn factor(&self, correction: Correction) -> f32 {
        match correction {
            Correction::None | Correction::Node => 1.0,
            Correction::Uniform => self.mean as f32,
            Correction::Resampling => (1.0 / (1.0 + self.resampled)) as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(shares: &[f32], drawn: &[usize]) -> Coverage {
        let items: Vec<u32> = (0..shares.len() as u32).collect();
        Coverage::of(shares, &items, |at| drawn[at]).unwrap()
    }

    #[test]
    fn complete_coverage_corrects_nothing_and_half_of_it_halves() {
        let whole = coverage(&[1.0; 3], &[4; 3]);
        for correction in [Correction::None, Correction::Uniform, Correction::Resampling, Correction::Node] {
            assert_eq!(whole.factor(correction), 1.0, "{correction:?}");
        }
        let half = coverage(&[0.5, 0.5], &[3, 1]);
        assert_eq!(half.factor(Correction::Uniform), 0.5);
        // (2 - 1) (3 + 1) / 2 = 2
        assert_eq!(half.factor(Correction::Resampling), (1.0 / 3.0f64) as f32);
        assert_eq!(half.factor(Correction::Node), 1.0);
    }

    #[test]
    fn a_target_without_local_in_edges_contributes_nothing() {
        let mixed = coverage(&[0.0, 1.0], &[0, 5]);
        assert_eq!(mixed.factor(Correction::Uniform), 0.5);
        assert_eq!(mixed.factor(Correction::Resampling), 1.0);
        assert!(Coverage::of(&[], &[], |_| 0).is_none());
    }
}
