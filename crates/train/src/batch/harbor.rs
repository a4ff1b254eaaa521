//! The sampler of one rank: one loop that takes in messages, runs tasks in order of importance, and begins batches.
//!
//! Tasks of an earlier batch come before those of a later one, and of the same batch the cheaper one first
//! (ByteGNN's fine scheduling); a question of another rank belongs to the batch it is asked for. When a batch is
//! begun is decided by a [`Launcher`]. Batches leave in the order of their steps, and each is the same whatever the
//! order of tasks: scheduling changes speed, never numbers.
//!
//! The loop ends when all batches of the epoch have left and every other rank has said that it will ask no more.

use super::ground::Ground;
use super::launcher::{Gauge, Launcher};
use super::recent::Table;
use super::underway::{Task, Underway};
use super::wire::{Head, TAG, What};
use super::{Course, Loading, Prepared, Traffic};
use crate::meter::thread_cpu_seconds;
use crate::{Error, Result};
use archipelago_comm::{Comm, Frame};
use archipelago_graph::sample::{Draft, Met};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Something to do, in the order in which it should be done.
struct Job {
    step: u32,
    cost: u64,
    number: u64,
    work: Work,
}

enum Work {
    /// A task of a batch of ours.
    Own(Task),
    /// A question of another rank.
    Serve(usize, Frame),
}

impl Job {
    /// Whether it is about features; else it is about edges.
    fn fetches(&self) -> bool {
        match &self.work {
            Work::Own(task) => matches!(task, Task::Fetch | Task::Fill),
            Work::Serve(_, frame) => Head::read(frame).is_ok_and(|(head, _)| head.what == What::Want),
        }
    }

    fn rank(&self) -> (u32, u64, u64) {
        (self.step, self.cost, self.number)
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The sampler of one rank in one epoch.
pub(super) struct Harbor<'a> {
    comm: &'a Comm,
    ground: &'a Ground,
    course: &'a Course<'a>,
    traffic: &'a Traffic,
    launcher: &'a mut dyn Launcher,
    /// Where ready batches go; none when they are asked for one by one.
    out: Option<Sender<Prepared>>,
    underway: BTreeMap<u32, Underway>,
    /// Batches that are ready and were not given away.
    ready: VecDeque<Prepared>,
    jobs: BinaryHeap<Reverse<Job>>,
    posted: u64,
    begun: u32,
    /// Batches all of whose rows have been asked for: the next one may ask.
    fetched: u32,
    /// Batches that are ready or have left.
    filled: u32,
    /// The rows of nodes of other ranks in the last batch that was fetched.
    last_met: Met,
    /// The rows of the last batch that was filled.
    last_rows: Option<Table>,
    last_begin: Instant,
    sample_ms: f64,
    /// Which ranks will ask nothing more.
    finished: Vec<bool>,
    said_done: bool,
    /// When a message came last.
    heard: Instant,
    drafts: Vec<Draft>,
    loading: Loading,
}

impl<'a> Harbor<'a> {
    pub fn new(
        comm: &'a Comm,
        ground: &'a Ground,
        course: &'a Course<'a>,
        traffic: &'a Traffic,
        launcher: &'a mut dyn Launcher,
        out: Option<Sender<Prepared>>,
    ) -> Self {
        Self {
            comm,
            ground,
            course,
            traffic,
            launcher,
            out,
            underway: BTreeMap::new(),
            ready: VecDeque::new(),
            jobs: BinaryHeap::new(),
            posted: 0,
            begun: 0,
            fetched: 0,
            filled: 0,
            last_met: Met::default(),
            last_rows: None,
            last_begin: Instant::now(),
            sample_ms: 0.0,
            finished: vec![false; comm.size()],
            said_done: false,
            heard: Instant::now(),
            drafts: Vec::new(),
            loading: Loading::default(),
        }
    }

    /// Draws all batches of the epoch and serves the other ranks meanwhile.
    pub fn run(mut self) -> Result<Loading> {
        while !self.traffic.stop.load(Ordering::Acquire) {
            self.take_in(Duration::ZERO)?;
            if self.begin_if_due() || self.work()? {
                continue;
            }
            self.say_done()?;
            if self.is_over() {
                break;
            }
            self.rest()?;
        }
        self.comm.need(None);
        if let Some(rows) = self.last_rows {
            rows.retire(&mut self.traffic.arena());
        }
        Ok(self.loading)
    }

    /// Draws the next batch here and now, for a rank that is alone.
    pub fn next(&mut self) -> Result<Option<Prepared>> {
        if self.filled == self.course.steps {
            return Ok(None);
        }
        self.begin();
        while self.work()? {}
        Ok(self.ready.pop_front())
    }

    /// What was drawn so far.
    pub fn loading(&self) -> Loading {
        self.loading
    }

    fn begin_if_due(&mut self) -> bool {
        if self.begun == self.course.steps {
            return false;
        }
        let gauge = Gauge {
            underway: self.underway.len(),
            queue: (self.filled - self.traffic.taken.load(Ordering::Acquire)) as usize,
            gap: self.last_begin.elapsed(),
            sample_ms: self.sample_ms,
            train_ms: f64::from_bits(self.traffic.train_ms.load(Ordering::Relaxed)),
        };
        let due = self.launcher.launch(&gauge);
        if due {
            self.loading.queue += gauge.queue as u64;
            self.begin();
        }
        due
    }

    fn begin(&mut self) {
        let started = thread_cpu_seconds();
        let step = self.begun;
        self.begun += 1;
        self.last_begin = Instant::now();
        let seeded = self.course.seed(step);
        let draft = self.drafts.pop().unwrap_or_default();
        let underway = Underway::begin(self.ground, draft, step, seeded);
        self.underway.insert(step, underway);
        self.post(step, [Task::Fetch, Task::Hop]);
        self.loading.draw_secs += thread_cpu_seconds() - started;
    }

    /// Puts tasks of a batch on the list, unless it is not its turn for them: then they are posted when it is.
    fn post(&mut self, step: u32, tasks: impl IntoIterator<Item = Task>) {
        for task in tasks {
            let turn = match task {
                Task::Fetch => step == self.fetched,
                Task::Fill => step == self.filled,
                Task::Hop | Task::Stitch => true,
            };
            if !turn {
                continue;
            }
            let cost = self.underway.get(&step).map_or(0, |batch| batch.cost(self.ground, task));
            self.push(step, cost, Work::Own(task));
        }
    }

    fn push(&mut self, step: u32, cost: u64, work: Work) {
        self.posted += 1;
        self.jobs.push(Reverse(Job { step, cost, number: self.posted, work }));
    }

    /// Runs the most important job; `false` when there is none.
    fn work(&mut self) -> Result<bool> {
        let Some(Reverse(job)) = self.jobs.pop() else { return Ok(false) };
        let started = thread_cpu_seconds();
        let fetches = job.fetches();
        match job.work {
            Work::Serve(from, frame) => self.serve(from, &frame)?,
            Work::Own(Task::Fetch) => self.fetch(job.step)?,
            Work::Own(Task::Fill) => self.fill(job.step),
            Work::Own(task) => {
                let Some(batch) = self.underway.get_mut(&job.step) else { return Ok(true) };
                let tasks = batch.draw(self.ground, self.comm, self.course.epoch, task)?;
                self.post(job.step, tasks);
            }
        }
        let taken = thread_cpu_seconds() - started;
        match fetches {
            true => self.loading.fetch_secs += taken,
            false => self.loading.draw_secs += taken,
        }
        Ok(true)
    }

    fn serve(&self, from: usize, frame: &Frame) -> Result<()> {
        let (head, rows) = Head::read(frame)?;
        match head.what {
            What::Ask => self.ground.tell(self.comm, from, head, rows, self.course.epoch),
            _ => self.ground.give(self.comm, from, head, rows),
        }
    }

    /// Asks for rows of a batch; once it has asked for all, it is the next one's turn.
    fn fetch(&mut self, step: u32) -> Result<()> {
        // A task may stand on the list several times: the first to run has asked for what the others would.
        if step != self.fetched {
            return Ok(());
        }
        let Some(batch) = self.underway.get_mut(&step) else { return Ok(()) };
        batch.fetch(self.ground, self.comm, &self.last_met)?;
        if !batch.is_fetched(self.ground) {
            return Ok(());
        }
        if self.ground.config.exchange.reuse {
            batch.swap_met(&mut self.last_met);
        }
        self.fetched += 1;
        if self.underway.contains_key(&self.fetched) {
            self.post(self.fetched, [Task::Fetch]);
        }
        self.fill_if_complete(step);
        Ok(())
    }

    fn fill_if_complete(&mut self, step: u32) {
        if self.underway.get(&step).is_some_and(|batch| batch.is_complete(self.ground)) {
            self.post(step, [Task::Fill]);
        }
    }

    fn fill(&mut self, step: u32) {
        let Some(batch) = self.underway.remove(&step) else { return };
        let begun = batch.begun;
        let last = self.last_rows.take();
        let epoch = self.course.epoch;
        let (prepared, rows, draft) = batch.fill(self.ground, epoch, last, self.traffic, &mut self.loading);
        self.last_rows = rows;
        self.drafts.push(draft);
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        self.sample_ms = if self.sample_ms == 0.0 { ms } else { 0.8 * self.sample_ms + 0.2 * ms };
        match &self.out {
            // Nobody listens any more only when training has failed, and then it says why.
            Some(out) => out.send(prepared).unwrap_or_default(),
            None => self.ready.push_back(prepared),
        }
        self.filled += 1;
        self.fill_if_complete(self.filled);
    }

    /// Takes in what has come, waiting `patience` for the first.
    fn take_in(&mut self, patience: Duration) -> Result<()> {
        let mut patience = patience;
        while let Some((from, frame)) = self.comm.receive_any(TAG, patience)? {
            patience = Duration::ZERO;
            self.hear(from, frame)?;
        }
        Ok(())
    }

    fn hear(&mut self, from: usize, frame: Frame) -> Result<()> {
        let (head, words) = Head::read(&frame)?;
        let ground = self.ground;
        self.heard = Instant::now();
        match head.what {
            What::Wake => {}
            What::Done => self.finished[from] = true,
            What::Ask => {
                let cost = ground.operators.hop.expected(words.len(), head.hop as usize);
                self.push(head.step, cost as u64, Work::Serve(from, frame));
            }
            What::Want => {
                let cost = (words.len() * ground.width()) as u64;
                self.push(head.step, cost, Work::Serve(from, frame));
            }
            What::Told => {
                if let Some(batch) = self.underway.get_mut(&head.step) {
                    let tasks = batch.hear_edges(ground, from, head, frame)?;
                    self.post(head.step, tasks);
                }
            }
            What::Rows => {
                if let Some(batch) = self.underway.get_mut(&head.step) {
                    batch.hear_rows(ground, from, head, frame)?;
                    self.fill_if_complete(head.step);
                }
            }
        }
        Ok(())
    }

    /// Waits for news, but not for ever for an answer.
    fn rest(&mut self) -> Result<()> {
        let started = Instant::now();
        if self.underway.values().next().is_some_and(|first| first.waits_for(self.comm.rank()).is_none()) {
            let message =
                "the first batch under way waits for nobody and has nothing to do: a defect of archi";
            return Err(Error::Launch { message: message.into(), code: 1 });
        }
        let needed = self.needed();
        self.comm.need(needed.map(|(peer, _, since)| (peer, since)));
        let mut patience = match self.begun < self.course.steps {
            true => self.launcher.patience(),
            false => Duration::from_secs(1),
        };
        if let Some((peer, what, since)) = needed {
            match self.comm.deadline().checked_sub(since.elapsed()) {
                Some(left) => patience = patience.min(left),
                None => return Err(self.comm.overdue(peer, &what, since).into()),
            }
        }
        self.take_in(patience)?;
        self.loading.sampler_stall_secs += started.elapsed().as_secs_f64();
        Ok(())
    }

    /// Which rank's word is needed for what, and since when: the one that is needed longest.
    fn needed(&self) -> Option<(usize, &'static str, Instant)> {
        let waits = self.underway.values().filter_map(|batch| {
            let (peer, what) = batch.waits_for(self.comm.rank())?;
            Some((peer, what, batch.waiting_since))
        });
        waits.min_by_key(|&(.., since)| since).or_else(|| {
            // Once training has taken the last batch, the other ranks have drawn theirs, or will at once.
            let all_taken = self.traffic.taken.load(Ordering::Acquire) == self.course.steps;
            let peer = self.finished.iter().position(|finished| !finished)?;
            all_taken.then_some((peer, "the end of its sampling", self.heard))
        })
    }

    /// Tells the others once that all our batches are drawn.
    fn say_done(&mut self) -> Result<()> {
        if self.said_done || self.filled < self.course.steps {
            return Ok(());
        }
        self.said_done = true;
        self.finished[self.comm.rank()] = true;
        let peers = (0..self.comm.size()).filter(|&peer| peer != self.comm.rank());
        peers.into_iter().try_for_each(|peer| Head::new(What::Done, 0, 0, 0).send(self.comm, peer, &[]))
    }

    fn is_over(&self) -> bool {
        self.finished.iter().all(|&finished| finished)
    }
}
