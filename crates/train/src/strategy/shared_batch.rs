//! What the strategies share in which all ranks compute one batch together, layer by layer, and gradients are summed.

use super::{EpochOutcome, Strategy, strategies};
use crate::boundary::{Boundary, Exact, Memory};
use crate::home::Home;
use crate::model::Pass;
use crate::run::{Placement, RunConfig, Task};
use crate::tape::Input;
use crate::view::Layout;
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result, memory};
use archipelago_comm::Phase;
use std::sync::Arc;

/// Refuses what belongs to batches: embeddings are pulled before a step and pushed after it, and so are links.
pub fn check(config: &RunConfig, _: u32) -> Result<()> {
    let name = &config.strategy.name;
    let refused = |key: &str, message: String| {
        let own = |entry: &&super::Entry| !entry.behavior.global_batch && !entry.behavior.isolated;
        let able = strategies().filter(own);
        let able: Vec<String> = able.map(|entry| format!("`{}`", entry.name)).collect();
        let hint = format!("strategies that can: {}", able.join(", "));
        Err(Error::config(config.place(key), key, message).with_hint(hint))
    };
    if config.train.task == Task::Link {
        return refused("train.task", format!("expected `node` with strategy `{name}`, found `link`"));
    }
    match config.model.embedding {
        0 => Ok(()),
        width => refused("model.embedding", format!("expected 0 with strategy `{name}`, found `{width}`")),
    }
}

/// One rank's share of every step, and what carries rows to and from the others.
pub struct SharedBatch<B> {
    /// What crosses part borders.
    pub boundary: B,
    labels: TargetLabels,
    home: Option<Home>,
    /// The layers of a step, where they are not the worker's.
    layers: Option<Vec<Arc<Layout>>>,
}

/// Where a step stands: epoch and step in the run, from 1, and round in the epoch, from 0.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Counted from 1.
    pub epoch: u64,
    /// Updates of the run, this one included.
    pub step: u64,
    /// Steps of the epoch before this one.
    pub round: u64,
}

impl SharedBatch<Exact> {
    /// Steps for which every row crosses that another rank reads. Sparse features of the halo are at home: to transform
    /// them once more costs less than to send what becomes of them, and its gradient, in every step.
    pub fn exact(worker: &Worker) -> Result<Self> {
        let boundary = Exact::of(&worker.config, Arc::clone(&worker.comm))?;
        let sparse = matches!(worker.statics.features, Input::Sparse(_));
        match sparse && worker.config.exchange.placement == Placement::Destination {
            true => Self::at_home(worker, boundary),
            false => Ok(Self::new(worker, boundary)),
        }
    }
}

impl<B: Boundary> SharedBatch<B> {
    /// Steps that cross `boundary`.
    pub fn new(worker: &Worker, boundary: B) -> Self {
        let labels = TargetLabels::of(&worker.part, &worker.order[..worker.targets]);
        Self { boundary, labels, home: None, layers: None }
    }

    /// The same with the first layer's halo at home: its rows never cross again.
    pub fn at_home(worker: &Worker, boundary: B) -> Result<Self> {
        let home = Home::bring(worker)?;
        let layers = home.as_ref().map(|home| {
            let first = std::iter::once(Arc::clone(&home.layout));
            first.chain(worker.layers.iter().skip(1).cloned()).collect()
        });
        Ok(Self { home, layers, ..Self::new(worker, boundary) })
    }

    /// The layers of a step on all rows.
    pub fn layers<'a>(&'a self, worker: &'a Worker) -> &'a [Arc<Layout>] {
        self.layers.as_deref().unwrap_or(&worker.layers)
    }

    /// One step over `thinned` layers, or else over all rows; returns this rank's share of the mean loss.
    pub fn step(
        &mut self,
        worker: &mut Worker,
        thinned: Option<&[Arc<Layout>]>,
        moment: Moment,
    ) -> Result<f64> {
        let Moment { epoch, step, round } = moment;
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "step" });
        worker.tape.begin_step(worker.config.train.seed, epoch as usize, round as usize);
        self.boundary.begin(epoch, step);
        let scores = self.forward(worker, thinned)?;
        let weight = worker.loss_weight(worker.all_targets);
        let loss = worker.tape.loss(scores, self.labels.goal(), weight);
        worker.tape.backward_owing(&mut self.boundary)?;
        worker.update(epoch, step)?;
        Ok(loss)
    }

    /// Scores of the targets, with dropout and a record of what was done if the tape is training.
    pub fn forward(
        &mut self,
        worker: &mut Worker,
        thinned: Option<&[Arc<Layout>]>,
    ) -> Result<crate::tape::Var> {
        let layouts = thinned.or(self.layers.as_deref()).unwrap_or(&worker.layers);
        let tape = &mut worker.tape;
        let inputs = layouts.first().map_or(worker.targets, |layout| layout.block.local);
        let (input, statics) = match &self.home {
            Some(home) => (tape.constant(&home.input, inputs), None),
            None => (tape.constant(&worker.statics.features, inputs), Some(&mut worker.statics)),
        };
        let pass = Pass { layouts, input, statics, keep_embeddings: false };
        Ok(worker.model.forward(tape, &mut self.boundary, pass)?.output)
    }
}

/// An epoch of one step on all rows.
impl<B: Boundary> Strategy for SharedBatch<B> {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        let loss = self.step(worker, None, Moment { epoch, step: step + 1, round: 0 })?;
        Ok(EpochOutcome { loss, steps: 1, toll: self.boundary.toll(), ..EpochOutcome::default() })
    }

    fn kept_bytes(&self, worker: &Worker) -> u64 {
        let order = self.boundary.order();
        let first = usize::from(worker.first_is_static() || self.home.is_some());
        let kept = worker.layers.iter().enumerate().skip(first).map(|(layer, layout)| {
            let (width, heads) = memory::aggregated(worker, layer, order);
            self.boundary.kept_numbers(layout, width, heads) as u64
        });
        4 * kept.sum::<u64>() + self.home.as_ref().map_or(0, |home| home.bytes() as u64)
    }

    fn save(&mut self) -> Result<Memory> {
        self.boundary.save()
    }

    fn restore(&mut self, memory: &Memory) -> Result<()> {
        self.boundary.restore(memory)
    }
}
