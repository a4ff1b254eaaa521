//! Several batches under way at a time, each with the version of the weights that it began with.
//!
//! A rank finds the views of batches in order and hands them to its lanes: threads with a tape of their own, of which one that
//! is free takes the next batch. While one lane waits for rows of other ranks, another computes. A batch speaks with other
//! ranks in a conversation of its own, so it does not matter which lane has it where, nor which batch is done first.
//!
//! With `sync`, batches that are under way begin with the same weights and make one step together: with `n` of them a step is
//! that of a batch `n` times as large. With `async` every batch makes a step, in the order of the batches, and batch `b`
//! begins with the weights after `b - n + 1` steps: older than they could be, never by more than `n - 1` steps, and always the
//! same ones, so that a run can be repeated to the bit. At the end of an epoch nothing is under way.

use super::{Deal, Moment, Setting, Weight};
use crate::boundary::{Boundary, Exact, Toll};
use crate::index::Active;
use crate::parameters::{Parameter, Parameters, put_back};
use crate::run::Updates;
use crate::strategy::EpochOutcome;
use crate::tape::Tape;
use crate::worker::Worker;
use crate::{Error, Result, memory};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The lanes of a rank.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    updates: Updates,
}

/// A thread's tape, and its way to other ranks.
struct Lane {
    tape: Tape,
    boundary: Exact,
}

/// A batch to be computed.
struct Job {
    number: usize,
    active: Active,
    now: Moment,
    weights: Arc<Vec<f32>>,
}

/// What came of it.
struct Done {
    number: usize,
    loss: f64,
    gradient: Vec<f32>,
}

/// The numbers of all weights, one after the other.
fn numbers(parameters: &Parameters, of: fn(&Parameter) -> &[f32]) -> Vec<f32> {
    parameters.iter().flat_map(|parameter| of(parameter).iter().copied()).collect()
}

impl Lane {
    fn compute(&mut self, setting: Setting<'_>, job: &Job) -> Result<Done> {
        put_back(self.tape.parameters.iter_mut().map(|weight| &mut weight.value), &job.weights);
        self.boundary.converse(job.number as u64);
        let loss = setting.learn(&mut self.tape, &mut self.boundary, &job.active, job.now)?;
        self.tape.catch_up();
        self.tape.reset();
        let gradient = numbers(&self.tape.parameters, |weight| &weight.grad);
        Ok(Done { number: job.number, loss, gradient })
    }

    /// Computes batches as long as there are any.
    fn work(&mut self, setting: Setting<'_>, jobs: &Mutex<Receiver<Job>>, done: &Sender<Result<Done>>) {
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(job) = job else { return };
            // A lane that is gone would be waited for: whatever a layer does wrong is an error of its batch.
            let computed = catch_unwind(AssertUnwindSafe(|| self.compute(setting, &job)));
            let outcome = computed.unwrap_or_else(|cause| Err(panicked(&*cause)));
            let failed = outcome.is_err();
            if done.send(outcome).is_err() || failed {
                return;
            }
        }
    }
}

/// The batches of an epoch on their way.
struct Flight<'a> {
    jobs: Sender<Job>,
    done: Receiver<Result<Done>>,
    /// Done, and not yet part of a step.
    waiting: BTreeMap<usize, Done>,
    /// Batches that make up a step.
    together: usize,
    /// Batches, and those of them that are part of a step already.
    batches: &'a [(usize, u64)],
    landed: usize,
    outcome: EpochOutcome,
    weights: Arc<Vec<f32>>,
}

impl Lanes {
    /// So many lanes of a worker.
    pub fn new(worker: &Worker, count: usize) -> Result<Self> {
        let lane = || {
            let (weights, buffers) = (worker.tape.parameters.clone(), worker.tape.buffers.clone());
            let tape = Tape::new(weights, buffers, worker.tape.pool.clone());
            Ok(Lane { tape, boundary: Exact::of(&worker.config, Arc::clone(&worker.comm))? })
        };
        let lanes = (0..count).map(|_| lane()).collect::<Result<_>>()?;
        Ok(Self { lanes, updates: worker.config.agree.updates })
    }

    /// Batches that make up a step.
    pub fn together(&self) -> usize {
        match self.updates {
            Updates::Sync => self.lanes.len(),
            Updates::Async => 1,
        }
    }

    /// Bytes that all lanes hold: weights, gradients, and the rows of a step.
    pub fn bytes(&self, worker: &Worker) -> u64 {
        let weights = 12 * worker.tape.parameters.count() as u64;
        self.lanes.len() as u64 * (weights + memory::step_activations(worker))
    }

    /// All batches of an epoch; `view` finds what a batch computes.
    pub fn epoch(
        &mut self,
        worker: &mut Worker,
        deal: &Deal,
        epoch: u64,
        step: u64,
        mut view: impl FnMut(&Worker, Moment) -> Result<Active>,
    ) -> Result<EpochOutcome> {
        let batches: Vec<(usize, u64)> = deal.batches().collect();
        let (flight, together) = (self.lanes.len(), self.together());
        let (model, part, config) =
            (Arc::clone(&worker.model), Arc::clone(&worker.part), Arc::clone(&worker.config));
        let setting = Setting { model: &model, part: &part, config: &config };
        let (jobs, queue) = channel();
        let (told, done) = channel();
        let queue = Mutex::new(queue);
        let outcome = thread::scope(|scope| {
            for lane in &mut self.lanes {
                let (queue, told) = (&queue, told.clone());
                scope.spawn(move || lane.work(setting, queue, &told));
            }
            drop(told);
            let weights = Arc::new(numbers(&worker.tape.parameters, |weight| &weight.value));
            let (waiting, outcome) = (BTreeMap::new(), EpochOutcome::default());
            let batches = &batches[..];
            let mut flying = Flight { jobs, done, waiting, together, batches, landed: 0, outcome, weights };
            let flown = flying.fly(worker, deal, (epoch, step), flight, &mut view);
            // Lanes that wait for rows of other ranks must not do so for ever.
            if let Err(error) = &flown {
                worker.comm.abort(error.to_string());
            }
            flown.map(|()| flying.outcome)
        })?;
        Ok(EpochOutcome { toll: self.toll(), ..outcome })
    }

    fn toll(&mut self) -> Toll {
        let mut toll = Toll::default();
        self.lanes.iter_mut().for_each(|lane| toll.add(&lane.boundary.toll()));
        toll
    }
}

impl Flight<'_> {
    /// Lets all batches start, at most `flight` at a time, and land.
    fn fly(
        &mut self,
        worker: &mut Worker,
        deal: &Deal,
        (epoch, before): (u64, u64),
        flight: usize,
        view: &mut impl FnMut(&Worker, Moment) -> Result<Active>,
    ) -> Result<()> {
        for number in 0..self.batches.len() {
            while number >= self.landed + flight {
                self.land(worker, epoch, before)?;
            }
            let batch = self.batches[number].0;
            let weight = Weight::of(worker, self.step_of(number).iter().map(|(_, targets)| targets).sum());
            let (step, count) = (before + self.outcome.steps + 1, deal.rows(batch).len());
            let now = Moment { epoch, step, batch, count, weight };
            let active = view(worker, now)?;
            let job = Job { number, active, now, weights: Arc::clone(&self.weights) };
            self.jobs.send(job).map_err(|_| lost())?;
        }
        while self.landed < self.batches.len() {
            self.land(worker, epoch, before)?;
        }
        Ok(())
    }

    /// The batches that make up the same step as batch `number`.
    fn step_of(&self, number: usize) -> &[(usize, u64)] {
        let first = number / self.together * self.together;
        &self.batches[first..self.batches.len().min(first + self.together)]
    }

    /// Makes the next step, of the batches that have waited longest.
    fn land(&mut self, worker: &mut Worker, epoch: u64, before: u64) -> Result<()> {
        let mut sum: Vec<f32> = Vec::new();
        for _ in 0..self.step_of(self.landed).len() {
            let Done { loss, gradient, .. } = self.next()?;
            self.outcome.loss += loss;
            match sum.is_empty() {
                true => sum = gradient,
                false => sum.iter_mut().zip(gradient).for_each(|(sum, more)| *sum += more),
            }
        }
        put_back(worker.tape.parameters.iter_mut().map(|weight| &mut weight.grad), &sum);
        self.outcome.steps += 1;
        worker.update(epoch, before + self.outcome.steps)?;
        self.weights = Arc::new(numbers(&worker.tape.parameters, |weight| &weight.value));
        Ok(())
    }

    /// The result of the next batch in order.
    fn next(&mut self) -> Result<Done> {
        loop {
            if let Some(done) = self.waiting.remove(&self.landed) {
                self.landed += 1;
                return Ok(done);
            }
            let done = self.done.recv().map_err(|_| lost())??;
            self.waiting.insert(done.number, done);
        }
    }
}

/// What a panic in a lane said.
fn panicked(cause: &(dyn Any + Send)) -> Error {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("for no reason that it told");
    let message = format!("a batch that was under way panicked: {text}");
    archipelago_comm::Error::Usage { message, hint: "this is a defect of the program, please report it" }
        .into()
}

/// A lane ended without telling why.
fn lost() -> Error {
    let message = "a batch that was under way was lost".into();
    archipelago_comm::Error::Usage { message, hint: "this is a defect of the program, please report it" }
        .into()
}
