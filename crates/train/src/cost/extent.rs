//! What an island needs, from how large it is: by these formulas a run states its need, and a plan foresees it.
//!
//! A rank holds one island at a time. While it is made, what was brought from around it and the pages of the files that
//! are being copied are held beside it; while it is trained on, batches and their rows. Where parts take turns, a
//! part is evaluated when no island is held, with its halo and the rows of one layer.

use super::held::{Rows, Widths};

/// Pages of mapped files that are not given back at once.
const MAPPED: u64 = 48 << 20;

/// Memory of small lists that the allocator does not give back at once.
const RETAINED: u64 = 64 << 20;

/// How large an island is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its nodes, guests included.
    pub rows: u64,
    /// Its guests.
    pub guests: u64,
    /// Its edges, and those of its parts that lead elsewhere.
    pub edges: u64,
    /// Bytes of a row of features, on average.
    pub row: u64,
    /// How far it reaches around its parts.
    pub hops: usize,
    /// Whether edges have weights.
    pub weighted: bool,
}

impl Extent {
    /// Bytes of its features.
    pub fn features(&self) -> u64 {
        self.row * self.rows
    }

    /// Bytes of its index: ids, offsets, degrees, labels, and in-edges.
    pub fn index(&self) -> u64 {
        48 * self.rows + (4 + 4 * u64::from(self.weighted)) * self.edges
    }

    /// Bytes of both.
    pub fn held(&self) -> u64 {
        self.index() + self.features()
    }

    /// Bytes beside it that `part`, another one, takes while it is evaluated and this one is not held.
    pub fn beyond(&self, part: &Self, widths: &Widths) -> u64 {
        part.evaluated(widths).saturating_sub(self.held()) + self.held().min(RETAINED)
    }

    /// Bytes beside it while it is made: guests as they are told, heard and put in order; where every row comes from;
    /// and pages of lists that are being read.
    pub fn making(&self) -> u64 {
        let lists = if self.hops > 1 { 24 * self.edges } else { 0 };
        let pages = (8 + 4 * u64::from(self.weighted)) * self.edges;
        3 * self.guests * (self.row + 28) + lists + 32 * self.rows + pages + MAPPED
    }

    /// Bytes of the layers of a step on all its nodes, and of their input in the order of a plan with what follows
    /// from that alone.
    pub fn whole_batch(&self) -> u64 {
        2 * self.features() + self.layout()
    }

    /// Bytes of the rows of such a step: outputs of all layers, and the gradients of the widest.
    pub fn whole_step(&self, widths: &Widths) -> u64 {
        let rows = Rows { targets: self.rows as usize, local: self.rows as usize, halo: 0, sent: 0 };
        let layers = 0..widths.shape.layers;
        let kept: usize = layers.clone().map(|layer| widths.activations(layer, &rows)).sum();
        (kept + layers.map(|layer| widths.gradients(layer, &rows)).max().unwrap_or(0)) as u64
    }

    /// Bytes of this, one part with its halo, while it is evaluated: ids, degrees and in-edges, and beside them pages of the
    /// latter as they are copied; or guests as they are told, heard and put in order; or what a layer reads (features from
    /// pages and guests), transforms and computes.
    fn evaluated(&self, widths: &Widths) -> u64 {
        let width = |layer: usize| widths.head_width(layer).max(widths.shape.layer(layer).output) as u64;
        let read = |layer: usize| 4 * widths.shape.layer(layer).input as u64;
        let hidden = (1..widths.shape.layers).map(read).max().unwrap_or(0);
        let computed = (0..widths.shape.layers).map(width).max().unwrap_or(0);
        let lists = (4 + 4 * u64::from(self.weighted)) * self.edges;
        let guests = 3 * self.guests * (self.row + 28);
        let input = (2 * self.features()).max(2 * hidden * self.rows);
        let rows = if widths.attends { 3 } else { 2 } * 4 * computed * self.rows;
        40 * self.rows + lists + MAPPED + lists.max(guests).max(input + rows)
    }

    /// Bytes of a layer of all its rows, to and fro.
    fn layout(&self) -> u64 {
        40 * self.rows + 2 * (4 + 4 * u64::from(self.weighted)) * self.edges
    }
}
