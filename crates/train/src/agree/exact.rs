//! The sum of gradients as they are: short ones together, long ones where they stand, one stretch after the other.
//!
//! The backward pass ends with the first layer, whose weight is often the longest. Its gradient may still be owed: then what is
//! known of all others is on the wire while its first rows are computed, and those while the next are.
//!
//! Ranks cut the same stretches, whatever any of them owes.

use crate::Result;
use crate::parameters::{Parameter, ParameterId, Parameters, put_back};
use crate::tape::Tape;
use archipelago_comm::{Comm, Kind, Stretches};
use std::ops::Range;

/// Numbers of a weight whose gradient is summed where it stands; shorter ones are put together, so that they take one message.
const LONG: usize = 1 << 15;

/// In so many stretches the last gradient is summed, or more: of fewer, none is on the wire while another is computed; more have
/// the input of the layer read more often.
const PIECES: usize = 4;

/// Sums gradients of all ranks; keeps its buffers from step to step.
#[derive(Debug, Default)]
pub(super) struct ExactSum {
    /// The gradients of short weights, one after the other.
    short: Vec<f32>,
    stretches: Vec<Stretch>,
}

/// What is summed at once.
#[derive(Debug)]
struct Stretch {
    /// The weight; none for what is put together of short ones.
    of: Option<ParameterId>,
    numbers: Range<usize>,
}

impl ExactSum {
    /// Replaces the gradients of `tape` by their sums over all ranks.
    pub fn sum(&mut self, comm: &Comm, tape: &mut Tape) -> Result<()> {
        for id in tape.parameters.ids() {
            if !is_long(tape.parameters.get(id)) {
                tape.complete(id, usize::MAX);
            }
        }
        self.short.clear();
        let gradients = tape.parameters.iter().filter(|parameter| !is_long(parameter));
        gradients.for_each(|parameter| self.short.extend_from_slice(&parameter.grad));
        self.sum_all(comm, tape)?;
        let short = tape.parameters.iter_mut().filter(|parameter| !is_long(parameter));
        put_back(short.map(|parameter| &mut parameter.grad), &self.short);
        Ok(())
    }

    fn sum_all(&mut self, comm: &Comm, tape: &mut Tape) -> Result<()> {
        let ahead = self.cut(&tape.parameters, comm.longest_stretch::<f32>(), tape.may_owe());
        let Self { short, stretches } = self;
        if stretches.is_empty() {
            comm.all_reduce_sum_f32(short, Kind::Gradients)?;
        } else {
            let mut sum = Sum { tape, short, stretches };
            comm.all_reduce_sum_stretches(&mut sum, ahead, Kind::Gradients)?;
        }
        Ok(())
    }

    /// Cuts all gradients into stretches of at most `longest` numbers, if any is long; how many are to be on their way ahead of the
    /// one that is summed. Layers are named from first to last, and known from last to first: where one gradient may be `owed`,
    /// it is taken for the first by name, which comes last, in pieces, with all others ahead of it. (Of a first layer with
    /// several long weights it may be another: then less is hidden.)
    fn cut(&mut self, parameters: &Parameters, longest: usize, owed: bool) -> usize {
        self.stretches.clear();
        let mut long = parameters.ids().filter(|&id| is_long(parameters.get(id)));
        let Some(last) = long.next() else { return 0 };
        self.push(None, self.short.len(), longest);
        for id in long.rev() {
            self.push(Some(id), parameters.get(id).grad.len(), longest);
        }
        let known = self.stretches.len();
        let numbers = parameters.get(last).grad.len();
        let piece = if owed { longest.min(numbers.div_ceil(PIECES)) } else { longest };
        self.push(Some(last), numbers, piece);
        if owed { known } else { usize::MAX }
    }

    fn push(&mut self, of: Option<ParameterId>, numbers: usize, longest: usize) {
        let starts = (0..numbers).step_by(longest);
        self.stretches
            .extend(starts.map(|start| Stretch { of, numbers: start..numbers.min(start + longest) }));
    }
}

fn is_long(parameter: &Parameter) -> bool {
    parameter.grad.len() >= LONG
}

/// The gradients of a step while they are summed.
struct Sum<'a> {
    tape: &'a mut Tape,
    short: &'a mut [f32],
    stretches: &'a [Stretch],
}

impl Stretches<f32> for Sum<'_> {
    fn numbers(&self) -> usize {
        self.stretches.iter().map(|stretch| stretch.numbers.len()).sum()
    }

    fn count(&self) -> usize {
        self.stretches.len()
    }

    fn stretch(&mut self, number: usize) -> &mut [f32] {
        let Stretch { of, numbers } = &self.stretches[number];
        let Some(id) = *of else { return &mut self.short[numbers.clone()] };
        let cols = self.tape.parameters.get(id).cols;
        self.tape.complete(id, numbers.end.div_ceil(cols));
        &mut self.tape.parameters.get_mut(id).grad[numbers.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::SumGradients;
    use super::*;
    use crate::boundary::Isolated;
    use crate::ops::Pool;
    use crate::run::RunConfig;
    use crate::tape::{Input, SparseMatrix};
    use archipelago_comm::{Config, launch};
    use archipelago_graph::random::{Key, Purpose};
    use std::sync::Arc;

    const INPUTS: usize = 300;

    fn number(rank: usize, place: usize) -> f32 {
        Key::new(3, Purpose::Generate).with(rank as u64).normal(place as u64) as f32
    }

    /// A backward pass over so many rows of sparse input through the named weight, which is then owed; other weights have their
    /// gradients. A rank without rows owes nothing.
    fn owing(rank: usize, through: &str, rows: usize) -> Tape {
        let mut weights = Parameters::new(vec![
            Parameter::zeros("layers.0.weight", 160, INPUTS),
            Parameter::zeros("layers.1.weight", 200, INPUTS),
            Parameter::zeros("layers.2.bias", 1, 5),
            Parameter::zeros("layers.2.weight", 7, INPUTS),
            Parameter::zeros("layers.3.weight", LONG + 1, 1),
        ]);
        let through = weights.find(through).unwrap();
        let places = weights.iter_mut().flat_map(|weight| &mut weight.value).enumerate();
        places.for_each(|(place, slot)| *slot = number(9, place));
        let mut tape = Tape::new(weights, Parameters::default(), Pool::new(1));
        tape.begin_step(0, 1, 0);
        let mut matrix = SparseMatrix::empty(INPUTS);
        for row in 0..rows {
            let columns = [row % INPUTS, (7 * row + rank) % INPUTS].map(|column| column as u32);
            matrix.push_row(&columns, [number(rank, row), 1.0].into_iter());
        }
        let input = tape.constant(&Input::Sparse(Arc::new(matrix)), rows);
        let product = tape.linear(input, through, rows);
        for (id, weight) in tape.parameters.iter_mut().enumerate().filter(|&(id, _)| id != through.0) {
            weight
                .grad
                .iter_mut()
                .enumerate()
                .for_each(|(place, slot)| *slot = number(rank + 10 * id, place));
        }
        if rows > 0 {
            let mut gradient = tape.arena.take(rows * tape.cols(product));
            gradient.iter_mut().enumerate().for_each(|(place, slot)| *slot = number(rank + 100, place));
            tape.put_gradient(product, gradient);
        }
        tape.backward_owing(&mut Isolated).unwrap();
        tape
    }

    fn gradients(tape: &Tape) -> Vec<f32> {
        tape.parameters.iter().flat_map(|weight| weight.grad.iter().copied()).collect()
    }

    #[test]
    fn a_gradient_that_is_owed_is_summed_as_if_it_had_been_there() {
        // The last of the long ones, another long one, and a short one.
        for through in ["layers.0.weight", "layers.1.weight", "layers.2.weight"] {
            for ranks in [1, 2, 3] {
                let summed = launch(&Config::threads(ranks), |comm| {
                    let mut tape = owing(comm.rank(), through, 40 * comm.rank());
                    ExactSum::default().sum(&comm, &mut tape)?;
                    Ok::<_, crate::Error>(gradients(&tape))
                });
                let own = (0..ranks).map(|rank| {
                    let mut tape = owing(rank, through, 40 * rank);
                    tape.catch_up();
                    gradients(&tape)
                });
                let add = |sum: Vec<f32>, more: Vec<f32>| sum.iter().zip(more).map(|(a, b)| a + b).collect();
                let expected = own.reduce(add).unwrap();
                for found in summed.unwrap_or_else(|failure| panic!("{failure}")) {
                    assert_eq!(found, expected, "{through} on {ranks} ranks");
                }
            }
        }
    }

    #[test]
    fn nothing_that_is_owed_is_left_out_however_gradients_are_summed() {
        for setting in ["agree.codec=f32", "agree.codec=int8", "agree.clip_local=0.1"] {
            let config = RunConfig::from_sources(None, &[setting.to_string()]).unwrap();
            for ranks in [1, 2] {
                let [late, early] = [false, true].map(|early| {
                    let summed = launch(&Config::threads(ranks), |comm| {
                        let mut tape = owing(comm.rank(), "layers.0.weight", 40);
                        if early {
                            tape.catch_up();
                        }
                        let numbers = tape.parameters.count();
                        SumGradients::new(&config, &comm, numbers)?.agree(&comm, &mut tape, 1)?;
                        Ok::<_, crate::Error>(gradients(&tape))
                    });
                    summed.unwrap_or_else(|failure| panic!("{failure}"))
                });
                assert_eq!(late, early, "{setting} on {ranks} ranks");
            }
        }
    }

    #[test]
    fn what_is_owed_is_still_owed_when_the_backward_pass_ends() {
        let mut tape = owing(1, "layers.0.weight", 40);
        let first = ParameterId(0);
        let complete = |tape: &Tape| tape.parameters.get(first).grad.iter().filter(|&&x| x != 0.0).count();
        assert_eq!(complete(&tape), 0);
        tape.complete(first, 1);
        let some = complete(&tape);
        assert!(some > 0);
        tape.complete(first, usize::MAX);
        assert!(complete(&tape) > some, "in pieces");
    }

    #[test]
    fn only_short_gradients_take_one_message() {
        let messages = launch(&Config::threads(2), |comm| {
            let weights = Parameters::new(vec![Parameter::zeros("a", 1, 3), Parameter::zeros("b", 5, 4)]);
            let mut tape = Tape::new(weights, Parameters::default(), Pool::new(1));
            ExactSum::default().sum(&comm, &mut tape)?;
            Ok::<_, crate::Error>(comm.meters()[Kind::Gradients].messages_sent)
        });
        assert_eq!(messages.unwrap_or_else(|failure| panic!("{failure}")), [1, 1]);
    }
}
