//! Which part did every node, and every edge, go to? As arrays that other tools read.
//!
//! One `.npy` array of unsigned 32-bit numbers each, in the order of the input. The parts of edges are written as
//! they come, never all in memory. Files appear whole or not at all.

use super::passes::each_chunk;
use super::{Assignment, EdgeSink, Partitioner, Request};
use crate::atomic::write_file;
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::{Error, Result};
use npyz::{AutoSerialize, WriteOptions, WriterBuilder};
use std::io::Write;
use std::path::Path;

/// Writes the part of every node as `file`.
pub fn write_nodes(assignment: &Assignment, file: &Path) -> Result<()> {
    write_file(file, |out| {
        header(assignment.part_of.len() as u64, file, out)?;
        out.write_all(bytemuck::cast_slice(&assignment.part_of)).map_err(Error::io("write", file))
    })
}

/// Writes the part of every edge as `file`, and shows `also` the edges on the way.
pub fn write_edges(
    placed: &Placed,
    dataset: &mut Dataset,
    file: &Path,
    progress: &dyn Progress,
    also: &mut EdgeSink,
) -> Result<()> {
    write_file(file, |out| {
        header(dataset.edges.len(), file, out)?;
        placed.each(dataset, progress, &mut |chunk, parts| {
            out.write_all(bytemuck::cast_slice(parts)).map_err(Error::io("write", file))?;
            also(chunk, parts)
        })
    })
}

/// Where the edges of a dataset lie: where a method places them, else with the owner of their destination.
pub struct Placed<'a> {
    /// The method.
    pub partitioner: &'a dyn Partitioner,
    /// What was asked of it.
    pub request: &'a Request,
    /// What it answered.
    pub assignment: &'a Assignment,
}

impl Placed<'_> {
    /// Shows `sink` all edges with their parts, in the order of the stream.
    pub fn each(&self, dataset: &mut Dataset, progress: &dyn Progress, sink: &mut EdgeSink) -> Result<()> {
        if let Some(edges) = self.partitioner.edges() {
            return edges.place(dataset, self.request, progress, sink);
        }
        let mut parts = Vec::new();
        each_chunk(dataset, "placing edges", progress, |chunk| {
            parts.clear();
            parts.extend(chunk.targets.iter().map(|&target| self.assignment.part_of[target as usize]));
            sink(chunk, &parts)
        })
    }
}

fn header(len: u64, file: &Path, out: &mut dyn Write) -> Result<()> {
    let header = WriteOptions::new_header_only().dtype(u32::default_dtype()).shape(&[len]).writer(out);
    header.write_header_only().map(drop).map_err(Error::io("write", file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::random::Random;
    use crate::progress::Silent;
    use crate::read::read_part_file;
    use crate::synthetic;

    fn path() -> Dataset {
        let entry = synthetic::find("path").unwrap();
        let request = synthetic::Request { nodes: 6, ..(entry.defaults)() };
        (entry.generate)(&request, &Silent).unwrap()
    }

    #[test]
    fn parts_of_nodes_read_back_and_an_edge_lies_with_the_owner_of_its_destination() {
        let folder = tempfile::tempdir().unwrap();
        let (nodes, edges) = (folder.path().join("nodes.npy"), folder.path().join("edges.npy"));
        let (mut dataset, request) = (path(), Request::new(3, 1));
        let assignment = Random.assign(&mut dataset, &request, &Silent).unwrap();
        write_nodes(&assignment, &nodes).unwrap();
        assert_eq!(read_part_file(&nodes, 6).unwrap(), assignment.part_of);

        let placed = Placed { partitioner: &Random, request: &request, assignment: &assignment };
        let mut expected = Vec::new();
        write_edges(&placed, &mut dataset, &edges, &Silent, &mut |chunk, _| {
            expected.extend(chunk.targets.iter().map(|&target| assignment.part_of[target as usize]));
            Ok(())
        })
        .unwrap();
        assert_eq!(read_part_file(&edges, 10).unwrap(), expected);
    }

    #[test]
    fn an_interrupted_write_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (mut dataset, request) = (path(), Request::new(2, 1));
        let assignment = Random.assign(&mut dataset, &request, &Silent).unwrap();
        let placed = Placed { partitioner: &Random, request: &request, assignment: &assignment };
        let file = folder.path().join("edges.npy");
        let stopped = write_edges(&placed, &mut dataset, &file, &Silent, &mut |_, _| Err(Error::Interrupted));
        assert!(matches!(stopped, Err(Error::Interrupted)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
