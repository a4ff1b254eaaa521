//! Which rows a rank computes in each layer of a global batch, in what order, and which of them cross.
//!
//! The loss reads the training nodes only, so layer `L` computes those; layer `L - 1` computes what layer `L`
//! reads on any rank; and so on down (reverse breadth-first search over in-edges). Rows are numbered so that the
//! rows of a later layer are a prefix of those of an earlier one, and all rows of the part follow: the same
//! numbering serves training, evaluation and the static first-layer aggregate.
//!
//! Ranks agree on the plan once, by one exchange of requests per layer.

use crate::Result;
use crate::view::{Layout, Routes};
use archipelago_comm::{Comm, Kind};
use archipelago_graph::block::Adjacency;
use archipelago_graph::{Block, GlobalId, Part};
use bytemuck::Pod;
use std::sync::Arc;

/// The layers of a global batch on one rank, and those of an exact evaluation.
pub struct Plan {
    /// The part's row behind each row: a permutation of the owned nodes, training targets first.
    pub order: Vec<u32>,
    /// One layout per layer, first layer first: only what the loss needs.
    pub layers: Vec<Arc<Layout>>,
    /// The layout in which every owned node is computed.
    pub whole: Arc<Layout>,
    /// Original id of every row of the part, the halo included.
    pub originals: Vec<u64>,
}

/// What a plan is made for.
struct Wanted<'a> {
    targets: &'a [u32],
    layers: usize,
    all_hidden_rows: bool,
    whole: bool,
}

/// What one layer reads across part borders.
struct Requests {
    /// Rows that this layer computes: a prefix of the order.
    targets: usize,
    /// Indices into the part's halo that it reads, ascending.
    halo: Vec<u32>,
    /// For each rank: the part's rows that it reads of us.
    wanted: Vec<Vec<u32>>,
}

/// Rows in the order in which they were found to be needed.
struct Order {
    rows: Vec<u32>,
    /// Position of each owned row in `rows`; `NONE` = not there yet.
    position: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Order {
    fn add(&mut self, row: u32) {
        if self.position[row as usize] == NONE {
            self.position[row as usize] = self.rows.len() as u32;
            self.rows.push(row);
        }
    }

    /// Adds `rows`, in ascending order for the sake of locality.
    fn add_sorted(&mut self, mut rows: Vec<u32>) {
        rows.sort_unstable();
        for row in rows {
            self.add(row);
        }
    }
}

impl Plan {
    /// The plan of a rank that holds no part.
    pub fn nothing() -> Self {
        let incoming = Adjacency { offsets: vec![0], ..Adjacency::default() };
        let block = Arc::new(Block::new(incoming, 0, 0));
        let whole = Arc::new(Layout::new(block, Arc::default(), Vec::new(), Routes::default()));
        Self { order: Vec::new(), layers: Vec::new(), whole, originals: Vec::new() }
    }

    /// Layers in which a rank computes these `targets` (rows of `part`) by itself; `part` is all there is, and
    /// `degrees` are those of its rows in the whole graph. Without `whole` there is no layout of all rows.
    pub fn alone(
        part: &Part,
        alone: &Comm,
        targets: &[u32],
        layers: usize,
        degrees: &[f32],
        whole: bool,
    ) -> Result<Self> {
        let facts = Facts { original: part.original().to_vec(), degrees: degrees.to_vec() };
        Self::with_facts(part, alone, Wanted { targets, layers, all_hidden_rows: false, whole }, facts)
    }

    /// Agrees with the other ranks on the layers of a global batch with these `targets` (rows of `part`).
    ///
    /// With `all_hidden_rows`, hidden layers compute every node: batch norm's statistics are over all of them.
    pub fn agree(
        part: &Part,
        comm: &Comm,
        targets: &[u32],
        layers: usize,
        all_hidden_rows: bool,
    ) -> Result<Self> {
        let facts = Facts::agree(part, comm)?;
        Self::with_facts(part, comm, Wanted { targets, layers, all_hidden_rows, whole: true }, facts)
    }

    fn with_facts(part: &Part, comm: &Comm, wanted: Wanted<'_>, facts: Facts) -> Result<Self> {
        let Wanted { targets, layers, all_hidden_rows, whole } = wanted;
        let mut order = Order { rows: Vec::new(), position: vec![NONE; part.owned()] };
        order.add_sorted(targets.to_vec());
        let mut requests = Vec::with_capacity(layers);
        for _ in 0..layers {
            requests.push(request(part, comm, &mut order, all_hidden_rows)?);
        }
        let inputs = order.rows.len();
        if whole {
            order.add_sorted((0..part.owned() as u32).collect());
        }
        let mut layouts = Vec::with_capacity(layers);
        // Requests were made from the last layer down. What a layer reads is what the one before it computes.
        for (index, request) in requests.iter().enumerate().rev() {
            let local = requests.get(index + 1).map_or(inputs, |before| before.targets);
            layouts.push(Arc::new(layout(part, &order, &facts, request, local, true)));
        }
        if !whole {
            return Ok(Self { order: order.rows, layers: layouts, ..Self::nothing() });
        }
        let whole = everything(part, comm, order.rows.len())?;
        let whole = Arc::new(layout(part, &order, &facts, &whole, order.rows.len(), false));
        Ok(Self { order: order.rows, layers: layouts, whole, originals: facts.original })
    }
}

/// Finds what the rows of `order` read, asks their owners for it, and adds what is asked of us.
fn request(part: &Part, comm: &Comm, order: &mut Order, all_rows: bool) -> Result<Requests> {
    let targets = order.rows.len();
    let owned = part.owned();
    let mut reads_halo = vec![false; part.halo().len()];
    let mut needed = Vec::new();
    for at in 0..targets {
        let row = order.rows[at] as usize;
        for &source in &part.sources()[part.offsets()[row] as usize..part.offsets()[row + 1] as usize] {
            match (source as usize).checked_sub(owned) {
                Some(halo) => reads_halo[halo] = true,
                None if order.position[source as usize] == NONE => needed.push(source),
                None => {}
            }
        }
    }
    let halo: Vec<u32> = (0..reads_halo.len() as u32).filter(|&h| reads_halo[h as usize]).collect();
    let wanted = ask(part, comm, &halo)?;
    needed.extend(wanted.iter().flatten());
    if all_rows {
        needed.extend(0..owned as u32);
    }
    order.add_sorted(needed);
    Ok(Requests { targets, halo, wanted })
}

/// Tells the owners of these halo rows that we read them; returns which rows of ours each rank reads.
fn ask(part: &Part, comm: &Comm, halo: &[u32]) -> Result<Vec<Vec<u32>>> {
    let mut asked = vec![Vec::new(); comm.size()];
    for &index in halo {
        let node = GlobalId(part.halo()[index as usize]);
        let owner = part.owner_of(node).index();
        asked[owner].push((node.0 - part.starts()[owner]) as u32);
    }
    Ok(comm.all_to_all(asked, Kind::Control)?)
}

fn everything(part: &Part, comm: &Comm, targets: usize) -> Result<Requests> {
    let halo: Vec<u32> = (0..part.halo().len() as u32).collect();
    let wanted = ask(part, comm, &halo)?;
    Ok(Requests { targets, halo, wanted })
}

/// What is known of every row of a part, its halo included.
struct Facts {
    original: Vec<u64>,
    degrees: Vec<f32>,
}

impl Facts {
    fn agree(part: &Part, comm: &Comm) -> Result<Self> {
        let degrees: Vec<f32> = (0..part.owned()).map(|row| part.weighted_degree(row)).collect();
        let wanted = everything(part, comm, 0)?.wanted;
        let original = with_halo(comm, &wanted, part.original().to_vec())?;
        let degrees = with_halo(comm, &wanted, degrees)?;
        Ok(Self { original, degrees })
    }
}

/// The original id of every row of `part`, halo included.
pub fn originals(part: &Part, comm: &Comm) -> Result<Vec<u64>> {
    let wanted = everything(part, comm, 0)?.wanted;
    with_halo(comm, &wanted, part.original().to_vec())
}

/// What is `known` of the owned rows, and the same of all halo rows; `wanted` are the rows that each rank reads of us.
fn with_halo<T: Pod>(comm: &Comm, wanted: &[Vec<u32>], mut known: Vec<T>) -> Result<Vec<T>> {
    let told = wanted.iter().map(|rows| rows.iter().map(|&row| known[row as usize]).collect()).collect();
    // Halo rows are in ascending global id, hence grouped by owner in rank order.
    known.extend(comm.all_to_all::<T>(told, Kind::Control)?.into_iter().flatten());
    Ok(known)
}

/// The layout of one layer: `request.targets` rows computed from `local` rows and the halo that was asked for.
fn layout(
    part: &Part,
    order: &Order,
    facts: &Facts,
    request: &Requests,
    local: usize,
    trained: bool,
) -> Layout {
    let mut halo_at = vec![NONE; part.halo().len()];
    for (at, &index) in request.halo.iter().enumerate() {
        halo_at[index as usize] = (local + at) as u32;
    }
    let place = |source: u32| match (source as usize).checked_sub(part.owned()) {
        Some(halo) => halo_at[halo],
        None => order.position[source as usize],
    };
    let mut incoming = neighbor_lists(part, &order.rows[..request.targets], place);
    let values = part.edge_values();
    if values.is_none() {
        incoming.places = Vec::new();
    }
    let block = Block::new(incoming, local, request.halo.len());
    if trained {
        block.outgoing();
    }
    let rows = order.rows[..local].iter().map(|&row| row as usize);
    let sources: Vec<usize> =
        rows.chain(request.halo.iter().map(|&index| part.owned() + index as usize)).collect();
    let nodes = sources.iter().map(|&source| facts.original[source]).collect();
    let degrees = sources.iter().map(|&source| facts.degrees[source]).collect();
    let send = request.wanted.iter().map(|rows| rows.iter().map(|&row| place(row)).collect()).collect();
    let mut receive = vec![0; part.starts().len() - 1];
    for &index in &request.halo {
        receive[part.owner_of(GlobalId(part.halo()[index as usize])).index()] += 1;
    }
    Layout::new(Arc::new(block), Arc::new(nodes), degrees, Routes { send, receive }).with_edges(values)
}

/// In-edges of these rows of the part, with every source put to its `place`.
fn neighbor_lists(part: &Part, rows: &[u32], place: impl Fn(u32) -> u32) -> Adjacency {
    let mut lists = Adjacency { offsets: vec![0], ..Adjacency::default() };
    let mut list: Vec<(u32, f32, u32)> = Vec::new();
    for &row in rows {
        let edges = part.offsets()[row as usize] as usize..part.offsets()[row as usize + 1] as usize;
        list.clear();
        list.extend(
            edges.map(|e| (place(part.sources()[e]), part.weights().map_or(1.0, |w| w[e]), e as u32)),
        );
        list.sort_by_key(|(source, ..)| *source);
        lists.neighbors.extend(list.iter().map(|(source, ..)| source));
        if part.weights().is_some() {
            lists.weights.extend(list.iter().map(|(_, weight, _)| weight));
        }
        lists.places.extend(list.iter().map(|(.., place)| place));
        lists.offsets.push(lists.neighbors.len() as u64);
    }
    lists
}
