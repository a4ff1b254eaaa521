//! Which rates explain runs that were measured? Least squares over a few unknowns, none of them negative.
//!
//! Unknown are the seconds that a unit of each kind of work takes, in units of what they were thought to take, so that 1
//! is no news. Every run is an equation: its work in these units, divided by the processor seconds that it took, should
//! add up to 1. Each unknown is drawn a little towards 1, so that one which no run tells about stays where it was.

use super::rates::{KINDS, Rates};
use super::work::Work;

/// A run: its work in an epoch, and what that took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Work of an epoch on all ranks.
    pub work: Work,
    /// Processor seconds of an epoch, of all processes.
    pub processor_secs: f64,
    /// Seconds of an epoch by the clock.
    pub secs: f64,
    /// Cores that it computed with, of all processes.
    pub cores: f64,
}

/// How strongly unknowns are drawn to what they were thought to be.
const PULL: f64 = 5e-4;

/// The rates that explain `runs` best, near `prior` where they do not tell.
pub fn fit(prior: &Rates, runs: &[Measured]) -> Rates {
    let runs: Vec<_> = runs.iter().filter(|run| run.processor_secs > 0.0 && run.secs > 0.0).collect();
    if runs.is_empty() {
        return *prior;
    }
    let rows: Vec<[f64; KINDS]> = runs
        .iter()
        .map(|run| prior.processor_secs(&run.work).map(|secs| secs / run.processor_secs))
        .collect();
    let times = non_negative_least_squares(&rows);
    let mut shares: Vec<f64> = runs.iter().map(|run| run.processor_secs / (run.secs * run.cores)).collect();
    shares.sort_by(f64::total_cmp);
    Rates {
        drawn_edges: prior.drawn_edges / times[0],
        copied_bytes: prior.copied_bytes / times[1],
        gathered_bytes: prior.gathered_bytes / times[2],
        flops: prior.flops / times[3],
        island_bytes: prior.island_bytes / times[4],
        step_secs: prior.step_secs * times[5],
        message_secs: prior.message_secs * times[5],
        busy: shares[shares.len() / 2].clamp(0.05, 1.0),
    }
}

/// The `x` of which all `rows` make nearly 1, by coordinate descent: each in turn takes its best value given the others.
fn non_negative_least_squares(rows: &[[f64; KINDS]]) -> [f64; KINDS] {
    // No work is free: whatever runs seem to say, it takes at least this share of what it was thought to take.
    const LEAST: f64 = 0.2;
    let mut x = [1.0; KINDS];
    for at in (0..KINDS).cycle().take(KINDS * 500) {
        let (mut top, mut bottom) = (PULL, PULL);
        for row in rows {
            let others: f64 =
                (0..KINDS).filter(|&other| other != at).map(|other| row[other] * x[other]).sum();
            top += row[at] * (1.0 - others);
            bottom += row[at] * row[at];
        }
        x[at] = (top / bottom).max(LEAST);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rates: &Rates, work: Work) -> Measured {
        let processor_secs = rates.processor_secs(&work).iter().sum();
        Measured { work, processor_secs, secs: processor_secs, cores: 2.0 }
    }

    #[test]
    fn rates_that_made_the_runs_are_found_again() {
        let prior = Rates::default();
        let truth = Rates { drawn_edges: 30e6, flops: 480e9, ..prior };
        let work = |drawn, flops, gathered| Work {
            drawn_edges: drawn,
            flops,
            gathered_bytes: gathered,
            copied_bytes: 1e8,
            steps: 10.0,
            ..Work::default()
        };
        let runs = [work(1e7, 1e10, 1e9), work(1e6, 1e12, 1e9), work(0.0, 1e11, 5e10), work(5e7, 1e11, 1e9)];
        let found = fit(&prior, &runs.map(|work| measured(&truth, work)));
        for (found, truth) in [(found.drawn_edges, truth.drawn_edges), (found.flops, truth.flops)] {
            assert!((found / truth - 1.0).abs() < 0.1, "{found} for {truth}");
        }
        assert_eq!(found.busy, 0.5);
    }

    #[test]
    fn what_no_run_tells_about_stays() {
        let prior = Rates::default();
        let truth = Rates { drawn_edges: 10e6, ..prior };
        let found = fit(&prior, &[measured(&truth, Work { drawn_edges: 1e8, ..Work::default() })]);
        assert!((found.drawn_edges / 10e6 - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.flops / prior.flops - 1.0).abs() < 1e-9);
        assert_eq!(fit(&prior, &[]), prior);
    }
}
