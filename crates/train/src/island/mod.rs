//! Islands on their own: a rank holds a few parts, with what it needs of the nodes around them, and trains on them
//! without a word to anyone but the sum of gradients (or of weights).
//!
//! Parts are read from the store's files, which every process must be able to read; what lies around an island is asked
//! of the ranks that its nodes belong to. A rank's own parts stay mapped, others are mapped for as long as they are read,
//! and where parts take turns their pages are given back as soon as an island has been made of them: so a rank holds no
//! more than the island of the moment. Files of the parts that come next are read ahead meanwhile.

mod guests;
mod isle;

pub use isle::{Isle, Landing, Reach};

use crate::ops::Pool;
use crate::residency::Turns;
use crate::run::RunConfig;
use crate::scratch::Scratch;
use crate::worker::labelled_training_rows;
use crate::{Error, Result};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::store::island::Memory;
use archipelago_graph::store::{Guests, Island};
use archipelago_graph::{GlobalId, Part, PartId, Store};
use guests::{Ask, Waiting};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// A rank's access to all parts, one island at a time.
pub struct Islands {
    store: Store,
    /// The voice among all ranks.
    pub comm: Arc<Comm>,
    /// The voice within this rank.
    pub alone: Arc<Comm>,
    /// Which part is where and when.
    pub turns: Turns,
    /// Labelled training nodes of each part.
    pub targets: Vec<u64>,
    /// Some part, for what all parts have alike.
    pub like: Arc<Part>,
    /// The parts that belong to this rank.
    parts: Vec<Option<Arc<Part>>>,
    /// Parts of other processes whose files here are what was written.
    verified: RefCell<HashSet<PartId>>,
    /// Guests of islands that will be back, by first part, number of parts and hops.
    waiting: RefCell<HashMap<Key, (Vec<PartId>, Waiting)>>,
    /// Where they wait.
    bench: RefCell<Option<Scratch>>,
    /// Whether the halo of every part has been brought for evaluation.
    pub(crate) sighted: Cell<bool>,
    scratch: PathBuf,
    /// Memory of an island that is no more, for the next.
    spare: RefCell<Memory>,
    /// Who makes islands.
    pool: Pool,
}

/// First part, number of parts, and hops of an island.
type Key = (PartId, usize, usize);

/// Which island to make.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Its parts; none for a rank that has no part in this phase.
    pub parts: &'a [PartId],
    /// How many of them, from the first, give their training nodes.
    pub trained: usize,
    /// How far around them it reaches.
    pub hops: usize,
    /// Whether rows have features.
    pub features: bool,
    /// Whether ranks ask each other for guests; the same on all ranks. Where not, those of the last time serve again.
    pub exchange: bool,
}

impl Islands {
    /// Sets the parts of this rank up: verifies and counts them. Scratch files go to `folder`.
    pub fn agree(
        store: &Store,
        comm: &Arc<Comm>,
        config: &RunConfig,
        pool: &Pool,
        folder: &Path,
    ) -> Result<Self> {
        let turns = Turns::new(store.parts() as usize, comm.size());
        let mut parts = vec![None; turns.parts()];
        let mut counts = vec![0; turns.parts()];
        for id in turns.of_rank(comm.rank()) {
            store.verify_part(id)?;
            let part = store.part(id)?;
            counts[id.index()] = labelled_training_rows(&part).len() as u64;
            part.release_all();
            parts[id.index()] = Some(Arc::new(part));
        }
        comm.all_reduce_sum_u64(&mut counts, Kind::Control)?;
        let deadline = std::time::Duration::from_secs(config.exchange.deadline_secs);
        let like = match &parts[comm.rank()] {
            Some(part) => Arc::clone(part),
            None => Arc::new(store.part(PartId(comm.rank() as u32))?),
        };
        Ok(Self {
            store: store.clone(),
            comm: Arc::clone(comm),
            alone: Arc::new(Comm::alone(deadline)?),
            turns,
            targets: counts,
            like,
            parts,
            verified: RefCell::default(),
            waiting: RefCell::default(),
            bench: RefCell::default(),
            sighted: Cell::new(false),
            scratch: folder.to_path_buf(),
            spare: RefCell::default(),
            pool: pool.clone(),
        })
    }

    /// Steps of an epoch in batches of so many targets: in each phase those of the part that has most.
    pub fn steps(&self, batch: u64) -> u64 {
        let most = |phase| self.turns.of_phase(phase).map(|part| self.targets[part.index()]).max();
        (0..self.turns.phases()).map(|phase| most(phase).unwrap_or(0).div_ceil(batch)).sum()
    }

    /// The folder for scratch files.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// A part, mapped. Those of this rank stay mapped; others are let go with their last use.
    pub fn part(&self, id: PartId) -> Result<Arc<Part>> {
        if let Some(part) = &self.parts[id.index()] {
            return Ok(Arc::clone(part));
        }
        // The files of a part are verified by the rank that it belongs to; those in another place are other files.
        let comm = &self.comm;
        let elsewhere = comm.process_of(self.turns.rank_of(id)) != comm.process_of(comm.rank());
        if elsewhere && self.verified.borrow_mut().insert(id) {
            self.store.verify_part(id)?;
        }
        Ok(Arc::new(self.store.part(id)?))
    }

    /// Gives back the pages of a part that was read, where parts take turns.
    fn leave(&self, part: &Part) {
        if self.turns.rotate() {
            part.release_all();
        }
    }

    /// The part that owns a node.
    fn owner(&self, node: GlobalId) -> PartId {
        self.like.owner_of(node)
    }

    /// Reads the files of these parts ahead, while something else is done. What is wrong with them is said when they are
    /// needed.
    pub fn expect(&self, ids: &[PartId]) {
        let store = self.store.clone();
        let parts: Vec<_> = ids.iter().map(|&id| (id, self.parts[id.index()].clone())).collect();
        let read = move || {
            for (id, own) in parts {
                if let Some(part) = own.or_else(|| store.part(id).ok().map(Arc::new)) {
                    part.expect();
                }
            }
        };
        // Without a thread they are read when they are needed.
        thread::Builder::new().name("reader".into()).spawn(read).map(drop).unwrap_or_default();
    }

    /// Makes an island and says what its targets are; its shuffles are those of its first part.
    pub fn isle(&self, wish: Wish<'_>) -> Result<Isle> {
        let lot = wish.parts.first().map_or(0, |first| u64::from(first.0));
        Ok(Isle::new(self.make(wish)?, lot))
    }

    /// Makes an island. All ranks make one together where guests are exchanged.
    fn make(&self, wish: Wish<'_>) -> Result<Island> {
        let (parts, guests) = self.around(&wish)?;
        let rows: usize =
            parts.iter().map(|part| part.owned()).chain(guests.iter().map(|g| g.ids.len())).sum();
        if rows >= u32::MAX as usize {
            let message = format!("an island of {rows} nodes: expected fewer than 2^32");
            return Err(Error::from(archipelago_graph::Error::usage(message)).with_hint(
                "cut the graph into more parts, or let islands reach less far (`residency.halo`)",
            ));
        }
        let hands = |count: usize, body: &(dyn Fn(usize) + Sync)| self.pool.for_each(count, body);
        let island = Island::build(&self.like, &parts, wish.trained, &guests, self.spare.take(), &hands);
        parts.iter().for_each(|part| self.leave(part));
        Ok(island)
    }

    /// The parts of an island, and who is around them, wave by wave.
    pub(crate) fn around(&self, wish: &Wish<'_>) -> Result<(Vec<Arc<Part>>, Vec<Guests>)> {
        let parts = wish.parts.iter().map(|&id| self.part(id)).collect::<Result<Vec<_>>>()?;
        let guests = if wish.hops > 0 { self.guests(wish, &parts)? } else { Vec::new() };
        Ok((parts, guests))
    }

    /// Takes the memory of an island that is no more, where nobody else holds it.
    pub fn give_back(&self, part: Arc<Part>) {
        if let Some(part) = Arc::into_inner(part) {
            self.spare.replace(Memory::of(part));
        }
    }

    /// Lets go of memory that waits for the next island.
    pub fn trim(&self) {
        self.spare.take();
    }

    /// Takes part in an exchange of guests that this rank needs none of.
    pub fn answer(&self, hops: usize) -> Result<()> {
        self.ask_around(&[], hops).map(drop)
    }

    fn guests(&self, wish: &Wish<'_>, parts: &[Arc<Part>]) -> Result<Vec<Guests>> {
        let key = wish.parts.first().map(|&first| (first, wish.parts.len(), wish.hops));
        let known = key.and_then(|key| {
            let waiting = self.waiting.borrow();
            let found = waiting.get(&key).filter(|(of, _)| of == wish.parts);
            found
                .zip(self.bench.borrow().as_ref())
                .map(|((_, guests), bench)| guests.load(bench, wish.features))
        });
        match known {
            Some(known) if !wish.exchange => return known,
            None if !wish.exchange && wish.parts.is_empty() => return Ok(Vec::new()),
            None if !wish.exchange => {
                let message = format!("nobody is known around part {}: a defect of archi", wish.parts[0]);
                return Err(Error::Launch { message, code: 1 });
            }
            _ => {}
        }
        // Who knows its guests asks for nobody, but answers.
        let asked = if known.is_some() { &[] } else { parts };
        let brought = self.ask_around(asked, wish.hops)?;
        if let Some(known) = known {
            return known;
        }
        if let Some(key) = key.filter(|_| self.turns.rotate()) {
            let mut bench = self.bench.borrow_mut();
            let bench = match &mut *bench {
                Some(bench) => bench,
                none => none.insert(Scratch::new(&self.scratch)?),
            };
            let mut waiting = self.waiting.borrow_mut();
            if let Some((_, gone)) = waiting.remove(&key) {
                gone.leave(bench);
            }
            waiting.insert(key, (wish.parts.to_vec(), Waiting::new(bench, &brought)?));
        }
        Ok(brought)
    }

    /// Brings the nodes around `parts`, one wave per hop; those of the last one send on nothing.
    fn ask_around(&self, parts: &[Arc<Part>], hops: usize) -> Result<Vec<Guests>> {
        let mut waves: Vec<Guests> = Vec::with_capacity(hops);
        let mut next = Island::around(parts);
        for hop in 1..=hops {
            let guests = self.bring(next, Ask { features: true, lists: hop < hops })?;
            let sources = guests.lists.iter().flat_map(|lists| &lists.sources).copied();
            let known = |node: &u64| {
                parts.iter().any(|part| part.range().contains(node))
                    || waves.iter().chain([&guests]).any(|wave| wave.ids.binary_search(node).is_ok())
            };
            next = sources.filter(|node| !known(node)).collect();
            next.sort_unstable();
            next.dedup();
            waves.push(guests);
        }
        Ok(waves)
    }

    /// Gives the pages of the parts of these nodes back, where parts take turns.
    fn let_go<'a>(&self, ids: impl Iterator<Item = &'a u64>) {
        if !self.turns.rotate() || ids.count() == 0 {
            return;
        }
        for part in self.parts.iter().flatten() {
            part.release_all();
        }
    }
}
