//! One part of a store, memory-mapped: what a rank trains on.
//!
//! Opening checks in one pass everything that later code indexes with (list offsets, source rows, split rows,
//! classes, edge types, feature columns), so a damaged file is an error here and never an index out of bounds
//! later. Checksums are not looked at; that is [`verify`](super::verify())'s business.

mod checks;

use super::island::Guests;
use super::layout;
use super::manifest::{FeatureKind, LabelKind, Manifest, PartEntry, damaged};
use crate::array::Array;
use crate::block::EdgeValues;
use crate::dataset::EdgeColumns;
use crate::{Error, GlobalId, NodeId, PartId, Result};
use bytemuck::Pod;
use checks::Checks;
use memmap2::Mmap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A part of the graph: the nodes it owns, their in-edges, and the halo that those edges reach.
///
/// Rows `0..owned` are owned nodes in ascending original id; rows `owned..owned + halo` are the halo in ascending
/// global id. Accessors return slices of the mapped files; fetch them once outside of a loop.
#[derive(Debug)]
pub struct Part {
    pub(super) id: PartId,
    pub(super) starts: Arc<[u64]>,
    pub(super) edge_columns: EdgeColumns,
    pub(super) feature_kind: FeatureKind,
    pub(super) label_kind: LabelKind,
    pub(super) undirected: bool,
    pub(super) arrays: Arrays,
}

/// The mapped files.
#[derive(Debug, Clone, Default)]
pub(super) struct Arrays {
    pub original: Array<u64>,
    pub offsets: Array<u64>,
    pub sources: Array<u32>,
    pub order: Option<Array<u32>>,
    pub halo: Array<u64>,
    pub weights: Option<Array<f32>>,
    pub types: Option<Array<u32>>,
    pub attributes: Option<Array<f32>>,
    pub features: Array<f32>,
    pub feature_offsets: Array<u64>,
    pub feature_columns: Array<u32>,
    pub classes: Array<i64>,
    pub multi: Array<u8>,
    pub splits: [Array<u32>; 3],
}

/// In-edges of the owned rows of a part: see [`Part::offsets`], [`Part::sources`] and [`Part::weights`].
#[derive(Debug, Clone)]
pub struct InEdges {
    /// Where each row's list starts.
    pub offsets: Array<u64>,
    /// Source row of each edge.
    pub sources: Array<u32>,
    /// Weight of each edge, if edges have any.
    pub weights: Option<Array<f32>>,
}

/// Features of the owned nodes of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PartFeatures<'a> {
    /// There are none.
    None,
    /// Row-major `[owned, width]`.
    Dense {
        /// Numbers per node.
        width: usize,
        /// The numbers.
        values: &'a [f32],
    },
    /// Compressed sparse rows.
    Sparse {
        /// Columns of the matrix.
        width: usize,
        /// Row starts, `owned + 1` of them.
        offsets: &'a [u64],
        /// Column of each stored number.
        columns: &'a [u32],
        /// The stored numbers.
        values: &'a [f32],
    },
}

/// Labels of the owned nodes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartLabels<'a> {
    /// There are none.
    None,
    /// One class per node, -1 = not labelled.
    Classes(&'a [i64]),
    /// Row-major 0/1 `[owned, classes]`.
    Multi(&'a [u8]),
}

impl Part {
    /// Maps part `id` of the store at `store` and checks it.
    pub(super) fn open(store: &Path, manifest: &Manifest, starts: Arc<[u64]>, id: PartId) -> Result<Self> {
        let entry = &manifest.parts[id.index()];
        let files = Files { folder: store.join(layout::part_folder(id.0)), entry };
        let part = Self {
            id,
            starts,
            edge_columns: manifest.edge_columns,
            feature_kind: manifest.features,
            label_kind: manifest.labels,
            undirected: manifest.undirected,
            arrays: files.arrays(manifest)?,
        };
        Checks { part: &part, folder: &files.folder }.all()?;
        Ok(part)
    }

    /// Which part this is.
    pub fn id(&self) -> PartId {
        self.id
    }

    /// How many nodes it owns.
    pub fn owned(&self) -> usize {
        self.arrays.original.len()
    }

    /// How many rows it has: owned nodes and halo.
    pub fn rows(&self) -> usize {
        self.owned() + self.arrays.halo.len()
    }

    /// How many in-edges it has.
    pub fn edges(&self) -> usize {
        self.arrays.sources.len()
    }

    /// Original id of each owned row, ascending.
    pub fn original(&self) -> &[u64] {
        &self.arrays.original
    }

    /// Where each owned row's in-edge list starts; `owned + 1` of them.
    pub fn offsets(&self) -> &[u64] {
        &self.arrays.offsets
    }

    /// Source row of each in-edge, ascending within a list: below `owned` an owned row, else halo.
    pub fn sources(&self) -> &[u32] {
        &self.arrays.sources
    }

    /// Positions within each list in ascending original id of the source, in the layout of
    /// [`sources`](Self::sources). `None` when lists are in that order already.
    pub fn order(&self) -> Option<&[u32]> {
        self.arrays.order.as_deref()
    }

    /// Global id of each halo row, ascending, hence grouped by owner.
    pub fn halo(&self) -> &[u64] {
        &self.arrays.halo
    }

    /// First global id of every part, and the number of nodes: `parts + 1` of them.
    pub fn starts(&self) -> &[u64] {
        &self.starts
    }

    /// Global ids that this part owns.
    pub fn range(&self) -> Range<u64> {
        self.starts[self.id.index()]..self.starts[self.id.index() + 1]
    }

    /// The global id of any row, owned or halo.
    pub fn global(&self, row: u32) -> u64 {
        match (row as usize).checked_sub(self.owned()) {
            Some(halo) => self.arrays.halo[halo],
            None => self.range().start + u64::from(row),
        }
    }

    /// The part that owns `node`, which must be a node of this graph.
    pub fn owner_of(&self, node: GlobalId) -> PartId {
        PartId((self.starts.partition_point(|&start| start <= node.0) - 1) as u32)
    }

    /// The owned row with this original id, if this part owns it.
    pub fn row_of(&self, node: NodeId) -> Option<u32> {
        self.original().binary_search(&node.0).ok().map(|row| row as u32)
    }

    /// Whether the user says that every edge of the graph is held in both directions.
    pub fn undirected(&self) -> bool {
        self.undirected
    }

    /// What accompanies each edge.
    pub fn edge_columns(&self) -> EdgeColumns {
        self.edge_columns
    }

    /// Sum of the weights of an owned row's in-edges; their number where edges have none.
    pub fn weighted_degree(&self, row: usize) -> f32 {
        let edges = self.offsets()[row] as usize..self.offsets()[row + 1] as usize;
        match self.weights() {
            Some(weights) => weights[edges].iter().sum(),
            None => edges.len() as f32,
        }
    }

    /// Weight of each edge, in the order of [`sources`](Self::sources).
    pub fn weights(&self) -> Option<&[f32]> {
        self.arrays.weights.as_deref()
    }

    /// Type of each edge.
    pub fn types(&self) -> Option<&[u32]> {
        self.arrays.types.as_deref()
    }

    /// Attribute rows of the edges, `edge_columns().attribute_width` numbers each.
    pub fn attributes(&self) -> Option<&[f32]> {
        self.arrays.attributes.as_deref()
    }

    /// The in-edges of the owned rows, shared with this part.
    pub fn in_edges(&self) -> InEdges {
        let Arrays { offsets, sources, weights, .. } = &self.arrays;
        InEdges { offsets: offsets.clone(), sources: sources.clone(), weights: weights.clone() }
    }

    /// What stands on edges besides weights, shared with this part; none where there is nothing.
    pub fn edge_values(&self) -> Option<Arc<EdgeValues>> {
        let EdgeColumns { types, attribute_width, .. } = self.edge_columns;
        (types > 0 || attribute_width > 0).then(|| {
            let (kinds, attributes) = (self.arrays.types.clone(), self.arrays.attributes.clone());
            Arc::new(EdgeValues {
                types: kinds.unwrap_or_default(),
                kinds: types as usize,
                type_shares: self.type_shares().into(),
                attributes: attributes.unwrap_or_default(),
                width: attribute_width,
            })
        })
    }

    /// Of each edge, 1 over the number of in-edges that its target has of its type.
    fn type_shares(&self) -> Vec<f32> {
        let Some(types) = self.types() else { return Vec::new() };
        let mut counts = vec![0u32; self.edge_columns.types as usize];
        let mut shares = vec![0f32; types.len()];
        for list in self.offsets().windows(2).map(|ends| ends[0] as usize..ends[1] as usize) {
            types[list.clone()].iter().for_each(|&kind| counts[kind as usize] += 1);
            for (share, &kind) in shares[list.clone()].iter_mut().zip(&types[list.clone()]) {
                *share = 1.0 / counts[kind as usize] as f32;
            }
            types[list].iter().for_each(|&kind| counts[kind as usize] = 0);
        }
        shares
    }

    /// Features of the owned nodes.
    pub fn features(&self) -> PartFeatures<'_> {
        let arrays = &self.arrays;
        match self.feature_kind {
            FeatureKind::None => PartFeatures::None,
            FeatureKind::Dense { width } => PartFeatures::Dense { width, values: &arrays.features },
            FeatureKind::Sparse { width } => PartFeatures::Sparse {
                width,
                offsets: &arrays.feature_offsets,
                columns: &arrays.feature_columns,
                values: &arrays.features,
            },
        }
    }

    /// Features of nodes that other parts own, which are of the same kind.
    pub fn features_of<'a>(&self, guests: &'a Guests) -> PartFeatures<'a> {
        let Guests { values, starts: offsets, columns, .. } = guests;
        match self.feature_kind {
            FeatureKind::None => PartFeatures::None,
            FeatureKind::Dense { width } => PartFeatures::Dense { width, values },
            FeatureKind::Sparse { width } => PartFeatures::Sparse { width, offsets, columns, values },
        }
    }

    /// The stored numbers of the features, shared with this part: dense rows, or the values of sparse ones.
    pub fn feature_values(&self) -> Array<f32> {
        self.arrays.features.clone()
    }

    /// Gives back the memory of mapped features and edges after they were copied to where they are used; they stay
    /// readable.
    pub fn release(&self) {
        let arrays = &self.arrays;
        arrays.features.release();
        arrays.feature_columns.release();
        arrays.sources.release();
        for optional in [&arrays.weights, &arrays.attributes].into_iter().flatten() {
            optional.release();
        }
        for optional in [&arrays.order, &arrays.types].into_iter().flatten() {
            optional.release();
        }
    }

    /// [`release`](Self::release) of everything that is mapped.
    pub fn release_all(&self) {
        let arrays = &self.arrays;
        self.release();
        arrays.original.release();
        arrays.offsets.release();
        arrays.halo.release();
        arrays.feature_offsets.release();
        arrays.classes.release();
        arrays.multi.release();
    }

    /// Asks the system to read all files of the part ahead; returns at once where it can.
    pub fn expect(&self) {
        let arrays = &self.arrays;
        arrays.original.expect();
        arrays.offsets.expect();
        arrays.sources.expect();
        arrays.halo.expect();
        arrays.order.iter().for_each(Array::expect);
        arrays.weights.iter().for_each(Array::expect);
        arrays.features.expect();
        arrays.feature_offsets.expect();
        arrays.feature_columns.expect();
        arrays.classes.expect();
        arrays.multi.expect();
    }

    /// The same part with only those in-edges for which `keep`, asked once for each place in
    /// [`sources`](Self::sources), says so. Lists of edges are then in memory, all else is shared with this part; halo
    /// rows stay, also those that no edge reaches any more.
    pub fn keeping(&self, keep: impl FnMut(usize) -> bool) -> Self {
        let kept: Vec<bool> = (0..self.edges()).map(keep).collect();
        let attribute_width = self.edge_columns.attribute_width;
        let old = &self.arrays;
        let mut arrays = old.clone();
        arrays.offsets = kept_offsets(&old.offsets, &kept).into();
        arrays.sources = kept_values(&old.sources, 1, &kept).into();
        arrays.order = old.order.as_ref().map(|order| kept_order(order, &old.offsets, &kept).into());
        arrays.weights = old.weights.as_ref().map(|weights| kept_values(weights, 1, &kept).into());
        arrays.types = old.types.as_ref().map(|types| kept_values(types, 1, &kept).into());
        arrays.attributes =
            old.attributes.as_ref().map(|rows| kept_values(rows, attribute_width, &kept).into());
        Self { starts: Arc::clone(&self.starts), arrays, ..*self }
    }

    /// Numbers per node, 0 without features.
    pub fn feature_width(&self) -> usize {
        self.feature_kind.width()
    }

    /// Labels of the owned nodes.
    pub fn labels(&self) -> PartLabels<'_> {
        match self.label_kind {
            LabelKind::None => PartLabels::None,
            LabelKind::Classes { .. } => PartLabels::Classes(&self.arrays.classes),
            LabelKind::Multi { .. } => PartLabels::Multi(&self.arrays.multi),
        }
    }

    /// How many classes or labels there are, 0 when there is nothing to predict.
    pub fn classes(&self) -> usize {
        self.label_kind.classes()
    }

    /// Rows of the training nodes, ascending.
    pub fn train(&self) -> &[u32] {
        &self.arrays.splits[0]
    }

    /// Rows of the validation nodes, ascending.
    pub fn valid(&self) -> &[u32] {
        &self.arrays.splits[1]
    }

    /// Rows of the test nodes, ascending.
    pub fn test(&self) -> &[u32] {
        &self.arrays.splits[2]
    }
}

/// Where lists start once only edges that are `kept` are left.
fn kept_offsets(offsets: &[u64], kept: &[bool]) -> Vec<u64> {
    let mut starts = Vec::with_capacity(offsets.len());
    let mut count = 0;
    starts.push(count);
    for list in offsets.windows(2) {
        count += kept[list[0] as usize..list[1] as usize].iter().filter(|kept| **kept).count() as u64;
        starts.push(count);
    }
    starts
}

/// The values of edges that are `kept`, `width` for each.
fn kept_values<T: Pod>(values: &[T], width: usize, kept: &[bool]) -> Vec<T> {
    let rows = values.chunks_exact(width.max(1)).zip(kept).filter(|(_, kept)| **kept);
    rows.flat_map(|(row, _)| row).copied().collect()
}

/// The order of lists in which only edges that are `kept` are left: the same order, of new positions.
fn kept_order(order: &[u32], offsets: &[u64], kept: &[bool]) -> Vec<u32> {
    let mut positions = Vec::new();
    let mut moved = Vec::new();
    for list in offsets.windows(2) {
        let list = list[0] as usize..list[1] as usize;
        let kept = &kept[list.clone()];
        positions.clear();
        positions.extend(kept.iter().scan(0u32, |next, &kept| {
            let position = *next;
            *next += u32::from(kept);
            Some(position)
        }));
        let left = order[list].iter().map(|&old| old as usize).filter(|&old| kept[old]);
        moved.extend(left.map(|old| positions[old]));
    }
    moved
}

/// The files of one part, about to be mapped.
pub(super) struct Files<'a> {
    /// Where they are.
    pub folder: PathBuf,
    /// What the manifest says of them.
    pub entry: &'a PartEntry,
}

impl Files<'_> {
    fn arrays(&self, manifest: &Manifest) -> Result<Arrays> {
        let PartEntry { owned, halo, in_edges, feature_values, train, valid, test, .. } = *self.entry;
        let columns = manifest.edge_columns;
        let when = |wanted: bool, len: u64| wanted.then_some(len);
        let (dense, sparse) = match manifest.features {
            FeatureKind::None => (None, false),
            FeatureKind::Dense { width } => (Some(owned.saturating_mul(width as u64)), false),
            FeatureKind::Sparse { .. } => (None, true),
        };
        let (single, multi) = match manifest.labels {
            LabelKind::None => (None, None),
            LabelKind::Classes { .. } => (Some(owned), None),
            LabelKind::Multi { classes } => (None, Some(owned.saturating_mul(classes as u64))),
        };
        let sparse_values = self.optional(layout::FEATURE_VALUES, when(sparse, feature_values))?;
        let dense_values = self.optional(layout::FEATURES, dense)?;
        let attributes = in_edges.saturating_mul(columns.attribute_width as u64);
        Ok(Arrays {
            original: self.map(layout::ORIGINAL, owned)?,
            offsets: self.map(layout::OFFSETS, owned.saturating_add(1))?,
            sources: self.map(layout::SOURCES, in_edges)?,
            order: self.optional(layout::ORDER, when(manifest.parts.len() > 1, in_edges))?,
            halo: self.map(layout::HALO, halo)?,
            weights: self.optional(layout::WEIGHTS, when(columns.weighted, in_edges))?,
            types: self.optional(layout::TYPES, when(columns.types > 0, in_edges))?,
            attributes: self.optional(layout::ATTRIBUTES, when(columns.attribute_width > 0, attributes))?,
            features: sparse_values.or(dense_values).unwrap_or_else(Array::empty),
            feature_offsets: self.present(layout::FEATURE_OFFSETS, when(sparse, owned.saturating_add(1)))?,
            feature_columns: self.present(layout::FEATURE_COLUMNS, when(sparse, feature_values))?,
            classes: self.present(layout::LABELS, single)?,
            multi: self.present(layout::LABELS_MULTI, multi)?,
            splits: [
                self.map(layout::TRAIN, train)?,
                self.map(layout::VALID, valid)?,
                self.map(layout::TEST, test)?,
            ],
        })
    }

    fn optional<T: Pod>(&self, name: &str, len: Option<u64>) -> Result<Option<Array<T>>> {
        len.map(|len| self.map(name, len)).transpose()
    }

    fn present<T: Pod>(&self, name: &str, len: Option<u64>) -> Result<Array<T>> {
        Ok(self.optional(name, len)?.unwrap_or_else(Array::empty))
    }

    /// Maps the file `name`, which must hold exactly `len` elements.
    pub fn map<T: Pod>(&self, name: &str, len: u64) -> Result<Array<T>> {
        let path = self.folder.join(name);
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        let bytes = file.metadata().map_err(Error::io("open", &path))?.len();
        let wrong = |found: u64| {
            damaged(Error::input(
                &path,
                "",
                format!("{len} elements of {} bytes", size_of::<T>()),
                format!("{found} bytes"),
            ))
        };
        if len.checked_mul(size_of::<T>() as u64) != Some(bytes) {
            return Err(wrong(bytes));
        }
        if bytes == 0 {
            return Ok(Array::empty());
        }
        // SAFETY: a store is written once and never modified (its contract); should someone truncate it while it
        // is mapped, the system ends the process.
        let map = unsafe { Mmap::map(&file) }.map_err(Error::io("map", &path))?;
        Array::mapped(Arc::new(map), 0, len as usize).ok_or_else(|| wrong(bytes))
    }
}
