//! Damaged files: every reader answers `Ok` or an error that names the file, never with a panic, and never
//! allocates out of proportion to what it was given.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be written is a failed test")]

mod counting;
mod readers_fixtures;

use archipelago_graph::check::{Severity, check};
use archipelago_graph::dataset::EdgeChunk;
use archipelago_graph::progress::Silent;
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::read::{ReadOptions, open};
use archipelago_graph::{Error, Result};
use counting::{alone, peak_of};
use readers_fixtures::*;
use std::fs::{self, File};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Opens, streams twice and checks: everything that a run would do first.
fn use_everything(path: &Path, format: &str) -> Result<()> {
    let mut dataset = open(path, Some(format), &ReadOptions::default())?;
    let mut chunk = EdgeChunk::default();
    while dataset.edges.next_chunk(&mut chunk)? {
        assert!(chunk.sources.iter().chain(&chunk.targets).all(|&id| id < dataset.nodes), "an unchecked id");
    }
    dataset.edges.rewind()?;
    check(&mut dataset, &Silent)?;
    Ok(())
}

const ALWAYS: usize = 24 << 20;

/// The outcome for a damaged dataset must be quiet, small and say where.
fn survives(path: &Path, format: &str, damage: &str) -> Result<()> {
    let input: u64 = files_below(path).iter().map(|file| fs::metadata(file).map_or(0, |m| m.len())).sum();
    let (outcome, peak) = peak_of(|| catch_unwind(AssertUnwindSafe(|| use_everything(path, format))));
    let Ok(outcome) = outcome else { panic!("{}: panics on {damage}", path.display()) };
    assert!(peak < 64 * input as usize + ALWAYS, "{}: {peak} bytes held for {damage}", path.display());
    if let Err(error) = &outcome {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.to_string().contains(name), "{damage}: no file in `{error}`");
        assert!(!matches!(error, Error::Interrupted | Error::Unknown { .. }));
    }
    outcome
}

fn files_below(path: &Path) -> Vec<std::path::PathBuf> {
    Fixture { format: "", path: path.to_path_buf(), has_columns: false, weighted: false }.files()
}

/// Runs `damage` on each file of each fixture, restoring it after each outcome.
fn with_every_file(mut damage: impl FnMut(&Fixture, &Path, &[u8])) {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let graph = Graph::random(43, 90, true);
    for fixture in every_format(&graph, home.path()) {
        survives(&fixture.path, fixture.format, "nothing").unwrap_or_else(|error| panic!("{error}"));
        for file in fixture.files() {
            let whole = fs::read(&file).unwrap();
            damage(&fixture, &file, &whole);
            fs::write(&file, whole).unwrap();
        }
    }
}

#[test]
fn files_cut_short_anywhere() {
    with_every_file(|fixture, file, whole| {
        let step = (whole.len() / 24).max(1);
        for end in (0..whole.len()).step_by(step).chain([whole.len() - 1]) {
            fs::write(file, &whole[..end]).unwrap();
            let _ = survives(&fixture.path, fixture.format, &format!("{} cut at {end}", file.display()));
        }
    });
}

#[test]
fn files_with_a_byte_changed_anywhere() {
    let key = Key::new(11, Purpose::Generate);
    let mut draw = 0;
    with_every_file(|fixture, file, whole| {
        for _ in 0..40 {
            draw += 1;
            let at = key.below(2 * draw, whole.len() as u64) as usize;
            let mut bytes = whole.to_vec();
            bytes[at] ^= (key.below(2 * draw + 1, 255) + 1) as u8;
            fs::write(file, &bytes).unwrap();
            let _ = survives(&fixture.path, fixture.format, &format!("{} byte {at}", file.display()));
        }
    });
}

#[test]
fn files_that_are_empty_or_something_else_are_refused() {
    with_every_file(|fixture, file, whole| {
        let damage = format!("{} replaced", file.display());
        fs::write(file, b"").unwrap();
        let empty = survives(&fixture.path, fixture.format, &damage);
        let optional =
            fixture.format == "edge-list" || file.ends_with("train.csv.gz") || file.ends_with("valid.csv.gz");
        assert!(empty.is_err() || optional, "an empty {} is accepted", file.display());
        let mut other = whole.to_vec();
        other[..8.min(whole.len())].fill(0xff);
        fs::write(file, &other).unwrap();
        assert!(
            survives(&fixture.path, fixture.format, &damage).is_err(),
            "other magic in {}",
            file.display()
        );
        let noise: Vec<u8> =
            (0..whole.len() as u64).map(|i| Key::new(3, Purpose::Generate).bits(i) as u8).collect();
        fs::write(file, noise).unwrap();
        assert!(survives(&fixture.path, fixture.format, &damage).is_err(), "noise in {}", file.display());
    });
}

/// A fixture after one file was replaced: the error must contain each of `words`.
fn refused(format: &str, name: &str, words: &[&str], damage: impl FnOnce(&Path)) {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    every_format(&Graph::random(43, 90, true), home.path());
    let path = home.path().join(name);
    damage(&path);
    let error = survives(&path, format, "a false claim").unwrap_err().to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{name}: `{error}` lacks one of {words:?}");
}

#[test]
fn headers_that_claim_more_than_there_is_are_refused_by_name() {
    let huge = "(2, 1152921504606846976)";
    refused("folder", "folder_npy", &["edge_index.npy", "shape"], |path| {
        fs::write(path.join("edge_index.npy"), npy("<i8", huge, &[0; 64])).unwrap();
    });
    refused("folder", "folder_npy", &["edge_index.npy", "bytes of data"], |path| {
        fs::write(path.join("edge_index.npy"), npy("<i8", "(2, 70368744177664)", &[0; 64])).unwrap();
    });
    refused("folder", "folder_npz", &["data.npz", "array edge_index", "declares"], |path| {
        write_npz(&path.join("data.npz"), &[("edge_index", npy("<i8", "(2, 70368744177664)", &[0; 64]))]);
    });
    refused("folder", "folder_npy", &["meta.json", "number of nodes"], |path| {
        for name in ["x", "y"] {
            fs::remove_file(path.join(format!("{name}.npy"))).unwrap();
        }
        fs::write(path.join("meta.json"), r#"{"num_nodes": 1152921504606846976}"#).unwrap();
    });
    refused("folder", "folder_npy", &["array y", "classes"], |path| {
        fs::write(path.join("meta.json"), "{}").unwrap();
        fs::write(path.join("y.npy"), npy_i64("(43,)", (0..43).map(|node| node << 50))).unwrap();
    });
    refused("ogb", "ogb_text", &["num-node-list"], |path| {
        gz(&path.join("raw/num-node-list.csv.gz"), "1152921504606846976\n");
    });
    refused("ogb", "ogb_text", &["num-edge-list"], |path| {
        gz(&path.join("raw/num-edge-list.csv.gz"), "1152921504606846976\n");
    });
    refused("graphbolt", "graphbolt", &["metadata.yaml", "number of nodes"], |path| {
        let file = path.join("metadata.yaml");
        let text = fs::read_to_string(&file).unwrap().replace("num: 43", "num: 1152921504606846976");
        fs::write(file, text).unwrap();
    });
    refused("metis", "metis.graph", &["metis.graph", "line 1"], |path| {
        fs::write(path, "1152921504606846976 1152921504606846976\n1\n").unwrap();
    });
}

#[test]
fn ids_out_of_range_are_refused_at_their_place() {
    let mut graph = Graph::random(43, 90, true);
    graph.edges[17].1 = 43;
    let edges = npy_edges(&graph);
    refused("folder", "folder_npy", &["edge_index.npy", "edge 17", "`43`", "below 43"], |path| {
        fs::write(path.join("edge_index.npy"), &edges).unwrap();
    });
    refused("graphbolt", "graphbolt", &["edges.npy", "edge 17"], |path| {
        fs::write(path.join("edges.npy"), &edges).unwrap();
    });
    refused("ogb", "ogb_text", &["edge.csv.gz", "line 18"], |path| {
        gz(&path.join("raw/edge.csv.gz"), &edge_lines(&graph, ",", false));
    });
    refused("edge-list", "edge_list", &["edges.csv.gz", "line 19"], |path| {
        gz(&path.join("edges.csv.gz"), &format!("src,dst,weight\n{}", edge_lines(&graph, ",", true)));
    });
    refused("parquet", "parquet", &["edges.parquet", "column dst", "row 17"], |path| {
        write_parquet_edges(&graph, &path.join("edges.parquet"), None);
    });
    refused("metis", "metis.graph", &["metis.graph", "from 1 to 2", "`3`"], |path| {
        fs::write(path, "2 1\n2\n3\n").unwrap();
    });
    refused("saint", "saint", &["role.json", "train, element 1"], |path| {
        fs::write(path.join("role.json"), r#"{"tr": [1, 99], "va": [], "te": []}"#).unwrap();
    });
    refused("folder", "folder_npy", &["train_idx.npy", "element 0", "`-1`"], |path| {
        fs::write(path.join("train_idx.npy"), npy_i64("(1,)", [-1])).unwrap();
    });
}

#[test]
fn wrong_types_and_shapes_are_named() {
    let floats = npy_f32("(2, 3)", &[0.0; 6]);
    refused("folder", "folder_npy", &["edge_index.npy", "float32", "integer"], |path| {
        fs::write(path.join("edge_index.npy"), &floats).unwrap();
    });
    refused("folder", "folder_npy", &["meta.json", "expected 2, the rows of array x", "`43`"], |path| {
        fs::write(path.join("x.npy"), &floats).unwrap();
    });
    refused("folder", "folder_npy", &["y.npy", "each of 43 nodes", "[2, 3]"], |path| {
        fs::write(path.join("y.npy"), &floats).unwrap();
    });
    refused("folder", "folder_npy", &["edge_weight.npy", "one weight"], |path| {
        fs::write(path.join("edge_weight.npy"), npy_f32("(1,)", &[0.0])).unwrap();
    });
    refused("folder", "folder_npy", &["y.npy", "`<c8`"], |path| {
        fs::write(path.join("y.npy"), npy("<c8", "(43,)", &[0; 344])).unwrap();
    });
    refused("saint", "saint", &["adj_full.npz", "indptr", "element 2"], |path| {
        let members = [
            ("indices", npy_ids(&[0, 1])),
            ("indptr", npy_ids(&[0, 3, 2])),
            ("shape", npy_ids(&[2, 2])),
            ("data", npy_ids(&[1, 1])),
        ];
        write_npz(&path.join("adj_full.npz"), &members);
    });
    refused(
        "edge-list",
        "plain.tsv",
        &["plain.tsv", "line 2", "a source and a destination", "`7`"],
        |path| {
            fs::write(path, "0\t1\n7\n").unwrap();
        },
    );
}

#[test]
fn a_small_archive_that_unpacks_to_very_much_is_refused_before_it_does() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("data.npz");
    let mut zip = zip::ZipWriter::new(File::create(&file).unwrap());
    zip.start_file("edge_index.npy", zip::write::SimpleFileOptions::default()).unwrap();
    let edges = 16 << 20;
    zip.write_all(&npy("<i8", &format!("(2, {edges})"), &[])).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..(16 * edges) >> 20 {
        zip.write_all(&zeros).unwrap();
    }
    zip.finish().unwrap();
    drop(zeros);
    let error = survives(home.path(), "folder", "a zip bomb").unwrap_err().to_string();
    assert!(error.contains("data.npz") && error.contains("declares"), "{error}");
}

#[test]
fn a_packed_text_without_line_ends_is_refused() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("edges.csv.gz");
    let mut encoder =
        flate2::write::GzEncoder::new(File::create(&file).unwrap(), flate2::Compression::fast());
    for _ in 0..64 {
        encoder.write_all(&[b'1'; 1 << 20]).unwrap();
    }
    encoder.finish().unwrap();
    let (outcome, peak) = peak_of(|| use_everything(&file, "edge-list"));
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("edges.csv.gz") && error.contains("a line of at most"), "{error}");
    assert!(peak < 80 << 20, "{peak}");
}

#[test]
fn features_that_are_no_numbers_are_read_and_reported_by_the_check() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let mut graph = Graph::random(43, 90, true);
    graph.x[4] = f32::INFINITY;
    for fixture in every_format(&graph, home.path()).iter().filter(|fixture| fixture.has_columns) {
        let mut dataset = open(&fixture.path, None, &ReadOptions::default()).unwrap();
        let report = check(&mut dataset, &Silent).unwrap();
        assert_eq!(report.worst(), Some(Severity::Error), "{}", fixture.path.display());
        assert!(report.findings[0].message.contains("node 1, column 1"), "{:?}", report.findings[0]);
    }
}
