//! What does a node bring of its own, beside its features? A row that is learned with the weights.
//!
//! Rows are sharded: a rank holds those of the nodes that it owns, with what the optimiser remembers of them, and is
//! the only one that changes them. A step [pulls](Embeddings::pull) the rows of its batch from their owners, puts
//! them beside the features, and [pushes](Embeddings::push) their gradients back. An owner sums the gradients of a
//! node in rank order and moves its row once. Rows of others are never kept: they change in every step.
//!
//! A row starts uniform within `sqrt(3 / width)`, which makes it about 1 long. Each number is a function of seed,
//! original id and column, so rows do not depend on the cut. Decay, clipping and schedules are for weights: rows move
//! at `train.embedding_lr` throughout, and only in steps that read them.
//!
//! Messages per step and rank: three all-to-alls, of row numbers, rows and gradients. Synchronous pushes make every
//! step see all updates before it. Asynchronous ones are sent without waiting, each is an update of its own, and an
//! owner makes it when it finds it, before it is asked for rows again or at the end of the epoch.
//!
//! Nothing here computes a layer, and nothing here writes files.

mod input;
mod kept;
mod rule;

pub use input::{all_input, gather_rows, input_width, learn, settle, step_input};
pub use kept::{Kept, NAME, keep};

use crate::Result;
use crate::run::RunConfig;
use archipelago_comm::{Comm, Kind, Tag};
use archipelago_graph::marks::Marks;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::{GlobalId, Part};
use rule::Rule;
use std::time::Duration;

/// The conversation of asynchronous pushes.
const PUSHED: Tag = Tag::new(3);

/// Sets rows apart from the weights, whose draws begin with a letter of their name.
const DRAWS: u64 = u64::MAX;

/// The learnable rows of the nodes that a rank owns.
pub struct Embeddings {
    width: usize,
    /// In the order of the part's owned rows.
    rows: Vec<f32>,
    rule: Rule,
    /// Which owned rows a push touches.
    touched: Marks,
    /// Where pushes are asynchronous: those of each rank that are on their way, less those that came early.
    owed: Option<Vec<i64>>,
}

impl Embeddings {
    /// The rows of a part before the first step; none where the run has no embeddings.
    pub fn of(part: &Part, config: &RunConfig) -> Option<Self> {
        let (width, train) = (config.model.embedding, &config.train);
        let ranks = part.starts().len() - 1;
        (width > 0).then(|| Self {
            width,
            rows: drawn(part.original(), width, train.seed),
            rule: Rule::new(train.embedding_optimizer, train.embedding_lr, part.owned(), width),
            touched: Marks::new(part.owned()),
            owed: train.embedding_async.then(|| vec![0; ranks]),
        })
    }

    /// Numbers per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The rows of the owned nodes, in the order of the part.
    pub fn rows(&self) -> &[f32] {
        &self.rows
    }

    /// The same, for whoever would start from other rows than those drawn.
    pub fn rows_mut(&mut self) -> &mut [f32] {
        &mut self.rows
    }

    /// Numbers that are held for every number of a row: itself, and what the optimiser remembers of it.
    pub fn copies(&self) -> usize {
        1 + self.rule.copies()
    }

    /// The rows of `nodes`, global ids, from their owners. All ranks pull together.
    pub fn pull(&mut self, comm: &Comm, part: &Part, nodes: &[u64]) -> Result<Vec<f32>> {
        self.take_in(comm)?;
        let Grouped { places, rows } = Grouped::by_owner(part, nodes);
        let asked = comm.all_to_all(rows, Kind::Control)?;
        let given = asked.iter().map(|rows| self.read(rows)).collect();
        let given = comm.all_to_all(given, Kind::Embeddings)?;
        let mut pulled = vec![0.0; nodes.len() * self.width];
        for (places, rows) in places.iter().zip(&given) {
            for (&place, row) in places.iter().zip(rows.chunks_exact(self.width)) {
                pulled[place as usize * self.width..][..self.width].copy_from_slice(row);
            }
        }
        Ok(pulled)
    }

    /// Moves the rows of `nodes` along `gradients`, one row for each node; a node may stand there more than once.
    /// All ranks push together, also one that has nothing to push.
    pub fn push(&mut self, comm: &Comm, part: &Part, nodes: &[u64], gradients: &[f32]) -> Result<()> {
        let Grouped { places, rows } = Grouped::by_owner(part, nodes);
        let written = rows.into_iter().zip(&places).map(|(rows, places)| {
            let mut words = rows;
            for &place in places {
                let gradient = &gradients[place as usize * self.width..][..self.width];
                words.extend(gradient.iter().map(|number| number.to_bits()));
            }
            words
        });
        let written: Vec<Vec<u32>> = written.collect();
        let Some(owed) = &mut self.owed else {
            let heard = comm.all_to_all(written, Kind::Gradients)?;
            self.move_rows(&heard.iter().map(Vec::as_slice).collect::<Vec<_>>());
            return Ok(());
        };
        for (peer, words) in written.iter().enumerate().filter(|(peer, _)| *peer != comm.rank()) {
            let mut frame = comm.frame(4 * words.len());
            frame.values_mut::<u32>().copy_from_slice(words);
            comm.send(peer, PUSHED, Kind::Gradients, frame)?;
            // Whoever pushes to this rank does so in the same step.
            owed[peer] += 1;
        }
        self.move_rows(&[&written[comm.rank()]]);
        Ok(())
    }

    /// Waits for the pushes that are still on their way and makes their updates. All ranks settle together.
    pub fn settle(&mut self, comm: &Comm) -> Result<()> {
        for peer in 0..comm.size() {
            while self.owed.as_ref().is_some_and(|owed| owed[peer] > 0) {
                let frame = comm.receive(peer, PUSHED, Kind::Gradients)?;
                self.hear(peer, frame.values());
            }
        }
        Ok(())
    }

    /// Makes the updates of pushes that have come.
    fn take_in(&mut self, comm: &Comm) -> Result<()> {
        if self.owed.is_none() {
            return Ok(());
        }
        while let Some((peer, frame)) = comm.receive_any(PUSHED, Duration::ZERO)? {
            self.hear(peer, frame.values());
        }
        Ok(())
    }

    fn hear(&mut self, peer: usize, words: &[u32]) {
        if let Some(owed) = &mut self.owed {
            owed[peer] -= 1;
        }
        self.move_rows(&[words]);
    }

    /// These owned rows, one after the other.
    fn read(&self, rows: &[u32]) -> Vec<f32> {
        let row = |&row: &u32| &self.rows[row as usize * self.width..][..self.width];
        rows.iter().flat_map(row).copied().collect()
    }

    /// One update of every row that one of `pushes` names. Each push is row numbers, then their gradients.
    fn move_rows(&mut self, pushes: &[&[u32]]) {
        let width = self.width;
        let apart = |push: &'_ [u32]| push.len() / (1 + width);
        self.touched.clear();
        for push in pushes {
            push[..apart(push)].iter().for_each(|&row| self.touched.mark(u64::from(row)));
        }
        let touched = self.touched.ranked();
        let mut sums = vec![0f32; touched.len() * width];
        for push in pushes {
            let (rows, gradients) = push.split_at(apart(push));
            for (&row, gradient) in rows.iter().zip(gradients.chunks_exact(width)) {
                let sum = &mut sums[self.touched.rank(u64::from(row)) as usize * width..][..width];
                sum.iter_mut().zip(gradient).for_each(|(sum, &bits)| *sum += f32::from_bits(bits));
            }
        }
        for (&row, gradient) in touched.iter().zip(sums.chunks_exact(width)) {
            let row = row as usize;
            self.rule.step(row, &mut self.rows[row * width..][..width], gradient);
        }
    }
}

/// The rows of nodes with these original ids before the first step.
fn drawn(originals: &[u64], width: usize, seed: u64) -> Vec<f32> {
    let key = Key::new(seed, Purpose::Init).with(DRAWS);
    let bound = (3.0 / width as f64).sqrt();
    let number = |node: u64, column: usize| bound * (2.0 * key.with(node).unit(column as u64) - 1.0);
    let row = |&node: &u64| (0..width).map(move |column| number(node, column) as f32);
    originals.iter().flat_map(row).collect()
}

/// Nodes of a batch by the part that owns them.
struct Grouped {
    /// Their places in the batch.
    places: Vec<Vec<u32>>,
    /// Their rows at their owner.
    rows: Vec<Vec<u32>>,
}

impl Grouped {
    fn by_owner(part: &Part, nodes: &[u64]) -> Self {
        let (starts, own, here) = (part.starts(), part.range(), part.id().index());
        let none = vec![Vec::new(); starts.len() - 1];
        let mut grouped = Self { places: none.clone(), rows: none };
        for (&node, place) in nodes.iter().zip(0..) {
            let owner = if own.contains(&node) { here } else { part.owner_of(GlobalId(node)).index() };
            grouped.places[owner].push(place);
            grouped.rows[owner].push((node - starts[owner]) as u32);
        }
        grouped
    }
}
