//! Moves the weights along their gradients.
//!
//! With g the gradient, t the count of steps from 1, b1 = 0.9, b2 = 0.999, e = 1e-8 and d the weight decay:
//!
//! - sgd: g += d p; m = momentum m + g; p -= lr m
//! - adam (Kingma and Ba, ICLR 2015): g += d p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
//!   p -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e)
//! - adamw (Loshchilov and Hutter, ICLR 2019): p -= lr d p, then adam without decay
//!
//! Every product and sum is rounded on its own (no fused multiply-add), so the bits are the same on every machine.
//! Cost: one pass over weights, gradient and one (sgd) or two (adam) moments.

use crate::error::{Error, Result};
use crate::ops::elementwise::sum_of_squares;
use crate::ops::isa::kernel;
use crate::parameters::{Parameter, Parameters};
use crate::run::{DecayedLayers, OptimizerKind, TrainSection};

const B1: f64 = 0.9;
const B2: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// What the names of the first layer's weights begin with.
const FIRST_LAYER: &str = "layers.0.";

/// Moves the weights along their gradients, and remembers how it did.
#[derive(Debug, Clone)]
pub struct Optimizer {
    kind: OptimizerKind,
    momentum: f32,
    weight_decay: f64,
    decayed: DecayedLayers,
    clip_norm: f64,
    state: OptimizerState,
}

/// What an optimiser remembers from step to step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OptimizerState {
    /// Steps so far.
    pub steps: u64,
    /// One per weight, in sorted name order.
    pub moments: Vec<Moments>,
}

/// What an optimiser remembers of one weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// The name of the weight.
    pub name: String,
    /// Running mean of the gradient (adam), or its decayed sum (sgd).
    pub first: Vec<f32>,
    /// Running mean of the squared gradient; empty for sgd.
    pub second: Vec<f32>,
}

impl Optimizer {
    /// The optimiser that the run file asks for, before its first step on `parameters`.
    pub fn new(train: &TrainSection, parameters: &Parameters) -> Self {
        let second = train.optimizer != OptimizerKind::Sgd;
        let moments = parameters.iter().map(|p| Moments::zeros(p, second)).collect();
        Self {
            kind: train.optimizer,
            momentum: train.momentum as f32,
            weight_decay: train.weight_decay,
            decayed: train.weight_decay_layers,
            clip_norm: train.clip_norm,
            state: OptimizerState { steps: 0, moments },
        }
    }

    /// One update with the gradients in `parameters`; returns their norm before clipping, which is not finite when
    /// any gradient is not (then no weight moves).
    pub fn step(&mut self, parameters: &mut Parameters, lr: f64) -> f64 {
        let norm = limit_norm(parameters, self.clip_norm);
        if !norm.is_finite() {
            return norm;
        }
        self.state.steps += 1;
        let adam = AdamStep::new(self.state.steps, lr);
        for (parameter, moments) in parameters.iter_mut().zip(&mut self.state.moments) {
            let spared = self.decayed == DecayedLayers::First && !parameter.name.starts_with(FIRST_LAYER);
            let decay = if spared { 0.0 } else { self.weight_decay };
            match self.kind {
                OptimizerKind::Sgd => sgd(parameter, moments, lr as f32, self.momentum, decay as f32),
                OptimizerKind::Adam => adam.move_weight(parameter, moments, decay as f32),
                OptimizerKind::AdamW => {
                    shrink(parameter, (lr * decay) as f32);
                    adam.move_weight(parameter, moments, 0.0);
                }
            }
        }
        norm
    }

    /// What a checkpoint must keep.
    pub fn state(&self) -> &OptimizerState {
        &self.state
    }

    /// Forgets all steps so far.
    pub fn forget(&mut self) {
        self.state.steps = 0;
        for moments in &mut self.state.moments {
            moments.first.fill(0.0);
            moments.second.fill(0.0);
        }
    }

    /// Goes on from a checkpoint, whose moments must be of the same weights.
    pub fn restore(&mut self, state: OptimizerState) -> Result<()> {
        let shape = |m: &Moments| (m.name.clone(), m.first.len(), m.second.len());
        let (ours, theirs) = (self.state.moments.iter().map(shape), state.moments.iter().map(shape));
        if !ours.eq(theirs) {
            let message = "the moments of the optimiser are of another model or another optimiser";
            return Err(Error::checkpoint("state.safetensors", message));
        }
        self.state = state;
        Ok(())
    }
}

impl Moments {
    fn zeros(parameter: &Parameter, second: bool) -> Self {
        let len = parameter.value.len();
        let second = if second { vec![0.0; len] } else { Vec::new() };
        Self { name: parameter.name.clone(), first: vec![0.0; len], second }
    }
}

/// Norm of all gradients as one vector: a sum of squares in double precision, in sorted name order.
pub fn gradient_norm(parameters: &Parameters) -> f64 {
    parameters.iter().map(|p| sum_of_squares(&p.grad)).sum::<f64>().sqrt()
}

/// Scales all gradients so that their norm is at most `bound`, where that is not 0; returns their norm before. What is
/// not finite stays as it is, for whoever looks.
pub(crate) fn limit_norm(parameters: &mut Parameters, bound: f64) -> f64 {
    let norm = gradient_norm(parameters);
    if norm.is_finite() && bound > 0.0 && norm > bound {
        let factor = (bound / norm) as f32;
        parameters.iter_mut().flat_map(|p| &mut p.grad).for_each(|g| *g *= factor);
    }
    norm
}

fn shrink(parameter: &mut Parameter, share: f32) {
    if share != 0.0 {
        parameter.value.iter_mut().for_each(|p| *p -= share * *p);
    }
}

fn sgd(parameter: &mut Parameter, moments: &mut Moments, lr: f32, momentum: f32, decay: f32) {
    let Parameter { value, grad, .. } = parameter;
    for ((p, g), m) in value.iter_mut().zip(grad).zip(&mut moments.first) {
        *m = momentum * *m + (*g + decay * *p);
        *p -= lr * *m;
    }
}

/// The factors of one step of Adam, the same for all weights.
pub(crate) struct AdamStep {
    lr: f32,
    first_share: f32,
    second_share: f32,
    first_correction: f32,
    second_correction: f32,
}

impl AdamStep {
    /// Those of the `step`-th step, counted from 1.
    pub fn new(step: u64, lr: f64) -> Self {
        let power = |b: f64| b.powf(step as f64);
        Self {
            lr: lr as f32,
            first_share: (1.0 - B1) as f32,
            second_share: (1.0 - B2) as f32,
            first_correction: (1.0 - power(B1)) as f32,
            second_correction: (1.0 - power(B2)) as f32,
        }
    }

    fn move_weight(&self, parameter: &mut Parameter, moments: &mut Moments, decay: f32) {
        let Moments { first, second, .. } = moments;
        self.update(&mut parameter.value, &parameter.grad, first, second, decay);
    }

    /// Moves numbers along their gradient; the moments are as long.
    pub fn update(&self, value: &mut [f32], grad: &[f32], first: &mut [f32], second: &mut [f32], decay: f32) {
        adam(self, value, grad, first, second, decay);
    }
}

kernel! {
    fn adam<S>(by: &AdamStep, value: &mut [f32], grad: &[f32], first: &mut [f32], second: &mut [f32], decay: f32) {
        let (b1, b2) = (B1 as f32, B2 as f32);
        for (((p, g), m), v) in value.iter_mut().zip(grad).zip(first).zip(second) {
            let g = *g + decay * *p;
            *m = b1 * *m + by.first_share * g;
            *v = b2 * *v + by.second_share * (g * g);
            let direction = (*m / by.first_correction) / ((*v / by.second_correction).sqrt() + EPSILON);
            *p -= by.lr * direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    const RULES: [(&str, OptimizerKind, f64); 4] = [
        ("adam", OptimizerKind::Adam, 0.0),
        ("adam_l2", OptimizerKind::Adam, 5e-4),
        ("adamw", OptimizerKind::AdamW, 5e-4),
        ("sgd_momentum", OptimizerKind::Sgd, 0.0),
    ];

    fn settings(optimizer: OptimizerKind, weight_decay: f64) -> TrainSection {
        TrainSection { optimizer, weight_decay, ..TrainSection::default() }
    }

    fn parameter(name: &str, value: &[f32], grad: &[f32]) -> Parameter {
        Parameter { value: value.to_vec(), grad: grad.to_vec(), ..Parameter::zeros(name, 1, value.len()) }
    }

    /// The gradient of a bumpy function, so that moments matter.
    fn set_gradients(parameters: &mut Parameters, step: u64) {
        for p in parameters.iter_mut() {
            for (g, v) in p.grad.iter_mut().zip(&p.value) {
                *g = (3.0 * v).sin() + 0.1 * (step as f32).cos();
            }
        }
    }

    /// The rules of the module's first lines, one number at a time in double precision.
    fn by_the_book(rule: &str, p: f64, gradients: &[f64], lr: f64, d: f64) -> f64 {
        let (mut p, mut m, mut v) = (p, 0.0, 0.0);
        for (t, &gradient) in (1..).zip(gradients) {
            if rule == "sgd_momentum" {
                m = 0.9 * m + gradient + d * p;
                p -= lr * m;
                continue;
            }
            let g = if rule == "adamw" { gradient } else { gradient + d * p };
            if rule == "adamw" {
                p -= lr * d * p;
            }
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            p -= lr * (m / (1.0 - 0.9f64.powi(t))) / ((v / (1.0 - 0.999f64.powi(t))).sqrt() + 1e-8);
        }
        p
    }

    #[test]
    fn ten_steps_follow_the_rules() {
        for (rule, kind, decay) in RULES {
            let start = [0.5f32, -1.25, 2.0];
            let mut parameters = Parameters::new(vec![parameter("w", &start, &[0.0; 3])]);
            let mut optimizer = Optimizer::new(&settings(kind, decay), &parameters);
            let mut heard = vec![Vec::new(); 3];
            for step in 0..10 {
                set_gradients(&mut parameters, step);
                let gradients = &parameters.get(crate::parameters::ParameterId(0)).grad;
                heard.iter_mut().zip(gradients).for_each(|(list, &g)| list.push(f64::from(g)));
                optimizer.step(&mut parameters, 0.01);
            }
            for (i, p) in parameters.iter().next().unwrap().value.iter().enumerate() {
                let expected = by_the_book(rule, f64::from(start[i]), &heard[i], 0.01, decay);
                assert!((f64::from(*p) - expected).abs() < 1e-6, "{rule}: {p} against {expected}");
            }
        }
    }

    #[test]
    fn the_first_step_on_a_gcn_is_pytorchs() {
        let Some(file) = reference::open("model_gcn") else { return };
        let names = ["l1_weight", "l1_bias", "l2_weight", "l2_bias"];
        for (rule, kind, decay) in RULES {
            let load = |name: &&str| {
                parameter(name, &file.f32(&format!("param_{name}")), &file.f32(&format!("grad_{name}")))
            };
            let mut parameters = Parameters::new(names.iter().map(load).collect());
            Optimizer::new(&settings(kind, decay), &parameters).step(&mut parameters, 0.01);
            for p in parameters.iter() {
                let expected = file.f32(&format!("{rule}_step1_{}", p.name));
                let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
                for (found, expected) in p.value.iter().zip(&expected) {
                    assert!(
                        (found - expected).abs() <= 5e-6 * largest,
                        "{rule} {}: {found} {expected}",
                        p.name
                    );
                }
            }
        }
    }

    #[test]
    fn only_the_first_layer_decays_when_asked() {
        let mut parameters = Parameters::new(vec![
            parameter("layers.0.weight", &[1.0], &[0.0]),
            parameter("layers.1.weight", &[1.0], &[0.0]),
        ]);
        let train =
            TrainSection { weight_decay_layers: DecayedLayers::First, ..settings(OptimizerKind::AdamW, 0.5) };
        Optimizer::new(&train, &parameters).step(&mut parameters, 0.1);
        let values: Vec<f32> = parameters.iter().map(|p| p.value[0]).collect();
        assert_eq!(values, [0.95, 1.0]);
    }

    #[test]
    fn a_gradient_longer_than_the_limit_is_shortened_to_it() {
        let mut parameters =
            Parameters::new(vec![parameter("a", &[0.0], &[3.0]), parameter("b", &[0.0], &[4.0])]);
        let train = TrainSection { clip_norm: 0.5, ..settings(OptimizerKind::Sgd, 0.0) };
        let norm = Optimizer::new(&train, &parameters).step(&mut parameters, 1.0);
        assert_eq!(norm, 5.0);
        let values: Vec<f32> = parameters.iter().map(|p| p.value[0]).collect();
        assert!((values[0] + 0.3).abs() < 1e-7 && (values[1] + 0.4).abs() < 1e-7, "{values:?}");
    }

    #[test]
    fn a_gradient_that_is_no_number_moves_nothing() {
        let mut parameters = Parameters::new(vec![parameter("a", &[1.0, 2.0], &[f32::NAN, 1.0])]);
        let mut optimizer = Optimizer::new(&settings(OptimizerKind::Adam, 0.0), &parameters);
        assert!(optimizer.step(&mut parameters, 0.1).is_nan());
        assert_eq!(parameters.iter().next().unwrap().value, [1.0, 2.0]);
        assert_eq!(optimizer.state().steps, 0);
    }

    #[test]
    fn a_restored_optimizer_goes_on_bit_for_bit() {
        for (rule, kind, decay) in RULES {
            let mut whole = Parameters::new(vec![parameter("w", &[0.5, -1.25, 2.0], &[0.0; 3])]);
            let mut optimizer = Optimizer::new(&settings(kind, decay), &whole);
            let run =
                |optimizer: &mut Optimizer, parameters: &mut Parameters, steps: std::ops::Range<u64>| {
                    for step in steps {
                        set_gradients(parameters, step);
                        optimizer.step(parameters, 0.03);
                    }
                };
            run(&mut optimizer, &mut whole, 0..4);
            let mut resumed = whole.clone();
            let mut restored = Optimizer::new(&settings(kind, decay), &resumed);
            restored.restore(optimizer.state().clone()).unwrap();
            run(&mut optimizer, &mut whole, 4..9);
            run(&mut restored, &mut resumed, 4..9);
            assert_eq!(whole, resumed, "{rule}");
        }
    }

    #[test]
    fn moments_of_another_optimizer_are_refused() {
        let parameters = Parameters::new(vec![parameter("w", &[0.5], &[0.0])]);
        let sgd = Optimizer::new(&settings(OptimizerKind::Sgd, 0.0), &parameters);
        let mut adam = Optimizer::new(&settings(OptimizerKind::Adam, 0.0), &parameters);
        let error = adam.restore(sgd.state().clone()).unwrap_err();
        assert!(error.to_string().contains("another optimiser"), "{error}");
    }
}
