//! When is the next batch begun? Two answers, and the seam for more.
//!
//! A launcher decides about speed and memory, never about numbers: a batch is the same whenever it is drawn.

use crate::meter::cpu_seconds;
use std::time::{Duration, Instant};

/// What a launcher may look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gauge {
    /// Batches that were begun and are not ready.
    pub underway: usize,
    /// Batches that are ready and wait for training.
    pub queue: usize,
    /// Time since the last batch was begun.
    pub gap: Duration,
    /// Mean time from the beginning of a batch until it is ready, in milliseconds; recent ones count more.
    pub sample_ms: f64,
    /// Mean time between two batches taken by training, in milliseconds; recent ones count more.
    pub train_ms: f64,
}

/// Decides when a batch is begun.
pub trait Launcher: Send {
    /// Whether to begin another one now.
    fn launch(&mut self, gauge: &Gauge) -> bool;

    /// When to ask again after a no, if nothing else happens.
    fn patience(&self) -> Duration;
}

/// A fixed number of batches ahead of training (DistDGL's prefetch queue).
#[derive(Debug, Clone, Copy)]
pub struct Ahead(pub usize);

impl Launcher for Ahead {
    fn launch(&mut self, gauge: &Gauge) -> bool {
        gauge.underway + gauge.queue < self.0.max(1)
    }

    fn patience(&self) -> Duration {
        // Batches that become ready or are taken wake the sampler; time alone changes nothing.
        Duration::from_secs(1)
    }
}

/// ByteGNN's coarse scheduling: a batch is begun when `T_gap f(C) balance >= sigma`, with `f(C) = 101 - exp(C / c)`,
/// `c = 100 / ln 101`, C the use of the processor in percent, and `balance = T_sample / (T_train Q)`; with nothing in
/// the queue at once. So batches are begun while processors idle and training would otherwise wait, and a hard cap
/// bounds the memory of those that wait.
#[derive(Debug)]
pub struct Score {
    sigma: f64,
    cap: usize,
    cpu: CpuMeter,
}

impl Score {
    /// Begins a batch where the score is that of a gap of `gap_ms`, `cpu` percent of the processor in use and this
    /// `balance`; at most `cap` batches are under way or wait.
    pub fn new(gap_ms: f64, cpu: f64, balance: f64, cap: usize) -> Self {
        Self { sigma: gap_ms * idleness(cpu) * balance, cap: cap.max(1), cpu: CpuMeter::new() }
    }
}

impl Launcher for Score {
    fn launch(&mut self, gauge: &Gauge) -> bool {
        if gauge.underway + gauge.queue >= self.cap {
            return false;
        }
        if gauge.queue == 0 {
            return true;
        }
        let balance = gauge.sample_ms / (gauge.train_ms.max(1e-3) * gauge.queue as f64);
        gauge.gap.as_secs_f64() * 1e3 * idleness(self.cpu.percent()) * balance >= self.sigma
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(2)
    }
}

/// `f(C)`: 100 for an idle processor, 0 for one that is fully used.
fn idleness(percent: f64) -> f64 {
    101.0 - (percent.clamp(0.0, 100.0) / 100.0 * 101f64.ln()).exp()
}

/// How much of the processor this process uses.
#[derive(Debug)]
struct CpuMeter {
    cores: f64,
    last: Instant,
    seconds: f64,
    percent: f64,
}

impl CpuMeter {
    /// Readings closer together than this say little.
    const WINDOW: Duration = Duration::from_millis(20);

    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()) as f64;
        Self { cores, last: Instant::now(), seconds: cpu_seconds(), percent: 0.0 }
    }

    fn percent(&mut self) -> f64 {
        let passed = self.last.elapsed();
        if passed >= Self::WINDOW {
            let seconds = cpu_seconds();
            let now = 100.0 * (seconds - self.seconds) / (passed.as_secs_f64() * self.cores);
            self.percent = 0.5 * self.percent + 0.5 * now;
            (self.last, self.seconds) = (Instant::now(), seconds);
        }
        self.percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(underway: usize, queue: usize, gap_ms: u64, sample_ms: f64, train_ms: f64) -> Gauge {
        Gauge { underway, queue, gap: Duration::from_millis(gap_ms), sample_ms, train_ms }
    }

    #[test]
    fn the_papers_defaults_give_the_papers_sigma() {
        assert!((Score::new(5.0, 90.0, 1.0, 4).sigma - 187.0).abs() < 0.5);
    }

    #[test]
    fn an_empty_queue_launches_at_once_and_a_full_one_never() {
        let mut score = Score::new(5.0, 90.0, 1.0, 3);
        assert!(score.launch(&gauge(0, 0, 0, 0.0, 0.0)));
        assert!(score.launch(&gauge(2, 0, 0, 0.0, 0.0)));
        assert!(!score.launch(&gauge(1, 2, 1000, 1e6, 1.0)));
    }

    #[test]
    fn slow_sampling_and_long_gaps_launch_earlier() {
        let mut score = Score::new(5.0, 90.0, 1.0, 9);
        assert!(!score.launch(&gauge(0, 2, 1, 1.0, 10.0)));
        assert!(score.launch(&gauge(0, 2, 1, 100.0, 10.0)));
        assert!(score.launch(&gauge(0, 2, 40, 1.0, 10.0)));
    }

    #[test]
    fn prefetching_counts_what_is_begun_and_what_waits() {
        assert!(Ahead(2).launch(&gauge(1, 0, 0, 0.0, 0.0)));
        assert!(!Ahead(2).launch(&gauge(1, 1, 0, 0.0, 0.0)));
    }
}
