//! Which epoch was best so far, and when to stop waiting for a better one.

use serde::{Deserialize, Serialize};

/// The epoch with the best validation score; of equal ones the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Its validation score.
    pub valid: f64,
    /// Its test score.
    pub test: Option<f64>,
}

/// Remembers the best epoch and loses patience.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    patience: u64,
    best: Option<Best>,
}

/// What a new score means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is the best so far: keep these weights.
    Better,
    /// It is not; go on.
    Wait,
    /// It is not, and patience ran out.
    Stop,
}

impl Stopping {
    /// Stops after `patience` epochs without a better score; 0 never stops.
    pub fn new(patience: u64) -> Self {
        Self { patience, best: None }
    }

    /// The same patience, going on from an earlier best.
    pub fn resumed(patience: u64, best: Option<Best>) -> Self {
        Self { patience, best }
    }

    /// Hears the scores of `epoch`, counted from 1. A score that is no number is never better.
    pub fn observe(&mut self, epoch: u64, valid: f64, test: Option<f64>) -> Verdict {
        if !valid.is_nan() && self.best.is_none_or(|best| valid > best.valid) {
            self.best = Some(Best { epoch, valid, test });
            return Verdict::Better;
        }
        let waited = epoch.saturating_sub(self.best.map_or(0, |best| best.epoch));
        if self.patience > 0 && waited >= self.patience { Verdict::Stop } else { Verdict::Wait }
    }

    /// The best epoch so far.
    pub fn best(&self) -> Option<Best> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(stopping: &mut Stopping, epochs: &[(u64, f64)]) -> Vec<Verdict> {
        epochs.iter().map(|&(epoch, valid)| stopping.observe(epoch, valid, None)).collect()
    }

    #[test]
    fn the_first_of_equal_scores_is_the_best() {
        let mut stopping = Stopping::new(0);
        let heard = verdicts(&mut stopping, &[(1, 0.5), (2, 0.7), (3, 0.7), (4, f64::NAN), (900, 0.1)]);
        assert_eq!(heard, [Verdict::Better, Verdict::Better, Verdict::Wait, Verdict::Wait, Verdict::Wait]);
        assert_eq!(stopping.best(), Some(Best { epoch: 2, valid: 0.7, test: None }));
    }

    #[test]
    fn patience_is_counted_in_epochs_not_in_evaluations() {
        let mut stopping = Stopping::new(10);
        let heard = verdicts(&mut stopping, &[(5, 0.5), (10, 0.4), (15, 0.4)]);
        assert_eq!(heard, [Verdict::Better, Verdict::Wait, Verdict::Stop]);
    }

    #[test]
    fn a_resumed_run_loses_patience_when_the_uninterrupted_one_does() {
        let mut whole = Stopping::new(3);
        verdicts(&mut whole, &[(1, 0.5), (2, 0.4)]);
        let mut resumed = Stopping::resumed(3, whole.best());
        for (epoch, valid) in [(3, 0.4), (4, 0.3)] {
            assert_eq!(whole.observe(epoch, valid, None), resumed.observe(epoch, valid, None));
        }
        assert_eq!(whole, resumed);
    }
}
