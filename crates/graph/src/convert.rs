//! Any dataset to a dataset folder of plain `.npy` files, which later runs map instead of parsing.
//!
//! Edges are streamed in one pass, never all in memory: sources go to their place in `edge_index.npy` while
//! destinations are written half a file further. The folder appears under its name only when it is whole, and
//! reading it gives the same dataset.

use crate::atomic::NewFolder;
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, Features, Labels};
use crate::progress::Progress;
use crate::{Error, Result};
use bytemuck::Pod;
use npyz::{AutoSerialize, DType, WriteOptions, WriterBuilder};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const BUFFER: usize = 1 << 20;
/// The user's names of nodes in a dataset folder, one per line.
pub(crate) const NODE_NAMES: &str = "node_names.txt";
/// The user's names of classes.
pub(crate) const CLASS_NAMES: &str = "class_names.txt";

/// Writes `dataset` as a new dataset folder `out`.
pub fn write_folder(dataset: &mut Dataset, out: &Path, progress: &dyn Progress) -> Result<()> {
    let folder = NewFolder::create(out)?;
    write_edges(dataset, folder.path(), progress)?;
    write_features(&dataset.features, dataset.nodes, folder.path())?;
    write_labels(&dataset.labels, folder.path())?;
    for (name, nodes) in dataset.splits.named() {
        if dataset.splits.named().iter().any(|(_, nodes)| !nodes.is_empty()) {
            write_array::<u64>(
                folder.path(),
                &format!("{name}_idx"),
                i64::default_dtype(),
                &[nodes.len() as u64],
                nodes,
            )?;
        }
    }
    write_names(dataset.names.as_deref(), &folder.path().join(NODE_NAMES))?;
    write_names(dataset.class_names.as_deref(), &folder.path().join(CLASS_NAMES))?;
    write_meta(dataset, folder.path())?;
    folder.commit()
}

/// A `.npy` file that is written from one place on. `npyz` writes the header; elements, which it would take one by
/// one, go to the file as they lie in memory.
struct NpyWriter {
    file: PathBuf,
    writer: BufWriter<File>,
    /// Bytes before the first element.
    start: u64,
}

impl NpyWriter {
    /// Creates `<folder>/<name>.npy` with its header.
    fn create(folder: &Path, name: &str, kind: DType, shape: &[u64]) -> Result<Self> {
        let file = folder.join(format!("{name}.npy"));
        let create = || {
            let mut writer = BufWriter::with_capacity(BUFFER, File::create(&file)?);
            let header = WriteOptions::new_header_only().dtype(kind).shape(shape).writer(&mut writer);
            let start = header.write_header_only()?.stream_position()?;
            Ok((writer, start))
        };
        let (writer, start) = create().map_err(Error::io("create", &file))?;
        Ok(Self { file, writer, start })
    }

    /// A second writer to the same file, from byte `offset` behind the header.
    fn second(&self, offset: u64) -> Result<Self> {
        let mut opened =
            File::options().write(true).open(&self.file).map_err(Error::io("write", &self.file))?;
        opened.seek(SeekFrom::Start(self.start + offset)).map_err(Error::io("write", &self.file))?;
        let writer = BufWriter::with_capacity(BUFFER, opened);
        Ok(Self { file: self.file.clone(), writer, start: self.start })
    }

    fn write<T: Pod>(&mut self, values: &[T]) -> Result<()> {
        self.writer.write_all(bytemuck::cast_slice(values)).map_err(Error::io("write", &self.file))
    }

    fn finish(mut self) -> Result<()> {
        self.writer.flush().map_err(Error::io("write", &self.file))
    }
}

fn write_array<T: Pod>(folder: &Path, name: &str, kind: DType, shape: &[u64], values: &[T]) -> Result<()> {
    let mut writer = NpyWriter::create(folder, name, kind, shape)?;
    writer.write(values)?;
    writer.finish()
}

fn write_edges(dataset: &mut Dataset, folder: &Path, progress: &dyn Progress) -> Result<()> {
    let count = dataset.edges.len();
    let mut sources = NpyWriter::create(folder, "edge_index", i64::default_dtype(), &[2, count])?;
    let mut targets = sources.second(8 * count)?;
    let mut extras = ExtraWriters::create(dataset.edge_columns, count, folder)?;
    progress.begin("writing edges", count, "edges");
    dataset.edges.rewind()?;
    let mut chunk = EdgeChunk::default();
    while dataset.edges.next_chunk(&mut chunk)? {
        sources.write(&chunk.sources)?;
        targets.write(&chunk.targets)?;
        extras.write(&chunk)?;
        progress.tick(chunk.len() as u64)?;
    }
    dataset.edges.rewind()?;
    sources.finish()?;
    targets.finish()?;
    extras.finish()
}

/// Files for what accompanies edges.
struct ExtraWriters {
    weights: Option<NpyWriter>,
    types: Option<NpyWriter>,
    attributes: Option<NpyWriter>,
}

impl ExtraWriters {
    fn create(columns: EdgeColumns, count: u64, folder: &Path) -> Result<Self> {
        let create = |wanted: bool, name, kind, shape: &[u64]| {
            wanted.then(|| NpyWriter::create(folder, name, kind, shape)).transpose()
        };
        let width = columns.attribute_width as u64;
        Ok(Self {
            weights: create(columns.weighted, "edge_weight", f32::default_dtype(), &[count])?,
            types: create(columns.types > 0, "edge_type", i64::default_dtype(), &[count])?,
            attributes: create(width > 0, "edge_attr", f32::default_dtype(), &[count, width])?,
        })
    }

    fn write(&mut self, chunk: &EdgeChunk) -> Result<()> {
        if let Some(writer) = &mut self.weights {
            writer.write(&chunk.weights)?;
        }
        if let Some(writer) = &mut self.types {
            let wide: Vec<i64> = chunk.types.iter().map(|&kind| i64::from(kind)).collect();
            writer.write(&wide)?;
        }
        if let Some(writer) = &mut self.attributes {
            writer.write(&chunk.attributes)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        [self.weights, self.types, self.attributes].into_iter().flatten().try_for_each(NpyWriter::finish)
    }
}

fn write_features(features: &Features, nodes: u64, folder: &Path) -> Result<()> {
    match features {
        Features::None => Ok(()),
        Features::Dense { width, values } => {
            write_array::<f32>(folder, "x", f32::default_dtype(), &[nodes, *width as u64], values)
        }
        Features::Sparse { width, offsets, columns, values } => {
            let stored = values.len() as u64;
            write_array::<u64>(folder, "x_indptr", i64::default_dtype(), &[nodes + 1], offsets)?;
            write_array::<u32>(folder, "x_indices", u32::default_dtype(), &[stored], columns)?;
            write_array::<f32>(folder, "x_data", f32::default_dtype(), &[stored], values)?;
            write_array::<u64>(folder, "x_shape", i64::default_dtype(), &[2], &[nodes, *width as u64])
        }
    }
}

fn write_labels(labels: &Labels, folder: &Path) -> Result<()> {
    match labels {
        Labels::None => Ok(()),
        Labels::Classes { values, .. } => {
            write_array::<i64>(folder, "y", i64::default_dtype(), &[values.len() as u64], values)
        }
        Labels::Multi { classes, values } => {
            let shape = [(values.len() / (*classes).max(1)) as u64, *classes as u64];
            write_array::<u8>(folder, "y", u8::default_dtype(), &shape, values)
        }
    }
}

/// One name per line; a line break inside a name would shift all that follow and is written as a space.
fn write_names(names: Option<&[String]>, file: &Path) -> Result<()> {
    let Some(names) = names else { return Ok(()) };
    let mut writer = BufWriter::new(File::create(file).map_err(Error::io("create", file))?);
    for name in names {
        writeln!(writer, "{}", name.replace(['\n', '\r'], " ")).map_err(Error::io("write", file))?;
    }
    writer.flush().map_err(Error::io("write", file))
}

fn write_meta(dataset: &Dataset, folder: &Path) -> Result<()> {
    let file = folder.join("meta.json");
    let mut meta = serde_json::json!({
        "name": dataset.name,
        "num_nodes": dataset.nodes,
        "num_edges": dataset.edges.len(),
        "num_features": dataset.features.width(),
        "undirected": dataset.undirected,
        "multilabel": dataset.labels.is_multi(),
    });
    if dataset.labels.classes() > 0 {
        meta["num_classes"] = dataset.labels.classes().into();
    }
    if dataset.edge_columns.types > 0 {
        meta["num_edge_types"] = dataset.edge_columns.types.into();
    }
    std::fs::write(&file, format!("{meta:#}\n")).map_err(Error::io("write", &file))
}
