//! Full batch: one exact step per epoch on the whole graph, computed by all ranks together.
//!
//! Each layer exchanges exactly the rows that its neighbours on other ranks read, forward and backward, and only
//! rows that the loss depends on are computed. Weight gradients are summed. The step equals that of one process
//! on the whole graph but for the order of sums.
//!
//! Messages per step and rank: two per layer after the first and neighbouring rank, and one all-reduce.

use super::{Behavior, Entry, EpochOutcome, Strategy};
use crate::batch::Loading;
use crate::boundary::Exact;
use crate::model::Pass;
use crate::run::{RunConfig, Task};
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result};
use archipelago_comm::Phase;
use std::rc::Rc;

pub(super) const ENTRY: Entry = Entry {
    name: "full",
    summary: "full batch, exact exchange in every layer, summed gradients",
    paper: "the baseline of all seven systems",
    behavior: Behavior { exact: true, global_batch: true, distributed: true, ranks_equal: true },
    check,
    build: |worker| {
        let labels = TargetLabels::of(&worker.part, &worker.order[..worker.targets]);
        let boundary = Exact::new(Rc::clone(&worker.comm), worker.config.exchange.overlap);
        Ok(Box::new(Full { boundary, labels }))
    },
};

/// Embeddings belong to batches: they are pulled before a step and pushed after it. So do links.
fn check(config: &RunConfig, _: u32) -> Result<()> {
    let refused = |key: &str, message: String| {
        let able = super::STRATEGIES.iter().filter(|entry| !entry.behavior.global_batch);
        let able: Vec<String> = able.map(|entry| format!("`{}`", entry.name)).collect();
        let hint = format!("strategies that can: {}", able.join(", "));
        Err(Error::config(config.place(key), key, message).with_hint(hint))
    };
    if config.train.task == Task::Link {
        return refused("train.task", "expected `node` with strategy `full`, found `link`".into());
    }
    match config.model.embedding {
        0 => Ok(()),
        width => refused("model.embedding", format!("expected 0 with strategy `full`, found `{width}`")),
    }
}

struct Full {
    boundary: Exact,
    labels: TargetLabels,
}

impl Strategy for Full {
    fn epoch(&mut self, worker: &mut Worker, epoch: u64, step: u64) -> Result<EpochOutcome> {
        worker.comm.enter(Phase { epoch: epoch as usize, step: step as usize, layer: 0, what: "step" });
        let tape = &mut worker.tape;
        tape.begin_step(worker.config.train.seed, epoch as usize, 0);
        let inputs = worker.layers.first().map_or(worker.targets, |layout| layout.block.local);
        let input = tape.constant(&worker.statics.features, inputs);
        let pass = Pass {
            layouts: &worker.layers,
            input,
            statics: Some(&mut worker.statics),
            keep_embeddings: false,
        };
        let scores = worker.model.forward(tape, &mut self.boundary, pass)?.output;
        let weight = worker.loss_weight(worker.all_targets);
        let loss = worker.tape.loss(scores, self.labels.goal(), weight);
        worker.tape.backward(&mut self.boundary)?;
        worker.update(epoch, step + 1)?;
        Ok(EpochOutcome { loss, steps: 1, loading: Loading::default() })
    }
}
