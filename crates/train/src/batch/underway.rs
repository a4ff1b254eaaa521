//! One batch under way: which of its tasks can run, what it waits for, and what it has so far.
//!
//! The tasks of a batch form a DAG: targets lead to a hop; a hop asks the owners of its frontier, and when all have
//! answered it is stitched; every stitch leads to the next hop and to the fetching of the nodes that are new; when
//! all hops are drawn and all rows are here, the batch is filled.

use super::ground::Ground;
use super::items::{LinkBatch, Seeded};
use super::recent::Table;
use super::rows::{AHEAD, RowSet, Words};
use super::wire::{Head, Ids, What, garbled};
use super::{Loading, Prepared, Traffic};
use crate::ops::pool::Shared;
use crate::tape::{Buffer, Input, Matrix, SparseMatrix, Values};
use crate::view::{Layout, Routes};
use crate::{Result, feature};
use archipelago_comm::{Comm, Frame};
use archipelago_graph::random::Key;
use archipelago_graph::sample::{Answer, Draft, Drawn, Hop, Met, Question, Sources as Ends};
use archipelago_graph::{Batch, Block, GlobalId};
use std::sync::Arc;
use std::time::Instant;

/// A step in the making of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Ask for the in-edges of the frontier, and draw those of our own nodes.
    Hop,
    /// Make a block of the answers.
    Stitch,
    /// Ask for features of the rows that are new. Batches take turns.
    Fetch,
    /// Put everything together. Batches take turns.
    Fill,
}

/// In-edges that another part told us.
struct Told {
    /// The message: a head, a count per row, sources, weights.
    frame: Frame,
    rows: usize,
    edges: usize,
    /// The sources, where they take more than a word each.
    wide: Vec<u64>,
}

impl Told {
    /// What `frame` says about the in-edges of `rows` rows.
    fn read(frame: Frame, rows: usize, ids: Ids, weighted: bool) -> Result<Self> {
        let (_, words) = Head::read(&frame)?;
        let (counts, rest) = words.split_at_checked(rows).ok_or_else(|| garbled("its lists"))?;
        let edges: usize = counts.iter().map(|&count| count as usize).sum();
        if rest.len() != edges * (ids.words() + usize::from(weighted)) {
            return Err(garbled("a part of its lists"));
        }
        let wide = match ids.words() {
            1 => Vec::new(),
            _ => (0..edges).map(|place| ids.get(rest, place)).collect(),
        };
        Ok(Self { frame, rows, edges, wide })
    }

    fn answer(&self, ids: Ids) -> Answer<'_> {
        let (counts, rest) = self.frame.values::<u32>()[Head::WORDS..].split_at(self.rows);
        let (sources, weights) = rest.split_at(self.edges * ids.words());
        let sources = if ids.words() == 1 { Ends::Narrow(sources) } else { Ends::Wide(&self.wide) };
        Answer::There { counts, sources, weights: bytemuck::cast_slice(weights) }
    }
}

/// Rows that were asked for together.
struct Want {
    peer: usize,
    rows: usize,
}

/// Where the features of a remote row are.
#[derive(Clone, Copy)]
struct Place {
    /// The row of the batch.
    row: u32,
    from: From,
    /// The row there.
    at: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The rows that are kept of this part.
    Kept(u32),
    /// The rows of the batch before.
    Last,
    /// What was asked for so many requests ago, counted from the first.
    Arrived(u32),
}

/// A batch that is not ready yet.
pub(super) struct Underway {
    pub step: u32,
    pub begun: Instant,
    items: Vec<u32>,
    links: Option<LinkBatch>,
    draft: Draft,
    hop: usize,
    question: Option<Question>,
    own: Vec<Drawn>,
    told: Vec<Option<Told>>,
    missing_answers: usize,
    fetched: usize,
    wants: Vec<Want>,
    missing_rows: usize,
    arrived: Vec<Option<RowSet>>,
    places: Vec<Place>,
    /// Since when it waits for whoever has not answered.
    pub waiting_since: Instant,
}

impl Underway {
    /// Begins the batch of `step`.
    pub fn begin(ground: &Ground, mut draft: Draft, step: u32, seeded: Seeded) -> Self {
        draft.begin(&ground.part, &seeded.targets);
        draft.exclude(&ground.part, seeded.excluded);
        Self {
            step,
            begun: Instant::now(),
            items: seeded.items,
            links: seeded.links,
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

    /// Runs a task of drawing and returns those that can run now because of it.
    pub fn draw(&mut self, ground: &Ground, comm: &Comm, epoch: u64, task: Task) -> Result<Vec<Task>> {
        match task {
            Task::Hop => self.ask(ground, comm, epoch),
            Task::Stitch => Ok(self.stitch(ground)),
            Task::Fetch | Task::Fill => Ok(Vec::new()),
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
        frame: Frame,
    ) -> Result<Vec<Task>> {
        let asked = self.question.as_ref().map_or(0, |question| question.asked[from].rows.len());
        if head.hop as usize != self.hop || head.count as usize != asked || self.told[from].is_some() {
            return Err(garbled("its lists"));
        }
        let weighted = ground.part.weights().is_some();
        self.told[from] = Some(Told::read(frame, asked, ground.form.ids, weighted)?);
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
                Some(told) => told.answer(ground.form.ids),
                None => Answer::There { counts: &[], sources: Ends::Narrow(&[]), weights: &[] },
            })
            .collect();
        self.draft.stitch(&ground.part, &question, &answers);
        self.told.fill_with(|| None);
        ground.give_back(self.own.drain(..));
        self.hop += 1;
        match self.is_drawn(ground) {
            true => vec![Task::Fetch],
            false => vec![Task::Fetch, Task::Hop],
        }
    }

    fn is_drawn(&self, ground: &Ground) -> bool {
        self.hop == ground.operators.hop.hops()
    }

    /// Asks for the features of rows that are new, except those that are kept here or that the batch before has.
    pub fn fetch(&mut self, ground: &Ground, comm: &Comm, last: &Met) -> Result<()> {
        let part = &ground.part;
        let mut wanted: Vec<(Vec<u32>, Vec<u32>)> = vec![Default::default(); comm.size()];
        let own = part.range();
        for (row, &node) in self.draft.nodes().iter().enumerate().skip(self.fetched) {
            let row = row as u32;
            if own.contains(&node) {
                continue;
            }
            if let Some((set, at)) = ground.cache.find(node) {
                self.places.push(Place { row, from: From::Kept(set), at });
            } else if let Some(at) = last.find(node) {
                self.places.push(Place { row, from: From::Last, at });
            } else {
                let owner = part.owner_of(GlobalId(node)).index();
                wanted[owner].0.push(row);
                wanted[owner].1.push((node - part.starts()[owner]) as u32);
            }
        }
        self.fetched = self.draft.nodes().len();
        for (peer, (rows, asked)) in wanted.into_iter().enumerate().filter(|(_, (rows, _))| !rows.is_empty())
        {
            let want = self.wants.len() as u32;
            Head::new(What::Want, self.step, want, asked.len()).send(comm, peer, &asked)?;
            let places = rows.iter().zip(0..).map(|(&row, at)| Place { row, from: From::Arrived(want), at });
            self.places.extend(places);
            self.wants.push(Want { peer, rows: rows.len() });
            self.arrived.push(None);
            self.missing_rows += 1;
        }
        self.waiting_since = Instant::now();
        Ok(())
    }

    /// Takes rows that were asked for.
    pub fn hear_rows(&mut self, ground: &Ground, from: usize, head: Head, frame: Frame) -> Result<()> {
        let want = head.hop as usize;
        let asked = self.wants.get(want).filter(|asked| asked.peer == from && self.arrived[want].is_none());
        let count = asked.ok_or_else(|| garbled("rows that were asked for"))?.rows;
        self.arrived[want] = Some(RowSet::read(Words::Message(frame, Head::WORDS), ground.form, count)?);
        self.missing_rows -= 1;
        self.waiting_since = Instant::now();
        Ok(())
    }

    /// Whether all rows of the batch have been asked for.
    pub fn is_fetched(&self, ground: &Ground) -> bool {
        self.is_drawn(ground) && self.question.is_none() && self.fetched == self.draft.nodes().len()
    }

    /// Whether everything is here.
    pub fn is_complete(&self, ground: &Ground) -> bool {
        self.is_fetched(ground) && self.missing_rows == 0
    }

    /// Hands over which rows its remote nodes have, once all rows have been asked for, for the memory of another map.
    pub fn swap_met(&mut self, other: &mut Met) {
        self.draft.swap_met(other);
    }

    /// Who has not answered yet, and with what; `None` when nobody is waited for.
    pub fn waits_for(&self, here: usize) -> Option<(usize, &'static str)> {
        let peer = |question: &Question| {
            let silent = |peer: &usize| !question.asked[*peer].rows.is_empty() && self.told[*peer].is_none();
            (0..question.asked.len()).filter(|&peer| peer != here).find(silent)
        };
        let edges = self.question.as_ref().filter(|_| self.missing_answers > 0).and_then(peer);
        let late = self.arrived.iter().position(Option::is_none);
        let rows = late.map(|want| self.wants[want].peer);
        edges.map(|peer| (peer, "sampled in-edges")).or(rows.map(|peer| (peer, "feature rows")))
    }

    /// Puts the batch together, with the remote rows of the one before. Shows its own to the next, if it has any, and
    /// gives the draft back.
    pub fn fill(
        mut self,
        ground: &Ground,
        epoch: u64,
        last: Option<Table>,
        traffic: &Traffic,
        loading: &mut Loading,
    ) -> (Prepared, Option<Table>, Draft) {
        let batch = self.draft.finish();
        let sources = Sources { kept: &ground.cache.sets, last: last.as_ref(), arrived: &self.arrived };
        let (mut originals, mut degrees) = ground.own_facts(&batch.nodes);
        for place in &self.places {
            (originals[place.row as usize], degrees[place.row as usize]) = sources.facts(place);
        }
        let mut input = match ground.form.dense {
            Some(width) => self.dense(ground, &sources, &batch.nodes, width, traffic),
            None => self.sparse(ground, &sources, &batch.nodes),
        };
        if let Some(last) = last {
            last.retire(&mut traffic.arena());
        }
        self.count(&batch, loading);
        let layouts = layouts(ground, &batch, originals, &degrees);
        let shown = ground.config.exchange.reuse && !self.places.is_empty();
        let key = ground.step_key(epoch, self.step);
        let as_fetched = adapt(ground, &layouts[0].nodes, &mut input, key, shown);
        let table =
            shown.then(|| Table::new(Arc::clone(&layouts[0]), as_fetched.unwrap_or_else(|| input.clone())));
        let Self { step, items, links, draft, .. } = self;
        (Prepared { step, layouts, input, nodes: batch.nodes, items, links }, table, draft)
    }

    fn count(&self, batch: &Batch, loading: &mut Loading) {
        let from =
            |wanted: fn(&From) -> bool| self.places.iter().filter(|place| wanted(&place.from)).count() as u64;
        loading.rows += batch.nodes.len() as u64;
        loading.remote_rows += self.places.len() as u64;
        loading.cached_rows += from(|from| matches!(from, From::Kept(_)));
        loading.reused_rows += from(|from| *from == From::Last);
        loading.edges += batch.blocks.iter().map(|block| block.edges() as u64).sum::<u64>();
    }

    fn dense(
        &self,
        ground: &Ground,
        sources: &Sources<'_>,
        nodes: &[u64],
        width: usize,
        traffic: &Traffic,
    ) -> Input {
        /// Rows that one task copies.
        const ROWS_PER_TASK: usize = 1024;
        let mut values = traffic.arena().take(nodes.len() * width);
        let shared = Shared::new(&mut values);
        let (features, own) = (ground.features(), ground.part.range());
        ground.pool.for_ranges(nodes.len(), ROWS_PER_TASK, |range| {
            for row in range.filter(|&row| own.contains(&nodes[row])) {
                if let Some(next) = nodes.get(row + AHEAD).filter(|next| own.contains(next)) {
                    features.expect_dense(next - own.start);
                }
                // SAFETY: rows are different.
                let slot = unsafe { shared.part(row * width, width) };
                features.copy_dense((nodes[row] - own.start) as usize, slot);
            }
        });
        ground.pool.for_ranges(self.places.len(), ROWS_PER_TASK, |range| {
            for (number, place) in range.clone().zip(&self.places[range]) {
                self.places.get(number + AHEAD).into_iter().for_each(|next| sources.expect_dense(next));
                // SAFETY: rows are different, and none of them is owned.
                let slot = unsafe { shared.part(place.row as usize * width, width) };
                sources.copy_dense(place, slot);
            }
        });
        Input::Dense(Arc::new(Matrix { rows: nodes.len(), cols: width, values: values.into() }))
    }

    fn sparse(&self, ground: &Ground, sources: &Sources<'_>, nodes: &[u64]) -> Input {
        let (features, own) = (ground.features(), ground.part.range());
        let mut places = vec![None; nodes.len()];
        self.places.iter().for_each(|place| places[place.row as usize] = Some(*place));
        let mut made = SparseMatrix::empty(feature::width(&ground.part));
        for (&node, place) in nodes.iter().zip(&places) {
            match place {
                Some(place) => {
                    let (columns, values) = sources.sparse(place);
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

/// One layout per block, whose rows stand for nodes with these original ids and degrees.
fn layouts(ground: &Ground, batch: &Batch, originals: Vec<u64>, degrees: &[f32]) -> Vec<Arc<Layout>> {
    // Features have no gradient: without embeddings the first block is transposed only if a layer asks for it.
    let given = usize::from(ground.config.model.embedding == 0);
    batch.blocks.iter().skip(given).for_each(|block| {
        block.outgoing();
    });
    let nodes = Arc::new(originals);
    let layout = |block: &Arc<Block>| {
        let degrees = degrees[..block.sources()].to_vec();
        Arc::new(Layout::new(Arc::clone(block), Arc::clone(&nodes), degrees, Routes::default()))
    };
    batch.blocks.iter().map(layout).collect()
}

/// Lets the operator change the features of a batch; returns them as they were if it did and they are to be kept.
fn adapt(ground: &Ground, originals: &[u64], input: &mut Input, key: Key, keep: bool) -> Option<Input> {
    let fetch = &ground.operators.fetch;
    if !fetch.is_plain()
        && let Input::Dense(matrix) = input
        && let Some(Matrix { rows, cols, values: Values::Own(values) }) = Arc::get_mut(matrix)
    {
        let before = keep.then(|| {
            let mut copy = Buffer::zeros(values.len());
            copy.copy_from_slice(values);
            Input::Dense(Arc::new(Matrix { rows: *rows, cols: *cols, values: copy.into() }))
        });
        fetch.adapt(originals, values, *cols, key);
        return before;
    }
    None
}

/// Where remote rows are taken from.
struct Sources<'a> {
    kept: &'a [RowSet],
    last: Option<&'a Table>,
    arrived: &'a [Option<RowSet>],
}

/// Rows of one source.
enum Source<'a> {
    Set(&'a RowSet),
    Table(&'a Table),
    Nothing,
}

impl<'a> Sources<'a> {
    fn of(&self, place: &Place) -> Source<'a> {
        let found = match place.from {
            From::Kept(set) => self.kept.get(set as usize).map(Source::Set),
            From::Last => self.last.map(Source::Table),
            From::Arrived(want) => self.arrived[want as usize].as_ref().map(Source::Set),
        };
        debug_assert!(found.is_some(), "a batch is filled when its rows are here");
        found.unwrap_or(Source::Nothing)
    }

    fn facts(&self, place: &Place) -> (u64, f32) {
        let at = place.at as usize;
        match self.of(place) {
            Source::Set(set) => (set.original(at), set.degree(at)),
            Source::Table(table) => (table.original(at), table.degree(at)),
            Source::Nothing => (0, 0.0),
        }
    }

    /// Asks for a row that will be copied soon, unless it stands where the last one stood.
    fn expect_dense(&self, place: &Place) {
        if let (From::Last, Some(last)) = (place.from, self.last) {
            last.expect_dense(place.at as usize);
        }
    }

    fn copy_dense(&self, place: &Place, slot: &mut [f32]) {
        match self.of(place) {
            Source::Set(set) => set.copy_dense(place.at as usize, slot),
            Source::Table(table) => slot.copy_from_slice(table.dense(place.at as usize)),
            Source::Nothing => {}
        }
    }

    fn sparse(&self, place: &Place) -> (&'a [u32], &'a [f32]) {
        match self.of(place) {
            Source::Set(set) => set.sparse(place.at as usize),
            Source::Table(table) => table.sparse(place.at as usize),
            Source::Nothing => (&[], &[]),
        }
    }
}
