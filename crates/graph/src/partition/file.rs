//! Parts that another program computed: one part number per node, as METIS writes them or as an array.
//!
//! Reads `NAME.part.K` text (line `v` holds the part of node `v`) or a `.npy` of integers. Lets any external
//! partitioner be used, and a published partition be reproduced. Memory: the answer.

use super::{Assignment, Entry, Memory, Partitioner, Request, checked_nodes};
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::read::read_part_file;
use crate::{Error, Result};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "file",
    summary: "part numbers from a METIS .part.K file or a .npy array",
    paper: "Karypis & Kumar, A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, \
            SIAM J. Sci. Comput. 1998 (the file format)",
    memory: Memory::Nodes,
    needs_file: true,
    balances: false,
    settings: &[],
    build: || Box::new(File),
};

/// Assignment read from a file.
#[derive(Debug, Clone, Copy)]
pub struct File;

impl Partitioner for File {
    fn assign(&self, dataset: &mut Dataset, request: &Request, _: &dyn Progress) -> Result<Assignment> {
        checked_nodes(dataset, request)?;
        let path = request.file.as_ref().ok_or_else(|| {
            Error::usage("the partitioner `file` needs a file of part numbers")
                .with_hint("name one with --part-file")
        })?;
        let part_of = read_part_file(path, dataset.nodes)?;
        match part_of.iter().position(|&part| part >= request.parts) {
            None => Ok(Assignment { parts: request.parts, part_of }),
            Some(node) => Err(Error::input(
                path,
                format!("node {node}"),
                format!("a part below {}", request.parts),
                format!("`{}`", part_of[node]),
            )
            .with_hint(format!("the file needs at least {} parts", largest(&part_of)))),
        }
    }
}

fn largest(part_of: &[u32]) -> u64 {
    part_of.iter().max().map_or(0, |&part| u64::from(part) + 1)
}
