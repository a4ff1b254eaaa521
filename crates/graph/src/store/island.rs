//! A piece of the graph that is trained on by itself: the nodes of some parts, the edges between them, and, where
//! asked for, nodes around them whose features are read but never computed in full.
//!
//! An island looks like a store of one part, so whatever works on a part works on it: rows are its nodes in ascending
//! original id, whichever part they come from, and every list of in-edges is ascending too. What an island leaves out
//! is on record: for every row its degree in the whole graph stands beside the in-edges that are left (coverage).
//!
//! Cost: one pass over the nodes and edges of its parts, and a copy of their features; pages of the mapped files
//! are given back as the copy goes on, so that no more than the island itself stays in memory.

use super::manifest::{FeatureKind, LabelKind};
use super::part::{Arrays, Part};
use crate::PartId;
use crate::array::{Array, with_room};
use crate::dataset::EdgeColumns;
use std::sync::Arc;

/// No row.
const NONE: u32 = u32::MAX;

/// Rows between two moments at which pages that were copied are given back.
const STRETCH: usize = 1 << 14;

/// Nodes around an island, as the parts that own them tell of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guests {
    /// Global ids, ascending.
    pub ids: Vec<u64>,
    /// Original ids.
    pub originals: Vec<u64>,
    /// Weighted in-degrees in the whole graph.
    pub degrees: Vec<f32>,
    /// Feature rows: dense ones side by side, or the stored numbers of sparse ones.
    pub values: Vec<f32>,
    /// Where each sparse row starts, one more than there are guests; empty where rows are dense.
    pub starts: Vec<u64>,
    /// Column of each stored number of a sparse row.
    pub columns: Vec<u32>,
    /// In-edges, for guests that send on what they hear.
    pub lists: Option<GuestLists>,
}

/// The in-edges of guests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestLists {
    /// In-edges of each guest.
    pub counts: Vec<u32>,
    /// Global ids of their sources, guest by guest.
    pub sources: Vec<u64>,
    /// Their weights; empty where edges have none.
    pub weights: Vec<f32>,
}

/// A self-contained piece of the graph.
#[derive(Debug)]
pub struct Island {
    /// The piece, as if there was no more of the graph. Its training nodes are those of the parts that were asked to
    /// give theirs; it has no other splits.
    pub part: Part,
    /// Global id of each row in the whole graph.
    pub globals: Vec<u64>,
    /// Weighted in-degree of each row in the whole graph.
    pub degrees: Vec<f32>,
    /// In-edges of each row in the whole graph; those of a guest without a list count as 0.
    pub in_edges: Vec<u32>,
}

impl Island {
    /// Global ids of the nodes that send to `parts` and belong to none of them, ascending.
    pub fn around(parts: &[Arc<Part>]) -> Vec<u64> {
        let inside = |node: u64| parts.iter().any(|part| part.range().contains(&node));
        let mut ids: Vec<u64> =
            parts.iter().flat_map(|part| part.halo()).copied().filter(|&node| !inside(node)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The island of `parts` and `guests` (wave by wave, each ascending); the first `trained` parts give their
    /// training nodes. `like` is any part of the store. Rows have features if there is memory for them, such as an empty
    /// list or that of an island before ([`Part::into_features`]).
    pub fn build(
        like: &Part,
        parts: &[Arc<Part>],
        trained: usize,
        guests: &[Guests],
        features: Option<Vec<f32>>,
    ) -> Self {
        let crew = Crew::muster(parts, guests);
        let mut arrays = crew.edges(like.weights().is_some());
        let kind = if features.is_some() { like.feature_kind } else { FeatureKind::None };
        crew.features(kind, features.unwrap_or_default(), &mut arrays);
        crew.labels(like.label_kind, &mut arrays);
        arrays.splits[0] = crew.training(trained).into();
        let nodes = crew.rows.len() as u64;
        let edge_columns = EdgeColumns { weighted: like.edge_columns.weighted, ..EdgeColumns::default() };
        let part = Part {
            id: PartId(0),
            starts: Arc::new([0, nodes]),
            edge_columns,
            feature_kind: kind,
            label_kind: like.label_kind,
            undirected: like.undirected,
            arrays,
        };
        let (globals, degrees, in_edges) = crew.facts();
        Self { part, globals, degrees, in_edges }
    }

    /// Share of the in-edges of `row` in the whole graph that are on the island; 1 where it has none.
    pub fn coverage(&self, row: u32) -> f32 {
        let row = row as usize;
        let here = self.part.offsets()[row + 1] - self.part.offsets()[row];
        match self.in_edges[row] {
            0 => 1.0,
            all => (here as f32 / all as f32).min(1.0),
        }
    }
}

/// Where a row of an island comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    original: u64,
    /// Which part, or which wave of guests behind the parts.
    source: u32,
    /// The row there.
    row: u32,
}

/// Everybody on the island, in the order of rows.
struct Crew<'a> {
    parts: &'a [Arc<Part>],
    guests: &'a [Guests],
    rows: Vec<Origin>,
    /// The island's row of every row (owned, then halo) of each part; [`NONE`] for those that are not on it.
    of_parts: Vec<Vec<u32>>,
    /// The island's row of every guest of each wave.
    of_guests: Vec<Vec<u32>>,
}

impl<'a> Crew<'a> {
    fn muster(parts: &'a [Arc<Part>], guests: &'a [Guests]) -> Self {
        let own = parts.iter().map(|part| part.original());
        let lists: Vec<&[u64]> = own.chain(guests.iter().map(|wave| &wave.originals[..])).collect();
        let mut rows: Vec<Origin> = Vec::with_capacity(lists.iter().map(|list| list.len()).sum());
        for (source, list) in lists.iter().enumerate() {
            let origin = |(row, &original)| Origin { original, source: source as u32, row };
            rows.extend((0..).zip(*list).map(origin));
        }
        // Mostly ascending runs, which a stable sort merges.
        rows.sort_by_key(|origin| origin.original);
        // Room for the halo, which follows.
        let halo = |source: usize| parts.get(source).map_or(0, |part| part.halo().len());
        let place = |(source, list): (usize, &&[u64])| {
            let mut places = with_room(list.len() + halo(source));
            places.resize(list.len(), NONE);
            places
        };
        let mut places: Vec<Vec<u32>> = lists.iter().enumerate().map(place).collect();
        for (at, origin) in rows.iter().enumerate() {
            places[origin.source as usize][origin.row as usize] = at as u32;
        }
        let of_guests = places.split_off(parts.len());
        let mut crew = Self { parts, guests, rows, of_parts: places, of_guests };
        for (index, part) in parts.iter().enumerate() {
            let halo: Vec<u32> = part.halo().iter().map(|&node| crew.find(node)).collect();
            crew.of_parts[index].extend(halo);
        }
        crew
    }

    /// The row of the node with this global id.
    fn find(&self, node: u64) -> u32 {
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

    /// Ids and lists of in-edges.
    fn edges(&self, weighted: bool) -> Arrays {
        let lists = Lists::of(self);
        let most: usize = self.parts.iter().map(|part| part.edges()).sum();
        let (mut offsets, mut sources) = (with_room(self.rows.len() + 1), with_room(most));
        let mut weights = with_room(if weighted { most } else { 0 });
        offsets.push(0u64);
        let mut found = Vec::new();
        for origin in &self.rows {
            lists.find(origin, &mut found);
            sources.extend(found.iter().map(|(source, _)| source));
            if weighted {
                weights.extend(found.iter().map(|(_, weight)| weight));
            }
            offsets.push(sources.len() as u64);
        }
        sources.shrink_to_fit();
        weights.shrink_to_fit();
        Arrays {
            original: self.rows.iter().map(|origin| origin.original).collect::<Vec<_>>().into(),
            offsets: offsets.into(),
            sources: sources.into(),
            order: None,
            halo: Array::empty(),
            weights: weighted.then(|| weights.into()),
            types: None,
            attributes: None,
            features: Array::empty(),
            feature_offsets: Array::empty(),
            feature_columns: Array::empty(),
            classes: Array::empty(),
            multi: Array::empty(),
            splits: [Array::empty(), Array::empty(), Array::empty()],
        }
    }

    fn features(&self, kind: FeatureKind, memory: Vec<f32>, arrays: &mut Arrays) {
        match kind {
            FeatureKind::None => {}
            FeatureKind::Dense { width } => arrays.features = self.dense(width, memory).into(),
            FeatureKind::Sparse { .. } => self.sparse(arrays),
        }
    }

    fn dense(&self, width: usize, mut values: Vec<f32>) -> Vec<f32> {
        let of_parts: Vec<Array<f32>> = self.parts.iter().map(|part| part.feature_values()).collect();
        let of_guests = self.guests.iter().map(|wave| &wave.values[..]);
        let rows_of: Vec<&[f32]> = of_parts.iter().map(|rows| &rows[..]).chain(of_guests).collect();
        values.clear();
        if values.capacity() < self.rows.len() * width {
            values = with_room(self.rows.len() * width);
        }
        let mut given_back = vec![0; self.parts.len()];
        for stretch in self.rows.chunks(STRETCH) {
            for (part, rows) in of_parts.iter().enumerate() {
                if let Some(last) = last_of(stretch, part) {
                    rows.populate(given_back[part]..(last + 1) * width);
                }
            }
            for origin in stretch {
                let start = origin.row as usize * width;
                values.extend_from_slice(&rows_of[origin.source as usize][start..start + width]);
            }
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

    fn sparse(&self, arrays: &mut Arrays) {
        let (mut offsets, mut columns, mut values) = (vec![0u64], Vec::new(), Vec::new());
        for origin in &self.rows {
            let (source, row) = (origin.source as usize, origin.row as usize);
            let (starts, from, numbers): (&[u64], &[u32], &[f32]) = match self.parts.get(source) {
                Some(part) => {
                    let stored = &part.arrays;
                    (&stored.feature_offsets, &stored.feature_columns, &stored.features)
                }
                None => {
                    let wave = &self.guests[source - self.parts.len()];
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

    /// Labels of the nodes of parts; guests have none.
    fn labels(&self, kind: LabelKind, arrays: &mut Arrays) {
        let part = |origin: &Origin| self.parts.get(origin.source as usize);
        match kind {
            LabelKind::None => {}
            LabelKind::Classes { .. } => {
                let of_parts: Vec<&[i64]> = self.parts.iter().map(|part| &part.arrays.classes[..]).collect();
                let class = |origin: &Origin| {
                    of_parts.get(origin.source as usize).map_or(-1, |classes| classes[origin.row as usize])
                };
                arrays.classes = self.rows.iter().map(class).collect::<Vec<_>>().into();
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
    fn training(&self, trained: usize) -> Vec<u32> {
        let of_part = |(part, places): (&Arc<Part>, &Vec<u32>)| {
            part.train().iter().map(|&row| places[row as usize]).collect::<Vec<_>>()
        };
        let mut rows: Vec<u32> =
            self.parts.iter().zip(&self.of_parts).take(trained).flat_map(of_part).collect();
        rows.sort_unstable();
        rows
    }

    /// Global id, weighted in-degree and number of in-edges of each row, in the whole graph.
    fn facts(&self) -> (Vec<u64>, Vec<f32>, Vec<u32>) {
        let mut globals = Vec::with_capacity(self.rows.len());
        let mut degrees = Vec::with_capacity(self.rows.len());
        let mut in_edges = Vec::with_capacity(self.rows.len());
        let own: Vec<_> =
            self.parts.iter().map(|part| (part.range().start, part.offsets(), part.weights())).collect();
        for origin in &self.rows {
            let row = origin.row as usize;
            match own.get(origin.source as usize) {
                Some((first, offsets, weights)) => {
                    let list = offsets[row] as usize..offsets[row + 1] as usize;
                    globals.push(first + u64::from(origin.row));
                    in_edges.push(list.len() as u32);
                    degrees.push(weights.map_or(list.len() as f32, |weights| weights[list].iter().sum()));
                }
                None => {
                    let wave = &self.guests[origin.source as usize - self.parts.len()];
                    globals.push(wave.ids[row]);
                    degrees.push(wave.degrees[row]);
                    in_edges.push(wave.lists.as_ref().map_or(0, |lists| lists.counts[row]));
                }
            }
        }
        (globals, degrees, in_edges)
    }
}

/// The last row of a part among these.
fn last_of(origins: &[Origin], part: usize) -> Option<usize> {
    let last = origins.iter().rev().find(|origin| origin.source as usize == part);
    last.map(|origin| origin.row as usize)
}

/// In-edge lists of everybody, as far as both ends are on the island.
struct Lists<'a> {
    crew: &'a Crew<'a>,
    own: Vec<OwnLists<'a>>,
    /// Where the list of each guest starts, wave by wave; none for waves without lists.
    starts: Vec<Option<Vec<usize>>>,
}

/// The lists of a part, looked up once.
struct OwnLists<'a> {
    offsets: &'a [u64],
    sources: &'a [u32],
    weights: Option<&'a [f32]>,
    /// The island's row of each row of the part.
    places: &'a [u32],
}

impl<'a> Lists<'a> {
    fn of(crew: &'a Crew<'a>) -> Self {
        let own = crew.parts.iter().zip(&crew.of_parts).map(|(part, places)| OwnLists {
            offsets: part.offsets(),
            sources: part.sources(),
            weights: part.weights(),
            places,
        });
        let sums = |lists: &GuestLists| {
            let ends = lists.counts.iter().scan(0, |end, &count| {
                *end += count as usize;
                Some(*end)
            });
            std::iter::once(0).chain(ends).collect()
        };
        let starts = crew.guests.iter().map(|wave| wave.lists.as_ref().map(sums)).collect();
        Self { crew, own: own.collect(), starts }
    }

    /// Puts the source row and the weight of every in-edge of a row into `found`, in ascending row, which is ascending
    /// original id.
    ///
    /// Lists are read as they are stored, which walks through the places in one direction per owner; what is left is then
    /// a few ascending runs, which a stable sort merges.
    fn find(&self, origin: &Origin, found: &mut Vec<(u32, f32)>) {
        found.clear();
        let (source, row) = (origin.source as usize, origin.row as usize);
        match self.own.get(source) {
            Some(own) => own.add(row, found),
            None => self.add_of_guest(source - self.own.len(), row, found),
        }
        found.retain(|(place, _)| *place != NONE);
        found.sort_by_key(|(place, _)| *place);
    }

    fn add_of_guest(&self, wave: usize, row: usize, found: &mut Vec<(u32, f32)>) {
        let lists = &self.crew.guests[wave].lists;
        let (Some(lists), Some(starts)) = (lists, &self.starts[wave]) else { return };
        let edges = starts[row]..starts[row + 1];
        let weight = |edge: usize| lists.weights.get(edge).copied().unwrap_or(1.0);
        found.extend(edges.map(|edge| (self.crew.find(lists.sources[edge]), weight(edge))));
    }
}

impl OwnLists<'_> {
    fn add(&self, row: usize, found: &mut Vec<(u32, f32)>) {
        let edges = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        let places = self.sources[edges.clone()].iter().map(|&source| self.places[source as usize]);
        match self.weights {
            Some(weights) => found.extend(places.zip(weights[edges].iter().copied())),
            None => found.extend(places.map(|place| (place, 1.0))),
        }
    }
}
