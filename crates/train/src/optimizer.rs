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
        let norm = gradient_norm(parameters);
        if !norm.is_finite() {
            return norm;
        }
        if self.clip_norm > 0.0 && norm > self.clip_norm {
            scale_gradients(parameters, (self.clip_norm / norm) as f32);
        }
        self.state.steps += 1;
        let adam = AdamStep::new(self.state.steps, lr);
        for (parameter, moments) in parameters.iter_mut().zip(&mut self.state.moments) {
            let spared =
                self.decayed == DecayedLayers::First && !parameter.name.starts_with(FIRST_LAYER);
            let decay = if spared { 0.0 } else { self.weight_decay };
            match self.kind {
                OptimizerKind::Sgd => {
                    sgd(parameter, moments, lr as f32, self.momentum, decay as f32)
                }
                OptimizerKind::Adam => adam.update(parameter, moments, decay as f32),
                OptimizerKind::AdamW => {
                    shrink(parameter, (lr * decay) as f32);
                    adam.update(parameter, moments, 0.0);
                }
            }
        }
        norm
    }

    /// What a checkpoint must keep.
    pub fn state(&self) -> &OptimizerState {
        &self.state
    }

    /// Goes on from a checkpoint, whose moments must be of the same weights.
    pub fn restore(&mut self, state: OptimizerState) -> Result<()> {
        let shape = |m: &Moments| (m.name.clone(), m.first.len(), m.second.len());
        let (ours, theirs) =
            (self.state.moments.iter().map(shape), state.moments.iter().map(shape));
        if !ours.eq(theirs) {
            return Err(Error::checkpoint(
                "checkpoint",
                "the optimiser's state is of another model or optimiser",
            ));
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
    let square = |g: &f32| f64::from(*g) * f64::from(*g);
    parameters.iter().flat_map(|p| &p.grad).map(square).sum::<f64>().sqrt()
}

fn scale_gradients(parameters: &mut Parameters, factor: f32) {
    parameters.iter_mut().flat_map(|p| &mut p.grad).for_each(|g| *g *= factor);
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
struct AdamStep {
    lr: f32,
    first_share: f32,
    second_share: f32,
    first_correction: f32,
    second_correction: f32,
}

impl AdamStep {
    fn new(step: u64, lr: f64) -> Self {
        let power = |b: f64| b.powf(step as f64);
        Self {
            lr: lr as f32,
            first_share: (1.0 - B1) as f32,
            second_share: (1.0 - B2) as f32,
            first_correction: (1.0 - power(B1)) as f32,
            second_correction: (1.0 - power(B2)) as f32,
        }
    }

    fn update(&self, parameter: &mut Parameter, moments: &mut Moments, decay: f32) {
        let (b1, b2) = (B1 as f32, B2 as f32);
        let Parameter { value, grad, .. } = parameter;
        let Moments { first, second, .. } = moments;
        for (((p, g), m), v) in value.iter_mut().zip(grad).zip(first).zip(second) {
            let g = *g + decay * *p;
            *m = b1 * *m + self.first_share * g;
            *v = b2 * *v + self.second_share * (g * g);
            let direction =
                (*m / self.first_correction) / ((*v / self.second_correction).sqrt() + EPSILON);
            *p -= self.lr * direction;
        }
    }
}
