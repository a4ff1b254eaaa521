//! What a dataset in any readable format holds. Reads headers and counts, does not look at every value.

use super::Description;
use crate::commands::dataset::Reading;
use crate::terminal::passes::Passes;
use crate::terminal::table::facts;
use crate::terminal::units;
use archipelago_graph::Dataset;
use archipelago_graph::dataset::{Features, Labels};
use serde_json::json;
use std::path::Path;

pub(super) fn describe(path: &Path) -> anyhow::Result<Description> {
    let dataset = Reading::default().open(path, &Passes::default())?;
    let splits = dataset.splits.named().map(|(name, nodes)| (name, nodes.len() as u64));
    let mut text = facts([
        ("name", dataset.name.clone()),
        ("nodes", units::count(dataset.nodes)),
        ("edges", format!("{}{}", units::count(dataset.edges.len()), both_ways(&dataset))),
        ("features", features(&dataset.features)),
        ("labels", labels(&dataset.labels)),
        ("splits", splits.map(|(name, count)| format!("{name} {}", units::count(count))).join(", ")),
    ]);
    for note in &dataset.notes {
        text += &format!("\n  note: {note}");
    }
    text += "\n\n`archi check` looks at every value";
    let facts = json!({
        "name": dataset.name,
        "nodes": dataset.nodes,
        "edges": dataset.edges.len(),
        "undirected": dataset.undirected,
        "features": dataset.features.width(),
        "classes": dataset.labels.classes(),
        "multilabel": dataset.labels.is_multi(),
        "splits": splits.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>(),
        "notes": dataset.notes,
    });
    Ok(Description { kind: "dataset", text, facts })
}

fn both_ways(dataset: &Dataset) -> &'static str {
    if dataset.undirected { ", every edge in both directions" } else { ", directed" }
}

fn features(features: &Features) -> String {
    match features {
        Features::None => "none".to_owned(),
        Features::Dense { width, .. } => format!("{width} per node, dense"),
        Features::Sparse { width, .. } => format!("{width} per node, sparse"),
    }
}

fn labels(labels: &Labels) -> String {
    match labels {
        Labels::None => "none".to_owned(),
        Labels::Classes { classes, .. } => units::counted(*classes as u64, "class"),
        Labels::Multi { classes, .. } => format!("{classes}, several per node"),
    }
}
