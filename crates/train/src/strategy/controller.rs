//! When does a part get another one beside it? Grappa's controller.
//!
//! A part (the base) is joined with one other at a time, in turn: with `C` parts, turn `t` joins part `b` with part
//! `b + 1 + (t mod (C - 1))`, counted round. After `C - 1` turns it has met them all, so every edge has been inside an
//! island. A turn lasts `epochs / (C - 1)` epochs (`residency.sweep_every`). Where more than `residency.deficit` of the
//! neighbours of a base's targets are missing for `residency.deficit_steps` steps in a row, its turn ends early: in
//! each epoch one base, that with the lowest coverage.
//!
//! All ranks see the same numbers, so all decide alike.

use crate::boundary::Memory;
use crate::run::{RunConfig, SweepEvery};
use crate::{Error, Result};
use archipelago_graph::PartId;

/// Names under which a checkpoint keeps it.
const NAMES: [&str; 3] = ["sweep.turn", "sweep.since", "sweep.low"];
const COVERAGE: &str = "sweep.coverage";

/// The state of all bases.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Controller {
    /// Epochs of a turn; 0 for no end.
    every: u64,
    deficit: f64,
    deficit_steps: u64,
    /// The turn of each base.
    turn: Vec<u64>,
    /// The epoch in which it began.
    since: Vec<u64>,
    /// Steps in a row with too little coverage.
    low: Vec<u64>,
    /// Mean coverage in the last epoch.
    coverage: Vec<f32>,
}

/// What one base saw in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Seen {
    /// Steps in a row with too little coverage, at the end of the epoch.
    pub low: u64,
    /// Mean coverage.
    pub coverage: f64,
}

impl Controller {
    /// `parts` bases at the beginning of a run; none of them is joined with another unless they sweep.
    pub fn new(config: &RunConfig, parts: usize) -> Self {
        let others = parts.saturating_sub(1) as u64;
        let every = match config.residency.sweep_every {
            SweepEvery::Once => (config.train.epochs / others.max(1)).max(1),
            SweepEvery::Every(epochs) => epochs,
            SweepEvery::Never => 0,
        };
        Self {
            every,
            deficit: config.residency.deficit,
            deficit_steps: config.residency.deficit_steps,
            turn: vec![0; parts],
            since: vec![1; parts],
            low: vec![0; parts],
            coverage: vec![1.0; parts],
        }
    }

    /// The part that `base` is joined with; none where there is no other.
    pub fn partner(&self, base: PartId) -> Option<PartId> {
        let parts = self.turn.len() as u64;
        let others = parts.checked_sub(1).filter(|&others| others > 0)?;
        let step = 1 + self.turn[base.index()] % others;
        Some(PartId(((u64::from(base.0) + step) % parts) as u32))
    }

    /// Begins an epoch: ends turns that are over.
    pub fn begin(&mut self, epoch: u64) {
        if self.every == 0 {
            return;
        }
        let over = |base: &usize| epoch >= self.since[*base] + self.every;
        let mut ended: Vec<usize> = (0..self.turn.len()).filter(over).collect();
        let early = (0..self.turn.len()).filter(|base| !ended.contains(base));
        let early = early.filter(|&base| epoch > self.since[base] && self.low[base] >= self.deficit_steps);
        ended.extend(early.min_by(|&a, &b| self.coverage[a].total_cmp(&self.coverage[b])));
        for base in ended {
            self.turn[base] += 1;
            self.since[base] = epoch;
            self.low[base] = 0;
        }
    }

    /// How many steps in a row were short of coverage, after one more with this one.
    pub fn count(&self, low: u64, coverage: f64) -> u64 {
        if 1.0 - coverage > self.deficit { low + 1 } else { 0 }
    }

    /// Steps in a row with too little coverage of a base so far.
    pub fn low(&self, base: PartId) -> u64 {
        self.low[base.index()]
    }

    /// Takes what a base saw in an epoch.
    pub fn observe(&mut self, base: PartId, seen: Seen) {
        self.low[base.index()] = seen.low;
        self.coverage[base.index()] = seen.coverage as f32;
    }

    /// What a resumed run needs.
    pub fn save(&self) -> Memory {
        let mut memory = Memory::default();
        for (name, values) in NAMES.into_iter().zip([&self.turn, &self.since, &self.low]) {
            memory.put_words(name, values);
        }
        memory.put(COVERAGE, &self.coverage);
        memory
    }

    /// Takes what [`save`](Self::save) gave.
    pub fn restore(&mut self, memory: &Memory) -> Result<()> {
        let lists = [&mut self.turn, &mut self.since, &mut self.low];
        for (name, list) in NAMES.into_iter().zip(lists) {
            let expected = list.len();
            let kept = memory.words(name).filter(|kept| kept.len() == expected);
            list.copy_from_slice(kept.ok_or_else(|| missing(name, expected))?);
        }
        let expected = self.coverage.len();
        let kept = memory.get(COVERAGE).filter(|kept| kept.len() == expected);
        self.coverage.copy_from_slice(kept.ok_or_else(|| missing(COVERAGE, expected))?);
        Ok(())
    }
}

fn missing(name: &str, expected: usize) -> Error {
    let message = format!("expected `{expected}` numbers under `{name}`, found none or others");
    Error::checkpoint("memory of a rank", message).with_hint("it is of another strategy or number of parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(parts: usize, sets: &[&str]) -> Controller {
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        Controller::new(&RunConfig::from_sources(None, &sets).unwrap(), parts)
    }

    #[test]
    fn after_a_full_sweep_every_base_has_met_every_other_part() {
        for parts in [2, 3, 5, 8] {
            let mut controller = controller(parts, &["residency.sweep_every=1"]);
            let mut met = vec![vec![false; parts]; parts];
            for epoch in 1..parts as u64 {
                controller.begin(epoch);
                for base in 0..parts as u32 {
                    let partner = controller.partner(PartId(base)).unwrap();
                    assert_ne!(partner, PartId(base));
                    met[base as usize][partner.index()] = true;
                }
            }
            for (base, met) in met.iter().enumerate() {
                assert_eq!(met.iter().filter(|met| **met).count(), parts - 1, "base {base} of {parts}");
            }
        }
        assert_eq!(controller(1, &[]).partner(PartId(0)), None);
    }

    #[test]
    fn turns_share_the_epochs_of_the_run_and_may_last_for_ever() {
        let mut usual = controller(4, &["train.epochs=12"]);
        let partners: Vec<u32> = (1..=12)
            .map(|epoch| {
                usual.begin(epoch);
                usual.partner(PartId(0)).unwrap().0
            })
            .collect();
        assert_eq!(partners, [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        let mut fixed = controller(4, &["residency.sweep_every=never"]);
        (1..50).for_each(|epoch| fixed.begin(epoch));
        assert_eq!(fixed.partner(PartId(3)), Some(PartId(0)));
    }

    #[test]
    fn too_little_coverage_ends_one_turn_early_the_lowest_first() {
        let sets = ["residency.sweep_every=100", "residency.deficit=0.6", "residency.deficit_steps=3"];
        let mut controller = controller(4, &sets);
        assert_eq!(controller.count(2, 0.3), 3);
        assert_eq!(controller.count(2, 0.5), 0);
        controller.begin(1);
        for (base, coverage) in [0.3, 0.2, 0.25, 0.1].into_iter().enumerate() {
            let low = if base == 3 { 2 } else { 3 };
            controller.observe(PartId(base as u32), Seen { low, coverage });
        }
        controller.begin(2);
        assert_eq!(controller.turn, [0, 1, 0, 0], "the lowest of those that were low for long enough");
        controller.begin(3);
        assert_eq!(controller.turn, [0, 1, 1, 0]);
        let mut resumed = self::controller(4, &sets);
        resumed.restore(&controller.save()).unwrap();
        assert_eq!(resumed, controller);
        assert!(resumed.restore(&Memory::default()).is_err());
    }
}
