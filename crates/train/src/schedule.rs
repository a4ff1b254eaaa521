//! The learning rate of every epoch.
//!
//! Warm-up grows linearly over its w epochs, lr (e + 1) / w in epoch e (counted from 0); the schedule then runs
//! over what is left, t = e - w of T = E - w epochs:
//!
//! - constant: lr
//! - step: lr f^floor(t / k), not below min
//! - cosine: min + (lr - min) (1 + cos(pi t / T)) / 2 (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts)

use crate::run::{ScheduleKind, TrainSection};

/// How the learning rate moves over the epochs of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    kind: ScheduleKind,
    lr: f64,
    min_lr: f64,
    warmup: u64,
    step_every: u64,
    step_factor: f64,
    epochs: u64,
}

impl Schedule {
    /// The schedule that the run file asks for.
    pub fn new(train: &TrainSection) -> Self {
        Self {
            kind: train.schedule,
            lr: train.lr,
            min_lr: train.min_lr,
            warmup: train.warmup_epochs,
            step_every: train.step_every,
            step_factor: train.step_factor,
            epochs: train.epochs,
        }
    }

    /// The learning rate of `epoch`, counted from **0**.
    pub fn lr(&self, epoch: u64) -> f64 {
        if epoch < self.warmup {
            return self.lr * (epoch + 1) as f64 / self.warmup as f64;
        }
        let done = epoch - self.warmup;
        match self.kind {
            ScheduleKind::Constant => self.lr,
            ScheduleKind::Step => self.stepped(done),
            ScheduleKind::Cosine => self.cosine(done),
        }
    }

    /// Multiplies step by step: a power would round differently from one machine to the next.
    fn stepped(&self, done: u64) -> f64 {
        let mut lr = self.lr;
        for _ in 0..done / self.step_every.max(1) {
            if lr <= self.min_lr || lr == 0.0 {
                break;
            }
            lr *= self.step_factor;
        }
        lr.max(self.min_lr)
    }

    fn cosine(&self, done: u64) -> f64 {
        let all = self.epochs.saturating_sub(self.warmup).max(1);
        let share = done.min(all) as f64 / all as f64;
        self.min_lr + (self.lr - self.min_lr) * (1.0 + (std::f64::consts::PI * share).cos()) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind, warmup_epochs: u64) -> Schedule {
        Schedule::new(&TrainSection {
            schedule: kind,
            warmup_epochs,
            lr: 0.1,
            min_lr: 0.02,
            step_every: 3,
            epochs: 12,
            ..TrainSection::default()
        })
    }

    #[test]
    fn warm_up_grows_linearly_to_the_full_rate() {
        let schedule = schedule(ScheduleKind::Constant, 4);
        let rates: Vec<f64> = (0..6).map(|epoch| schedule.lr(epoch)).collect();
        assert_eq!(rates, [0.025, 0.05, 0.1 * 3.0 / 4.0, 0.1, 0.1, 0.1]);
    }

    #[test]
    fn steps_multiply_and_stop_at_the_least_rate() {
        let schedule = schedule(ScheduleKind::Step, 1);
        let rates: Vec<f64> = (0..12).map(|epoch| schedule.lr(epoch)).collect();
        assert_eq!(rates, [0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.02, 0.02]);
    }

    #[test]
    fn a_cosine_falls_from_the_full_to_the_least_rate() {
        let schedule = schedule(ScheduleKind::Cosine, 2);
        let rates: Vec<f64> = (2..=12).map(|epoch| schedule.lr(epoch)).collect();
        assert_eq!((rates[0], rates[10]), (0.1, 0.02));
        assert!((rates[5] - 0.06).abs() < 1e-15, "{rates:?}");
        assert!(rates.is_sorted_by(|a, b| a > b), "{rates:?}");
    }
}
