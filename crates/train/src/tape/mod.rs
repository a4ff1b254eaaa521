//! Reverse-mode automatic differentiation over an arena of reused buffers.
//!
//! A [`Tape`] holds the values of one step and the operations that made them. Each operation is one file: a
//! method on [`Tape`] (or on [`View`](crate::view::View), where it needs the graph) that computes forward, and an
//! [`Op`] that computes backward. Three habits keep memory at what differentiation really needs:
//!
//! - an operation says at recording time which values its backward pass will read ([`Tape::keep`]); a value that
//!   nobody keeps can be released ([`Tape::forget`]) or overwritten in place ([`Tape::consume`]);
//! - backward releases the value and the gradient of a variable as soon as the operation that made it is done;
//! - operations are written over last step's records of the same kind, so that recording allocates nothing.
//!
//! The tape never communicates by itself: an operation that must cross part borders does so through the
//! [`Boundary`] that it is handed.

pub mod buffer;
mod linear;
mod epilogue;
mod dropout;
mod norm;
mod combine;
mod pointwise;
mod lookup;
mod columns;
mod pairs;
mod loss;
mod link_loss;

pub use buffer::{Arena, Buffer, Input, Matrix, SparseMatrix, Values};
pub use dropout::DropoutRows;
pub use epilogue::Activation;
use linear::Owed;
pub use link_loss::LinkLoss;
pub use loss::{Goal, Wanted};
pub use norm::NormWeights;
pub use pairs::Pairs;

use crate::Result;
use crate::boundary::Boundary;
use crate::ops::Pool;
use crate::parameters::{ParameterId, Parameters};
use archipelago_graph::random::{Key, Purpose};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// A value on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var(usize);

/// What an operation must be able to do afterwards: send the gradient of its output to its inputs.
pub trait Op: Any + Send {
    /// Reads the gradient of the output, adds to the gradients of the inputs.
    fn backward(&mut self, tape: &mut Tape, boundary: &mut dyn Boundary) -> Result<()>;

    /// Does what it can of its backward pass with a run of `rows` of the gradient of its output, while others are still to come.
    /// Called once before it, or never.
    fn begin_backward(&mut self, _tape: &mut Tape, _gradient: &[f32], _rows: Range<usize>) {}

    /// Whether its backward pass waits for other ranks, and calls [`Tape::catch_up`] before it does.
    fn waits(&self) -> bool {
        false
    }
}

enum Value {
    /// Computed in this step.
    Computed(Buffer),
    /// The first rows of a matrix that outlives the step.
    Shared(Arc<Matrix>),
    /// The first rows of a sparse matrix that outlives the step, some of its numbers dropped.
    Sparse(Arc<SparseMatrix>, Option<DropoutRows>),
    /// Released, or taken over by another variable.
    Gone,
}

struct Slot {
    rows: usize,
    cols: usize,
    value: Value,
    gradient: Option<Gradient>,
    needs_gradient: bool,
    kept: bool,
}

/// What is known so far of the gradient of a variable.
struct Gradient {
    sum: Buffer,
    /// So many numbers; those behind them are 0, whatever the buffer holds.
    known: usize,
}

impl Gradient {
    /// All numbers, zeros included.
    fn complete(mut self) -> Buffer {
        self.sum[self.known..].fill(0.0);
        self.sum
    }
}

/// The values and operations of one step on one rank.
pub struct Tape {
    /// The weights that the step reads, and whose gradients it adds to.
    pub parameters: Parameters,
    /// Numbers of the model that are not trained: running statistics.
    pub buffers: Parameters,
    /// Threads for the kernels.
    pub pool: Pool,
    /// Buffers between uses.
    pub arena: Arena,
    /// Whether dropout is active and operations are recorded.
    pub training: bool,
    /// Seed, epoch and step: what every draw of this step starts from.
    dropout_key: Key,
    attention_key: Key,
    slots: Vec<Slot>,
    records: Vec<Record>,
    recorded: usize,
    /// Lists that a step leaves behind which was made while another was [set aside](Self::set_aside).
    spare: (Vec<Slot>, Vec<Record>),
    /// The gradient of a weight that is still to be computed.
    owed: Option<Owed>,
    /// Whether the last backward pass was one that may leave such a gradient.
    may_owe: bool,
}

/// The values and operations of a step while its tape serves another one: a stretch of edges, computed apart.
pub struct Aside {
    slots: Vec<Slot>,
    records: Vec<Record>,
    recorded: usize,
    owed: Option<Owed>,
    training: bool,
}

impl Aside {
    /// The numbers of `var`.
    pub fn value(&self, var: Var) -> &[f32] {
        numbers(&self.slots[var.0])
    }

    /// Columns of `var`.
    pub fn cols(&self, var: Var) -> usize {
        self.slots[var.0].cols
    }
}

/// The numbers of a slot that was neither released nor is sparse.
fn numbers(slot: &Slot) -> &[f32] {
    match &slot.value {
        Value::Computed(buffer) => buffer,
        Value::Shared(matrix) => &matrix.values[..slot.rows * slot.cols],
        Value::Sparse(..) | Value::Gone => &[],
    }
}

struct Record {
    op: Option<Box<dyn Op>>,
    output: Var,
}

impl Tape {
    /// An empty tape over these weights.
    pub fn new(parameters: Parameters, buffers: Parameters, pool: Pool) -> Self {
        Self {
            parameters,
            buffers,
            pool,
            arena: Arena::default(),
            training: false,
            dropout_key: Key::new(0, Purpose::Dropout),
            attention_key: Key::new(0, Purpose::AttentionDropout),
            slots: Vec::new(),
            records: Vec::new(),
            recorded: 0,
            spare: Default::default(),
            owed: None,
            may_owe: false,
        }
    }

    /// Puts the step aside, so that another one can be made with the same weights, memory and threads, which is
    /// recorded only if `training`. Gradients of weights are added to what is there.
    pub fn set_aside(&mut self, training: bool) -> Aside {
        let (slots, records) = std::mem::take(&mut self.spare);
        Aside {
            slots: std::mem::replace(&mut self.slots, slots),
            records: std::mem::replace(&mut self.records, records),
            recorded: std::mem::take(&mut self.recorded),
            owed: self.owed.take(),
            training: std::mem::replace(&mut self.training, training),
        }
    }

    /// Goes on with the step that was put aside.
    pub fn take_back(&mut self, step: Aside) {
        self.reset();
        let slots = std::mem::replace(&mut self.slots, step.slots);
        let records = std::mem::replace(&mut self.records, step.records);
        self.spare = (slots, records);
        (self.recorded, self.owed, self.training) = (step.recorded, step.owed, step.training);
    }

    /// Starts a training step: forgets the last one, clears the gradients.
    pub fn begin_step(&mut self, seed: u64, epoch: usize, step: usize) {
        self.reset();
        self.training = true;
        let key = |purpose| Key::new(seed, purpose).with(epoch as u64).with(step as u64);
        self.dropout_key = key(Purpose::Dropout);
        self.attention_key = key(Purpose::AttentionDropout);
        self.parameters.clear_gradients();
    }

    /// Starts an evaluation: forgets the last step; nothing will be recorded.
    pub fn begin_evaluation(&mut self) {
        self.reset();
        self.training = false;
    }

    /// Takes all buffers back.
    pub fn reset(&mut self) {
        for slot in self.slots.drain(..) {
            if let Value::Computed(buffer) = slot.value {
                self.arena.give(buffer);
            }
            if let Some(gradient) = slot.gradient {
                self.arena.give(gradient.sum);
            }
        }
        if let Some(owed) = self.owed.take() {
            self.arena.give(owed.gradient);
        }
        self.may_owe = false;
        self.recorded = 0;
    }

    /// The key of all dropout draws of this step in `layer`.
    pub fn dropout_key(&self, layer: usize) -> Key {
        self.dropout_key.with(layer as u64)
    }

    /// The key of all attention-dropout draws of this step in `layer`.
    pub fn attention_key(&self, layer: usize) -> Key {
        self.attention_key.with(layer as u64)
    }

    /// A constant: the first `rows` rows of `input`.
    pub fn constant(&mut self, input: &Input, rows: usize) -> Var {
        let value = match input {
            Input::Dense(matrix) => Value::Shared(Arc::clone(matrix)),
            Input::Sparse(matrix) => Value::Sparse(Arc::clone(matrix), None),
        };
        self.push(rows, input.cols(), value, false)
    }

    /// A computed value; it has a gradient when any of `inputs` has one.
    pub fn computed(&mut self, rows: usize, cols: usize, buffer: Buffer, needs_gradient: bool) -> Var {
        debug_assert_eq!(buffer.len(), rows * cols);
        self.push(rows, cols, Value::Computed(buffer), needs_gradient && self.training)
    }

    /// The same, for a value that many operations read: none of them overwrites it.
    pub fn pinned(&mut self, rows: usize, cols: usize, buffer: Buffer, needs_gradient: bool) -> Var {
        let var = self.computed(rows, cols, buffer, needs_gradient);
        self.slots[var.0].kept = true;
        var
    }

    fn push(&mut self, rows: usize, cols: usize, value: Value, needs_gradient: bool) -> Var {
        self.slots.push(Slot { rows, cols, value, gradient: None, needs_gradient, kept: false });
        Var(self.slots.len() - 1)
    }

    /// Remembers how `output` was made, if its gradient will be asked for.
    pub fn record<T: Op>(&mut self, output: Var, op: T) {
        if !self.slots[output.0].needs_gradient {
            return;
        }
        let reused = self.records.get_mut(self.recorded).and_then(|record| {
            record.output = output;
            let old: &mut dyn Any = record.op.as_deref_mut()?;
            old.downcast_mut::<T>()
        });
        match reused {
            Some(old) => *old = op,
            None => {
                self.records.truncate(self.recorded);
                self.records.push(Record { op: Some(Box::new(op)), output });
            }
        }
        self.recorded += 1;
    }

    /// Rows of `var`.
    pub fn rows(&self, var: Var) -> usize {
        self.slots[var.0].rows
    }

    /// Columns of `var`.
    pub fn cols(&self, var: Var) -> usize {
        self.slots[var.0].cols
    }

    /// Whether backward will compute the gradient of `var`.
    pub fn needs_gradient(&self, var: Var) -> bool {
        self.slots[var.0].needs_gradient
    }

    /// The sparse matrix behind `var` and what is dropped of it, if it is a sparse constant.
    pub fn sparse(&self, var: Var) -> Option<(&Arc<SparseMatrix>, Option<&DropoutRows>)> {
        match &self.slots[var.0].value {
            Value::Sparse(matrix, dropout) => Some((matrix, dropout.as_ref())),
            _ => None,
        }
    }

    /// The numbers of `var`. A variable that was released or is sparse has none to show.
    pub fn value(&self, var: Var) -> &[f32] {
        numbers(&self.slots[var.0])
    }

    /// Runs `kernel` with the gradient of a weight to add to, and the rest of the tape to read.
    pub fn with_weight_gradient<T>(
        &mut self,
        id: ParameterId,
        kernel: impl FnOnce(&Self, &mut [f32]) -> T,
    ) -> T {
        let mut gradient = std::mem::take(&mut self.parameters.get_mut(id).grad);
        let outcome = kernel(self, &mut gradient);
        self.parameters.get_mut(id).grad = gradient;
        outcome
    }

    /// Says that a backward pass will read the value of `var`.
    pub fn keep(&mut self, var: Var) {
        self.slots[var.0].kept |= self.training;
    }

    /// Says that no later operation reads `var`; its memory is freed unless a backward pass needs it.
    pub fn forget(&mut self, var: Var) {
        if self.slots[var.0].kept {
            return;
        }
        if let Value::Computed(buffer) = std::mem::replace(&mut self.slots[var.0].value, Value::Gone) {
            self.arena.give(buffer);
        }
    }

    /// The numbers of `var` to be overwritten: its own buffer when nobody needs it any more, else a copy.
    pub fn consume(&mut self, var: Var) -> Buffer {
        let slot = &mut self.slots[var.0];
        let mine = !slot.kept && matches!(slot.value, Value::Computed(_));
        if mine && let Value::Computed(buffer) = std::mem::replace(&mut slot.value, Value::Gone) {
            return buffer;
        }
        let mut copy = self.arena.take(self.value(var).len());
        copy.copy_from_slice(self.value(var));
        copy
    }

    /// Takes the gradient of `var` to use it up. `None`: nothing depends on `var`, its gradient is 0.
    pub fn take_gradient(&mut self, var: Var) -> Option<Buffer> {
        self.slots[var.0].gradient.take().map(Gradient::complete)
    }

    /// A buffer to add the gradient of `var` to, and whether it already holds a part of it (`false`: its contents
    /// are arbitrary and must all be written).
    pub fn gradient_buffer(&mut self, var: Var) -> (Buffer, bool) {
        match self.slots[var.0].gradient.take() {
            Some(gradient) => (gradient.complete(), true),
            None => (self.new_gradient(var), false),
        }
    }

    /// The same, and how many of its first numbers hold a part of it: those behind are arbitrary and must all be written.
    pub fn known_gradient(&mut self, var: Var) -> (Buffer, usize) {
        match self.slots[var.0].gradient.take() {
            Some(Gradient { sum, known }) => (sum, known),
            None => (self.new_gradient(var), 0),
        }
    }

    fn new_gradient(&mut self, var: Var) -> Buffer {
        self.arena.take(self.slots[var.0].rows * self.slots[var.0].cols)
    }

    /// Stores what [`gradient_buffer`](Self::gradient_buffer) gave, or a gradient made elsewhere. When there is
    /// one already, the two are added.
    pub fn put_gradient(&mut self, var: Var, gradient: Buffer) {
        match self.take_gradient(var) {
            None => self.put_known_gradient(var, gradient, usize::MAX),
            Some(mut sum) => {
                crate::ops::elementwise::add(&self.pool, &gradient, &mut sum);
                self.arena.give(gradient);
                self.put_known_gradient(var, sum, usize::MAX);
            }
        }
    }

    /// Stores what [`known_gradient`](Self::known_gradient) gave, of which the first `known` numbers were written: the others
    /// are 0.
    pub fn put_known_gradient(&mut self, var: Var, sum: Buffer, known: usize) {
        let known = known.min(sum.len());
        self.slots[var.0].gradient = Some(Gradient { sum, known });
    }

    /// Runs all recorded operations backward, the last first.
    pub fn backward(&mut self, boundary: &mut dyn Boundary) -> Result<()> {
        self.backward_owing(boundary)?;
        self.catch_up();
        Ok(())
    }

    /// The same, but that the gradient of one weight may still have to be [completed](Self::complete): time enough to send others.
    pub fn backward_owing(&mut self, boundary: &mut dyn Boundary) -> Result<()> {
        while self.recorded > 0 {
            self.recorded -= 1;
            let output = self.records[self.recorded].output;
            let Some(mut op) = self.records[self.recorded].op.take() else { continue };
            let owes = self.owed.is_some();
            let outcome = op.backward(self, boundary);
            self.records[self.recorded].op = Some(op);
            outcome?;
            // What is owed reads a value that may be released now.
            if owes {
                self.catch_up();
            }
            self.release(output);
        }
        self.may_owe = true;
        Ok(())
    }

    /// Has the operation that made `var` begin its backward pass with a run of `rows` of `gradient`, that of `var`, which
    /// nothing changes any more. Nothing happens where another operation comes before it, which might change them.
    pub fn begin_backward(&mut self, var: Var, gradient: &[f32], rows: Range<usize>) {
        let Some(next) = self.recorded.checked_sub(1).filter(|&next| self.records[next].output == var) else {
            return;
        };
        if let Some(mut op) = self.records[next].op.take() {
            op.begin_backward(self, gradient, rows);
            self.records[next].op = Some(op);
        }
    }

    /// Whether a gradient may still be owed, here or on another rank that made the same pass.
    pub fn may_owe(&self) -> bool {
        self.may_owe
    }

    /// Whether what nobody waits for can be put off: the operation that comes next in a backward pass will wait for other ranks,
    /// or this is the last one.
    fn can_owe(&self) -> bool {
        match self.recorded.checked_sub(1) {
            Some(next) => self.records[next].op.as_deref().is_some_and(Op::waits),
            None => true,
        }
    }

    fn release(&mut self, var: Var) {
        let slot = &mut self.slots[var.0];
        if let Value::Computed(buffer) = std::mem::replace(&mut slot.value, Value::Gone) {
            self.arena.give(buffer);
        }
        if let Some(gradient) = slot.gradient.take() {
            self.arena.give(gradient.sum);
        }
    }
}
