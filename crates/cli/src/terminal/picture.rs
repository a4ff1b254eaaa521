//! A partitioned graph as a smatext.lines().all(|line| line.chars().count() <= width)l picture of text: bars per part, and who sends how much to whom.
//!
//! Up to [`PARTS`] parts have a line each; more are summed up. Everything fits the width of the canvas.

use super::{Canvas, units};
use archipelago_graph::quality::{PartQuality, Quality};
use archipelago_graph::store::Traffic;

/// Parts that are shown one by one.
pub const PARTS: usize = 32;
/// Parts whose traffic is shown in numbers.
const NUMBERED: usize = 8;
/// Bars are this long at most.
const BAR: usize = 16;
/// From none to the most.
const SHADES: [&str; 5] = ["··", "░░", "▒▒", "▓▓", "██"];

/// A figure of a part.
pub struct Figure {
    /// What it is called.
    pub title: &'static str,
    /// The figure.
    pub count: fn(&PartQuality) -> u64,
    /// Whether it has a bar.
    pub bar: bool,
}

/// The figures of a part, in the order in which they are always shown.
pub const FIGURES: [Figure; 7] = [
    Figure { title: "nodes", count: |part| part.owned, bar: true },
    Figure { title: "halo", count: |part| part.halo, bar: true },
    Figure { title: "in-edges", count: |part| part.in_edges, bar: true },
    Figure { title: "cut", count: |part| part.cut_in_edges, bar: false },
    Figure { title: "train", count: |part| part.train, bar: true },
    Figure { title: "valid", count: |part| part.valid, bar: false },
    Figure { title: "test", count: |part| part.test, bar: false },
];

/// A line per part, or per quantile when there are many parts, with bars.
pub fn bars(quality: &Quality, canvas: Canvas) -> String {
    let parts = &quality.parts;
    if parts.len() <= PARTS {
        let labels: Vec<String> = (0..parts.len()).map(|part| part.to_string()).collect();
        return lines("part", &labels, |figure| parts.iter().map(figure.count).collect(), canvas);
    }
    let labels = ["least", "median", "mean", "most"].map(str::to_owned);
    let table = lines("of parts", &labels, |figure| spread(parts, figure.count), canvas);
    format!("{table}\n{} parts; --json shows every one", units::count(parts.len() as u64))
}

/// Least, median, mean and most of a figure.
fn spread(parts: &[PartQuality], count: fn(&PartQuality) -> u64) -> Vec<u64> {
    let mut counts: Vec<u64> = parts.iter().map(count).collect();
    counts.sort_unstable();
    let mean = counts.iter().sum::<u64>() / counts.len() as u64;
    vec![counts[0], counts[counts.len() / 2], mean, counts[counts.len() - 1]]
}

/// A line per label, with the counts of every figure.
fn lines(title: &str, labels: &[String], counts: impl Fn(&Figure) -> Vec<u64>, canvas: Canvas) -> String {
    let first = labels.iter().map(String::len).chain([title.len()]).max().unwrap_or(0);
    let mut lines = vec![format!("{title:>first$}")];
    lines.extend(labels.iter().map(|label| format!("{label:>first$}")));
    let columns: Vec<Column> = FIGURES.iter().map(|figure| Column::new(figure, counts(figure))).collect();
    let numbers: usize = first + columns.iter().map(|column| 2 + column.width).sum::<usize>();
    let barred = columns.iter().filter(|column| column.figure.bar).count();
    let room = canvas.width.saturating_sub(numbers) / barred;
    // A blank stands before a bar; less than three characters say nothing.
    let bar = if room < 4 { 0 } else { (room - 1).min(BAR) };
    for column in &columns {
        column.append(&mut lines, bar, canvas);
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// One figure of all lines.
struct Column<'a> {
    figure: &'a Figure,
    counts: Vec<u64>,
    width: usize,
}

impl<'a> Column<'a> {
    fn new(figure: &'a Figure, counts: Vec<u64>) -> Self {
        let widest = counts.iter().map(|&count| units::short(count).len()).max().unwrap_or(0);
        Self { figure, counts, width: widest.max(figure.title.len()) }
    }

    /// Adds the title to the first line, a number and a bar of up to `length` to each other.
    fn append(&self, lines: &mut [String], length: usize, canvas: Canvas) {
        let (width, most) = (self.width, self.counts.iter().copied().max().unwrap_or(0));
        let length = if self.figure.bar { length } else { 0 };
        let gap = if length > 0 { " ".repeat(1 + length) } else { String::new() };
        lines[0] += &format!("  {:>width$}{gap}", self.figure.title);
        for (line, &count) in lines[1..].iter_mut().zip(&self.counts) {
            *line += &format!("  {:>width$}", units::short(count));
            if length > 0 {
                let bar = units::bar(count, most, length);
                let blank = " ".repeat(length - bar.chars().count());
                *line += &format!(" {}{blank}", canvas.paint(&bar));
            }
        }
    }
}

/// The matrix of what parts send each other: numbers and shades of few parts, shades of many.
pub fn traffic(traffic: &Traffic, canvas: Canvas) -> String {
    let width = units::short(traffic.most()).len();
    let label = (traffic.parts().saturating_sub(1)).to_string().len().max(2);
    let numbered = traffic.parts() <= NUMBERED && label + traffic.parts() * (width + 5) <= canvas.width;
    let room = (canvas.width.saturating_sub(label + 2) / 2).clamp(1, PARTS);
    let size = if numbered { 1 } else { traffic.parts().div_ceil(room).max(1) };
    let cells = traffic.grouped(size);
    let matrix = Matrix { traffic: &cells, size, label, number: if numbered { width } else { 0 }, canvas };
    let heading = match size {
        1 => {
            "traffic: rows that the part of the line sends to the part of the column, for its halo".to_owned()
        }
        size => format!(
            "traffic: rows that {size} parts (a line) send to {size} parts (a column), for their halos"
        ),
    };
    format!("{heading}\n{}\n{}", matrix.lines().join("\n"), matrix.legend())
}

/// A matrix about to be drawn.
struct Matrix<'a> {
    traffic: &'a Traffic,
    /// Parts of a cell.
    size: usize,
    /// Width of the label of a line.
    label: usize,
    /// Width of numbers; 0 for none.
    number: usize,
    canvas: Canvas,
}

impl Matrix<'_> {
    fn lines(&self) -> Vec<String> {
        let (cell, label) = (self.cell(), self.label);
        let name = |group: usize| (group * self.size).to_string();
        let head: String = (0..self.traffic.parts()).map(|to| self.column_name(&name(to), to)).collect();
        let mut lines = vec![format!("{:label$}  {head}", "").trim_end().to_owned()];
        for (from, counts) in self.traffic.lines().enumerate() {
            let cells: String = counts.iter().enumerate().map(|(to, &count)| cell(from, to, count)).collect();
            lines.push(format!("{:>label$}  {cells}", name(from)).trim_end().to_owned());
        }
        lines
    }

    /// The name over a column; where columns are narrow, over every one that has room for it.
    fn column_name(&self, name: &str, to: usize) -> String {
        if self.number > 0 {
            return format!("{name:>width$}  ", width = self.number + 3);
        }
        let every =
            name.len().max((self.traffic.parts().saturating_sub(1) * self.size).to_string().len()) / 2 + 1;
        match (to.is_multiple_of(every), every) {
            (true, 1) => format!("{name:<2}"),
            (true, every) => format!("{name:<width$}", width = 2 * every.min(self.traffic.parts() - to)),
            (false, _) => String::new(),
        }
    }

    fn cell(&self) -> impl Fn(usize, usize, u64) -> String {
        let (most, number, canvas, own) = (self.traffic.most(), self.number, self.canvas, self.size == 1);
        move |from, to, count| {
            let shade = if own && from == to { "  " } else { shade(count, most) };
            let shade = canvas.paint(shade);
            match (number, from == to) {
                (0, _) => shade,
                (_, true) => format!("{shade} {:>number$}  ", ""),
                (_, false) => format!("{shade} {:>number$}  ", units::short(count)),
            }
        }
    }

    fn legend(&self) -> String {
        let most = units::counted(self.traffic.most(), "row");
        let [_, quarter, half, three, full] = SHADES.map(|shade| self.canvas.paint(shade));
        format!(
            "{quarter} to a quarter, {half} to a half, {three} to three quarters, {full} to all of {most}"
        )
    }
}

fn shade(count: u64, most: u64) -> &'static str {
    if count == 0 {
        return SHADES[0];
    }
    SHADES[(u128::from(count) * 4).div_ceil(u128::from(most.max(1))) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Canvas = Canvas { width: 100, colors: false };

    fn quality(parts: u64) -> Quality {
        let part =
            |id: u64| PartQuality { owned: 10 * id, halo: 7, in_edges: 1000 * id, ..PartQuality::default() };
        Quality::from_parts((0..parts).map(part).collect())
    }

    fn ring(parts: usize) -> Traffic {
        let mut traffic = Traffic::new(parts);
        (0..parts).for_each(|part| traffic.add(part, (part + 1) % parts, 100 * (part as u64 + 1)));
        traffic
    }

    fn fits(text: &str, width: usize) -> bool {
        text.lines().all(|line| line.chars().count() <= width)
    }

    #[test]
    fn bars_are_drawn_to_the_largest_of_their_column() {
        let text = bars(&quality(3), PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].contains("10 █████▌ ") && lines[3].contains("20 ███████████ "), "{text}");
        assert!(fits(&text, 100), "{text}");
    }

    #[test]
    fn a_narrow_terminal_loses_the_bars_and_nothing_else() {
        let text = bars(&quality(3), Canvas { width: 60, ..PLAIN });
        assert!(!text.contains('█') && text.contains("2,000"), "{text}");
        assert!(fits(&text, 60), "{text}");
    }

    #[test]
    fn many_parts_are_summed_up() {
        let text = bars(&quality(101), PLAIN);
        assert_eq!(text.lines().count(), 6);
        assert!(
            text.contains("median    500") && text.ends_with("101 parts; --json shows every one"),
            "{text}"
        );
    }

    #[test]
    fn few_parts_have_numbers_and_the_most_is_full() {
        let text = traffic(&ring(4), PLAIN);
        assert!(text.contains("██ 400") && text.contains("░░ 100") && text.contains("▒▒ 200"), "{text}");
    }

    #[test]
    fn more_parts_have_shades_and_very_many_share_cells() {
        for (parts, width, lines) in
            [(9, 100, 12), (32, 100, 35), (33, 100, 20), (200, 100, 32), (32, 40, 19)]
        {
            let text = traffic(&ring(parts), Canvas { width, colors: false });
            assert_eq!(text.lines().count(), lines, "{parts} parts\n{text}");
            let cells = text.lines().skip(1).take(lines - 2);
            assert!(cells.into_iter().all(|line| line.chars().count() <= width), "{text}");
        }
    }

    #[test]
    fn no_parts_and_no_traffic_are_drawn_too() {
        assert!(bars(&quality(0), PLAIN).starts_with("part"));
        assert!(traffic(&Traffic::new(0), PLAIN).contains("0 rows"));
        assert!(traffic(&Traffic::new(1), PLAIN).contains("0 rows"));
    }

    #[test]
    fn colours_are_used_only_where_there_are_some() {
        assert!(!traffic(&ring(3), PLAIN).contains('\x1b'));
        assert!(traffic(&ring(3), Canvas { colors: true, ..PLAIN }).contains("\x1b[36m██\x1b[0m 300"));
    }
}
