//! The same small graph written in every format that can be read.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be written is a failed test")]

use archipelago_graph::dataset::{Dataset, EdgeChunk, Features, Labels};
use archipelago_graph::random::{Key, Purpose};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int64Type};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A graph held the plain way.
pub struct Graph {
    pub nodes: u64,
    pub edges: Vec<(u64, u64)>,
    pub weights: Vec<f32>,
    pub x: Vec<f32>,
    pub y: Vec<i64>,
    pub train: Vec<u64>,
    pub valid: Vec<u64>,
    pub test: Vec<u64>,
}

pub const WIDTH: usize = 3;

impl Graph {
    /// Random edges; with `symmetric` every edge has its reverse and there are no self-loops or duplicates.
    pub fn random(nodes: u64, edges: usize, symmetric: bool) -> Self {
        let key = Key::new(5, Purpose::Generate);
        let draw = |i: usize, end: u64| key.with(end).below(i as u64, nodes);
        let mut list: Vec<(u64, u64)> = (0..edges).map(|i| (draw(i, 0), draw(i, 1))).collect();
        // The last node appears in an edge, so that formats without a node count see all nodes.
        list.push((nodes - 1, 0));
        if symmetric {
            list.retain(|(a, b)| a != b);
            list = list.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
            list.sort_unstable();
            list.dedup();
        }
        let of = |rest: u64| (0..nodes).filter(|node| node % 4 == rest).collect();
        Self {
            nodes,
            weights: (0..list.len()).map(|i| 0.5 + (i % 7) as f32).collect(),
            edges: list,
            x: (0..nodes as usize * WIDTH).map(|i| i as f32 * 0.25 - 3.0).collect(),
            y: (0..nodes as i64).map(|node| if node % 4 == 3 { -1 } else { node % 5 }).collect(),
            train: of(0),
            valid: of(1),
            test: of(2),
        }
    }

    pub fn split_of(&self, node: u64) -> &'static str {
        ["train", "valid", "test", ""][(node % 4) as usize]
    }
}

/// A graph on disk in one format.
pub struct Fixture {
    pub format: &'static str,
    pub path: PathBuf,
    /// Whether features, labels and splits are part of it.
    pub has_columns: bool,
    pub weighted: bool,
}

impl Fixture {
    /// Every file of it.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&self.path, &mut files);
        files.sort();
        files
    }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_file() {
        return files.push(path.to_path_buf());
    }
    for entry in fs::read_dir(path).unwrap() {
        collect(&entry.unwrap().path(), files);
    }
}

/// The graph in every format, several times where a format has several forms.
pub fn every_format(graph: &Graph, home: &Path) -> Vec<Fixture> {
    let fixture = |format, name: &str, has_columns, weighted| Fixture {
        format,
        path: home.join(name),
        has_columns,
        weighted,
    };
    write_folder(graph, &home.join("folder_npy"));
    write_npz_folder(graph, &home.join("folder_npz"));
    write_graphbolt(graph, &home.join("graphbolt"));
    write_saint(graph, &home.join("saint"));
    write_ogb_text(graph, &home.join("ogb_text"));
    write_ogb_binary(graph, &home.join("ogb_binary"));
    write_parquet(graph, &home.join("parquet"));
    write_metis(graph, &home.join("metis.graph"));
    write_edge_list(graph, &home.join("edge_list"));
    fs::write(home.join("plain.tsv"), edge_lines(graph, "\t", false)).unwrap();
    fs::write(
        home.join("packed.csv.zst"),
        zstd::encode_all(edge_lines(graph, ",", false).as_bytes(), 3).unwrap(),
    )
    .unwrap();
    vec![
        fixture("folder", "folder_npy", true, true),
        fixture("folder", "folder_npz", true, true),
        fixture("graphbolt", "graphbolt", true, false),
        fixture("saint", "saint", true, true),
        fixture("ogb", "ogb_text", true, false),
        fixture("ogb", "ogb_binary", true, false),
        fixture("parquet", "parquet", true, true),
        fixture("metis", "metis.graph", false, false),
        fixture("edge-list", "edge_list", true, true),
        fixture("edge-list", "plain.tsv", false, false),
        fixture("edge-list", "packed.csv.zst", false, false),
    ]
}

/// An `.npy` file in memory.
pub fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((length as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(9 + length, b' ');
    bytes.push(b'\n');
    bytes.extend(data);
    bytes
}

pub fn npy_i64(shape: &str, values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    npy("<i8", shape, &values.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<_>>())
}

pub fn npy_ids(ids: &[u64]) -> Vec<u8> {
    npy_i64(&format!("({},)", ids.len()), ids.iter().map(|&id| id as i64))
}

pub fn npy_f32(shape: &str, values: &[f32]) -> Vec<u8> {
    npy("<f4", shape, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

pub fn npy_edges(graph: &Graph) -> Vec<u8> {
    let (sources, targets) = (graph.edges.iter().map(|e| e.0 as i64), graph.edges.iter().map(|e| e.1 as i64));
    npy_i64(&format!("(2, {})", graph.edges.len()), sources.chain(targets))
}

fn npy_x(graph: &Graph) -> Vec<u8> {
    npy_f32(&format!("({}, {WIDTH})", graph.nodes), &graph.x)
}

fn npy_y(graph: &Graph) -> Vec<u8> {
    npy_i64(&format!("({},)", graph.nodes), graph.y.iter().copied())
}

/// Name and contents of every array of a dataset folder.
pub fn arrays(graph: &Graph) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("edge_index", npy_edges(graph)),
        ("edge_weight", npy_f32(&format!("({},)", graph.edges.len()), &graph.weights)),
        ("x", npy_x(graph)),
        ("y", npy_y(graph)),
        ("train_idx", npy_ids(&graph.train)),
        ("val_idx", npy_ids(&graph.valid)),
        ("test_idx", npy_ids(&graph.test)),
    ]
}

fn meta(graph: &Graph) -> String {
    format!(r#"{{"name": "small", "num_nodes": {}, "num_classes": 5, "undirected": false}}"#, graph.nodes)
}

pub fn write_folder(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("meta.json"), meta(graph)).unwrap();
    for (name, bytes) in arrays(graph) {
        fs::write(folder.join(format!("{name}.npy")), bytes).unwrap();
    }
}

pub fn write_npz(file: &Path, members: &[(&str, Vec<u8>)]) {
    let mut zip = zip::ZipWriter::new(File::create(file).unwrap());
    for (name, bytes) in members {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

pub fn write_npz_folder(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("meta.json"), meta(graph)).unwrap();
    write_npz(&folder.join("data.npz"), &arrays(graph));
}

fn write_graphbolt(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder.join("set")).unwrap();
    fs::write(folder.join("edges.npy"), npy_edges(graph)).unwrap();
    fs::write(folder.join("feat.npy"), npy_x(graph)).unwrap();
    let mut yaml = format!(
        "dataset_name: small\ngraph:\n  nodes:\n    - num: {}\n  edges:\n    - format: numpy\n      path: edges.npy\n\
         feature_data:\n  - domain: node\n    type: null\n    name: feat\n    format: numpy\n    in_memory: true\n    \
         path: feat.npy\ntasks:\n  - name: node_classification\n    num_classes: 5\n",
        graph.nodes
    );
    for (set, nodes) in [("train", &graph.train), ("validation", &graph.valid), ("test", &graph.test)] {
        let labels: Vec<u64> = nodes.iter().map(|&node| graph.y[node as usize] as u64).collect();
        fs::write(folder.join(format!("set/{set}_seeds.npy")), npy_ids(nodes)).unwrap();
        fs::write(folder.join(format!("set/{set}_labels.npy")), npy_ids(&labels)).unwrap();
        write!(yaml, "    {set}_set:\n      - type: null\n        data:\n").unwrap();
        for member in ["seeds", "labels"] {
            let path = format!("set/{set}_{member}.npy");
            write!(yaml, "          - name: {member}\n            format: numpy\n            path: {path}\n")
                .unwrap();
        }
    }
    fs::write(folder.join("metadata.yaml"), yaml).unwrap();
}

fn write_saint(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut rows: Vec<_> = graph.edges.iter().copied().zip(graph.weights.iter().copied()).collect();
    rows.sort_by_key(|((source, _), _)| *source);
    let starts = (0..=graph.nodes).map(|node| rows.iter().filter(|((s, _), _)| *s < node).count() as i64);
    let indices = rows.iter().flat_map(|((_, target), _)| (*target as i32).to_le_bytes()).collect::<Vec<_>>();
    let data = rows.iter().flat_map(|(_, weight)| f64::from(*weight).to_le_bytes()).collect::<Vec<_>>();
    let many = format!("({},)", rows.len());
    let members = [
        ("indices", npy("<i4", &many, &indices)),
        ("indptr", npy_i64(&format!("({},)", graph.nodes + 1), starts)),
        ("format", npy("|S3", "()", b"csr")),
        ("shape", npy_i64("(2,)", [graph.nodes as i64; 2])),
        ("data", npy("<f8", &many, &data)),
    ];
    write_npz(&folder.join("adj_full.npz"), &members);
    fs::write(folder.join("feats.npy"), npy_x(graph)).unwrap();
    let labelled = graph.y.iter().enumerate().filter(|(_, class)| **class >= 0);
    let classes: Vec<String> = labelled.map(|(node, class)| format!("\"{node}\": {class}")).collect();
    fs::write(folder.join("class_map.json"), format!("{{{}}}", classes.join(", "))).unwrap();
    let roles = format!(r#"{{"tr": {:?}, "va": {:?}, "te": {:?}}}"#, graph.train, graph.valid, graph.test);
    fs::write(folder.join("role.json"), roles).unwrap();
}

pub fn gz(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut encoder = GzEncoder::new(File::create(file).unwrap(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap();
}

fn lines<T: ToString>(values: &[T]) -> String {
    values.iter().map(|value| value.to_string() + "\n").collect()
}

fn write_ogb_text(graph: &Graph, folder: &Path) {
    let raw = folder.join("raw");
    gz(&raw.join("edge.csv.gz"), &edge_lines(graph, ",", false));
    gz(&raw.join("num-node-list.csv.gz"), &format!("{}\n", graph.nodes));
    gz(&raw.join("num-edge-list.csv.gz"), &format!("{}\n", graph.edges.len()));
    let rows: Vec<String> = graph
        .x
        .chunks(WIDTH)
        .map(|row| row.iter().map(f32::to_string).collect::<Vec<_>>().join(","))
        .collect();
    gz(&raw.join("node-feat.csv.gz"), &lines(&rows));
    let labels: Vec<String> =
        graph.y.iter().map(|class| if *class < 0 { "nan".into() } else { class.to_string() }).collect();
    gz(&raw.join("node-label.csv.gz"), &lines(&labels));
    write_ogb_splits(graph, folder);
}

fn write_ogb_binary(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder.join("raw")).unwrap();
    let members = [
        ("edge_index", npy_edges(graph)),
        ("node_feat", npy_x(graph)),
        ("num_nodes_list", npy_ids(&[graph.nodes])),
        ("num_edges_list", npy_ids(&[graph.edges.len() as u64])),
    ];
    write_npz(&folder.join("raw/data.npz"), &members);
    let y: Vec<f32> = graph.y.iter().map(|&class| if class < 0 { f32::NAN } else { class as f32 }).collect();
    write_npz(
        &folder.join("raw/node-label.npz"),
        &[("node_label", npy_f32(&format!("({}, 1)", graph.nodes), &y))],
    );
    write_ogb_splits(graph, folder);
}

fn write_ogb_splits(graph: &Graph, folder: &Path) {
    for (name, nodes) in [("train", &graph.train), ("valid", &graph.valid), ("test", &graph.test)] {
        gz(&folder.join(format!("split/time/{name}.csv.gz")), &lines(nodes));
    }
}

pub fn edge_lines(graph: &Graph, separator: &str, weighted: bool) -> String {
    let mut text = String::new();
    for ((source, target), weight) in graph.edges.iter().zip(&graph.weights) {
        write!(text, "{source}{separator}{target}").unwrap();
        if weighted {
            write!(text, "{separator}{weight}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn write_edge_list(graph: &Graph, folder: &Path) {
    let edges = format!("# the edges\nsrc,dst,weight\n{}", edge_lines(graph, ",", true));
    gz(&folder.join("edges.csv.gz"), &edges);
    let mut nodes = "id,label,split,a,b,c\n".to_owned();
    // Backwards: rows go where their id says.
    for node in (0..graph.nodes).rev() {
        let x = &graph.x[node as usize * WIDTH..][..WIDTH];
        let class = graph.y[node as usize];
        let label = if class < 0 { String::new() } else { class.to_string() };
        writeln!(nodes, "{node},{label},{},{},{},{}", graph.split_of(node), x[0], x[1], x[2]).unwrap();
    }
    fs::write(folder.join("nodes.csv"), nodes).unwrap();
}

pub fn write_metis(graph: &Graph, file: &Path) {
    let mut text = format!("% a comment\n{} {}\n", graph.nodes, graph.edges.len() / 2);
    let mut neighbours = vec![String::new(); graph.nodes as usize];
    for (source, target) in &graph.edges {
        write!(neighbours[*source as usize], "{} ", target + 1).unwrap();
    }
    text.push_str(&lines(&neighbours));
    fs::write(file, text).unwrap();
}

fn column<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    definitions: Option<&[i16]>,
    repetitions: Option<&[i16]>,
) {
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, definitions, repetitions).unwrap();
    column.close().unwrap();
}

pub fn parquet_writer(file: &Path, schema: &str) -> SerializedFileWriter<File> {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .build();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    SerializedFileWriter::new(File::create(file).unwrap(), schema, Arc::new(properties)).unwrap()
}

/// `edges.parquet` in two row groups; string ids when `name` gives them.
pub fn write_parquet_edges(graph: &Graph, file: &Path, name: Option<&dyn Fn(u64) -> String>) {
    let id = if name.is_some() { "BYTE_ARRAY" } else { "INT64" };
    let text = if name.is_some() { " (UTF8)" } else { "" };
    let schema = format!(
        "message edges {{ REQUIRED {id} src{text}; OPTIONAL {id} dst{text}; REQUIRED FLOAT weight; }}"
    );
    let mut writer = parquet_writer(file, &schema);
    let half = graph.edges.len() / 2;
    for range in [0..half, half..graph.edges.len()] {
        let (sources, targets): (Vec<u64>, Vec<u64>) = graph.edges[range.clone()].iter().copied().unzip();
        let there = vec![1i16; sources.len()];
        let mut group = writer.next_row_group().unwrap();
        match name {
            None => {
                let integers = |ids: &[u64]| ids.iter().map(|&id| id as i64).collect::<Vec<_>>();
                column::<Int64Type>(&mut group, &integers(&sources), None, None);
                column::<Int64Type>(&mut group, &integers(&targets), Some(&there), None);
            }
            Some(name) => {
                let texts = |ids: &[u64]| {
                    ids.iter().map(|&id| ByteArray::from(name(id).as_str())).collect::<Vec<_>>()
                };
                column::<ByteArrayType>(&mut group, &texts(&sources), None, None);
                column::<ByteArrayType>(&mut group, &texts(&targets), Some(&there), None);
            }
        }
        column::<FloatType>(&mut group, &graph.weights[range], None, None);
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn write_parquet(graph: &Graph, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    write_parquet_edges(graph, &folder.join("edges.parquet"), None);
    let schema = "message nodes { REQUIRED INT64 id; OPTIONAL INT64 label; REQUIRED BYTE_ARRAY split (UTF8); \
                  OPTIONAL GROUP x (LIST) { REPEATED GROUP list { OPTIONAL FLOAT element; } } }";
    let mut writer = parquet_writer(&folder.join("nodes.parquet"), schema);
    let mut group = writer.next_row_group().unwrap();
    let ids: Vec<i64> = (0..graph.nodes as i64).collect();
    column::<Int64Type>(&mut group, &ids, None, None);
    let classes: Vec<i64> = graph.y.iter().copied().filter(|class| *class >= 0).collect();
    let there: Vec<i16> = graph.y.iter().map(|class| i16::from(*class >= 0)).collect();
    column::<Int64Type>(&mut group, &classes, Some(&there), None);
    let splits: Vec<ByteArray> = (0..graph.nodes).map(|node| ByteArray::from(graph.split_of(node))).collect();
    column::<ByteArrayType>(&mut group, &splits, None, None);
    let starts: Vec<i16> = (0..graph.x.len()).map(|i| i16::from(i % WIDTH != 0)).collect();
    column::<FloatType>(&mut group, &graph.x, Some(&vec![3; graph.x.len()]), Some(&starts));
    group.close().unwrap();
    writer.close().unwrap();
}

/// All edges of a dataset with their weights (1 where there are none), sorted.
pub fn all_edges(dataset: &mut Dataset) -> Vec<(u64, u64, f32)> {
    let mut all = Vec::new();
    let mut chunk = EdgeChunk::default();
    dataset.edges.rewind().unwrap();
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        assert!(chunk.len() <= EdgeChunk::EDGES);
        for edge in 0..chunk.len() {
            let weight = chunk.weights.get(edge).copied().unwrap_or(1.0);
            all.push((chunk.sources[edge], chunk.targets[edge], weight));
        }
    }
    assert_eq!(all.len() as u64, dataset.edges.len());
    all.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    all
}

/// Dense features, or those of a sparse matrix made dense.
pub fn dense(features: &Features) -> Vec<f32> {
    match features {
        Features::None => Vec::new(),
        Features::Dense { values, .. } => values.to_vec(),
        Features::Sparse { width, offsets, columns, values } => {
            let mut dense = vec![0.0; (offsets.len() - 1) * width];
            for row in 0..offsets.len() - 1 {
                for at in offsets[row] as usize..offsets[row + 1] as usize {
                    dense[row * width + columns[at] as usize] = values[at];
                }
            }
            dense
        }
    }
}

pub fn classes(labels: &Labels) -> Vec<i64> {
    match labels {
        Labels::Classes { values, .. } => values.to_vec(),
        _ => Vec::new(),
    }
}
