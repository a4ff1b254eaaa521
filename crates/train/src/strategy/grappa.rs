//! Grappa: every rank trains on an island, a part joined with one other, and only gradients cross between two switches.
//!
//! Targets come from the base, the first part of an island. Which part it is joined with changes every
//! `residency.sweep_every` epochs ([`Controller`]). `residency.halo` says what an island sees of the rest: nothing (0,
//! the paper's isolation), features of the nodes that send to its own (1: the first hop is complete), or of those up to
//! k hops away. The gradient of a batch is corrected by how much of its targets' neighbourhoods the island covers
//! (`agree.correction`, [`Coverage`]) before gradients are summed. The paper's choice is `resampling`. The default here is
//! `node`, each target by its own coverage: it scores better where coverage differs from node to node, and alike elsewhere
//! (docs/islands.md).
//!
//! With `residency.resident` islands in memory and more parts than that, an epoch runs in phases: all batches of the
//! first so many bases, then all of the next; weights and optimiser carry on. Neighbourhoods that an island has only a
//! part of are scaled up to the whole like sampled ones, so that sums and normalised sums keep their size.
//!
//! Messages: one all-reduce per step; at a switch, features of the nodes around new islands.

use super::controller::{Controller, Seen};
use super::on_island::{self, Manner, Trainable, islands, read_ahead};
use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::Result;
use crate::agree::coverage::Coverage;
use crate::boundary::Memory;
use crate::island::{Islands, Reach, Wish};
use crate::worker::Worker;
use archipelago_comm::Kind;
use archipelago_graph::PartId;
use std::time::Instant;

pub(super) const ENTRY: Entry = Entry {
    name: "grappa",
    summary: "isolated islands, a part and each other one in turn; gradients only, corrected by coverage",
    paper: "Grappa: gradient-only communication",
    behavior: Behavior::ISLANDS,
    preset: &[("residency.mode", "sweep"), ("agree.correction", "node")],
    reads: &[
        "residency.mode",
        "residency.resident",
        "residency.halo",
        "residency.sweep_every",
        "residency.deficit",
        "residency.deficit_steps",
        "residency.prefetch",
        "agree.correction",
        "train.batch",
    ],
    check: |config, _| on_island::check(config),
    build: |worker| Ok(Box::new(Grappa::new(worker)?)),
};

struct Grappa {
    controller: Controller,
    sweeps: bool,
    hops: usize,
    /// The island of the last phase, and of which parts it is.
    held: Option<(Vec<PartId>, Trainable)>,
    /// The parts of every base's last island.
    last: Vec<Vec<PartId>>,
}

impl Grappa {
    fn new(worker: &Worker) -> Result<Self> {
        let islands = islands(worker)?;
        let parts = islands.turns.parts();
        let residency = &worker.config.residency;
        Ok(Self {
            controller: Controller::new(&worker.config, parts),
            sweeps: residency.mode == "sweep",
            hops: residency.halo,
            held: None,
            last: vec![Vec::new(); parts],
        })
    }

    /// The parts of the island of `base`, itself first.
    fn parts(&self, base: PartId) -> Vec<PartId> {
        let partner = self.controller.partner(base).filter(|_| self.sweeps);
        std::iter::once(base).chain(partner).collect()
    }

    /// Makes the island of this rank in a phase, unless it is there; returns whether it is another than the last time,
    /// and how long that took.
    fn land(&mut self, worker: &Worker, phase: usize) -> Result<(bool, f64)> {
        let (started, islands) = (Instant::now(), islands(worker)?);
        let turns = islands.turns;
        let rank = worker.comm.rank();
        let mine = turns.part(rank, phase).map_or_else(Vec::new, |base| self.parts(base));
        // Every rank knows who of all needs other guests than before.
        let switched = |base: PartId| self.parts(base) != self.last[base.index()];
        let exchange = turns.of_phase(phase).any(switched);
        let switch = turns.part(rank, phase).is_some_and(switched);
        let there = self.held.as_ref().is_some_and(|(parts, _)| *parts == mine) && !turns.rotate();
        if !there || exchange && self.hops > 0 {
            // What was held is let go before the next one is made.
            let mut held = self.held.take();
            if let Some((_, left)) = held.take_if(|_| !there) {
                islands.give_back(left.into_part());
            }
            let wish = Wish { parts: &mine, trained: 1, hops: self.hops, features: true, exchange };
            self.held = Some(match held {
                Some(held) => {
                    islands.answer(self.hops)?;
                    held
                }
                None => (mine.clone(), self.trainable(worker, islands, wish, phase)?),
            });
        }
        for base in turns.of_phase(phase) {
            self.last[base.index()] = self.parts(base);
        }
        Ok((switch, started.elapsed().as_secs_f64()))
    }

    fn trainable(
        &self,
        worker: &Worker,
        islands: &Islands,
        wish: Wish<'_>,
        phase: usize,
    ) -> Result<Trainable> {
        let turns = islands.turns;
        read_ahead(worker, phase, |base| self.parts(base))?;
        let isle = islands.isle(wish)?;
        let mut counts: Vec<usize> =
            turns.of_phase(phase).map(|base| islands.targets[base.index()] as usize).collect();
        counts.resize(worker.comm.size(), 0);
        let lasting = !turns.rotate();
        Trainable::new(worker, isle, worker.config.train.batch, counts, worker.comm.rank(), lasting)
    }

    /// Tells all ranks what every base saw.
    fn share(&mut self, worker: &Worker, seen: &[(PartId, Seen)]) -> Result<()> {
        let mut facts: Vec<u64> = Vec::with_capacity(3 * seen.len());
        for (base, seen) in seen {
            facts.extend([u64::from(base.0), seen.low, seen.coverage.to_bits()]);
        }
        for told in worker.comm.all_gather(&facts, Kind::Control)? {
            for fact in told.chunks_exact(3) {
                let seen = Seen { low: fact[1], coverage: f64::from_bits(fact[2]) };
                self.controller.observe(PartId(fact[0] as u32), seen);
            }
        }
        Ok(())
    }
}

impl Strategy for Grappa {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        self.controller.begin(epoch);
        let manner = Manner { correction: worker.config.agree.correction, summed: true };
        let turns = islands(worker)?.turns;
        let mut all = EpochOutcome::default();
        let mut seen = Vec::new();
        for phase in 0..turns.phases() {
            let (switch, secs) = self.land(worker, phase)?;
            let Some((parts, held)) = &mut self.held else { continue };
            let base = parts.first().copied();
            let (controller, mut low) = (&self.controller, base.map_or(0, |base| self.controller.low(base)));
            let mut each = |coverage: &Coverage| low = controller.count(low, coverage.mean);
            let outcome = held.epoch(worker, manner, epoch, step + all.steps, &mut each)?;
            let landing = outcome.landing;
            all.add(&outcome);
            all.landing.switches += u64::from(switch);
            all.landing.made += u64::from(switch || turns.rotate());
            all.landing.secs += secs;
            if let Some(base) = base {
                let coverage = landing.coverage / landing.targets.max(1) as f64;
                seen.push((base, Seen { low, coverage }));
            }
        }
        if let Some((_, left)) = self.held.take_if(|_| turns.rotate()) {
            islands(worker)?.give_back(left.into_part());
        }
        self.share(worker, &seen)?;
        Ok(all)
    }

    fn steps(&self, worker: &Worker) -> u64 {
        let batch = worker.config.train.batch_size as u64;
        worker.islands.as_ref().map_or(0, |islands| islands.steps(batch))
    }

    fn reach(&self) -> Option<Reach> {
        Some(Reach { parts: 1 + usize::from(self.sweeps), hops: self.hops })
    }

    fn save(&mut self) -> Result<Memory> {
        Ok(self.controller.save())
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        self.controller.restore(memory)
    }
}
