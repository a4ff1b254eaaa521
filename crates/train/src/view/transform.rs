//! A linear aggregation and its transform as one piece of work.
//!
//! In evaluation they take turns, a stretch of targets at a time. Between processes one of them is what a rank does while
//! rows of the other are under way. The bits are those of one after the other.

use super::gather::{Gathered, Source, cross, forward, gathered};
use super::{Verb, View};
use crate::Result;
use crate::boundary::Crossing;
use crate::ops::gather::gather as kernel;
use crate::ops::{Rows, Targets, dense};
use crate::parameters::ParameterId;
use crate::tape::Var;
use std::ops::Range;
use std::sync::Arc;

/// `W agg(rows)` without a gradient and without a border to cross, a stretch of targets at a time: nothing as large as
/// the aggregate of all targets is held.
pub(super) fn gather_and_transform(view: &mut View<'_>, verb: Verb, rows: Var, weight: ParameterId) -> Var {
    /// Targets at a time.
    const STRETCH: usize = 1 << 14;
    let tape = &mut *view.tape;
    let (targets, inputs) = (view.layout.block.targets, tape.cols(rows));
    let outputs = tape.parameters.get(weight).rows;
    let mut product = tape.arena.take(targets * outputs);
    let mut sums = tape.arena.take(STRETCH.min(targets) * inputs);
    let graph = forward(view.layout, verb, true);
    for start in (0..targets).step_by(STRETCH) {
        let stretch = start..targets.min(start + STRETCH);
        let (shape, sums) =
            (dense::Linear { rows: stretch.len(), inputs, outputs }, &mut sums[..stretch.len() * inputs]);
        let local = Rows::local(tape.value(rows), inputs);
        kernel(&tape.pool, &graph, local, Targets::Range(stretch.clone()), sums, false);
        let product = &mut product[stretch.start * outputs..stretch.end * outputs];
        shape.forward(&tape.pool, sums, &tape.parameters.get(weight).value, product, false);
    }
    tape.arena.give(sums);
    tape.computed(targets, outputs, product, false)
}

/// `W agg(rows)` where rows cross: sums of the interior are made and transformed while rows of other parts are under way, those
/// of the border when they are there. `runs` are those of the interior and of the border, as the boundary overlaps.
pub(super) fn gather_while_transforming(
    view: &mut View<'_>,
    verb: Verb,
    rows: Var,
    weight: ParameterId,
    runs: &[Vec<Range<usize>>; 2],
) -> Result<Var> {
    let layout = Arc::clone(view.layout);
    let (block, crossing, sources) = (&layout.block, view.crossing(rows), view.sources(rows)?);
    let tape = &mut *view.tape;
    let (width, outputs) = (crossing.width, tape.parameters.get(weight).rows);
    let mut sums = tape.arena.take(block.targets * width);
    let mut product = tape.arena.take(block.targets * outputs);
    let mut halo = tape.arena.take(block.halo * width);
    let (graph, local) = (forward(&layout, verb, true), tape.value(sources.read));
    cross(view.boundary, &layout, crossing, local, &mut halo, |_, halo| {
        let [interior, border] = runs;
        let rows = Rows::with_halo(local, halo.unwrap_or_default(), width);
        for run in if halo.is_none() { interior } else { border } {
            let sums = &mut sums[run.start * width..run.end * width];
            let product = &mut product[run.start * outputs..run.end * outputs];
            kernel(&tape.pool, &graph, rows, Targets::Range(run.clone()), sums, false);
            let shape = dense::Linear { rows: run.len(), inputs: width, outputs };
            shape.forward(&tape.pool, sums, &tape.parameters.get(weight).value, product, false);
        }
    })?;
    tape.arena.give(halo);
    let (targets, needs_gradient) = (block.targets, tape.needs_gradient(rows));
    let output = tape.computed(targets, width, sums, needs_gradient);
    tape.record(output, Gathered { verb, layout, crossing, sources, output });
    let transformed = tape.linear_known(output, weight, targets, product);
    tape.forget(output);
    Ok(transformed)
}

/// `agg(W rows)` where rows cross: those that other ranks read are transformed first, and the others while they are under way.
pub(super) fn transform_and_gather(
    view: &mut View<'_>,
    verb: Verb,
    rows: Var,
    weight: ParameterId,
) -> Result<Var> {
    let layout = Arc::clone(view.layout);
    let (count, inputs) = (view.tape.rows(rows), view.tape.cols(rows));
    let outputs = view.tape.parameters.get(weight).rows;
    let mut product = view.tape.arena.take(count * outputs);
    let unsent = layout.unsent();
    let tape = &*view.tape;
    let transform = |of: Range<usize>, product: &mut [f32]| {
        let shape = dense::Linear { rows: of.len(), inputs, outputs };
        let from = &tape.value(rows)[of.start * inputs..of.end * inputs];
        let to = &mut product[of.start * outputs..of.end * outputs];
        shape.forward(&tape.pool, from, &tape.parameters.get(weight).value, to, false);
    };
    transform(0..unsent.start, &mut product);
    transform(unsent.end..count, &mut product);
    view.boundary.depart(Crossing { width: outputs, ..view.crossing(rows) }, &layout, &product)?;
    transform(unsent, &mut product);
    let transformed = view.tape.linear_known(rows, weight, count, product);
    let aggregated = gathered(view, verb, transformed, Source::Departed)?;
    view.tape.forget(transformed);
    Ok(aggregated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundary::{Boundary, Exact, Half};
    use crate::ops::Pool;
    use crate::ops::testing::numbers;
    use crate::parameters::{Parameter, Parameters};
    use crate::tape::Tape;
    use crate::view::{Layout, Routes};
    use archipelago_comm::{Comm, Config, launch};
    use archipelago_graph::Block;
    use archipelago_graph::block::Adjacency;

    const NODES: usize = 40;
    const WIDTH: usize = 5;

    /// An exact exchange whose other rank is said to be in another process, or not.
    struct Away(Exact, bool);

    impl Boundary for Away {
        fn overlaps(&self) -> bool {
            true
        }
        fn is_far(&self) -> bool {
            self.1
        }
        fn depart(&mut self, crossing: Crossing, layout: &Layout, rows: &[f32]) -> Result<()> {
            self.0.depart(crossing, layout, rows)
        }
        fn arrive(&mut self, crossing: Crossing, layout: &Layout, halo: &mut [f32]) -> Result<()> {
            self.0.arrive(crossing, layout, halo)
        }
        fn depart_back(&mut self, crossing: Crossing, layout: &Layout, halo: &[f32]) -> Result<()> {
            self.0.depart_back(crossing, layout, halo)
        }
        fn arrive_back(&mut self, crossing: Crossing, layout: &Layout, rows: &mut [f32]) -> Result<()> {
            self.0.arrive_back(crossing, layout, rows)
        }
        fn sum(&mut self, values: &mut [f64]) -> Result<()> {
            self.0.sum(values)
        }
    }

    /// One half of a ring: every node reads the two beside it, the first and the last one of the other rank's each. Those two are
    /// the last rows.
    fn half_ring(rank: usize) -> Arc<Layout> {
        let (nodes, halo) = (NODES as u32, NODES as u32);
        let [first, last] = [nodes - 1, nodes - 2];
        let mut lists = Adjacency { offsets: vec![0], ..Adjacency::default() };
        for node in 0..nodes {
            let before = if node == first { halo + 1 } else { (node + nodes - 1) % nodes };
            let after = if node == last { halo } else { (node + 1) % nodes };
            lists.neighbors.extend([before.min(after), before.max(after)]);
            lists.offsets.push(lists.neighbors.len() as u64);
        }
        let (mut send, mut receive) = (vec![vec![]; 2], vec![0; 2]);
        (send[1 - rank], receive[1 - rank]) = (vec![first, last], 2);
        let block = Arc::new(Block::new(lists, NODES, 2));
        let nodes = Arc::new((0..NODES as u64 + 2).collect());
        Arc::new(Layout::new(block, nodes, vec![2.0; NODES + 2], Routes { send, receive }))
    }

    /// What a layer of so many columns computes on this rank: rows, gradients of rows, gradient of the weight.
    fn layer(comm: Comm, verb: Verb, columns: usize, far: bool) -> Result<[Vec<f32>; 3]> {
        let (rank, layout) = (comm.rank(), half_ring(comm.rank()));
        let mut weight = Parameter::zeros("weight", columns, WIDTH);
        weight.value = numbers(7, columns * WIDTH);
        let mut tape = Tape::new(Parameters::new(vec![weight]), Parameters::new(vec![]), Pool::new(1));
        tape.begin_step(1, 1, 1);
        let id = tape.parameters.find("weight").unwrap();
        // What is not known yet must not count.
        for length in [2, NODES].into_iter().flat_map(|rows| [rows * WIDTH, rows * columns]) {
            let mut unknown = [0; 3].map(|_| tape.arena.take(length));
            unknown.iter_mut().for_each(|buffer| buffer.fill(f32::NAN));
            unknown.into_iter().for_each(|buffer| tape.arena.give(buffer));
        }
        let mut filled = |seed: usize, columns: usize| {
            let mut buffer = tape.arena.take(NODES * columns);
            buffer.copy_from_slice(&numbers(seed as u64, NODES * columns));
            buffer
        };
        let (rows, gradient) = (filled(rank, WIDTH), filled(10 + rank, columns));
        let rows = tape.computed(NODES, WIDTH, rows, true);
        let mut boundary = Away(Exact::new(Arc::new(comm), true)?, far);
        let (half, statics, static_input) = (Half::Whole, None, None);
        let mut view = View {
            tape: &mut tape,
            boundary: &mut boundary,
            layout: &layout,
            layer: 1,
            half,
            statics,
            static_input,
        };
        assert_eq!(view.waits_for_far_rows(), far);
        assert_eq!(view.transforms_first(rows, WIDTH, columns), columns < WIDTH);
        let output = view.transformed(verb, rows, id, WIDTH, columns)?;
        let computed = tape.value(output).to_vec();
        tape.put_gradient(output, gradient);
        tape.backward(&mut boundary)?;
        let of_rows = tape.take_gradient(rows).unwrap().to_vec();
        Ok([computed, of_rows, tape.parameters.get(id).grad.clone()])
    }

    #[test]
    fn products_that_are_made_while_rows_are_under_way_are_the_same_bits() {
        for (verb, columns) in
            [Verb::Sum, Verb::Mean, Verb::Symmetric].into_iter().flat_map(|verb| [(verb, WIDTH), (verb, 2)])
        {
            let run = |far| launch(&Config::threads(2), |comm| layer(comm, verb, columns, far)).unwrap();
            let (near, far) = (run(false), run(true));
            assert!(near.iter().flatten().flatten().all(|number| number.is_finite()));
            assert_eq!(near, far, "{verb:?} to {columns} columns");
        }
    }
}
