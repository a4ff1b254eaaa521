//! The last layer's rows of all nodes where parts take turns: layer by layer, part by part, with the rows between
//! layers on disk. Evaluation counts what they get right; inference ([`infer_turns`](crate::infer_turns)) keeps them.
//!
//! A rank computes a layer for one of its parts after the other. It reads the part's own rows of the layer before
//! from its scratch file, asks the ranks that the part's halo belongs to for theirs, and writes what it computed.
//! Memory: one part with its halo, in and out of one layer. Every rank makes the same exchanges, also when it
//! has run out of parts.

use crate::boundary::Isolated;
use crate::evaluate::{make_room, split_counts};
use crate::feature;
use crate::island::{Islands, Wish};
use crate::scratch::{Scratch, Span};
use crate::tape::{Buffer, Input, Matrix, Tape, Var};
use crate::view::{Layout, Routes};
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::{Kind, Phase};
use archipelago_graph::array::collected;
use archipelago_graph::block::Adjacency;
use archipelago_graph::store::Guests;
use archipelago_graph::{Block, Part, PartId};
use std::ops::Range;
use std::sync::Arc;

/// Rows of one layer of all parts of this rank.
struct Rows {
    scratch: Scratch,
    /// Where the rows of each part are, in the order of their turns.
    spans: Vec<Span<f32>>,
    width: usize,
}

/// What the last layer says of one part, in the part's own order; nothing from a rank that has run out of parts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Said<'a> {
    /// The part.
    pub part: Option<&'a Part>,
    /// A row of scores for each of its nodes.
    pub output: &'a [f32],
    /// The row that the layer read of each of them, where it was asked for.
    pub read: &'a [f32],
}

/// Who hears of a part's last rows: on every rank as often, so that ranks may speak to each other there.
type Hear<'a> = &'a mut dyn FnMut(Said<'_>) -> Result<()>;

/// Counts of all splits on all ranks.
pub(crate) fn counts(worker: &mut Worker) -> Result<Vec<u64>> {
    let width = worker.model.shape().output;
    let mut counts = vec![0; 15];
    last_rows(worker, false, &mut |said| {
        let Some(part) = said.part else { return Ok(()) };
        let more = split_counts(part, |row| &said.output[row as usize * width..][..width]);
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        Ok(())
    })?;
    worker.comm.all_reduce_sum_u64(&mut counts, Kind::Control)?;
    Ok(counts)
}

/// Computes all layers and tells of the last one, part by part in the order of their turns; with what it read where
/// `read` asks for it.
pub(crate) fn last_rows(worker: &mut Worker, read: bool, hear: Hear<'_>) -> Result<()> {
    worker.comm.enter(Phase::new("evaluate"));
    let islands = worker.islands.take();
    let done = match &islands {
        Some(islands) => all_layers(worker, islands, read, hear),
        None => Err(Error::Launch { message: "there are no islands: a defect of archi".into(), code: 1 }),
    };
    worker.islands = islands;
    make_room(worker);
    done
}

fn all_layers(worker: &mut Worker, islands: &Islands, read: bool, hear: Hear<'_>) -> Result<()> {
    let layers = worker.config.model.layers;
    islands.trim();
    let mut before: Option<Rows> = None;
    for layer in 0..layers {
        let last = layer + 1 == layers;
        let width = worker.model.shape().layer(layer).output;
        let mut after = Rows { scratch: Scratch::new(islands.scratch())?, spans: Vec::new(), width };
        for phase in 0..islands.turns.phases() {
            let id = islands.turns.part(worker.comm.rank(), phase);
            let sight = Sight::of(islands, id, phase, layer == 0)?;
            let Some((Seen { part, layout }, input)) = sight.input(worker, islands, before.as_ref())? else {
                if last {
                    hear(Said::default())?;
                }
                continue;
            };
            let (rows, output) = compute(worker, layer, &layout, &input)?;
            if last {
                let rows = read.then(|| worker.tape.dense(rows));
                let read = rows.map_or(&[][..], |rows| own_rows(&part, &worker.tape, rows));
                hear(Said { part: Some(&part), output: worker.tape.value(output), read })?;
            } else {
                after.spans.push(after.scratch.put(worker.tape.value(output))?);
            }
            part.release_all();
        }
        islands.sighted.set(true);
        before = (!last).then_some(after);
    }
    Ok(())
}

/// One part and its halo, about to be seen by a layer.
struct Sight {
    /// None for a rank that has run out of parts.
    seen: Option<Seen>,
    /// Who is around the part.
    guests: Guests,
    /// Its turn on this rank.
    turn: usize,
}

/// One part as a layer sees it: its own rows, then the halo.
struct Seen {
    part: Arc<Part>,
    /// Every own row is computed; in-edges are as they are stored.
    layout: Arc<Layout>,
}

impl Sight {
    fn of(islands: &Islands, id: Option<PartId>, turn: usize, features: bool) -> Result<Self> {
        let parts: Vec<PartId> = id.into_iter().collect();
        let exchange = features && !islands.sighted.get();
        let wish = Wish { parts: &parts, trained: 0, hops: 1, features, exchange };
        let (parts, mut guests) = islands.around(&wish)?;
        let mut guests = guests.pop().unwrap_or_default();
        let seen = parts.into_iter().next().map(|part| Seen::of(part, &mut guests));
        Ok(Self { seen, guests, turn })
    }

    /// What the layer reads, with who reads it: features, or the rows of the layer before.
    fn input(
        self,
        worker: &Worker,
        islands: &Islands,
        before: Option<&Rows>,
    ) -> Result<Option<(Seen, Input)>> {
        let owned = self.seen.as_ref().map_or(0, |seen| seen.part.owned());
        let read = before.map(|rows| rows.read(worker, islands, self.turn, owned, &self.guests.ids));
        let (read, Some(seen)) = (read.transpose()?, self.seen) else { return Ok(None) };
        let scaling = worker.config.data.features;
        let features = || feature::with_guests(&seen.part, &self.guests, scaling, &worker.tape.pool);
        let input = read.unwrap_or_else(features);
        // Features were copied.
        seen.part.release();
        Ok(Some((seen, input)))
    }
}

impl Seen {
    /// Takes of the `guests` what the layout needs.
    fn of(part: Arc<Part>, guests: &mut Guests) -> Self {
        let incoming = Adjacency {
            offsets: part.offsets().to_vec(),
            neighbors: collected(part.sources().iter().copied()),
            weights: part.weights().map_or_else(Vec::new, |weights| collected(weights.iter().copied())),
            places: Vec::new(),
        };
        let mut nodes = part.original().to_vec();
        nodes.append(&mut guests.originals);
        let mut degrees: Vec<f32> = (0..part.owned()).map(|row| part.weighted_degree(row)).collect();
        degrees.append(&mut guests.degrees);
        // The halo's rows are read from memory like the part's own.
        let block = Arc::new(Block::new(incoming, part.rows(), 0));
        part.release();
        let layout = Arc::new(Layout::new(block, Arc::new(nodes), degrees, Routes::default()));
        Self { part, layout }
    }
}

impl Rows {
    /// The rows of the part of this `turn`, `owned` of them, and of the `guests` around it. All ranks read together.
    fn read(
        &self,
        worker: &Worker,
        islands: &Islands,
        turn: usize,
        owned: usize,
        guests: &[u64],
    ) -> Result<Input> {
        let turn_of = |part: &Part| part.id().index() / worker.comm.size();
        let mut window = Window { rows: self, turn: 0, held: 0..0, values: Vec::new() };
        let brought = islands
            .bring_rows(guests, self.width, |part, row, slot| window.copy(turn_of(part), row, slot))?;
        drop(window);
        let mut values = Buffer::zeros((owned + guests.len()) * self.width);
        let (own, around) = values.split_at_mut(owned * self.width);
        if owned > 0 {
            self.scratch.read(self.spans[turn], 0, own)?;
        }
        around.copy_from_slice(&brought);
        let rows = owned + guests.len();
        Ok(Input::Dense(Arc::new(Matrix { rows, cols: self.width, values: values.into() })))
    }
}

/// Rows of one part that are read one after the other, in ascending order: many at a time where few are left out.
struct Window<'a> {
    rows: &'a Rows,
    /// Whose rows are held.
    turn: usize,
    /// Which.
    held: Range<usize>,
    values: Vec<f32>,
}

impl Window<'_> {
    /// Numbers that are held at most.
    const MOST: usize = 1 << 16;

    fn copy(&mut self, turn: usize, row: usize, slot: &mut [f32]) -> Result<()> {
        let width = self.rows.width;
        if turn != self.turn || !self.held.contains(&row) {
            let span = self.rows.spans[turn];
            let last = self.held.len().max(1);
            let close = turn == self.turn && (self.held.end..self.held.end + last).contains(&row);
            let len = if close { 2 * last } else { 1 };
            let len = len.min(Self::MOST / width).max(1).min(span.len() / width - row);
            self.values.resize(len * width, 0.0);
            self.rows.scratch.read(span, row * width, &mut self.values)?;
            (self.turn, self.held) = (turn, row..row + len);
        }
        slot.copy_from_slice(&self.values[(row - self.held.start) * width..][..width]);
        Ok(())
    }
}

/// Runs `layer` on these rows: what it read, and a row for each node of the part, in the part's own order.
fn compute(worker: &mut Worker, layer: usize, layout: &Arc<Layout>, input: &Input) -> Result<(Var, Var)> {
    make_room(worker);
    worker.tape.begin_evaluation();
    let rows = worker.tape.constant(input, layout.block.sources());
    let output = worker.model.forward_layer(&mut worker.tape, &mut Isolated, layer, layout, rows)?;
    Ok((rows, output))
}

/// The part's own among the rows that a layer read: they come first.
fn own_rows<'a>(part: &Part, tape: &'a Tape, rows: Var) -> &'a [f32] {
    &tape.value(rows)[..part.owned() * tape.cols(rows)]
}
