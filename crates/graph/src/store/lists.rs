//! The in-edge lists of one part, from its buckets, one stretch of rows at a time.
//!
//! A first look at all buckets counts the edges of every row and marks the halo; then each stretch is sorted (by
//! target, then by source row; edges of equal ends keep the order of the input) and written. Lists are also given the
//! order of their sources' original ids, the one thing about a list that no assignment can change: samplers draw
//! positions in that order, so a sample does not depend on who owns what.
//!
//! Memory: 8 bytes per owned node, the marks, and 8 bytes per in-edge of one stretch (28 with edge columns).

use super::bucket::{Bucket, Buckets, ends};
use super::layout;
use super::output::{Output, Pieces};
use super::write::Relabelling;
use crate::marks::Marks;
use crate::progress::Progress;
use crate::{Error, Result};
use std::ops::Range;

/// What there is to know of a part's in-edges before they are sorted.
pub(super) struct InLists<'a> {
    buckets: &'a Buckets,
    relabelling: &'a Relabelling,
    part: u32,
    /// Where each row's list starts, and the number of edges.
    offsets: Vec<u64>,
    /// Global ids of the halo.
    pub halo: Vec<u64>,
    /// Edges whose source is elsewhere.
    pub cut: u64,
}

impl<'a> InLists<'a> {
    /// Looks at all buckets of `part`; `marks` is left holding the halo.
    pub fn count(
        buckets: &'a Buckets,
        relabelling: &'a Relabelling,
        part: u32,
        marks: &mut Marks,
    ) -> Result<Self> {
        let range = relabelling.range(part);
        let mut offsets = vec![0u64; (range.end - range.start) as usize + 1];
        let mut cut = 0;
        marks.clear();
        for stretch in buckets.of_part(&range) {
            for record in buckets.open(stretch)?.records() {
                let (row, source) = ends(record);
                offsets[row as usize + 1] += 1;
                if !range.contains(&source) {
                    cut += 1;
                    marks.mark(source);
                }
            }
        }
        let halo = marks.ranked();
        check_counts(part, offsets.len() - 1, halo.len(), &offsets)?;
        (1..offsets.len()).for_each(|row| offsets[row] += offsets[row - 1]);
        Ok(Self { buckets, relabelling, part, offsets, halo, cut })
    }

    /// How many edges there are.
    pub fn edges(&self) -> u64 {
        self.offsets[self.offsets.len() - 1]
    }

    /// Writes the lists and the edge columns, and removes the buckets.
    pub fn write(&self, marks: &Marks, output: &mut Output, progress: &dyn Progress) -> Result<()> {
        output.array(layout::OFFSETS, &self.offsets)?;
        output.array(layout::HALO, &self.halo)?;
        let mut columns = self.columns();
        let mut files: Vec<Pieces> =
            columns.iter().map(|column| output.open(column.name)).collect::<Result<_>>()?;
        let range = self.relabelling.range(self.part);
        for stretch in self.buckets.of_part(&range) {
            let bucket = self.buckets.open(stretch)?;
            let lists = self.sort(&bucket, self.buckets.rows(stretch, range.start), marks);
            for (column, file) in columns.iter().zip(&mut files) {
                lists.put(column.kind, &bucket, file)?;
                progress.tick(0)?;
            }
            bucket.remove()?;
        }
        columns.drain(..).zip(files).try_for_each(|(column, file)| output.close(column.name, file))
    }

    /// The files that hold one thing per edge.
    fn columns(&self) -> Vec<Column> {
        let (record, edges) = (self.buckets.record(), self.buckets.record().columns);
        let stretch = |name, at, words| Column { name, kind: Kind::Words { at, words } };
        let mut columns = vec![Column { name: layout::SOURCES, kind: Kind::Sources }];
        if self.relabelling.starts.len() > 2 {
            columns.push(Column { name: layout::ORDER, kind: Kind::Order });
        }
        let optional = [
            stretch(layout::WEIGHTS, record.weight_at(), usize::from(edges.weighted)),
            stretch(layout::TYPES, record.type_at(), usize::from(edges.types > 0)),
            stretch(layout::ATTRIBUTES, record.attributes_at(), edges.attribute_width),
        ];
        columns.extend(optional.into_iter().filter(|c| !matches!(c.kind, Kind::Words { words: 0, .. })));
        columns
    }

    /// The lists of the rows of one stretch.
    fn sort(&self, bucket: &Bucket, rows: Range<usize>, marks: &Marks) -> Lists {
        let range = self.relabelling.range(self.part);
        let owned = (range.end - range.start) as usize;
        let row_of = |source: u64| match range.contains(&source) {
            true => (source - range.start) as u32,
            false => owned as u32 + marks.rank(source),
        };
        let first = self.offsets[rows.start];
        let offsets: Vec<u64> = self.offsets[rows.start..=rows.end].iter().map(|o| o - first).collect();
        let mut lists = Lists { offsets, sources: vec![], records: vec![], order: vec![] };
        if self.buckets.record().is_bare() {
            lists.sources = lists.placed(bucket, rows.start, |_, source| row_of(source));
        } else {
            let edges = lists.placed(bucket, rows.start, |record, source| (row_of(source), record));
            (lists.sources, lists.records) = edges.into_iter().unzip();
        }
        if self.relabelling.starts.len() > 2 {
            lists.order = self.by_original(&lists, owned);
        }
        lists
    }

    fn by_original(&self, lists: &Lists, owned: usize) -> Vec<u32> {
        let own = self.relabelling.owned(self.part);
        let original = |row: u32| match own.get(row as usize) {
            Some(&original) => original,
            None => self.relabelling.original[self.halo[row as usize - owned] as usize],
        };
        let mut order = vec![0u32; lists.sources.len()];
        each_list(&lists.offsets, &mut order, &|start: u64, list: &mut [u32]| {
            let source = |position: u32| lists.sources[start as usize + position as usize];
            list.iter_mut().zip(0..).for_each(|(slot, position)| *slot = position);
            list.sort_by_cached_key(|&position| (original(source(position)), position));
        });
        order
    }
}

/// A file that holds one thing per edge.
struct Column {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Sources,
    Order,
    /// Words of an edge's record.
    Words {
        at: usize,
        words: usize,
    },
}

/// The lists of one stretch.
struct Lists {
    offsets: Vec<u64>,
    /// Source row of each edge.
    sources: Vec<u32>,
    /// Record of each edge in the bucket; empty when edges have no columns.
    records: Vec<u32>,
    /// Positions within each list by original id; empty when that is the order of the list anyway.
    order: Vec<u32>,
}

impl Lists {
    /// One item per edge, grouped by target and ascending within a list.
    fn placed<T: Ord + Send + Default + Copy>(
        &self,
        bucket: &Bucket,
        first_row: usize,
        item: impl Fn(u32, u64) -> T,
    ) -> Vec<T> {
        let mut items = vec![T::default(); self.offsets[self.offsets.len() - 1] as usize];
        let mut next = self.offsets.clone();
        for (index, record) in (0u32..).zip(bucket.records()) {
            let (row, source) = ends(record);
            let slot = &mut next[row as usize - first_row];
            items[*slot as usize] = item(index, source);
            *slot += 1;
        }
        each_list(&self.offsets, &mut items, &|_, list: &mut [T]| list.sort_unstable());
        items
    }

    fn put(&self, kind: Kind, bucket: &Bucket, file: &mut Pieces) -> Result<()> {
        match kind {
            Kind::Sources => file.put(&self.sources),
            Kind::Order => file.put(&self.order),
            Kind::Words { at, words } => {
                self.records.iter().try_for_each(|&edge| file.put(&bucket.get(edge)[at..at + words]))
            }
        }
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
