//! R-MAT: a power-law graph of any size whose edges are computed, not kept.
//!
//! Chakrabarti, Zhan & Faloutsos, R-MAT: A Recursive Model for Graph Mining, SDM 2004; parameters of Graph 500
//! (a = .57, b = .19, c = .19, d = .05). An edge falls into a quadrant of the adjacency matrix, then into a
//! quadrant of that, `scale` times. Edge `i` is a function of the seed and `i` alone, so the stream holds nothing
//! and can be read any number of times; ids are scrambled by a bijection of `scale` bits, not by a table.
//!
//! Differences from Graph 500: a self-loop is drawn again; duplicates are kept. Each drawn edge is stored in both
//! directions. Features and labels are random (they are for timing): they are written once to an unnamed
//! temporary file and mapped from there, so they may be larger than memory too and vanish with the dataset.
//!
//! Cost: `scale / 2` hashes per edge; memory is one chunk, and 8 bytes per node that is in a split (a fifth).

use super::{Entry, Request, refuse_extras};
use crate::array::Array;
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream, Features, Labels};
use crate::progress::Progress;
use crate::random::{Key, Purpose};
use crate::split::{Shares, drawn};
use crate::{Error, Result};
use bytemuck::Pod;
use memmap2::Mmap;
use rayon::prelude::*;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The table line of this generator.
pub const ENTRY: Entry = Entry {
    name: "rmat",
    summary: "power-law graph of any size, streamed; random features and labels",
    paper: "Chakrabarti, Zhan & Faloutsos, R-MAT: A Recursive Model for Graph Mining, SDM 2004",
    defaults,
    generate: |request, progress| {
        refuse_extras(request, "rmat")?;
        stream(&RmatOptions::of(request)?, progress)
    },
};

/// Thresholds of the quadrants a, a + b and a + b + c, of 2^32.
const QUADRANTS: [u32; 3] = [quantile(0.57), quantile(0.76), quantile(0.95)];

const fn quantile(share: f64) -> u32 {
    (share * 4_294_967_296.0) as u32
}

/// What the graph looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RmatOptions {
    /// There are `2^scale` nodes; 1 to 40.
    pub scale: u32,
    /// How many directed edges, both directions counted; rounded down to an even number.
    pub edges: u64,
    /// Numbers per node; 0 = no features.
    pub features: usize,
    /// How many classes; 0 = no labels.
    pub classes: usize,
    /// The seed of every draw.
    pub seed: u64,
    /// Folder for the temporary file of features and labels; the system's when not given.
    pub scratch: Option<PathBuf>,
}

fn defaults() -> Request {
    Request {
        nodes: 1 << 17,
        edges: 32 << 17,
        features: 32,
        classes: 16,
        multilabel: false,
        edge_attributes: 0,
        seed: 0,
        scratch: None,
    }
}

impl RmatOptions {
    fn of(request: &Request) -> Result<Self> {
        if !request.nodes.is_power_of_two() {
            return Err(Error::usage(format!(
                "the generator `rmat` needs a power of two of nodes, found {}",
                request.nodes
            ))
            .with_hint(format!("the next one is {}", request.nodes.max(2).next_power_of_two())));
        }
        Ok(Self {
            scale: request.nodes.trailing_zeros(),
            edges: request.edges,
            features: request.features,
            classes: request.classes,
            seed: request.seed,
            scratch: request.scratch.clone(),
        })
    }
}

/// The graph, its edges computed as they are read.
pub fn stream(options: &RmatOptions, progress: &dyn Progress) -> Result<Dataset> {
    if !(1..=40).contains(&options.scale) {
        let message = format!("the generator `rmat` needs a scale from 1 to 40, found {}", options.scale);
        return Err(Error::usage(message));
    }
    let nodes = 1u64 << options.scale;
    let scratch = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let key = Key::new(options.seed, Purpose::Generate);
    let features = random_features(key.with(1), nodes, options.features, &scratch, progress)?;
    let labels = random_labels(key.with(2), nodes, options.classes, &scratch, progress)?;
    let shares = Shares { train: 10, valid: 5, test: 5 };
    Ok(Dataset {
        name: format!("rmat-{}", options.scale),
        nodes,
        undirected: true,
        edges: Box::new(RmatEdges::new(key.with(0), options.scale, options.edges / 2)),
        edge_columns: EdgeColumns::default(),
        splits: match options.classes {
            0 => crate::dataset::Splits::default(),
            _ => drawn(nodes, options.seed, &shares),
        },
        features,
        labels,
        names: None,
        class_names: None,
        notes: Vec::new(),
    })
}

/// The edges, none of which is kept.
struct RmatEdges {
    key: Key,
    scale: u32,
    pairs: u64,
    next: u64,
    /// Factor and offset of each round of scrambling.
    rounds: [[u64; 2]; 3],
}

impl RmatEdges {
    fn new(key: Key, scale: u32, pairs: u64) -> Self {
        let round = |i: u64| [key.with(u64::MAX).bits(2 * i) | 1, key.with(u64::MAX).bits(2 * i + 1)];
        Self { key, scale, pairs, next: 0, rounds: [0, 1, 2].map(round) }
    }

    /// The two ends of pair `index`.
    fn pair(&self, index: u64) -> [u64; 2] {
        let mut key = self.key.with(index);
        loop {
            let (row, column) = self.cell(key);
            if row != column {
                return [self.scrambled(row), self.scrambled(column)];
            }
            key = key.with(0);
        }
    }

    /// A cell of the adjacency matrix: one quadrant per level, two levels per draw.
    fn cell(&self, key: Key) -> (u64, u64) {
        let (mut row, mut column, mut bits) = (0, 0, 0);
        for level in 0..self.scale {
            bits = if level % 2 == 0 { key.bits(u64::from(level / 2)) } else { bits >> 32 };
            let draw = bits as u32;
            let quadrant = QUADRANTS.iter().map(|&end| u64::from(draw >= end)).sum::<u64>();
            row = row << 1 | quadrant >> 1;
            column = column << 1 | quadrant & 1;
        }
        (row, column)
    }

    /// A bijection of `scale` bits: odd multiplications, additions, and xors of the high half into the low one.
    fn scrambled(&self, id: u64) -> u64 {
        let mask = (1u64 << self.scale) - 1;
        self.rounds.iter().fold(id, |id, &[factor, offset]| {
            let id = id.wrapping_mul(factor).wrapping_add(offset) & mask;
            id ^ (id >> self.scale.div_ceil(2))
        })
    }
}

impl EdgeStream for RmatEdges {
    fn len(&self) -> u64 {
        2 * self.pairs
    }

    fn rewind(&mut self) -> Result<()> {
        self.next = 0;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        let indices = self.next..self.pairs.min(self.next + EdgeChunk::EDGES as u64 / 2);
        self.next = indices.end;
        let pairs: Vec<[u64; 2]> = indices.into_par_iter().map(|index| self.pair(index)).collect();
        for [u, v] in pairs {
            chunk.sources.extend([u, v]);
            chunk.targets.extend([v, u]);
        }
        Ok(!chunk.is_empty())
    }
}

fn random_features(
    key: Key,
    nodes: u64,
    width: usize,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Features> {
    if width == 0 {
        return Ok(Features::None);
    }
    progress.begin("features", nodes, "nodes");
    let row = |node: u64, row: &mut [f32]| {
        row.iter_mut().zip(0..).for_each(|(x, i)| *x = key.with(node).normal(i) as f32);
    };
    Ok(Features::Dense { width, values: scratch_array(nodes, width, row, scratch, progress)? })
}

fn random_labels(
    key: Key,
    nodes: u64,
    classes: usize,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Labels> {
    if classes == 0 {
        return Ok(Labels::None);
    }
    progress.begin("labels", nodes, "nodes");
    let row = |node: u64, row: &mut [i64]| row[0] = key.below(node, classes as u64) as i64;
    Ok(Labels::Classes { classes, values: scratch_array(nodes, 1, row, scratch, progress)? })
}

/// `rows` rows of `width` made by `fill`, in an unnamed temporary file mapped into memory.
fn scratch_array<T: Pod + Send>(
    rows: u64,
    width: usize,
    fill: impl Fn(u64, &mut [T]) + Sync,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Array<T>> {
    const ROWS: u64 = 1 << 14;
    let file = tempfile::tempfile_in(scratch).map_err(Error::io("write into", scratch))?;
    let mut writer = BufWriter::new(&file);
    let mut chunk = vec![T::zeroed(); ROWS.min(rows) as usize * width];
    for first in (0..rows).step_by(ROWS as usize) {
        let count = ROWS.min(rows - first) as usize;
        let chunk = &mut chunk[..count * width];
        let rows = chunk.par_chunks_exact_mut(width).enumerate();
        rows.for_each(|(row, items)| fill(first + row as u64, items));
        writer.write_all(bytemuck::cast_slice(chunk)).map_err(Error::io("write into", scratch))?;
        progress.tick(count as u64)?;
    }
    writer.flush().map_err(Error::io("write into", scratch))?;
    drop(writer);
    // SAFETY: the file has no name, so no other process can change it while it is mapped.
    let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map a temporary file in", scratch))?;
    Array::mapped(Arc::new(map), 0, rows as usize * width)
        .ok_or_else(|| Error::usage("the temporary file of the features is shorter than what was written"))
}
