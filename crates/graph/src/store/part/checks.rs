//! What is looked at when a part is opened, so that a damaged file is an error here and never an index out of bounds later.

use super::Part;
use crate::store::layout;
use crate::store::manifest::{FeatureKind, damaged};
use crate::{Error, Result};
use std::path::Path;

/// What must hold so that no index goes out of bounds.
pub(super) struct Checks<'a> {
    pub part: &'a Part,
    pub folder: &'a Path,
}

impl Checks<'_> {
    /// Everything, in one pass over each file.
    pub fn all(&self) -> Result<()> {
        let (part, arrays) = (self.part, &self.part.arrays);
        let nodes = part.starts.last().copied().unwrap_or(0);
        let rows = part.rows() as u64;
        if rows > u64::from(u32::MAX) {
            return Err(self.wrong(layout::HALO, "", "rows that fit 32 bits", rows));
        }
        self.ascending(layout::ORIGINAL, &arrays.original, nodes)?;
        self.ascending(layout::HALO, &arrays.halo, nodes)?;
        self.starts_of(layout::OFFSETS, &arrays.offsets, arrays.sources.len())?;
        self.below(layout::SOURCES, &arrays.sources, rows)?;
        self.foreign(&arrays.halo)?;
        self.lists(&arrays.sources)?;
        if let Some(order) = &arrays.order {
            self.order(order)?;
        }
        for (name, split) in [layout::TRAIN, layout::VALID, layout::TEST].into_iter().zip(&arrays.splits) {
            self.below(name, split, part.owned() as u64)?;
        }
        if let Some(types) = &arrays.types {
            self.below(layout::TYPES, types, u64::from(part.edge_columns.types))?;
        }
        if let FeatureKind::Sparse { width } = part.feature_kind {
            self.starts_of(layout::FEATURE_OFFSETS, &arrays.feature_offsets, arrays.feature_columns.len())?;
            self.below(layout::FEATURE_COLUMNS, &arrays.feature_columns, width as u64)?;
        }
        let classes = part.classes() as i64;
        match arrays.classes.iter().position(|class| !(-1..classes).contains(class)) {
            None => Ok(()),
            Some(row) => {
                let expected = format!("-1 or a class below {classes}");
                Err(self.wrong(layout::LABELS, &format!("row {row}"), &expected, arrays.classes[row]))
            }
        }
    }

    /// Strictly ascending ids below `bound`.
    fn ascending(&self, name: &str, ids: &[u64], bound: u64) -> Result<()> {
        if let Some(at) = ids.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(self.wrong(
                name,
                &format!("element {}", at + 1),
                &format!("more than {}", ids[at]),
                ids[at + 1],
            ));
        }
        match ids.last() {
            Some(&last) if last >= bound => Err(self.wrong(
                name,
                &format!("element {}", ids.len() - 1),
                &format!("an id below {bound}"),
                last,
            )),
            _ => Ok(()),
        }
    }

    /// List starts that ascend from 0 to `end`.
    fn starts_of(&self, name: &str, starts: &[u64], end: usize) -> Result<()> {
        if let Some(at) = starts.windows(2).position(|pair| pair[0] > pair[1]) {
            let expected = format!("at least {}", starts[at]);
            return Err(self.wrong(name, &format!("element {}", at + 1), &expected, starts[at + 1]));
        }
        match (starts.first(), starts.last()) {
            (Some(0), Some(&last)) if last == end as u64 => Ok(()),
            (first, last) => Err(self.wrong(
                name,
                "",
                &format!("starts from 0 to {end}"),
                format!("{first:?} to {last:?}"),
            )),
        }
    }

    /// Numbers below `bound`. The maximum is taken first because it needs no branch per element.
    fn below(&self, name: &str, numbers: &[u32], bound: u64) -> Result<()> {
        let largest = numbers.iter().fold(0, |largest, &number| number.max(largest));
        if numbers.is_empty() || u64::from(largest) < bound {
            return Ok(());
        }
        let at = numbers.iter().position(|&number| number == largest).unwrap_or(0);
        Err(self.wrong(name, &format!("element {at}"), &format!("a number below {bound}"), largest))
    }

    /// A halo of nodes that other parts own.
    fn foreign(&self, halo: &[u64]) -> Result<()> {
        let own = self.part.range();
        let at = halo.partition_point(|&node| node < own.start);
        match halo.get(at).filter(|node| own.contains(node)) {
            None => Ok(()),
            Some(node) => {
                let expected = format!("an id outside of {}..{}", own.start, own.end);
                Err(self.wrong(layout::HALO, &format!("element {at}"), &expected, node))
            }
        }
    }

    /// In-edges that ascend within their lists.
    fn lists(&self, sources: &[u32]) -> Result<()> {
        for list in self.part.arrays.offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize) {
            if !sources[list.clone()].is_sorted() {
                let at =
                    list.clone().find(|&at| at > list.start && sources[at] < sources[at - 1]).unwrap_or(0);
                let expected = format!("at least {}", sources[at.saturating_sub(1)]);
                return Err(self.wrong(layout::SOURCES, &format!("element {at}"), &expected, sources[at]));
            }
        }
        Ok(())
    }

    /// Positions within their lists.
    fn order(&self, order: &[u32]) -> Result<()> {
        for list in self.part.arrays.offsets.windows(2) {
            let positions = &order[list[0] as usize..list[1] as usize];
            self.below(layout::ORDER, positions, positions.len() as u64)?;
        }
        Ok(())
    }

    fn wrong(&self, name: &str, place: &str, expected: &str, found: impl std::fmt::Display) -> Error {
        damaged(Error::input(self.folder.join(name), place, expected, format!("`{found}`")))
    }
}
