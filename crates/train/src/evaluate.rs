//! Exact evaluation: every node, every neighbour, layer by layer on all ranks; the same for every strategy.
//!
//! Inference is the same pass with its rows kept.

use crate::boundary::Exact;
use crate::evaluate_links::{OwnRows, in_part_order};
use crate::event::Evaluation;
use crate::metric::{Counts, Metric};
use crate::model::{Outcome, Pass};
use crate::run::{RunConfig, Task};
use crate::worker::Worker;
use crate::{Result, embedding, evaluate_turns};
use archipelago_comm::{Kind, Phase};
use archipelago_graph::Part;
use archipelago_graph::store::PartLabels;
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::Instant;

/// Runs the model on all nodes with the weights as they are. Row `i` of the outcome is the part's row `order[i]`.
pub fn forward_all(worker: &mut Worker, keep_embeddings: bool) -> Result<Outcome> {
    worker.comm.enter(Phase::new("evaluate"));
    let mut boundary = Exact::new(Arc::clone(&worker.comm), worker.config.exchange.overlap)?;
    worker.tape.begin_evaluation();
    let input = embedding::all_input(worker);
    // What follows from the features alone is of no use where input rows change.
    let statics = worker.embeddings.is_none().then_some(&mut worker.statics);
    let pass = Pass { layouts: &worker.whole, input, statics, keep_embeddings };
    worker.model.forward(&mut worker.tape, &mut boundary, pass)
}

/// Scores of all splits on all ranks. `epoch` is only reported.
pub fn evaluate(worker: &mut Worker, epoch: u64) -> Result<Evaluation> {
    let started = Instant::now();
    make_room(worker);
    if worker.links.is_some() {
        return evaluate_held_out_links(worker, epoch, started);
    }
    let metric = metric(&worker.config, &worker.part);
    if worker.islands.as_ref().is_some_and(|islands| islands.turns.rotate()) {
        let sums = evaluate_turns::counts(worker)?;
        return Ok(scores(&sums, metric, epoch, started));
    }
    let outcome = forward_all(worker, false)?;
    let part = &worker.part;
    let mut row_of = vec![0u32; part.owned()];
    for (at, &row) in worker.order.iter().enumerate() {
        row_of[row as usize] = at as u32;
    }
    let classes = part.classes();
    let scores_of = worker.tape.value(outcome.output);
    let row = |row: u32| &scores_of[row_of[row as usize] as usize * classes..][..classes];
    let mut sums = split_counts(part, row);
    worker.comm.all_reduce_sum_u64(&mut sums, Kind::Control)?;
    make_room(worker);
    Ok(scores(&sums, metric, epoch, started))
}

/// Counts of all splits of `part`, one after the other, by the scores of its rows.
pub(crate) fn split_counts<'a>(part: &Part, scores: impl Fn(u32) -> &'a [f32]) -> Vec<u64> {
    let count = |split: &[u32]| {
        let mut counts = Counts::default();
        split.iter().for_each(|&row| count_row(&mut counts, part, row as usize, scores(row)));
        counts.to_array()
    };
    [count(part.train()), count(part.valid()), count(part.test())].concat()
}

/// The scores that counts of all splits on all ranks come to.
fn scores(sums: &[u64], metric: Metric, epoch: u64, started: Instant) -> Evaluation {
    let score = |split: usize| {
        let mut counts = [0; 5];
        counts.copy_from_slice(&sums[5 * split..][..5]);
        Counts::from_array(counts).score(metric)
    };
    Evaluation {
        epoch,
        metric,
        train: score(0),
        valid: score(1),
        test: score(2),
        exact: true,
        secs: started.elapsed().as_secs_f64(),
    }
}

/// Scores of the links that are held out, by the final rows of all nodes.
fn evaluate_held_out_links(worker: &mut Worker, epoch: u64, started: Instant) -> Result<Evaluation> {
    let outcome = forward_all(worker, false)?;
    let width = worker.tape.cols(outcome.output);
    let values = in_part_order(&worker.order, worker.tape.value(outcome.output), width);
    make_room(worker);
    let metric = metric(&worker.config, &worker.part);
    let own = OwnRows { comm: &worker.comm, part: &worker.part, values: &values, width };
    let [valid, test] = match &worker.links {
        Some(task) => task.evaluate(&mut worker.tape, own, &worker.config, metric)?,
        None => [None, None],
    };
    make_room(worker);
    let secs = started.elapsed().as_secs_f64();
    Ok(Evaluation { epoch, metric, train: None, valid, test, exact: true, secs })
}

/// Gives back the memory of steps before an evaluation, and the reverse, where the two share few buffers: the rows of
/// a batch are not those of the graph.
pub(crate) fn make_room(worker: &mut Worker) {
    if !worker.global_batch {
        worker.tape.reset();
        worker.tape.arena.clear();
        worker.spent.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// What scores of this run are.
pub fn metric(config: &RunConfig, part: &Part) -> Metric {
    match part.labels() {
        _ if config.train.task == Task::Link => config.train.link_metric.metric(),
        PartLabels::Multi(_) => Metric::MicroF1,
        _ => Metric::Accuracy,
    }
}

fn count_row(counts: &mut Counts, part: &Part, row: usize, scores: &[f32]) {
    match part.labels() {
        PartLabels::Classes(values) if values[row] >= 0 => counts.add_class(scores, values[row] as usize),
        PartLabels::Multi(values) => {
            counts.add_labels(scores, &values[row * scores.len()..][..scores.len()]);
        }
        _ => {}
    }
}
