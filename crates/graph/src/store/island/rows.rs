//! The feature rows of an island: copied from the files of its parts, whose pages are given back on the way, and from
//! what guests brought.

use super::crew::{Crew, Origin};
use super::hands::{Hands, share_out};
use super::{Arrays, list_of};
use crate::array::Array;
use crate::store::manifest::FeatureKind;

/// Rows between two moments at which pages that were copied are given back.
const STRETCH: usize = 1 << 14;

/// Rows that one hand copies at a time.
const HANDFUL: usize = 1 << 9;

/// Puts the features of everybody into `arrays`, their numbers in `memory` if it is enough.
pub(super) fn copy(
    crew: &Crew<'_>,
    kind: FeatureKind,
    memory: Vec<f32>,
    arrays: &mut Arrays,
    hands: &Hands<'_>,
) {
    match kind {
        FeatureKind::None => {}
        FeatureKind::Dense { width } => arrays.features = dense(crew, width, memory, hands).into(),
        FeatureKind::Sparse { .. } => sparse(crew, memory, arrays),
    }
}

fn dense(crew: &Crew<'_>, width: usize, memory: Vec<f32>, hands: &Hands<'_>) -> Vec<f32> {
    let of_parts: Vec<Array<f32>> = crew.parts.iter().map(|part| part.feature_values()).collect();
    let of_guests = crew.guests.iter().map(|wave| &wave.values[..]);
    let rows_of: Vec<&[f32]> = of_parts.iter().map(|rows| &rows[..]).chain(of_guests).collect();
    let all = crew.rows.len() * width;
    let mut values = list_of(memory, all, all);
    let mut given_back = vec![0; crew.parts.len()];
    for (stretch, slots) in crew.rows.chunks(STRETCH).zip(values.chunks_mut((STRETCH * width).max(1))) {
        for (part, rows) in of_parts.iter().enumerate() {
            if let Some(last) = last_of(stretch, part) {
                rows.populate(given_back[part]..(last + 1) * width);
            }
        }
        let pieces = stretch.chunks(HANDFUL).zip(slots.chunks_mut((HANDFUL * width).max(1)));
        share_out(hands, pieces.collect(), |_, (origins, slots)| {
            for (origin, slot) in origins.iter().zip(slots.chunks_exact_mut(width)) {
                let start = origin.row as usize * width;
                slot.copy_from_slice(&rows_of[origin.source as usize][start..start + width]);
            }
        });
        // Rows of a part come in ascending order: those up to its last one have been copied.
        for (part, rows) in of_parts.iter().enumerate() {
            if let Some(last) = last_of(stretch, part) {
                let end = (last + 1) * width;
                rows.release_range(given_back[part]..end);
                given_back[part] = end;
            }
        }
    }
    of_parts.iter().for_each(Array::release);
    values
}

fn sparse(crew: &Crew<'_>, mut values: Vec<f32>, arrays: &mut Arrays) {
    let (mut offsets, mut columns) = (vec![0u64], Vec::new());
    values.clear();
    for origin in &crew.rows {
        let (source, row) = (origin.source as usize, origin.row as usize);
        let (starts, from, numbers): (&[u64], &[u32], &[f32]) = match crew.parts.get(source) {
            Some(part) => {
                let stored = &part.arrays;
                (&stored.feature_offsets, &stored.feature_columns, &stored.features)
            }
            None => {
                let wave = &crew.guests[source - crew.parts.len()];
                (&wave.starts, &wave.columns, &wave.values)
            }
        };
        let stored = starts[row] as usize..starts[row + 1] as usize;
        columns.extend_from_slice(&from[stored.clone()]);
        values.extend_from_slice(&numbers[stored]);
        offsets.push(values.len() as u64);
    }
    arrays.feature_offsets = offsets.into();
    arrays.feature_columns = columns.into();
    arrays.features = values.into();
}

/// The last row of a part among these.
fn last_of(origins: &[Origin], part: usize) -> Option<usize> {
    let last = origins.iter().rev().find(|origin| origin.source as usize == part);
    last.map(|origin| origin.row as usize)
}
