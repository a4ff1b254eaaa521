//! Which rows does a batch compute in each layer, in what order, and which of them cross?
//!
//! The last layer computes the targets, the layer before it what these read on any rank, and so on down: a reverse
//! breadth-first search over in-edges, with one exchange of requests per layer (two where targets have mirrors: masters
//! first say which are active). Rows are numbered in the order in which they are found, so that the rows of a later layer
//! are a prefix of those of an earlier one; those that one layer adds may have an order among themselves. Cost: active rows
//! and edges, and the number of ranks.

use super::{Index, Mirrored};
use crate::Result;
use crate::view::{Layout, Mirrors, Routes};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::Block;
use archipelago_graph::block::Adjacency;
use std::sync::Arc;

/// The position of a row that is not in the batch.
pub(super) const NONE: u32 = u32::MAX;

/// The position of a row that was found and is not numbered yet.
const FOUND: u32 = NONE - 1;

/// What a batch is to compute.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Own rows that the last layer computes.
    pub targets: &'a [u32],
    /// How many layers there are.
    pub layers: usize,
    /// Whether hidden layers compute every row (of those inside): batch norm's statistics are over all of them.
    pub all_hidden_rows: bool,
    /// The nodes that the batch keeps to, if not all.
    pub within: Option<Within<'a>>,
    /// The place of each own row among those that a layer adds (see [`nearby`](archipelago_graph::nearby)), else ascending.
    pub places: Option<&'a [u32]>,
}

/// A set of nodes as if there were no others: edges from outside are left out.
#[derive(Debug, Clone, Copy)]
pub struct Within<'a> {
    /// Whether each row of the index is in the set.
    pub inside: &'a [bool],
    /// Weighted in-degree of each row of the index, edges from outside not counted.
    pub degrees: &'a [f32],
}

/// The layers of a batch on one rank.
#[derive(Debug)]
pub struct Active {
    /// The own row of the part behind each row, targets first; rows of a later layer are a prefix of those of an earlier one.
    pub order: Vec<u32>,
    /// One layout per layer, first layer first.
    pub layers: Vec<Arc<Layout>>,
}

/// What one layer reads across part borders.
struct Request {
    /// Rows that it computes: a prefix of the order.
    targets: usize,
    /// Places in the halo that it reads, ascending.
    halo: Vec<u32>,
    /// For each rank: own rows that it reads of us.
    wanted: Vec<Vec<u32>>,
    /// Mirrors that it adds to here and elsewhere.
    told: Option<Told>,
}

/// Which mirrors are active in a layer.
struct Told {
    /// Mirrors of this rank, master by master.
    mirrors: Vec<u32>,
    /// How many each master has.
    masters: Vec<usize>,
    /// For each rank: own rows that are active mirrors there, in its order.
    copies: Vec<Vec<u32>>,
}

impl Index {
    /// The layers of a batch; all ranks ask together, also one without targets.
    pub fn batch(&mut self, comm: &Comm, wanted: Wanted<'_>) -> Result<Active> {
        let (mut order, mut found) = (Vec::new(), Vec::with_capacity(wanted.targets.len()));
        wanted.targets.iter().for_each(|&row| self.find(row, &mut found));
        self.number(&mut order, found, wanted.places);
        let mut requests = Vec::with_capacity(wanted.layers);
        for _ in 0..wanted.layers {
            requests.push(self.request(comm, &mut order, &wanted)?);
        }
        let mut layers = Vec::with_capacity(wanted.layers);
        // Requests were made from the last layer down. What a layer reads is what the one before it computes.
        for (index, request) in requests.iter().enumerate().rev() {
            let local = requests.get(index + 1).map_or(order.len(), |before| before.targets);
            let layout = self.layout(&order[..local], request, wanted.within);
            layout.block.outgoing();
            layout.mirrors.iter().for_each(|mirrors| _ = mirrors.block.outgoing());
            layers.push(Arc::new(layout));
        }
        order.iter().for_each(|&row| self.position[row as usize] = NONE);
        Ok(Active { order, layers })
    }

    /// The layout in which every own row is computed; `order` has all of them. No message is needed.
    pub fn whole(&mut self, order: &[u32]) -> Layout {
        order.iter().enumerate().for_each(|(at, &row)| self.position[row as usize] = at as u32);
        let request = Request {
            targets: order.len(),
            halo: (0..self.halo.len() as u32).collect(),
            wanted: self.halo.wanted.clone(),
            told: self.mirrors.as_ref().map(Mirrored::all),
        };
        let layout = self.layout(order, &request, None);
        self.position[..self.owned].fill(NONE);
        layout
    }

    /// Adds an own row to those that were found, if it is not in the batch yet.
    fn find(&mut self, row: u32, found: &mut Vec<u32>) {
        let position = &mut self.position[row as usize];
        if *position == NONE {
            *position = FOUND;
            found.push(row);
        }
    }

    /// Numbers the own rows that were found, by their places or in ascending order for the sake of locality.
    fn number(&mut self, order: &mut Vec<u32>, mut found: Vec<u32>, places: Option<&[u32]>) {
        match places {
            Some(places) => found.sort_unstable_by_key(|&row| places[row as usize]),
            None => sort_found(&mut found, &self.position[..self.owned]),
        }
        for row in found {
            self.position[row as usize] = order.len() as u32;
            order.push(row);
        }
    }

    /// Finds what the rows of `order` read, asks their owners for it, and adds what is asked of us.
    fn request(&mut self, comm: &Comm, order: &mut Vec<u32>, wanted: &Wanted<'_>) -> Result<Request> {
        let targets = order.len();
        let told = self.mirrors.as_ref().map(|mirrors| mirrors.tell(comm, order)).transpose()?;
        let mirrors = told.iter().flat_map(|told| &told.mirrors).map(|&at| self.owned + at as usize);
        let lists = order.iter().map(|&row| row as usize).chain(mirrors);
        let sources = &self.lists.sources[..];
        let (mut found, mut halo) = (Vec::new(), Vec::new());
        for list in lists {
            for &source in &sources[self.lists.range(list)] {
                let position = &mut self.position[source as usize];
                if *position == NONE && wanted.keeps(source) {
                    *position = FOUND;
                    match (source as usize).checked_sub(self.owned) {
                        Some(at) => halo.push(at as u32),
                        None => found.push(source),
                    }
                }
            }
        }
        sort_found(&mut halo, &self.position[self.owned..]);
        halo.iter().for_each(|&at| self.position[self.owned + at as usize] = NONE);
        let asked = comm.all_to_all(self.halo.by_owner(&halo), Kind::Control)?;
        asked.iter().flatten().for_each(|&row| self.find(row, &mut found));
        if wanted.all_hidden_rows {
            (0..self.owned as u32)
                .filter(|&row| wanted.keeps(row))
                .for_each(|row| self.find(row, &mut found));
        }
        self.number(order, found, wanted.places);
        Ok(Request { targets, halo, wanted: asked, told })
    }

    /// The layout of one layer: the first `request.targets` rows of `order` are computed from all of `order` and the halo
    /// that was asked for.
    fn layout(&mut self, order: &[u32], request: &Request, within: Option<Within<'_>>) -> Layout {
        let (local, owned) = (order.len(), self.owned);
        for (at, &index) in request.halo.iter().enumerate() {
            self.position[owned + index as usize] = (local + at) as u32;
        }
        let targets = order[..request.targets].iter().map(|&row| row as usize);
        let block = Block::new(self.placed_lists(targets, within), local, request.halo.len());
        let mirrors = request.told.as_ref().map(|told| self.placed_mirrors(told, local, request, within));
        let rows = order.iter().map(|&row| row as usize);
        let rows = rows.chain(request.halo.iter().map(|&index| owned + index as usize));
        let nodes = rows.clone().map(|row| self.originals[row]).collect();
        let degrees = within.map_or(&self.degrees[..], |within| within.degrees);
        let degrees = rows.map(|row| degrees[row]).collect();
        let send = request.wanted.iter().map(|rows| self.positions(rows)).collect();
        let receive = self.halo.counts(&request.halo);
        let layout = Layout::new(Arc::new(block), Arc::new(nodes), degrees, Routes { send, receive });
        for &index in &request.halo {
            self.position[owned + index as usize] = NONE;
        }
        layout.with_edges(self.lists.values.clone()).with_mirrors(mirrors)
    }

    fn placed_mirrors(
        &self,
        told: &Told,
        local: usize,
        request: &Request,
        within: Option<Within<'_>>,
    ) -> Mirrors {
        let lists = told.mirrors.iter().map(|&at| self.owned + at as usize);
        let originals = self.mirrors.as_ref().map_or(&[][..], |mirrors| &mirrors.originals);
        Mirrors {
            block: Block::of_mirrors(self.placed_lists(lists, within), local, request.halo.len()),
            nodes: told.mirrors.iter().map(|&at| originals[at as usize]).collect(),
            masters: told.masters.clone(),
            copies: told.copies.iter().flat_map(|rows| self.positions(rows)).collect(),
            holders: told.copies.iter().map(Vec::len).collect(),
        }
    }

    fn positions(&self, rows: &[u32]) -> Vec<u32> {
        rows.iter().map(|&row| self.position[row as usize]).collect()
    }

    /// The edges of these lists that are kept, with every source put to its position.
    fn placed_lists(
        &self,
        lists: impl Iterator<Item = usize> + Clone,
        within: Option<Within<'_>>,
    ) -> Adjacency {
        let sources = &self.lists.sources[..];
        // Equal numbers need no order: nothing tells one from the other.
        let bare = self.lists.weights.is_none() && self.lists.values.is_none();
        let edges =
            if within.is_none() { lists.clone().map(|list| self.lists.range(list).len()).sum() } else { 0 };
        let mut placed = Adjacency { offsets: vec![0], ..Adjacency::default() };
        placed.neighbors.reserve_exact(edges);
        let mut list: Vec<(u32, usize)> = Vec::new();
        for range in lists.map(|list| self.lists.range(list)) {
            let kept =
                range.filter(|&edge| within.is_none_or(|within| within.inside[sources[edge] as usize]));
            let kept = kept.map(|edge| (self.position[sources[edge] as usize], edge));
            if bare {
                let start = placed.neighbors.len();
                placed.neighbors.extend(kept.map(|(source, _)| source));
                placed.neighbors[start..].sort_unstable();
            } else {
                list.clear();
                list.extend(kept);
                list.sort_by_key(|(source, _)| *source);
                self.place(&list, &mut placed);
            }
            placed.offsets.push(placed.neighbors.len() as u64);
        }
        placed
    }

    /// Adds a list of edges with what stands on them.
    fn place(&self, list: &[(u32, usize)], placed: &mut Adjacency) {
        placed.neighbors.extend(list.iter().map(|(source, _)| source));
        if let Some(weights) = self.lists.weights.as_deref() {
            placed.weights.extend(list.iter().map(|&(_, edge)| weights[edge]));
        }
        if self.lists.values.is_some() {
            placed.places.extend(list.iter().map(|&(_, edge)| edge as u32));
        }
    }
}

/// Puts the places that were `found`, all of which `positions` knows as such, into ascending order: few are sorted, many
/// listed anew.
fn sort_found(found: &mut Vec<u32>, positions: &[u32]) {
    /// Places that are looked at in the time that it takes to sort one.
    const LOOKS: usize = 8;
    if found.len() * LOOKS < positions.len() {
        found.sort_unstable();
        return;
    }
    found.clear();
    found.extend((0..).zip(positions).filter_map(|(at, &position)| (position == FOUND).then_some(at)));
}

impl Wanted<'_> {
    /// Whether edges from this row of the index are part of the batch.
    fn keeps(&self, row: u32) -> bool {
        self.within.is_none_or(|within| within.inside[row as usize])
    }
}

impl Mirrored {
    /// Tells holders which of these own rows are active, and hears the same of mirrors here.
    fn tell(&self, comm: &Comm, rows: &[u32]) -> Result<Told> {
        let (mut told, mut copies) = (vec![Vec::new(); comm.size()], vec![Vec::new(); comm.size()]);
        for &row in rows {
            for &(rank, at) in &self.copies[self.offsets[row as usize]..self.offsets[row as usize + 1]] {
                told[rank as usize].push(at);
                copies[rank as usize].push(row);
            }
        }
        let heard = comm.all_to_all(told, Kind::Control)?;
        let of_master = |(heard, start): (&Vec<u32>, &usize)| {
            let start = *start as u32;
            heard.iter().map(move |at| start + at).collect::<Vec<u32>>()
        };
        let mirrors = heard.iter().zip(&self.remote.starts).flat_map(of_master).collect();
        Ok(Told { mirrors, masters: heard.iter().map(Vec::len).collect(), copies })
    }

    /// All mirrors.
    fn all(&self) -> Told {
        Told {
            mirrors: (0..self.remote.len() as u32).collect(),
            masters: self.remote.starts.windows(2).map(|ends| ends[1] - ends[0]).collect(),
            copies: self.remote.wanted.clone(),
        }
    }
}
