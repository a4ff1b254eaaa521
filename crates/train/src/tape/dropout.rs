//! Dropout of input rows. (Between layers it is part of the epilogue.)

use super::{Op, Tape, Value, Var};
use crate::Result;
use crate::boundary::Boundary;
use crate::ops;
use archipelago_graph::random::Key;
use std::sync::Arc;

/// Which numbers of which rows are dropped: a function of the key, the original node id and the column.
#[derive(Debug, Clone)]
pub struct DropoutRows {
    key: Key,
    rate: f32,
    nodes: Arc<Vec<u64>>,
}

impl DropoutRows {
    /// Drops numbers at `rate` from rows that stand for `nodes`.
    pub fn new(key: Key, rate: f32, nodes: &Arc<Vec<u64>>) -> Self {
        Self { key, rate, nodes: Arc::clone(nodes) }
    }

    /// The first `rows` of them, as the kernels take it.
    pub fn kernel(&self, rows: usize) -> ops::Dropout<'_> {
        ops::Dropout { rate: self.rate, key: self.key, nodes: &self.nodes[..rows], column: 0 }
    }
}

struct Dropped {
    input: Var,
    output: Var,
    dropout: DropoutRows,
}

impl Tape {
    /// `input` with some of its numbers dropped and the others scaled up. A sparse input stays sparse: its
    /// numbers are dropped where they are used.
    pub fn dropout(&mut self, input: Var, dropout: DropoutRows) -> Var {
        let (rows, cols) = (self.rows(input), self.cols(input));
        if let Some((matrix, _)) = self.sparse(input) {
            let value = Value::Sparse(Arc::clone(matrix), Some(dropout));
            return self.push(rows, cols, value, false);
        }
        let mut kept = self.arena.take(rows * cols);
        ops::dropout::dropout(&self.pool, &dropout.kernel(rows), cols, self.value(input), &mut kept);
        let needs_gradient = self.needs_gradient(input);
        let output = self.computed(rows, cols, kept, needs_gradient);
        self.record(output, Dropped { input, output, dropout });
        output
    }
}

impl Op for Dropped {
    fn backward(&mut self, tape: &mut Tape, _: &mut dyn Boundary) -> Result<()> {
        let Some(gradient) = tape.take_gradient(self.output) else { return Ok(()) };
        let (rows, cols) = (tape.rows(self.output), tape.cols(self.output));
        let mut kept = tape.arena.take(rows * cols);
        ops::dropout::dropout(&tape.pool, &self.dropout.kernel(rows), cols, &gradient, &mut kept);
        tape.arena.give(gradient);
        tape.put_gradient(self.input, kept);
        Ok(())
    }
}
