//! What the strategies share in which ranks train on islands: how an island is trained on, and what is refused.

use super::EpochOutcome;
use super::own_batch::{self, OwnBatch, Rules};
use crate::agree::coverage::Coverage;
use crate::batch::Prepared;
use crate::batch::launcher::Ahead;
use crate::boundary::Isolated;
use crate::feature;
use crate::island::{Islands, Isle, Landing};
use crate::model::Pass;
use crate::plan::Plan;
use crate::run::{BatchKind, Correction, Norm, RunConfig, Task};
use crate::tape::{Goal, Input};
use crate::view::{Layout, Statics};
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result};
use archipelago_comm::Phase;
use archipelago_graph::{Part, PartId};
use std::sync::Arc;

/// Refuses what would cross part borders inside a step, or what has a home that an island has not.
pub(super) fn check(config: &RunConfig) -> Result<()> {
    let name = &config.strategy.name;
    let refused = |key: &'static str, expected: &str, hint: &str| {
        let found = config.show(key).unwrap_or_default();
        let message = format!("expected {expected} with strategy `{name}`, found {found}");
        Err(Error::config(config.place(key), key, message).with_hint(hint))
    };
    if config.train.task == Task::Link {
        return refused("train.task", "`node`", "links lead from island to island; `distdgl` learns them");
    }
    if config.model.embedding > 0 {
        return refused(
            "model.embedding",
            "0",
            "rows of an embedding cross in every step; `distdgl` has them",
        );
    }
    if config.model.norm == Norm::Batch {
        let hint = "statistics over all ranks would cross in every step; `layer` has none";
        return refused("model.norm", "`none` or `layer`", hint);
    }
    if config.exchange.codec != "f32" {
        return refused(
            "exchange.codec",
            "`f32`",
            "what is brought from around an island is read in every step",
        );
    }
    match config.train.batch {
        BatchKind::Mini => own_batch::check(config),
        BatchKind::Global => Ok(()),
        BatchKind::Cluster => {
            let message = format!(
                "expected `mini` or `global` with strategy `{}`, found `cluster`",
                config.strategy.name
            );
            Err(Error::config(config.place("train.batch"), "train.batch", message).with_hint(
                "clusters of a graph make batches with strategy `graphtheta`, and parts with `cluster-gcn`",
            ))
        }
    }
}

/// The islands of a worker of an isolated strategy.
pub(super) fn islands(worker: &Worker) -> Result<&Islands> {
    worker.islands.as_ref().ok_or_else(|| Error::Launch {
        message: "a rank without islands was given a strategy that needs them: a defect of archi".into(),
        code: 1,
    })
}

/// Has the files of the next phase read ahead, where parts take turns; `parts` are those of a base's island. Called before the
/// island of this phase is made, so that the disk reads one while processors make the other.
pub(super) fn read_ahead(worker: &Worker, phase: usize, parts: impl Fn(PartId) -> Vec<PartId>) -> Result<()> {
    let islands = islands(worker)?;
    let turns = islands.turns;
    let next = turns.part(worker.comm.rank(), (phase + 1) % turns.phases());
    if worker.config.residency.prefetch && turns.rotate() {
        islands.expect(&next.map_or_else(Vec::new, parts));
    }
    Ok(())
}

/// An island that can be trained on.
pub(super) struct Trainable {
    pub isle: Isle,
    way: Way,
    /// Targets of all islands that make steps together.
    together: u64,
}

enum Way {
    /// In sampled batches.
    Batches(Box<OwnBatch>),
    /// All at once.
    Whole(Box<WholeIsle>),
}

/// How an epoch on an island is trained.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// How much gradients count.
    pub correction: Correction,
    /// Whether gradients are summed over ranks; else the rank moves its own weights.
    pub summed: bool,
}

impl Trainable {
    /// `isle` with the others of its phase, of `counts` targets each, of which it is the one at `seat`. What is
    /// `lasting` will be trained on for more than one epoch.
    pub fn new(
        worker: &Worker,
        isle: Isle,
        batch: BatchKind,
        counts: Vec<usize>,
        seat: usize,
        lasting: bool,
    ) -> Result<Self> {
        let together = counts.iter().map(|&count| count as u64).sum();
        let way = match batch {
            BatchKind::Mini => Way::Batches(Box::new(OwnBatch::on_island(worker, &isle, counts, seat)?)),
            BatchKind::Global | BatchKind::Cluster => {
                Way::Whole(Box::new(WholeIsle::new(worker, &isle, lasting)?))
            }
        };
        Ok(Self { isle, way, together })
    }

    /// The piece of the graph, when it is trained on no more.
    pub fn into_part(self) -> Arc<Part> {
        drop(self.way);
        self.isle.part
    }

    /// Trains one epoch. Returns this rank's share of the mean loss over all targets of the run.
    pub fn epoch(
        &mut self,
        worker: &mut Worker,
        manner: Manner,
        epoch: u64,
        step: u64,
        each: &mut dyn FnMut(&Coverage),
    ) -> Result<EpochOutcome> {
        let mut rules = OnIsland { isle: &self.isle, manner, landing: Landing::default(), each };
        let mut outcome = match &mut self.way {
            Way::Batches(batches) => {
                let mut launcher = Ahead(worker.config.train.prefetch);
                batches.epoch(worker, epoch, step, Some(&mut launcher), &mut rules)?
            }
            Way::Whole(_) if self.together == 0 => EpochOutcome::default(),
            Way::Whole(whole) => {
                let loss = whole.step(worker, &mut rules, self.together, epoch, step + 1)?;
                EpochOutcome { loss, steps: 1, ..EpochOutcome::default() }
            }
        };
        outcome.landing = rules.landing;
        Ok(outcome)
    }
}

/// What a step on an island does with its gradient.
struct OnIsland<'a> {
    isle: &'a Isle,
    manner: Manner,
    landing: Landing,
    /// Who hears of the coverage of each batch.
    each: &'a mut dyn FnMut(&Coverage),
}

impl OnIsland<'_> {
    /// Corrects the gradient of a batch of these targets, whose last layer is `layout`, and moves the weights.
    fn settle(
        &mut self,
        worker: &mut Worker,
        items: &[u32],
        layout: Option<&Arc<Layout>>,
        epoch: u64,
        step: u64,
    ) -> Result<()> {
        let drawn = |at: usize| layout.map_or(0, |layout| layout.block.incoming.range(at).len());
        if let Some(coverage) = Coverage::of(&self.isle.coverage, items, drawn) {
            self.landing.targets += items.len() as u64;
            self.landing.coverage += coverage.mean * items.len() as f64;
            (self.each)(&coverage);
            let factor = coverage.factor(self.manner.correction);
            if factor != 1.0 {
                let gradients = worker.tape.parameters.iter_mut().flat_map(|weight| &mut weight.grad);
                gradients.for_each(|gradient| *gradient *= factor);
            }
        }
        match self.manner.summed {
            true => worker.update(epoch, step),
            false => worker.update_alone(epoch, step),
        }
    }

    /// How often the loss of each of these targets counts.
    fn target_weights(&self, items: &[u32]) -> Option<Vec<f32>> {
        let coverage = |&item: &u32| self.isle.coverage[item as usize];
        (self.manner.correction == Correction::Node).then(|| items.iter().map(coverage).collect())
    }
}

impl Rules for OnIsland<'_> {
    fn weights(&mut self, prepared: &Prepared) -> Option<Vec<f32>> {
        self.target_weights(&prepared.items)
    }

    fn update(&mut self, worker: &mut Worker, prepared: &Prepared, epoch: u64, step: u64) -> Result<()> {
        self.settle(worker, &prepared.items, prepared.layouts.last(), epoch, step)
    }
}

/// All targets of an island with all their neighbours there.
struct WholeIsle {
    layers: Vec<Arc<Layout>>,
    input: Input,
    /// What follows from the features alone, where more than one step is made of them.
    statics: Option<Statics>,
    items: Vec<u32>,
    labels: TargetLabels,
}

impl WholeIsle {
    fn new(worker: &Worker, isle: &Isle, lasting: bool) -> Result<Self> {
        let (part, config) = (&isle.part, &worker.config);
        let layers = config.model.layers;
        let plan =
            Plan::alone(part, &islands(worker)?.alone, &isle.labelled, layers, &isle.degrees, lasting)?;
        let input = feature::rows(part, &plan.order, config.data.features);
        let statics = lasting.then(|| Statics::new(plan.whole, input.clone(), None));
        Ok(Self {
            layers: plan.layers,
            input,
            statics,
            items: (0..isle.labelled.len() as u32).collect(),
            labels: TargetLabels::of(part, &isle.labelled),
        })
    }

    fn step(
        &mut self,
        worker: &mut Worker,
        rules: &mut OnIsland<'_>,
        together: u64,
        epoch: u64,
        step: u64,
    ) -> Result<f64> {
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "step" });
        worker.tape.begin_step(worker.config.train.seed, epoch as usize, 0);
        let inputs = self.layers.first().map_or(0, |layout| layout.block.local);
        let input = worker.tape.constant(&self.input, inputs);
        let pass =
            Pass { layouts: &self.layers, input, statics: self.statics.as_mut(), keep_embeddings: false };
        let scores = worker.model.forward(&mut worker.tape, &mut Isolated, pass)?.output;
        let weights = rules.target_weights(&self.items);
        let goal = Goal { weights: weights.as_deref(), ..self.labels.goal() };
        let loss = worker.tape.loss(scores, goal, worker.loss_weight(together));
        worker.tape.backward(&mut Isolated)?;
        rules.settle(worker, &self.items, self.layers.last(), epoch, step)?;
        worker.tape.reset();
        Ok(loss * together as f64 / worker.all_targets.max(1) as f64)
    }
}
