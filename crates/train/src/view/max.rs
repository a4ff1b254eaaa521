//! The element-wise maximum over in-edges, with its exchange.

use super::gather::cross;
use super::{Layout, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing};
use crate::ops::max::{Won, gather_max, gather_max_backward};
use crate::ops::{Rows, Targets};
use crate::tape::{Buffer, Op, Tape, Var};
use std::sync::Arc;

struct Maximum {
    layout: Arc<Layout>,
    crossing: Crossing,
    sources: Sources,
    output: Var,
    /// The source that each number came from, as bits.
    winner: Option<Buffer>,
}

impl View<'_> {
    /// The element-wise maximum of the source rows over the in-edges of each target; 0 where there are none.
    pub fn max(&mut self, rows: Var) -> Result<Var> {
        let rows = self.tape.dense(rows);
        let layout = Arc::clone(self.layout);
        let (crossing, sources) = (self.crossing(rows), self.sources(rows)?);
        let (block, width) = (&layout.block, crossing.width);
        let mut output = self.tape.arena.take(block.targets * width);
        let mut winner = self.tape.arena.take(block.targets * width);
        let mut halo = self.tape.arena.take(block.halo * width);
        let (tape, lists) = (&*self.tape, &block.incoming);
        let local = tape.value(sources.read);
        cross(self.boundary, &layout, crossing, local, &mut halo, |targets, halo| {
            let rows = Rows::with_halo(local, halo.unwrap_or_default(), width);
            let winner = bytemuck::cast_slice_mut(&mut winner);
            gather_max(&tape.pool, &lists.offsets, &lists.neighbors, rows, targets, &mut output, winner);
        })?;
        self.tape.arena.give(halo);
        let needs_gradient = self.tape.needs_gradient(rows);
        let output = self.tape.computed(block.targets, width, output, needs_gradient);
        let winner = match self.tape.needs_gradient(output) {
            true => Some(winner),
            false => {
                self.tape.arena.give(winner);
                None
            }
        };
        self.tape.record(output, Maximum { layout, crossing, sources, output, winner });
        Ok(output)
    }
}

impl Op for Maximum {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let Some(winner) = self.winner.take() else { return Ok(()) };
        let (block, width) = (&self.layout.block, self.crossing.width);
        let won = Won {
            offsets: &block.outgoing().offsets,
            targets: &block.outgoing().neighbors,
            winner: bytemuck::cast_slice(&winner),
            grad: &gradient,
            width,
        };
        let crosses = self.layout.crosses();
        if crosses {
            let mut halo = tape.arena.take(block.halo * width);
            let remote = Targets::Range(block.local..block.sources());
            gather_max_backward(&tape.pool, &won, remote, &mut halo, false);
            boundary.depart_back(self.crossing, &self.layout, &halo)?;
            tape.arena.give(halo);
        }
        if self.sources.passes() {
            let (mut rows, accumulate) = tape.gradient_buffer(self.sources.rows);
            gather_max_backward(&tape.pool, &won, Targets::All(block.local), &mut rows, accumulate);
            if crosses {
                boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
            }
            tape.put_gradient(self.sources.rows, rows);
        }
        self.sources.settle(tape);
        tape.arena.give(gradient);
        tape.arena.give(winner);
        Ok(())
    }
}
