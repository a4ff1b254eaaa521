//! What the files of a store are called and what is in them.
//!
//! Every array is raw and little-endian; its length follows from the manifest. The extension is the element type.

/// The manifest, at the root. Its presence makes a folder a store.
pub const MANIFEST: &str = "manifest.json";
/// The user's node names by original id, one per line, at the root; absent when ids were already `0..nodes`.
pub const NAMES: &str = "names.txt";
/// The user's class names, one per line, at the root; absent when labels were not words.
pub const CLASS_NAMES: &str = "class_names.txt";

/// Original id of each owned node, ascending.
pub const ORIGINAL: &str = "original.u64";
/// Where each owned node's in-edge list starts; one more than there are owned nodes.
pub const OFFSETS: &str = "offsets.u64";
/// Source row of each in-edge, ascending within a list: owned rows, then `owned + index into the halo`.
pub const SOURCES: &str = "sources.u32";
/// Positions within each list, by ascending original id of the source: the order of a list that does not depend
/// on the assignment. Absent from a store of one part, whose lists are in that order already.
pub const ORDER: &str = "order.u32";
/// Global id of each halo node, ascending, hence grouped by owner.
pub const HALO: &str = "halo.u64";
/// Weight of each edge.
pub const WEIGHTS: &str = "weights.f32";
/// Type of each edge.
pub const TYPES: &str = "types.u32";
/// Attribute row of each edge.
pub const ATTRIBUTES: &str = "attributes.f32";
/// Dense features: one row per owned node.
pub const FEATURES: &str = "features.f32";
/// Sparse features: row starts, one more than there are owned nodes.
pub const FEATURE_OFFSETS: &str = "feature_offsets.u64";
/// Sparse features: column of each stored number.
pub const FEATURE_COLUMNS: &str = "feature_columns.u32";
/// Sparse features: the stored numbers.
pub const FEATURE_VALUES: &str = "feature_values.f32";
/// Class of each owned node, -1 = not labelled.
pub const LABELS: &str = "labels.i64";
/// 0/1 label row of each owned node.
pub const LABELS_MULTI: &str = "labels.u8";
/// Rows of the training nodes, ascending.
pub const TRAIN: &str = "train.u32";
/// Rows of the validation nodes, ascending.
pub const VALID: &str = "valid.u32";
/// Rows of the test nodes, ascending.
pub const TEST: &str = "test.u32";

/// The folder of part `id`.
pub fn part_folder(id: u32) -> String {
    format!("part-{id:05}")
}
