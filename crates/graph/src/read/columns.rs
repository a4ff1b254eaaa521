//! From arrays to the node columns of a dataset: features, labels, splits.
//!
//! Every function checks size and range against the number of nodes and says in `notes` what it converted.

use super::npy::{Kind, NpyArray};
use crate::array::Array;
use crate::dataset::{Features, Labels};
use crate::{Error, Result};
use std::path::Path;

/// Dense features from a `[nodes, width]` array.
pub(super) fn dense_features(array: &NpyArray, nodes: u64, notes: &mut Vec<String>) -> Result<Features> {
    let (rows, width) = array.matrix()?;
    if rows as u64 != nodes || width == 0 {
        return Err(array.wrong(format!("one row of features for each of {nodes} nodes")));
    }
    if array.kind != Kind::Float(4) {
        notes.push(format!("features: {} converted to float32", array.kind_name()));
    }
    Ok(Features::Dense { width, values: array.to_f32()? })
}

/// The four arrays of a sparse feature matrix.
pub(super) struct SparseArrays {
    pub(super) offsets: NpyArray,
    pub(super) columns: NpyArray,
    pub(super) values: NpyArray,
    pub(super) shape: NpyArray,
}

/// Sparse features from compressed rows.
pub(super) fn sparse_features(arrays: &SparseArrays, nodes: u64) -> Result<Features> {
    let shape = arrays.shape.to_u64()?;
    let (rows, width) = match shape[..] {
        [rows, width] if width <= u64::from(u32::MAX) => (rows, width),
        _ => return Err(arrays.shape.wrong("two numbers, rows and columns")),
    };
    if rows != nodes {
        return Err(arrays.shape.wrong_at("element", 0, format!("{nodes}, the number of nodes"), rows));
    }
    let stored = arrays.columns.len();
    if arrays.values.len() != stored {
        return Err(arrays.values.wrong(format!("one number for each of {stored} columns")));
    }
    let offsets = row_starts(&arrays.offsets, nodes, stored as u64)?;
    Ok(Features::Sparse {
        width: width as usize,
        offsets,
        columns: column_numbers(&arrays.columns, width)?,
        values: arrays.values.to_f32()?,
    })
}

/// Row starts of a compressed matrix: `rows + 1` of them, from 0 to `stored`, never falling.
pub(super) fn row_starts(array: &NpyArray, rows: u64, stored: u64) -> Result<Array<u64>> {
    if array.len() as u64 != rows.saturating_add(1) {
        return Err(array.wrong(format!("{} row starts", rows.saturating_add(1))));
    }
    let starts = array.to_u64()?;
    if starts[0] != 0 {
        return Err(array.wrong_at("element", 0, "0", starts[0] as i64));
    }
    if let Some(row) = starts.windows(2).position(|pair| pair[1] < pair[0]) {
        let expected = format!("at least {}, the element before", starts[row]);
        return Err(array.wrong_at("element", row as u64 + 1, expected, starts[row + 1] as i64));
    }
    if starts[rows as usize] != stored {
        let expected = format!("{stored}, the number of stored elements");
        return Err(array.wrong_at("element", rows, expected, starts[rows as usize] as i64));
    }
    Ok(starts)
}

fn column_numbers(array: &NpyArray, width: u64) -> Result<Array<u32>> {
    let columns = match array.as_u32() {
        Some(columns) => columns,
        None => {
            let wide = array.to_u64()?;
            check_below(array, &wide, width)?;
            wide.iter().map(|&column| column as u32).collect::<Vec<_>>().into()
        }
    };
    match columns.iter().position(|&column| u64::from(column) >= width) {
        None => Ok(columns),
        Some(at) => {
            let expected = format!("a column below {width}");
            Err(array.wrong_at("element", at as u64, expected, columns[at] as i32))
        }
    }
}

fn check_below(array: &NpyArray, values: &[u64], bound: u64) -> Result<()> {
    match values.iter().position(|&value| value >= bound) {
        None => Ok(()),
        Some(at) => {
            let expected = format!("a number from 0 to {}", bound.saturating_sub(1));
            Err(array.wrong_at("element", at as u64, expected, values[at] as i64))
        }
    }
}

/// Labels from an array `[nodes]` (or `[nodes, 1]`) of classes or `[nodes, classes]` of zeros and ones.
///
/// `declared` is the number of classes the dataset states, if it does.
pub(super) fn labels(
    array: &NpyArray,
    nodes: u64,
    declared: Option<usize>,
    notes: &mut Vec<String>,
) -> Result<Labels> {
    let (rows, width) = array.matrix()?;
    if rows as u64 != nodes || width == 0 {
        return Err(array.wrong(format!("labels for each of {nodes} nodes")));
    }
    if width > 1 {
        return multi_labels(array, declared, notes);
    }
    let values = match array.kind {
        Kind::Float(_) => {
            notes.push(format!("labels: {} converted to classes, NaN read as unlabelled", array.kind_name()));
            whole_numbers(array)?.into()
        }
        _ => array.to_i64()?,
    };
    class_labels(values, declared, &array.file, &array.place)
}

/// Float labels hold whole numbers; NaN is their way to say "not labelled".
fn whole_numbers(array: &NpyArray) -> Result<Vec<i64>> {
    let values = array.to_f32()?;
    let class = |(at, &value): (usize, &f32)| match value {
        value if value.is_nan() => Ok(-1),
        value if value.fract() == 0.0 && value.abs() < 16_777_216.0 => Ok(value as i64),
        value => Err(array.wrong_at("element", at as u64, "a whole number or NaN", value)),
    };
    values.iter().enumerate().map(class).collect()
}

fn multi_labels(array: &NpyArray, declared: Option<usize>, notes: &mut Vec<String>) -> Result<Labels> {
    let (_, classes) = array.matrix()?;
    if let Some(declared) = declared
        && declared != classes
    {
        return Err(array.wrong(format!("{declared} columns, one per declared class")));
    }
    let values = match array.as_u8() {
        Some(values) => values,
        None => {
            notes.push(format!("labels: {} converted to 0/1 bytes", array.kind_name()));
            let byte = |(at, &value): (usize, &f32)| match value {
                0.0 => Ok(0),
                1.0 => Ok(1),
                other => Err(array.wrong_at("element", at as u64, "0 or 1", other)),
            };
            array.to_f32()?.iter().enumerate().map(byte).collect::<Result<Vec<u8>>>()?.into()
        }
    };
    match values.iter().position(|&value| value > 1) {
        None => Ok(Labels::Multi { classes, values }),
        Some(at) => Err(array.wrong_at("element", at as u64, "0 or 1", values[at])),
    }
}

/// Labels from one class per node, -1 = none; the number of classes is `declared` or follows from the values.
pub(super) fn class_labels(
    values: Array<i64>,
    declared: Option<usize>,
    file: &Path,
    place: &str,
) -> Result<Labels> {
    let largest = values.iter().copied().max().unwrap_or(-1);
    let classes = declared.map_or(largest.saturating_add(1), |declared| declared.min(1 << 40) as i64);
    let most = (values.len() as i64).max(1 << 16);
    if classes > most {
        let found = format!("`{classes}`");
        return Err(Error::input(file, place, format!("at most {most} classes"), found));
    }
    match values.iter().position(|&class| class < -1 || class >= classes) {
        None if largest < 0 && declared.is_none() => Ok(Labels::None),
        None => Ok(Labels::Classes { classes: classes as usize, values }),
        Some(node) => Err(Error::input(
            file,
            format!("{place}, node {node}"),
            format!("a class from 0 to {} or -1", classes - 1),
            format!("`{}`", values[node]),
        )),
    }
}

/// The nodes of a split: a list of ids, or one flag per node.
pub(super) fn split(array: &NpyArray, nodes: u64) -> Result<Vec<u64>> {
    let (_, width) = array.matrix()?;
    if array.kind == Kind::Bool {
        return split_mask(array, nodes);
    }
    if width != 1 || !array.kind.is_integer() {
        return Err(array.wrong("a list of integer node ids"));
    }
    let ids = array.to_u64()?;
    check_below(array, &ids, nodes)?;
    Ok(ids.to_vec())
}

fn split_mask(array: &NpyArray, nodes: u64) -> Result<Vec<u64>> {
    if array.len() as u64 != nodes {
        return Err(array.wrong(format!("one flag for each of {nodes} nodes")));
    }
    let flags = array.raw().iter().enumerate();
    Ok(flags.filter(|(_, flag)| **flag != 0).map(|(node, _)| node as u64).collect())
}
