//! The dataset folder: `meta.json` beside `data.npz`, or beside the same arrays as plain `.npy` files.
//!
//! Plain files are mapped, so opening costs no memory; `data.npz` is unpacked. The layout is what
//! [`convert`](crate::convert) writes. Arrays: `edge_index` [2, E]; `x` [N, F] or `x_indptr`, `x_indices`,
//! `x_data`, `x_shape`; `y` [N] or [N, C]; `train_idx`, `valid_idx`, `test_idx` (or `…_mask`); `edge_weight`,
//! `edge_type`, `edge_attr`. `node_names.txt` and `class_names.txt` give the user's own names, one per line.

use super::columns::{self, SparseArrays};
use super::edges::{ArrayEdges, Extras, Ids};
use super::npz::{Archive, Arrays};
use super::text::Lines;
use super::{Format, ReadOptions, name_of, plausible_nodes};
use crate::convert::{CLASS_NAMES, NODE_NAMES};
use crate::dataset::{Dataset, Features, Labels, Splits};
use crate::{Error, Result};
use serde::Deserialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "folder",
    summary: "a folder with meta.json and data.npz, or edge_index.npy and other .npy files",
    detect: |path| {
        path.join("edge_index.npy").is_file()
            || path.join("data.npz").is_file()
            || (path.is_file() && path.extension().is_some_and(|extension| extension == "npz"))
    },
    open,
};

/// The keys of `meta.json` that we act on; others are the user's own notes.
#[derive(Debug, Default, Deserialize)]
struct Meta {
    name: Option<String>,
    num_nodes: Option<u64>,
    num_classes: Option<usize>,
    num_edge_types: Option<u32>,
    undirected: Option<bool>,
    directed: Option<bool>,
}

fn open(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let (folder, arrays) = locate(path)?;
    let meta_file = folder.join("meta.json");
    let meta = read_meta(&meta_file)?;
    let mut notes = Vec::new();
    let (sources, targets) = Ids::pair(arrays.require("edge_index")?)?;
    let nodes = count_nodes(&arrays, &meta, &meta_file, (&sources, &targets), &mut notes)?;
    let extras = Extras {
        weights: arrays.get("edge_weight")?,
        types: arrays.get("edge_type")?.map(Ids::vector).transpose()?,
        attributes: arrays.get("edge_attr")?,
    };
    let edge_columns = extras.columns(sources.len(), meta.num_edge_types)?;
    let edges = ArrayEdges { sources, targets, extras, columns: edge_columns, nodes, at: 0 };
    let labels = match arrays.get("y")? {
        Some(array) => columns::labels(&array, nodes, meta.num_classes, &mut notes)?,
        None => Labels::None,
    };
    let class_names = read_names(&folder.join(CLASS_NAMES), labels.classes() as u64, "classes")?;
    Ok(Dataset {
        name: meta.name.unwrap_or_else(|| name_of(path)),
        nodes,
        undirected: meta.undirected.or(meta.directed.map(|directed| !directed)).unwrap_or(false),
        edges: Box::new(edges),
        edge_columns,
        features: read_features(&arrays, nodes, &mut notes)?,
        labels,
        splits: read_splits(path, &arrays, nodes, options, &mut notes)?,
        names: read_names(&folder.join(NODE_NAMES), nodes, "nodes")?,
        class_names,
        notes,
    })
}

/// The folder that holds `meta.json`, and where the arrays are.
fn locate(path: &Path) -> Result<(PathBuf, Arrays)> {
    if path.is_file() {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        return Ok((folder, Arrays::Archive(Archive::open(path)?)));
    }
    let archive = path.join("data.npz");
    if path.join("edge_index.npy").is_file() || !archive.is_file() {
        return Ok((path.to_path_buf(), Arrays::Folder(path.to_path_buf())));
    }
    Ok((path.to_path_buf(), Arrays::Archive(Archive::open(&archive)?)))
}

fn read_meta(file: &Path) -> Result<Meta> {
    if !file.is_file() {
        return Ok(Meta::default());
    }
    let opened = File::open(file).map_err(Error::io("open", file))?;
    serde_json::from_reader(BufReader::new(opened)).map_err(|error| {
        Error::input(file, "", "a JSON object that describes the dataset", format!("{error}"))
    })
}

/// The number of nodes: rows of `x` or `y` if there are any, else what `meta.json` says, else the largest id.
fn count_nodes(
    arrays: &Arrays,
    meta: &Meta,
    meta_file: &Path,
    (sources, targets): (&Ids, &Ids),
    notes: &mut Vec<String>,
) -> Result<u64> {
    let by_row = arrays.first(&["x".into(), "y".into(), "x_shape".into()])?;
    let rows = match &by_row {
        Some(array) if array.place == "array x_shape" => {
            let rows = array.to_u64()?.first().copied();
            Some(plausible_nodes(&array.file, rows.unwrap_or(0), sources.len() as u64)?)
        }
        Some(array) => Some(array.matrix()?.0 as u64),
        None => None,
    };
    match (meta.num_nodes, rows) {
        (Some(claimed), Some(rows)) if claimed != rows => {
            let place = by_row.map(|array| array.place).unwrap_or_default();
            let expected = format!("{rows}, the rows of {place}");
            Err(Error::input(meta_file, "`num_nodes`", expected, format!("`{claimed}`")))
        }
        (_, Some(rows)) => Ok(rows),
        (Some(claimed), None) => plausible_nodes(meta_file, claimed, sources.len() as u64),
        (None, None) => {
            let nodes = sources.bound("a node id")?.max(targets.bound("a node id")?);
            notes.push(format!(
                "the number of nodes is not stated: taken as {nodes}, the largest id plus one"
            ));
            Ok(nodes)
        }
    }
}

fn read_features(arrays: &Arrays, nodes: u64, notes: &mut Vec<String>) -> Result<Features> {
    if let Some(array) = arrays.get("x")? {
        return columns::dense_features(&array, nodes, notes);
    }
    match arrays.get("x_indptr")? {
        None => Ok(Features::None),
        Some(offsets) => {
            let sparse = SparseArrays {
                offsets,
                columns: arrays.require("x_indices")?,
                values: arrays.require("x_data")?,
                shape: arrays.require("x_shape")?,
            };
            columns::sparse_features(&sparse, nodes)
        }
    }
}

fn read_splits(
    path: &Path,
    arrays: &Arrays,
    nodes: u64,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<Splits> {
    let prefix = options.split.as_ref().map(|split| format!("{split}_")).unwrap_or_default();
    let read = |words: &[&str]| -> Result<Option<Vec<u64>>> {
        let names: Vec<String> = words
            .iter()
            .flat_map(|word| ["idx", "mask"].map(|kind| format!("{prefix}{word}_{kind}")))
            .collect();
        arrays.first(&names)?.map(|array| columns::split(&array, nodes)).transpose()
    };
    let (train, valid, test) = (read(&["train"])?, read(&["valid", "val", "validation"])?, read(&["test"])?);
    if train.is_none() && options.split.is_some() {
        let known: Vec<_> = arrays.names().into_iter().filter(|name| name.ends_with("train_idx")).collect();
        let found =
            if known.is_empty() { "no split at all".into() } else { format!("only: {}", known.join(", ")) };
        return Err(Error::input(path, "", format!("an array `{prefix}train_idx`"), found));
    }
    if train.is_none() {
        notes.push("the dataset has no training split".into());
    }
    Ok(Splits {
        train: train.unwrap_or_default(),
        valid: valid.unwrap_or_default(),
        test: test.unwrap_or_default(),
    })
}

/// As many names, one per line, as there are of `what`.
fn read_names(file: &Path, count: u64, what: &str) -> Result<Option<Vec<String>>> {
    if !file.is_file() {
        return Ok(None);
    }
    let mut lines = Lines::open(file)?;
    let mut names = Vec::new();
    while let Some(line) = lines.next()? {
        match std::str::from_utf8(line) {
            Ok(name) => names.push(name.to_owned()),
            Err(_) => {
                let found = line.to_vec();
                return Err(lines.wrong("a name in UTF-8", &found));
            }
        }
    }
    if names.len() as u64 != count {
        let found = format!("{} lines", names.len());
        return Err(Error::input(file, "", format!("one name for each of {count} {what}"), found));
    }
    Ok(Some(names))
}
