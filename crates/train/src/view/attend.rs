//! GAT's attention with its exchange. Nothing is stored per edge: coefficients are computed again in backward.
//!
//! Where edges of a target are on several ranks, its score goes to its mirrors, each averages over its own edges, and the
//! target's master joins the averages by their log-sum-exps. Backward, mirrors get what the master packed of the target,
//! which is all that a coefficient depends on, and send back their part of the score's gradient.

use super::gather::cross;
use super::mirrors::{Averages, TargetGradients, add_at_masters, join_at_masters, to_mirrors};
use super::{Attention, Layout, Mirrors, SLOPE, Sources, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Relay};
use crate::ops::attention::{EdgeDropout, Loops, head_scores, head_scores_backward};
use crate::ops::elementwise::add;
use crate::ops::gat::{Gat, GatBackward, GatGradients, gat, gat_backward};
use crate::ops::moving::scale_rows;
use crate::ops::softmax::pack_targets;
use crate::ops::{Rows, Targets};
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
    /// Of mirrors.
    mirror: Buffer,
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
            mirror: arena.take(0),
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
        if let Some(mirrors) = &layout.mirrors {
            let relay = Relay::forward(crossing).exactly(heads);
            scores.mirror = to_mirrors(self.tape, self.boundary, &layout, relay, |_, mirrors, copies| {
                mirrors.copy(&scores.target, heads, copies);
            })?;
            let dropout = attention.mirror_dropout(self.tape.training, key, &layout, mirrors);
            let job = mirror_job(&mirrors.block.incoming, attention, &scores, dropout);
            let whole = Averages { average: &mut output, logsumexp: &mut logsumexp };
            join_mirrors(self, mirrors, crossing, &job, sources, &halo, whole)?;
        }
        let pool = &self.tape.pool;
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

/// Averages over the edges of mirrors, and joins them with those of their masters.
fn join_mirrors(
    view: &mut View<'_>,
    mirrors: &Mirrors,
    crossing: Crossing,
    job: &Gat<'_>,
    sources: Sources,
    halo: &[f32],
    whole: Averages<'_>,
) -> Result<()> {
    let (targets, width) = (mirrors.block.targets, crossing.width);
    let tape = &mut *view.tape;
    let (mut average, mut logsumexp) =
        (tape.arena.take(targets * width), tape.arena.take(targets * job.heads));
    let rows = Rows::with_halo(tape.value(sources.read), halo, width);
    gat(&tape.pool, job, rows, Targets::All(targets), &mut average, &mut logsumexp);
    let partial = Averages { average: &mut average, logsumexp: &mut logsumexp };
    join_at_masters(tape, view.boundary, view.layout, crossing, job.heads, partial, whole)?;
    tape.arena.give(average);
    tape.arena.give(logsumexp);
    Ok(())
}

/// The same for mirrors: none attends to itself here.
fn mirror_job<'a>(
    lists: &'a Adjacency,
    attention: Attention,
    scores: &'a Scores,
    dropout: Option<EdgeDropout<'a>>,
) -> Gat<'a> {
    Gat { target_scores: &scores.mirror, ..job(lists, attention, Loops::None, scores, dropout) }
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
        let Scores { local, halo, target, mirror } = self.scores;
        for buffer in [self.halo, self.logsumexp, local, halo, target, mirror] {
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
    /// The same of mirrors, if there are any.
    mirrors: Option<&'a TargetGradients>,
}

/// Gradients of the scores of targets and of mirrors.
struct TargetScores {
    own: Buffer,
    mirrored: Buffer,
}

impl Backward<'_> {
    /// Gradients of these sources' rows into `rows`, score gradients included; adds to those of the targets.
    fn sources(&self, tape: &mut Tape, sources: Range<usize>, rows: &mut [f32], targets: &mut TargetScores) {
        let Attended { attention, layout, crossing, .. } = self.op;
        let (block, heads, width) = (&layout.block, attention.heads, crossing.width);
        let mut source_scores = tape.arena.take(sources.len() * heads);
        let local = tape.value(self.op.sources.read);
        let z = Rows::with_halo(local, &self.saved.halo, width);
        let dropout = attention.edge_dropout(true, self.op.key, layout);
        let job = job(block.outgoing(), *attention, attention.loops(layout), &self.saved.scores, dropout);
        let read = GatBackward { z, grad: self.gradient, packed: self.packed };
        let target_scores = &mut targets.own;
        let written = GatGradients { z: rows, source_scores: &mut source_scores, target_scores };
        gat_backward(&tape.pool, &job, &read, sources.clone(), written);
        self.add_mirrored(tape, sources.clone(), rows, &mut source_scores, &mut targets.mirrored);
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

    /// Adds what edges to mirrors make of the gradients of these sources, and of the mirrors' scores.
    fn add_mirrored(
        &self,
        tape: &mut Tape,
        sources: Range<usize>,
        rows: &mut [f32],
        source_scores: &mut [f32],
        target_scores: &mut [f32],
    ) {
        let Attended { attention, layout, crossing, key, .. } = self.op;
        let (Some(mirrors), Some(of_targets)) = (&layout.mirrors, self.mirrors) else { return };
        let (mut more, mut more_scores) = (tape.arena.take(rows.len()), tape.arena.take(source_scores.len()));
        let z = Rows::with_halo(tape.value(self.op.sources.read), &self.saved.halo, crossing.width);
        let dropout = attention.mirror_dropout(true, *key, layout, mirrors);
        let job = mirror_job(mirrors.block.outgoing(), *attention, &self.saved.scores, dropout);
        let read = GatBackward { z, grad: &of_targets.gradient, packed: &of_targets.packed };
        let written = GatGradients { z: &mut more, source_scores: &mut more_scores, target_scores };
        gat_backward(&tape.pool, &job, &read, sources, written);
        add(&tape.pool, &more, rows);
        add(&tape.pool, &more_scores, source_scores);
        tape.arena.give(more);
        tape.arena.give(more_scores);
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
        let layout = &self.layout;
        let mirrors =
            TargetGradients::bring(tape, boundary, layout, self.crossing, heads, &gradient, &packed)?;
        let mut target_scores = TargetScores {
            own: tape.arena.take_zeroed(block.targets * heads),
            mirrored: tape.arena.take_zeroed(saved.scores.mirror.len()),
        };
        let read = Backward {
            op: self,
            saved: &saved,
            gradient: &gradient,
            packed: &packed,
            mirrors: mirrors.as_ref(),
        };
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
        let TargetScores { own: mut target_scores, mirrored } = target_scores;
        if let Some(mirrors) = mirrors {
            let relay = Relay::backward(self.crossing).exactly(heads);
            add_at_masters(tape, boundary, layout, relay, &mirrored, &mut target_scores)?;
            mirrors.give_back(tape);
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
        for buffer in [gradient, packed, target_scores, mirrored] {
            tape.arena.give(buffer);
        }
        saved.give_back(tape);
        tape.put_gradient(self.sources.rows, rows);
        Ok(())
    }
}
