//! The element-wise maximum over in-edges, with its exchange.
//!
//! Where edges of a target are on several ranks, each finds its own maxima; the target's master keeps the largest, the first
//! in rank order (after its own) of equal ones, and backward every rank gets the gradient of what it won.

use super::gather::cross;
use super::mirrors::{to_masters, to_mirrors};
use super::{Layout, Mirrors, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Relay};
use crate::ops::max::{NOBODY, Won, gather_max, gather_max_backward};
use crate::ops::{Rows, Targets};
use crate::tape::{Buffer, Op, Tape, Var};
use archipelago_graph::Block;
use std::sync::Arc;

struct Maximum {
    layout: Arc<Layout>,
    crossing: Crossing,
    sources: Sources,
    output: Var,
    /// The source that each number came from, as bits; from the number of sources on, the copy.
    winner: Option<Buffer>,
    /// The source that each number of a mirror came from, as bits.
    mirrored: Buffer,
}

/// Maxima and their winners, of targets or of mirrors.
struct Maxima {
    values: Buffer,
    winner: Buffer,
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
        let mut maxima = Maxima { values: output, winner };
        let mirrored = self.join_maxima(&layout, sources, crossing, &halo, &mut maxima)?;
        let Maxima { values: output, winner } = maxima;
        self.tape.arena.give(halo);
        let needs_gradient = self.tape.needs_gradient(rows);
        let output = self.tape.computed(block.targets, width, output, needs_gradient);
        let (winner, mirrored) = match self.tape.needs_gradient(output) {
            true => (Some(winner), mirrored),
            false => {
                self.tape.arena.give(winner);
                self.tape.arena.give(mirrored);
                (None, Buffer::zeros(0))
            }
        };
        self.tape.record(output, Maximum { layout, crossing, sources, output, winner, mirrored });
        Ok(output)
    }

    /// Joins the maxima of other ranks with those of our targets; returns who won among the edges of mirrors here.
    fn join_maxima(
        &mut self,
        layout: &Layout,
        sources: Sources,
        crossing: Crossing,
        halo: &[f32],
        maxima: &mut Maxima,
    ) -> Result<Buffer> {
        let Some(mirrors) = &layout.mirrors else { return Ok(self.tape.arena.take(0)) };
        let (width, lists) = (crossing.width, &mirrors.block.incoming);
        let numbers = mirrors.block.targets * width;
        let (mut values, mut winner) = (self.tape.arena.take(numbers), self.tape.arena.take(numbers));
        let rows = Rows::with_halo(self.tape.value(sources.read), halo, width);
        let (all, who) = (Targets::All(mirrors.block.targets), bytemuck::cast_slice_mut(&mut winner));
        gather_max(&self.tape.pool, &lists.offsets, &lists.neighbors, rows, all, &mut values, who);
        for (value, &winner) in values.iter_mut().zip(bytemuck::cast_slice::<f32, u32>(&winner)) {
            if winner == NOBODY {
                *value = f32::NEG_INFINITY;
            }
        }
        let relay = Relay::forward(crossing).exactly(width);
        let copies = to_masters(self.tape, self.boundary, layout, relay, &values)?;
        mirrors.keep_largest(&copies, width, layout.block.sources(), maxima);
        self.tape.arena.give(values);
        self.tape.arena.give(copies);
        Ok(winner)
    }
}

impl Mirrors {
    /// Takes over those numbers of copies that are larger than what their targets have; numbers of copies win from
    /// `sources` on.
    fn keep_largest(&self, copies: &[f32], width: usize, sources: usize, maxima: &mut Maxima) {
        let winner: &mut [u32] = bytemuck::cast_slice_mut(&mut maxima.winner);
        for (at, (copy, &target)) in copies.chunks_exact(width).zip(&self.copies).enumerate() {
            let row = target as usize * width..(target as usize + 1) * width;
            let best = maxima.values[row.clone()].iter_mut().zip(&mut winner[row]);
            for ((best, winner), &value) in best.zip(copy) {
                if value > *best || *winner == NOBODY && value > f32::NEG_INFINITY {
                    (*best, *winner) = (value, (sources + at) as u32);
                }
            }
        }
    }

    /// Writes the gradient of what each copy won of its target.
    fn won_by_copies(
        &self,
        gradient: &[f32],
        winner: &[u32],
        width: usize,
        sources: usize,
        copies: &mut [f32],
    ) {
        for (at, (copy, &target)) in copies.chunks_exact_mut(width).zip(&self.copies).enumerate() {
            let row = target as usize * width..(target as usize + 1) * width;
            let numbers = gradient[row.clone()].iter().zip(&winner[row]);
            for (won, (&gradient, &winner)) in copy.iter_mut().zip(numbers) {
                *won = if winner as usize == sources + at { gradient } else { 0.0 };
            }
        }
    }
}

impl Maximum {
    /// The gradient of what mirrors here won, from their masters; nothing where there are none.
    fn of_mirrors(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        gradient: &[f32],
        winner: &[u32],
    ) -> Result<Buffer> {
        let (relay, width) = (Relay::backward(self.crossing), self.crossing.width);
        to_mirrors(tape, boundary, &self.layout, relay, |_, mirrors, copies| {
            mirrors.won_by_copies(gradient, winner, width, self.layout.block.sources(), copies);
        })
    }
}

impl Op for Maximum {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let Some(winner) = self.winner.take() else { return Ok(()) };
        let (block, width) = (&self.layout.block, self.crossing.width);
        let remote = self.of_mirrors(tape, boundary, &gradient, bytemuck::cast_slice(&winner))?;
        let mirrors = self.layout.mirrors.as_ref();
        let all = [
            Some(won(block, &winner, &gradient, width)),
            mirrors.map(|mirrors| won(&mirrors.block, &self.mirrored, &remote, width)),
        ];
        let crosses = self.layout.crosses();
        if crosses {
            let mut halo = tape.arena.take(block.halo * width);
            for (at, won) in all.iter().flatten().enumerate() {
                let sources = Targets::Range(block.local..block.sources());
                gather_max_backward(&tape.pool, won, sources, &mut halo, at > 0);
            }
            boundary.depart_back(self.crossing, &self.layout, &halo)?;
            tape.arena.give(halo);
        }
        if self.sources.passes() {
            let (mut rows, accumulate) = tape.gradient_buffer(self.sources.rows);
            for (at, won) in all.iter().flatten().enumerate() {
                let sources = Targets::All(block.local);
                gather_max_backward(&tape.pool, won, sources, &mut rows, accumulate || at > 0);
            }
            if crosses {
                boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
            }
            tape.put_gradient(self.sources.rows, rows);
        }
        self.sources.settle(tape);
        for buffer in [gradient, winner, remote, std::mem::replace(&mut self.mirrored, Buffer::zeros(0))] {
            tape.arena.give(buffer);
        }
        Ok(())
    }
}

/// Who won what among the edges of `block`.
fn won<'a>(block: &'a Block, winner: &'a [f32], grad: &'a [f32], width: usize) -> Won<'a> {
    let lists = block.outgoing();
    Won {
        offsets: &lists.offsets,
        targets: &lists.neighbors,
        winner: bytemuck::cast_slice(winner),
        grad,
        width,
    }
}
