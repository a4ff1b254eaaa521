//! What a store holds, with a bar per part.

use super::{Description, has_manifest};
use crate::commands::partition;
use crate::terminal::units;
use archipelago_graph::Store;
use archipelago_graph::store::manifest::{FORMAT, FeatureKind, LabelKind};
use serde_json::json;
use std::path::Path;

pub(super) fn detect(path: &Path) -> bool {
    has_manifest(path, FORMAT)
}

pub(super) fn describe(path: &Path) -> anyhow::Result<Description> {
    let store = Store::open(path)?;
    let manifest = store.manifest();
    let bytes: u64 = manifest.files(path).map(|(_, file)| file.bytes).sum();
    let features = match manifest.features {
        FeatureKind::None => "none".to_owned(),
        FeatureKind::Dense { width } => format!("{width} per node, dense"),
        FeatureKind::Sparse { width } => format!("{width} per node, sparse"),
    };
    let labels = match manifest.labels {
        LabelKind::None => "none".to_owned(),
        LabelKind::Classes { classes } => units::counted(classes as u64, "class"),
        LabelKind::Multi { classes } => format!("{classes}, several per node"),
    };
    let text = format!(
        "  {} on disk; features: {features}; labels: {labels}\n{}",
        units::bytes(bytes),
        partition::describe(manifest)
    );
    let facts = json!({
        "version": manifest.version,
        "dataset": manifest.dataset,
        "nodes": manifest.nodes,
        "edges": manifest.edges,
        "undirected": manifest.undirected,
        "features": manifest.features,
        "labels": manifest.labels,
        "edge_columns": manifest.edge_columns,
        "partition": manifest.partition,
        "quality": manifest.quality,
        "bytes": bytes,
    });
    Ok(Description { kind: "store", text, facts })
}
