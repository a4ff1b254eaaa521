//! How many bytes do the layers, batches and weights of a rank take? The formulas alone: a running job fills in what it
//! has ([`memory`](crate::memory)), a plan what it expects ([`memory`](super::memory)).

use crate::model::{ModelShape, Norm};

/// The program itself: code, stacks, thread pools, allocator.
pub const PROGRAM: u64 = 16 << 20;

/// The MPI library of a process in a job, as measured with Open MPI 4.1 over shared memory and over TCP.
pub const MPI: u64 = 44 << 20;

/// Rows and edges of one layer on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows that it computes.
    pub targets: usize,
    /// Rows of the own part that it reads.
    pub local: usize,
    /// Rows of other parts that it reads.
    pub halo: usize,
    /// Rows that it sends to other parts.
    pub sent: usize,
}

impl Rows {
    /// Rows that it reads.
    pub fn sources(&self) -> usize {
        self.local + self.halo
    }
}

/// What is wide in a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Widths {
    /// The widths of its layers.
    pub shape: ModelShape,
    /// Whether layers keep their transformed rows for the backward pass.
    pub attends: bool,
}

impl Widths {
    /// Numbers per row that a layer computes: all its heads.
    pub fn head_width(&self, index: usize) -> usize {
        let shape = self.shape.layer(index);
        if shape.concat || !self.attends { shape.output } else { shape.output * shape.heads }
    }

    /// Numbers beside each that a normalisation keeps.
    fn normed(&self) -> usize {
        if self.shape.norm == Norm::None { 0 } else { 2 }
    }

    /// The widest rows that a layer reads or computes.
    fn widest(&self, index: usize) -> usize {
        self.head_width(index).max(self.shape.layer(index).input)
    }

    /// Rows of a layer of a global batch that the backward pass reads: its output, and inside it what it transforms.
    pub fn activations(&self, index: usize, rows: &Rows) -> usize {
        let width = self.head_width(index);
        let output = 4 * rows.targets * width * (1 + self.normed());
        if !self.attends {
            return output;
        }
        // Attention keeps its transformed sources and its output before the activation; in backward each of 16
        // fixed groups of sources sums the gradients of the targets' scores apart.
        let heads = self.shape.layer(index).heads;
        output + 4 * (rows.sources() + rows.targets) * width + 64 * rows.targets * heads
    }

    /// Buffers in use in a layer beyond what is kept: the gradient that it reads and, behind the first layer or inside an
    /// attention, the one that it writes.
    pub fn gradients(&self, index: usize, rows: &Rows) -> usize {
        let (read, written) = (self.head_width(index), self.shape.layer(index).input);
        let input = match (self.attends, index) {
            (true, _) => rows.sources() * read,
            (false, 0) => 0,
            (false, _) => rows.sources() * read.max(written),
        };
        4 * (rows.targets * read + input)
    }

    /// Rows of a layer on their way to and from other ranks.
    pub fn exchange(&self, index: usize, rows: &Rows) -> usize {
        4 * (rows.sent + 2 * rows.halo) * self.widest(index)
    }

    /// Rows of a step that draws its batch, or of an exact evaluation of `whole` rows, whichever are more: they are not
    /// held together. `rows` are those of the hops, from the targets outward.
    pub fn batch_activations(&self, rows: &[usize], whole: usize) -> usize {
        let widest = (0..self.shape.layers).map(|index| self.widest(index)).skip(1).max();
        self.step_activations(rows).max(3 * 4 * whole * widest.unwrap_or_else(|| self.head_width(0)))
    }

    /// Rows of a step that draws its batch.
    pub fn step_activations(&self, rows: &[usize]) -> usize {
        let layer = |index: usize| {
            let (sources, targets) = (rows[rows.len() - 1 - index], rows[rows.len() - 2 - index]);
            let width = self.head_width(index);
            // An output with its gradient, and what was aggregated; attention transforms its sources.
            let inner =
                if self.attends { 2 * sources * width } else { targets * self.shape.layer(index).input };
            4 * (targets * width * (2 + self.normed()) + inner)
        };
        (0..self.shape.layers).map(layer).sum()
    }
}

/// The layout of a layer: its block, the ids of its rows, and factors of its rows.
pub fn layout(block: usize, nodes: usize, sources: usize, targets: usize) -> usize {
    block + 8 * nodes + 4 * (3 * sources + 2 * targets)
}

/// A block: in-edges of its targets, and for a backward pass out-edges of its sources.
pub fn block(rows: &Rows, edges: usize, weighted: bool, trained: bool) -> usize {
    let edge = if weighted { 8 } else { 4 };
    let outgoing = if trained { 8 * (rows.sources() + 1) + edge * edges } else { 0 };
    8 * (rows.targets + 1) + edge * edges + outgoing + 4 * rows.targets
}

/// What is mapped of a part: offsets, sources, ids, as far as they are touched.
pub fn mapped(owned: usize, edges: usize, halo: usize) -> usize {
    16 * owned + 4 * edges + 8 * halo
}

/// Batches in flight: input rows, edges both ways, and a map of the `part`'s rows for each.
pub fn batches(flight: usize, inputs: usize, width: usize, edges: usize, part: usize) -> usize {
    flight * (4 * inputs * (width + 6) + 24 * edges + 8 * part)
}

/// Rows of other parts that are kept.
pub fn kept_rows(rows: usize, width: usize) -> usize {
    4 * rows * (width + 8)
}

/// Weights with their gradients and moments.
pub fn weights(numbers: usize) -> usize {
    16 * numbers
}
