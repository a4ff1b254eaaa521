//! GraphSAINT folders: `adj_full.npz` (a SciPy CSR matrix), `feats.npy`, `class_map.json`, `role.json`.
//!
//! Row `u` of the matrix holds the edges `u -> v`. Stored values that are all 1 are no weights.

use super::columns;
use super::edges::{Ids, RowEdges};
use super::npy::NpyArray;
use super::npz::{Archive, Arrays};
use super::text::parse_id;
use super::{Format, ReadOptions, name_of};
use crate::dataset::{Dataset, EdgeColumns, Features, Labels, Splits};
use crate::{Error, Result};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "saint",
    summary: "a GraphSAINT folder with adj_full.npz, feats.npy, class_map.json, role.json",
    detect: |path| path.join("adj_full.npz").is_file(),
    open,
};

fn open(path: &Path, _: &ReadOptions) -> Result<Dataset> {
    let mut notes = Vec::new();
    let edges = read_adjacency(&path.join("adj_full.npz"), &mut notes)?;
    let nodes = edges.nodes;
    let edge_columns = EdgeColumns { weighted: edges.weights.is_some(), ..EdgeColumns::default() };
    let feats = path.join("feats.npy");
    let features = match feats.is_file() {
        true => columns::dense_features(&NpyArray::open(&feats)?, nodes, &mut notes)?,
        false => Features::None,
    };
    let class_map = path.join("class_map.json");
    let labels = if class_map.is_file() { read_labels(&class_map, nodes)? } else { Labels::None };
    let role = path.join("role.json");
    let splits = if role.is_file() { read_roles(&role, nodes)? } else { Splits::default() };
    Ok(Dataset {
        name: name_of(path),
        nodes,
        undirected: false,
        edges: Box::new(edges),
        edge_columns,
        features,
        labels,
        splits,
        names: None,
        class_names: None,
        notes,
    })
}

fn read_adjacency(file: &Path, notes: &mut Vec<String>) -> Result<RowEdges> {
    let arrays = Arrays::Archive(Archive::open(file)?);
    if let Some(format) = arrays.get("format")?
        && !format.raw().starts_with(b"csr")
    {
        let found = format!("`{}`", format.raw().escape_ascii());
        return Err(Error::input(file, "array format", "`csr`", found).with_hint("save `matrix.tocsr()`"));
    }
    let shape = arrays.require("shape")?;
    let nodes = match shape.to_u64()?[..] {
        [rows, columns] if rows == columns => rows,
        _ => return Err(shape.wrong("two equal numbers, the size of a square matrix")),
    };
    let columns = Ids::vector(arrays.require("indices")?)?;
    let starts = columns::row_starts(&arrays.require("indptr")?, nodes, columns.len() as u64)?;
    let weights = arrays.get("data")?;
    if let Some(weights) = &weights
        && weights.matrix()? != (columns.len(), 1)
    {
        return Err(weights.wrong(format!("one value for each of {} edges", columns.len())));
    }
    let weights = match weights {
        Some(weights) if weights.to_f32()?.iter().any(|&weight| weight != 1.0) => Some(weights),
        Some(_) => {
            notes.push("the values of adj_full.npz are all 1: read as no weights".into());
            None
        }
        None => None,
    };
    Ok(RowEdges { starts, columns, weights, nodes, row: 0, at: 0 })
}

fn read_json<T: DeserializeOwned>(file: &Path, expected: &str) -> Result<T> {
    let opened = File::open(file).map_err(Error::io("open", file))?;
    serde_json::from_reader(BufReader::new(opened))
        .map_err(|error| Error::input(file, "", expected, error.to_string()))
}

#[derive(Deserialize)]
struct Roles {
    #[serde(rename = "tr")]
    train: Vec<u64>,
    #[serde(rename = "va")]
    valid: Vec<u64>,
    #[serde(rename = "te")]
    test: Vec<u64>,
}

fn read_roles(file: &Path, nodes: u64) -> Result<Splits> {
    let roles: Roles = read_json(file, "lists of node ids `tr`, `va` and `te`")?;
    let splits = Splits { train: roles.train, valid: roles.valid, test: roles.test };
    for (name, ids) in splits.named() {
        if let Some(at) = ids.iter().position(|&id| id >= nodes) {
            let place = format!("{name}, element {at}");
            return Err(Error::input(
                file,
                place,
                format!("a node id below {nodes}"),
                format!("`{}`", ids[at]),
            ));
        }
    }
    Ok(splits)
}

/// The entries of `class_map.json`: node -> class, or node -> row of zeros and ones.
#[derive(Default)]
struct ClassMap {
    nodes: Vec<u64>,
    values: Vec<i64>,
    /// Values per node; 0 = a plain number per node.
    width: Option<usize>,
}

/// One value of the map, appended to `ClassMap::values`; yields its width (0 = a plain number).
struct Entry<'a>(&'a mut Vec<i64>);

impl<'de> serde::de::DeserializeSeed<'de> for Entry<'_> {
    type Value = usize;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a class or a list of zeros and ones")
    }

    fn visit_i64<E>(self, class: i64) -> Result<usize, E> {
        self.0.push(class);
        Ok(0)
    }

    fn visit_u64<E: serde::de::Error>(self, class: u64) -> Result<usize, E> {
        self.0.push(i64::try_from(class).map_err(E::custom)?);
        Ok(0)
    }

    fn visit_f64<E: serde::de::Error>(self, class: f64) -> Result<usize, E> {
        if class.fract() != 0.0 || class.abs() > 1e15 {
            return Err(E::custom(format!("`{class}` is no whole number")));
        }
        self.0.push(class as i64);
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<usize, A::Error> {
        let before = self.0.len();
        while let Some(value) = row.next_element::<f32>()? {
            self.0.push(value as i64);
        }
        Ok(self.0.len() - before)
    }
}

impl<'de> Deserialize<'de> for ClassMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ClassMapVisitor)
    }
}

struct ClassMapVisitor;

impl<'de> Visitor<'de> for ClassMapVisitor {
    type Value = ClassMap;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object from node ids to labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ClassMap, A::Error> {
        use serde::de::Error;
        let mut map = ClassMap::default();
        while let Some(key) = entries.next_key::<String>()? {
            let node =
                parse_id(key.as_bytes()).ok_or_else(|| A::Error::custom(format!("`{key}` is no node id")))?;
            let width = entries.next_value_seed(Entry(&mut map.values))?;
            if *map.width.get_or_insert(width) != width {
                return Err(A::Error::custom(format!(
                    "labels of node `{key}` have another width than before"
                )));
            }
            map.nodes.push(node);
        }
        Ok(map)
    }
}

fn read_labels(file: &Path, nodes: u64) -> Result<Labels> {
    let map: ClassMap = read_json(file, "an object from node ids to labels")?;
    if let Some(node) = map.nodes.iter().find(|&&node| node >= nodes) {
        return Err(Error::input(file, "", format!("node ids below {nodes}"), format!("`{node}`")));
    }
    let width = map.width.unwrap_or(0);
    if width == 0 {
        let mut classes = vec![-1; nodes as usize];
        map.nodes.iter().zip(&map.values).for_each(|(&node, &class)| classes[node as usize] = class);
        return columns::class_labels(classes.into(), None, file, "labels");
    }
    let cells =
        (nodes as usize).checked_mul(width).filter(|&cells| cells / 64 <= map.values.len() + (1 << 20));
    let cells = cells.ok_or_else(|| {
        Error::input(file, "", format!("labels of {nodes} nodes"), format!("those of {}", map.nodes.len()))
    })?;
    let mut rows = vec![0u8; cells];
    for (&node, row) in map.nodes.iter().zip(map.values.chunks(width)) {
        for (column, &value) in row.iter().enumerate() {
            rows[node as usize * width + column] = match value {
                0 | 1 => value as u8,
                _ => {
                    let place = format!("node {node}, label {column}");
                    return Err(Error::input(file, place, "0 or 1", format!("`{value}`")));
                }
            };
        }
    }
    Ok(Labels::Multi { classes: width, values: rows.into() })
}
