//! GATv2's attention with its exchange: both ends of an edge are scored together.
//!
//! Where edges of a target are on several ranks, its row goes to its mirrors, and gradients of it come back; averages are
//! joined as in `attend`.

use super::gather::cross;
use super::mirrors::{Averages, TargetGradients, add_at_masters, join_at_masters, to_mirrors};
use super::{Attention, Layout, Mirrors, SLOPE, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Relay};
use crate::ops::attention::Loops;
use crate::ops::elementwise::add;
use crate::ops::gatv2::{Gatv2, gatv2, gatv2_backward_sources, gatv2_backward_targets};
use crate::ops::moving::scale_rows;
use crate::ops::softmax::pack_targets;
use crate::ops::{Rows, Targets};
use crate::parameters::ParameterId;
use crate::tape::{Buffer, Op, Tape, Var};
use archipelago_graph::block::Adjacency;
use archipelago_graph::random::Key;
use std::ops::Range;
use std::sync::Arc;

struct AttendedV2 {
    asked: Asked,
    layout: Arc<Layout>,
    output: Var,
    saved: Option<Saved>,
}

/// What was asked of the graph.
#[derive(Clone, Copy)]
struct Asked {
    attention: Attention,
    key: Key,
    crossing: Crossing,
    left: Sources,
    right: Var,
    weight: ParameterId,
}

/// What backward reads besides the rows themselves.
struct Saved {
    halo: Buffer,
    logsumexp: Buffer,
    /// Rows of mirrors; none where all edges are with the owners of their targets.
    mirrors: Buffer,
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
        let asked = Asked { attention, key, crossing, left: sources, right, weight };
        let tape = &*self.tape;
        cross(self.boundary, &layout, crossing, tape.value(sources.read), &mut halo, |targets, halo| {
            let job = asked.job(tape, &layout, &block.incoming, halo.unwrap_or_default());
            gatv2(&tape.pool, &job, targets, &mut output, &mut logsumexp);
        })?;
        let mut mirrors = self.tape.arena.take(0);
        if layout.mirrors.is_some() {
            let relay = Relay::forward(crossing);
            mirrors = to_mirrors(self.tape, self.boundary, &layout, relay, |tape, mirrors, copies| {
                mirrors.copy(tape.value(right), width, copies);
            })?;
        }
        let mut saved = Saved { halo, logsumexp, mirrors };
        asked.join_mirrors(self, &mut output, &mut saved)?;
        self.boundary.join_attention(&self.tape.pool, crossing, &layout, &mut output, &mut saved.logsumexp);
        self.tape.keep(left);
        self.tape.keep(right);
        let output = self.tape.computed(block.targets, width, output, true);
        self.tape.keep(output);
        let mut saved = Some(saved);
        if !self.tape.training {
            give_back(self.tape, saved.take());
        }
        self.tape.record(output, AttendedV2 { asked, layout, output, saved });
        Ok(output)
    }
}

fn give_back(tape: &mut Tape, saved: Option<Saved>) {
    if let Some(Saved { halo, logsumexp, mirrors }) = saved {
        for buffer in [halo, logsumexp, mirrors] {
            tape.arena.give(buffer);
        }
    }
}

impl Asked {
    /// The attention along these lists of the layout's own block.
    fn job<'a>(
        &self,
        tape: &'a Tape,
        layout: &'a Layout,
        lists: &'a Adjacency,
        halo: &'a [f32],
    ) -> Gatv2<'a> {
        Gatv2 {
            offsets: &lists.offsets,
            neighbors: &lists.neighbors,
            heads: self.attention.heads,
            slope: SLOPE,
            loops: self.attention.loops(layout),
            att: &tape.parameters.get(self.weight).value,
            sources: Rows::with_halo(tape.value(self.left.read), halo, self.crossing.width),
            targets: tape.value(self.right),
            dropout: self.attention.edge_dropout(tape.training, self.key, layout),
        }
    }

    /// The same along lists of mirrors, whose rows are saved: none attends to itself here.
    fn mirror_job<'a>(
        &self,
        tape: &'a Tape,
        layout: &'a Layout,
        mirrors: &'a Mirrors,
        lists: &'a Adjacency,
        saved: &'a Saved,
    ) -> Gatv2<'a> {
        Gatv2 {
            loops: Loops::None,
            targets: &saved.mirrors,
            dropout: self.attention.mirror_dropout(tape.training, self.key, layout, mirrors),
            ..self.job(tape, layout, lists, &saved.halo)
        }
    }

    /// Averages over the edges of mirrors, and joins them with those of their masters.
    fn join_mirrors(&self, view: &mut View<'_>, output: &mut [f32], saved: &mut Saved) -> Result<()> {
        let layout = view.layout;
        let Some(mirrors) = &layout.mirrors else { return Ok(()) };
        let (targets, heads) = (mirrors.block.targets, self.attention.heads);
        let tape = &mut *view.tape;
        let mut average = tape.arena.take(targets * self.crossing.width);
        let mut logsumexp = tape.arena.take(targets * heads);
        let job = self.mirror_job(tape, layout, mirrors, &mirrors.block.incoming, saved);
        gatv2(&tape.pool, &job, Targets::All(targets), &mut average, &mut logsumexp);
        let partial = Averages { average: &mut average, logsumexp: &mut logsumexp };
        let whole = Averages { average: output, logsumexp: &mut saved.logsumexp };
        join_at_masters(tape, view.boundary, layout, self.crossing, heads, partial, whole)?;
        tape.arena.give(average);
        tape.arena.give(logsumexp);
        Ok(())
    }
}

/// Everything that the backward pass of one attention reads; made once, used for halo and local sources.
struct Backward<'a> {
    op: &'a AttendedV2,
    saved: &'a Saved,
    gradient: &'a [f32],
    packed: &'a [f32],
    /// The same of mirrors, if there are any.
    mirrors: Option<&'a TargetGradients>,
}

impl Backward<'_> {
    /// Gradients of these sources' rows into `rows`.
    fn sources(&self, tape: &mut Tape, sources: Range<usize>, rows: &mut [f32]) {
        let (asked, layout) = (&self.op.asked, &self.op.layout);
        let job = asked.job(tape, layout, layout.block.outgoing(), &self.saved.halo);
        gatv2_backward_sources(&tape.pool, &job, self.packed, self.gradient, sources.clone(), rows);
        let (Some(mirrors), Some(of_targets)) = (&layout.mirrors, self.mirrors) else { return };
        let mut more = tape.arena.take(rows.len());
        let job = asked.mirror_job(tape, layout, mirrors, mirrors.block.outgoing(), self.saved);
        let TargetGradients { gradient, packed } = of_targets;
        gatv2_backward_sources(&tape.pool, &job, packed, gradient, sources, &mut more);
        add(&tape.pool, &more, rows);
        tape.arena.give(more);
    }

    /// Gradients of the targets' rows into `right`; adds to that of the weight.
    fn targets(&self, tape: &mut Tape, boundary: &mut dyn Boundary, right: &mut [f32]) -> Result<()> {
        let (asked, layout) = (&self.op.asked, &self.op.layout);
        let (halo, targets) = (&self.saved.halo, layout.block.targets);
        tape.with_weight_gradient(asked.weight, |tape, weight| {
            let job = asked.job(tape, layout, &layout.block.incoming, halo);
            gatv2_backward_targets(&tape.pool, &job, self.packed, self.gradient, targets, right, weight);
        });
        let (Some(mirrors), Some(of_targets)) = (&layout.mirrors, self.mirrors) else { return Ok(()) };
        let targets = mirrors.block.targets;
        let mut rows = tape.arena.take(targets * asked.crossing.width);
        tape.with_weight_gradient(asked.weight, |tape, weight| {
            let job = asked.mirror_job(tape, layout, mirrors, &mirrors.block.incoming, self.saved);
            let TargetGradients { gradient, packed } = of_targets;
            gatv2_backward_targets(&tape.pool, &job, packed, gradient, targets, &mut rows, weight);
        });
        add_at_masters(tape, boundary, layout, Relay::backward(asked.crossing), &rows, right)?;
        tape.arena.give(rows);
        Ok(())
    }
}

impl Op for AttendedV2 {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let Asked { attention, crossing, left, right: targets, .. } = self.asked;
        let (block, width, heads) = (&self.layout.block, crossing.width, attention.heads);
        if let Some(factors) = boundary.gradient_factors(&self.layout) {
            scale_rows(&tape.pool, &factors, width, &mut gradient);
        }
        let mut packed = tape.arena.take(3 * saved.logsumexp.len());
        let output = tape.value(self.output);
        pack_targets(&tape.pool, heads, &[], &saved.logsumexp, output, &gradient, &mut packed);
        let mirrors =
            TargetGradients::bring(tape, boundary, &self.layout, crossing, heads, &gradient, &packed)?;
        let read = Backward {
            op: self,
            saved: &saved,
            gradient: &gradient,
            packed: &packed,
            mirrors: mirrors.as_ref(),
        };
        let crosses = self.layout.crosses();
        if crosses {
            let mut remote = tape.arena.take(block.halo * width);
            read.sources(tape, block.local..block.sources(), &mut remote);
            boundary.depart_back(crossing, &self.layout, &remote)?;
            tape.arena.give(remote);
        }
        let mut rows = tape.arena.take(block.local * width);
        read.sources(tape, 0..block.local, &mut rows);
        let mut right = tape.arena.take(block.targets * width);
        read.targets(tape, boundary, &mut right)?;
        if crosses && left.passes() {
            boundary.arrive_back(crossing, &self.layout, &mut rows)?;
        }
        for buffer in [gradient, packed] {
            tape.arena.give(buffer);
        }
        mirrors.into_iter().for_each(|mirrors| mirrors.give_back(tape));
        give_back(tape, Some(saved));
        match left.passes() {
            true => tape.put_gradient(left.rows, rows),
            false => tape.arena.give(rows),
        }
        left.settle(tape);
        tape.put_gradient(targets, right);
        Ok(())
    }
}
