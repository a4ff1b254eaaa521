//! Every node with its neighbours, in the order of ids, from an edge stream in any order: sorted on disk.
//!
//! Methods that decide node by node need a node's whole list at once, and an edge stream does not give it. The edges
//! are sorted by node in a temporary file: nodes are cut into ranges of about half as many list entries as there are
//! nodes, one pass appends the ends of every edge to their ranges, and each range is then sorted in memory. After that a
//! pass over all lists is one sequential read. Self-loops are dropped, directions forgotten, parallel edges kept. Where
//! every edge is held in both directions, one of them says it all: a list then has the sources of the edges that end
//! there.
//!
//! Memory: 4 bytes per node; while edges are taken 1 more, while ranges are sorted 6 and in a pass 2, but never more than
//! a fixed buffer (or one list, if a single one is longer). Disk: 16 bytes per edge, 8 where edges are held in both
//! directions. Lists that fit into one range never leave memory.

use super::Request;
use super::passes::{each_chunk, each_edge, small_nodes};
use crate::dataset::{Dataset, EdgeChunk};
use crate::progress::Progress;
use crate::{Error, Result};
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Nodes that always share a range, so that a table finds it.
const BLOCK: usize = 256;

/// List entries that are sorted together, at least and at most: 12 bytes each while that goes on, 4 in a pass.
const RANGE: [u64; 2] = [1 << 16, 1 << 20];
/// Ranges of a graph with many edges per node, while they are not the largest: each writes some KB at a time.
const RANGES: u64 = 256;
/// Words that all ranges together hold back before they are written, at least and at most: 64 KB and 8 MB.
const BUFFERED: [usize; 2] = [1 << 14, 2 << 20];

/// Entries of a range of `dataset`: what is held of its edges at once is little beside what is held of its nodes.
fn range_entries(dataset: &Dataset) -> u64 {
    (dataset.nodes / 2).max(2 * dataset.edges.len() / RANGES).clamp(RANGE[0], RANGE[1])
}

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
    /// Entries that the lists before it have at most: its own begin there.
    first: u64,
    /// Entries that its lists have at most, and when all are known those they have.
    entries: u64,
}

impl Neighbors {
    /// Sorts the edges of `dataset`, in two passes.
    pub fn sort(dataset: &mut Dataset, request: &Request, progress: &dyn Progress) -> Result<Self> {
        let most = range_entries(dataset);
        Self::sort_in_ranges(dataset, request, most, progress)
    }

    fn sort_in_ranges(
        dataset: &mut Dataset,
        request: &Request,
        most: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut degrees = vec![0u32; small_nodes(dataset, request)?];
        each_edge(dataset, "counting neighbours", progress, |source, target| {
            for node in [source, target] {
                let degree = &mut degrees[node as usize];
                *degree = degree.saturating_add(1);
            }
        })?;
        let mut sorter = Sorter::in_ranges(dataset, request, degrees.into_iter(), most)?;
        each_chunk(dataset, "sorting by node", progress, |chunk| sorter.take(chunk))?;
        sorter.finish(progress)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u64 {
        self.degrees.len() as u64
    }

    /// How many neighbours `node` has.
    #[inline]
    pub fn degree(&self, node: u32) -> u32 {
        self.degrees[node as usize]
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
        self.each_until(name, progress, |node, list| {
            visit(node, list);
            ControlFlow::Continue(())
        })
    }

    /// [`Self::each`], until `visit` breaks it off.
    pub fn each_until(
        &self,
        name: &str,
        progress: &dyn Progress,
        mut visit: impl FnMut(u32, &[u32]) -> ControlFlow<()>,
    ) -> Result<()> {
        progress.begin(name, self.degrees.len() as u64, "nodes");
        match &self.lists {
            Lists::Memory(all) => {
                self.visit(0..self.degrees.len() as u32, all, progress, &mut visit).map(drop)
            }
            Lists::Disk(scratch, ranges) => {
                let mut entries = Vec::new();
                for range in ranges {
                    scratch.read(range.first, range.entries, &mut entries)?;
                    if self.visit(range.nodes.clone(), &entries, progress, &mut visit)?.is_break() {
                        break;
                    }
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
        visit: &mut impl FnMut(u32, &[u32]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        const TICK: u32 = 1 << 14;
        for node in nodes {
            let (list, rest) = entries.split_at(self.degrees[node as usize] as usize);
            if visit(node, list).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            entries = rest;
            if (node + 1).is_multiple_of(TICK) {
                progress.tick(u64::from(TICK))?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Cuts nodes into ranges of whole blocks, of at most `most` list entries where blocks are smaller than that.
fn ranges(degrees: impl Iterator<Item = u32>, most: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let (mut first, mut start, mut degrees) = (0, 0, degrees.peekable());
    while degrees.peek().is_some() {
        let (mut entries, mut end) = (0, start);
        for degree in degrees.by_ref().take(BLOCK) {
            (entries, end) = (entries + u64::from(degree), end + 1);
        }
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

/// Lists in the making: appends pairs (node, neighbour) to the stretches of their ranges.
///
/// The pairs of a range begin in the file at twice the place of its lists. Where lists are shorter than they might have
/// been, nothing is written and the file has holes.
pub(super) struct Sorter {
    ranges: Vec<Range>,
    /// Where pairs go that are too many for memory.
    scratch: Option<Scratch>,
    /// Whether an edge is also held in the other direction.
    both_held: bool,
    /// The range of each block of nodes.
    range_of: Vec<u32>,
    pending: Vec<Vec<u32>>,
    /// Words of each range written so far.
    written: Vec<u64>,
    limit: usize,
}

impl Sorter {
    /// For the edges of `dataset`, whose nodes have no more than `degrees` ends of edges each.
    pub fn new(dataset: &Dataset, request: &Request, degrees: impl Iterator<Item = u32>) -> Result<Self> {
        Self::in_ranges(dataset, request, degrees, range_entries(dataset))
    }

    fn in_ranges(
        dataset: &Dataset,
        request: &Request,
        degrees: impl Iterator<Item = u32>,
        most: u64,
    ) -> Result<Self> {
        let both_held = dataset.undirected;
        // Then half of the ends make lists.
        let ranges = ranges(degrees, if both_held { most.saturating_mul(2) } else { most });
        let blocks = |(index, range): (u32, &Range)| vec![index; range.nodes.len().div_ceil(BLOCK)];
        let range_of = (0..).zip(&ranges).flat_map(blocks).collect();
        let (scratch, limit) = match ranges.len() {
            0 | 1 => (None, usize::MAX),
            many => {
                let buffered = (dataset.nodes as usize / 4).clamp(BUFFERED[0], BUFFERED[1]);
                (Some(Scratch::new(request.scratch.as_ref())?), (buffered / many).max(1 << 12) & !1)
            }
        };
        let words = |range: &Range| if both_held { range.entries } else { 2 * range.entries } as usize;
        let pending = ranges.iter().map(|range| Vec::with_capacity(limit.min(words(range)))).collect();
        Ok(Self { scratch, both_held, range_of, pending, written: vec![0; ranges.len()], limit, ranges })
    }

    /// The edges of `chunk` are among those to sort.
    pub fn take(&mut self, chunk: &EdgeChunk) -> Result<()> {
        for (&source, &target) in chunk.sources.iter().zip(&chunk.targets) {
            if source != target {
                self.push(target as u32, source as u32)?;
                if !self.both_held {
                    self.push(source as u32, target as u32)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, node: u32, neighbor: u32) -> Result<()> {
        let range = self.range_of[node as usize / BLOCK] as usize;
        self.pending[range].extend([node, neighbor]);
        if self.pending[range].len() >= self.limit { self.flush(range) } else { Ok(()) }
    }

    #[inline(never)]
    fn flush(&mut self, range: usize) -> Result<()> {
        let words = &mut self.pending[range];
        if let Some(scratch) = &self.scratch {
            scratch.write(2 * self.ranges[range].first + self.written[range], words)?;
            self.written[range] += words.len() as u64;
            words.clear();
        }
        Ok(())
    }

    /// The lists of all edges taken: each range is sorted, and written back if there are several.
    pub fn finish(mut self, progress: &dyn Progress) -> Result<Neighbors> {
        (0..self.ranges.len()).try_for_each(|range| self.flush(range))?;
        let mut degrees = vec![0u32; self.ranges.last().map_or(0, |range| range.nodes.end as usize)];
        let mut lists = Vec::new();
        let Some(scratch) = self.scratch else {
            let pairs = self.pending.pop().unwrap_or_default();
            sort_pairs(&pairs, 0, &mut degrees, &mut lists);
            return Ok(Neighbors { degrees, lists: Lists::Memory(lists) });
        };
        drop(self.pending);
        progress.begin("sorting ranges of nodes", self.ranges.len() as u64, "ranges");
        let mut pairs = Vec::new();
        for (range, written) in self.ranges.iter_mut().zip(self.written) {
            scratch.read(2 * range.first, written, &mut pairs)?;
            let nodes = range.nodes.start as usize..range.nodes.end as usize;
            sort_pairs(&pairs, range.nodes.start, &mut degrees[nodes], &mut lists);
            range.entries = lists.len() as u64;
            // Lists end before the pairs of this range begin, or at most where they do: nothing unread is overwritten.
            scratch.write(range.first, &lists)?;
            progress.tick(1)?;
        }
        Ok(Neighbors { degrees, lists: Lists::Disk(scratch, self.ranges) })
    }
}

/// Counts and sorts `pairs` by node, of which `first` is the lowest; neighbours stay in their order.
fn sort_pairs(pairs: &[u32], first: u32, degrees: &mut [u32], lists: &mut Vec<u32>) {
    let place = |pair: &[u32]| (pair[0] - first) as usize;
    pairs.chunks_exact(2).for_each(|pair| degrees[place(pair)] += 1);
    let mut next = starts(degrees);
    lists.resize(pairs.len() / 2, 0);
    for pair in pairs.chunks_exact(2) {
        let slot = &mut next[place(pair)];
        lists[*slot as usize] = pair[1];
        *slot += 1;
    }
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
        for both_held in [false, true] {
            dataset.undirected = both_held;
            let mut expected = vec![Vec::new(); 3000];
            each_edge(&mut dataset, "", &Silent, |source, target| {
                if source != target {
                    expected[target as usize].push(source);
                    if !both_held {
                        expected[source as usize].push(target);
                    }
                }
            })
            .unwrap();
            for most in [1, 1000, 10_000, u64::MAX] {
                let neighbors = Neighbors::sort_in_ranges(&mut dataset, &request, most, &Silent).unwrap();
                assert_eq!(matches!(neighbors.lists, Lists::Memory(_)), most == u64::MAX);
                assert_eq!(lists(&neighbors), expected, "ranges of {most} entries, both held: {both_held}");
            }
        }
    }

    #[test]
    fn a_pass_ends_where_the_visitor_wants() {
        for most in [1000, u64::MAX] {
            let (mut dataset, mut visited) = (small::uniform(3000, 20_000, 5), 0);
            let neighbors =
                Neighbors::sort_in_ranges(&mut dataset, &Request::new(2, 0), most, &Silent).unwrap();
            let visit = |node: u32, _: &[u32]| {
                visited += 1;
                if node == 700 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            neighbors.each_until("", &Silent, visit).unwrap();
            assert_eq!(visited, 701);
        }
    }

    #[test]
    fn a_folder_that_takes_no_files_is_named() {
        let request = Request { scratch: Some("/nowhere/at/all".into()), ..Request::new(2, 0) };
        let error = Neighbors::sort_in_ranges(&mut small::uniform(3000, 20_000, 5), &request, 10, &Silent);
        assert!(error.err().unwrap().to_string().contains("/nowhere/at/all"));
    }
}
