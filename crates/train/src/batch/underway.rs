//! One batch under way: which of its tasks can run, what it waits for, and what it has so far.
//!
//! The tasks of a batch form a DAG: targets lead to a hop; a hop asks the owners of its frontier, and when all have
//! answered it is stitched; every stitch leads to the next hop and to the fetching of the nodes that are new; when
//! all hops are drawn and all rows are here, the batch is filled.

use super::ground::Ground;
use super::rows::{RowSet, Words};
use super::wire::{Head, What, garbled};
use super::{Loading, Prepared};
use crate::ops::pool::Shared;
use crate::plan::weighted_degree;
use crate::tape::{Arena, Input, Matrix, SparseMatrix};
use crate::view::{Layout, Routes};
use crate::{Result, feature};
use archipelago_comm::{Comm, Frame};
use archipelago_graph::sample::{Answer, Draft, Drawn, Hop, Question};
use archipelago_graph::{GlobalId, Part};
use std::sync::Arc;
use std::time::Instant;

/// A step in the making of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Ask for the in-edges of the frontier, and draw those of our own nodes.
    Hop,
    /// Make a block of the answers.
    Stitch,
    /// Ask for features of the rows that are new.
    Fetch,
    /// Put everything together.
    Fill,
}

/// In-edges that another part told us.
struct Told {
    counts: Vec<u32>,
    sources: Vec<u64>,
    weights: Vec<f32>,
}

/// Rows that were asked for together.
struct Want {
    peer: usize,
    rows: Vec<u32>,
    here: bool,
}

/// Where the features of a remote row are: a row of a kept or of an arrived set.
#[derive(Clone, Copy)]
struct Place {
    row: u32,
    set: u32,
    at: u32,
}

/// A batch that is not ready yet.
pub(super) struct Underway {
    pub step: u32,
    pub begun: Instant,
    items: Vec<u32>,
    draft: Draft,
    hop: usize,
    question: Option<Question>,
    own: Vec<Drawn>,
    told: Vec<Option<Told>>,
    missing_answers: usize,
    fetched: usize,
    wants: Vec<Want>,
    missing_rows: usize,
    arrived: Vec<RowSet>,
    places: Vec<Place>,
    /// Since when it waits for whoever has not answered.
    pub waiting_since: Instant,
}

impl Underway {
    /// Begins the batch of `step`, which computes `targets` (global ids).
    pub fn begin(ground: &Ground, mut draft: Draft, step: u32, items: Vec<u32>, targets: &[u64]) -> Self {
        draft.begin(&ground.part, targets);
        Self {
            step,
            begun: Instant::now(),
            items,
            draft,
            hop: 0,
            question: None,
            own: Vec::new(),
            told: Vec::new(),
            missing_answers: 0,
            fetched: 0,
            wants: Vec::new(),
            missing_rows: 0,
            arrived: Vec::new(),
            places: Vec::new(),
            waiting_since: Instant::now(),
        }
    }

    /// What `task` is expected to cost: edges to draw, or numbers to move.
    pub fn cost(&self, ground: &Ground, task: Task) -> u64 {
        let rows = self.draft.nodes().len();
        let cost = match task {
            Task::Hop | Task::Stitch => ground.operators.hop.expected(rows, self.hop),
            Task::Fetch => (rows - self.fetched) * ground.width(),
            Task::Fill => rows * ground.width(),
        };
        cost as u64
    }

    /// Runs a task and returns those that can run now because of it. [`Task::Fill`] is not among what it runs.
    pub fn run(&mut self, ground: &Ground, comm: &Comm, epoch: u64, task: Task) -> Result<Vec<Task>> {
        match task {
            Task::Hop => self.ask(ground, comm, epoch),
            Task::Stitch => Ok(self.stitch(ground)),
            Task::Fetch => self.fetch(ground, comm),
            Task::Fill => Ok(Vec::new()),
        }
    }

    fn ask(&mut self, ground: &Ground, comm: &Comm, epoch: u64) -> Result<Vec<Task>> {
        let (part, here) = (&ground.part, comm.rank());
        let question = self.draft.question(part);
        self.told.clear();
        self.told.resize_with(question.asked.len(), || None);
        for (peer, asked) in question.asked.iter().enumerate() {
            if peer != here && !asked.rows.is_empty() {
                Head::new(What::Ask, self.step, self.hop as u32, asked.rows.len()).send(
                    comm,
                    peer,
                    &asked.rows,
                )?;
                self.missing_answers += 1;
            }
        }
        self.waiting_since = Instant::now();
        self.own =
            ground.draw(&question.asked[here].rows, Hop::new(self.hop, ground.step_key(epoch, self.step)));
        self.question = Some(question);
        Ok(if self.missing_answers == 0 { vec![Task::Stitch] } else { Vec::new() })
    }

    /// Takes the answer of `from`; returns what can run now.
    pub fn hear_edges(
        &mut self,
        ground: &Ground,
        from: usize,
        head: Head,
        words: &[u32],
    ) -> Result<Vec<Task>> {
        let ids = ground.form.ids;
        let asked = self.question.as_ref().map_or(0, |question| question.asked[from].rows.len());
        let fits = head.hop as usize == self.hop && head.count as usize == asked && self.told[from].is_none();
        let (counts, rest) =
            words.split_at_checked(asked).filter(|_| fits).ok_or_else(|| garbled("its lists"))?;
        let edges: usize = counts.iter().map(|&count| count as usize).sum();
        let weighted = ground.part.weights().is_some();
        if rest.len() != edges * (ids.words() + usize::from(weighted)) {
            return Err(garbled("a part of its lists"));
        }
        let (sources, weights) = rest.split_at(edges * ids.words());
        self.told[from] = Some(Told {
            counts: counts.to_vec(),
            sources: (0..edges).map(|place| ids.get(sources, place)).collect(),
            weights: weights.iter().map(|&bits| f32::from_bits(bits)).collect(),
        });
        self.missing_answers -= 1;
        self.waiting_since = Instant::now();
        Ok(if self.missing_answers == 0 { vec![Task::Stitch] } else { Vec::new() })
    }

    fn stitch(&mut self, ground: &Ground) -> Vec<Task> {
        let Some(question) = self.question.take() else { return Vec::new() };
        let here = ground.part.id().index();
        let answers: Vec<Answer<'_>> = (self.told.iter().enumerate())
            .map(|(peer, told)| match told {
                _ if peer == here => Answer::Here(&self.own),
                Some(Told { counts, sources, weights }) => Answer::There { counts, sources, weights },
                None => Answer::There { counts: &[], sources: &[], weights: &[] },
            })
            .collect();
        self.draft.stitch(&ground.part, &question, &answers);
        self.own.clear();
        self.hop += 1;
        match self.is_drawn(ground) {
            true => vec![Task::Fetch],
            false => vec![Task::Fetch, Task::Hop],
        }
    }

    fn is_drawn(&self, ground: &Ground) -> bool {
        self.hop == ground.operators.hop.hops()
    }

    fn fetch(&mut self, ground: &Ground, comm: &Comm) -> Result<Vec<Task>> {
        let part = &ground.part;
        let mut wanted: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); comm.size()];
        let own = part.range();
        for (row, &node) in self.draft.nodes().iter().enumerate().skip(self.fetched) {
            if own.contains(&node) {
                continue;
            }
            if let Some((set, at)) = ground.cache.find(node) {
                self.places.push(Place { row: row as u32, set, at });
                continue;
            }
            let owner = part.owner_of(GlobalId(node)).index();
            wanted[owner].0.push(row as u32);
            wanted[owner].1.push((node - part.starts()[owner]) as u32);
        }
        self.fetched = self.draft.nodes().len();
        for (peer, (rows, asked)) in wanted.into_iter().enumerate().filter(|(_, (rows, _))| !rows.is_empty())
        {
            Head::new(What::Want, self.step, self.wants.len() as u32, asked.len())
                .send(comm, peer, &asked)?;
            self.wants.push(Want { peer, rows, here: false });
            self.missing_rows += 1;
        }
        self.waiting_since = Instant::now();
        Ok(self.fill_if_complete(ground))
    }

    /// Takes rows that were asked for; returns what can run now.
    pub fn hear_rows(&mut self, ground: &Ground, from: usize, head: Head, frame: Frame) -> Result<Vec<Task>> {
        let want = self.wants.get_mut(head.hop as usize).filter(|want| want.peer == from && !want.here);
        let want = want.ok_or_else(|| garbled("rows that were asked for"))?;
        let (count, rows) = (want.rows.len(), std::mem::take(&mut want.rows));
        want.here = true;
        let set = (ground.cache.sets.len() + self.arrived.len()) as u32;
        self.arrived.push(RowSet::read(Words::Message(frame, Head::WORDS), ground.form, count)?);
        let places = rows.iter().zip(0..).map(|(&row, at)| Place { row, set, at });
        self.places.extend(places);
        self.missing_rows -= 1;
        self.waiting_since = Instant::now();
        Ok(self.fill_if_complete(ground))
    }

    fn fill_if_complete(&self, ground: &Ground) -> Vec<Task> {
        let complete = self.is_drawn(ground)
            && self.question.is_none()
            && self.fetched == self.draft.nodes().len()
            && self.missing_rows == 0;
        if complete { vec![Task::Fill] } else { Vec::new() }
    }

    /// Who has not answered yet, and with what; `None` when nobody is waited for.
    pub fn waits_for(&self) -> Option<(usize, &'static str)> {
        let peer = |question: &Question| {
            let silent = |peer: &usize| !question.asked[*peer].rows.is_empty() && self.told[*peer].is_none();
            (0..question.asked.len()).find(silent)
        };
        let edges = self.question.as_ref().filter(|_| self.missing_answers > 0).and_then(peer);
        let rows = self.wants.iter().find(|want| !want.here).map(|want| want.peer);
        edges.map(|peer| (peer, "sampled in-edges")).or(rows.map(|peer| (peer, "feature rows")))
    }

    /// Puts the batch together. Gives the draft back for the next one.
    pub fn fill(mut self, ground: &Ground, arena: &mut Arena, loading: &mut Loading) -> (Prepared, Draft) {
        let batch = self.draft.finish();
        let remote = &self.places;
        let sets = Sets { kept: &ground.cache.sets, arrived: &self.arrived };
        let (mut originals, mut degrees) = own_facts(&ground.part, &batch.nodes);
        for place in remote {
            let set = sets.get(place.set);
            originals[place.row as usize] = set.original(place.at as usize);
            degrees[place.row as usize] = set.degree(place.at as usize);
        }
        let input = match ground.form.dense {
            Some(width) => self.dense(ground, &sets, &batch.nodes, &originals, width, arena),
            None => self.sparse(ground, &sets, &batch.nodes),
        };
        let kept = remote.iter().filter(|place| (place.set as usize) < ground.cache.sets.len()).count();
        loading.rows += batch.nodes.len() as u64;
        loading.remote_rows += remote.len() as u64;
        loading.cached_rows += kept as u64;
        loading.edges += batch.blocks.iter().map(|block| block.edges() as u64).sum::<u64>();
        // The first block is transposed only if a layer asks for it: features have no gradient.
        batch.blocks.iter().skip(1).for_each(|block| {
            block.outgoing();
        });
        let nodes = Arc::new(originals);
        let layouts = batch.blocks.iter().map(|block| {
            let degrees = degrees[..block.sources()].to_vec();
            Arc::new(Layout::new(Arc::clone(block), Arc::clone(&nodes), degrees, Routes::default()))
        });
        let layouts = layouts.collect();
        (Prepared { step: self.step, layouts, input, items: self.items }, self.draft)
    }

    fn dense(
        &self,
        ground: &Ground,
        sets: &Sets<'_>,
        nodes: &[u64],
        originals: &[u64],
        width: usize,
        arena: &mut Arena,
    ) -> Input {
        /// Rows that one task copies.
        const ROWS_PER_TASK: usize = 1024;
        let mut values = arena.take(nodes.len() * width);
        let shared = Shared::new(&mut values);
        let (features, own) = (ground.features(), ground.part.range());
        ground.pool.for_ranges(nodes.len(), ROWS_PER_TASK, |range| {
            for row in range.filter(|&row| own.contains(&nodes[row])) {
                // SAFETY: rows are different.
                let slot = unsafe { shared.part(row * width, width) };
                features.copy_dense((nodes[row] - own.start) as usize, slot);
            }
        });
        ground.pool.for_ranges(self.places.len(), ROWS_PER_TASK, |range| {
            for place in &self.places[range] {
                // SAFETY: rows are different, and none of them is owned.
                let slot = unsafe { shared.part(place.row as usize * width, width) };
                slot.copy_from_slice(sets.get(place.set).dense(place.at as usize, width));
            }
        });
        let fetch = &ground.operators.fetch;
        if !fetch.is_plain() {
            fetch.adapt(originals, &mut values, width, ground.step_key(0, self.step));
        }
        Input::Dense(Arc::new(Matrix { rows: nodes.len(), cols: width, values }))
    }

    fn sparse(&self, ground: &Ground, sets: &Sets<'_>, nodes: &[u64]) -> Input {
        let (features, own) = (ground.features(), ground.part.range());
        let mut places = vec![None; nodes.len()];
        self.places.iter().for_each(|place| places[place.row as usize] = Some(*place));
        let mut made = SparseMatrix::empty(feature::width(&ground.part));
        for (&node, place) in nodes.iter().zip(&places) {
            match place {
                Some(Place { set, at, .. }) => {
                    let (columns, values) = sets.get(*set).sparse(*at as usize);
                    made.push_row(columns, values.iter().copied());
                }
                None => {
                    let (columns, values, scale) = features.sparse((node - own.start) as usize);
                    made.push_row(columns, values.iter().map(|value| value * scale));
                }
            }
        }
        Input::Sparse(Arc::new(made))
    }
}

/// Kept rows first, then arrived ones.
struct Sets<'a> {
    kept: &'a [RowSet],
    arrived: &'a [RowSet],
}

impl Sets<'_> {
    fn get(&self, set: u32) -> &RowSet {
        match (set as usize).checked_sub(self.kept.len()) {
            Some(arrived) => &self.arrived[arrived],
            None => &self.kept[set as usize],
        }
    }
}

/// Original id and weighted degree of the nodes that `part` owns; zeros for others.
fn own_facts(part: &Part, nodes: &[u64]) -> (Vec<u64>, Vec<f32>) {
    let own = part.range();
    let facts = nodes.iter().map(|node| match own.contains(node) {
        true => {
            let row = (node - own.start) as usize;
            (part.original()[row], weighted_degree(part, row))
        }
        false => (0, 0.0),
    });
    facts.unzip()
}
