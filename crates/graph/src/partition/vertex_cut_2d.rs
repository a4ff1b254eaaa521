//! A two-dimensional hash grid: an edge goes to the row of its source and the column of its target.
//!
//! The `vertex-cut` of GraphTheta (Liu et al., 2022, section 5.4: "a 2D-grid partitioning method" that hashes source
//! and target). With R rows of C parts, a node's out-edges lie in one row and its in-edges in one column, so it has at
//! most `R + C - 1` copies whatever its degree. R is the root of P, rounded down; where R does not divide P, some rows
//! are one part longer and are chosen as much more often, so loads stay equal on average.
//! One pass, nothing is remembered; memory: O(parts).

use super::by_edges::place_each;
use super::passes::small_nodes;
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::random::{Key, Purpose};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "vertex-cut-2d",
    summary: "edges on a grid of parts: the row of their source, the column of their target",
    paper: "Liu et al., GraphTheta: A Distributed Graph Neural Network Learning System With Flexible Training \
            Strategy, 2022",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[],
    build: || Box::new(ByEdges(VertexCut2d)),
};

/// Two-dimensional hashing.
#[derive(Debug, Clone, Copy)]
pub struct VertexCut2d;

impl EdgePartitioner for VertexCut2d {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        small_nodes(dataset, request)?;
        let key = Key::new(request.seed, Purpose::Partition);
        let (row_key, column_key) = (key.with(0), key.with(1));
        let rows = rows(request.parts);
        place_each(dataset, progress, sink, |edge| {
            let [source, target] = edge.ends();
            let (start, length) = rows[row_key.below(u64::from(source), rows.len() as u64) as usize];
            start + column_key.below(u64::from(target), u64::from(length)) as u32
        })
    }
}

/// The row of every part: its first part and its length. Long rows are met more often by a random part.
fn rows(parts: u32) -> Vec<(u32, u32)> {
    let rows = parts.isqrt();
    let start = |row: u32| (u64::from(row) * u64::from(parts) / u64::from(rows)) as u32;
    (0..rows)
        .flat_map(|row| {
            let (first, next) = (start(row), start(row + 1));
            (first..next).map(move |_| (first, next - first))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_many_as_long_or_one_shorter() {
        assert_eq!(rows(1), [(0, 1)]);
        assert_eq!(rows(4), [(0, 2), (0, 2), (2, 2), (2, 2)]);
        assert_eq!(rows(7), [(0, 3), (0, 3), (0, 3), (3, 4), (3, 4), (3, 4), (3, 4)]);
    }
}
