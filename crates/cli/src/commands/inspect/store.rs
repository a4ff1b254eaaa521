//! What a store holds: its figures, a bar per part, and who sends how much to whom.

use super::{Description, has_manifest};
use crate::commands::partition::Figures;
use crate::terminal::{Canvas, picture, svg, units};
use archipelago_graph::store::manifest::{FORMAT, FeatureKind, LabelKind};
use archipelago_graph::{Error, Store, atomic};
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn detect(path: &Path) -> bool {
    has_manifest(path, FORMAT)
}

pub(super) fn describe(path: &Path) -> anyhow::Result<Description> {
    let store = Store::open(path)?;
    let traffic = store.traffic()?;
    let manifest = store.manifest();
    let figures = Figures::from(manifest);
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
    let mut text = format!(
        "  {} on disk; features: {features}; labels: {labels}\n{}",
        units::bytes(bytes),
        figures.text()
    );
    if manifest.parts.len() > 1 {
        text += &format!("\n\n{}", picture::traffic(&traffic, Canvas::stdout()));
    }
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
        "halo_share": figures.halo_share(),
        "traffic": traffic.lines().collect::<Value>(),
        "bytes": bytes,
    });
    Ok(Description { kind: "store", text, facts })
}

/// Writes the picture of the store at `path` as `file`.
pub(super) fn draw(path: &Path, file: &Path) -> anyhow::Result<()> {
    let store = Store::open(path)?;
    let picture = svg::draw(store.manifest(), &store.traffic()?);
    atomic::write_file(file, |out| out.write_all(picture.as_bytes()).map_err(Error::io("write", file)))?;
    Ok(())
}
