//! SDT-GNN: every part trains a model of its own, by itself, and models are averaged.
//!
//! A round is `agree.every` epochs. All parts begin it with the same weights; a part with the features of its halo
//! (`residency.halo` = 1) trains on batches of its own targets without a word to anyone; then weights are averaged over
//! parts, each weighing its share of the training nodes ([`average`]). With fewer ranks than parts
//! (`residency.resident`) a rank trains its parts one after the other within the round. The numbers do not depend on how
//! many ranks there are. `agree.optimizer_state` says what becomes of the optimiser's memory: each part keeps its
//! own (`local`), it is averaged too (`average`), or it starts anew (`reset`).
//!
//! Messages: weights once per round and part. Features of halos cross once per run.

use super::on_island::{self, Manner, Trainable, islands, read_ahead};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::agree::average::average;
use crate::boundary::Memory;
use crate::island::{Reach, Wish};
use crate::optimizer::OptimizerState;
use crate::parameters::Parameters;
use crate::residency::Turns;
use crate::run::{BatchKind, Correction, OptimizerMemory, RunConfig};
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::Kind;
use archipelago_graph::PartId;
use std::time::Instant;

pub(super) const ENTRY: Entry = Entry {
    name: "sdt",
    summary: "every part trains by itself, models are averaged; more parts than ranks take turns",
    paper: "SDT-GNN: streaming-based distributed training",
    behavior: Behavior { ranks_equal: false, ..Behavior::ISLANDS },
    preset: &[("agree.method", "average-models"), ("residency.halo", "1")],
    reads: &[
        "residency.resident",
        "residency.halo",
        "residency.prefetch",
        "agree.method",
        "agree.every",
        "agree.optimizer_state",
    ],
    check: |config, _| check(config),
    build: |worker| Ok(Box::new(Sdt::new(worker)?)),
};

fn check(config: &RunConfig) -> Result<()> {
    on_island::check(config)?;
    let no_sum = "no gradients are summed; `train.clip_norm` limits those of a part";
    let wrong = [
        (
            "agree.method",
            config.agree.method != "average-models",
            "`average-models`",
            "`grappa` sums gradients",
        ),
        ("agree.codec", config.agree.codec != "f32", "`f32`", no_sum),
        ("agree.clip_local", config.agree.clip_local != 0.0, "0", no_sum),
    ];
    let Some((key, _, expected, hint)) = wrong.into_iter().find(|(_, wrong, ..)| *wrong) else {
        return Ok(());
    };
    let found = config.show(key).unwrap_or_default();
    let message = format!("expected {expected} with strategy `sdt`, found {found}");
    Err(Error::config(config.place(key), key, message).with_hint(hint))
}

struct Sdt {
    every: u64,
    epochs: u64,
    hops: usize,
    memory: OptimizerMemory,
    /// The island of this rank, where parts do not take turns.
    held: Option<Trainable>,
    /// Whether guests have been brought.
    landed: bool,
    /// What the optimiser of each part of this rank remembers, in the order of their turns.
    states: Vec<OptimizerState>,
}

impl Sdt {
    fn new(worker: &Worker) -> Result<Self> {
        let islands = islands(worker)?;
        let fresh = worker.optimizer.state().clone();
        Ok(Self {
            every: worker.config.agree.every,
            epochs: worker.config.train.epochs,
            hops: worker.config.residency.halo,
            memory: worker.config.agree.optimizer_state,
            held: None,
            landed: false,
            states: islands.turns.of_rank(worker.comm.rank()).map(|_| fresh.clone()).collect(),
        })
    }

    /// The island of this rank in a phase; returns the seconds that making it took.
    fn land(&mut self, worker: &Worker, phase: usize) -> Result<(Trainable, f64)> {
        let started = Instant::now();
        if let Some(held) = self.held.take() {
            return Ok((held, 0.0));
        }
        let islands = islands(worker)?;
        let parts: Vec<PartId> = islands.turns.part(worker.comm.rank(), phase).into_iter().collect();
        let wish =
            Wish { parts: &parts, trained: 1, hops: self.hops, features: true, exchange: !self.landed };
        read_ahead(worker, phase, |part| vec![part])?;
        let isle = islands.isle(wish)?;
        let counts = vec![isle.labelled.len()];
        let trainable = Trainable::new(worker, isle, BatchKind::Mini, counts, 0, true)?;
        Ok((trainable, started.elapsed().as_secs_f64()))
    }

    /// Averages weights, and the optimiser's memory where asked for.
    fn agree(&mut self, worker: &mut Worker, trained: &[Vec<f32>]) -> Result<()> {
        let islands = islands(worker)?;
        let (comm, turns) = (&worker.comm, &islands.turns);
        let all: u64 = islands.targets.iter().sum();
        let shares: Vec<f64> =
            islands.targets.iter().map(|&targets| targets as f64 / all.max(1) as f64).collect();
        let count = worker.tape.parameters.count();
        let means = average(comm, turns, trained, &shares, count)?;
        if self.memory == OptimizerMemory::Average {
            let lists: Vec<Vec<f32>> = self.states.iter().map(numbers).collect();
            let len = worker.optimizer.state().moments.iter().map(|m| m.first.len() + m.second.len()).sum();
            let means = average(comm, turns, &lists, &shares, len)?;
            let steps = self.states.iter().map(|state| state.steps).max().unwrap_or(0);
            let mut most = [steps];
            comm.all_reduce_max_u64(&mut most, Kind::Control)?;
            self.states.iter_mut().for_each(|state| put_numbers(state, &means, most[0]));
        }
        put_weights(&mut worker.tape.parameters, &means);
        Ok(())
    }

    /// Trains the part of this rank in a phase for some epochs; returns what it came to and its weights.
    fn train(
        &mut self,
        worker: &mut Worker,
        held: &mut Trainable,
        phase: usize,
        epochs: std::ops::RangeInclusive<u64>,
        step: u64,
    ) -> Result<EpochOutcome> {
        let manner = Manner { correction: Correction::None, summed: false };
        match self.memory {
            OptimizerMemory::Reset => worker.optimizer.forget(),
            _ => worker.optimizer.restore(self.states[phase].clone())?,
        }
        let count = epochs.end() + 1 - epochs.start();
        let mut all = EpochOutcome::default();
        for epoch in epochs {
            let outcome = held.epoch(worker, manner, epoch, step + all.steps, &mut |_| {})?;
            all.add(&outcome);
            worker.comm.barrier()?;
        }
        all.loss /= count as f64;
        self.states[phase] = worker.optimizer.state().clone();
        Ok(all)
    }
}

impl Strategy for Sdt {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let turns = islands(worker)?.turns;
        let last = (epoch + self.span() - 1).min(self.epochs.max(epoch));
        let start = weights(&worker.tape.parameters);
        let (mut all, mut trained, mut losses) = (EpochOutcome::default(), Vec::new(), Vec::new());
        for phase in 0..turns.phases() {
            let (mut held, secs) = self.land(worker, phase)?;
            if turns.part(worker.comm.rank(), phase).is_some() {
                put_weights(&mut worker.tape.parameters, &start);
                let outcome = self.train(worker, &mut held, phase, epoch..=last, step)?;
                trained.push(weights(&worker.tape.parameters));
                losses.push(outcome.loss);
                all.add(&outcome);
                all.landing.made += u64::from(secs > 0.0);
                all.landing.switches += u64::from(!self.landed);
            } else {
                // Ranks meet after every epoch, so that nobody waits for longer than one.
                (epoch..=last).try_for_each(|_| worker.comm.barrier())?;
            }
            all.landing.secs += secs;
            match turns.rotate() {
                true => islands(worker)?.give_back(held.into_part()),
                false => self.held = Some(held),
            }
        }
        self.landed = true;
        self.agree(worker, &trained)?;
        all.loss = in_part_order(worker, &turns, &losses)?;
        all.steps = self.steps(worker) * (last + 1 - epoch);
        Ok(all)
    }

    /// Those of the part that makes most of them, as if all ran side by side.
    fn steps(&self, worker: &Worker) -> u64 {
        let batch = worker.config.train.batch_size as u64;
        let most = worker.islands.as_ref().and_then(|islands| islands.targets.iter().max());
        most.map_or(0, |most| most.div_ceil(batch))
    }

    fn span(&self) -> u64 {
        self.every
    }

    fn reach(&self) -> Option<Reach> {
        Some(Reach { parts: 1, hops: self.hops })
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        // A model and its optimiser's memory for each part of this rank, and the models of a round once more.
        (5 * 4 * worker.tape.parameters.count() * self.states.len()) as u64
    }

    fn save(&mut self) -> Result<Memory> {
        let mut memory = Memory::default();
        for (turn, state) in self.states.iter().enumerate() {
            memory.put(format!("optimizer.{turn}"), &numbers(state));
            memory.put_words(format!("optimizer.{turn}.steps"), &[state.steps]);
        }
        Ok(memory)
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        for (turn, state) in self.states.iter_mut().enumerate() {
            let name = format!("optimizer.{turn}");
            let expected = numbers(state).len();
            let values = memory.get(&name).filter(|values| values.len() == expected);
            let steps = memory.words(&format!("{name}.steps")).and_then(|steps| steps.first());
            let (Some(values), Some(&steps)) = (values, steps) else {
                let message = format!("`{name}`: expected `{expected}` numbers, found none or others");
                return Err(Error::checkpoint("memory of a rank", message)
                    .with_hint("it is of another model, or of another number of ranks"));
            };
            put_numbers(state, values, steps);
        }
        Ok(())
    }
}

/// The sum of what each part came to, in part order, which does not depend on the number of ranks; at rank 0, and 0
/// elsewhere.
fn in_part_order(worker: &Worker, turns: &Turns, losses: &[f64]) -> Result<f64> {
    let of_ranks = worker.comm.gather(0, losses, Kind::Control)?;
    let part = |part: usize, of_ranks: &[Vec<f64>]| of_ranks[part % of_ranks.len()][part / of_ranks.len()];
    Ok(of_ranks.map_or(0.0, |of_ranks| (0..turns.parts()).map(|p| part(p, &of_ranks)).sum()))
}

/// All weights, one after the other.
fn weights(parameters: &Parameters) -> Vec<f32> {
    parameters.iter().flat_map(|weight| weight.value.iter().copied()).collect()
}

fn put_weights(parameters: &mut Parameters, values: &[f32]) {
    let places = parameters.iter_mut().flat_map(|weight| &mut weight.value);
    places.zip(values).for_each(|(place, &value)| *place = value);
}

/// All that an optimiser remembers, one number after the other.
fn numbers(state: &OptimizerState) -> Vec<f32> {
    state.moments.iter().flat_map(|moments| moments.first.iter().chain(&moments.second)).copied().collect()
}

fn put_numbers(state: &mut OptimizerState, values: &[f32], steps: u64) {
    state.steps = steps;
    let places =
        state.moments.iter_mut().flat_map(|moments| moments.first.iter_mut().chain(&mut moments.second));
    places.zip(values).for_each(|(place, &value)| *place = value);
}
