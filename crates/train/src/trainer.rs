//! The epoch loop, written once for all strategies: train, evaluate, report, checkpoint, stop.
//!
//! Decisions that end or steer the loop (early stopping, an interruption, a loss that is no number) are made from
//! numbers that all ranks share, so all ranks make the same one in the same epoch.

mod report;

use crate::batch::operators::Operators;
use crate::boundary::Memory;
use crate::checkpoint::{Checkpoint, Slot, State, Totals, hex, weights_sha256};
use crate::event::{EpochReport, Evaluation, Event, IslandReport, Observer, Sampling, Summary};
use crate::meter::{cpu_seconds, peak_rss_bytes};
use crate::ops::Pool;
use crate::run::{RunConfig, Task};
use crate::stopping::{Stopping, Verdict};
use crate::strategy::{self, Behavior, Strategy};
use crate::worker::Worker;
use crate::{Error, Result, embedding, evaluate};
use archipelago_comm::terms::Fact;
use archipelago_comm::{Comm, Job, Kind, Meters, launch};
use archipelago_graph::Store;
use archipelago_graph::store::Manifest;
use report::Closing;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// One run: what to train on which data, who listens, and how to stop it.
pub struct Run<'a> {
    /// What the user asked for, resolved.
    pub config: Arc<RunConfig>,
    /// The partitioned graph.
    pub store: &'a Store,
    /// The folder of the run; none leaves no checkpoints.
    pub folder: Option<PathBuf>,
    /// Who hears of events.
    pub observer: &'a dyn Observer,
    /// Set when the user asks to stop; the run ends after the current epoch, with a checkpoint.
    pub stop: &'a AtomicBool,
    /// The state to go on from.
    pub resume: Option<Checkpoint>,
    /// The processes that share the work; the first one listens, answers and writes.
    pub job: Job,
    /// Operators that batches are drawn with; none for those that the run file names.
    pub operators: Option<Operators>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    /// All epochs were trained, or patience ran out.
    Finished(Box<Summary>),
    /// The user asked to stop after this epoch; a checkpoint holds it.
    Interrupted {
        /// The last whole epoch.
        epoch: u64,
    },
}

impl Run<'_> {
    /// Trains on one rank per part.
    pub fn train(&self) -> Result<Ending> {
        let entry = self.check()?;
        let pool = Pool::new(threads(&self.config));
        let ranks = entry.behavior.ranks(&self.config, self.store.parts());
        let mut endings = self.launch_ranks(ranks, |comm| {
            let mut worker = self.worker(comm, &pool, entry.behavior)?;
            if worker.islands.is_some() && worker.all_targets == 0 {
                let message = "no training node has a label: there is nothing to learn";
                return Err(archipelago_graph::Error::usage(message).into());
            }
            worker.operators = self.operators.clone();
            let strategy = (entry.build)(&worker)?;
            Session::new(self, worker, strategy)?.run()
        })?;
        Ok(endings.swap_remove(0))
    }

    /// Refuses, before anything is started or written, what cannot be trained: names that are in no table, settings
    /// that the strategy cannot follow, data without anything to learn.
    pub fn check(&self) -> Result<&'static strategy::Entry> {
        let manifest = self.store.manifest();
        if self.config.train.task == Task::Link {
            return self.check_links();
        }
        if manifest.labels.classes() == 0 || manifest.parts.iter().all(|part| part.train == 0) {
            let message =
                format!("`{}` has no labelled training nodes: there is nothing to learn", manifest.dataset);
            return Err(Error::from(archipelago_graph::Error::usage(message))
                .with_hint("classes need labels and a `train` split, see `archi check`; `archi convert IN OUT --draw-split 60,20,20` draws one; edges can be predicted without: `--set train.task=link`"));
        }
        let entry = strategy::check(&self.config, self.store.parts())?;
        let (ranks, processes) =
            (entry.behavior.ranks(&self.config, self.store.parts()), self.job.processes());
        if entry.behavior.isolated && ranks < processes {
            let key = "residency.resident";
            let message = format!("expected an island for each of {processes} processes, found {ranks}");
            let parts = self.store.parts();
            return Err(Error::config(self.config.place(key), key, message).with_hint(format!(
                "`residency.resident` may be {processes} to {parts}, or start fewer processes"
            )));
        }
        Ok(entry)
    }

    fn check_links(&self) -> Result<&'static strategy::Entry> {
        let manifest = self.store.manifest();
        if manifest.edges == 0 {
            let message = format!("`{}` has no edges: there are no links to learn", manifest.dataset);
            return Err(archipelago_graph::Error::usage(message).into());
        }
        strategy::check(&self.config, self.store.parts())
    }

    /// Runs `work` once per part, as ranks that can talk to each other.
    pub fn launch<T: Send>(&self, work: impl Fn(Comm) -> Result<T> + Sync) -> Result<Vec<T>> {
        self.launch_ranks(self.store.parts() as usize, work)
    }

    /// Runs `work` on this many ranks that can talk to each other.
    pub fn launch_ranks<T: Send>(
        &self,
        ranks: usize,
        work: impl Fn(Comm) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let deadline = Duration::from_secs(self.config.exchange.deadline_secs);
        let config = self.job.config(ranks).with_deadline(deadline);
        Ok(launch(&config, work)?)
    }

    /// One rank of this run, for a strategy that behaves so.
    pub(crate) fn worker(&self, comm: Comm, pool: &Pool, behavior: Behavior) -> Result<Worker> {
        comm.same_everywhere(&self.terms())?;
        let config = Arc::clone(&self.config);
        Worker::of_store(comm, self.store, config, pool.clone(), behavior, &self.scratch())
    }

    /// The folder for scratch files.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// What all processes must have alike before they work on a run.
    fn terms(&self) -> Vec<Fact> {
        let resumed =
            self.resume.as_ref().map_or("none".into(), |found| format!("epoch {}", found.state.epoch));
        self.data_identity().into_iter().chain([("checkpoint".into(), resumed)]).collect()
    }

    /// Facts that tell this store from another: a run resumes on the same ones only.
    pub fn data_identity(&self) -> BTreeMap<String, String> {
        let manifest = self.store.manifest();
        [
            ("dataset", manifest.dataset.clone()),
            ("nodes", manifest.nodes.to_string()),
            ("edges", manifest.edges.to_string()),
            ("parts", self.store.parts().to_string()),
            ("store digest", store_digest(manifest)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// One number for all checksums of a store.
fn store_digest(manifest: &Manifest) -> String {
    let mut digest = Sha256::new();
    for (_, file) in manifest.files(Path::new("")) {
        digest.update(file.xxh3.as_bytes());
    }
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// How many threads the kernels of this process use.
pub fn threads(config: &RunConfig) -> usize {
    match config.train.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        threads => threads,
    }
}

/// One rank's way through the epochs.
struct Session<'a> {
    run: &'a Run<'a>,
    worker: Worker,
    strategy: Box<dyn Strategy>,
    stopping: Stopping,
    epoch: u64,
    step: u64,
    totals: Totals,
    started: Instant,
    wall_before: f64,
    meters: Meters,
    /// What drawing the batches of the last epoch took.
    sampled: Option<Sampling>,
    /// What crossing part borders took on each rank, in all epochs of this session.
    crossed: Vec<Vec<u64>>,
    /// What islands took in all of them.
    landed: Option<IslandReport>,
}

/// Whether the loop goes on after an epoch.
enum Next {
    Epoch,
    StopEarly,
    Interrupt,
}

impl<'a> Session<'a> {
    fn new(run: &'a Run<'a>, worker: Worker, strategy: Box<dyn Strategy>) -> Result<Self> {
        let meters = worker.comm.meters();
        let mut session = Self {
            stopping: Stopping::new(run.config.train.patience),
            epoch: 0,
            step: 0,
            totals: Totals::default(),
            started: Instant::now(),
            wall_before: 0.0,
            run,
            worker,
            strategy,
            meters,
            sampled: None,
            crossed: Vec::new(),
            landed: None,
        };
        if let Some(checkpoint) = &run.resume {
            session.restore(checkpoint)?;
        }
        Ok(session)
    }

    fn run(mut self) -> Result<Ending> {
        self.announce()?;
        while self.epoch < self.run.config.train.epochs {
            match self.one_epoch()? {
                Next::Epoch => {}
                Next::StopEarly => break,
                Next::Interrupt => {
                    self.save(Slot::Last)?;
                    self.tell(|| Event::Interrupted { epoch: self.epoch });
                    return Ok(Ending::Interrupted { epoch: self.epoch });
                }
            }
        }
        self.save(Slot::Last)?;
        let summary = self.summary()?;
        self.tell(|| Event::Finished(Box::new(summary.clone())));
        Ok(Ending::Finished(Box::new(summary)))
    }

    fn one_epoch(&mut self) -> Result<Next> {
        let (wall, cpu, before) = (Instant::now(), cpu_seconds(), self.worker.comm.meters());
        let outcome = self.strategy.epoch(&mut self.worker, self.epoch + 1, self.step)?;
        let before_these = self.epoch;
        self.epoch = (self.epoch + self.strategy.span()).min(self.run.config.train.epochs);
        self.step += outcome.steps;
        let Closing { loss, stop, bytes_sent, exchange } = self.close(outcome.loss, &outcome.toll, before)?;
        let secs = wall.elapsed().as_secs_f64();
        let (health, cpu_secs) = self.health(before, cpu_seconds() - cpu)?;
        let sampling = self.sampling(&outcome.loading, secs, cpu_secs)?;
        let islands = self.islands(&outcome.landing)?;
        if !loss.is_finite() {
            return Err(Error::NotFinite { epoch: self.epoch, step: self.step, what: "the loss".into() });
        }
        let span = (self.epoch - before_these) as f64;
        self.totals.losses.push(loss);
        self.totals.epoch_secs.push(secs / span);
        self.totals.epoch_cpu_secs.push(cpu_secs / span);
        let evaluation = self.evaluate_if_due(before_these)?;
        let verdict = evaluation.as_ref().and_then(|found| self.judge(found)).unwrap_or(Verdict::Wait);
        let lr = self.worker.learning_rate(self.epoch);
        self.tell(|| {
            let (epoch, step) = (self.epoch, self.step);
            Event::Epoch(Box::new(EpochReport {
                epoch,
                step,
                loss,
                lr,
                secs,
                cpu_secs,
                bytes_sent,
                sampling,
                exchange,
                islands,
                health,
                evaluation,
            }))
        });
        self.keep(verdict, before_these)?;
        match verdict {
            Verdict::Stop => {
                self.tell_stopped_early();
                Ok(Next::StopEarly)
            }
            _ if stop && self.epoch < self.run.config.train.epochs => Ok(Next::Interrupt),
            _ => Ok(Next::Epoch),
        }
    }

    /// Evaluates where an epoch after `before` asks for it.
    fn evaluate_if_due(&mut self, before: u64) -> Result<Option<Evaluation>> {
        let train = &self.run.config.train;
        let every = train.eval_every;
        let due = every > 0 && (self.epoch / every > before / every || self.epoch == train.epochs);
        if due { evaluate::evaluate(&mut self.worker, self.epoch).map(Some) } else { Ok(None) }
    }

    fn judge(&mut self, found: &Evaluation) -> Option<Verdict> {
        found.valid.map(|valid| self.stopping.observe(self.epoch, valid, found.test))
    }

    /// Checkpoints that an epoch after `before` asks for.
    fn keep(&mut self, verdict: Verdict, before: u64) -> Result<()> {
        let output = &self.run.config.output;
        if verdict == Verdict::Better && output.keep_best {
            self.save(Slot::Best)?;
        }
        let every = output.checkpoint_every;
        if every > 0 && self.epoch / every > before / every && self.epoch < self.run.config.train.epochs {
            self.save(Slot::Last)?;
        }
        Ok(())
    }

    fn save(&mut self, slot: Slot) -> Result<()> {
        let Some(folder) = &self.run.folder else { return Ok(()) };
        let embeddings = embedding::keep(&self.worker)?;
        // Only a run that is not over goes on from here.
        let remembers = slot == Slot::Last && self.goes_on(self.epoch);
        let comm = Arc::clone(&self.worker.comm);
        if comm.rank() > 0 {
            return if remembers {
                Memory::hand_over(&comm, || self.memory(), |_, _| Ok(()))
            } else {
                Ok(())
            };
        }
        let mut checkpoint = self.checkpoint();
        if let Some(embeddings) = embeddings {
            embeddings.put(&mut checkpoint);
        }
        let path = checkpoint.save_with(folder, slot, |new| {
            let keep = |rank, memory| Checkpoint::write_memory(new, rank, &memory);
            if remembers { Memory::hand_over(&comm, || self.memory(), keep) } else { Ok(()) }
        })?;
        self.tell(|| Event::Checkpoint { path, epoch: self.epoch });
        Ok(())
    }

    /// Whether there are epochs after this one.
    fn goes_on(&self, epoch: u64) -> bool {
        epoch < self.run.config.train.epochs
    }

    /// What this rank remembers from step to step.
    fn memory(&mut self) -> Result<Memory> {
        let mut memory = self.strategy.save()?;
        for (name, values) in self.worker.agreement.memory() {
            memory.put(name, values);
        }
        Ok(memory)
    }

    fn checkpoint(&self) -> Checkpoint {
        let mut checkpoint = Checkpoint {
            state: State {
                epoch: self.epoch,
                step: self.step,
                best: self.stopping.best(),
                run_toml: self.run.config.to_toml(),
                data: self.run.data_identity(),
                totals: Totals {
                    wall_secs: self.wall_secs(),
                    peak_rss_bytes: self.totals.peak_rss_bytes.max(peak_rss_bytes()),
                    ..self.totals.clone()
                },
            },
            optimizer: self.worker.optimizer.state().clone(),
            ..Checkpoint::default()
        };
        checkpoint.set_weights(&self.worker.tape.parameters);
        checkpoint.set_buffers(&self.worker.tape.buffers);
        checkpoint
    }

    fn restore(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        checkpoint.restore_weights(&mut self.worker.tape.parameters)?;
        checkpoint.restore_buffers(&mut self.worker.tape.buffers)?;
        self.worker.optimizer.restore(checkpoint.optimizer.clone())?;
        if let Some(embeddings) = &mut self.worker.embeddings {
            embeddings.restore(&self.worker.part, checkpoint)?;
        }
        if self.goes_on(checkpoint.state.epoch) {
            self.recall()?;
        }
        self.epoch = checkpoint.state.epoch;
        self.step = checkpoint.state.step;
        self.totals = checkpoint.state.totals.clone();
        self.wall_before = self.totals.wall_secs;
        self.stopping = Stopping::resumed(self.run.config.train.patience, checkpoint.state.best);
        self.tell(|| Event::Resumed { epoch: self.epoch });
        Ok(())
    }

    /// Takes what this rank remembered when the last checkpoint was written.
    fn recall(&mut self) -> Result<()> {
        let memory = match &self.run.folder {
            Some(folder) => Checkpoint::load_memory(folder, self.worker.comm.rank())?,
            None => Memory::default(),
        };
        self.strategy.restore(&memory)?;
        let names: Vec<_> = self.worker.agreement.memory().iter().map(|(name, _)| *name).collect();
        for name in names {
            self.worker.agreement.recall(name, memory.get(name).unwrap_or_default())?;
        }
        Ok(())
    }

    fn wall_secs(&self) -> f64 {
        self.wall_before + self.started.elapsed().as_secs_f64()
    }

    fn tell(&self, event: impl FnOnce() -> Event) {
        if self.worker.comm.rank() == 0 {
            self.run.observer.event(&event());
        }
    }

    fn tell_stopped_early(&self) {
        let patience = self.run.config.train.patience;
        let best_epoch = self.stopping.best().map_or(0, |best| best.epoch);
        self.tell(|| Event::StoppedEarly { epoch: self.epoch, best_epoch, patience });
    }

    /// Digest of all weights, the same on all ranks.
    fn weights_sha256(&self) -> Result<String> {
        let embeddings = embedding::gather_rows(&self.worker)?;
        let mut digest = weights_sha256(&self.worker.tape.parameters, embeddings.as_deref());
        // Embeddings of other ranks are at rank 0 only.
        self.worker.comm.broadcast(0, &mut digest, Kind::Control)?;
        Ok(hex(&digest))
    }
}
