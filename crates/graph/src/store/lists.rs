//! The in-edge lists of one part, from its bucket.
//!
//! Counting sort by target, then each list sorted by source row; edges of equal ends keep the order of the input.
//! Lists are also given the order of their sources' original ids, the one thing about a list that no assignment
//! can change: samplers draw positions in that order, so a sample does not depend on who owns what.

use super::bucket::{Bucket, ends};
use super::layout;
use super::output::Output;
use super::write::Relabelling;
use crate::progress::Progress;
use crate::{Error, Result};

/// In-edges of a part, compressed.
pub(super) struct InLists {
    owned: usize,
    offsets: Vec<u64>,
    /// Source row of each edge.
    pub sources: Vec<u32>,
    /// Global ids of the halo.
    pub halo: Vec<u64>,
    /// Record of each edge in the bucket; empty when edges have no columns.
    records: Vec<u64>,
    /// Positions within each list by original id; `None` when that is the order of the list anyway.
    order: Option<Vec<u32>>,
}

impl InLists {
    /// The lists of `part`.
    pub fn build(bucket: &Bucket, relabelling: &Relabelling, part: u32, marks: &mut Marks) -> Result<Self> {
        let range = relabelling.range(part);
        let owned = (range.end - range.start) as usize;
        let mut offsets = vec![0u64; owned + 1];
        marks.clear();
        for record in bucket.records() {
            let (row, source) = ends(record);
            offsets[row as usize + 1] += 1;
            if !range.contains(&source) {
                marks.mark(source);
            }
        }
        let halo = marks.ranked();
        check_counts(part, owned, halo.len(), &offsets)?;
        for row in 0..owned {
            offsets[row + 1] += offsets[row];
        }
        let row_of = |source: u64| match range.contains(&source) {
            true => (source - range.start) as u32,
            false => owned as u32 + marks.rank(source),
        };
        let mut lists = Self { owned, offsets, sources: vec![], halo, records: vec![], order: None };
        if bucket.record.is_bare() {
            lists.sources = lists.placed(bucket, |_, source| row_of(source));
        } else {
            let edges = lists.placed(bucket, |record, source| (row_of(source), record));
            (lists.sources, lists.records) = edges.into_iter().unzip();
        }
        if relabelling.starts.len() > 2 {
            lists.order = Some(lists.by_original(relabelling, part));
        }
        Ok(lists)
    }

    /// One item per edge, grouped by target and ascending within a list.
    fn placed<T: Ord + Send + Default + Copy>(
        &self,
        bucket: &Bucket,
        item: impl Fn(u64, u64) -> T,
    ) -> Vec<T> {
        let mut items = vec![T::default(); self.offsets[self.owned] as usize];
        let mut next = self.offsets.clone();
        for (index, record) in bucket.records().enumerate() {
            let (row, source) = ends(record);
            let slot = &mut next[row as usize];
            items[*slot as usize] = item(index as u64, source);
            *slot += 1;
        }
        each_list(&self.offsets, &mut items, &|_, list: &mut [T]| list.sort_unstable());
        items
    }

    fn by_original(&self, relabelling: &Relabelling, part: u32) -> Vec<u32> {
        let own = relabelling.owned(part);
        let original = |row: u32| match own.get(row as usize) {
            Some(&original) => original,
            None => relabelling.original[self.halo[row as usize - self.owned] as usize],
        };
        let mut order = vec![0u32; self.sources.len()];
        each_list(&self.offsets, &mut order, &|start: u64, list: &mut [u32]| {
            let source = |position: u32| self.sources[start as usize + position as usize];
            list.iter_mut().zip(0..).for_each(|(slot, position)| *slot = position);
            list.sort_by_cached_key(|&position| (original(source(position)), position));
        });
        order
    }

    /// How many edges come from the halo.
    pub fn cut(&self) -> u64 {
        self.sources.iter().filter(|&&row| row as usize >= self.owned).count() as u64
    }

    /// Writes the lists and the edge columns that `bucket` holds.
    pub fn write(&self, bucket: &Bucket, output: &mut Output, progress: &dyn Progress) -> Result<()> {
        output.array(layout::OFFSETS, &self.offsets)?;
        output.array(layout::SOURCES, &self.sources)?;
        output.array(layout::HALO, &self.halo)?;
        if let Some(order) = &self.order {
            output.array(layout::ORDER, order)?;
        }
        let (record, columns) = (bucket.record, bucket.record.columns);
        let stretches = [
            (layout::WEIGHTS, record.weight_at(), usize::from(columns.weighted)),
            (layout::TYPES, record.type_at(), usize::from(columns.types > 0)),
            (layout::ATTRIBUTES, record.attributes_at(), columns.attribute_width),
        ];
        for (name, at, words) in stretches.into_iter().filter(|stretch| stretch.2 > 0) {
            output.stream(name, |file| {
                self.records.iter().try_for_each(|&edge| file.put(&bucket.get(edge)[at..at + words]))
            })?;
            progress.tick(0)?;
        }
        Ok(())
    }
}

fn check_counts(part: u32, owned: usize, halo: usize, degrees: &[u64]) -> Result<()> {
    if owned + halo > u32::MAX as usize {
        return Err(Error::usage(format!(
            "part {part} would have {owned} owned and {halo} halo nodes, more than 2^32 - 1 together"
        ))
        .with_hint("ask for more parts"));
    }
    match degrees.iter().position(|&degree| degree > u64::from(u32::MAX)) {
        None => Ok(()),
        Some(row) => Err(Error::usage(format!(
            "a node of part {part} has {} in-edges, more than 2^32 - 1",
            degrees[row]
        ))),
    }
}

/// Calls `visit` with the start and the items of every list, in parallel.
fn each_list<T: Send>(offsets: &[u64], items: &mut [T], visit: &(impl Fn(u64, &mut [T]) + Sync)) {
    let rows = offsets.len() - 1;
    if rows <= 1 || items.len() < 1 << 14 {
        let mut rest = items;
        for list in offsets.windows(2) {
            let (list_items, others) = rest.split_at_mut((list[1] - list[0]) as usize);
            visit(list[0], list_items);
            rest = others;
        }
        return;
    }
    let middle = rows / 2;
    let (left, right) = items.split_at_mut((offsets[middle] - offsets[0]) as usize);
    rayon::join(
        || each_list(&offsets[..=middle], left, visit),
        || each_list(&offsets[middle..], right, visit),
    );
}

/// A set of global ids that can say how many smaller members a member has.
pub(super) struct Marks {
    words: Vec<u64>,
    /// Members before each word.
    before: Vec<u32>,
}

impl Marks {
    /// An empty set of ids below `nodes`.
    pub fn new(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)], before: vec![0; nodes.div_ceil(64)] }
    }

    fn clear(&mut self) {
        self.words.fill(0);
    }

    fn mark(&mut self, id: u64) {
        self.words[id as usize / 64] |= 1 << (id % 64);
    }

    /// The members in ascending order; from now on until the next mark, [`rank`](Self::rank) may be asked.
    fn ranked(&mut self) -> Vec<u64> {
        let mut members = Vec::new();
        for (index, &word) in self.words.iter().enumerate() {
            self.before[index] = members.len() as u32;
            let mut rest = word;
            while rest != 0 {
                members.push(index as u64 * 64 + u64::from(rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        members
    }

    /// How many members are smaller than the member `id`.
    fn rank(&self, id: u64) -> u32 {
        let word = id as usize / 64;
        let below = self.words[word] & ((1 << (id % 64)) - 1);
        self.before[word] + below.count_ones()
    }
}
