//! Every node with its neighbours, in the order of ids, from an edge stream in any order: sorted on disk.
//!
//! Methods that decide node by node need a node's whole list at once, and an edge stream does not give it. The edges
//! are sorted by node in a temporary file: nodes are cut into ranges of at most [`RANGE`] list entries, one pass
//! appends both ends of every edge to its range, and each range is then sorted in memory. After that a pass over all
//! lists is one sequential read. Self-loops are dropped, directions forgotten, parallel edges kept.
//!
//! Memory: 4 bytes per node, and a fixed buffer (or one list, if a single one is longer). Disk: 16 bytes per edge.
//! Lists that fit the buffer never leave memory.

use super::Request;
use super::passes::{each_chunk, each_edge, small_nodes};
use crate::dataset::Dataset;
use crate::progress::Progress;
use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// List entries that are sorted in memory at once: 12 MB while that goes on.
const RANGE: u64 = 1 << 20;
/// Nodes that always share a range, so that a table finds it.
const BLOCK: usize = 256;
/// Words that all ranges together hold back before they are written: 8 MB.
const BUFFERED: usize = 2 << 20;

/// The neighbour lists of all nodes, sorted by node.
pub(super) struct Neighbors {
    /// How many entries the list of each node has.
    degrees: Vec<u32>,
    lists: Lists,
}

enum Lists {
    Memory(Vec<u32>),
    Disk(Scratch, Vec<Range>),
}

/// A stretch of nodes whose lists are sorted together.
struct Range {
    nodes: std::ops::Range<u32>,
    /// Entries of lists before it, and in it.
    first: u64,
    entries: u64,
}

impl Neighbors {
    /// Sorts the edges of `dataset`, in two passes.
    pub fn sort(dataset: &mut Dataset, request: &Request, progress: &dyn Progress) -> Result<Self> {
        Self::sort_in_ranges(dataset, request, RANGE, progress)
    }

    fn sort_in_ranges(
        dataset: &mut Dataset,
        request: &Request,
        most: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut degrees = vec![0u32; small_nodes(dataset, request)?];
        each_edge(dataset, "counting neighbours", progress, |source, target| {
            if source != target {
                degrees[source as usize] += 1;
                degrees[target as usize] += 1;
            }
        })?;
        let ranges = ranges(&degrees, most);
        let lists = match &ranges[..] {
            [] | [_] => Lists::Memory(sorted_in_memory(dataset, &degrees, progress)?),
            _ => {
                let scratch = Scratch::new(request.scratch.as_ref())?;
                sort_on_disk(dataset, &degrees, &ranges, &scratch, progress)?;
                Lists::Disk(scratch, ranges)
            }
        };
        Ok(Self { degrees, lists })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u64 {
        self.degrees.len() as u64
    }

    /// How many edges there are, directions forgotten.
    pub fn edges(&self) -> f64 {
        self.degrees.iter().map(|&degree| f64::from(degree)).sum::<f64>() / 2.0
    }

    /// Calls `visit` with every node and its neighbours, in the order of ids; reports the pass as `name`.
    pub fn each(
        &self,
        name: &str,
        progress: &dyn Progress,
        mut visit: impl FnMut(u32, &[u32]),
    ) -> Result<()> {
        progress.begin(name, self.degrees.len() as u64, "nodes");
        match &self.lists {
            Lists::Memory(all) => self.visit(0..self.degrees.len() as u32, all, progress, &mut visit),
            Lists::Disk(scratch, ranges) => {
                let mut entries = Vec::new();
                for range in ranges {
                    scratch.read(range.first, range.entries, &mut entries)?;
                    self.visit(range.nodes.clone(), &entries, progress, &mut visit)?;
                }
                Ok(())
            }
        }
    }

    fn visit(
        &self,
        nodes: std::ops::Range<u32>,
        mut entries: &[u32],
        progress: &dyn Progress,
        visit: &mut impl FnMut(u32, &[u32]),
    ) -> Result<()> {
        const TICK: u32 = 1 << 14;
        for node in nodes {
            let (list, rest) = entries.split_at(self.degrees[node as usize] as usize);
            visit(node, list);
            entries = rest;
            if (node + 1).is_multiple_of(TICK) {
                progress.tick(u64::from(TICK))?;
            }
        }
        Ok(())
    }
}

/// Cuts nodes into ranges of whole blocks, of at most `most` list entries where blocks are smaller than that.
fn ranges(degrees: &[u32], most: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let (mut first, mut start) = (0, 0);
    for block in degrees.chunks(BLOCK) {
        let entries: u64 = block.iter().map(|&degree| u64::from(degree)).sum();
        let end = start + block.len() as u32;
        match ranges.last_mut() {
            Some(last) if last.entries + entries <= most => {
                last.nodes.end = end;
                last.entries += entries;
            }
            _ => ranges.push(Range { nodes: start..end, first, entries }),
        }
        (first, start) = (first + entries, end);
    }
    ranges
}

fn sorted_in_memory(dataset: &mut Dataset, degrees: &[u32], progress: &dyn Progress) -> Result<Vec<u32>> {
    let mut next = starts(degrees);
    let mut lists = vec![0u32; degrees.iter().map(|&degree| degree as usize).sum()];
    each_edge(dataset, "sorting by node", progress, |source, target| {
        if source != target {
            for (node, neighbor) in [(source, target), (target, source)] {
                let slot = &mut next[node as usize];
                lists[*slot as usize] = neighbor;
                *slot += 1;
            }
        }
    })?;
    Ok(lists)
}

/// Where each list starts among those of `degrees`; fewer than 2^32 entries in all.
fn starts(degrees: &[u32]) -> Vec<u32> {
    let before = |sum: &mut u32, &degree: &u32| {
        let start = *sum;
        *sum += degree;
        Some(start)
    };
    degrees.iter().scan(0, before).collect()
}

/// One pass into the ranges, then each range sorted and written back.
fn sort_on_disk(
    dataset: &mut Dataset,
    degrees: &[u32],
    ranges: &[Range],
    scratch: &Scratch,
    progress: &dyn Progress,
) -> Result<()> {
    let mut writer = RangeWriter::new(ranges, scratch);
    each_chunk(dataset, "sorting by node", progress, |chunk| {
        let ends = chunk.sources.iter().zip(&chunk.targets).map(|(&s, &t)| (s as u32, t as u32));
        ends.filter(|(source, target)| source != target).try_for_each(|(source, target)| {
            writer.push(source, target).and_then(|()| writer.push(target, source))
        })
    })?;
    writer.finish()?;
    drop(writer);
    progress.begin("sorting ranges of nodes", ranges.len() as u64, "ranges");
    let (mut pairs, mut lists) = (Vec::new(), Vec::new());
    for range in ranges {
        scratch.read(2 * range.first, 2 * range.entries, &mut pairs)?;
        let mut next = starts(&degrees[range.nodes.start as usize..range.nodes.end as usize]);
        lists.resize(range.entries as usize, 0);
        for pair in pairs.chunks_exact(2) {
            let slot = &mut next[(pair[0] - range.nodes.start) as usize];
            lists[*slot as usize] = pair[1];
            *slot += 1;
        }
        // Lists end before the pairs of this range begin, or at most where they do: nothing unread is overwritten.
        scratch.write(range.first, &lists)?;
        progress.tick(1)?;
    }
    Ok(())
}

/// Appends pairs (node, neighbour) to the stretches of their ranges.
struct RangeWriter<'a> {
    ranges: &'a [Range],
    scratch: &'a Scratch,
    /// The range of each block of nodes.
    range_of: Vec<u32>,
    pending: Vec<Vec<u32>>,
    /// Words of each range written so far.
    written: Vec<u64>,
    limit: usize,
}

impl<'a> RangeWriter<'a> {
    fn new(ranges: &'a [Range], scratch: &'a Scratch) -> Self {
        let limit = (BUFFERED / ranges.len()).max(1 << 12) & !1;
        let blocks = |(index, range): (u32, &Range)| vec![index; range.nodes.len().div_ceil(BLOCK)];
        let range_of = (0..).zip(ranges).flat_map(blocks).collect();
        let pending = ranges.iter().map(|_| Vec::with_capacity(limit)).collect();
        Self { ranges, scratch, range_of, pending, written: vec![0; ranges.len()], limit }
    }

    fn push(&mut self, node: u32, neighbor: u32) -> Result<()> {
        let range = self.range_of[node as usize / BLOCK] as usize;
        self.pending[range].extend([node, neighbor]);
        if self.pending[range].len() >= self.limit { self.flush(range) } else { Ok(()) }
    }

    fn flush(&mut self, range: usize) -> Result<()> {
        let words = &mut self.pending[range];
        self.scratch.write(2 * self.ranges[range].first + self.written[range], words)?;
        self.written[range] += words.len() as u64;
        words.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        (0..self.ranges.len()).try_for_each(|range| self.flush(range))
    }
}

/// A temporary file of 32-bit words that nobody else sees and that goes with us.
struct Scratch {
    file: File,
    folder: PathBuf,
}

impl Scratch {
    fn new(folder: Option<&PathBuf>) -> Result<Self> {
        let folder = folder.cloned().unwrap_or_else(std::env::temp_dir);
        let file =
            tempfile::tempfile_in(&folder).map_err(Error::io("create a temporary file in", &folder))?;
        Ok(Self { file, folder })
    }

    fn write(&self, at: u64, words: &[u32]) -> Result<()> {
        let written = self.file.write_all_at(bytemuck::cast_slice(words), 4 * at);
        written.map_err(Error::io("write a temporary file in", &self.folder))
    }

    /// Fills `words` with `count` words from `at`.
    fn read(&self, at: u64, count: u64, words: &mut Vec<u32>) -> Result<()> {
        words.resize(count as usize, 0);
        let read = self.file.read_exact_at(bytemuck::cast_slice_mut(words), 4 * at);
        read.map_err(Error::io("read a temporary file in", &self.folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;
    use crate::synthetic::small;

    fn lists(neighbors: &Neighbors) -> Vec<Vec<u32>> {
        let mut lists = Vec::new();
        neighbors.each("", &Silent, |_, list| lists.push(list.to_vec())).unwrap();
        lists
    }

    #[test]
    fn lists_sorted_on_disk_are_those_sorted_in_memory() {
        let request = Request::new(2, 0);
        let mut dataset = small::uniform(3000, 20_000, 5);
        let mut expected = vec![Vec::new(); 3000];
        each_edge(&mut dataset, "", &Silent, |source, target| {
            if source != target {
                expected[source as usize].push(target);
                expected[target as usize].push(source);
            }
        })
        .unwrap();
        for most in [1, 1000, 10_000, u64::MAX] {
            let neighbors = Neighbors::sort_in_ranges(&mut dataset, &request, most, &Silent).unwrap();
            assert_eq!(matches!(neighbors.lists, Lists::Memory(_)), most == u64::MAX);
            assert_eq!(lists(&neighbors), expected, "ranges of {most} entries");
        }
    }

    #[test]
    fn a_folder_that_takes_no_files_is_named() {
        let request = Request { scratch: Some("/nowhere/at/all".into()), ..Request::new(2, 0) };
        let error = Neighbors::sort_in_ranges(&mut small::uniform(3000, 20_000, 5), &request, 10, &Silent);
        assert!(error.err().unwrap().to_string().contains("/nowhere/at/all"));
    }
}
