//! How does one step move the parameters? SGD with momentum, Adam and AdamW (Kingma & Ba 2015; Loshchilov & Hutter
//! 2019), element by element, in one pass over parameter, gradient and state.
//!
//! Only additions, multiplications, divisions and square roots in a fixed order and never fused, so every instruction
//! set gives the same bits.

use super::isa::kernel;
use super::pool::{Pool, Shared};

const GRAIN: usize = 1 << 15;

/// SGD: `m = momentum * m + (g + l2 * p)`, `p -= rate * m`.
#[derive(Debug, Clone, Copy)]
pub struct Sgd {
    /// Learning rate.
    pub rate: f32,
    /// Share of the last direction that is kept.
    pub momentum: f32,
    /// L2 penalty, added to the gradient.
    pub l2: f32,
}

/// Adam: with `l2` added to the gradient (Adam as published), or with `decay` taken off the parameter (AdamW).
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    /// Learning rate.
    pub rate: f32,
    /// Decay of the mean of gradients.
    pub beta1: f32,
    /// Decay of the mean of squared gradients.
    pub beta2: f32,
    /// Added to the root of the second mean.
    pub epsilon: f32,
    /// L2 penalty, added to the gradient.
    pub l2: f32,
    /// AdamW's decay: `p -= rate * decay * p` before the step.
    pub decay: f32,
}

/// One SGD step; `momentum` is the state, zero at first.
pub fn sgd(pool: &Pool, rule: &Sgd, parameters: &mut [f32], gradient: &[f32], momentum: &mut [f32]) {
    assert!(
        gradient.len() == parameters.len() && momentum.len() == parameters.len(),
        "one state per parameter"
    );
    let (p, m) = (Shared::new(parameters), Shared::new(momentum));
    pool.for_ranges(gradient.len(), GRAIN, |range| {
        // SAFETY: ranges do not overlap.
        let (p, m) = unsafe { (p.part(range.start, range.len()), m.part(range.start, range.len())) };
        sgd_range(rule, p, &gradient[range], m);
    });
}

/// The `step`-th step of Adam (the first is 1); `mean` and `square` are the state, zero at first.
pub fn adam(
    pool: &Pool,
    rule: &Adam,
    step: u64,
    parameters: &mut [f32],
    gradient: &[f32],
    mean: &mut [f32],
    square: &mut [f32],
) {
    let len = parameters.len();
    assert!(gradient.len() == len && mean.len() == len && square.len() == len, "one state per parameter");
    let correction = |beta: f32| (1.0 - f64::from(beta).powf(step as f64)) as f32;
    let corrections = (correction(rule.beta1), correction(rule.beta2));
    let (p, m, v) = (Shared::new(parameters), Shared::new(mean), Shared::new(square));
    pool.for_ranges(len, GRAIN, |range| {
        let (at, n) = (range.start, range.len());
        // SAFETY: ranges do not overlap.
        let (p, m, v) = unsafe { (p.part(at, n), m.part(at, n), v.part(at, n)) };
        adam_range(rule, corrections, p, &gradient[range], m, v);
    });
}

kernel! {
    fn sgd_range<S>(rule: &Sgd, p: &mut [f32], g: &[f32], m: &mut [f32]) {
        for ((p, &g), m) in p.iter_mut().zip(g).zip(m) {
            *m = rule.momentum * *m + (g + rule.l2 * *p);
            *p -= rule.rate * *m;
        }
    }
}

kernel! {
    fn adam_range<S>(rule: &Adam, corrections: (f32, f32), p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32]) {
        let Adam { rate, beta1, beta2, epsilon, l2, decay } = *rule;
        for (((p, &g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g + l2 * *p;
            let kept = *p - rate * decay * *p;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * (g * g);
            *p = kept - rate * (*m / corrections.0) / ((*v / corrections.1).sqrt() + epsilon);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::Isa;
    use super::super::testing::{close, numbers, wide};
    use super::*;

    const ADAM: Adam = Adam { rate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, l2: 0.0, decay: 0.0 };

    /// The rule of the table in the reference, in f64, for `steps` steps with the same gradient each time.
    fn reference(rule: &Adam, start: &[f32], gradient: &[f32], steps: i32) -> Vec<f32> {
        let (beta1, beta2) = (f64::from(rule.beta1), f64::from(rule.beta2));
        let one = |(mut p, g): (f64, f64)| {
            let (mut m, mut v) = (0.0, 0.0);
            for t in 1..=steps {
                let g = g + f64::from(rule.l2) * p;
                p -= f64::from(rule.rate) * f64::from(rule.decay) * p;
                m = beta1 * m + (1.0 - beta1) * g;
                v = beta2 * v + (1.0 - beta2) * g * g;
                let root = (v / (1.0 - beta2.powi(t))).sqrt();
                p -= f64::from(rule.rate) * (m / (1.0 - beta1.powi(t))) / (root + f64::from(rule.epsilon));
            }
            p as f32
        };
        wide(start).into_iter().zip(wide(gradient)).map(one).collect()
    }

    fn run(rule: &Adam, start: &[f32], gradient: &[f32], steps: u64, threads: usize) -> Vec<f32> {
        let (mut p, mut m, mut v) = (start.to_vec(), vec![0.0; start.len()], vec![0.0; start.len()]);
        (1..=steps).for_each(|t| adam(&Pool::new(threads), rule, t, &mut p, gradient, &mut m, &mut v));
        p
    }

    #[test]
    fn adam_with_penalty_or_decay_follows_the_table() {
        let (start, gradient) = (numbers(1, 70_001), numbers(2, 70_001));
        for rule in [ADAM, Adam { l2: 5e-4, ..ADAM }, Adam { decay: 5e-4, ..ADAM }] {
            close(&run(&rule, &start, &gradient, 10, 2), &reference(&rule, &start, &gradient, 10), 1e-6);
        }
    }

    #[test]
    fn sgd_with_momentum_follows_the_table() {
        let (start, gradient) = (numbers(1, 33), numbers(2, 33));
        let (mut p, mut m) = (start.clone(), vec![0.0; 33]);
        let rule = Sgd { rate: 0.01, momentum: 0.9, l2: 0.0 };
        (0..2).for_each(|_| sgd(&Pool::new(1), &rule, &mut p, &gradient, &mut m));
        let expected: Vec<f32> =
            start.iter().zip(&gradient).map(|(p, g)| p - 0.01 * g - 0.01 * 1.9 * g).collect();
        close(&p, &expected, 1e-6);
    }

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let (start, gradient) = (numbers(1, 1001), numbers(2, 1001));
        let rule = Adam { l2: 5e-4, decay: 1e-2, ..ADAM };
        let expected = Isa::Plain.force(|| run(&rule, &start, &gradient, 3, 1));
        for isa in Isa::available() {
            assert_eq!(isa.force(|| run(&rule, &start, &gradient, 3, 1)), expected, "{isa:?}");
        }
    }
}
