//! OGB raw folders: `raw/*.csv.gz` with `split/<name>/*.csv.gz`, or the binary form `raw/data.npz`.
//!
//! Edges are streamed from the packed text; features and labels are read into memory. OGB adds reverse edges of
//! some graphs only when its own loader reads them, and the folder does not say for which: `undirected` does it.

use super::columns;
use super::edge_list::{Layout, TextEdges};
use super::edges::{ArrayEdges, Extras, Ids};
use super::names::Nodes;
use super::npz::{self, Archive, Arrays};
use super::text::{Lines, Separator, fields, parse_f32, parse_id};
use super::{Format, ReadOptions, name_of, plausible_nodes};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream, Features, Labels, Splits};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "ogb",
    summary: "an OGB folder with raw/edge.csv.gz or raw/data.npz, and split/",
    detect: |path| file(&path.join("raw"), "edge").is_some() || path.join("raw/data.npz").is_file(),
    open,
};

/// `<folder>/<stem>.csv.gz` or, unpacked, `<folder>/<stem>.csv`.
fn file(folder: &Path, stem: &str) -> Option<PathBuf> {
    ["csv.gz", "csv"]
        .map(|ending| folder.join(format!("{stem}.{ending}")))
        .into_iter()
        .find(|file| file.is_file())
}

fn require(folder: &Path, stem: &str) -> Result<PathBuf> {
    file(folder, stem)
        .ok_or_else(|| Error::input(folder, "", format!("a file `{stem}.csv.gz`"), "none of that name"))
}

fn open(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let raw = path.join("raw");
    if file(&raw, "num-node-dict").is_some() || file(&raw, "triplet-type-list").is_some() {
        return Err(Error::input(&raw, "", "one type of nodes and edges", "a heterogeneous graph")
            .with_hint("heterogeneous graphs are not supported: extract one relation as an edge list"));
    }
    let binary = raw.join("data.npz");
    let mut dataset = if binary.is_file() { open_binary(&raw, &binary)? } else { open_text(&raw)? };
    dataset.name = name_of(path);
    dataset.splits = read_splits(&path.join("split"), dataset.nodes, options, &mut dataset.notes)?;
    if !options.undirected {
        dataset.notes.push(
            "edges are as the folder stores them; OGB means ogbn-products and ogbn-proteins to be undirected"
                .into(),
        );
    }
    Ok(dataset)
}

fn open_text(raw: &Path) -> Result<Dataset> {
    let edge_file = require(raw, "edge")?;
    let (node_list, edge_list) = (require(raw, "num-node-list")?, require(raw, "num-edge-list")?);
    let (claimed, len) = (read_count(&node_list)?, read_count(&edge_list)?);
    let bytes = std::fs::metadata(&edge_file).map_err(Error::io("open", &edge_file))?.len();
    if len > TextEdges::most(bytes) {
        let expected = format!("a number of edges that `{}` can hold", edge_file.display());
        return Err(Error::input(&edge_list, "line 1", expected, format!("`{len}`")));
    }
    let nodes = plausible_nodes(&node_list, claimed, len)?;
    let mut edges: Box<dyn EdgeStream> =
        Box::new(TextEdges::open(&edge_file, Layout::PLAIN_CSV, Nodes::Numbered(nodes), len)?);
    let mut edge_columns = EdgeColumns::default();
    if let Some(file) = file(raw, "edge-feat") {
        let attributes = WithAttributes::open(edges, &file)?;
        edge_columns.attribute_width = attributes.width;
        edges = Box::new(attributes);
    }
    let features = match file(raw, "node-feat") {
        None => Features::None,
        Some(file) => {
            let (width, values) = read_matrix(&file, nodes, parse_f32)?;
            Features::Dense { width, values: values.into() }
        }
    };
    let labels = match file(raw, "node-label") {
        None => Labels::None,
        Some(file) => read_labels(&file, nodes)?,
    };
    Ok(dataset(nodes, edges, edge_columns, features, labels))
}

fn dataset(
    nodes: u64,
    edges: Box<dyn EdgeStream>,
    edge_columns: EdgeColumns,
    features: Features,
    labels: Labels,
) -> Dataset {
    Dataset {
        name: String::new(),
        nodes,
        undirected: false,
        edges,
        edge_columns,
        features,
        labels,
        splits: Splits::default(),
        names: None,
        class_names: None,
        notes: Vec::new(),
    }
}

fn open_binary(raw: &Path, binary: &Path) -> Result<Dataset> {
    let arrays = Arrays::Archive(Archive::open(binary)?);
    let mut notes = Vec::new();
    let (sources, targets) = Ids::pair(arrays.require("edge_index")?)?;
    let extras = Extras { attributes: arrays.get("edge_feat")?, ..Extras::default() };
    let edge_columns = extras.columns(sources.len(), None)?;
    let features = arrays.get("node_feat")?;
    let counts = arrays.require("num_nodes_list")?;
    let claimed = counts.to_u64()?.first().copied().unwrap_or(0);
    let evidence = sources.len() as u64 + features.as_ref().map_or(0, |array| array.len() as u64);
    let nodes = plausible_nodes(binary, claimed, evidence)?;
    let features = match features {
        Some(array) => columns::dense_features(&array, nodes, &mut notes)?,
        None => Features::None,
    };
    let label_file = raw.join("node-label.npz");
    let labels = match label_file.is_file() {
        true => {
            let arrays = Arrays::Archive(Archive::open(&label_file)?);
            columns::labels(&arrays.require("node_label")?, nodes, None, &mut notes)?
        }
        false => Labels::None,
    };
    let edges = ArrayEdges { sources, targets, extras, columns: edge_columns, nodes, at: 0 };
    Ok(Dataset { notes, ..dataset(nodes, Box::new(edges), edge_columns, features, labels) })
}

/// The single number of a `num-…-list` file.
fn read_count(file: &Path) -> Result<u64> {
    let mut lines = Lines::open(file)?;
    let line = lines.next()?.unwrap_or_default().to_vec();
    let count = parse_id(line.trim_ascii()).ok_or_else(|| lines.wrong("a count", &line))?;
    match lines.next()? {
        Some(more) if !more.trim_ascii().is_empty() => {
            let found = more.to_vec();
            Err(lines.wrong("one graph only", &found))
        }
        _ => Ok(count),
    }
}

/// One row of numbers per line, all of the same width, for each of `rows` nodes.
fn read_matrix<T: Copy>(
    file: &Path,
    rows: u64,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> Result<(usize, Vec<T>)> {
    let mut lines = Lines::open(file)?;
    let most = npz::most_unpacked(file)?;
    let (mut width, mut values) = (0, Vec::new());
    for _ in 0..rows {
        let Some(line) = lines.next()? else { break };
        let before = values.len();
        for field in fields(line, Separator::Byte(b',')) {
            match parse(field) {
                Some(value) => values.push(value),
                None => {
                    let found = field.to_vec();
                    return Err(lines.wrong("a number", &found));
                }
            }
        }
        let new = values.len() - before;
        width = if before == 0 { new } else { width };
        if new != width {
            let found = line.to_vec();
            return Err(lines.wrong(format!("{width} numbers, as in the first line"), &found));
        }
        if (values.len() * size_of::<T>()) as u64 > most {
            return Err(Error::input(
                file,
                format!("line {}", lines.number),
                format!("at most {most} bytes of numbers"),
                "more",
            ));
        }
    }
    if lines.number < rows || lines.next()?.is_some() {
        let found = if lines.number < rows { lines.number.to_string() } else { "more".into() };
        return Err(Error::input(file, "", format!("one line for each of {rows} nodes"), found));
    }
    Ok((width, values))
}

/// Class labels (one column; empty or `nan` = not labelled) or 0/1 rows (several columns).
fn read_labels(file: &Path, nodes: u64) -> Result<Labels> {
    let (width, values) = read_matrix(file, nodes, |field| match field {
        b"" => Some(-1.0),
        _ => parse_f32(field).map(|value| if value.is_nan() { -1.0 } else { value }),
    })?;
    if width <= 1 {
        let whole = |(node, &value): (usize, &f32)| match value.fract() == 0.0 && value.abs() < 16_777_216.0 {
            true => Ok(value as i64),
            false => {
                Err(Error::input(file, format!("line {}", node + 1), "a whole number", format!("`{value}`")))
            }
        };
        let classes: Vec<i64> = values.iter().enumerate().map(whole).collect::<Result<_>>()?;
        return columns::class_labels(classes.into(), None, file, "labels");
    }
    let byte = |(at, &value): (usize, &f32)| match value {
        0.0 => Ok(0u8),
        1.0 => Ok(1),
        _ => Err(Error::input(
            file,
            format!("line {}", at / width + 1),
            "zeros and ones",
            format!("`{value}`"),
        )),
    };
    let values: Vec<u8> = values.iter().enumerate().map(byte).collect::<Result<_>>()?;
    Ok(Labels::Multi { classes: width, values: values.into() })
}

/// The folder below `split/` that was asked for, or the only or first one.
fn read_splits(folder: &Path, nodes: u64, options: &ReadOptions, notes: &mut Vec<String>) -> Result<Splits> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    let chosen = match (&options.split, names.first()) {
        (Some(name), _) if names.contains(name) => name,
        (Some(name), _) => {
            let found = format!("only: {}", names.join(", "));
            return Err(Error::input(folder, "", format!("a split `{name}`"), found));
        }
        (None, Some(first)) => first,
        (None, None) => {
            notes.push("the dataset has no split".into());
            return Ok(Splits::default());
        }
    };
    if names.len() > 1 && options.split.is_none() {
        notes.push(format!("of the splits {} the first was taken", names.join(", ")));
    }
    let folder = folder.join(chosen);
    let read = |stem| read_split(&require(&folder, stem)?, nodes);
    Ok(Splits { train: read("train")?, valid: read("valid")?, test: read("test")? })
}

fn read_split(file: &Path, nodes: u64) -> Result<Vec<u64>> {
    let mut lines = Lines::open(file)?;
    let mut ids = Vec::new();
    while let Some(line) = lines.next()? {
        match parse_id(line.trim_ascii()) {
            Some(id) if id < nodes && (ids.len() as u64) < nodes => ids.push(id),
            _ => {
                let found = line.to_vec();
                return Err(lines.wrong(format!("at most {nodes} node ids below {nodes}"), &found));
            }
        }
    }
    Ok(ids)
}

/// Edges with a row of numbers for each from a second text file.
struct WithAttributes {
    edges: Box<dyn EdgeStream>,
    lines: Lines,
    width: usize,
}

impl WithAttributes {
    fn open(edges: Box<dyn EdgeStream>, file: &Path) -> Result<Self> {
        let mut lines = Lines::open(file)?;
        let width = lines.next()?.map_or(0, |line| fields(line, Separator::Byte(b',')).count());
        Ok(Self { edges, lines: Lines::open(file)?, width })
    }
}

impl EdgeStream for WithAttributes {
    fn len(&self) -> u64 {
        self.edges.len()
    }

    fn rewind(&mut self) -> Result<()> {
        self.lines = Lines::open(&self.lines.file)?;
        self.edges.rewind()
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        let more = self.edges.next_chunk(chunk)?;
        for _ in 0..chunk.len() {
            let before = chunk.attributes.len();
            let line = self.lines.next()?.unwrap_or_default();
            let numbers: Option<()> = fields(line, Separator::Byte(b','))
                .map(|field| parse_f32(field).map(|value| chunk.attributes.push(value)))
                .collect();
            if numbers.is_none() || chunk.attributes.len() - before != self.width {
                let found = line.to_vec();
                return Err(self.lines.wrong(format!("{} numbers for each edge", self.width), &found));
            }
        }
        Ok(more)
    }
}
