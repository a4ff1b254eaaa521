//! Rows of other parts that are kept because they will be read often.
//!
//! The set is chosen once, before the first step: nodes of the halo by how often sampling is expected to reach them.
//! A training node is a target; a node that is reached with expectation `p` in one hop is reached through each of its
//! in-edges with expectation `p * min(1, fanout / degree)` in the next. What a halo node would itself lead to lies
//! in other parts and is not counted. Ties go to the lower id, so the set does not depend on anything but the cut.
//!
//! Memory: the user's share of the halo, each row as on the wire. Messages: one exchange at set-up.

use super::rows::{RowForm, RowSet, Words};
use crate::Result;
use crate::feature::Scaled;
use archipelago_comm::{Comm, Kind};
use archipelago_graph::sample::Met;
use archipelago_graph::{GlobalId, Part};

/// Kept rows of other parts.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Rows by the part that owns them.
    pub sets: Vec<RowSet>,
    /// Which of the kept nodes a node is.
    numbers: Met,
    /// Where each of them stands: set, and row of it.
    places: Vec<(u32, u32)>,
}

impl Cache {
    /// Fetches the `wanted` nodes of other parts from their owners; every rank takes part.
    pub fn fill(
        comm: &Comm,
        part: &Part,
        features: &Scaled<'_>,
        form: RowForm,
        wanted: &[u64],
    ) -> Result<Self> {
        let mut asked = vec![Vec::new(); comm.size()];
        let mut places = Vec::with_capacity(wanted.len());
        let mut numbers = Met::default();
        numbers.begin(part);
        for &node in wanted {
            let owner = part.owner_of(GlobalId(node)).index();
            numbers.find_or_insert(node, places.len() as u32);
            places.push((owner as u32, asked[owner].len() as u32));
            asked[owner].push((node - part.starts()[owner]) as u32);
        }
        let counts: Vec<usize> = asked.iter().map(Vec::len).collect();
        let asked = comm.all_to_all(asked, Kind::Control)?;
        let given = asked.iter().map(|rows| {
            let mut words = vec![0; form.words(features, rows)];
            form.write(part, features, rows, &mut words)?;
            Ok(words)
        });
        let given = comm.all_to_all(given.collect::<Result<_>>()?, Kind::Features)?;
        let read = given.into_iter().zip(counts);
        let sets = read.map(|(words, count)| RowSet::read(Words::Owned(words), form, count));
        Ok(Self { sets: sets.collect::<Result<_>>()?, numbers, places })
    }

    /// Where `node` stands, if it is kept.
    pub fn find(&self, node: u64) -> Option<(u32, u32)> {
        self.numbers.find(node).map(|number| self.places[number as usize])
    }
}

/// The `count` nodes of the halo that sampling from `targets` with these fan-outs is expected to reach most often.
pub(super) fn hottest(part: &Part, targets: &[u32], fanouts: &[i64], count: usize) -> Vec<u64> {
    let owned = part.owned();
    let mut reached = vec![0f32; part.rows()];
    targets.iter().for_each(|&target| reached[target as usize] = 1.0);
    let mut total = vec![0f32; part.halo().len()];
    for &fanout in fanouts {
        let mut next = vec![0f32; part.rows()];
        for row in 0..owned {
            let edges = part.offsets()[row] as usize..part.offsets()[row + 1] as usize;
            let drawn = if fanout < 0 { edges.len() } else { edges.len().min(fanout as usize) };
            // A node stays in the frontier of the hops that follow.
            next[row] += reached[row];
            let through = reached[row] * drawn as f32 / edges.len().max(1) as f32;
            if through > 0.0 {
                part.sources()[edges].iter().for_each(|&source| next[source as usize] += through);
            }
        }
        total.iter_mut().zip(&next[owned..]).for_each(|(sum, more)| *sum += more);
        reached = next;
    }
    let mut order: Vec<u32> = (0..total.len() as u32).filter(|&halo| total[halo as usize] > 0.0).collect();
    order.sort_by(|&a, &b| total[b as usize].total_cmp(&total[a as usize]).then(a.cmp(&b)));
    order.truncate(count);
    order.into_iter().map(|halo| part.halo()[halo as usize]).collect()
}
