//! Inference where parts take turns: what a model says of every node, with one part at a time in memory.
//!
//! Rows of the last layer come to rank 0 phase by phase and wait there in a scratch file. A part's
//! nodes are in ascending original id, so the user's order is a merge of as many sorted lists as there are parts: it is
//! made a window at a time and written to a second scratch file, which is then read in place.
//!
//! Memory at rank 0 beyond that of evaluation: rows and ids of one phase, then one window. On disk: every number
//! twice until it is in order, then once.

use crate::Result;
use crate::evaluate_turns::last_rows;
use crate::infer::Predictions;
use crate::scratch::{Scratch, Span};
use crate::worker::Worker;
use archipelago_comm::{Comm, Kind};
use archipelago_graph::array::Array;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers of a window: 16 MB.
const WINDOW: usize = 4 << 20;

/// Runs the model in turns and brings its rows to rank 0.
pub(crate) fn predict(worker: &mut Worker, embeddings: bool, folder: &Path) -> Result<Option<Predictions>> {
    let (comm, shape) = (Arc::clone(&worker.comm), worker.model.shape());
    let (classes, width) = (shape.output, shape.layer(shape.layers - 1).input);
    let nodes = worker.part.starts().last().copied().unwrap_or(0) as usize;
    let mut arrivals = Arrivals::new(folder, WINDOW)?;
    last_rows(worker, embeddings, &mut |said| {
        let ids = said.part.map_or(&[][..], |part| part.original());
        arrivals.gather(&comm, ids, said.output, embeddings.then_some(said.read))
    })?;
    if comm.rank() > 0 {
        return Ok(None);
    }
    let scores = arrivals.in_order(&arrivals.scores, nodes, classes)?;
    let embeddings = match embeddings {
        true => Some((width, arrivals.in_order(&arrivals.embeddings, nodes, width)?)),
        false => None,
    };
    Ok(Some(Predictions { nodes, classes, scores, embeddings }))
}

/// Rows of the parts that have arrived at rank 0. On other ranks nothing ever does.
struct Arrivals {
    scratch: Scratch,
    folder: PathBuf,
    window: usize,
    /// Original ids of each part, ascending.
    ids: Vec<Span<u64>>,
    /// Rows of each part, in the order of its ids.
    scores: Vec<Span<f32>>,
    /// The same of what the last layer read, where that is wanted.
    embeddings: Vec<Span<f32>>,
}

impl Arrivals {
    /// None yet. Files go to `folder`; what is put in order takes memory for `window` numbers.
    fn new(folder: &Path, window: usize) -> Result<Self> {
        let scratch = Scratch::new(folder)?;
        let folder = folder.to_path_buf();
        Ok(Self { scratch, folder, window, ids: Vec::new(), scores: Vec::new(), embeddings: Vec::new() })
    }

    /// Brings the rows of one phase to rank 0; all ranks together, also those that have none.
    fn gather(&mut self, comm: &Comm, ids: &[u64], scores: &[f32], read: Option<&[f32]>) -> Result<()> {
        for ids in comm.gather(0, ids, Kind::Control)?.into_iter().flatten() {
            self.ids.push(self.scratch.put(&ids)?);
        }
        for rows in comm.gather(0, scores, Kind::Embeddings)?.into_iter().flatten() {
            self.scores.push(self.scratch.put(&rows)?);
        }
        let Some(read) = read else { return Ok(()) };
        for rows in comm.gather(0, read, Kind::Embeddings)?.into_iter().flatten() {
            self.embeddings.push(self.scratch.put(&rows)?);
        }
        Ok(())
    }

    /// `rows` of all parts, `width` numbers each, in the order of their original ids, which are those below `nodes`.
    fn in_order(&self, rows: &[Span<f32>], nodes: usize, width: usize) -> Result<Array<f32>> {
        let mut ordered = Scratch::new(&self.folder)?;
        let step = (self.window / width.max(1)).max(1);
        let mut next = vec![0; rows.len()];
        let mut stretch = Vec::new();
        for start in (0..nodes).step_by(step) {
            let end = nodes.min(start + step);
            let mut window = vec![0f32; (end - start) * width];
            for ((&rows, &ids), next) in rows.iter().zip(&self.ids).zip(&mut next) {
                let found = self.ids_below(ids, *next, end as u64, step / self.ids.len())?;
                stretch.resize(found.len() * width, 0.0);
                self.scratch.read(rows, *next * width, &mut stretch)?;
                for (id, row) in found.iter().zip(stretch.chunks_exact(width.max(1))) {
                    window[(*id as usize - start) * width..][..width].copy_from_slice(row);
                }
                *next += found.len();
            }
            ordered.put(&window)?;
        }
        ordered.into_array()
    }

    /// The ids of a part from the one at `next` on that are below `end`, of which there are about `expected`.
    fn ids_below(&self, ids: Span<u64>, next: usize, end: u64, expected: usize) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        while next + found.len() < ids.len() {
            let at = next + found.len();
            let mut some = vec![0; expected.max(64).min(ids.len() - at)];
            self.scratch.read(ids, at, &mut some)?;
            let below = some.partition_point(|&id| id < end);
            found.extend_from_slice(&some[..below]);
            if below < some.len() {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_of_parts_are_put_into_the_order_of_nodes(
            parts in prop::collection::vec(0usize..5, 0..400),
            width in 1usize..4,
            window in 1usize..300,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut arrivals = Arrivals::new(folder.path(), window).unwrap();
            let number = |node: usize, column: usize| (10 * node + column) as f32;
            for part in 0..5 {
                let nodes: Vec<usize> = (0..parts.len()).filter(|&node| parts[node] == part).collect();
                let ids: Vec<u64> = nodes.iter().map(|&node| node as u64).collect();
                let row = |&node: &usize| (0..width).map(move |column| number(node, column));
                let rows: Vec<f32> = nodes.iter().flat_map(row).collect();
                arrivals.ids.push(arrivals.scratch.put(&ids).unwrap());
                arrivals.scores.push(arrivals.scratch.put(&rows).unwrap());
            }
            let found = arrivals.in_order(&arrivals.scores, parts.len(), width).unwrap();
            let all = (0..parts.len()).flat_map(|node| (0..width).map(move |column| number(node, column)));
            prop_assert_eq!(&found[..], &all.collect::<Vec<_>>()[..]);
        }
    }
}
