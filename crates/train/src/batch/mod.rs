//! Mini-batches across parts: a rank draws its own batches, asking other ranks for in-edges and features of nodes
//! that they own, while it trains on earlier ones.
//!
//! A rank has two sides. Its sampler ([`harbor`](self), a thread) makes batches ready and answers other ranks; its
//! trainer takes them one by one and computes. Both are needed for a step, so ranks agree before an epoch on how
//! many there are ([`Shares`]). What is drawn for a step is a function of seed, epoch and step, so that a run gives
//! the same numbers however the two sides overlap.
//!
//! Nothing here computes a layer or changes a weight.

mod wire;
mod rows;
mod cache;
mod recent;
mod ground;
mod share;
mod items;
pub mod negative;
pub mod operators;
pub mod launcher;
mod underway;
mod harbor;

pub use items::LinkBatch;
pub use share::Shares;

use crate::feature::Scaled;
use crate::island::Isle;
use crate::tape::{Arena, Input};
use crate::view::Layout;
use crate::worker::{TargetLabels, Worker};
use crate::{Error, Result};
use archipelago_comm::{Comm, Phase, panic_text};
use archipelago_graph::random::{Key, Purpose};
use cache::Cache;
use ground::Ground;
use harbor::Harbor;
use items::{Items, Seeded};
use launcher::{Ahead, Launcher};
use negative::NodeSpace;
use operators::Operators;
use rows::RowForm;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;
use wire::{Head, What};

/// A batch that is ready to be computed.
pub struct Prepared {
    /// Which step of the epoch it is for, counted from 0.
    pub step: u32,
    /// One layout per layer, first layer first.
    pub layouts: Vec<Arc<Layout>>,
    /// Features of the rows that the first layer reads.
    pub input: Input,
    /// Global id of each of these rows.
    pub nodes: Vec<u64>,
    /// Which items of this rank the batch computes; where they are nodes, in the order of its targets.
    pub items: Vec<u32>,
    /// Where items are links: how they pair the targets.
    pub links: Option<LinkBatch>,
}

/// What drawing the batches of an epoch took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Loading {
    /// Edges in all blocks.
    pub edges: u64,
    /// Input rows of all batches.
    pub rows: u64,
    /// Those of them that other ranks own.
    pub remote_rows: u64,
    /// Those of the remote ones that were kept here.
    pub cached_rows: u64,
    /// Those of the remote ones that the batch before had pulled.
    pub reused_rows: u64,
    /// Batches that waited in the queue, summed over the moments when a batch was begun.
    pub queue: u64,
    /// Batches.
    pub batches: u64,
    /// Processor seconds of the sampler for drawing edges and making blocks of them.
    pub draw_secs: f64,
    /// Processor seconds of the sampler for features: asking, giving, copying.
    pub fetch_secs: f64,
    /// Seconds in which the sampler had nothing to do.
    pub sampler_stall_secs: f64,
    /// Seconds in which training waited for a batch.
    pub trainer_stall_secs: f64,
}

impl Loading {
    /// Takes in what drawing more batches took.
    pub fn add(&mut self, other: &Self) {
        self.edges += other.edges;
        self.rows += other.rows;
        self.remote_rows += other.remote_rows;
        self.cached_rows += other.cached_rows;
        self.reused_rows += other.reused_rows;
        self.queue += other.queue;
        self.batches += other.batches;
        self.draw_secs += other.draw_secs;
        self.fetch_secs += other.fetch_secs;
        self.sampler_stall_secs += other.sampler_stall_secs;
        self.trainer_stall_secs += other.trainer_stall_secs;
    }
}

/// What the two sides of a rank tell each other.
#[derive(Default)]
struct Traffic {
    /// Batches that training has taken.
    taken: AtomicU32,
    /// Mean milliseconds between two of them, as bits.
    train_ms: AtomicU64,
    /// Training has failed: let go.
    stop: AtomicBool,
    /// Memory of batches that were trained on, for those to come.
    spent: Arc<Mutex<Arena>>,
}

impl Traffic {
    fn arena(&self) -> MutexGuard<'_, Arena> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) {
        self.taken.store(0, Ordering::Release);
        self.stop.store(false, Ordering::Release);
    }
}

/// The way through an epoch: what is trained on in which step.
struct Course<'a> {
    epoch: u64,
    steps: u32,
    /// Items in the order of this epoch.
    order: Vec<u32>,
    /// Nodes drawn by degree, where false links need them.
    by_degree: Vec<u64>,
    batches: &'a Batches,
}

impl Course<'_> {
    /// What a step computes.
    fn seed(&self, step: u32) -> Seeded {
        let batches = self.batches;
        let range = batches.shares.range(batches.seat, batches.size, u64::from(step));
        let ground = &batches.ground;
        let nodes = ground.part.starts().last().copied().unwrap_or(0);
        let space = NodeSpace { nodes, by_degree: &self.by_degree };
        let epoch = Key::new(ground.config.train.seed, Purpose::Negative).with(self.epoch);
        batches.items.seed(self.order[range].to_vec(), &ground.operators, space, epoch)
    }
}

/// Everything a rank needs to draw its batches.
pub struct Batches {
    ground: Ground,
    shares: Shares,
    /// Whose share is ours.
    seat: usize,
    /// What tells our shuffles from those of others: the number of our part.
    lot: u64,
    size: usize,
    items: Items,
    traffic: Traffic,
}

impl Batches {
    /// Sets sampling up on all ranks: deals out what is trained on, and fetches the rows that are kept.
    pub fn agree(worker: &Worker, operators: Operators) -> Result<Self> {
        let (comm, part, config) = (&*worker.comm, &worker.part, &worker.config);
        let (items, shares) = match &worker.links {
            Some(task) => Items::links(worker, &task.train)?,
            None => Items::nodes(worker)?,
        };
        let kept = (config.exchange.cache * part.halo().len() as f64).round() as usize;
        let kept = cache::hottest(part, &worker.starting_rows(), &config.train.fanouts, kept);
        let features = Scaled::of(part, config.data.features);
        let form = RowForm::of(part, config)?;
        let cache = Cache::fill(comm, part, &features, form, &kept)?;
        let (part, config) = (Arc::clone(part), Arc::clone(config));
        let originals = Arc::clone(&worker.originals);
        let ground = Ground::new(part, originals, config, operators, worker.tape.pool.clone(), form, cache);
        let size = ground.config.train.batch_size;
        Ok(Self {
            ground,
            shares,
            seat: comm.rank(),
            lot: comm.rank() as u64,
            size,
            items,
            traffic: Traffic { spent: Arc::clone(&worker.spent), ..Traffic::default() },
        })
    }

    /// Sets sampling up on an island, of which no other rank is asked anything. `shares` are the targets of all that
    /// make steps together, `seat` says which of them are ours.
    pub fn on_island(
        worker: &Worker,
        isle: &Isle,
        shares: Shares,
        seat: usize,
        operators: Operators,
    ) -> Result<Self> {
        let (part, config) = (Arc::clone(&isle.part), Arc::clone(&worker.config));
        let items = Items::on_island(&part, &isle.labelled);
        let form = RowForm::of(&part, &config)?;
        let originals = Arc::new(part.original().to_vec());
        let pool = worker.tape.pool.clone();
        let size = config.train.batch_size;
        let mut ground = Ground::new(part, originals, config, operators, pool, form, Cache::default());
        ground.degrees = Some(Arc::clone(&isle.degrees));
        let traffic = Traffic { spent: Arc::clone(&worker.spent), ..Traffic::default() };
        Ok(Self { ground, shares, seat, lot: isle.lot, size, items, traffic })
    }

    /// How many items there are on all ranks in a step.
    pub fn in_step(&self, step: u32) -> u64 {
        self.shares.in_step(self.size, u64::from(step))
    }

    /// The labels of the targets of a batch; none where links are predicted.
    pub fn labels(&self, prepared: &Prepared) -> Option<TargetLabels> {
        self.items.labels(&prepared.items)
    }

    /// Gives the memory of a batch back, or leaves that to the next batch if it is not filled yet.
    pub fn retire(&self, prepared: Prepared) {
        recent::retire(prepared.input, &mut self.traffic.arena());
    }

    /// The order of our items in an epoch.
    fn order(&self, epoch: u64) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.items.len() as u32).collect();
        let key = Key::new(self.ground.config.train.seed, Purpose::Shuffle).with(epoch).with(self.lot);
        self.ground.operators.seeds.order(&mut order, key);
        order
    }

    /// Draws the batches of an epoch one by one, each when `train` is done with the last; for one rank alone.
    pub fn epoch_in_place(
        &self,
        comm: &Comm,
        epoch: u64,
        mut train: impl FnMut(Prepared) -> Result<()>,
    ) -> Result<Loading> {
        let course = self.course(comm, epoch)?;
        self.traffic.begin();
        let mut launcher = Ahead(1);
        let mut harbor = Harbor::new(comm, &self.ground, &course, &self.traffic, &mut launcher, None);
        while let Some(prepared) = harbor.next()? {
            train(prepared)?;
        }
        Ok(Loading { batches: u64::from(course.steps), ..harbor.loading() })
    }

    /// Draws the batches of an epoch on a thread of their own while `train` works on earlier ones.
    pub fn epoch(
        &self,
        comm: &Arc<Comm>,
        epoch: u64,
        launcher: &mut dyn Launcher,
        train: impl FnMut(Prepared) -> Result<()>,
    ) -> Result<Loading> {
        let comm: &Comm = comm;
        comm.enter(Phase { epoch: epoch as usize, step: 0, layer: 0, what: "sample" });
        let course = self.course(comm, epoch)?;
        self.traffic.begin();
        let (out, ready) = channel();
        let harbor = Harbor::new(comm, &self.ground, &course, &self.traffic, launcher, Some(out));
        thread::scope(|scope| {
            let sampler =
                thread::Builder::new().name("sampler".into()).spawn_scoped(scope, || draw_all(comm, harbor));
            let sampler = sampler.map_err(|error| {
                Error::from(archipelago_graph::Error::usage(format!("no thread for a sampler: {error}")))
            })?;
            let training = AssertUnwindSafe(|| self.train_all(comm, course.steps, &ready, train));
            let trained = catch_unwind(training);
            if !matches!(trained, Ok(Ok(_))) {
                self.traffic.stop.store(true, Ordering::Release);
                // Where nothing can be sent any more, the sampler has ended too.
                self.wake(comm).unwrap_or_default();
            }
            let drawn = sampler.join().unwrap_or_else(|panic| resume_unwind(panic));
            let trained = trained.unwrap_or_else(|panic| resume_unwind(panic));
            // A sampler that failed is why training ran out of batches, so its error comes first.
            let loading = drawn?;
            let trainer_stall_secs = trained?;
            // A question of the next epoch must not meet a sampler of this one: its draws would be those of this one.
            comm.barrier()?;
            Ok(Loading { trainer_stall_secs, batches: u64::from(course.steps), ..loading })
        })
    }

    /// Trains on batches as they become ready; returns the seconds waited for them.
    fn train_all(
        &self,
        comm: &Comm,
        steps: u32,
        ready: &Receiver<Prepared>,
        mut train: impl FnMut(Prepared) -> Result<()>,
    ) -> Result<f64> {
        let (mut waited, mut mean_ms) = (0.0, 0.0);
        for step in 0..steps {
            let begun = Instant::now();
            // The sampler has gone: it will say why.
            let Ok(prepared) = ready.recv() else { break };
            waited += begun.elapsed().as_secs_f64();
            self.traffic.taken.store(step + 1, Ordering::Release);
            self.wake(comm)?;
            let computing = Instant::now();
            train(prepared)?;
            let ms = computing.elapsed().as_secs_f64() * 1e3;
            mean_ms = if step == 0 { ms } else { 0.8 * mean_ms + 0.2 * ms };
            self.traffic.train_ms.store(f64::to_bits(mean_ms), Ordering::Relaxed);
        }
        Ok(waited)
    }

    fn wake(&self, comm: &Comm) -> Result<()> {
        Head::new(What::Wake, 0, 0, 0).send(comm, comm.rank(), &[])
    }

    fn course(&self, comm: &Comm, epoch: u64) -> Result<Course<'_>> {
        let steps = self.shares.steps(self.size) as u32;
        let needs_degrees =
            matches!(self.items, Items::Links { .. }) && self.ground.operators.negatives.needs_degrees();
        let by_degree = match needs_degrees {
            true => items::draw_by_degree(comm, &self.ground.part, self.ground.config.train.seed, epoch)?,
            false => Vec::new(),
        };
        let order = self.order(epoch);
        Ok(Course { epoch, steps, order, by_degree, batches: self })
    }
}

/// Runs a sampler to its end. If it fails, all ranks end at once: they wait for its answers, and its own trainer waits
/// for them.
fn draw_all(comm: &Comm, harbor: Harbor<'_>) -> Result<Loading> {
    let drawn = catch_unwind(AssertUnwindSafe(|| harbor.run()));
    match drawn {
        Ok(Ok(loading)) => Ok(loading),
        Ok(Err(error)) => {
            comm.abort(error.to_string());
            Err(error)
        }
        Err(panic) => {
            comm.abort(format!("panicked: {}", panic_text(panic.as_ref())));
            resume_unwind(panic)
        }
    }
}
