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
use crate::plan::Plan;
use crate::scratch::{Scratch, Span};
use crate::tape::{Buffer, Input, Matrix, Tape, Var};
use crate::worker::Worker;
use crate::{Error, Result};
use archipelago_comm::{Kind, Phase};
use archipelago_graph::store::Island;
use archipelago_graph::{Part, PartId};
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
            let input = sight.input(worker, islands, before.as_ref())?;
            let Some(part) = id.map(|id| islands.part(id)).transpose()? else {
                if last {
                    hear(Said::default())?;
                }
                continue;
            };
            let (rows, output) = sight.compute(worker, layer, &input)?;
            if last {
                let rows = read.then(|| worker.tape.dense(rows));
                let read = rows.map_or(&[][..], |rows| sight.own_rows(&worker.tape, rows));
                hear(Said { part: Some(&part), output: worker.tape.value(output), read })?;
            } else {
                after.spans.push(after.scratch.put(worker.tape.value(output))?);
            }
            part.release_all();
            islands.give_back(Arc::new(sight.island.part));
        }
        islands.trim();
        islands.sighted.set(true);
        before = (!last).then_some(after);
    }
    Ok(())
}

/// One part and its halo, as a layer sees them.
struct Sight {
    island: Island,
    plan: Plan,
    /// Global ids of the part.
    own: Range<u64>,
    /// Its turn on this rank.
    turn: usize,
}

impl Sight {
    fn of(islands: &Islands, id: Option<PartId>, turn: usize, features: bool) -> Result<Self> {
        let parts: Vec<PartId> = id.into_iter().collect();
        let exchange = features && !islands.sighted.get();
        let wish = Wish { parts: &parts, trained: 0, hops: 1, features, exchange };
        let island = islands.make(wish)?;
        let own = id.map(|id| islands.part(id)).transpose()?.map_or(0..0, |part| part.range());
        let here = |row: &u32| own.contains(&island.globals[*row as usize]);
        let targets: Vec<u32> = (0..island.globals.len() as u32).filter(here).collect();
        let plan = Plan::alone(&island.part, &islands.alone, &targets, 1, &island.degrees, false)?;
        Ok(Self { island, plan, own, turn })
    }

    /// What the layer reads, in the order of the plan: features, or the rows of the layer before.
    fn input(&self, worker: &Worker, islands: &Islands, before: Option<&Rows>) -> Result<Input> {
        let order = &self.plan.order;
        let Some(Rows { scratch, spans, width }) = before else {
            return Ok(feature::rows(&self.island.part, order, worker.config.data.features));
        };
        let global = |row: &u32| self.island.globals[*row as usize];
        let turn = |part: &Part| part.id().index() / worker.comm.size();
        let mut guests: Vec<u64> = order.iter().map(global).filter(|id| !self.own.contains(id)).collect();
        guests.sort_unstable();
        let brought = islands.bring_rows(&guests, *width, |part, row, slot| {
            scratch.read(spans[turn(part)], row * width, slot)
        })?;
        let mut values = Buffer::zeros(order.len() * width);
        // Targets come first, in the part's own order.
        let own = (self.own.end - self.own.start) as usize;
        let (mine, theirs) = values.split_at_mut(own * width);
        if own > 0 {
            scratch.read(spans[self.turn], 0, mine)?;
        }
        for (slot, row) in theirs.chunks_exact_mut(*width).zip(&order[own..]) {
            if let Ok(at) = guests.binary_search(&global(row)) {
                slot.copy_from_slice(&brought[at * width..][..*width]);
            }
        }
        Ok(Input::Dense(Arc::new(Matrix { rows: order.len(), cols: *width, values: values.into() })))
    }

    /// Runs `layer` on these rows: what it read, and a row for each node of the part, in the part's own order.
    fn compute(&self, worker: &mut Worker, layer: usize, input: &Input) -> Result<(Var, Var)> {
        make_room(worker);
        worker.tape.begin_evaluation();
        let rows = worker.tape.constant(input, self.plan.order.len());
        let layout = &self.plan.layers[0];
        let output = worker.model.forward_layer(&mut worker.tape, &mut Isolated, layer, layout, rows)?;
        Ok((rows, output))
    }

    /// The part's own among the rows that a layer read: they come first.
    fn own_rows<'a>(&self, tape: &'a Tape, rows: Var) -> &'a [f32] {
        let own = (self.own.end - self.own.start) as usize;
        &tape.value(rows)[..own * tape.cols(rows)]
    }
}
