//! What sampling stands on: a rank's part, the operators, and the rows that it keeps of others.
//!
//! Also answers other ranks: draws in-edges of owned nodes, and reads out owned features. Answers depend on nothing
//! but the question.

use super::cache::Cache;
use super::operators::Operators;
use super::rows::RowForm;
use super::wire::{Head, TAG, What, garbled};
use crate::feature::Scaled;
use crate::ops::Pool;
use crate::run::RunConfig;
use crate::{Result, feature};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::Part;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::sample::{Drawn, Hop, Lists, Scratch};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows whose in-edges one task draws.
const ROWS_PER_TASK: usize = 2048;

/// What a rank samples from. Shared by the threads of the rank; read only, but for scratch memory.
pub(super) struct Ground {
    pub part: Arc<Part>,
    pub originals: Arc<Vec<u64>>,
    pub config: Arc<RunConfig>,
    pub operators: Operators,
    pub pool: Pool,
    pub form: RowForm,
    pub cache: Cache,
    /// Weighted in-degrees of the part's rows in the whole graph, where its own lists do not tell.
    pub degrees: Option<Arc<Vec<f32>>>,
    scratch: Spare<Scratch>,
    pieces: Spare<Drawn>,
}

/// Things that wait for their next use.
#[derive(Default)]
struct Spare<T>(Mutex<Vec<T>>);

impl<T: Default> Spare<T> {
    fn take(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, thing: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(thing);
    }
}

impl Ground {
    /// What `part` offers, in rows of this `form`; `cache` holds rows of other parts.
    pub fn new(
        part: Arc<Part>,
        originals: Arc<Vec<u64>>,
        config: Arc<RunConfig>,
        operators: Operators,
        pool: Pool,
        form: RowForm,
        cache: Cache,
    ) -> Self {
        Self {
            part,
            originals,
            config,
            operators,
            pool,
            form,
            cache,
            degrees: None,
            scratch: Spare::default(),
            pieces: Spare::default(),
        }
    }

    /// Original id and weighted in-degree of each of these nodes that this part owns; zeros for the others.
    pub fn own_facts(&self, nodes: &[u64]) -> (Vec<u64>, Vec<f32>) {
        let (originals, offsets) = (self.part.original(), self.part.offsets());
        let originals = self.own_values(nodes, |row| originals[row]);
        let degrees = match (&self.degrees, self.part.weights()) {
            (Some(degrees), _) => self.own_values(nodes, |row| degrees[row]),
            (None, Some(_)) => self.own_values(nodes, |row| self.part.weighted_degree(row)),
            (None, None) => self.own_values(nodes, |row| (offsets[row + 1] - offsets[row]) as f32),
        };
        (originals, degrees)
    }

    /// One fact at a time, so that reads from all over the part overlap.
    fn own_values<T: Default>(&self, nodes: &[u64], value: impl Fn(usize) -> T) -> Vec<T> {
        let own = self.part.range();
        let of = |node: &u64| match own.contains(node) {
            true => value((node - own.start) as usize),
            false => T::default(),
        };
        nodes.iter().map(of).collect()
    }

    pub fn features(&self) -> Scaled<'_> {
        Scaled::of(&self.part, self.config.data.features)
    }

    /// Numbers per feature row.
    pub fn width(&self) -> usize {
        feature::width(&self.part)
    }

    /// What all draws of a step start from.
    pub fn step_key(&self, epoch: u64, step: u32) -> Key {
        Key::new(self.config.train.seed, Purpose::Sample).with(epoch).with(u64::from(step))
    }

    /// Draws in-edges of owned `rows`, in pieces that do not depend on the threads.
    pub fn draw(&self, rows: &[u32], hop: Hop) -> Vec<Drawn> {
        let count = rows.len().div_ceil(ROWS_PER_TASK).max(1);
        let mut pieces: Vec<Drawn> = (0..count).map(|_| self.pieces.take()).collect();
        let lists = Lists::new(&self.part, &self.originals);
        let slots: Vec<Mutex<&mut Drawn>> = pieces.iter_mut().map(Mutex::new).collect();
        self.pool.for_ranges(rows.len(), ROWS_PER_TASK, |range| {
            let mut scratch = self.scratch.take();
            let mut piece = slots[range.start / ROWS_PER_TASK].lock().unwrap_or_else(PoisonError::into_inner);
            self.operators.hop.draw(&lists, &rows[range], hop, &mut scratch, &mut piece);
            piece.look_up(&lists);
            self.scratch.give(scratch);
        });
        drop(slots);
        pieces
    }

    /// Takes pieces that [`draw`](Self::draw) gave back, for their memory.
    pub fn give_back(&self, pieces: impl IntoIterator<Item = Drawn>) {
        for mut piece in pieces {
            piece.clear();
            self.pieces.give(piece);
        }
    }

    /// Answers [`What::Ask`].
    pub fn tell(&self, comm: &Comm, to: usize, head: Head, rows: &[u32], epoch: u64) -> Result<()> {
        self.check_rows(rows)?;
        let hop = Hop::new(head.hop as usize, self.step_key(epoch, head.step));
        let pieces = self.draw(rows, hop);
        let edges: usize = pieces.iter().map(|piece| piece.edges.len()).sum();
        let (weights, ids) = (self.part.weights(), self.form.ids);
        let (halo, owned, start) = (self.part.halo(), self.part.owned(), self.part.range().start);
        let global = |row: u32| match (row as usize).checked_sub(owned) {
            Some(outside) => halo[outside],
            None => start + u64::from(row),
        };
        let words = rows.len() + edges * (ids.words() + usize::from(weights.is_some()));
        let frame = Head { what: What::Told, ..head }.frame(comm, words, |words| {
            let (counts, words) = words.split_at_mut(rows.len());
            let drawn_counts = pieces.iter().flat_map(|piece| &piece.counts);
            counts.iter_mut().zip(drawn_counts).for_each(|(slot, &count)| *slot = count);
            let (told, told_weights) = words.split_at_mut(edges * ids.words());
            for (place, &source) in pieces.iter().flat_map(Drawn::sources).enumerate() {
                ids.put(told, place, global(source));
            }
            if let Some(weights) = weights {
                let drawn = pieces.iter().flat_map(|piece| &piece.edges);
                told_weights
                    .iter_mut()
                    .zip(drawn)
                    .for_each(|(slot, &edge)| *slot = weights[edge as usize].to_bits());
            }
            Ok(())
        })?;
        self.give_back(pieces);
        Ok(comm.send(to, TAG, Kind::Control, frame)?)
    }

    /// Answers [`What::Want`].
    pub fn give(&self, comm: &Comm, to: usize, head: Head, rows: &[u32]) -> Result<()> {
        self.check_rows(rows)?;
        let features = self.features();
        let words = self.form.words(&features, rows);
        let frame = Head { what: What::Rows, ..head }
            .frame(comm, words, |words| self.form.write(&self.part, &features, rows, words))?;
        Ok(comm.send(to, TAG, Kind::Features, frame)?)
    }

    fn check_rows(&self, rows: &[u32]) -> Result<()> {
        match rows.iter().all(|&row| (row as usize) < self.part.owned()) {
            true => Ok(()),
            false => Err(garbled("rows that this part owns")),
        }
    }
}
