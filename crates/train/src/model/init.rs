//! Initial weights: each number is a function of the seed, the weight's name and its index.

use crate::parameters::Parameter;
use archipelago_graph::random::{Key, Purpose};

/// How a weight is drawn at the start. The bounds are those that PyTorch Geometric and DGL use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
    /// All 0.
    Zero,
    /// All 1.
    One,
    /// Uniform within `sqrt(6 / (rows + cols))` (Glorot & Bengio, 2010).
    Glorot,
    /// Uniform within `sqrt(6 / n)`: Glorot's bound of one of several matrices that stand in one weight.
    GlorotOf(usize),
    /// As [`Glorot`](Self::Glorot), times `sqrt(2)`, which is what ReLU takes away (DGL's choice for SAGE).
    GlorotRelu,
    /// Uniform within `1 / sqrt(fan-in)`.
    Fan(usize),
}

/// Whose way to draw weights a model follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// Its own.
    Model,
    /// That of PyTorch's `Linear` for all matrices: SAGE starts smaller then, as in PyTorch Geometric.
    Fan,
}

impl Init {
    /// How a weight of so many columns is drawn that its layer wants drawn as `own`.
    pub(super) fn start(self, own: Start, cols: usize) -> Start {
        match (self, own) {
            (Self::Fan, Start::Glorot | Start::GlorotOf(_) | Start::GlorotRelu) => Start::Fan(cols),
            _ => own,
        }
    }
}

impl Start {
    /// Fills `parameter` for a run with this `seed`.
    pub fn draw(self, parameter: &mut Parameter, seed: u64) {
        let bound = match self {
            Self::Zero => return parameter.value.fill(0.0),
            Self::One => return parameter.value.fill(1.0),
            Self::Glorot => (6.0 / (parameter.rows + parameter.cols) as f64).sqrt(),
            Self::GlorotOf(ends) => (6.0 / ends.max(1) as f64).sqrt(),
            Self::GlorotRelu => (12.0 / (parameter.rows + parameter.cols) as f64).sqrt(),
            Self::Fan(fan) => 1.0 / (fan.max(1) as f64).sqrt(),
        };
        let key = parameter.name.bytes().fold(Key::new(seed, Purpose::Init), |key, b| key.with(u64::from(b)));
        for (index, value) in parameter.value.iter_mut().enumerate() {
            *value = (bound * (2.0 * key.unit(index as u64) - 1.0)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MODELS, Model, ModelShape, tests::shape};
    use super::*;

    #[test]
    fn with_fan_every_matrix_is_within_one_over_the_root_of_its_inputs_and_the_rest_as_the_model_says() {
        for entry in MODELS {
            let shape = ModelShape { init: Init::Fan, hidden: 6, ..shape() };
            let (_, parameters, _) = Model::build(entry, shape, 1);
            for weight in parameters.iter().filter(|weight| weight.rows > 1) {
                let bound = 1.0 / (weight.cols as f32).sqrt();
                let largest = weight.value.iter().fold(0f32, |most, value| most.max(value.abs()));
                assert!(largest <= bound && largest > bound / 2.0, "{} {}", entry.name, weight.name);
            }
            let biases = parameters.iter().filter(|weight| weight.name.ends_with(".bias"));
            assert!(entry.name == "gin" || biases.flat_map(|bias| &bias.value).all(|&value| value == 0.0));
        }
    }

    #[test]
    fn draws_fill_their_bounds_and_differ_by_name_and_seed() {
        let drawn = |name: &str, seed| {
            let mut weight = Parameter::zeros(name, 30, 20);
            Start::Glorot.draw(&mut weight, seed);
            weight.value
        };
        let values = drawn("a", 1);
        let bound = (6.0f32 / 50.0).sqrt();
        assert!(values.iter().all(|v| v.abs() <= bound));
        assert!(values.iter().any(|v| *v > 0.9 * bound) && values.iter().any(|v| *v < -0.9 * bound));
        assert_ne!(values, drawn("b", 1));
        assert_ne!(values, drawn("a", 2));
    }
}
