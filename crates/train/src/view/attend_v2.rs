//! GATv2's attention with its exchange: both ends of an edge are scored together.

use super::gather::cross;
use super::{Attention, Layout, SLOPE, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing};
use crate::ops::Rows;
use crate::ops::attention::{EdgeDropout, Loops};
use crate::ops::gatv2::{Gatv2, gatv2, gatv2_backward_sources, gatv2_backward_targets};
use crate::ops::moving::scale_rows;
use crate::ops::softmax::pack_targets;
use crate::parameters::ParameterId;
use crate::tape::{Buffer, Op, Tape, Var};
use archipelago_graph::block::Adjacency;
use archipelago_graph::random::Key;
use std::sync::Arc;

struct AttendedV2 {
    attention: Attention,
    key: Key,
    layout: Arc<Layout>,
    crossing: Crossing,
    left: Sources,
    right: Var,
    weight: ParameterId,
    output: Var,
    /// Halo rows and `log sum exp`.
    saved: Option<(Buffer, Buffer)>,
}

impl View<'_> {
    /// Per head the average of the `left` source rows over in-edges, weighted by the softmax of
    /// `weight . LeakyReLU(left_j + right_i)`; 0 where there is no edge. `right` has one row per target.
    pub fn attend_v2(
        &mut self,
        attention: Attention,
        left: Var,
        right: Var,
        weight: ParameterId,
    ) -> Result<Var> {
        let layout = Arc::clone(self.layout);
        let (crossing, sources) = (self.crossing(left), self.sources(left)?);
        let (block, width) = (&layout.block, crossing.width);
        let key = self.tape.attention_key(self.layer);
        let mut output = self.tape.arena.take(block.targets * width);
        let mut logsumexp = self.tape.arena.take(block.targets * attention.heads);
        let mut halo = self.tape.arena.take(block.halo * width);
        let tape = &*self.tape;
        let dropout = attention.edge_dropout(tape.training, key, &layout);
        let (local, loops) = (tape.value(sources.read), attention.loops(&layout));
        cross(self.boundary, &layout, crossing, local, &mut halo, |targets, halo| {
            let rows = Rows::with_halo(local, halo.unwrap_or_default(), width);
            let job = job(tape, &block.incoming, attention, loops, rows, right, weight, dropout);
            gatv2(&tape.pool, &job, targets, &mut output, &mut logsumexp);
        })?;
        self.boundary.join_attention(&tape.pool, crossing, &layout, &mut output, &mut logsumexp);
        self.tape.keep(left);
        self.tape.keep(right);
        let output = self.tape.computed(block.targets, width, output, true);
        self.tape.keep(output);
        let mut saved = Some((halo, logsumexp));
        if !self.tape.training {
            give_back(self.tape, saved.take());
        }
        let left = sources;
        let op = AttendedV2 { attention, key, layout, crossing, left, right, weight, output, saved };
        self.tape.record(output, op);
        Ok(output)
    }
}

fn give_back(tape: &mut Tape, saved: Option<(Buffer, Buffer)>) {
    if let Some((halo, logsumexp)) = saved {
        tape.arena.give(halo);
        tape.arena.give(logsumexp);
    }
}

fn job<'a>(
    tape: &'a Tape,
    lists: &'a Adjacency,
    attention: Attention,
    loops: Loops<'a>,
    sources: Rows<'a>,
    right: Var,
    weight: ParameterId,
    dropout: Option<EdgeDropout<'a>>,
) -> Gatv2<'a> {
    Gatv2 {
        offsets: &lists.offsets,
        neighbors: &lists.neighbors,
        heads: attention.heads,
        slope: SLOPE,
        loops,
        att: &tape.parameters.get(weight).value,
        sources,
        targets: tape.value(right),
        dropout,
    }
}

impl AttendedV2 {
    fn job<'a>(&'a self, tape: &'a Tape, lists: &'a Adjacency, halo: &'a [f32]) -> Gatv2<'a> {
        let rows = Rows::with_halo(tape.value(self.left.read), halo, self.crossing.width);
        let dropout = self.attention.edge_dropout(true, self.key, &self.layout);
        let loops = self.attention.loops(&self.layout);
        job(tape, lists, self.attention, loops, rows, self.right, self.weight, dropout)
    }
}

impl Op for AttendedV2 {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some((halo, logsumexp)) = self.saved.take() else { return Ok(()) };
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (block, width) = (&self.layout.block, self.crossing.width);
        if let Some(factors) = boundary.gradient_factors(&self.layout) {
            scale_rows(&tape.pool, &factors, width, &mut gradient);
        }
        let mut packed = tape.arena.take(3 * logsumexp.len());
        let output = tape.value(self.output);
        pack_targets(&tape.pool, self.attention.heads, &[], &logsumexp, output, &gradient, &mut packed);
        let crosses = self.layout.crosses();
        if crosses {
            let mut remote = tape.arena.take(block.halo * width);
            let job = self.job(tape, block.outgoing(), &halo);
            let sources = block.local..block.sources();
            gatv2_backward_sources(&tape.pool, &job, &packed, &gradient, sources, &mut remote);
            boundary.depart_back(self.crossing, &self.layout, &remote)?;
            tape.arena.give(remote);
        }
        let mut rows = tape.arena.take(block.local * width);
        let job = self.job(tape, block.outgoing(), &halo);
        gatv2_backward_sources(&tape.pool, &job, &packed, &gradient, 0..block.local, &mut rows);
        let mut right = tape.arena.take(block.targets * width);
        tape.with_weight_gradient(self.weight, |tape, weight| {
            let job = self.job(tape, &block.incoming, &halo);
            let targets = block.targets;
            gatv2_backward_targets(&tape.pool, &job, &packed, &gradient, targets, &mut right, weight);
        });
        if crosses && self.left.passes() {
            boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
        }
        for buffer in [gradient, packed, halo, logsumexp] {
            tape.arena.give(buffer);
        }
        match self.left.passes() {
            true => tape.put_gradient(self.left.rows, rows),
            false => tape.arena.give(rows),
        }
        self.left.settle(tape);
        tape.put_gradient(self.right, right);
        Ok(())
    }
}
