//! Edges sorted by the part of their target, in temporary files: how a graph larger than memory is cut.
//!
//! A bucket is a sequence of fixed-length records of 32-bit words: target row, source global id (low and high
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

/// The buckets of all parts.
pub(super) struct Buckets {
    folder: PathBuf,
    record: Record,
    pending: Vec<Vec<u32>>,
    limit: usize,
}

/// Sorts the edges of `dataset` into buckets in `folder`.
pub(super) fn fill(
    dataset: &mut Dataset,
    assignment: &Assignment,
    relabelling: &Relabelling,
    folder: &Path,
    progress: &dyn Progress,
) -> Result<Buckets> {
    let mut buckets = Buckets::create(folder, dataset.edge_columns, assignment.parts as usize)?;
    let mut chunk = EdgeChunk::default();
    progress.begin("sorting edges into parts", dataset.edges.len(), "edges");
    dataset.edges.rewind()?;
    while dataset.edges.next_chunk(&mut chunk)? {
        check_chunk(&chunk, dataset.edge_columns)?;
        for edge in 0..chunk.len() {
            let (source, target) = (chunk.sources[edge] as usize, chunk.targets[edge] as usize);
            let home = assignment.part_of[source] as usize;
            let global = relabelling.starts[home] + u64::from(relabelling.row_of[source]);
            buckets.push(assignment.part_of[target], relabelling.row_of[target], global, &chunk, edge)?;
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
    fn create(folder: &Path, columns: EdgeColumns, parts: usize) -> Result<Self> {
        fs::create_dir(folder).map_err(Error::io("create", folder))?;
        let record = Record { columns };
        let limit = (BUFFERED_WORDS / parts).max(4096).max(record.words());
        Ok(Self { folder: folder.to_path_buf(), record, pending: vec![Vec::new(); parts], limit })
    }

    fn push(&mut self, part: u32, row: u32, source: u64, chunk: &EdgeChunk, edge: usize) -> Result<()> {
        let columns = self.record.columns;
        let words = &mut self.pending[part as usize];
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
        if words.len() >= self.limit { self.flush(part) } else { Ok(()) }
    }

    fn flush(&mut self, part: u32) -> Result<()> {
        let path = self.path(part);
        let words = &mut self.pending[part as usize];
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
        (0..self.pending.len() as u32).try_for_each(|part| self.flush(part))?;
        self.pending = Vec::new();
        Ok(())
    }

    fn path(&self, part: u32) -> PathBuf {
        self.folder.join(part.to_string())
    }

    /// Opens the bucket of `part`.
    pub fn open(&self, part: u32) -> Result<Bucket> {
        let path = self.path(part);
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

/// The in-edges of one part, in the order of the stream.
pub(super) struct Bucket {
    map: Option<Mmap>,
    path: PathBuf,
    /// The layout of its records.
    pub record: Record,
}

impl Bucket {
    /// The records, one slice of words each.
    pub fn records(&self) -> std::slice::ChunksExact<'_, u32> {
        self.words().chunks_exact(self.record.words())
    }

    /// The record at `index`.
    pub fn get(&self, index: u64) -> &[u32] {
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
