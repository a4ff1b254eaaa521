//! Linear aggregation with its exchange: sum, mean and GCN's normalised sum.
//!
//! Forward: rows leave for the ranks that read them, interior targets are computed meanwhile, then the halo
//! arrives and the border follows. Backward is the exact adjoint: gradients of halo rows are computed first and
//! leave, gradients of local rows are computed meanwhile, then what others computed for our rows is added. Between processes
//! the transform before or after it fills the time as well, forwards in `transform.rs`, backwards in `tape/linear.rs`.
//!
//! Where edges of a target are on several ranks, each sums up its own; the target's master adds the sums, then scales them
//! and adds the target's own row. Sums that need no halo leave before everything else.

use super::mirrors::{add_from_mirrors, hear_masters, tell_mirrors};
use super::{Layout, Mirrors, Sources, Verb, View};
use crate::Result;
use crate::boundary::{Boundary, Crossing, Half, Relay};
use crate::ops::gather::{Gather, gather as kernel};
use crate::ops::moving::{add_scaled_rows, scale_rows};
use crate::ops::{Rows, Targets};
use crate::tape::{Buffer, Input, Matrix, Op, Tape, Var};
use archipelago_graph::block::Adjacency;
use std::ops::Range;
use std::sync::Arc;

pub(super) struct Gathered {
    pub verb: Verb,
    pub layout: Arc<Layout>,
    pub crossing: Crossing,
    pub sources: Sources,
    pub output: Var,
}

/// Aggregates `rows` and records how.
pub(super) fn gather(view: &mut View<'_>, verb: Verb, rows: Var) -> Result<Var> {
    let rows = view.tape.dense(rows);
    gathered(view, verb, rows, Source::Computed)
}

/// The same for `rows` that stand in one matrix, as `source` takes them.
pub(super) fn gathered(
    view: &mut View<'_>,
    verb: Verb,
    rows: Var,
    source: fn(Var) -> Source<'static>,
) -> Result<Var> {
    let layout = Arc::clone(view.layout);
    let crossing = view.crossing(rows);
    let sources = view.sources(rows)?;
    let read = source(sources.read);
    let aggregate = aggregate(view.tape, view.boundary, &layout, crossing, verb, read)?;
    let needs_gradient = view.tape.needs_gradient(rows);
    let output = view.tape.computed(layout.block.targets, crossing.width, aggregate, needs_gradient);
    view.tape.record(output, Gathered { verb, layout, crossing, sources, output });
    Ok(output)
}

/// Aggregates static features for all rows of this rank.
pub(super) fn gather_static(
    view: &mut View<'_>,
    layout: &Layout,
    features: &Input,
    verb: Verb,
) -> Result<Arc<Matrix>> {
    let crossing = Crossing { layer: view.layer, width: features.cols(), fixed: true, half: Half::Whole };
    let rows: &[f32] = match features {
        Input::Dense(matrix) => &matrix.values,
        Input::Sparse(_) => &[],
    };
    let values = aggregate(view.tape, view.boundary, layout, crossing, verb, Source::Static(rows))?;
    Ok(Arc::new(Matrix { rows: layout.block.targets, cols: crossing.width, values: values.into() }))
}

/// Rows to aggregate: of this step, with those that other ranks read still here or on their way, or the same in every step.
pub(super) enum Source<'a> {
    Computed(Var),
    Departed(Var),
    Static(&'a [f32]),
}

impl Source<'_> {
    fn of<'a>(&'a self, tape: &'a Tape) -> &'a [f32] {
        match self {
            Self::Computed(var) | Self::Departed(var) => tape.value(*var),
            Self::Static(rows) => rows,
        }
    }

    /// Those that have to depart.
    fn departs<'a>(&'a self, tape: &'a Tape) -> Option<&'a [f32]> {
        match self {
            Self::Departed(_) => None,
            Self::Computed(_) | Self::Static(_) => Some(self.of(tape)),
        }
    }
}

fn aggregate(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    crossing: Crossing,
    verb: Verb,
    rows: Source<'_>,
) -> Result<Buffer> {
    let (block, width) = (&layout.block, crossing.width);
    let mut output = tape.arena.take(block.targets * width);
    let mut halo = tape.arena.take(block.halo * width);
    let remembers = boundary.remembers(crossing.layer) && !crossing.fixed;
    let graph = match &layout.mirrors {
        None => forward(layout, verb, !remembers),
        Some(_) => summing(layout, verb, &block.incoming),
    };
    let reads_halo = layout.mirrors.as_ref().is_some_and(|mirrors| !mirrors.block.border.is_empty());
    if !reads_halo {
        tell_sums(tape, boundary, layout, crossing, verb, &rows, &halo)?;
    }
    if let Some(rows) = rows.departs(tape).filter(|_| layout.crosses()) {
        boundary.depart(crossing, layout, rows)?;
    }
    let local = rows.of(tape);
    meet(boundary, layout, crossing, &mut halo, |targets, halo| {
        let rows = Rows::with_halo(local, halo.unwrap_or_default(), width);
        kernel(&tape.pool, &graph, rows, targets, &mut output, false);
    })?;
    if reads_halo {
        tell_sums(tape, boundary, layout, crossing, verb, &rows, &halo)?;
    }
    if layout.mirrors.is_some() {
        add_from_mirrors(tape, boundary, layout, Relay::forward(crossing), &mut output)?;
        finish_sums(tape, layout, verb, rows.of(tape), width, &mut output);
    }
    if remembers {
        boundary.join_sums(&tape.pool, crossing, layout, &mut output);
        if includes_own(verb, crossing) {
            add_scaled_rows(&tape.pool, layout.own_weights(), rows.of(tape), width, &mut output);
        }
    }
    tape.arena.give(halo);
    Ok(output)
}

/// Sums up the edges of mirrors and tells their masters; nothing where there are none.
fn tell_sums(
    tape: &mut Tape,
    boundary: &mut dyn Boundary,
    layout: &Layout,
    crossing: Crossing,
    verb: Verb,
    rows: &Source<'_>,
    halo: &[f32],
) -> Result<()> {
    let Some(mirrors) = &layout.mirrors else { return Ok(()) };
    let (count, width) = (mirrors.block.targets, crossing.width);
    let mut sums = tape.arena.take(count * width);
    let (graph, local) = (summing(layout, verb, &mirrors.block.incoming), rows.of(tape));
    let sources = Rows::with_halo(local, halo, width);
    kernel(&tape.pool, &graph, sources, Targets::All(count), &mut sums, false);
    boundary.tell_masters(Relay::forward(crossing), layout, &sums)?;
    tape.arena.give(sums);
    Ok(())
}

/// Scales the sums over all edges of each target, and adds its own row where it counts.
fn finish_sums(tape: &Tape, layout: &Layout, verb: Verb, local: &[f32], width: usize, sums: &mut [f32]) {
    if let Some(scale) = target_scale(layout, verb) {
        scale_rows(&tape.pool, scale, width, sums);
    }
    if verb == Verb::Symmetric {
        add_scaled_rows(&tape.pool, layout.own_weights(), local, width, sums);
    }
}

/// Whether a target's own row is among what is summed up.
fn includes_own(verb: Verb, crossing: Crossing) -> bool {
    verb == Verb::Symmetric && crossing.half != Half::Far
}

/// Brings the halo of a layer and computes its targets, those that need no halo while it is under way. `compute`
/// gets the halo rows as soon as they are there.
pub(super) fn cross(
    boundary: &mut dyn Boundary,
    layout: &Layout,
    crossing: Crossing,
    rows: &[f32],
    halo: &mut [f32],
    compute: impl FnMut(Targets<'_>, Option<&[f32]>),
) -> Result<()> {
    if layout.crosses() {
        boundary.depart(crossing, layout, rows)?;
    }
    meet(boundary, layout, crossing, halo, compute)
}

/// The same where rows have departed.
fn meet(
    boundary: &mut dyn Boundary,
    layout: &Layout,
    crossing: Crossing,
    halo: &mut [f32],
    mut compute: impl FnMut(Targets<'_>, Option<&[f32]>),
) -> Result<()> {
    let block = &layout.block;
    if !layout.crosses() {
        compute(Targets::All(block.targets), Some(halo));
    } else if boundary.overlaps() {
        compute(Targets::Listed(&block.interior), None);
        boundary.arrive(crossing, layout, halo)?;
        compute(Targets::Listed(&block.border), Some(halo));
    } else {
        boundary.arrive(crossing, layout, halo)?;
        compute(Targets::All(block.targets), Some(halo));
    }
    Ok(())
}

impl Op for Gathered {
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        if let Some(mirrors) = &self.layout.mirrors {
            return self.backward_mirrored(tape, boundary, mirrors, gradient);
        }
        let (block, width) = (&self.layout.block, self.crossing.width);
        let remembers = boundary.remembers(self.crossing.layer);
        let scaled = scaled_gradient(tape, boundary, &self.layout, &gradient, width);
        let upstream = Rows::local(scaled.as_deref().unwrap_or(&gradient), width);
        let graph = backward(&self.layout, self.verb, !remembers);
        let crosses = self.layout.crosses();
        if crosses {
            let mut compute = |of: Range<usize>, gradients: &mut [f32]| {
                let remote = Targets::Range(block.local + of.start..block.local + of.end);
                kernel(&tape.pool, &graph, upstream, remote, gradients, false);
            };
            if !boundary.compute_back(self.crossing, &self.layout, &mut compute)? {
                let mut halo = tape.arena.take(block.halo * width);
                compute(0..block.halo, &mut halo);
                boundary.depart_back(self.crossing, &self.layout, &halo)?;
                tape.arena.give(halo);
            }
        }
        let rows = self.sources.passes().then(|| {
            let mut rows = add_to_gradient(tape, self.sources.rows, &graph, upstream, block.local);
            if remembers && includes_own(self.verb, self.crossing) {
                add_scaled_rows(&tape.pool, self.layout.own_weights(), &gradient, width, &mut rows);
            }
            rows
        });
        tape.arena.give(gradient);
        scaled.into_iter().for_each(|buffer| tape.arena.give(buffer));
        if let Some(mut rows) = rows {
            if crosses {
                tape.catch_up();
                if boundary.overlaps() && boundary.is_far() {
                    tape.begin_backward(self.sources.rows, &rows, self.layout.unsent());
                }
                boundary.arrive_back(self.crossing, &self.layout, &mut rows)?;
            }
            tape.put_gradient(self.sources.rows, rows);
        }
        self.sources.settle(tape);
        Ok(())
    }

    fn waits(&self) -> bool {
        self.layout.crosses()
    }
}

impl Gathered {
    /// The adjoint where edges of a target are on several ranks: its gradient, scaled once, goes to its mirrors, and every
    /// rank takes it along its own edges.
    fn backward_mirrored(
        &self,
        tape: &mut Tape,
        boundary: &mut dyn Boundary,
        mirrors: &Mirrors,
        mut gradient: Buffer,
    ) -> Result<()> {
        let (layout, block, width) = (&self.layout, &self.layout.block, self.crossing.width);
        if let Some(scale) = target_scale(layout, self.verb) {
            scale_rows(&tape.pool, scale, width, &mut gradient);
        }
        let relay = Relay::backward(self.crossing);
        tell_mirrors(tape, boundary, layout, relay, |_, mirrors, copies| {
            mirrors.copy(&gradient, width, copies);
        })?;
        let scale = source_scale(layout, self.verb);
        let near = Gather { target_scale: scale, self_scale: scale, ..listed(block.outgoing()) };
        let far = Gather { target_scale: scale, ..listed(mirrors.block.outgoing()) };
        let upstream = Rows::local(&gradient, width);
        let of_halo = Targets::Range(block.local..block.sources());
        let mut halo = tape.arena.take(block.halo * width);
        kernel(&tape.pool, &near, upstream, of_halo.clone(), &mut halo, false);
        let reads_halo = !mirrors.block.border.is_empty();
        if !reads_halo {
            boundary.depart_back(self.crossing, layout, &halo)?;
        }
        let mut rows = add_to_gradient(tape, self.sources.rows, &near, upstream, block.local);
        tape.catch_up();
        let remote = hear_masters(tape, boundary, layout, relay)?;
        let upstream = Rows::local(&remote, width);
        if reads_halo {
            kernel(&tape.pool, &far, upstream, of_halo, &mut halo, true);
            boundary.depart_back(self.crossing, layout, &halo)?;
        }
        kernel(&tape.pool, &far, upstream, Targets::All(block.local), &mut rows, true);
        boundary.arrive_back(self.crossing, layout, &mut rows)?;
        tape.put_gradient(self.sources.rows, rows);
        for buffer in [gradient, remote, halo] {
            tape.arena.give(buffer);
        }
        Ok(())
    }
}

/// The gradient of the local rows `var`, with what `graph` brings of `upstream`.
fn add_to_gradient(
    tape: &mut Tape,
    var: Var,
    graph: &Gather<'_>,
    upstream: Rows<'_>,
    local: usize,
) -> Buffer {
    let (mut rows, known) = tape.known_gradient(var);
    let first = known / tape.cols(var).max(1);
    let (sum, fresh) = rows.split_at_mut(known);
    kernel(&tape.pool, graph, upstream, Targets::All(first), sum, true);
    kernel(&tape.pool, graph, upstream, Targets::Range(first..local), fresh, false);
    rows
}

/// The gradient of each target on its way to its neighbours, where that is another one.
fn scaled_gradient(
    tape: &mut Tape,
    boundary: &dyn Boundary,
    layout: &Layout,
    gradient: &[f32],
    width: usize,
) -> Option<Buffer> {
    let factors = boundary.gradient_factors(layout)?;
    let mut scaled = tape.arena.take(gradient.len());
    scaled.copy_from_slice(gradient);
    scale_rows(&tape.pool, &factors, width, &mut scaled);
    Some(scaled)
}

fn weights(adjacency: &Adjacency) -> Option<&[f32]> {
    (!adjacency.weights.is_empty()).then_some(&adjacency.weights[..])
}

/// The plain sum along these lists.
fn listed(lists: &Adjacency) -> Gather<'_> {
    Gather { weights: weights(lists), ..Gather::sum(&lists.offsets, &lists.neighbors) }
}

/// The sum along these lists before it is scaled: that of some edges of a target.
fn summing<'a>(layout: &'a Layout, verb: Verb, lists: &'a Adjacency) -> Gather<'a> {
    Gather { source_scale: source_scale(layout, verb), ..listed(lists) }
}

/// What a source's row is multiplied by, if by anything.
fn source_scale(layout: &Layout, verb: Verb) -> Option<&[f32]> {
    (verb == Verb::Symmetric).then(|| &layout.symmetric().source[..])
}

/// What the sum over all edges of a target is multiplied by, if by anything.
fn target_scale(layout: &Layout, verb: Verb) -> Option<&[f32]> {
    match verb {
        Verb::Sum => None,
        Verb::Mean => Some(layout.means()),
        Verb::Symmetric => Some(&layout.symmetric().target),
    }
}

/// With `own`, GCN's sum includes each target's own row.
pub(super) fn forward(layout: &Layout, verb: Verb, own: bool) -> Gather<'_> {
    let lists = &layout.block.incoming;
    let sum = listed(lists);
    match verb {
        Verb::Sum => sum,
        Verb::Mean => Gather { target_scale: Some(layout.means()), ..sum },
        Verb::Symmetric => {
            let scale = layout.symmetric();
            Gather {
                source_scale: Some(&scale.source),
                target_scale: Some(&scale.target),
                self_scale: own.then_some(&scale.source[..]),
                ..sum
            }
        }
    }
}

/// The transpose of [`forward`]: the same sum along outgoing edges, with the scales of the two ends exchanged.
fn backward(layout: &Layout, verb: Verb, own: bool) -> Gather<'_> {
    let lists = &layout.block.outgoing();
    let sum = listed(lists);
    match verb {
        Verb::Sum => sum,
        Verb::Mean => Gather { source_scale: Some(layout.means()), ..sum },
        Verb::Symmetric => {
            let scale = layout.symmetric();
            Gather {
                source_scale: Some(&scale.target),
                target_scale: Some(&scale.source),
                self_scale: own.then_some(&scale.back[..]),
                ..sum
            }
        }
    }
}
