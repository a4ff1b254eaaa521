//! GraphBolt datasets: `metadata.yaml` that names the files of edges, features and node sets.
//!
//! Homogeneous graphs in NumPy or csv files are read; the files DGL writes after preprocessing (`.pt`) are not.

use super::columns;
use super::edge_list::{Layout, TextEdges};
use super::edges::{ArrayEdges, Extras, Ids};
use super::names::Nodes;
use super::npy::NpyArray;
use super::{Format, ReadOptions, name_of, plausible_nodes};
use crate::dataset::{Dataset, EdgeColumns, EdgeStream, Features, Labels, Splits};
use crate::{Error, Result};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "graphbolt",
    summary: "a GraphBolt folder with metadata.yaml",
    detect: |path| {
        metadata_file(path).is_file() && metadata_file(path).file_name().is_some_and(|n| n == METADATA)
    },
    open,
};

const METADATA: &str = "metadata.yaml";

fn metadata_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(METADATA) } else { path.to_path_buf() }
}

#[derive(Deserialize)]
struct Metadata {
    dataset_name: Option<String>,
    graph: Option<Graph>,
    #[serde(default)]
    feature_data: Vec<Data>,
    #[serde(default)]
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
struct Graph {
    #[serde(default)]
    nodes: Vec<NodeKind>,
    #[serde(default)]
    edges: Vec<Data>,
    #[serde(default)]
    feature_data: Vec<Data>,
}

#[derive(Deserialize)]
struct NodeKind {
    num: u64,
}

/// A file and what it holds.
#[derive(Deserialize)]
struct Data {
    domain: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    #[serde(default = "numpy")]
    format: String,
    path: PathBuf,
}

fn numpy() -> String {
    "numpy".into()
}

#[derive(Deserialize)]
struct Task {
    num_classes: Option<usize>,
    #[serde(default)]
    train_set: Vec<NodeSet>,
    #[serde(default)]
    validation_set: Vec<NodeSet>,
    #[serde(default)]
    test_set: Vec<NodeSet>,
}

#[derive(Deserialize)]
struct NodeSet {
    data: Vec<Data>,
}

/// The dataset while it is read.
struct Reader {
    folder: PathBuf,
    file: PathBuf,
    notes: Vec<String>,
}

fn open(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let file = metadata_file(path);
    let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut reader = Reader { folder, file, notes: Vec::new() };
    let metadata = reader.metadata()?;
    let graph = metadata.graph.ok_or_else(|| {
        reader.wrong("`graph` with its edges", "none").with_hint(
            "preprocessed GraphBolt folders hold PyTorch files: give the folder they were made from",
        )
    })?;
    if graph.nodes.len() > 1 || graph.edges.len() != 1 {
        let found = format!("{} node types and {} edge types", graph.nodes.len(), graph.edges.len());
        return Err(reader
            .wrong("one type of nodes and one of edges", found)
            .with_hint("heterogeneous graphs are not supported: extract one relation"));
    }
    let all_features: Vec<&Data> = metadata.feature_data.iter().chain(&graph.feature_data).collect();
    let features = reader.feature_array(&all_features, "node")?;
    let attributes = reader.feature_array(&all_features, "edge")?;
    let claimed = graph.nodes.first().map(|kind| kind.num);
    let rows = features.as_ref().map(|array| array.matrix()).transpose()?.map(|(rows, _)| rows as u64);
    let (nodes, edges, edge_columns) =
        reader.edges(&graph.edges[0], claimed.or(rows), rows, attributes, options)?;
    let features = match features {
        Some(array) => columns::dense_features(&array, nodes, &mut reader.notes)?,
        None => Features::None,
    };
    let (splits, labels) = match metadata.tasks.first() {
        Some(task) => reader.task(task, nodes)?,
        None => (Splits::default(), Labels::None),
    };
    Ok(Dataset {
        name: metadata.dataset_name.unwrap_or_else(|| name_of(path)),
        nodes,
        undirected: false,
        edges,
        edge_columns,
        features,
        labels,
        splits,
        names: None,
        class_names: None,
        notes: reader.notes,
    })
}

impl Reader {
    fn wrong(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::input(&self.file, "", expected, found)
    }

    fn metadata(&self) -> Result<Metadata> {
        let text = std::fs::read_to_string(&self.file).map_err(Error::io("read", &self.file))?;
        serde_norway::from_str(&text)
            .map_err(|error| self.wrong("GraphBolt metadata in YAML", error.to_string()))
    }

    fn array(&self, data: &Data) -> Result<NpyArray> {
        if data.format != "numpy" {
            return Err(self.wrong(
                format!("format `numpy` for `{}`", data.path.display()),
                format!("`{}`", data.format),
            ));
        }
        NpyArray::open(&self.folder.join(&data.path))
    }

    /// The first feature of the domain, preferably the one named `feat`.
    fn feature_array(&mut self, all: &[&Data], domain: &str) -> Result<Option<NpyArray>> {
        let of_domain = || all.iter().filter(|data| data.domain.as_deref() == Some(domain));
        let named = of_domain().find(|data| data.name.as_deref() == Some("feat"));
        let Some(data) = named.or_else(|| of_domain().next()) else { return Ok(None) };
        if data.kind.as_ref().is_some_and(|kind| kind.contains(':') && domain == "node") {
            return Err(self.wrong("features of one type of nodes", format!("{:?}", data.kind)));
        }
        let others = of_domain().count() - 1;
        if others > 0 {
            let name = data.name.as_deref().unwrap_or("?");
            self.notes.push(format!("{domain} features: `{name}` was read, {others} others were not"));
        }
        self.array(data).map(Some)
    }

    /// Edges, and the number of nodes: as stated, or the largest id plus one.
    fn edges(
        &mut self,
        data: &Data,
        nodes: Option<u64>,
        rows: Option<u64>,
        attributes: Option<NpyArray>,
        options: &ReadOptions,
    ) -> Result<(u64, Box<dyn EdgeStream>, EdgeColumns)> {
        if data.format == "csv" {
            let nodes = nodes.ok_or_else(|| self.wrong("`num` of the nodes", "nothing"))?;
            let file = self.folder.join(&data.path);
            let edges =
                TextEdges::counted(&file, Layout::PLAIN_CSV, Nodes::Numbered(nodes), options.progress)?;
            let nodes = plausible_nodes(&self.file, nodes, edges.len() + rows.unwrap_or(0))?;
            if attributes.is_some() {
                self.notes.push("edge features beside csv edges were not read".into());
            }
            return Ok((nodes, Box::new(edges), EdgeColumns::default()));
        }
        let (sources, targets) = Ids::pair(self.array(data)?)?;
        let nodes = match nodes {
            Some(nodes) => plausible_nodes(&self.file, nodes, sources.len() as u64 + rows.unwrap_or(0))?,
            None => sources.bound("a node id")?.max(targets.bound("a node id")?),
        };
        let extras = Extras { attributes, ..Extras::default() };
        let columns = extras.columns(sources.len(), None)?;
        Ok((nodes, Box::new(ArrayEdges { sources, targets, extras, columns, nodes, at: 0 }), columns))
    }

    /// Splits and labels of a node classification task; nodes in no set are not labelled.
    fn task(&mut self, task: &Task, nodes: u64) -> Result<(Splits, Labels)> {
        let mut labels = vec![-1i64; nodes as usize];
        let mut labelled = false;
        let mut read = |sets: &[NodeSet]| -> Result<Vec<u64>> {
            let Some(set) = sets.first() else { return Ok(Vec::new()) };
            let ids = self.set_member(set, &["seeds", "seed_nodes"])?;
            let Some(ids) = ids else { return Err(self.wrong("`seeds` in every set", "none")) };
            let members = columns::split(&ids, nodes)?;
            if let Some(classes) = self.set_member(set, &["labels"])? {
                labelled = true;
                if classes.matrix()? != (members.len(), 1) {
                    return Err(classes.wrong(format!("one class for each of {} seeds", members.len())));
                }
                let classes = classes.to_i64()?;
                members.iter().zip(classes.iter()).for_each(|(&node, &class)| labels[node as usize] = class);
            }
            Ok(members)
        };
        let splits = Splits {
            train: read(&task.train_set)?,
            valid: read(&task.validation_set)?,
            test: read(&task.test_set)?,
        };
        if !labelled {
            return Ok((splits, Labels::None));
        }
        Ok((
            splits,
            columns::class_labels(labels.into(), task.num_classes, &self.file, "labels of the sets")?,
        ))
    }

    fn set_member(&self, set: &NodeSet, names: &[&str]) -> Result<Option<NpyArray>> {
        let wanted = |data: &&Data| data.name.as_deref().is_some_and(|name| names.contains(&name));
        set.data.iter().find(wanted).map(|data| self.array(data)).transpose()
    }
}
