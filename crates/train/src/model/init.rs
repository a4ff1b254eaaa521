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
    use super::*;

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
