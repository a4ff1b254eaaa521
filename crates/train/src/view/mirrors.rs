//! Targets whose edges are on several ranks: what a verb asks of the boundary, and how partial aggregates are joined.
//!
//! A verb computes its block and the block of its mirrors alike. Then partial aggregates of mirrors go to their masters
//! ([`to_masters`]), which join them in rank order, after their own. What an edge reads of its target, and gradients
//! of targets, go from masters to mirrors ([`to_mirrors`]).

use super::{Attention, Layout, Mirrors};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Relay};
use crate::ops::attention::EdgeDropout;
use crate::ops::softmax::join_pairs;
use crate::tape::{Buffer, Tape};
use archipelago_graph::random::Key;

impl Mirrors {
    /// Writes the row of the target behind each copy.
    pub(super) fn copy(&self, rows: &[f32], width: usize, copies: &mut [f32]) {
        for (copy, &target) in copies.chunks_exact_mut(width).zip(&self.copies) {
            copy.copy_from_slice(&rows[target as usize * width..][..width]);
        }
    }

    /// Adds what came of each copy to the row of its target, in rank order.
    pub(super) fn add(&self, copies: &[f32], width: usize, rows: &mut [f32]) {
        for (copy, &target) in copies.chunks_exact(width).zip(&self.copies) {
            let row = &mut rows[target as usize * width..][..width];
            row.iter_mut().zip(copy).for_each(|(sum, more)| *sum += more);
        }
    }
}

/// One row for each mirror, from its master; `fill` writes one for each copy of our targets.
pub(super) fn to_mirrors(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
    fill: impl FnOnce(&Tape, &Mirrors, &mut [f32]),
) -> Result<Buffer> {
    tell_mirrors(tape, boundary, layout, relay, fill)?;
    hear_masters(tape, boundary, layout, relay)
}

/// The first half of [`to_mirrors`]: rows are under way.
pub(super) fn tell_mirrors(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
    fill: impl FnOnce(&Tape, &Mirrors, &mut [f32]),
) -> Result<()> {
    let Some(mirrors) = &layout.mirrors else { return Ok(()) };
    let mut copies = tape.arena.take(mirrors.copies.len() * relay.width());
    fill(tape, mirrors, &mut copies);
    boundary.tell_mirrors(relay, layout, &copies)?;
    tape.arena.give(copies);
    Ok(())
}

/// The second half of [`to_mirrors`]: rows are here.
pub(super) fn hear_masters(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
) -> Result<Buffer> {
    let count = layout.mirrors.as_ref().map_or(0, |mirrors| mirrors.block.targets);
    let mut rows = tape.arena.take(count * relay.width());
    if layout.mirrors.is_some() {
        boundary.hear_masters(relay, layout, &mut rows)?;
    }
    Ok(rows)
}

/// One row for each copy of our targets, from the rank that has it; `rows` has one for each mirror here.
pub(super) fn to_masters(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
    rows: &[f32],
) -> Result<Buffer> {
    boundary.tell_masters(relay, layout, rows)?;
    hear_mirrors(tape, boundary, layout, relay)
}

/// The second half of [`to_masters`]: rows are here.
fn hear_mirrors(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
) -> Result<Buffer> {
    let copies = layout.mirrors.as_ref().map_or(0, |mirrors| mirrors.copies.len());
    let mut copies = tape.arena.take(copies * relay.width());
    boundary.hear_mirrors(relay, layout, &mut copies)?;
    Ok(copies)
}

/// Adds `rows`, one for each mirror here, to the `sums` of their masters.
pub(super) fn add_at_masters(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
    rows: &[f32],
    sums: &mut [f32],
) -> Result<()> {
    boundary.tell_masters(relay, layout, rows)?;
    add_from_mirrors(tape, boundary, layout, relay, sums)
}

/// The second half of [`add_at_masters`], where mirrors have told.
pub(super) fn add_from_mirrors(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    relay: Relay,
    sums: &mut [f32],
) -> Result<()> {
    let copies = hear_mirrors(tape, boundary, layout, relay)?;
    if let Some(mirrors) = &layout.mirrors {
        mirrors.add(&copies, relay.width(), sums);
    }
    tape.arena.give(copies);
    Ok(())
}

/// An attention's averages and log-sum-exps, all heads of a target side by side.
pub(super) struct Averages<'a> {
    pub average: &'a mut [f32],
    pub logsumexp: &'a mut [f32],
}

/// Joins the averages over edges that mirrors hold (`partial`) with those of their masters (`whole`): pairs of average and
/// log-sum-exp, in one message from each holder.
pub(super) fn join_at_masters(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    crossing: Crossing,
    heads: usize,
    partial: Averages<'_>,
    whole: Averages<'_>,
) -> Result<()> {
    let Some(mirrors) = &layout.mirrors else { return Ok(()) };
    let (width, pair) = (crossing.width, crossing.width + heads);
    let mut pairs = tape.arena.take(mirrors.block.targets * pair);
    let parts = partial.average.chunks_exact(width).zip(partial.logsumexp.chunks_exact(heads));
    for (pair, (average, logsumexp)) in pairs.chunks_exact_mut(pair).zip(parts) {
        pair[..width].copy_from_slice(average);
        pair[width..].copy_from_slice(logsumexp);
    }
    let relay = Relay::forward(crossing).exactly(pair);
    let copies = to_masters(tape, boundary, layout, relay, &pairs)?;
    for (pair, &target) in copies.chunks_exact(pair).zip(&mirrors.copies) {
        let average = &mut whole.average[target as usize * width..][..width];
        join_pairs(
            &pair[..width],
            &pair[width..],
            average,
            &mut whole.logsumexp[target as usize * heads..][..heads],
        );
    }
    tape.arena.give(pairs);
    tape.arena.give(copies);
    Ok(())
}

/// What mirrors read of an attention's targets in the backward pass.
pub(super) struct TargetGradients {
    /// Gradient of the output.
    pub gradient: Buffer,
    /// What was packed of the targets.
    pub packed: Buffer,
}

impl TargetGradients {
    /// Brings them from their masters; nothing where there are no mirrors.
    pub fn bring(
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        layout: &Layout,
        crossing: Crossing,
        heads: usize,
        gradient: &[f32],
        packed: &[f32],
    ) -> Result<Option<Self>> {
        if layout.mirrors.is_none() {
            return Ok(None);
        }
        let mut bring = |relay: Relay, rows: &[f32]| {
            to_mirrors(tape, boundary, layout, relay, |_, mirrors, copies| {
                mirrors.copy(rows, relay.width(), copies);
            })
        };
        let relay = Relay::backward(crossing);
        let gradient = bring(relay, gradient)?;
        let packed = bring(relay.exactly(3 * heads), packed)?;
        Ok(Some(Self { gradient, packed }))
    }

    /// Gives the memory back.
    pub fn give_back(self, tape: &mut Tape) {
        tape.arena.give(self.gradient);
        tape.arena.give(self.packed);
    }
}

impl Attention {
    /// The dropout of coefficients of edges to mirrors, if there is any.
    pub(super) fn mirror_dropout<'a>(
        &self,
        training: bool,
        key: Key,
        layout: &'a Layout,
        mirrors: &'a Mirrors,
    ) -> Option<EdgeDropout<'a>> {
        let dropout = self.edge_dropout(training, key, layout)?;
        Some(EdgeDropout { targets: &mirrors.nodes, ..dropout })
    }
}
