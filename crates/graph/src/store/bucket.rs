//! Edges sorted by their target, in temporary files: how a graph larger than memory is cut.
//!
//! Targets are cut into stretches: consecutive rows of one part with a bounded number of in-edges together (or one
//! row). Each stretch has a bucket. A bucket is a sequence of fixed-length records of 32-bit words: target row, source global id (low and high
//! half), then the edge's weight, type and attributes where it has them. Records keep the order of the stream, so
//! what is built from a bucket does not depend on how often buffers were flushed. Files are opened per flush, so
//! the number of parts is not limited by the number of open files.

use super::write::Relabelling;
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns};
use crate::partition::Assignment;
use crate::progress::Progress;
use crate::{Error, Result};
use memmap2::Mmap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Words buffered over all buckets before they are flushed: 64 MB.
const BUFFERED_WORDS: usize = 16 << 20;

/// Where the columns of an edge lie in its record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// What accompanies an edge.
    pub columns: EdgeColumns,
}

impl Record {
    /// Words of the target row and the source id.
    const ENDS: usize = 3;

    /// Whether a record holds nothing but the two ends.
    pub fn is_bare(self) -> bool {
        self.words() == Self::ENDS
    }

    /// Words per record.
    pub fn words(self) -> usize {
        self.attributes_at() + self.columns.attribute_width
    }

    /// Word of the weight, if there is one.
    pub fn weight_at(self) -> usize {
        Self::ENDS
    }

    /// Word of the type, if there is one.
    pub fn type_at(self) -> usize {
        Self::ENDS + usize::from(self.columns.weighted)
    }

    /// First word of the attributes.
    pub fn attributes_at(self) -> usize {
        self.type_at() + usize::from(self.columns.types > 0)
    }
}

/// The global ids `0..nodes` cut at every part and, within parts, wherever in-edges add up to a stretch.
pub(super) struct Stretches {
    /// Where each stretch starts, and the number of nodes.
    bounds: Vec<u64>,
}

impl Stretches {
    /// The stretches of `dataset` with `most` in-edges; counts them in a pass unless there are no more in all.
    fn new(
        dataset: &mut Dataset,
        assignment: &Assignment,
        relabelling: &Relabelling,
        most: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        if dataset.edges.len() <= most {
            return Ok(Self::cut(relabelling, &[], most));
        }
        let mut degrees = vec![0u32; relabelling.original.len()];
        let mut chunk = EdgeChunk::default();
        progress.begin("counting in-edges", dataset.edges.len(), "edges");
        dataset.edges.rewind()?;
        while dataset.edges.next_chunk(&mut chunk)? {
            for &target in &chunk.targets {
                let degree = &mut degrees[relabelling.global(assignment, target as usize) as usize];
                *degree = degree.saturating_add(1);
            }
            progress.tick(chunk.len() as u64)?;
        }
        Ok(Self::cut(relabelling, &degrees, most))
    }

    /// Cuts where the in-edges of nodes with these `degrees`, by global id, exceed `most`.
    fn cut(relabelling: &Relabelling, degrees: &[u32], most: u64) -> Self {
        let mut bounds = Vec::new();
        for part in relabelling.starts.windows(2).filter(|part| part[0] < part[1]) {
            bounds.push(part[0]);
            let mut edges = 0;
            for (node, &degree) in (part[0]..part[1]).zip(degrees.get(part[0] as usize..).unwrap_or_default())
            {
                edges += u64::from(degree);
                if edges > most && node > part[0] {
                    bounds.push(node);
                    edges = u64::from(degree);
                }
            }
        }
        bounds.dedup();
        bounds.push(relabelling.original.len() as u64);
        Self { bounds }
    }

    fn count(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The stretch of the node `global`.
    fn of(&self, global: u64) -> usize {
        self.bounds.partition_point(|&bound| bound <= global) - 1
    }

    /// The stretches that make up `range`, a part's global ids.
    fn within(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() { 0..0 } else { self.of(range.start)..self.of(range.end - 1) + 1 }
    }
}

/// The buckets of all stretches.
pub(super) struct Buckets {
    folder: PathBuf,
    record: Record,
    stretches: Stretches,
    pending: Vec<Vec<u32>>,
    limit: usize,
}

/// Sorts the edges of `dataset` into buckets in `folder`, of stretches of at most `most` edges.
pub(super) fn fill(
    dataset: &mut Dataset,
    assignment: &Assignment,
    relabelling: &Relabelling,
    most: u64,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Buckets> {
    let stretches = Stretches::new(dataset, assignment, relabelling, most, progress)?;
    let mut buckets = Buckets::create(folder, dataset.edge_columns, stretches)?;
    let mut chunk = EdgeChunk::default();
    progress.begin("sorting edges into parts", dataset.edges.len(), "edges");
    dataset.edges.rewind()?;
    while dataset.edges.next_chunk(&mut chunk)? {
        check_chunk(&chunk, dataset.edge_columns)?;
        for edge in 0..chunk.len() {
            let (source, target) = (chunk.sources[edge] as usize, chunk.targets[edge] as usize);
            let ends = (relabelling.global(assignment, source), relabelling.global(assignment, target));
            buckets.push(ends, relabelling.row_of[target], &chunk, edge)?;
        }
        progress.tick(chunk.len() as u64)?;
    }
    buckets.finish()?;
    Ok(buckets)
}

fn check_chunk(chunk: &EdgeChunk, columns: EdgeColumns) -> Result<()> {
    let edges = chunk.len();
    let whole = chunk.targets.len() == edges
        && (!columns.weighted || chunk.weights.len() == edges)
        && (columns.types == 0 || chunk.types.len() == edges)
        && chunk.attributes.len() == edges * columns.attribute_width;
    if !whole {
        return Err(Error::usage("the edge columns of the dataset differ in length"));
    }
    match chunk.types.iter().find(|&&kind| columns.types > 0 && kind >= columns.types) {
        None => Ok(()),
        Some(kind) => Err(Error::usage(format!("expected edge types below {}, found {kind}", columns.types))),
    }
}

impl Buckets {
    fn create(folder: &Path, columns: EdgeColumns, stretches: Stretches) -> Result<Self> {
        fs::create_dir(folder).map_err(Error::io("create", folder))?;
        let record = Record { columns };
        let count = stretches.count();
        let limit = (BUFFERED_WORDS / count.max(1)).max(4096).max(record.words());
        Ok(Self { folder: folder.to_path_buf(), record, stretches, pending: vec![Vec::new(); count], limit })
    }

    fn push(&mut self, (source, target): (u64, u64), row: u32, chunk: &EdgeChunk, edge: usize) -> Result<()> {
        let columns = self.record.columns;
        let stretch = self.stretches.of(target);
        let words = &mut self.pending[stretch];
        words.extend([row, source as u32, (source >> 32) as u32]);
        if columns.weighted {
            words.push(chunk.weights[edge].to_bits());
        }
        if columns.types > 0 {
            words.push(chunk.types[edge]);
        }
        let width = columns.attribute_width;
        words
            .extend(chunk.attributes[edge * width..(edge + 1) * width].iter().map(|number| number.to_bits()));
        if words.len() >= self.limit { self.flush(stretch) } else { Ok(()) }
    }

    fn flush(&mut self, stretch: usize) -> Result<()> {
        let path = self.path(stretch);
        let words = &mut self.pending[stretch];
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(bytemuck::cast_slice(words)))
            .map_err(Error::io("write", &path))?;
        words.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        (0..self.pending.len()).try_for_each(|stretch| self.flush(stretch))?;
        self.pending = Vec::new();
        Ok(())
    }

    fn path(&self, stretch: usize) -> PathBuf {
        self.folder.join(stretch.to_string())
    }

    /// The layout of records.
    pub fn record(&self) -> Record {
        self.record
    }

    /// The stretches of the part that owns the global ids `range`, in order.
    pub fn of_part(&self, range: &Range<u64>) -> Range<usize> {
        self.stretches.within(range)
    }

    /// Rows of the part that starts at global id `first` which lie in `stretch`.
    pub fn rows(&self, stretch: usize, first: u64) -> Range<usize> {
        let bounds = &self.stretches.bounds;
        (bounds[stretch] - first) as usize..(bounds[stretch + 1] - first) as usize
    }

    /// Opens the bucket of `stretch`.
    pub fn open(&self, stretch: usize) -> Result<Bucket> {
        let path = self.path(stretch);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let bytes = file.metadata().map_err(Error::io("open", &path))?.len();
        // SAFETY: the file lies in our private staging folder; nobody else writes to it while it is mapped.
        let map = (bytes > 0).then(|| unsafe { Mmap::map(&file) }).transpose();
        Ok(Bucket { map: map.map_err(Error::io("map", &path))?, path, record: self.record })
    }

    /// Removes the folder of the buckets, which must all have been removed.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir(&self.folder).map_err(Error::io("remove", &self.folder))
    }
}

/// The in-edges of one stretch, in the order of the stream.
pub(super) struct Bucket {
    map: Option<Mmap>,
    path: PathBuf,
    record: Record,
}

impl Bucket {
    /// The records, one slice of words each.
    pub fn records(&self) -> std::slice::ChunksExact<'_, u32> {
        self.words().chunks_exact(self.record.words())
    }

    /// The record at `index`.
    pub fn get(&self, index: u32) -> &[u32] {
        let words = self.record.words();
        &self.words()[index as usize * words..(index as usize + 1) * words]
    }

    /// Deletes the file.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::io("remove", &self.path))
    }

    fn words(&self) -> &[u32] {
        self.map.as_ref().map_or(&[], |map| bytemuck::cast_slice(map))
    }
}

/// Target row and source global id of a record.
pub(super) fn ends(record: &[u32]) -> (u32, u64) {
    (record[0], u64::from(record[1]) | u64::from(record[2]) << 32)
}
