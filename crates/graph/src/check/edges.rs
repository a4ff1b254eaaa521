//! What a pass over the edges shows: self-loops, duplicates, missing reverses, isolated nodes, degrees.

use super::{Degrees, EdgeReport, Findings, LARGEST_EXACT};
use crate::Result;
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;
use rayon::prelude::*;

/// Checks the edges of `dataset` and leaves them rewound.
pub(super) fn check(
    dataset: &mut Dataset,
    findings: &mut Findings,
    progress: &dyn Progress,
) -> Result<EdgeReport> {
    let count = dataset.edges.len();
    let mut in_degrees = vec![0u64; dataset.nodes as usize];
    let mut out_degrees = in_degrees.clone();
    let mut pairs = (count <= LARGEST_EXACT).then(Vec::new);
    let (mut self_loops, mut bad_numbers) = (0, 0);
    progress.begin("checking edges", count, "edges");
    dataset.edges.rewind()?;
    let mut chunk = EdgeChunk::default();
    while dataset.edges.next_chunk(&mut chunk)? {
        for (&source, &target) in chunk.sources.iter().zip(&chunk.targets) {
            self_loops += u64::from(source == target);
            out_degrees[source as usize] += 1;
            in_degrees[target as usize] += 1;
        }
        bad_numbers += not_finite(&chunk.weights) + not_finite(&chunk.attributes);
        if let Some(pairs) = &mut pairs {
            pairs.extend(chunk.sources.iter().zip(&chunk.targets).map(|(&source, &target)| (source, target)));
        }
        progress.tick(chunk.len() as u64)?;
    }
    dataset.edges.rewind()?;
    let exact = pairs.map(|pairs| compare(pairs, dataset.nodes, progress));
    let isolated = in_degrees.iter().zip(&out_degrees).filter(|(i, o)| **i + **o == 0).count() as u64;
    let report = EdgeReport {
        self_loops,
        duplicates: exact.map(|(duplicates, _)| duplicates),
        without_reverse: exact.map(|(_, without)| without),
        isolated_nodes: isolated,
        in_degree: degrees(&in_degrees, dataset.names.as_deref()),
        out_degree: degrees(&out_degrees, dataset.names.as_deref()),
    };
    if bad_numbers > 0 {
        findings.error(format!("{bad_numbers} edge weights or attributes are NaN or infinite"));
    }
    describe(&report, dataset, findings);
    Ok(report)
}

fn not_finite(numbers: &[f32]) -> u64 {
    numbers.iter().filter(|number| !number.is_finite()).count() as u64
}

/// Duplicates, and distinct edges without their reverse, by sorting and then searching the row of each target.
fn compare(mut pairs: Vec<(u64, u64)>, nodes: u64, progress: &dyn Progress) -> (u64, u64) {
    progress.begin("looking for duplicates", pairs.len() as u64, "edges");
    let all = pairs.len();
    pairs.par_sort_unstable();
    pairs.dedup();
    let mut starts = vec![0usize; nodes as usize + 1];
    pairs.iter().for_each(|(source, _)| starts[*source as usize + 1] += 1);
    for node in 0..nodes as usize {
        starts[node + 1] += starts[node];
    }
    let has_reverse = |&(source, target): &(u64, u64)| {
        let row = &pairs[starts[target as usize]..starts[target as usize + 1]];
        row.binary_search(&(target, source)).is_ok()
    };
    let without = pairs.par_iter().filter(|pair| !has_reverse(pair)).count();
    ((all - pairs.len()) as u64, without as u64)
}

fn degrees(of: &[u64], names: Option<&[String]>) -> Degrees {
    let (max_node, max) = of.iter().enumerate().max_by_key(|(_, degree)| **degree).unwrap_or((0, &0));
    let mean = of.iter().sum::<u64>() as f64 / of.len().max(1) as f64;
    let max_name = names.and_then(|names| names.get(max_node).cloned());
    Degrees { max: *max, max_node: max_node as u64, max_name, mean }
}

fn describe(report: &EdgeReport, dataset: &Dataset, findings: &mut Findings) {
    if dataset.nodes == 0 {
        findings.error("the dataset has no nodes".into());
    }
    if dataset.edges.is_empty() {
        findings.warning("the dataset has no edges".into());
    }
    if report.self_loops > 0 {
        findings
            .info(format!("{} self-loops are kept; models that want their own add them", report.self_loops));
    }
    if report.isolated_nodes > 0 {
        findings.info(format!("{} nodes have no edge", report.isolated_nodes));
    }
    match report.duplicates {
        None => findings
            .info(format!("more than {LARGEST_EXACT} edges: duplicates and reverses were not counted")),
        Some(0) => {}
        Some(count) => {
            findings.warning(format!("{count} edges repeat another one; they are kept and count twice"))
        }
    }
    match (report.without_reverse, dataset.undirected) {
        (Some(0), false) if !dataset.edges.is_empty() => {
            findings.info("every edge has its reverse: the graph is undirected".into());
        }
        (Some(count), true) if count > 0 => {
            findings.error(format!("the dataset says it is undirected, but {count} edges have no reverse"));
        }
        (Some(count), false) if count > 0 => {
            findings.info(format!("the graph is directed: {count} edges have no reverse"));
        }
        _ => {}
    }
}
