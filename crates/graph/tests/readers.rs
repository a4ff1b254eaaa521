//! Every format reads to the same graph, and what is written is read back.

#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod readers_fixtures;

use archipelago_graph::check::{Finding, Severity, check};
use archipelago_graph::convert::write_folder;
use archipelago_graph::dataset::{Dataset, Features, Labels};
use archipelago_graph::progress::Silent;
use archipelago_graph::read::{FORMATS, ReadOptions, open, read_part_file};
use readers_fixtures::*;
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &Path) -> Dataset {
    open(path, None, &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn expected_edges(graph: &Graph, weighted: bool) -> Vec<(u64, u64, f32)> {
    let weight = |i: usize| if weighted { graph.weights[i] } else { 1.0 };
    let mut edges: Vec<_> = graph.edges.iter().enumerate().map(|(i, &(s, t))| (s, t, weight(i))).collect();
    edges.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
    edges
}

fn assert_reads_as(graph: &Graph, dataset: &mut Dataset, fixture: &Fixture) {
    let form = fixture.path.display();
    assert_eq!(dataset.nodes, graph.nodes, "{form}");
    assert_eq!(dataset.edge_columns.weighted, fixture.weighted, "{form}");
    let expected = expected_edges(graph, fixture.weighted);
    assert_eq!(all_edges(dataset), expected, "{form}");
    assert_eq!(all_edges(dataset), expected, "{form}, second pass");
    if fixture.has_columns {
        assert_eq!(dense(&dataset.features), graph.x, "{form}");
        assert_eq!(classes(&dataset.labels), graph.y, "{form}");
        assert_eq!(dataset.labels.classes(), 5, "{form}");
        let mut splits = dataset.splits.clone();
        for split in [&mut splits.train, &mut splits.valid, &mut splits.test] {
            split.sort();
        }
        assert_eq!(
            (&splits.train, &splits.valid, &splits.test),
            (&graph.train, &graph.valid, &graph.test),
            "{form}"
        );
    }
}

#[test]
fn the_same_graph_in_every_format_reads_to_the_same_edges_and_columns() {
    let home = tempfile::tempdir().unwrap();
    let graph = Graph::random(43, 90, true);
    let fixtures = every_format(&graph, home.path());
    for format in FORMATS {
        assert!(
            fixtures.iter().any(|fixture| fixture.format == format.name),
            "no fixture for {}",
            format.name
        );
    }
    for fixture in &fixtures {
        let detected = FORMATS.iter().find(|format| (format.detect)(&fixture.path)).map(|format| format.name);
        assert_eq!(detected, Some(fixture.format), "{}", fixture.path.display());
        assert_reads_as(&graph, &mut read(&fixture.path), fixture);
    }
}

#[test]
fn a_graph_of_many_chunks_streams_the_same_from_every_format() {
    let home = tempfile::tempdir().unwrap();
    let graph = Graph::random(3_000, 100_000, true);
    assert!(graph.edges.len() > 2 << 16);
    for fixture in every_format(&graph, home.path()) {
        assert_reads_as(&graph, &mut read(&fixture.path), &fixture);
    }
}

#[test]
fn directed_graphs_with_loops_and_duplicates_keep_them() {
    let home = tempfile::tempdir().unwrap();
    let mut graph = Graph::random(9, 30, false);
    graph.edges.extend([(4, 4), (4, 4), (1, 2)]);
    graph.weights.extend([1.0, 2.0, 3.0]);
    for fixture in every_format(&graph, home.path()).iter().filter(|fixture| fixture.format != "metis") {
        assert_reads_as(&graph, &mut read(&fixture.path), fixture);
    }
}

#[test]
fn writing_any_format_as_a_folder_and_reading_it_gives_the_same_dataset() {
    let home = tempfile::tempdir().unwrap();
    let graph = Graph::random(43, 90, true);
    for (number, fixture) in every_format(&graph, home.path()).iter().enumerate() {
        let out = home.path().join(format!("converted-{number}"));
        let mut before = read(&fixture.path);
        write_folder(&mut before, &out, &Silent).unwrap();
        let mut after = read(&out);
        assert_reads_as(&graph, &mut after, fixture);
        assert_eq!((&after.name, after.undirected), (&before.name, before.undirected));
        assert_eq!(after.labels.classes(), before.labels.classes());
        assert_eq!(after.names, before.names);
    }
}

#[test]
fn labels_that_are_words_are_classes_with_names_in_a_folder_too() {
    let home = tempfile::tempdir().unwrap();
    let (tables, out) = (home.path().join("tables"), home.path().join("folder"));
    fs::create_dir(&tables).unwrap();
    fs::write(tables.join("edges.csv"), "0,1\n1,2\n2,3\n").unwrap();
    fs::write(tables.join("nodes.csv"), "id,label\n0,oak\n1,elm\n2,\n3,oak\n").unwrap();
    write_folder(&mut read(&tables), &out, &Silent).unwrap();
    for dataset in [read(&tables), read(&out)] {
        let Labels::Classes { classes: 2, values } = &dataset.labels else { panic!("{:?}", dataset.labels) };
        assert_eq!(values[..], [0, 1, -1, 0]);
        assert_eq!(dataset.class_names.as_deref().unwrap(), ["oak", "elm"]);
    }
    fs::write(out.join("class_names.txt"), "oak\n").unwrap();
    let error = open(&out, None, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("expected one name for each of 2 classes"), "{error}");

    fs::write(tables.join("nodes.csv"), "id,label\n0,1\n1,0\n2,\n3,1\n").unwrap();
    assert_eq!(read(&tables).class_names, None);
}

#[test]
fn conversion_refuses_to_overwrite_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let graph = Graph::random(9, 20, true);
    readers_fixtures::write_folder(&graph, &home.path().join("in"));
    let error =
        write_folder(&mut read(&home.path().join("in")), &home.path().join("in"), &Silent).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn undirected_adds_each_reverse_once_and_records_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("g.csv");
    fs::write(&file, "0,1\n1,1\n2,0\n").unwrap();
    let options = ReadOptions { undirected: true, ..ReadOptions::default() };
    let mut dataset = open(&file, None, &options).unwrap();
    assert!(dataset.undirected);
    let edges: Vec<_> = all_edges(&mut dataset).iter().map(|e| (e.0, e.1)).collect();
    assert_eq!(edges, [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0)]);

    let out = home.path().join("both");
    write_folder(&mut dataset, &out, &Silent).unwrap();
    let again = open(&out, None, &options).unwrap();
    assert_eq!(again.edges.len(), 5);
    assert!(again.notes.iter().any(|note| note.contains("both directions already")), "{:?}", again.notes);
}

#[test]
fn words_and_far_apart_numbers_are_names_in_order_of_first_appearance() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        ("words.txt", "anna berta\nberta carl\n\"anna\" carl\n", vec!["anna", "berta", "carl"]),
        ("words.csv", "from,to\n\"a, b\",c\nc,\"a, b\"\n", vec!["a, b", "c"]),
        ("far.tsv", "900000000000\t5\n5\t17\n", vec!["900000000000", "5", "17"]),
    ];
    for (name, text, names) in cases {
        let file = home.path().join(name);
        fs::write(&file, text).unwrap();
        let mut dataset = read(&file);
        assert_eq!(dataset.names.as_deref().unwrap(), names, "{name}");
        assert_eq!(dataset.nodes as usize, names.len(), "{name}");
        assert_eq!(all_edges(&mut dataset).len() as u64, dataset.edges.len());
    }
    let graph = Graph::random(12, 30, true);
    let file = home.path().join("edges.parquet");
    write_parquet_edges(&graph, &file, Some(&|id| format!("node-{id}")));
    let mut dataset = read(&file);
    let names = dataset.names.clone().unwrap();
    assert_eq!(names[0], format!("node-{}", graph.edges[0].0));
    let edges: Vec<_> = all_edges(&mut dataset).iter().map(|e| (e.0 as usize, e.1 as usize)).collect();
    let mut by_name: Vec<_> = edges.iter().map(|&(s, t)| (names[s].clone(), names[t].clone())).collect();
    let mut expected: Vec<_> =
        graph.edges.iter().map(|(s, t)| (format!("node-{s}"), format!("node-{t}"))).collect();
    by_name.sort();
    expected.sort();
    assert_eq!(by_name, expected);
}

#[test]
fn an_edge_list_understands_separators_comments_headers_and_weights() {
    let home = tempfile::tempdir().unwrap();
    let weights = ReadOptions { weights: true, ..ReadOptions::default() };
    let plain = [(0, 1, 1.0), (1, 2, 1.0)];
    let weighted = [(0, 1, 0.5), (1, 2, 2.0)];
    type Case<'a> = (&'a str, &'a str, bool, &'a [(u64, u64, f32)]);
    let cases: [Case; 8] = [
        ("a.csv", "0,1\n1,2\n", false, &plain),
        ("b.tsv", "% x\n0\t1\n\n1\t2", false, &plain),
        ("c.txt", "# x\r\n0   1\r\n 1 2 \r\n", false, &plain),
        ("d.csv", "source;target;w\n0;1;0.5\n1;2;2\n", false, &weighted),
        ("e.csv", "w,dst,src\n0.5,1,0\n2,2,1\n", false, &weighted),
        ("f.txt", "0 1 0.5\n1 2 2\n", true, &weighted),
        ("g.txt", "0 1 0.5\n1 2 2\n", false, &plain),
        ("h.csv", "first node,second node\n0,1\n1,2\n", false, &plain),
    ];
    for (name, text, ask, expected) in cases {
        let file = home.path().join(name);
        fs::write(&file, text).unwrap();
        let options = if ask { weights.clone() } else { ReadOptions::default() };
        let mut dataset = open(&file, None, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(all_edges(&mut dataset), expected, "{name}");
        assert_eq!(dataset.nodes, 3, "{name}");
    }
}

#[test]
fn other_number_types_byte_orders_and_element_orders_are_understood() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(home.path().join(name), bytes).unwrap();
    let be: Vec<u8> = [0i32, 1, 1, 2].iter().flat_map(|v| v.to_be_bytes()).collect();
    write("edge_index.npy", npy(">i4", "(2, 2)", &be));
    let x: Vec<u8> = [1.0f64, 3.0, 5.0, 2.0, 4.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut fortran = npy("<f8", "(3, 2)", &x);
    let at = fortran.windows(5).position(|w| w == b"False").unwrap();
    fortran[at..at + 5].copy_from_slice(b"True ");
    write("x.npy", fortran);
    write("y.npy", npy("|b1", "(3, 2)", &[1, 0, 0, 1, 1, 1]));
    write("train_mask.npy", npy("|b1", "(3,)", &[1, 0, 1]));
    let mut dataset = read(home.path());
    assert_eq!(all_edges(&mut dataset), [(0, 1, 1.0), (1, 2, 1.0)]);
    assert_eq!(dense(&dataset.features), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(
        matches!(&dataset.labels, Labels::Multi { classes: 2, values } if values[..] == [1, 0, 0, 1, 1, 1])
    );
    assert_eq!(dataset.splits.train, [0, 2]);
    assert!(dataset.notes.iter().any(|note| note.contains("float64")), "{:?}", dataset.notes);
    write("edge_index.npy", npy_i64("(3, 2)", [0, 1, 1, 2, 2, 0]));
    assert_eq!(all_edges(&mut read(home.path())), [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)]);
}

#[test]
fn a_partition_file_has_one_part_per_node() {
    let home = tempfile::tempdir().unwrap();
    let (text, array) = (home.path().join("g.part.3"), home.path().join("parts.npy"));
    fs::write(&text, "0\n2\n1\n").unwrap();
    fs::write(&array, npy_ids(&[0, 2, 1])).unwrap();
    for file in [&text, &array] {
        assert_eq!(read_part_file(file, 3).unwrap(), [0, 2, 1]);
        assert!(read_part_file(file, 4).unwrap_err().to_string().contains("each of 4 nodes"));
    }
    fs::write(&text, "0\nx\n").unwrap();
    assert!(read_part_file(&text, 2).unwrap_err().to_string().contains("line 2"));
}

#[test]
fn weighted_metis_graphs_keep_edge_weights_and_skip_node_weights() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("g.graph");
    fs::write(&file, "3 2 011 2\n7 7 2 5\n7 7 1 5 3 6\n7 7 2 6\n").unwrap();
    let mut dataset = read(&file);
    assert_eq!(all_edges(&mut dataset), [(0, 1, 5.0), (1, 0, 5.0), (1, 2, 6.0), (2, 1, 6.0)]);
}

#[test]
fn an_unknown_format_name_is_answered_with_the_nearest_and_an_unknown_file_with_the_list() {
    let home = tempfile::tempdir().unwrap();
    let error = open(home.path(), Some("graphbold"), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("did you mean `graphbolt`"), "{error}");
    let error = open(home.path(), None, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("edges.csv") && error.contains("adj_full.npz"), "{error}");
}

#[test]
fn a_check_finds_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let mut graph = Graph::random(9, 0, false);
    graph.edges = vec![(0, 1), (1, 0), (0, 1), (2, 2), (3, 4)];
    graph.weights = vec![1.0; 5];
    graph.x[7] = f32::NAN;
    graph.valid = vec![0, 3];
    readers_fixtures::write_folder(&graph, home.path());
    let report = check(&mut read(home.path()), &Silent).unwrap();
    let edges = &report.edge_report;
    assert_eq!((edges.self_loops, edges.duplicates, edges.without_reverse), (1, Some(1), Some(1)));
    assert_eq!((edges.isolated_nodes, edges.in_degree.max, edges.in_degree.max_node), (4, 2, 1));
    assert_eq!(report.unlabelled, 2);
    let said = |severity, text: &str| {
        let found = report.findings.iter().any(|f| f.severity == severity && f.message.contains(text));
        assert!(found, "{text}: {:#?}", report.findings);
    };
    said(Severity::Error, "the first is `NaN` at node 2, column 1");
    said(Severity::Error, "1 nodes are in the train and the valid split");
    said(Severity::Warning, "1 nodes of the valid split have no label");
    said(Severity::Warning, "classes are missing from the train split");
    said(Severity::Info, "1 edges have no reverse");
    assert_eq!(report.worst(), Some(Severity::Error));
    assert!(serde_json::to_string(&report).unwrap().contains("\"severity\":\"error\""));
}

#[test]
fn a_check_says_when_there_is_nothing_to_learn_from() {
    let home = tempfile::tempdir().unwrap();
    let mut graph = Graph::random(20, 30, false);
    readers_fixtures::write_folder(&graph, home.path());
    let said = |lacking: &str, path: &Path| {
        let report = check(&mut read(path), &Silent).unwrap();
        let sentence = format!("without {lacking} `archi train` has no classes to learn");
        let found = |f: &Finding| f.severity == Severity::Warning && f.message.starts_with(&sentence);
        assert!(report.findings.iter().any(found), "{:#?}", report.findings);
        assert_eq!((report.learnable, report.worst()), (0, Some(Severity::Warning)));
    };
    let report = check(&mut read(home.path()), &Silent).unwrap();
    let labelled = graph.train.iter().filter(|&&node| graph.y[node as usize] >= 0).count() as u64;
    assert_eq!(report.learnable, labelled);
    assert!(labelled > 0 && report.findings.iter().all(|f| !f.message.contains("no classes to learn")));

    graph.train.iter().for_each(|&node| graph.y[node as usize] = -1);
    readers_fixtures::write_folder(&graph, home.path());
    said("labelled training nodes", home.path());
    fs::remove_file(home.path().join("y.npy")).unwrap();
    said("labels", home.path());
    let edges = home.path().join("edges.csv");
    fs::write(&edges, "0,1\n1,0\n").unwrap();
    said("labels and training nodes", &edges);
    graph.train.clear();
    readers_fixtures::write_folder(&graph, home.path());
    said("training nodes", home.path());
}

/// The datasets that lie beside a checkout of the project, when they do.
fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
    if !path.is_dir() {
        eprintln!("note: `{}` is not there, its test was skipped", path.display());
    }
    path.is_dir().then_some(path)
}

#[test]
fn the_shared_datasets_read_as_their_readme_says_and_pass_the_check() {
    let sizes = [
        ("cora", 2_708, 10_556, 1_433, 7, [140, 500, 1_000]),
        ("citeseer", 3_327, 9_104, 3_703, 6, [120, 500, 1_000]),
        ("pubmed", 19_717, 88_648, 500, 3, [60, 500, 1_000]),
        ("amazon_computers", 13_752, 491_722, 767, 10, [8_251, 2_750, 2_751]),
        ("wordnet", 117_659, 367_578, 500, 45, [70_595, 23_532, 23_532]),
    ];
    for (name, nodes, edges, width, classes, splits) in sizes {
        let Some(path) = shared(name) else { continue };
        let mut dataset = read(&path);
        assert_eq!((dataset.nodes, dataset.edges.len(), dataset.undirected), (nodes, edges, true), "{name}");
        assert_eq!((dataset.features.width(), dataset.labels.classes()), (width, classes), "{name}");
        assert_eq!(dataset.splits.named().map(|(_, nodes)| nodes.len()), splits, "{name}");
        assert_eq!(matches!(dataset.features, Features::Sparse { .. }), name == "wordnet");
        assert_eq!(dataset.edge_columns.types, if name == "wordnet" { 52 } else { 0 });
        let report = check(&mut dataset, &Silent).unwrap();
        assert_ne!(report.worst(), Some(Severity::Error), "{name}: {:#?}", report.findings);
        let edges = &report.edge_report;
        assert_eq!(
            (edges.self_loops, edges.duplicates, edges.without_reverse),
            (0, Some(0), Some(0)),
            "{name}"
        );
    }
}

#[test]
fn the_second_split_of_a_folder_is_read_on_request() {
    let Some(path) = shared("amazon_computers") else { return };
    let options = ReadOptions { split: Some("alt".into()), ..ReadOptions::default() };
    assert_eq!(open(&path, None, &options).unwrap().splits.train.len(), 200);
    let options = ReadOptions { split: Some("other".into()), ..ReadOptions::default() };
    let error = open(&path, None, &options).unwrap_err().to_string();
    assert!(error.contains("alt_train_idx"), "{error}");
}
