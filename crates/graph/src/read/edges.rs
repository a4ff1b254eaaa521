//! Edge streams over arrays, and what any edge stream can be wrapped in.
//!
//! Ids are checked chunk by chunk as they pass, so opening a mapped dataset costs nothing per edge.

use super::npy::NpyArray;
use crate::Result;
use crate::array::Array;
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream};
use crate::progress::Progress;

/// Edges of a file that a pass keeps mapped behind it.
const KEPT: usize = 4 * EdgeChunk::EDGES;

/// A run of integers in an array: every `stride`-th element from `first`.
pub(super) struct Ids {
    array: NpyArray,
    first: usize,
    stride: usize,
    len: usize,
}

impl Ids {
    /// All elements of a vector.
    pub(super) fn vector(array: NpyArray) -> Result<Self> {
        let len = array.len();
        if !array.kind.is_integer() || array.matrix()?.1 != 1 {
            return Err(array.wrong("a list of integers"));
        }
        Ok(Self { array, first: 0, stride: 1, len })
    }

    /// Sources and destinations from an array of shape `[2, edges]` or `[edges, 2]`.
    pub(super) fn pair(array: NpyArray) -> Result<(Self, Self)> {
        let (across, along) = array.strides();
        let (len, apart, stride) = match array.shape[..] {
            _ if !array.kind.is_integer() => return Err(array.wrong("integer node ids")),
            [2, edges] => (edges, across, along),
            [edges, 2] => (edges, along, across),
            _ => return Err(array.wrong("shape [2, edges] or [edges, 2]")),
        };
        let sources = Self { array: array.clone(), first: 0, stride, len };
        Ok((sources, Self { array, first: apart, stride, len }))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends elements `start..start + count`, each checked to be below `bound`.
    pub(super) fn push(
        &self,
        start: usize,
        count: usize,
        bound: u64,
        what: &str,
        out: &mut Vec<u64>,
    ) -> Result<()> {
        let before = out.len();
        self.array.push_integers(self.first + start * self.stride, self.stride, count, out)?;
        let new = &out[before..];
        if new.iter().copied().max().is_none_or(|largest| largest < bound) {
            return Ok(());
        }
        let at = new.iter().position(|&id| id >= bound).unwrap_or_default();
        let expected = format!("{what} below {bound}");
        Err(self.array.wrong_at("edge", (start + at) as u64, expected, new[at] as i64))
    }

    /// Lets the system take back the memory of elements before `end`, back to the last time this was done: a pass
    /// over a file larger than memory then never holds more than [`KEPT`] of it.
    fn release_before(&self, end: usize) {
        if end.is_multiple_of(KEPT) && end > 0 {
            let first = self.first + (end - KEPT) * self.stride;
            self.array.release(first, KEPT * self.stride);
        }
    }

    /// One more than the largest, by a pass over all of them.
    pub(super) fn bound(&self, what: &str) -> Result<u64> {
        let mut largest = None;
        let mut chunk = Vec::new();
        for start in (0..self.len).step_by(EdgeChunk::EDGES) {
            chunk.clear();
            self.push(start, EdgeChunk::EDGES.min(self.len - start), i64::MAX as u64, what, &mut chunk)?;
            largest = largest.max(chunk.iter().copied().max());
        }
        Ok(largest.map_or(0, |largest| largest + 1))
    }
}

/// Types that are read as wide integers at once, before they are narrowed.
const WIDE: usize = 1 << 12;

/// What accompanies edges that are held in arrays.
#[derive(Default)]
pub(super) struct Extras {
    pub(super) weights: Option<NpyArray>,
    pub(super) types: Option<Ids>,
    pub(super) attributes: Option<NpyArray>,
}

impl Extras {
    /// Compares sizes with the number of edges; `types` is the declared number of types.
    pub(super) fn columns(&self, edges: usize, types: Option<u32>) -> Result<EdgeColumns> {
        let mut columns = EdgeColumns::default();
        if let Some(weights) = &self.weights {
            if weights.matrix()? != (edges, 1) {
                return Err(weights.wrong(format!("one weight for each of {edges} edges")));
            }
            columns.weighted = true;
        }
        if let Some(ids) = &self.types {
            if ids.len() != edges {
                return Err(ids.array.wrong(format!("one type for each of {edges} edges")));
            }
            let bound = match types {
                Some(types) => u64::from(types),
                None => ids.bound("an edge type")?,
            };
            columns.types = u32::try_from(bound)
                .map_err(|_| ids.array.wrong(format!("edge types below 2^32, not {bound}")))?;
        }
        if let Some(attributes) = &self.attributes {
            columns.attribute_width = match (attributes.matrix()?, attributes.strides()) {
                ((rows, width), (_, 1)) if rows == edges && width > 0 => width,
                ((rows, _), _) if rows == edges => {
                    return Err(attributes
                        .wrong("rows in C order")
                        .with_hint("save `numpy.ascontiguousarray(edge_attr)`"));
                }
                _ => return Err(attributes.wrong(format!("one row for each of {edges} edges"))),
            };
        }
        Ok(columns)
    }

    /// Appends what accompanies edges `start..start + count`.
    fn push(&self, start: usize, count: usize, columns: EdgeColumns, chunk: &mut EdgeChunk) -> Result<()> {
        if let Some(weights) = &self.weights {
            weights.push_floats(start, 1, count, &mut chunk.weights)?;
        }
        if let Some(types) = &self.types {
            let (mut wide, end) = (Vec::with_capacity(WIDE), start + count);
            for at in (start..end).step_by(WIDE) {
                types.push(at, WIDE.min(end - at), u64::from(columns.types), "an edge type", &mut wide)?;
                chunk.types.extend(wide.drain(..).map(|kind| kind as u32));
            }
        }
        if let Some(attributes) = &self.attributes {
            let width = columns.attribute_width;
            attributes.push_floats(start * width, 1, count * width, &mut chunk.attributes)?;
        }
        Ok(())
    }
}

/// Edges held as arrays of sources and destinations.
pub(super) struct ArrayEdges {
    pub(super) sources: Ids,
    pub(super) targets: Ids,
    pub(super) extras: Extras,
    pub(super) columns: EdgeColumns,
    pub(super) nodes: u64,
    pub(super) at: usize,
}

impl EdgeStream for ArrayEdges {
    fn len(&self) -> u64 {
        self.sources.len as u64
    }

    fn rewind(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        let count = EdgeChunk::EDGES.min(self.sources.len - self.at);
        self.sources.push(self.at, count, self.nodes, "a source node id", &mut chunk.sources)?;
        self.targets.push(self.at, count, self.nodes, "a destination node id", &mut chunk.targets)?;
        self.extras.push(self.at, count, self.columns, chunk)?;
        self.at += count;
        self.sources.release_before(self.at);
        self.targets.release_before(self.at);
        Ok(count > 0)
    }
}

/// Edges held as compressed rows: row = source, stored column = destination.
pub(super) struct RowEdges {
    pub(super) starts: Array<u64>,
    pub(super) columns: Ids,
    pub(super) weights: Option<NpyArray>,
    pub(super) nodes: u64,
    pub(super) row: usize,
    pub(super) at: usize,
}

impl EdgeStream for RowEdges {
    fn len(&self) -> u64 {
        self.columns.len as u64
    }

    fn rewind(&mut self) -> Result<()> {
        (self.row, self.at) = (0, 0);
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        let count = EdgeChunk::EDGES.min(self.columns.len - self.at);
        self.columns.push(self.at, count, self.nodes, "a destination node id", &mut chunk.targets)?;
        for edge in self.at..self.at + count {
            while self.starts[self.row + 1] <= edge as u64 {
                self.row += 1;
            }
            chunk.sources.push(self.row as u64);
        }
        if let Some(weights) = &self.weights {
            weights.push_floats(self.at, 1, count, &mut chunk.weights)?;
        }
        self.at += count;
        self.columns.release_before(self.at);
        Ok(count > 0)
    }
}

/// Adds the reverse of every edge to `dataset`, unless it holds both directions already.
pub(super) fn make_undirected(mut dataset: Dataset, progress: &dyn Progress) -> Result<Dataset> {
    if dataset.undirected {
        dataset.notes.push("edges are stored in both directions already: no reverse edges were added".into());
        return Ok(dataset);
    }
    let loops = count_self_loops(&mut *dataset.edges, progress)?;
    let len = 2 * dataset.edges.len() - loops;
    dataset.notes.push(format!(
        "added the reverse of {} edges; an edge that already had its reverse is now held twice",
        len - dataset.edges.len()
    ));
    dataset.edges = Box::new(BothWays {
        inner: dataset.edges,
        len,
        attribute_width: dataset.edge_columns.attribute_width,
        turned: EdgeChunk::default(),
    });
    dataset.undirected = true;
    Ok(dataset)
}

fn count_self_loops(edges: &mut dyn EdgeStream, progress: &dyn Progress) -> Result<u64> {
    progress.begin("looking for self-loops", edges.len(), "edges");
    let (mut chunk, mut loops) = (EdgeChunk::default(), 0);
    while edges.next_chunk(&mut chunk)? {
        loops += chunk.sources.iter().zip(&chunk.targets).filter(|(s, t)| s == t).count() as u64;
        progress.tick(chunk.len() as u64)?;
    }
    edges.rewind()?;
    Ok(loops)
}

/// A stream in which every chunk is followed by its reverse.
struct BothWays {
    inner: Box<dyn EdgeStream>,
    len: u64,
    attribute_width: usize,
    /// The reverse of the last chunk, if it has not been handed out yet.
    turned: EdgeChunk,
}

impl EdgeStream for BothWays {
    fn len(&self) -> u64 {
        self.len
    }

    fn rewind(&mut self) -> Result<()> {
        self.turned.clear();
        self.inner.rewind()
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        if !self.turned.is_empty() {
            std::mem::swap(chunk, &mut self.turned);
            self.turned.clear();
            return Ok(true);
        }
        let more = self.inner.next_chunk(chunk)?;
        turn(chunk, self.attribute_width, &mut self.turned);
        Ok(more)
    }
}

/// Fills `turned` with the reverse of every edge of `chunk` that is not a self-loop.
fn turn(chunk: &EdgeChunk, width: usize, turned: &mut EdgeChunk) {
    turned.clear();
    for edge in (0..chunk.len()).filter(|&edge| chunk.sources[edge] != chunk.targets[edge]) {
        turned.sources.push(chunk.targets[edge]);
        turned.targets.push(chunk.sources[edge]);
        turned.weights.extend(chunk.weights.get(edge));
        turned.types.extend(chunk.types.get(edge));
        turned.attributes.extend(chunk.attributes.get(edge * width..(edge + 1) * width).unwrap_or_default());
    }
}
