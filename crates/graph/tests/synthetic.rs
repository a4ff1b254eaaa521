//! What generated graphs promise: the counts asked for, the structure they are named after, the same bits always.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod nasty;

use archipelago_graph::dataset::{Dataset, EdgeChunk, Features, Labels};
use archipelago_graph::progress::Silent;
use archipelago_graph::synthetic::rmat::{self, RmatOptions};
use archipelago_graph::synthetic::sbm::{self, SbmOptions};
use archipelago_graph::synthetic::{self, GENERATORS, Request, small};
use std::collections::BTreeSet;

fn pairs(dataset: &mut Dataset) -> Vec<(u64, u64)> {
    let (mut chunk, mut pairs) = (EdgeChunk::default(), Vec::new());
    dataset.edges.rewind().unwrap();
    while dataset.edges.next_chunk(&mut chunk).unwrap() {
        assert!(chunk.len() <= EdgeChunk::EDGES);
        pairs.extend(chunk.sources.iter().copied().zip(chunk.targets.iter().copied()));
    }
    assert!(chunk.is_empty());
    assert_eq!(pairs.len() as u64, dataset.edges.len());
    pairs
}

fn features(dataset: &Dataset) -> &[f32] {
    match &dataset.features {
        Features::Dense { values, .. } => values,
        other => panic!("expected dense features, found {other:?}"),
    }
}

fn classes(dataset: &Dataset) -> &[i64] {
    match &dataset.labels {
        Labels::Classes { values, .. } => values,
        other => panic!("expected classes, found {other:?}"),
    }
}

fn both_ways(pairs: &[(u64, u64)]) -> bool {
    let mut there = pairs.to_vec();
    let mut back: Vec<_> = pairs.iter().map(|&(u, v)| (v, u)).collect();
    there.sort_unstable();
    back.sort_unstable();
    there == back
}

fn sbm_options() -> SbmOptions {
    SbmOptions { nodes: 4000, edges: 80_000, features: 32, classes: 8, seed: 3, ..SbmOptions::default() }
}

#[test]
fn every_generator_gives_whole_datasets_that_repeat_and_follow_the_seed() {
    for entry in GENERATORS {
        let request = Request { nodes: 256, features: 4, classes: 3, edges: 2000, ..(entry.defaults)() };
        let mut first = (entry.generate)(&request, &Silent).unwrap();
        let mut again = (entry.generate)(&request, &Silent).unwrap();
        let other = (entry.generate)(&Request { seed: 99, ..request }, &Silent).unwrap();
        let edges = pairs(&mut first);
        assert_eq!(edges, pairs(&mut again), "{}", entry.name);
        assert_eq!(edges, pairs(&mut first), "{}: a second pass", entry.name);
        assert!(edges.iter().all(|&(u, v)| u < 256 && v < 256));
        assert_eq!(first.undirected, both_ways(&edges), "{}", entry.name);
        assert_eq!(features(&first).len(), 256 * 4);
        assert_eq!(features(&first), features(&again));
        assert_ne!(features(&first), features(&other));
        assert!(classes(&first).iter().all(|class| (0..3).contains(class)));
        let splits: Vec<u64> = first.splits.named().iter().flat_map(|(_, nodes)| nodes.to_vec()).collect();
        assert!(!first.splits.train.is_empty() && splits.iter().all(|&node| node < 256));
        assert_eq!(splits.iter().collect::<BTreeSet<_>>().len(), splits.len(), "splits overlap");
    }
}

#[test]
fn generators_work_without_features_and_labels_and_refuse_what_they_cannot_make() {
    for entry in GENERATORS {
        let request = Request { nodes: 64, edges: 300, features: 0, classes: 0, ..(entry.defaults)() };
        match (entry.generate)(&request, &Silent) {
            Ok(dataset) => {
                assert!(matches!((dataset.features, dataset.labels), (Features::None, Labels::None)))
            }
            Err(error) => assert!(entry.name == "sbm" && error.to_string().contains("class"), "{error}"),
        }
        let request = Request { multilabel: true, edge_attributes: 2, classes: 5, ..request };
        match (entry.generate)(&request, &Silent) {
            Ok(dataset) => assert!(entry.name == "sbm" && dataset.labels.is_multi()),
            Err(error) => assert!(error.to_string().contains("`sbm` can"), "{error}"),
        }
    }
    assert!(synthetic::find("sbn").unwrap_err().to_string().contains("did you mean `sbm`"));
}

#[test]
fn communities_have_the_edges_asked_for_both_ways_without_loops_or_duplicates() {
    let mut dataset = sbm::generate(&sbm_options(), &Silent).unwrap();
    let edges = pairs(&mut dataset);
    assert_eq!(edges.len(), 80_000);
    assert!(both_ways(&edges) && edges.is_sorted());
    assert!(edges.windows(2).all(|pair| pair[0] != pair[1]) && edges.iter().all(|(u, v)| u != v));
    let [train, valid, test] = dataset.splits.named().map(|(_, nodes)| nodes.len());
    assert_eq!((train, valid, test), (800, 400, 2800));
}

#[test]
fn neighbors_tell_more_about_the_class_than_features_do() {
    let options = SbmOptions { features: 128, classes: 40, ..sbm_options() };
    let mut dataset = sbm::generate(&options, &Silent).unwrap();
    let (edges, classes) = (pairs(&mut dataset), classes(&dataset).to_vec());
    let same = edges.iter().filter(|&&(u, v)| classes[u as usize] == classes[v as usize]).count();
    let homophily = same as f64 / edges.len() as f64;
    assert!((0.5..0.85).contains(&homophily), "{homophily}");
    let mut averaged = features(&dataset).to_vec();
    for &(source, target) in &edges {
        let source = &features(&dataset)[source as usize * 128..][..128];
        averaged[target as usize * 128..][..128].iter_mut().zip(source).for_each(|(sum, x)| *sum += x);
    }
    let (alone, together) = (accuracy(features(&dataset), &classes), accuracy(&averaged, &classes));
    assert!(together > alone + 0.15, "features alone {alone}, with neighbours {together}");
    assert!((0.3..0.8).contains(&alone), "{alone}");
}

/// Share of nodes whose 128 features point most in the direction of their own class's mean, of 40.
fn accuracy(features: &[f32], classes: &[i64]) -> f64 {
    let mut means = vec![[0f32; 128]; 40];
    for (row, &class) in features.chunks_exact(128).zip(classes) {
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        means[class as usize].iter_mut().zip(row).for_each(|(mean, &x)| *mean += x / norm);
    }
    for mean in &mut means {
        let norm = mean.iter().map(|x| x * x).sum::<f32>().sqrt();
        mean.iter_mut().for_each(|x| *x /= norm);
    }
    let score = |row: &[f32], mean: &[f32; 128]| row.iter().zip(mean).map(|(x, m)| x * m).sum::<f32>();
    let right = features.chunks_exact(128).zip(classes).filter(|(row, class)| {
        let own = score(row, &means[**class as usize]);
        means.iter().all(|mean| score(row, mean) <= own)
    });
    right.count() as f64 / classes.len() as f64
}

#[test]
fn degrees_follow_a_power_law_and_hubs_stay_bounded() {
    let mut dataset = sbm::generate(&sbm_options(), &Silent).unwrap();
    let mut degrees = vec![0u64; 4000];
    pairs(&mut dataset).iter().for_each(|&(_, target)| degrees[target as usize] += 1);
    degrees.sort_unstable();
    let (median, largest) = (degrees[2000], degrees[3999]);
    assert!(median < 20 && largest > 4 * median, "median {median}, largest {largest}");
    assert!(largest < 4000 / 10, "{largest}");
}

#[test]
fn edge_attributes_tell_edges_inside_a_class_from_the_others() {
    let options = SbmOptions { edge_attributes: 4, multilabel: true, ..sbm_options() };
    let mut dataset = sbm::generate(&options, &Silent).unwrap();
    assert_eq!(dataset.edge_columns.attribute_width, 4);
    let mut chunk = EdgeChunk::default();
    assert!(dataset.edges.next_chunk(&mut chunk).unwrap());
    assert_eq!(chunk.attributes.len(), 4 * chunk.len());
    let Labels::Multi { values, .. } = &dataset.labels else { panic!("several labels were asked for") };
    let labels = |node: u64| &values[node as usize * 8..][..8];
    assert!((0..4000).all(|node| (1..=2).contains(&labels(node).iter().sum::<u8>())));
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for (edge, row) in chunk.attributes.chunks_exact(4).enumerate() {
        let same = usize::from(labels(chunk.sources[edge]) == labels(chunk.targets[edge]));
        sums[same] += row.iter().map(|x| f64::from(x * x)).sum::<f64>();
        counts[same] += 1.0;
    }
    let [across, inside] = [sums[0] / counts[0], sums[1] / counts[1]];
    assert!((3.8..4.2).contains(&across) && inside > across + 5.0, "across {across}, inside {inside}");
}

#[test]
fn tiny_and_impossible_communities_are_made_or_refused_never_waited_for() {
    for nodes in [0u64, 1, 2, 5] {
        let most = nodes * nodes.saturating_sub(1);
        let mut dataset =
            sbm::generate(&SbmOptions { nodes, edges: most, ..sbm_options() }, &Silent).unwrap();
        assert!(pairs(&mut dataset).len() as u64 <= most);
        let more = SbmOptions { nodes, edges: most + 2, ..sbm_options() };
        assert!(sbm::generate(&more, &Silent).unwrap_err().to_string().contains("pairs of nodes"));
    }
    let crowded = SbmOptions { nodes: 200, edges: 200 * 199, homophily: 1.0, far: 0.0, ..sbm_options() };
    let dataset = sbm::generate(&crowded, &Silent).unwrap();
    assert!(dataset.edges.len() < 200 * 199 && dataset.notes[0].contains("fewer than asked for"));
}

fn rmat_options() -> RmatOptions {
    RmatOptions { scale: 12, edges: 200_000, features: 8, classes: 4, seed: 1, scratch: None }
}

#[test]
fn rmat_is_skewed_scrambled_and_free_of_self_loops() {
    let mut dataset = rmat::stream(&rmat_options(), &Silent).unwrap();
    let edges = pairs(&mut dataset);
    assert_eq!((dataset.nodes, edges.len()), (4096, 200_000));
    assert!(both_ways(&edges) && edges.iter().all(|(u, v)| u != v));
    let mut degrees = vec![0u64; 4096];
    edges.iter().for_each(|&(_, target)| degrees[target as usize] += 1);
    let hub = degrees.iter().position(|degree| degree == degrees.iter().max().unwrap()).unwrap();
    assert!(degrees[hub] > 20 * 200_000 / 4096 && hub != 0, "node {hub} has degree {}", degrees[hub]);
    let low: u64 = degrees[..2048].iter().sum();
    assert!((60_000..140_000).contains(&low), "ids are not scrambled: {low}");
}

#[test]
fn rmat_scrambling_loses_no_node() {
    let options = RmatOptions { scale: 3, edges: 4000, features: 0, classes: 0, ..rmat_options() };
    let edges = pairs(&mut rmat::stream(&options, &Silent).unwrap());
    assert_eq!(edges.iter().map(|edge| edge.0).collect::<BTreeSet<_>>().len(), 8);
}

#[test]
fn rmat_keeps_its_columns_in_a_file_without_a_name() {
    let scratch = nasty::home();
    let options = RmatOptions { scratch: Some(scratch.path().to_path_buf()), ..rmat_options() };
    let dataset = rmat::stream(&options, &Silent).unwrap();
    let Features::Dense { values, .. } = &dataset.features else { panic!("features were asked for") };
    assert!(matches!(values, archipelago_graph::array::Array::Mapped(_)));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64;
    assert!(mean.abs() < 0.03, "{mean}");
}

#[test]
fn rmat_refuses_node_counts_that_are_no_power_of_two() {
    let entry = synthetic::find("rmat").unwrap();
    let error = (entry.generate)(&Request { nodes: 1000, ..(entry.defaults)() }, &Silent).unwrap_err();
    assert!(error.to_string().contains("the next one is 1024"), "{error}");
    assert!(rmat::stream(&RmatOptions { scale: 41, ..rmat_options() }, &Silent).is_err());
}

#[test]
fn small_shapes_are_what_they_are_called() {
    assert_eq!(pairs(&mut small::path(3)), [(0, 1), (1, 0), (1, 2), (2, 1)]);
    assert_eq!(pairs(&mut small::star(3)), [(0, 1), (1, 0), (0, 2), (2, 0)]);
    assert_eq!(pairs(&mut small::uniform(5, 40, 1)).len(), 40);
    for nodes in [0, 1] {
        assert!(pairs(&mut small::path(nodes)).is_empty() && pairs(&mut small::star(nodes)).is_empty());
    }
}
