//! The backward pass of edges: messages are made again, stretch by stretch, and gradients go to both ends.

use super::{EdgeSum, Job, OnEdges, Side, Width, runs};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Isolated, Relay};
use crate::ops::Rows;
use crate::ops::edges::head_dots;
use crate::ops::moving::scale_rows;
use crate::tape::{Buffer, Op, Tape, Var};
use crate::view::mirrors::{add_at_masters, to_mirrors};
use crate::view::{Layout, Mirrors, Sources};
use archipelago_graph::random::Key;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

pub(super) struct Edgewise {
    pub layer: Arc<dyn OnEdges>,
    pub sum: EdgeSum,
    pub width: Width,
    pub key: Key,
    pub layout: Arc<Layout>,
    pub crossing: Crossing,
    pub sources: Sources,
    pub target: Option<Var>,
    pub output: Var,
    pub saved: Option<Saved>,
}

/// What backward reads besides values of the tape.
pub(super) struct Saved {
    pub halo: Buffer,
    pub logsumexp: Buffer,
    /// What the masters of mirrors here sent to their edges.
    pub mirrored: Buffer,
}
/// What the backward pass of a layer's edges reads of their sums.
#[derive(Clone, Copy)]
pub(super) struct Read<'a> {
    pub halo: &'a [f32],
    pub gradient: &'a [f32],
    /// Of a softmax: the sum over the columns of a head of what came out times its gradient.
    pub dots: &'a [f32],
    pub logsumexp: &'a [f32],
}

/// What it writes: gradients of the rows of all ends.
pub(super) struct Written {
    pub rows: Buffer,
    pub halo: Buffer,
    pub targets: Buffer,
}
impl Job<'_> {
    /// Gradients of the ends of the edges of runs of targets of one side, and of the weights that messages read.
    fn sum_down(
        &self,
        tape: &mut Tape,
        side: Side<'_>,
        runs: &[Range<usize>],
        sources: Sources,
        read: &Read<'_>,
        written: &mut Written,
    ) -> Result<()> {
        let learns = tape.needs_gradient(sources.rows);
        let dropout = side.dropout(self.sum, true, self.key, self.layout);
        let aside = tape.set_aside(true);
        let ends = Rows::with_halo(aside.value(sources.read), read.halo, self.crossing.width);
        let cut = side.cut(self.layout, &aside, ends, learns);
        let width = self.width.rows.max(self.crossing.width);
        for range in runs.iter().flat_map(|run| cut.ranges(run.clone(), width)) {
            let (mut edges, messages) = cut.messages(tape, self.layer, range.clone());
            edges.sum_back(self.sum, messages, read, dropout, range);
            edges.tape.backward(&mut Isolated)?;
            edges.ends_back(written);
            tape.reset();
        }
        tape.take_back(aside);
        Ok(())
    }
}

impl Saved {
    /// Gives the memory back.
    pub fn give_back(self, tape: &mut Tape) {
        [self.halo, self.logsumexp, self.mirrored].into_iter().for_each(|buffer| tape.arena.give(buffer));
    }
}
impl Edgewise {
    /// Whether gradients of halo rows go to their owners.
    fn sends_back(&self, tape: &Tape) -> bool {
        tape.needs_gradient(self.sources.rows) && self.layout.crosses()
    }

    fn job(&self) -> Job<'_> {
        let Self { layer, sum, width, key, layout, crossing, .. } = self;
        Job { layer: &**layer, sum: *sum, width: *width, key: *key, layout, crossing: *crossing }
    }

    /// Gradients of the rows of all ends, and of the weights that messages read. Those of halo rows leave as soon as they are
    /// known, which is when the border has been done.
    fn ends(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        saved: &Saved,
        gradient: &[f32],
    ) -> Result<Written> {
        let (block, crossing, heads) = (&self.layout.block, self.crossing, self.width.heads);
        let target_width = self.target.map_or(0, |target| tape.cols(target));
        let mut written = Written {
            rows: tape.arena.take_zeroed(block.local * crossing.width),
            halo: tape.arena.take_zeroed(block.halo * crossing.width),
            targets: tape.arena.take_zeroed(block.targets * target_width),
        };
        let averaged = matches!(self.sum, EdgeSum::Softmax { .. });
        let mut dots = tape.arena.take(if averaged { block.targets * heads } else { 0 });
        if averaged {
            head_dots(&tape.pool, tape.value(self.output), gradient, heads, self.width.rows, &mut dots);
        }
        let read = Read { halo: &saved.halo, gradient, dots: &dots, logsumexp: &saved.logsumexp };
        let near = Side { block, target: self.target, mirrored: None };
        let runs = runs(block);
        let [interior, border] = &*runs;
        self.job().sum_down(tape, near, border, self.sources, &read, &mut written)?;
        let mirrors = self.layout.mirrors.as_ref();
        if self.sends_back(tape) && mirrors.is_none() {
            boundary.depart_back(crossing, &self.layout, &written.halo)?;
        }
        self.job().sum_down(tape, near, interior, self.sources, &read, &mut written)?;
        if let Some(mirrors) = mirrors {
            tape.catch_up();
            self.mirrored_ends(tape, boundary, mirrors, saved, read, &mut written)?;
            if self.sends_back(tape) {
                boundary.depart_back(crossing, &self.layout, &written.halo)?;
            }
        }
        tape.arena.give(dots);
        Ok(written)
    }

    /// The same for the edges of mirrors, which get what they read of sums from their masters; `read` has that of the
    /// targets that are here.
    fn mirrored_ends(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        mirrors: &Mirrors,
        saved: &Saved,
        read: Read<'_>,
        written: &mut Written,
    ) -> Result<()> {
        let (layout, Width { rows, heads }) = (&self.layout, self.width);
        let relay = Relay::backward(Crossing { width: rows, ..self.crossing });
        let mut bring = |relay: Relay, of_targets: &[f32]| {
            to_mirrors(tape, boundary, layout, relay, |_, mirrors, copies| {
                mirrors.copy(of_targets, relay.width(), copies);
            })
        };
        let gradient = bring(relay, read.gradient)?;
        let [dots, logsumexp] = match self.sum {
            EdgeSum::Softmax { .. } => {
                let relay = relay.exactly(heads);
                [bring(relay, read.dots)?, bring(relay, read.logsumexp)?]
            }
            _ => [tape.arena.take(0), tape.arena.take(0)],
        };
        let target_width = self.target.map_or(0, |target| tape.cols(target));
        let of_mirrors = tape.arena.take_zeroed(mirrors.block.targets * target_width);
        let targets = std::mem::replace(&mut written.targets, of_mirrors);
        let far =
            Side { block: &mirrors.block, target: self.target, mirrored: Some((&saved.mirrored, mirrors)) };
        let read = Read { gradient: &gradient, dots: &dots, logsumexp: &logsumexp, ..read };
        let all = 0..mirrors.block.targets;
        self.job().sum_down(tape, far, slice::from_ref(&all), self.sources, &read, written)?;
        let of_mirrors = std::mem::replace(&mut written.targets, targets);
        if target_width > 0 {
            let relay = relay.exactly(target_width);
            add_at_masters(tape, boundary, layout, relay, &of_mirrors, &mut written.targets)?;
        }
        for buffer in [gradient, dots, logsumexp, of_mirrors] {
            tape.arena.give(buffer);
        }
        Ok(())
    }
}

impl Op for Edgewise {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        if let Some(factors) = boundary.gradient_factors(&self.layout) {
            scale_rows(&tape.pool, &factors, self.width.rows, &mut gradient);
        }
        if self.sum == EdgeSum::Mean {
            scale_rows(&tape.pool, self.layout.means(), self.width.rows, &mut gradient);
        }
        let Written { mut rows, halo, targets } = self.ends(tape, boundary, &saved, &gradient)?;
        if tape.needs_gradient(self.sources.rows) && self.sources.passes() {
            if self.layout.crosses() {
                tape.catch_up();
                boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
            }
            tape.put_gradient(self.sources.rows, rows);
        } else {
            tape.arena.give(rows);
        }
        self.sources.settle(tape);
        match self.target.filter(|&target| tape.needs_gradient(target)) {
            Some(target) => tape.put_gradient(target, targets),
            None => tape.arena.give(targets),
        }
        tape.arena.give(halo);
        tape.arena.give(gradient);
        saved.give_back(tape);
        Ok(())
    }

    fn waits(&self) -> bool {
        self.layout.crosses()
    }
}
