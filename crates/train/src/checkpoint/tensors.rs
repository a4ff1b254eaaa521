//! The tensors of a checkpoint as safetensors files.

use super::Checkpoint;
use crate::boundary::Memory;
use crate::error::{Error, Result};
use crate::optimizer::Moments;
use crate::parameters::Parameter;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

// Tensors are written as they lie in memory, and the format is little-endian.
const _: () = assert!(cfg!(target_endian = "little"));

/// A named matrix of floats.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Rows; a bias has one.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// The numbers, row by row.
    pub values: Vec<f32>,
}

impl Tensor {
    /// A copy of a weight.
    pub fn of(parameter: &Parameter) -> Self {
        let Parameter { name, rows, cols, value, .. } = parameter;
        Self { name: name.clone(), rows: *rows, cols: *cols, values: value.clone() }
    }

    /// What other tools call its shape: one row is a vector.
    fn shape(&self) -> Vec<usize> {
        if self.rows == 1 { vec![self.cols] } else { vec![self.rows, self.cols] }
    }

    fn read(name: &str, view: &TensorView<'_>) -> Option<Self> {
        let (rows, cols) = match *view.shape() {
            [cols] => (1, cols),
            [rows, cols] => (rows, cols),
            _ => return None,
        };
        Some(Self { name: name.to_string(), rows, cols, values: floats(view)? })
    }
}

/// Writes the weights under their own names.
pub(super) fn write_weights(file: &Path, weights: &[Tensor]) -> Result<()> {
    let views =
        weights.iter().map(|t| (t.name.clone(), Dtype::F32, t.shape(), bytemuck::cast_slice(&t.values)));
    write(file, views.collect())
}

/// Reads the weights, in sorted name order.
pub(super) fn read_weights(file: &Path, bytes: &[u8]) -> Result<Vec<Tensor>> {
    let file_tensors = SafeTensors::deserialize(bytes).map_err(refused(file))?;
    let mut weights = Vec::new();
    for (name, view) in file_tensors.iter() {
        weights.push(Tensor::read(name, &view).ok_or_else(|| odd(file, name))?);
    }
    weights.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(weights)
}

/// Writes everything else, under a prefix that says what it is.
pub(super) fn write_state(file: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let mut views = Vec::new();
    for tensor in &checkpoint.buffers {
        views.push((
            format!("buffer.{}", tensor.name),
            Dtype::F32,
            tensor.shape(),
            bytemuck::cast_slice(&tensor.values),
        ));
    }
    for moments in &checkpoint.optimizer.moments {
        for (order, values) in [("first", &moments.first), ("second", &moments.second)] {
            let name = format!("{order}.{}", moments.name);
            views.push((name, Dtype::F32, vec![values.len()], bytemuck::cast_slice(values)));
        }
    }
    views.extend(lists(&checkpoint.floats, &checkpoint.words));
    write(file, views)
}

/// Writes what a rank remembers.
pub(super) fn write_memory(file: &Path, memory: &Memory) -> Result<()> {
    write(file, lists(&memory.floats, &memory.words).collect())
}

/// Reads what a rank remembers.
pub(super) fn read_memory(file: &Path, bytes: &[u8]) -> Result<Memory> {
    let mut read = Checkpoint::default();
    read_state(file, bytes, &mut read)?;
    Ok(Memory { floats: read.floats, words: read.words })
}

fn lists<'a>(
    floats: &'a BTreeMap<String, Vec<f32>>,
    words: &'a BTreeMap<String, Vec<u64>>,
) -> impl Iterator<Item = Entry<'a>> {
    let floats = floats.iter().map(|(name, values)| {
        (format!("float.{name}"), Dtype::F32, vec![values.len()], bytemuck::cast_slice(values))
    });
    floats.chain(words.iter().map(|(name, values)| {
        (format!("word.{name}"), Dtype::U64, vec![values.len()], bytemuck::cast_slice(values))
    }))
}

/// Reads everything else into `checkpoint`.
pub(super) fn read_state(file: &Path, bytes: &[u8], checkpoint: &mut Checkpoint) -> Result<()> {
    let file_tensors = SafeTensors::deserialize(bytes).map_err(refused(file))?;
    let mut tensors: Vec<(&str, TensorView<'_>)> = file_tensors.iter().collect();
    tensors.sort_by(|a, b| a.0.cmp(b.0));
    for (full_name, view) in &tensors {
        place(full_name, view, checkpoint).ok_or_else(|| odd(file, full_name))?;
    }
    Ok(())
}

/// Puts one tensor where its prefix says; `None` when it is none of ours. `first.` comes before `second.`.
fn place(full_name: &str, view: &TensorView<'_>, checkpoint: &mut Checkpoint) -> Option<()> {
    let (kind, name) = full_name.split_once('.')?;
    let moments = &mut checkpoint.optimizer.moments;
    match kind {
        "buffer" => checkpoint.buffers.push(Tensor::read(name, view)?),
        "first" => moments.push(Moments { name: name.into(), first: floats(view)?, second: Vec::new() }),
        "second" => moments.iter_mut().find(|m| m.name == name)?.second = floats(view)?,
        "float" => drop(checkpoint.floats.insert(name.into(), floats(view)?)),
        "word" => drop(checkpoint.words.insert(name.into(), words(view)?)),
        _ => return None,
    }
    Some(())
}

type Entry<'a> = (String, Dtype, Vec<usize>, &'a [u8]);

fn write(file: &Path, entries: Vec<Entry<'_>>) -> Result<()> {
    let mut views = Vec::with_capacity(entries.len());
    for (name, dtype, shape, bytes) in entries {
        views.push((name, TensorView::new(dtype, shape, bytes).map_err(refused(file))?));
    }
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    safetensors::serialize_to_file(views, Some(metadata), file).map_err(refused(file))
}

fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let (chunks, _) = view.data().as_chunks::<4>();
    (view.dtype() == Dtype::F32).then(|| chunks.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

fn words(view: &TensorView<'_>) -> Option<Vec<u64>> {
    let (chunks, _) = view.data().as_chunks::<8>();
    (view.dtype() == Dtype::U64).then(|| chunks.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect())
}

fn refused(file: &Path) -> impl Fn(SafeTensorError) -> Error {
    let file = file.to_path_buf();
    move |error| match error {
        SafeTensorError::IoError(source) => archipelago_graph::Error::io("write", &file)(source).into(),
        other => Error::checkpoint(&file, other.to_string()),
    }
}

fn odd(file: &Path, name: &str) -> Error {
    Error::checkpoint(file, format!("expected tensors of a checkpoint, found `{name}`"))
}
