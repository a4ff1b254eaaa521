//! What an island needs of nodes that other parts own: facts, features and in-edges, asked of the ranks that the parts
//! belong to. All ranks ask and answer together; this is the only time at which features cross.

use super::Islands;
use crate::Result;
use crate::scratch::{Scratch, Span};
use archipelago_comm::Kind;
use archipelago_graph::store::island::GuestLists;
use archipelago_graph::store::{Guests, PartFeatures};
use archipelago_graph::{GlobalId, Part};
use bytemuck::Pod;
use std::mem;
use std::sync::Arc;

/// What is asked of guests, beyond who they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask {
    pub features: bool,
    pub lists: bool,
}

/// Who is asked for which nodes, and where answers belong.
struct Questions {
    /// For each rank, the global ids that it is asked for, ascending.
    asked: Vec<Vec<u64>>,
    /// For each rank, which of all nodes these are.
    places: Vec<Vec<usize>>,
}

impl Questions {
    fn of(islands: &Islands, ids: &[u64]) -> Self {
        let ranks = islands.comm.size();
        let (mut asked, mut places) = (vec![Vec::new(); ranks], vec![Vec::new(); ranks]);
        for (place, &id) in ids.iter().enumerate() {
            let rank = islands.turns.rank_of(islands.owner(GlobalId(id)));
            asked[rank].push(id);
            places[rank].push(place);
        }
        Self { asked, places }
    }

    /// The rank that is asked for all nodes, if there is one: its answer is in their order.
    fn only_rank(&self) -> Option<usize> {
        let mut asked = (0..self.asked.len()).filter(|&rank| !self.asked[rank].is_empty());
        asked.next().filter(|_| asked.next().is_none())
    }

    /// Puts what ranks answered, `width` values for each node, in the order of the nodes.
    fn in_order<T: Pod>(&self, mut answers: Vec<Vec<T>>, width: usize) -> Vec<T> {
        if let Some(only) = self.only_rank() {
            return mem::take(&mut answers[only]);
        }
        let count: usize = self.places.iter().map(Vec::len).sum();
        let mut ordered = vec![T::zeroed(); count * width];
        for (answer, places) in answers.iter().zip(&self.places) {
            for (values, &place) in answer.chunks_exact(width.max(1)).zip(places) {
                ordered[place * width..][..width].copy_from_slice(values);
            }
        }
        ordered
    }

    /// The same where nodes have `counts` (in the order of the nodes) values each.
    fn lists_in_order<T: Pod>(&self, mut answers: Vec<Vec<T>>, counts: &[u32]) -> Vec<T> {
        if let Some(only) = self.only_rank() {
            return mem::take(&mut answers[only]);
        }
        let mut starts: Vec<usize> = Vec::with_capacity(counts.len());
        let mut all = 0;
        for &count in counts {
            starts.push(all);
            all += count as usize;
        }
        let mut ordered = vec![T::zeroed(); all];
        for (answer, places) in answers.iter().zip(&self.places) {
            let mut rest = &answer[..];
            for &place in places {
                let (list, further) = rest.split_at(counts[place] as usize);
                ordered[starts[place]..][..list.len()].copy_from_slice(list);
                rest = further;
            }
        }
        ordered
    }
}

impl Islands {
    /// The guests with these global `ids`, ascending. All ranks ask together, also those that need nobody.
    pub(super) fn bring(&self, ids: Vec<u64>, ask: Ask) -> Result<Guests> {
        let questions = Questions::of(self, &ids);
        let heard = self.comm.all_to_all(questions.asked.clone(), Kind::Control)?;
        let originals = self.answers(&heard, Kind::Control, |part, row, told: &mut Vec<u64>| {
            told.push(part.original()[row]);
            Ok(())
        })?;
        let degrees = self.answers(&heard, Kind::Control, |part, row, told: &mut Vec<f32>| {
            told.push(part.weighted_degree(row));
            Ok(())
        })?;
        let mut guests = Guests {
            originals: questions.in_order(originals, 1),
            degrees: questions.in_order(degrees, 1),
            ids,
            ..Guests::default()
        };
        if ask.features {
            self.bring_features(&questions, &heard, &mut guests)?;
        }
        if ask.lists {
            guests.lists = Some(self.bring_lists(&questions, &heard)?);
        }
        self.let_go(heard.iter().flatten());
        Ok(guests)
    }

    /// Dense rows of these nodes in their order, `width` numbers each, which their owners read with `row`.
    pub(crate) fn bring_rows(
        &self,
        ids: &[u64],
        width: usize,
        mut row: impl FnMut(&Part, usize, &mut [f32]) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let questions = Questions::of(self, ids);
        let heard = self.comm.all_to_all(questions.asked.clone(), Kind::Control)?;
        let rows = self.answers(&heard, Kind::Embeddings, |part, at, told: &mut Vec<f32>| {
            let start = told.len();
            told.resize(start + width, 0.0);
            row(part, at, &mut told[start..])
        })?;
        Ok(questions.in_order(rows, width))
    }

    fn bring_features(&self, questions: &Questions, heard: &[Vec<u64>], guests: &mut Guests) -> Result<()> {
        match self.like.features() {
            PartFeatures::None => {}
            PartFeatures::Dense { width, .. } => {
                let rows = self.answers(heard, Kind::Features, |part, row, told: &mut Vec<f32>| {
                    if let PartFeatures::Dense { values, .. } = part.features() {
                        told.extend_from_slice(&values[row * width..][..width]);
                    }
                    Ok(())
                })?;
                guests.values = questions.in_order(rows, width);
            }
            PartFeatures::Sparse { .. } => {
                let counts = self.answers(heard, Kind::Features, |part, row, told: &mut Vec<u32>| {
                    told.push(sparse_row(part, row).0.len() as u32);
                    Ok(())
                })?;
                let columns = self.answers(heard, Kind::Features, |part, row, told: &mut Vec<u32>| {
                    told.extend_from_slice(sparse_row(part, row).0);
                    Ok(())
                })?;
                let values = self.answers(heard, Kind::Features, |part, row, told: &mut Vec<f32>| {
                    told.extend_from_slice(sparse_row(part, row).1);
                    Ok(())
                })?;
                let counts = questions.in_order(counts, 1);
                guests.columns = questions.lists_in_order(columns, &counts);
                guests.values = questions.lists_in_order(values, &counts);
                let ends = counts.iter().scan(0, |end, &count| {
                    *end += u64::from(count);
                    Some(*end)
                });
                guests.starts = std::iter::once(0).chain(ends).collect();
            }
        }
        Ok(())
    }

    fn bring_lists(&self, questions: &Questions, heard: &[Vec<u64>]) -> Result<GuestLists> {
        let edges = |part: &Part, row: usize| part.offsets()[row] as usize..part.offsets()[row + 1] as usize;
        let counts = self.answers(heard, Kind::Control, |part, row, told: &mut Vec<u32>| {
            told.push(edges(part, row).len() as u32);
            Ok(())
        })?;
        let counts = questions.in_order(counts, 1);
        let sources = self.answers(heard, Kind::Control, |part, row, told: &mut Vec<u64>| {
            told.extend(part.sources()[edges(part, row)].iter().map(|&source| part.global(source)));
            Ok(())
        })?;
        let sources = questions.lists_in_order(sources, &counts);
        if self.like.weights().is_none() {
            return Ok(GuestLists { counts, sources, weights: Vec::new() });
        }
        let weights = self.answers(heard, Kind::Control, |part, row, told: &mut Vec<f32>| {
            told.extend_from_slice(&part.weights().unwrap_or_default()[edges(part, row)]);
            Ok(())
        })?;
        Ok(GuestLists { weights: questions.lists_in_order(weights, &counts), counts, sources })
    }

    /// Answers every rank for each node that it asked for, and hears what others answer.
    fn answers<T: Pod>(
        &self,
        heard: &[Vec<u64>],
        kind: Kind,
        mut tell: impl FnMut(&Part, usize, &mut Vec<T>) -> Result<()>,
    ) -> Result<Vec<Vec<T>>> {
        let mut told = Vec::with_capacity(heard.len());
        for ids in heard {
            let mut answer = Vec::new();
            let mut last: Option<Arc<Part>> = None;
            for &id in ids {
                let part = match last.take() {
                    Some(part) if part.range().contains(&id) => part,
                    left => {
                        left.iter().for_each(|part| self.leave(part));
                        self.part(self.owner(GlobalId(id)))?
                    }
                };
                tell(&part, (id - part.range().start) as usize, &mut answer)?;
                last = Some(part);
            }
            last.iter().for_each(|part| self.leave(part));
            told.push(answer);
        }
        Ok(self.comm.all_to_all(told, kind)?)
    }
}

/// Columns and numbers of a sparse row.
fn sparse_row(part: &Part, row: usize) -> (&[u32], &[f32]) {
    let PartFeatures::Sparse { offsets, columns, values, .. } = part.features() else { return (&[], &[]) };
    let stored = offsets[row] as usize..offsets[row + 1] as usize;
    (&columns[stored.clone()], &values[stored])
}

/// Guests that wait on disk.
#[derive(Debug)]
pub(super) struct Waiting {
    waves: Vec<Wave>,
}

/// Where one wave of guests stands.
#[derive(Debug, Clone, Copy)]
struct Wave {
    ids: Span<u64>,
    originals: Span<u64>,
    degrees: Span<f32>,
    values: Span<f32>,
    starts: Span<u64>,
    columns: Span<u32>,
    lists: Option<(Span<u32>, Span<u64>, Span<f32>)>,
}

impl Waiting {
    /// Puts guests on disk.
    pub fn new(scratch: &mut Scratch, waves: &[Guests]) -> Result<Self> {
        let mut kept = Vec::with_capacity(waves.len());
        for guests in waves {
            let lists = match &guests.lists {
                Some(lists) => Some((
                    scratch.put(&lists.counts)?,
                    scratch.put(&lists.sources)?,
                    scratch.put(&lists.weights)?,
                )),
                None => None,
            };
            kept.push(Wave {
                ids: scratch.put(&guests.ids)?,
                originals: scratch.put(&guests.originals)?,
                degrees: scratch.put(&guests.degrees)?,
                values: scratch.put(&guests.values)?,
                starts: scratch.put(&guests.starts)?,
                columns: scratch.put(&guests.columns)?,
                lists,
            });
        }
        Ok(Self { waves: kept })
    }

    /// Leaves the room that they take to others.
    pub fn leave(self, scratch: &mut Scratch) {
        for wave in self.waves {
            scratch.free(wave.ids);
            scratch.free(wave.originals);
            scratch.free(wave.degrees);
            scratch.free(wave.values);
            scratch.free(wave.starts);
            scratch.free(wave.columns);
            if let Some((counts, sources, weights)) = wave.lists {
                scratch.free(counts);
                scratch.free(sources);
                scratch.free(weights);
            }
        }
    }

    /// The guests; those of later layers have no features.
    pub fn load(&self, scratch: &Scratch, features: bool) -> Result<Vec<Guests>> {
        let wave = |wave: &Wave| {
            let mut guests = Guests {
                ids: scratch.get(wave.ids)?,
                originals: scratch.get(wave.originals)?,
                degrees: scratch.get(wave.degrees)?,
                ..Guests::default()
            };
            if features {
                guests.values = scratch.get(wave.values)?;
                guests.starts = scratch.get(wave.starts)?;
                guests.columns = scratch.get(wave.columns)?;
            }
            if let Some((counts, sources, weights)) = wave.lists {
                guests.lists = Some(GuestLists {
                    counts: scratch.get(counts)?,
                    sources: scratch.get(sources)?,
                    weights: scratch.get(weights)?,
                });
            }
            Ok(guests)
        };
        self.waves.iter().map(wave).collect()
    }
}
