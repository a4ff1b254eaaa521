//! Node columns of one part: features, labels, splits and names, checked once and copied row by row.
//!
//! Rows are visited in ascending original id, so a column that is memory-mapped from a file is read front to
//! back and never held whole.

use super::layout;
use super::output::Output;
use super::write::Relabelling;
use crate::array::Array;
use crate::dataset::{Dataset, Features, Labels};
use crate::partition::Assignment;
use crate::progress::Progress;
use crate::{Error, Result};
use std::ops::Range;

/// Rows copied between two looks at whether the user wants to stop.
const ROWS_PER_TICK: usize = 4096;

/// Refuses a dataset whose columns do not fit its number of nodes or whose values are out of range.
pub(super) fn check(dataset: &Dataset) -> Result<()> {
    check_features(&dataset.features, dataset.nodes)?;
    check_labels(&dataset.labels, dataset.nodes)?;
    for (what, names, count) in [
        ("names", &dataset.names, dataset.nodes),
        ("class names", &dataset.class_names, dataset.labels.classes() as u64),
    ] {
        if let Some(names) = names {
            expect_length(what, count, names.len())?;
        }
    }
    Ok(())
}

fn check_features(features: &Features, nodes: u64) -> Result<()> {
    match features {
        Features::None => Ok(()),
        Features::Dense { width, values } => {
            expect_length("features", nodes.saturating_mul(*width as u64), values.len())
        }
        Features::Sparse { width, offsets, columns, values } => {
            expect_length("feature offsets", nodes + 1, offsets.len())?;
            expect_length("feature columns", offsets[nodes as usize], columns.len())?;
            expect_length("feature values", offsets[nodes as usize], values.len())?;
            if offsets[0] != 0 || offsets.windows(2).any(|pair| pair[0] > pair[1]) {
                return Err(Error::usage("the feature offsets of the dataset do not ascend from 0"));
            }
            match columns.iter().find(|&&column| column as usize >= *width) {
                None => Ok(()),
                Some(column) => {
                    Err(Error::usage(format!("expected feature columns below {width}, found {column}")))
                }
            }
        }
    }
}

fn check_labels(labels: &Labels, nodes: u64) -> Result<()> {
    match labels {
        Labels::None => Ok(()),
        Labels::Multi { classes, values } => {
            expect_length("labels", nodes.saturating_mul(*classes as u64), values.len())
        }
        Labels::Classes { classes, values } => {
            expect_length("labels", nodes, values.len())?;
            match values.iter().position(|&class| class < -1 || class >= *classes as i64) {
                None => Ok(()),
                Some(node) => Err(Error::usage(format!(
                    "node {node} has class {}, expected -1 (no label) or a class below {classes}",
                    values[node]
                ))),
            }
        }
    }
}

fn expect_length(what: &str, expected: u64, found: usize) -> Result<()> {
    if found as u64 == expected { Ok(()) } else { Err(length(what, expected, found)) }
}

fn length(what: &str, expected: u64, found: usize) -> Error {
    Error::usage(format!("the {what} of the dataset: expected {expected}, found {found}"))
}

/// Writes the features of the nodes `owned`; the number of stored numbers if they are sparse.
pub(super) fn write_features(
    features: &Features,
    owned: &[u64],
    output: &mut Output,
    progress: &dyn Progress,
) -> Result<u64> {
    match features {
        Features::None => Ok(0),
        Features::Dense { width, values } => {
            let row = |node: u64| node as usize * width..(node as usize + 1) * width;
            write_rows(layout::FEATURES, values, owned, row, output, progress)?;
            Ok(0)
        }
        Features::Sparse { offsets, columns, values, .. } => {
            let row = |node: u64| offsets[node as usize] as usize..offsets[node as usize + 1] as usize;
            let mut starts = vec![0u64];
            starts.extend(owned.iter().scan(0, |end, &node| {
                *end += row(node).len() as u64;
                Some(*end)
            }));
            output.array(layout::FEATURE_OFFSETS, &starts)?;
            write_rows(layout::FEATURE_COLUMNS, columns, owned, row, output, progress)?;
            write_rows(layout::FEATURE_VALUES, values, owned, row, output, progress)?;
            Ok(starts[owned.len()])
        }
    }
}

/// Writes the rows of `owned` nodes, front to back, and lets go of what it has passed.
fn write_rows<T: bytemuck::Pod>(
    name: &str,
    values: &Array<T>,
    owned: &[u64],
    row: impl Fn(u64) -> Range<usize>,
    output: &mut Output,
    progress: &dyn Progress,
) -> Result<()> {
    output.stream(name, |file| {
        let mut passed = 0;
        owned.chunks(ROWS_PER_TICK).try_for_each(|nodes| {
            nodes.iter().try_for_each(|&node| file.put(&values[row(node)]))?;
            let end = row(nodes[nodes.len() - 1]).end;
            values.release_range(passed..end);
            passed = end;
            progress.tick(0)
        })
    })
}

/// Writes the labels of the nodes `owned`.
pub(super) fn write_labels(labels: &Labels, owned: &[u64], output: &mut Output) -> Result<()> {
    match labels {
        Labels::None => Ok(()),
        Labels::Classes { values, .. } => output.stream(layout::LABELS, |file| {
            owned.iter().try_for_each(|&node| file.put(&values[node as usize..node as usize + 1]))
        }),
        Labels::Multi { classes, values } => output.stream(layout::LABELS_MULTI, |file| {
            owned.iter().try_for_each(|&node| file.put(&values[node as usize * classes..][..*classes]))
        }),
    }
}

/// Writes the user's names of nodes and classes, one per line.
pub(super) fn write_names(dataset: &Dataset, output: &mut Output) -> Result<()> {
    for (file, names) in [(layout::NAMES, &dataset.names), (layout::CLASS_NAMES, &dataset.class_names)] {
        if let Some(names) = names {
            write_lines(names, file, output)?;
        }
    }
    Ok(())
}

fn write_lines(names: &[String], file: &str, output: &mut Output) -> Result<()> {
    if let Some(name) = names.iter().find(|name| name.contains(['\n', '\r'])) {
        return Err(Error::usage(format!("the name {name:?} spans several lines")));
    }
    output.stream(file, |file| {
        names.iter().try_for_each(|name| file.put(name.as_bytes()).and_then(|()| file.put(b"\n")))
    })
}

/// The splits as rows of parts.
pub(super) struct SplitRows {
    /// By split, then by part.
    rows: [Vec<Vec<u32>>; 3],
}

impl SplitRows {
    /// Distributes the splits of `dataset`; each names a node at most once.
    pub fn new(dataset: &Dataset, assignment: &Assignment, relabelling: &Relabelling) -> Result<Self> {
        let mut rows = [const { Vec::new() }; 3];
        for (rows, (name, nodes)) in rows.iter_mut().zip(dataset.splits.named()) {
            *rows = vec![Vec::new(); assignment.parts as usize];
            for &node in nodes {
                let Some(&part) = assignment.part_of.get(node as usize) else {
                    let message =
                        format!("split {name} names node {node}, but there are {} nodes", dataset.nodes);
                    return Err(Error::usage(message));
                };
                rows[part as usize].push(relabelling.row_of[node as usize]);
            }
            for (part, rows) in rows.iter_mut().enumerate() {
                rows.sort_unstable();
                if let Some(pair) = rows.windows(2).find(|pair| pair[0] == pair[1]) {
                    let node = relabelling.owned(part as u32)[pair[0] as usize];
                    return Err(Error::usage(format!("split {name} names node {node} twice"))
                        .with_hint("name every node once"));
                }
            }
        }
        Ok(Self { rows })
    }

    /// Writes the rows of `part`; how many there are in each split.
    pub fn write(&self, part: u32, output: &mut Output) -> Result<[u64; 3]> {
        let names = [layout::TRAIN, layout::VALID, layout::TEST];
        let mut counts = [0; 3];
        for ((name, rows), count) in names.into_iter().zip(&self.rows).zip(&mut counts) {
            output.array(name, &rows[part as usize])?;
            *count = rows[part as usize].len() as u64;
        }
        Ok(counts)
    }
}
