//! How far are true links from false ones, and in which direction? Losses of scores of links, with gradients.
//!
//! Scores of true links come first, then those of false ones: as many for each true link, in the order of the true
//! ones. A loss takes a weight (one over the number of true links on all ranks), returns the weighted sum in f64, and
//! writes the whole gradient.

use super::loss::ordered_sum;
use super::pool::{Pool, Shared};

/// What a score of a link should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkLoss {
    /// High for a true link and low for a false one: `-log sigma(s)` of each true link, and the mean of
    /// `-log (1 - sigma(s))` of its false ones.
    Logistic,
    /// Higher for a true link than for its false ones: `-log` of its share in the softmax of all of these, scores
    /// being divided by the temperature.
    Contrastive {
        /// What scores are divided by.
        temperature: f32,
    },
}

impl LinkLoss {
    /// The loss of `scores` of `positives` true links with `negatives` false ones each, every true link weighing
    /// `weight`.
    pub fn evaluate(
        self,
        pool: &Pool,
        scores: &[f32],
        (positives, negatives): (usize, usize),
        weight: f32,
        grad: &mut [f32],
    ) -> f64 {
        assert_eq!(scores.len(), positives * (negatives + 1), "negatives for each positive");
        assert_eq!(scores.len(), grad.len(), "a gradient for each score");
        let grad = Shared::new(grad);
        let (first, others) = scores.split_at(positives);
        let sum = ordered_sum(pool, positives, |k| {
            // SAFETY: every positive has a place of its own, before all negatives.
            let own = unsafe { &mut grad.part(k, 1)[0] };
            // SAFETY: and its own negatives.
            let theirs = unsafe { grad.part(positives + k * negatives, negatives) };
            let scores = (first[k], &others[k * negatives..][..negatives]);
            match self {
                Self::Logistic => logistic(scores, weight, own, theirs),
                Self::Contrastive { temperature } => contrastive(scores, temperature, weight, own, theirs),
            }
        });
        sum * f64::from(weight)
    }
}

fn logistic((score, others): (f32, &[f32]), weight: f32, own: &mut f32, theirs: &mut [f32]) -> f64 {
    let (loss, slope) = softplus(-f64::from(score));
    *own = (-slope * f64::from(weight)) as f32;
    let share = 1.0 / others.len().max(1) as f64;
    let mut sum = 0.0;
    for (grad, &other) in theirs.iter_mut().zip(others) {
        let (loss, slope) = softplus(f64::from(other));
        sum += loss;
        *grad = (slope * share * f64::from(weight)) as f32;
    }
    loss + sum * share
}

/// `log (1 + e^z)` and its slope, without overflow.
fn softplus(z: f64) -> (f64, f64) {
    let e = (-z.abs()).exp();
    (z.max(0.0) + e.ln_1p(), if z >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) })
}

fn contrastive(
    (score, others): (f32, &[f32]),
    temperature: f32,
    weight: f32,
    own: &mut f32,
    theirs: &mut [f32],
) -> f64 {
    let temperature = f64::from(temperature);
    let highest = f64::from(others.iter().fold(score, |highest, &other| highest.max(other)));
    let power = |score: f32| ((f64::from(score) - highest) / temperature).exp();
    let total: f64 = power(score) + others.iter().map(|&other| power(other)).sum::<f64>();
    let slope = f64::from(weight) / temperature;
    for (grad, &other) in theirs.iter_mut().zip(others) {
        *grad = (slope * power(other) / total) as f32;
    }
    *own = (slope * (power(score) / total - 1.0)) as f32;
    total.ln() + (highest - f64::from(score)) / temperature
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{close, differences, numbers, wide};
    use super::*;

    const KINDS: [LinkLoss; 3] = [
        LinkLoss::Logistic,
        LinkLoss::Contrastive { temperature: 1.0 },
        LinkLoss::Contrastive { temperature: 0.3 },
    ];

    fn defined(kind: LinkLoss, scores: &[f64], positives: usize, negatives: usize) -> f64 {
        let sigma = |z: f64| 1.0 / (1.0 + (-z).exp());
        let one = |k: usize| {
            let (score, others) = (scores[k], &scores[positives + k * negatives..][..negatives]);
            match kind {
                LinkLoss::Logistic => {
                    let false_ones: f64 = others.iter().map(|&z| -(1.0 - sigma(z)).ln()).sum();
                    -sigma(score).ln() + false_ones / negatives.max(1) as f64
                }
                LinkLoss::Contrastive { temperature } => {
                    let power = |z: f64| (z / f64::from(temperature)).exp();
                    -(power(score) / (power(score) + others.iter().map(|&z| power(z)).sum::<f64>())).ln()
                }
            }
        };
        (0..positives).map(one).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn losses_and_gradients_match_the_definition(positives in 0usize..12, negatives in 0usize..5, seed in any::<u64>()) {
            let scores = numbers(seed, positives * (negatives + 1));
            for kind in KINDS {
                let mut grad = vec![9.0; scores.len()];
                let loss = kind.evaluate(&Pool::new(2), &scores, (positives, negatives), 0.25, &mut grad);
                let defined = |scores: &[f64]| 0.25 * defined(kind, scores, positives, negatives);
                prop_assert!((loss - defined(&wide(&scores))).abs() < 1e-6, "{kind:?}");
                close(&grad, &differences(&scores, defined), 1e-5);
            }
        }
    }

    #[test]
    fn positives_and_negatives_weigh_the_same_whatever_their_numbers() {
        let mut grad = [0.0; 8];
        LinkLoss::Logistic.evaluate(&Pool::new(1), &[0.0; 8], (2, 3), 0.5, &mut grad);
        assert_eq!(grad[..2], [-0.25; 2]);
        assert!((grad[2..].iter().sum::<f32>() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn large_scores_do_not_overflow() {
        for kind in KINDS {
            let mut grad = [0.0; 2];
            let loss = kind.evaluate(&Pool::new(1), &[-1e30, 1e30], (1, 1), 1.0, &mut grad);
            assert!(loss.is_finite() && loss > 1e30 && grad[0] < 0.0 && grad[1] > 0.0, "{kind:?}: {loss}");
            let loss = kind.evaluate(&Pool::new(1), &[1e30, -1e30], (1, 1), 1.0, &mut grad);
            assert_eq!((loss, grad[1]), (0.0, 0.0), "{kind:?}");
        }
    }

    #[test]
    fn the_loss_is_the_same_bits_for_any_number_of_threads() {
        let scores = numbers(1, 3 * 2000);
        for kind in KINDS {
            let run = |threads| {
                let mut grad = vec![0.0; scores.len()];
                let loss = kind.evaluate(&Pool::new(threads), &scores, (2000, 2), 1.0, &mut grad);
                (loss.to_bits(), grad)
            };
            assert_eq!(run(1), run(3));
        }
    }
}
