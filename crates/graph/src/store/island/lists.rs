//! The in-edges between nodes of an island, list by list in ascending row.
//!
//! Rows of a part that are on the island lie side by side in a few [`Span`]s: its own, and of its halo what each other
//! part of the island owns, because halos are in order of owner. So a list is cut into spans by a search, what lies between
//! is not looked at, and of the tables of places only the spans are held. Two passes: the first counts what is left of each
//! list, the second writes it where it belongs, both by many hands.

use super::crew::{Crew, NONE};
use super::hands::{Hands, share_out};
use super::list_of;
use crate::store::part::Part;
use std::borrow::Cow;
use std::ops::Range;
use std::{hint, iter};

/// Rows whose lists one hand makes at a time: first all their places are looked up, which waits for memory many times at
/// once as long as nothing depends on what is found; then each list is put in order.
const BLOCK: usize = 1 << 9;

/// In-edges of all rows.
pub(super) struct Found {
    pub offsets: Vec<u64>,
    pub sources: Vec<u32>,
    pub weights: Option<Vec<f32>>,
}

/// Finds the in-edges of everybody, in memory that is there if it is enough.
pub(super) fn found(
    crew: &Crew<'_>,
    weighted: bool,
    sources: Vec<u32>,
    weights: Vec<f32>,
    hands: &Hands<'_>,
) -> Found {
    let lists = Lists::of(crew, hands);
    let offsets = lists.offsets(hands);
    let (most, len) = (crew.parts.iter().map(|part| part.edges()).sum(), offsets[crew.rows.len()] as usize);
    let most = len.max(most);
    let mut sources = list_of(sources, len, most);
    let mut weights = if weighted { list_of(weights, len, most) } else { Vec::new() };
    let (mut left, mut left_weights) = (&mut sources[..], &mut weights[..]);
    let mut piece = |ends: &[u64]| {
        let len = (ends[ends.len() - 1] - ends[0]) as usize;
        let sources = left.split_off_mut(..len).unwrap_or_default();
        let weights = left_weights.split_off_mut(..if weighted { len } else { 0 }).unwrap_or_default();
        Piece { sources, weights }
    };
    let blocks = (0..crew.rows.len()).step_by(BLOCK);
    let block = |first: usize| first..crew.rows.len().min(first + BLOCK);
    let pieces = blocks.map(|first| piece(&offsets[first..=block(first).end])).collect();
    share_out(hands, pieces, |at, piece| match weighted {
        true => lists.write::<(u32, f32)>(block(at * BLOCK), piece),
        false => lists.write::<u32>(block(at * BLOCK), piece),
    });
    Found { offsets, sources, weights: weighted.then_some(weights) }
}

/// Room for the lists of some rows.
struct Piece<'a> {
    sources: &'a mut [u32],
    weights: &'a mut [f32],
}

/// In-edge lists of everybody, as far as both ends are on the island.
struct Lists<'a> {
    crew: &'a Crew<'a>,
    of_parts: Vec<PartLists<'a>>,
    /// The lists of each wave of guests; none for waves without.
    of_guests: Vec<Option<WaveLists<'a>>>,
}

impl<'a> Lists<'a> {
    fn of(crew: &'a Crew<'a>, hands: &Hands<'_>) -> Self {
        Self {
            crew,
            of_parts: (0..crew.parts.len()).map(|part| PartLists::of(crew, part, hands)).collect(),
            of_guests: (0..crew.guests.len()).map(|wave| WaveLists::of(crew, wave, hands)).collect(),
        }
    }

    /// Where the list of each row starts, one more than there are rows.
    fn offsets(&self, hands: &Hands<'_>) -> Vec<u64> {
        let rows = &self.crew.rows;
        let mut offsets = list_of(Vec::new(), rows.len() + 1, rows.len() + 1);
        let pieces = offsets[1..].chunks_mut(BLOCK).zip(rows.chunks(BLOCK)).collect();
        share_out(hands, pieces, |_, (counts, origins)| {
            for (count, origin) in counts.iter_mut().zip(origins.iter()) {
                let (source, row) = (origin.source as usize, origin.row as usize);
                let found = match self.of_parts.get(source) {
                    Some(lists) => lists.count(row),
                    None => self.of_guest(source, row).map_or(0, |(places, _)| on_island(places)),
                };
                *count = found as u64;
            }
        });
        let mut end = 0;
        for offset in &mut offsets {
            end += *offset;
            *offset = end;
        }
        offsets
    }

    /// Places and weights of the in-edges of a guest of the wave behind the parts that `source` stands for.
    fn of_guest(&self, source: usize, row: usize) -> Option<(&[u32], &[f32])> {
        self.of_guests[source - self.of_parts.len()].as_ref().map(|lists| lists.list(row))
    }

    /// Writes the lists of some rows.
    fn write<T: InEdge>(&self, rows: Range<usize>, piece: &mut Piece<'_>) {
        let mut read =
            Read { edges: Vec::with_capacity(piece.sources.len()), lists: Vec::with_capacity(rows.len()) };
        for origin in &self.crew.rows[rows] {
            let (source, row) = (origin.source as usize, origin.row as usize);
            let order = match self.of_parts.get(source) {
                Some(lists) => lists.read(row, &mut read.edges),
                None => {
                    if let Some((places, weights)) = self.of_guest(source, row) {
                        let edges = T::edges(places.iter().copied(), weights);
                        read.edges.extend(edges.filter(|edge| edge.place() != NONE));
                    }
                    Order::None
                }
            };
            read.lists.push((read.edges.len(), order));
        }
        // What is counted and what is found are two passes: a gap would be filled with what was there before.
        assert_eq!(
            read.edges.len(),
            piece.sources.len(),
            "in-edges that were counted and in-edges that are there"
        );
        read.put(piece);
    }
}

/// How many of these places are on the island.
fn on_island(places: &[u32]) -> usize {
    places.iter().filter(|&&place| place != NONE).count()
}

/// Lists as they were read.
struct Read<'a, T> {
    edges: Vec<T>,
    /// Where each list ends, and what is known of its order.
    lists: Vec<(usize, Order<'a>)>,
}

/// What is known of the order of a list.
enum Order<'a> {
    /// It ascends.
    Ascending,
    /// It ascends up to here, and from here on.
    TwoRuns(usize),
    /// The positions of its edges in ascending order.
    Known(&'a [u32]),
    /// Nothing.
    None,
}

impl<T: InEdge> Read<'_, T> {
    /// Puts every list in order and where it belongs.
    fn put(mut self, piece: &mut Piece<'_>) {
        let (mut start, mut ordered) = (0, Vec::new());
        for (end, order) in self.lists {
            let list = &mut self.edges[start..end];
            ordered.clear();
            match order {
                Order::Ascending => {}
                Order::TwoRuns(second) => merge(list.split_at(second - start), &mut ordered),
                Order::Known(positions) => ordered.extend(positions.iter().map(|&at| list[at as usize])),
                Order::None => list.sort_by_key(|edge| edge.place()),
            }
            T::put(if ordered.is_empty() { list } else { &ordered }, piece, start);
            start = end;
        }
    }
}

/// Two ascending runs as one. Which of them comes next is anybody's guess, so nothing is made to depend on it that a
/// processor would guess.
fn merge<T: InEdge>((first, second): (&[T], &[T]), merged: &mut Vec<T>) {
    let (mut a, mut b) = (0, 0);
    while a < first.len() && b < second.len() {
        let (one, other) = (first[a], second[b]);
        let from_second = other.place() < one.place();
        merged.push(hint::select_unpredictable(from_second, other, one));
        a += usize::from(!from_second);
        b += usize::from(from_second);
    }
    merged.extend_from_slice(&first[a..]);
    merged.extend_from_slice(&second[b..]);
}

/// An in-edge on its way: the place of its source, with its weight where edges have any.
trait InEdge: Copy {
    /// The edges from these places; `weights` are empty where edges have none.
    fn edges<'a>(
        places: impl Iterator<Item = u32> + 'a,
        weights: &'a [f32],
    ) -> impl Iterator<Item = Self> + 'a;

    /// The row of its source.
    fn place(self) -> u32;

    /// Writes edges from `at` on.
    fn put(edges: &[Self], piece: &mut Piece<'_>, at: usize);
}

impl InEdge for u32 {
    fn edges<'a>(places: impl Iterator<Item = u32> + 'a, _: &'a [f32]) -> impl Iterator<Item = Self> + 'a {
        places
    }

    fn place(self) -> u32 {
        self
    }

    fn put(edges: &[Self], piece: &mut Piece<'_>, at: usize) {
        piece.sources[at..][..edges.len()].copy_from_slice(edges);
    }
}

impl InEdge for (u32, f32) {
    fn edges<'a>(
        places: impl Iterator<Item = u32> + 'a,
        weights: &'a [f32],
    ) -> impl Iterator<Item = Self> + 'a {
        places.zip(weights.iter().copied())
    }

    fn place(self) -> u32 {
        self.0
    }

    fn put(edges: &[Self], piece: &mut Piece<'_>, at: usize) {
        let slots = piece.sources[at..].iter_mut().zip(&mut piece.weights[at..]);
        for ((source, weight), edge) in slots.zip(edges) {
            (*source, *weight) = *edge;
        }
    }
}

/// The in-edges of the nodes of a part.
struct PartLists<'a> {
    offsets: &'a [u64],
    sources: &'a [u32],
    weights: Option<&'a [f32]>,
    /// Positions in ascending order, where every row of the part is on the island and lists are not in that order.
    order: Option<&'a [u32]>,
    /// Rows of the part that are on the island, ascending.
    spans: Vec<Span<'a>>,
    /// Whether these are all.
    complete: bool,
}

/// Rows of a part that are on the island, side by side there.
struct Span<'a> {
    /// The rows in the part.
    rows: Range<u32>,
    places: Places<'a>,
    /// Whether each has a place: guests may have been left out.
    whole: bool,
    /// Whether places ascend: those of one owner do.
    ascending: bool,
}

/// The island's row of each row of a span.
enum Places<'a> {
    /// One by one.
    Each(Cow<'a, [u32]>),
    /// How far behind the first of its [`TOGETHER`]: a third of the memory, which is what lookups wait for.
    Near { firsts: Vec<u32>, steps: Vec<u8> },
}

/// Rows whose places are told from the first of them.
const TOGETHER: usize = 8;

impl<'a> Places<'a> {
    /// Places in the shortest form, which there is for those that ascend in short steps.
    fn new(places: Cow<'a, [u32]>, ascending: bool) -> Self {
        if !ascending {
            return Self::Each(places);
        }
        let mut steps: Vec<u8> = Vec::with_capacity(places.len());
        for near in places.chunks(TOGETHER) {
            if near[near.len() - 1] - near[0] > u32::from(u8::MAX) {
                return Self::Each(places);
            }
            steps.extend(near.iter().map(|place| (place - near[0]) as u8));
        }
        Self::Near { firsts: places.iter().step_by(TOGETHER).copied().collect(), steps }
    }
}

impl<'a> PartLists<'a> {
    fn of(crew: &'a Crew<'a>, index: usize, hands: &Hands<'_>) -> Self {
        let part: &Part = &crew.parts[index];
        let own = Places::new(Cow::Borrowed(&crew.of_parts[index]), true);
        let mut spans =
            vec![Span { rows: 0..part.owned() as u32, places: own, whole: true, ascending: true }];
        spans.extend(halo_spans(crew, index, hands));
        let rows: usize = spans.iter().map(|span| span.rows.len()).sum();
        let complete = rows == part.rows() && spans.iter().all(|span| span.whole);
        Self {
            offsets: part.offsets(),
            sources: part.sources(),
            weights: part.weights(),
            order: part.order().filter(|_| complete),
            spans,
            complete,
        }
    }

    fn list(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// How many in-edges of a row are on the island.
    fn count(&self, row: usize) -> usize {
        let list = self.list(row);
        if self.complete {
            return list.len();
        }
        let count = |(span, edges): (&Span<'_>, Range<usize>)| match (&span.places, span.whole) {
            (Places::Each(places), false) => {
                let place = |&row: &u32| places[(row - span.rows.start) as usize];
                self.sources[edges].iter().map(place).filter(|&place| place != NONE).count()
            }
            _ => edges.len(),
        };
        self.cut(list).map(count).sum()
    }

    /// The edges of a list in each span.
    fn cut(&self, mut list: Range<usize>) -> impl Iterator<Item = (&Span<'a>, Range<usize>)> {
        let before = |edges: Range<usize>, row| edges.start + below(&self.sources[edges], row);
        self.spans.iter().map_while(move |span| {
            if list.is_empty() {
                return None;
            }
            let start = before(list.clone(), span.rows.start);
            list.start = before(start..list.end, span.rows.end);
            Some((span, start..list.start))
        })
    }

    /// Adds the in-edges of a row that are on the island.
    fn read<T: InEdge>(&self, row: usize, read: &mut Vec<T>) -> Order<'a> {
        let list = self.list(row);
        let (mut runs, mut last, mut ascending) = (0, read.len(), true);
        for (span, edges) in self.cut(list.clone()) {
            let start = read.len();
            let weights = self.weights.map_or(&[][..], |weights| &weights[edges.clone()]);
            let rows = self.sources[edges].iter().map(|&row| (row - span.rows.start) as usize);
            match &span.places {
                Places::Near { firsts, steps } => {
                    let place = |row: usize| firsts[row / TOGETHER] + u32::from(steps[row]);
                    read.extend(T::edges(rows.map(place), weights));
                }
                Places::Each(places) => {
                    let found = T::edges(rows.map(|row| places[row]), weights);
                    read.extend(found.filter(|edge| edge.place() != NONE));
                }
            }
            if read.len() > start {
                (runs, last, ascending) = (runs + 1, start, ascending && span.ascending);
            }
        }
        match (self.order, runs) {
            (Some(order), _) => Order::Known(&order[list]),
            (None, 0 | 1) if ascending => Order::Ascending,
            (None, 2) if ascending => Order::TwoRuns(last),
            _ => Order::None,
        }
    }
}

/// How many of these ascending rows are below `row`.
fn below(rows: &[u32], row: u32) -> usize {
    /// Up to here all are compared, in the order of memory and many at once.
    const SHORT: usize = 64;
    match rows.len() > SHORT {
        true => rows.partition_point(|&other| other < row),
        false => rows.iter().map(|&other| u32::from(other < row)).sum::<u32>() as usize,
    }
}

/// The halo of a part as far as it is on the island: what each other part of the island owns of it, and what guests
/// there are in between.
fn halo_spans<'a>(crew: &'a Crew<'a>, index: usize, hands: &Hands<'_>) -> Vec<Span<'a>> {
    let part = &crew.parts[index];
    let (halo, owned) = (part.halo(), part.owned());
    let mut others: Vec<usize> = (0..crew.parts.len()).filter(|&other| other != index).collect();
    others.sort_by_key(|&other| crew.parts[other].range().start);
    let mut spans = Vec::new();
    let mut add = |rows: Range<usize>, ascending: bool, place: &(dyn Fn(u64) -> u32 + Sync)| {
        let places = look_up(&halo[rows.clone()], place, hands);
        let whole = on_island(&places) == places.len();
        let rows = (owned + rows.start) as u32..(owned + rows.end) as u32;
        spans.push(Span { rows, places: Places::new(places.into(), ascending), whole, ascending });
    };
    let mut seen = 0;
    let guests = |node: u64| crew.find(node);
    for other in others {
        let (range, places) = (crew.parts[other].range(), &crew.of_parts[other]);
        let before = |end: u64| halo.partition_point(|&node| node < end);
        let rows = before(range.start)..before(range.end);
        if !crew.guests.is_empty() && seen < rows.start {
            add(seen..rows.start, false, &guests);
        }
        if !rows.is_empty() {
            add(rows.clone(), true, &|node| places[(node - range.start) as usize]);
        }
        seen = seen.max(rows.end);
    }
    if !crew.guests.is_empty() && seen < halo.len() {
        add(seen..halo.len(), false, &guests);
    }
    spans
}

/// The places of these nodes.
fn look_up(nodes: &[u64], place: &(dyn Fn(u64) -> u32 + Sync), hands: &Hands<'_>) -> Vec<u32> {
    /// Nodes that one hand looks up at a time.
    const GRAIN: usize = 1 << 13;
    let mut places = list_of(Vec::new(), nodes.len(), nodes.len());
    let pieces = places.chunks_mut(GRAIN).zip(nodes.chunks(GRAIN)).collect();
    share_out(hands, pieces, |_, (places, nodes)| {
        places.iter_mut().zip(nodes.iter()).for_each(|(slot, &node)| *slot = place(node));
    });
    places
}

/// The in-edges of a wave of guests.
struct WaveLists<'a> {
    /// Where the list of each starts.
    starts: Vec<usize>,
    /// The place of each source.
    places: Vec<u32>,
    weights: &'a [f32],
}

impl<'a> WaveLists<'a> {
    fn of(crew: &'a Crew<'a>, wave: usize, hands: &Hands<'_>) -> Option<Self> {
        let lists = crew.guests[wave].lists.as_ref()?;
        let ends = lists.counts.iter().scan(0, |end, &count| {
            *end += count as usize;
            Some(*end)
        });
        Some(Self {
            starts: iter::once(0).chain(ends).collect(),
            places: look_up(&lists.sources, &|node| crew.find(node), hands),
            weights: &lists.weights,
        })
    }

    fn list(&self, row: usize) -> (&[u32], &[f32]) {
        let list = self.starts[row]..self.starts[row + 1];
        (&self.places[list.clone()], if self.weights.is_empty() { &[] } else { &self.weights[list] })
    }
}
