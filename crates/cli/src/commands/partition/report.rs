//! What came of cutting a dataset, for people and for programs.

use crate::terminal::passes::Over;
use crate::terminal::table::facts;
use crate::terminal::{Canvas, picture, units};
use archipelago_graph::partition::auto::Auto;
use archipelago_graph::quality::{EdgeQuality, Quality};
use archipelago_graph::store::Manifest;
use archipelago_graph::store::manifest::PartitionKind;
use serde_json::{Value, json};

/// A dataset and how well it was cut.
#[derive(Clone, Copy)]
pub struct Figures<'a> {
    /// The dataset's name.
    pub dataset: &'a str,
    /// Its nodes.
    pub nodes: u64,
    /// Its edges.
    pub edges: u64,
    /// How it was cut.
    pub partition: &'a PartitionKind,
    /// How well.
    pub quality: &'a Quality,
}

impl<'a> From<&'a Manifest> for Figures<'a> {
    fn from(manifest: &'a Manifest) -> Self {
        let Manifest { dataset, nodes, edges, partition, quality, .. } = manifest;
        Self { dataset, nodes: *nodes, edges: *edges, partition, quality }
    }
}

impl Figures<'_> {
    /// Of all rows of all parts, the share that is halo.
    pub fn halo_share(&self) -> f64 {
        1.0 - 1.0 / self.quality.replication_factor
    }

    /// Lines of figures, without those of parts.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let quality = self.quality;
        let mut lines = vec![
            ("dataset", self.dataset.to_owned()),
            ("nodes", units::count(self.nodes)),
            ("edges", units::count(self.edges)),
            ("parts", self.method()),
        ];
        let settings: Vec<String> =
            self.partition.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !settings.is_empty() {
            lines.push(("settings", settings.join(", ")));
        }
        let cut = units::counted(quality.cut_edges, "edge");
        lines.extend([
            ("cut", format!("{cut} ({})", units::percent(quality.cut_fraction))),
            ("replication", format!("{:.3} copies of a node on average", quality.replication_factor)),
            ("halo", format!("{} of the rows of all parts", units::percent(self.halo_share()))),
            ("balance", balance(quality)),
        ]);
        lines
    }

    fn method(&self) -> String {
        let PartitionKind { method, seed, balance, .. } = self.partition;
        let balanced = match balance.as_slice() {
            [] => String::new(),
            kinds => format!(", balancing {}", kinds.join(", ")),
        };
        format!("{} by {method}, seed {seed}{balanced}", units::count(self.quality.parts.len() as u64))
    }

    /// The figures, and a line with bars for each part.
    pub fn text(&self) -> String {
        format!("{}\n\n{}", facts(self.facts()), picture::bars(self.quality, Canvas::stdout()))
    }
}

fn balance(quality: &Quality) -> String {
    format!(
        "nodes {:.3}, edges {:.3}, train {:.3}, valid {:.3}, test {:.3} (largest over mean)",
        quality.balance_nodes,
        quality.balance_edges,
        quality.balance_train,
        quality.balance_valid,
        quality.balance_test,
    )
}

/// How long it took.
#[derive(Default)]
pub struct Times {
    /// Passes over the edges that the method made.
    pub passes: Vec<Over>,
    /// Seconds until every node had its part.
    pub assign_secs: f64,
    /// Seconds of measuring, when no store was written: the store measures while it is written.
    pub measure_secs: Option<f64>,
    /// Seconds of writing, when something was.
    pub write_secs: Option<f64>,
    /// Seconds of everything, reading included.
    pub secs: f64,
}

impl Times {
    /// Edges that a pass of the method takes per second, if it makes any.
    pub fn edges_per_sec(&self) -> Option<f64> {
        let (edges, secs) =
            self.passes.iter().fold((0, 0.0), |(edges, secs), pass| (edges + pass.done, secs + pass.secs));
        (edges > 0 && secs > 0.0).then(|| edges as f64 / secs)
    }

    fn text(&self) -> String {
        let passes = units::counted(self.passes.len() as u64, "pass");
        let passes = match self.edges_per_sec() {
            None => "no edge read".to_owned(),
            Some(rate) => format!("{passes} at {} edges/s", units::short(rate as u64)),
        };
        let mut text = format!("assigning {} ({passes})", units::seconds(self.assign_secs));
        for (what, secs) in [("measuring", self.measure_secs), ("writing", self.write_secs)] {
            text += &secs.map(|secs| format!(", {what} {}", units::seconds(secs))).unwrap_or_default();
        }
        text
    }
}

/// Everything that `archi partition` found out.
pub struct Report<'a> {
    /// The dataset and its cut.
    pub figures: Figures<'a>,
    /// How the number of parts was chosen, if not by the user.
    pub auto: Option<Auto>,
    /// How well edges were placed, if that was asked for.
    pub placement: Option<EdgeQuality>,
    /// How long it took.
    pub times: Times,
    /// Most memory that was used.
    pub peak_rss_bytes: u64,
}

impl Report<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let mut lines = self.figures.facts();
        if let Some(placed) = &self.placement {
            let (copies, balance) = (placed.replication_factor, placed.balance_edges);
            lines.push((
                "edge parts",
                format!("{copies:.3} copies of a node on average, balance {balance:.3}"),
            ));
        }
        lines.push(("time", self.times.text()));
        format!("{}\n\n{}", facts(lines), picture::bars(self.figures.quality, Canvas::stdout()))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let (figures, times) = (&self.figures, &self.times);
        json!({
            "dataset": figures.dataset,
            "nodes": figures.nodes,
            "edges": figures.edges,
            "method": figures.partition.method,
            "seed": figures.partition.seed,
            "settings": figures.partition.settings,
            "balance": figures.partition.balance,
            "parts": figures.quality.parts.len(),
            "auto": self.auto,
            "quality": figures.quality,
            "halo_share": figures.halo_share(),
            "placement": self.placement,
            "passes": times.passes,
            "edges_per_sec": times.edges_per_sec(),
            "assign_secs": times.assign_secs,
            "measure_secs": times.measure_secs,
            "write_secs": times.write_secs,
            "secs": times.secs,
            "peak_rss_bytes": self.peak_rss_bytes,
        })
    }
}
