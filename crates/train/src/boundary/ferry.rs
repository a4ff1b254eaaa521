//! Carries rows of a layer between ranks, along the routes of its layout, in the bytes of a codec.
//!
//! A message holds the rows that one rank reads of another, in the order that both know; a long one travels in several frames.
//! A lossy codec rounds at random,
//! right on average, by bits that depend on the seed, the step, the layer, the direction and the original id of the row:
//! so results do not depend on who sends when.

use super::Crossing;
use crate::ops::elementwise::add_rows;
use crate::view::Layout;
use crate::{Error, Result};
use archipelago_comm::codec::{Codec, Rounding};
use archipelago_comm::{Comm, Frame, Kind, Tag, frames_of};
use archipelago_graph::random::{Key, Purpose};
use std::ops::Range;
use std::sync::Arc;

/// One rank's way to send and receive rows.
pub(super) struct Ferry {
    /// Its voice.
    pub comm: Arc<Comm>,
    rows: u64,
    codec: &'static Codec,
    exact: &'static Codec,
    stream: Tag,
    seed: Key,
    step: Key,
    decoded: Vec<f32>,
}

/// Rows that the first layer aggregates are node features; what comes later was computed.
pub(super) fn kind(crossing: Crossing) -> Kind {
    if crossing.layer == 0 { Kind::Features } else { Kind::Embeddings }
}

/// Which halo rows of a layout each rank owns, among those that own any.
pub(super) fn halo_by_owner(layout: &Layout) -> impl Iterator<Item = (usize, Range<usize>)> {
    stretches(&layout.routes.receive)
}

/// Rows that stand rank by rank, so many of each, among those that have any.
pub(super) fn stretches(counts: &[usize]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut first = 0;
    let rows = counts.iter().enumerate().map(move |(peer, &count)| {
        let rows = first..first + count;
        first = rows.end;
        (peer, rows)
    });
    rows.filter(|(_, rows)| !rows.is_empty())
}

/// Which local rows of a layout each rank reads, among those that read any.
pub(super) fn wanted_by_reader(layout: &Layout) -> impl Iterator<Item = (usize, &[u32])> {
    layout.routes.send.iter().map(Vec::as_slice).enumerate().filter(|(_, wanted)| !wanted.is_empty())
}

impl Ferry {
    /// Sends on the tags of `stream`, as `codec` writes; `seed` is that of the run.
    pub fn new(comm: Arc<Comm>, stream: Tag, codec: &str, seed: u64) -> Result<Self> {
        let seed = Key::new(seed, Purpose::RowRounding);
        let (codec, exact) = (Codec::named(codec)?, Codec::named("f32")?);
        Ok(Self { comm, rows: 0, codec, exact, stream, seed, step: seed, decoded: Vec::new() })
    }

    /// Sends on the tags of another `stream` from now on.
    pub fn speak_on(&mut self, stream: Tag) {
        self.stream = stream;
    }

    /// Whether any rank is in another process.
    pub fn is_far(&self) -> bool {
        let process = |rank| self.comm.process_of(rank);
        process(0) != process(self.comm.size() - 1)
    }

    /// Rounds as in this step from now on.
    pub fn begin(&mut self, step: u64) {
        self.step = self.seed.with(step);
    }

    /// Counts so many rows as sent.
    pub fn count(&mut self, rows: usize) {
        self.rows += rows as u64;
    }

    /// Rows sent since the last call.
    pub fn take_rows(&mut self) -> u64 {
        std::mem::take(&mut self.rows)
    }

    /// How rows are written. What crosses once serves evaluation, too: every bit of it does.
    pub fn codec(&self, crossing: Crossing) -> &'static Codec {
        if crossing.fixed { self.exact } else { self.codec }
    }

    /// Which conversation rows belong to.
    pub fn tag(&self, crossing: Crossing, back: bool) -> Tag {
        let tag = self.stream.layer(crossing.layer as u8);
        if back { tag.backward() } else { tag }
    }

    /// Sends every rank those of the local `rows` that it reads.
    pub fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
        wanted_by_reader(layout).try_for_each(|(peer, _)| self.send_rows(peer, crossing, layout, rows))
    }

    /// Receives the halo rows of every rank.
    pub fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
        let width = crossing.width;
        halo_by_owner(layout).try_for_each(|(peer, of)| {
            self.receive(peer, crossing, &mut halo[of.start * width..of.end * width])
        })
    }

    /// Sends every rank the gradients of the halo rows that it owns.
    pub fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
        halo_by_owner(layout).try_for_each(|(peer, of)| self.send_gradients(peer, crossing, layout, halo, of))
    }

    /// The same for gradients that `compute` writes into the frames they leave in; whether the codec allows it.
    pub fn compute_back(
        &mut self,
        crossing: Crossing,
        layout: &Layout,
        compute: &mut dyn FnMut(Range<usize>, &mut [f32]),
    ) -> Result<bool> {
        let (codec, width) = (self.codec(crossing), crossing.width);
        if !codec.exact {
            return Ok(false);
        }
        for (peer, of) in halo_by_owner(layout) {
            self.count(if crossing.fixed { 0 } else { of.len() });
            for part in frames_of(of.len(), codec.bytes(1, width)) {
                let mut frame = self.comm.frame(codec.bytes(part.len(), width));
                compute(of.start + part.start..of.start + part.end, frame.values_mut());
                self.comm.send(peer, self.tag(crossing, true), kind(crossing), frame)?;
            }
        }
        Ok(true)
    }

    /// Adds the gradients that every rank sent to those of the rows that it reads.
    pub fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
        wanted_by_reader(layout).try_for_each(|(peer, _)| self.add_gradients(peer, crossing, layout, rows))
    }

    /// Sums statistics over all ranks, in rank order.
    pub fn sum(&self, values: &mut [f64]) -> Result<()> {
        Ok(self.comm.all_reduce_sum_f64(values, Kind::Embeddings)?)
    }

    /// Sends `peer` those of the local `rows` that it reads.
    pub fn send_rows(
        &mut self,
        peer: usize,
        crossing: Crossing,
        layout: &Layout,
        rows: &[f32],
    ) -> Result<()> {
        let wanted = &layout.routes.send[peer];
        let row = |row: usize| (&rows[row * crossing.width..][..crossing.width], layout.nodes[row]);
        self.send(peer, crossing, false, wanted.iter().map(|&at| row(at as usize)))
    }

    /// Sends `peer` the gradients of the halo rows `of` that it owns.
    pub fn send_gradients(
        &mut self,
        peer: usize,
        crossing: Crossing,
        layout: &Layout,
        halo: &[f32],
        of: Range<usize>,
    ) -> Result<()> {
        let (width, local) = (crossing.width, layout.block.local);
        let gradient = |at: usize| (&halo[at * width..][..width], layout.nodes[local + at]);
        self.send(peer, crossing, true, of.map(gradient))
    }

    /// Sends rows, each with the original id of its node.
    pub fn send<'a>(
        &mut self,
        peer: usize,
        crossing: Crossing,
        back: bool,
        mut rows: impl ExactSizeIterator<Item = (&'a [f32], u64)>,
    ) -> Result<()> {
        let (codec, width) = (self.codec(crossing), crossing.width);
        // What crosses once is no part of a step.
        self.count(if crossing.fixed { 0 } else { rows.len() });
        for part in frames_of(rows.len(), codec.bytes(1, width)) {
            let mut frame = self.comm.frame(codec.bytes(part.len(), width));
            self.write(crossing, back, rows.by_ref().take(part.len()), &mut frame)?;
            self.comm.send(peer, self.tag(crossing, back), kind(crossing), frame)?;
        }
        Ok(())
    }

    /// Fills `frame` with rows, each with the original id of its node.
    fn write<'a>(
        &self,
        crossing: Crossing,
        back: bool,
        rows: impl Iterator<Item = (&'a [f32], u64)>,
        frame: &mut Frame,
    ) -> Result<()> {
        let (codec, width) = (self.codec(crossing), crossing.width);
        if codec.exact {
            for (slot, (row, _)) in frame.values_mut::<f32>().chunks_exact_mut(width).zip(rows) {
                slot.copy_from_slice(row);
            }
            return Ok(());
        }
        let key = self.step.with(crossing.layer as u64).with(u64::from(back));
        for (slot, (row, node)) in frame.bytes_mut().chunks_exact_mut(codec.bytes(1, width)).zip(rows) {
            let key = key.with(node);
            codec.encode(row, width, Rounding::Stochastic(&|place| key.bits(place)), slot)?;
        }
        Ok(())
    }

    /// Tells `peer` that the rows it has will do.
    pub fn send_nothing(&mut self, peer: usize, crossing: Crossing) -> Result<()> {
        Ok(self.comm.send(peer, self.tag(crossing, false), kind(crossing), self.comm.frame(0))?)
    }

    /// Receives rows from `peer`, as many as `into` holds.
    pub fn receive(&mut self, peer: usize, crossing: Crossing, into: &mut [f32]) -> Result<()> {
        match self.receive_if_sent(peer, crossing, into)? {
            true => Ok(()),
            false => Err(Error::from(archipelago_comm::Error::Length {
                what: format!("rows of layer {} from rank {peer}", crossing.layer),
                expected: self.codec(crossing).bytes(into.len() / crossing.width, crossing.width),
                found: 0,
            })),
        }
    }

    /// The same from a `peer` that may say that the last ones will do; whether it sent new ones.
    pub fn receive_if_sent(&mut self, peer: usize, crossing: Crossing, into: &mut [f32]) -> Result<bool> {
        let (codec, width) = (self.codec(crossing), crossing.width);
        for part in frames_of(into.len().checked_div(width).unwrap_or(0), codec.bytes(1, width)) {
            let frame = self.comm.receive(peer, self.tag(crossing, false), kind(crossing))?;
            if frame.is_empty() {
                return Ok(false);
            }
            codec.decode(frame.bytes(), width, &mut into[part.start * width..part.end * width])?;
        }
        Ok(true)
    }

    /// Receives gradients from `peer`, as many as `into` holds.
    pub fn receive_gradients(&mut self, peer: usize, crossing: Crossing, into: &mut [f32]) -> Result<()> {
        let (codec, tag) = (self.codec, self.tag(crossing, true));
        self.receive_parts(peer, crossing, codec, tag, into)
    }

    /// Receives rows from `peer`, as many as `into` holds, as `codec` writes them.
    pub fn receive_parts(
        &self,
        peer: usize,
        crossing: Crossing,
        codec: &Codec,
        tag: Tag,
        into: &mut [f32],
    ) -> Result<()> {
        let width = crossing.width;
        for part in frames_of(into.len().checked_div(width).unwrap_or(0), codec.bytes(1, width)) {
            let bytes = codec.bytes(part.len(), width);
            let frame = self.comm.receive_exact(peer, tag, kind(crossing), bytes)?;
            codec.decode(frame.bytes(), width, &mut into[part.start * width..part.end * width])?;
        }
        Ok(())
    }

    /// Adds the gradients that `peer` sent to those of the rows that it reads.
    fn add_gradients(
        &mut self,
        peer: usize,
        crossing: Crossing,
        layout: &Layout,
        rows: &mut [f32],
    ) -> Result<()> {
        let (wanted, width) = (&layout.routes.send[peer], crossing.width);
        if self.codec.exact {
            for part in frames_of(wanted.len(), 4 * width) {
                let bytes = 4 * width * part.len();
                let frame = self.comm.receive_exact(peer, self.tag(crossing, true), kind(crossing), bytes)?;
                add_rows(&wanted[part], frame.values(), width, rows);
            }
            return Ok(());
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.resize(wanted.len() * width, 0.0);
        let outcome = self.receive_gradients(peer, crossing, &mut decoded);
        add_rows(wanted, &decoded, width, rows);
        self.decoded = decoded;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::super::Half;
    use super::*;
    use crate::view::Routes;
    use archipelago_comm::{Config, launch};
    use archipelago_graph::Block;
    use archipelago_graph::block::Adjacency;

    const WIDTH: usize = 200;

    /// Two ranks that read all `rows` of each other.
    fn layout(rank: usize, rows: usize) -> Layout {
        let edges = Adjacency { offsets: vec![0], ..Adjacency::default() };
        let (mut send, mut receive) = (vec![vec![]; 2], vec![0; 2]);
        send[1 - rank] = (0..rows as u32).collect();
        receive[1 - rank] = rows;
        let nodes = Arc::new((0..2 * rows as u64).collect());
        let block = Arc::new(Block::new(edges, rows, rows));
        Layout::new(block, nodes, vec![1.0; 2 * rows], Routes { send, receive })
    }

    #[test]
    fn rows_of_many_frames_arrive_in_order_and_so_do_their_gradients() {
        let crossing = Crossing { layer: 1, width: WIDTH, fixed: false, half: Half::Whole };
        for (codec, rows) in [("f32", 1), ("f32", 3000), ("bf16", 3000), ("int8", 9000)] {
            let exchange = |comm: Comm| {
                let layout = layout(comm.rank(), rows);
                let mut ferry = Ferry::new(Arc::new(comm), Tag::new(1), codec, 1)?;
                // Numbers that every codec writes as they are: 127 and 0.
                let own: Vec<f32> = (0..rows * WIDTH).map(|i| if i % 7 < 3 { 127.0 } else { 0.0 }).collect();
                let (mut halo, mut sums) = (vec![0.0; own.len()], vec![1.0; own.len()]);
                ferry.depart(crossing, &layout, &own)?;
                ferry.arrive(crossing, &layout, &mut halo)?;
                assert_eq!(halo, own, "{codec}");
                ferry.depart_back(crossing, &layout, &halo)?;
                ferry.arrive_back(crossing, &layout, &mut sums)?;
                assert!(sums.iter().zip(&own).all(|(sum, x)| *sum == 1.0 + x), "{codec}");
                Ok::<_, Error>(())
            };
            launch(&Config::threads(2), exchange).unwrap();
        }
    }
}
