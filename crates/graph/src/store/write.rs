//! Writing a store from a dataset and an assignment, in bounded memory.
//!
//! One pass over the edge stream sorts edges into temporary buckets, one per stretch of targets with a bounded
//! number of in-edges (a pass before it counts them, if the graph is large); then one part at a time, stretch by
//! stretch, is turned into compressed lists and written, its node columns copied row by row. Memory: 20 bytes per
//! node, 64 MB of bucket buffers, and at most 112 MB of one stretch (or 28 bytes per in-edge of a single node, if that
//! is more), however many edges there are. Everything happens in a staging folder that gets its name in the last step, so an error, a cancel or a kill leaves no half store.

use super::bucket::{Buckets, fill};
use super::lists::InLists;
use super::manifest::{Manifest, PartEntry, PartitionKind};
use super::output::Output;
use super::{columns, layout};
use crate::atomic::NewFolder;
use crate::dataset::Dataset;
use crate::marks::Marks;
use crate::partition::Assignment;
use crate::progress::Progress;
use crate::quality::{PartQuality, Quality};
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// What the store remembers about how it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Name of the partitioner.
    pub method: String,
    /// Its seed.
    pub seed: u64,
    /// Its settings, defaults included.
    pub settings: BTreeMap<String, String>,
    /// What it balanced besides nodes.
    pub balance: Vec<String>,
}

impl From<Meta> for PartitionKind {
    fn from(Meta { method, seed, settings, balance }: Meta) -> Self {
        Self { method, seed, settings, balance }
    }
}

/// In-edges of a stretch, which are turned into lists at once.
const STRETCH_EDGES: u64 = 4 << 20;

/// Writes `dataset`, cut by `assignment`, as a new store at `out`.
pub fn write(
    dataset: &mut Dataset,
    assignment: &Assignment,
    meta: &Meta,
    out: &Path,
    progress: &dyn Progress,
) -> Result<Manifest> {
    write_in_stretches(dataset, assignment, meta, STRETCH_EDGES, out, progress)
}

fn write_in_stretches(
    dataset: &mut Dataset,
    assignment: &Assignment,
    meta: &Meta,
    most: u64,
    out: &Path,
    progress: &dyn Progress,
) -> Result<Manifest> {
    assignment.check(dataset.nodes)?;
    columns::check(dataset)?;
    let relabelling = Relabelling::new(assignment)?;
    let splits = columns::SplitRows::new(dataset, assignment, &relabelling)?;
    let folder = NewFolder::create(out)?;
    let buckets = fill(dataset, assignment, &relabelling, most, &folder.path().join("buckets"), progress)?;
    let mut job = Job { dataset, relabelling, splits, buckets, progress, root: folder.path() };
    let parts = job.write_parts(assignment.parts)?;
    job.buckets.remove()?;
    let manifest = job.write_root(parts, meta)?;
    folder.commit()?;
    Ok(manifest)
}

/// From original ids to global ids and back.
pub(super) struct Relabelling {
    /// First global id of each part, and the number of nodes.
    pub starts: Vec<u64>,
    /// Row of each node in its part, by original id.
    pub row_of: Vec<u32>,
    /// Original id of each node, by global id.
    pub original: Vec<u64>,
}

impl Relabelling {
    fn new(assignment: &Assignment) -> Result<Self> {
        let mut starts = vec![0u64];
        for (part, size) in assignment.sizes().into_iter().enumerate() {
            if size > u64::from(u32::MAX) {
                return Err(Error::usage(format!("part {part} would own {size} nodes, more than 2^32 - 1"))
                    .with_hint("ask for more parts"));
            }
            starts.push(starts[part] + size);
        }
        let mut next = starts.clone();
        let mut row_of = vec![0u32; assignment.part_of.len()];
        let mut original = vec![0u64; assignment.part_of.len()];
        for (node, &part) in assignment.part_of.iter().enumerate() {
            let global = &mut next[part as usize];
            row_of[node] = (*global - starts[part as usize]) as u32;
            original[*global as usize] = node as u64;
            *global += 1;
        }
        Ok(Self { starts, row_of, original })
    }

    /// Global id of the node `original`.
    pub fn global(&self, assignment: &Assignment, original: usize) -> u64 {
        self.starts[assignment.part_of[original] as usize] + u64::from(self.row_of[original])
    }

    /// Global ids that `part` owns.
    pub fn range(&self, part: u32) -> std::ops::Range<u64> {
        self.starts[part as usize]..self.starts[part as usize + 1]
    }

    /// Original ids that `part` owns, ascending.
    pub fn owned(&self, part: u32) -> &[u64] {
        let range = self.range(part);
        &self.original[range.start as usize..range.end as usize]
    }
}

/// A store being written.
struct Job<'a> {
    dataset: &'a Dataset,
    relabelling: Relabelling,
    splits: columns::SplitRows,
    buckets: Buckets,
    progress: &'a dyn Progress,
    root: &'a Path,
}

impl Job<'_> {
    fn write_parts(&mut self, parts: u32) -> Result<Vec<(PartEntry, PartQuality)>> {
        let mut marks = Marks::new(self.relabelling.original.len());
        self.progress.begin("writing parts", u64::from(parts), "parts");
        (0..parts)
            .map(|part| {
                let written = self.write_part(part, &mut marks)?;
                self.progress.tick(1)?;
                Ok(written)
            })
            .collect()
    }

    fn write_part(&self, part: u32, marks: &mut Marks) -> Result<(PartEntry, PartQuality)> {
        let mut output = Output::create(self.root.join(layout::part_folder(part)))?;
        let lists = InLists::count(&self.buckets, &self.relabelling, part, marks)?;
        lists.write(marks, &mut output, self.progress)?;
        let owned = self.relabelling.owned(part);
        output.array(layout::ORIGINAL, owned)?;
        let feature_values =
            columns::write_features(&self.dataset.features, owned, &mut output, self.progress)?;
        columns::write_labels(&self.dataset.labels, owned, &mut output)?;
        let [train, valid, test] = self.splits.write(part, &mut output)?;
        let quality = PartQuality {
            owned: owned.len() as u64,
            train,
            valid,
            test,
            in_edges: lists.edges(),
            cut_in_edges: lists.cut,
            halo: lists.halo.len() as u64,
        };
        Ok((entry(quality, feature_values, output), quality))
    }

    fn write_root(&self, parts: Vec<(PartEntry, PartQuality)>, meta: &Meta) -> Result<Manifest> {
        let (entries, qualities) = parts.into_iter().unzip();
        let partition = PartitionKind::from(meta.clone());
        let mut manifest = Manifest::new(self.dataset, partition, Quality::from_parts(qualities));
        manifest.parts = entries;
        let mut output = Output::create(self.root.to_path_buf())?;
        columns::write_names(self.dataset, &mut output)?;
        manifest.files = output.files;
        let file = self.root.join(layout::MANIFEST);
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|error| Error::io("write", &file)(error.into()))?;
        std::fs::write(&file, text + "\n").map_err(Error::io("write", &file))?;
        Ok(manifest)
    }
}

fn entry(counts: PartQuality, feature_values: u64, output: Output) -> PartEntry {
    PartEntry {
        owned: counts.owned,
        halo: counts.halo,
        in_edges: counts.in_edges,
        feature_values,
        train: counts.train,
        valid: counts.valid,
        test: counts.test,
        files: output.files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{EdgeChunk, EdgeColumns, MemoryEdges};
    use crate::progress::Silent;
    use crate::random::{Key, Purpose};
    use crate::synthetic::small;

    fn attributed(nodes: u64, edges: u64) -> Dataset {
        let key = Key::new(3, Purpose::Generate);
        let mut dataset = small::bare("attributed", nodes, &[]);
        let chunk = EdgeChunk {
            sources: (0..edges).map(|e| key.below(2 * e, nodes)).collect(),
            targets: (0..edges).map(|e| key.below(2 * e + 1, nodes / 2) * key.below(e, 3).min(1)).collect(),
            weights: (0..edges).map(|e| e as f32).collect(),
            types: (0..edges).map(|e| e as u32 % 3).collect(),
            attributes: (0..2 * edges).map(|e| e as f32 / 2.0).collect(),
        };
        dataset.edges = Box::new(MemoryEdges::new(chunk, 2));
        dataset.edge_columns = EdgeColumns { weighted: true, types: 3, attribute_width: 2 };
        dataset
    }

    #[test]
    fn a_store_does_not_depend_on_how_its_targets_were_cut_into_stretches() {
        let home = tempfile::tempdir().unwrap();
        let meta = Meta { method: "test".into(), ..Meta::default() };
        let assignment = Assignment { parts: 4, part_of: (0..60).map(|node| node % 7 % 4).collect() };
        let written = |most: u64| {
            let out = home.path().join(most.to_string());
            write_in_stretches(&mut attributed(60, 500), &assignment, &meta, most, &out, &Silent).unwrap()
        };
        let whole = written(1000);
        for most in [1, 7, 100] {
            assert_eq!(written(most), whole, "stretches of {most} edges");
        }
    }
}
