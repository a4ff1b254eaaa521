//! GAT's attention with its exchange. Nothing is stored per edge: coefficients are computed again in backward.

use super::gather::cross;
use super::{Attention, Layout, SLOPE, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing};
use crate::ops::Rows;
use crate::ops::attention::{EdgeDropout, Loops, head_scores, head_scores_backward};
use crate::ops::gat::{Gat, GatBackward, GatGradients, gat, gat_backward};
use crate::ops::moving::scale_rows;
use crate::ops::softmax::pack_targets;
use crate::parameters::ParameterId;
use crate::tape::{Buffer, Op, Tape, Var};
use archipelago_graph::block::Adjacency;
use archipelago_graph::random::Key;
use std::ops::Range;
use std::sync::Arc;

struct Attended {
    attention: Attention,
    key: Key,
    layout: Arc<Layout>,
    crossing: Crossing,
    sources: Sources,
    output: Var,
    source: ParameterId,
    target: ParameterId,
    saved: Option<Saved>,
}

/// What backward reads besides the rows themselves.
struct Saved {
    halo: Buffer,
    scores: Scores,
    logsumexp: Buffer,
}

/// Score of each row and head at either end of an edge.
struct Scores {
    local: Buffer,
    halo: Buffer,
    target: Buffer,
}

impl View<'_> {
    /// Per head the average of the source rows over in-edges, weighted by the softmax of
    /// `LeakyReLU(source . row_j + target . row_i)`; 0 where there is no edge.
    pub fn attend(
        &mut self,
        attention: Attention,
        rows: Var,
        source: ParameterId,
        target: ParameterId,
    ) -> Result<Var> {
        let layout = Arc::clone(self.layout);
        let (crossing, sources) = (self.crossing(rows), self.sources(rows)?);
        let (block, width, heads) = (&layout.block, crossing.width, attention.heads);
        let key = self.tape.attention_key(self.layer);
        let arena = &mut self.tape.arena;
        let mut output = arena.take(block.targets * width);
        let mut logsumexp = arena.take(block.targets * heads);
        let mut halo = arena.take(block.halo * width);
        let mut scores = Scores {
            local: arena.take(block.local * heads),
            halo: arena.take(block.halo * heads),
            target: arena.take(block.targets * heads),
        };
        let tape = &*self.tape;
        let (own, z, pool) = (tape.value(rows), tape.value(sources.read), &tape.pool);
        let weight = |id: ParameterId| &tape.parameters.get(id).value[..];
        head_scores(pool, z, weight(source), heads, &mut scores.local);
        head_scores(pool, &own[..block.targets * width], weight(target), heads, &mut scores.target);
        let dropout = attention.edge_dropout(tape.training, key, &layout);
        cross(self.boundary, &layout, crossing, z, &mut halo, |targets, halo| {
            if let Some(halo) = halo {
                head_scores(pool, halo, weight(source), heads, &mut scores.halo);
            }
            let job = job(&block.incoming, attention, attention.loops(&layout), &scores, dropout);
            let rows = Rows::with_halo(z, halo.unwrap_or_default(), width);
            gat(pool, &job, rows, targets, &mut output, &mut logsumexp);
        })?;
        self.boundary.join_attention(pool, crossing, &layout, &mut output, &mut logsumexp);
        self.tape.keep(rows);
        let output = self.tape.computed(block.targets, width, output, true);
        self.tape.keep(output);
        let saved = Saved { halo, scores, logsumexp };
        let saved = if self.tape.training { Some(saved) } else { saved.give_back(self.tape) };
        let op = Attended { attention, key, layout, crossing, sources, output, source, target, saved };
        self.tape.record(output, op);
        Ok(output)
    }
}

fn job<'a>(
    lists: &'a Adjacency,
    attention: Attention,
    loops: Loops<'a>,
    scores: &'a Scores,
    dropout: Option<EdgeDropout<'a>>,
) -> Gat<'a> {
    Gat {
        offsets: &lists.offsets,
        neighbors: &lists.neighbors,
        heads: attention.heads,
        slope: SLOPE,
        loops,
        source_scores: Rows::with_halo(&scores.local, &scores.halo, attention.heads),
        target_scores: &scores.target,
        dropout,
    }
}

impl Saved {
    fn give_back(self, tape: &mut Tape) -> Option<Self> {
        let Scores { local, halo, target } = self.scores;
        for buffer in [self.halo, self.logsumexp, local, halo, target] {
            tape.arena.give(buffer);
        }
        None
    }
}

/// Everything that the backward pass of one attention reads; made once, used for halo and local sources.
struct Backward<'a> {
    op: &'a Attended,
    saved: &'a Saved,
    gradient: &'a [f32],
    packed: &'a [f32],
}

impl Backward<'_> {
    /// Gradients of these sources' rows into `rows`, score gradients included; adds to those of the targets.
    fn sources(&self, tape: &mut Tape, sources: Range<usize>, rows: &mut [f32], target_scores: &mut [f32]) {
        let Attended { attention, layout, crossing, .. } = self.op;
        let (block, heads, width) = (&layout.block, attention.heads, crossing.width);
        let mut source_scores = tape.arena.take(sources.len() * heads);
        let local = tape.value(self.op.sources.read);
        let z = Rows::with_halo(local, &self.saved.halo, width);
        let dropout = attention.edge_dropout(true, self.op.key, layout);
        let job = job(block.outgoing(), *attention, attention.loops(layout), &self.saved.scores, dropout);
        let read = GatBackward { z, grad: self.gradient, packed: self.packed };
        let written = GatGradients { z: rows, source_scores: &mut source_scores, target_scores };
        gat_backward(&tape.pool, &job, &read, sources.clone(), written);
        tape.with_weight_gradient(self.op.source, |tape, weight_gradient| {
            let z = match sources.start < block.local {
                true => tape.value(self.op.sources.read),
                false => &self.saved.halo,
            };
            let weight = &tape.parameters.get(self.op.source).value;
            head_scores_backward(&tape.pool, z, weight, heads, &source_scores, rows, weight_gradient);
        });
        tape.arena.give(source_scores);
    }
}

impl Op for Attended {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(saved) = self.saved.take() else { return Ok(()) };
        let Some(mut gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (heads, width) = (self.attention.heads, self.crossing.width);
        if let Some(factors) = boundary.gradient_factors(&self.layout) {
            scale_rows(&tape.pool, &factors, width, &mut gradient);
        }
        let block = Arc::clone(&self.layout.block);
        let mut packed = tape.arena.take(3 * saved.logsumexp.len());
        let output = tape.value(self.output);
        let scores = &saved.scores.target;
        pack_targets(&tape.pool, heads, scores, &saved.logsumexp, output, &gradient, &mut packed);
        let mut target_scores = tape.arena.take_zeroed(block.targets * heads);
        let read = Backward { op: self, saved: &saved, gradient: &gradient, packed: &packed };
        let crosses = self.layout.crosses();
        if crosses {
            let mut halo = tape.arena.take(block.halo * width);
            read.sources(tape, block.local..block.sources(), &mut halo, &mut target_scores);
            boundary.depart_back(self.crossing, &self.layout, &halo)?;
            tape.arena.give(halo);
        }
        let mut rows = tape.arena.take(block.local * width);
        read.sources(tape, 0..block.local, &mut rows, &mut target_scores);
        if !self.sources.passes() {
            rows.fill(0.0);
        }
        tape.with_weight_gradient(self.target, |tape, weight_gradient| {
            let z = &tape.value(self.sources.rows)[..block.targets * width];
            let weight = &tape.parameters.get(self.target).value;
            let first = &mut rows[..block.targets * width];
            head_scores_backward(&tape.pool, z, weight, heads, &target_scores, first, weight_gradient);
        });
        if crosses && self.sources.passes() {
            boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
        }
        for buffer in [gradient, packed, target_scores] {
            tape.arena.give(buffer);
        }
        saved.give_back(tape);
        tape.put_gradient(self.sources.rows, rows);
        Ok(())
    }
}
