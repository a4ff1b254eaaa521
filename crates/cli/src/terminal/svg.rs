//! A partitioned graph as a picture for documents: bars per part, and the traffic between parts as a heat map.
//!
//! One self-contained SVG: no script, no font, no file beside it. It brings its own background and follows the
//! reader's light or dark scheme. Shades are one colour in different strengths, so they read on both.

use super::picture::FIGURES;
use super::units;
use archipelago_graph::quality::Quality;
use archipelago_graph::store::{Manifest, Traffic};
use std::fmt::{Display, Write};

/// Width of the picture, and of its margin.
const WIDTH: f64 = 920.0;
const MARGIN: f64 = 36.0;
/// The heat map has at most this many cells on a side; beyond, parts share cells.
const CELLS: usize = 128;
/// Steps of the legend.
const STEPS: u64 = 5;

const STYLE: &str = "\
text { font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; font-size: 12px; }
.page { fill: #ffffff; } .ink { fill: #1f2933; } .soft { fill: #66727f; } .track { fill: #eef1f4; }
.mark { fill: #1668b8; } .on { fill: #ffffff; } .title { font-size: 18px; font-weight: 600; }
.head { font-weight: 600; } .right { text-anchor: end; } .middle { text-anchor: middle; }
@media (prefers-color-scheme: dark) {
.page { fill: #14181d; } .ink { fill: #e6eaee; } .soft { fill: #98a3ae; } .track { fill: #222a32; }
.mark { fill: #4aa3f5; } .on { fill: #0b0f13; } }";

/// The picture of a store.
pub fn draw(manifest: &Manifest, traffic: &Traffic) -> String {
    let mut page = Page::default();
    page.header(manifest);
    page.bars(&manifest.quality);
    page.matrix(traffic);
    page.finish()
}

/// A picture being drawn, from top to bottom.
#[derive(Default)]
struct Page {
    body: String,
    y: f64,
}

impl Page {
    fn header(&mut self, manifest: &Manifest) {
        let quality = &manifest.quality;
        let parts = units::counted(manifest.parts.len() as u64, "part");
        self.y = MARGIN + 14.0;
        self.text(
            MARGIN,
            "title ink",
            format_args!("{}: {parts} by {}", manifest.dataset, manifest.partition.method),
        );
        self.y += 24.0;
        let (nodes, edges) = (units::counted(manifest.nodes, "node"), units::counted(manifest.edges, "edge"));
        let facts = format!(
            "{nodes}, {edges}. {} of the edges are cut; a node has {:.3} copies on average; {} of the rows are halo.",
            units::percent(quality.cut_fraction),
            quality.replication_factor,
            units::percent(1.0 - 1.0 / quality.replication_factor),
        );
        self.text(MARGIN, "soft", facts);
        self.y += 18.0;
        let balance = format!(
            "Largest part over mean: nodes {:.3}, edges {:.3}, train {:.3}, valid {:.3}, test {:.3}.",
            quality.balance_nodes,
            quality.balance_edges,
            quality.balance_train,
            quality.balance_valid,
            quality.balance_test,
        );
        self.text(MARGIN, "soft", balance);
        self.y += 38.0;
    }

    /// A column of bars per figure, a bar per part.
    fn bars(&mut self, quality: &Quality) {
        const LABEL: f64 = 44.0;
        let parts = quality.parts.len().max(1);
        let height = (640.0 / parts as f64).clamp(2.0, 22.0);
        let figures: Vec<_> = FIGURES.iter().filter(|figure| figure.bar).collect();
        let column = (WIDTH - 2.0 * MARGIN - LABEL) / figures.len() as f64;
        self.text(MARGIN + LABEL - 12.0, "head ink right", "part");
        for (at, figure) in figures.iter().enumerate() {
            self.text(MARGIN + LABEL + at as f64 * column, "head ink", figure.title);
        }
        self.y += 10.0;
        let most: Vec<u64> =
            figures.iter().map(|f| quality.parts.iter().map(f.count).max().unwrap_or(0)).collect();
        for (id, part) in quality.parts.iter().enumerate() {
            let middle = height / 2.0 + 2.0;
            if labelled(id, height) {
                self.text_at(MARGIN + LABEL - 12.0, middle, "soft right", id);
            }
            for (at, (figure, &most)) in figures.iter().zip(&most).enumerate() {
                let (x, count, room) =
                    (MARGIN + LABEL + at as f64 * column, (figure.count)(part), column - 74.0);
                let long = room * count as f64 / most.max(1) as f64;
                let thick = height - if height > 6.0 { 4.0 } else { 0.5 };
                self.rect("track", [x, 0.0, room, thick], 1.0, "");
                let tip = format!("part {id}: {} {}", units::count(count), figure.title);
                self.rect("mark", [x, 0.0, long, thick], 1.0, &tip);
                if height >= 12.0 {
                    self.text_at(x + room + 6.0, middle, "ink", units::short(count));
                }
            }
            self.y += height;
        }
        self.y += 44.0;
    }

    /// The heat map: a line for who sends, a column for who receives.
    fn matrix(&mut self, traffic: &Traffic) {
        const LABEL: f64 = 44.0;
        let size = traffic.parts().div_ceil(CELLS).max(1);
        let (cells, left) = (traffic.grouped(size), MARGIN + LABEL);
        let side = (520.0 / cells.parts().max(1) as f64).clamp(4.0, 52.0);
        let most = cells.most();
        let shared = if size > 1 { format!("; {size} parts share a line") } else { String::new() };
        let heading = "Traffic: rows that a part (line) sends to another (column) for its halo";
        self.text(MARGIN, "head ink", format_args!("{heading}{shared}"));
        self.y += 26.0;
        for to in (0..cells.parts()).filter(|&to| labelled(to, side)) {
            self.text(left + (to as f64 + 0.5) * side, "soft middle", to * size);
        }
        self.y += 8.0;
        let top = self.y;
        for (from, counts) in cells.lines().enumerate() {
            if labelled(from, side) {
                self.text_at(left - 12.0, side / 2.0 + 4.0, "soft right", from * size);
            }
            for (to, &count) in counts.iter().enumerate() {
                self.cell([left + to as f64 * side, side], count, most, (from * size, to * size), size);
            }
            self.y += side;
        }
        let bottom = self.y;
        self.legend(left + cells.parts() as f64 * side + 36.0, top, most);
        self.y = bottom.max(self.y) + MARGIN;
    }

    fn cell(&mut self, [x, side]: [f64; 2], count: u64, most: u64, (from, to): (usize, usize), size: usize) {
        let inner = side - if side > 8.0 { 2.0 } else { 0.0 };
        let own = size == 1 && from == to;
        self.rect("track", [x, 0.0, inner, inner], if own { 0.4 } else { 1.0 }, "");
        let share = count as f64 / most.max(1) as f64;
        let tip = format!("{from} to {to}: {}", units::counted(count, "row"));
        if count > 0 {
            self.rect("mark", [x, 0.0, inner, inner], strength(share), &tip);
        }
        if side >= 38.0 && !own {
            let class = if share > 0.55 { "on middle" } else { "ink middle" };
            self.text_at(x + inner / 2.0, inner / 2.0 + 4.0, class, units::short(count));
        }
    }

    /// What the shades stand for.
    fn legend(&mut self, x: f64, top: f64, most: u64) {
        self.y = top + 12.0;
        self.text(x, "head ink", "rows");
        self.y += 10.0;
        for step in (0..=STEPS).rev() {
            self.rect("track", [x, 0.0, 18.0, 18.0], 1.0, "");
            if step > 0 {
                self.rect("mark", [x, 0.0, 18.0, 18.0], strength(step as f64 / STEPS as f64), "");
            }
            self.text_at(
                x + 26.0,
                13.0,
                "ink",
                units::short((u128::from(most) * u128::from(step) / 5) as u64),
            );
            self.y += 20.0;
        }
    }

    /// Text on the current line.
    fn text(&mut self, x: f64, class: &str, text: impl Display) {
        self.text_at(x, 0.0, class, text);
    }

    /// Text `down` from the current line.
    fn text_at(&mut self, x: f64, down: f64, class: &str, text: impl Display) {
        let (y, text) = (self.y + down, escape(&text.to_string()));
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{text}</text>"#);
    }

    /// A rectangle `[x, down, width, height]` with a tip for the pointer.
    fn rect(&mut self, class: &str, [x, down, width, height]: [f64; 4], opacity: f64, tip: &str) {
        let y = self.y + down;
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let round = if height > 8.0 && width > 4.0 { r#" rx="2""# } else { "" };
        let faint = if opacity < 1.0 { format!(r#" opacity="{opacity:.3}""#) } else { String::new() };
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"{round}{faint}>{tip}</rect>"#
        );
    }

    fn finish(self) -> String {
        let (height, body) = (self.y.ceil(), self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
             <style>\n{STYLE}\n</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
        )
    }
}

/// How strong the colour of a share is; the weakest is still seen.
fn strength(share: f64) -> f64 {
    0.08 + 0.92 * share
}

/// Whether the line or column `id` has its number beside it, when lines are `size` apart.
fn labelled(id: usize, size: f64) -> bool {
    let every = [1, 2, 5, 10, 20, 50, 100, 200, 500].into_iter().find(|&every| every as f64 * size >= 14.0);
    id.is_multiple_of(every.unwrap_or(1000))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_text() {
        assert_eq!(escape("a<b & c>"), "a&lt;b &amp; c&gt;");
    }

    #[test]
    fn lines_that_are_close_have_fewer_numbers() {
        let shown = |size: f64| (0..100).filter(|&id| labelled(id, size)).count();
        assert_eq!([22.0, 8.0, 3.0, 2.0].map(shown), [100, 50, 20, 10]);
    }
}
