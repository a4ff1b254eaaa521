//! Who is on an island, in which order, and what is known of them besides features and edges.

use super::{Arrays, Guests};
use crate::array::{collected, with_room};
use crate::store::manifest::LabelKind;
use crate::store::part::Part;
use std::sync::Arc;

/// No row.
pub(super) const NONE: u32 = u32::MAX;

/// Where a row of an island comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub original: u64,
    /// Which part, or which wave of guests behind the parts.
    pub source: u32,
    /// The row there.
    pub row: u32,
}

/// Everybody on the island, in the order of rows.
pub(super) struct Crew<'a> {
    pub parts: &'a [Arc<Part>],
    pub guests: &'a [Guests],
    pub rows: Vec<Origin>,
    /// The island's row of every row that each part owns, ascending.
    pub of_parts: Vec<Vec<u32>>,
    /// The island's row of every guest of each wave.
    of_guests: Vec<Vec<u32>>,
}

impl<'a> Crew<'a> {
    pub fn muster(parts: &'a [Arc<Part>], guests: &'a [Guests]) -> Self {
        let own = parts.iter().map(|part| part.original());
        let lists: Vec<&[u64]> = own.chain(guests.iter().map(|wave| &wave.originals[..])).collect();
        let mut rows: Vec<Origin> = Vec::with_capacity(lists.iter().map(|list| list.len()).sum());
        for (source, list) in lists.iter().enumerate() {
            let origin = |(row, &original)| Origin { original, source: source as u32, row };
            rows.extend((0..).zip(*list).map(origin));
        }
        // Mostly ascending runs, which a stable sort merges.
        rows.sort_by_key(|origin| origin.original);
        let place = |list: &&[u64]| {
            let mut places = with_room(list.len());
            places.resize(list.len(), NONE);
            places
        };
        let mut places: Vec<Vec<u32>> = lists.iter().map(place).collect();
        for (at, origin) in rows.iter().enumerate() {
            places[origin.source as usize][origin.row as usize] = at as u32;
        }
        let of_guests = places.split_off(parts.len());
        Self { parts, guests, rows, of_parts: places, of_guests }
    }

    /// The row of the node with this global id; [`NONE`] if it is not here.
    pub fn find(&self, node: u64) -> u32 {
        for (part, places) in self.parts.iter().zip(&self.of_parts) {
            if part.range().contains(&node) {
                return places[(node - part.range().start) as usize];
            }
        }
        for (wave, places) in self.guests.iter().zip(&self.of_guests) {
            if let Ok(at) = wave.ids.binary_search(&node) {
                return places[at];
            }
        }
        NONE
    }

    /// Labels of the nodes of parts; guests have none.
    pub fn labels(&self, kind: LabelKind, arrays: &mut Arrays) {
        let part = |origin: &Origin| self.parts.get(origin.source as usize);
        match kind {
            LabelKind::None => {}
            LabelKind::Classes { .. } => {
                let of_parts: Vec<&[i64]> = self.parts.iter().map(|part| &part.arrays.classes[..]).collect();
                let class = |origin: &Origin| {
                    of_parts.get(origin.source as usize).map_or(-1, |classes| classes[origin.row as usize])
                };
                arrays.classes = collected(self.rows.iter().map(class)).into();
            }
            LabelKind::Multi { classes } => {
                let mut labels = vec![0; self.rows.len() * classes];
                for (slot, origin) in labels.chunks_exact_mut(classes.max(1)).zip(&self.rows) {
                    if let Some(part) = part(origin) {
                        let start = origin.row as usize * classes;
                        slot.copy_from_slice(&part.arrays.multi[start..start + classes]);
                    }
                }
                arrays.multi = labels.into();
            }
        }
    }

    /// Rows of the training nodes of the first `trained` parts, ascending.
    pub fn training(&self, trained: usize) -> Vec<u32> {
        let of_part = |(part, places): (&Arc<Part>, &Vec<u32>)| {
            part.train().iter().map(|&row| places[row as usize]).collect::<Vec<_>>()
        };
        let mut rows: Vec<u32> =
            self.parts.iter().zip(&self.of_parts).take(trained).flat_map(of_part).collect();
        rows.sort_unstable();
        rows
    }

    /// Weighted in-degree and number of in-edges of each row, in the whole graph.
    pub fn facts(&self) -> (Vec<f32>, Vec<u32>) {
        let (mut degrees, mut in_edges) = (with_room(self.rows.len()), with_room(self.rows.len()));
        let own: Vec<_> = self.parts.iter().map(|part| (part.offsets(), part.weights())).collect();
        for origin in &self.rows {
            let row = origin.row as usize;
            match own.get(origin.source as usize) {
                Some((offsets, weights)) => {
                    let list = offsets[row] as usize..offsets[row + 1] as usize;
                    in_edges.push(list.len() as u32);
                    degrees.push(weights.map_or(list.len() as f32, |weights| weights[list].iter().sum()));
                }
                None => {
                    let wave = &self.guests[origin.source as usize - self.parts.len()];
                    degrees.push(wave.degrees[row]);
                    in_edges.push(wave.lists.as_ref().map_or(0, |lists| lists.counts[row]));
                }
            }
        }
        (degrees, in_edges)
    }
}
