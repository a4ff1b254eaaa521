//! Edge lists as text: one `source destination [weight]` per line, separated by comma, tab, semicolon or blanks.
//!
//! Packed files (gzip, zstd), comment lines (`#`, `%`) and a header line are understood. Integer ids that fill
//! their range are used as they are; words and far-apart integers are names. A folder with `edges.csv` may add
//! `nodes.csv` (columns `id`, `label`, `split`, and features). The file is parsed anew in every pass: memory is
//! one buffer, plus the names where nodes have names.

use super::names::{Names, Nodes, is_dense, naming_note};
use super::node_table::{self, NodeColumns};
use super::text::{Lines, Separator, fields, is_blank, leading_id, parse_f32, parse_id, unquoted};
use super::{Format, ReadOptions, name_of};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream};
use crate::progress::Progress;
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "edge-list",
    summary: "text with `source destination [weight]` lines (csv, tsv, txt; gz, zst), or a folder with edges.csv",
    detect: |path| edge_file(path).is_some(),
    open,
};

const ENDINGS: [&str; 6] = ["csv", "tsv", "txt", "edges", "edgelist", "el"];
const PACKED: [&str; 3] = ["", ".gz", ".zst"];

/// `<folder>/<stem>.<ending>[.gz|.zst]`, if there is one.
fn text_file(folder: &Path, stem: &str) -> Option<PathBuf> {
    let names = ENDINGS.iter().flat_map(|ending| PACKED.map(|packed| format!("{stem}.{ending}{packed}")));
    names.map(|name| folder.join(name)).find(|file| file.is_file())
}

fn edge_file(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return text_file(path, "edges");
    }
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").or(name.strip_suffix(".zst")).unwrap_or(&name);
    let (_, ending) = name.rsplit_once('.')?;
    ENDINGS.contains(&ending).then(|| path.to_path_buf())
}

fn open(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let found = if path.is_dir() { text_file(path, "edges") } else { Some(path.to_path_buf()) };
    let file = found.ok_or_else(|| {
        Error::input(path, "", "a file `edges.csv` (or .tsv, .txt; .gz, .zst)", "none of these")
    })?;
    let mut notes = Vec::new();
    let layout = Layout::of(&file, options.weights, &mut notes)?;
    let table = match text_file(path, "nodes") {
        Some(nodes) => node_table::read_text(&nodes, &mut notes)?,
        None => {
            let nodes = count_nodes(&file, layout, options.progress, &mut notes)?;
            NodeColumns::none(nodes)
        }
    };
    let (nodes, names) = (table.nodes.count(), table.nodes.names());
    let mut edges = TextEdges::open(&file, layout, table.nodes, 0)?;
    edges.len = count_edges(&mut edges, options.progress)?;
    Ok(Dataset {
        name: name_of(path),
        nodes,
        undirected: false,
        edges: Box::new(edges),
        edge_columns: EdgeColumns { weighted: layout.weight.is_some(), ..EdgeColumns::default() },
        features: table.features,
        labels: table.labels,
        splits: table.splits,
        names,
        class_names: table.class_names,
        notes,
    })
}

/// Which fields of a line mean what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    separator: Separator,
    header: bool,
    source: usize,
    target: usize,
    weight: Option<usize>,
}

impl Layout {
    /// Two ids separated by a comma, nothing else.
    pub(super) const PLAIN_CSV: Self =
        Self { separator: Separator::Byte(b','), header: false, source: 0, target: 1, weight: None };

    /// The layout that the first two lines of `file` show.
    fn of(file: &Path, weights: bool, notes: &mut Vec<String>) -> Result<Self> {
        let mut lines = Lines::open(file)?;
        let Some(first) = next_data_line(&mut lines)? else {
            return Ok(Self { weight: None, ..Self::PLAIN_CSV });
        };
        let separator = Separator::guess(&first);
        let plain = |name: &str| name.trim_matches('"').trim().to_owned();
        let names: Vec<String> = fields(&first, separator)
            .map(|f| plain(&String::from_utf8_lossy(f).to_ascii_lowercase()))
            .collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
        let source = find(&["src", "source", "from", "u", "head", "from_node", "fromnodeid", "node1"]);
        let target =
            find(&["dst", "destination", "target", "to", "v", "tail", "to_node", "tonodeid", "node2"]);
        let weight = find(&["weight", "w", "weights", "value", "edge_weight"]);
        if let (Some(source), Some(target)) = (source, target) {
            return Ok(Self { separator, header: true, source, target, weight });
        }
        let second = next_data_line(&mut lines)?;
        let header = std::str::from_utf8(&first).is_ok()
            && !starts_with_ids(&first, separator)
            && second.as_deref().is_some_and(|line| starts_with_ids(line, separator));
        if header {
            notes.push("the first line of the edge list was taken as a header".into());
        }
        let third = names.len() > 2;
        if third && !weights && weight.is_none() {
            notes.push("the third column of the edge list was not read (ask for weights to read it)".into());
        }
        let weight = if header { weight } else { None }.or((third && weights).then_some(2));
        Ok(Self { separator, header, source: 0, target: 1, weight })
    }

    /// The common case, fast: a line that is two integers with one byte between them and nothing else.
    fn parse_numbers<'a>(&self, line: &'a [u8]) -> Option<Edge<'a>> {
        if (self.source, self.target, self.weight) != (0, 1, None) {
            return None;
        }
        let (first, digits) = leading_id(line);
        let between = *line.get(digits)?;
        let (source, target) = (&line[..digits], &line[digits + 1..]);
        let (second, rest) = leading_id(target);
        let separates = match self.separator {
            Separator::Byte(byte) => byte == between,
            Separator::Blank => between == b' ',
        };
        let both = (1..=19).contains(&digits) && (1..=19).contains(&rest) && rest == target.len();
        (separates && both).then_some(Edge { source, target, weight: 1.0, ids: Some((first, second)) })
    }

    /// The fields of a data line, or what is wrong with it.
    fn parse<'a>(&self, line: &'a [u8]) -> std::result::Result<Edge<'a>, &'static str> {
        if let Some(edge) = self.parse_numbers(line) {
            return Ok(edge);
        }
        let mut edge = Edge { source: &[], target: &[], weight: 1.0, ids: None };
        let mut weighted = self.weight.is_none();
        for (column, field) in fields(line, self.separator).enumerate() {
            if column == self.source {
                edge.source = field;
            } else if column == self.target {
                edge.target = field;
            } else if Some(column) == self.weight {
                edge.weight = parse_f32(field).ok_or("a weight")?;
                weighted = true;
            } else if column > self.source.max(self.target) && weighted {
                break;
            }
        }
        match edge.source.is_empty() || edge.target.is_empty() || !weighted {
            false => Ok(edge),
            true if self.weight.is_some() => Err("a source, a destination and a weight"),
            true => Err("a source and a destination"),
        }
    }
}

struct Edge<'a> {
    source: &'a [u8],
    target: &'a [u8],
    weight: f32,
    /// Both ids, when they were seen to be integers on the way.
    ids: Option<(u64, u64)>,
}

impl Edge<'_> {
    /// Source and destination, when both are integers.
    fn numbers(&self) -> Option<(u64, u64)> {
        self.ids.or_else(|| Some((parse_id(self.source)?, parse_id(self.target)?)))
    }

    /// Source and destination as `nodes` numbers them, when it has them.
    fn among(&self, nodes: &Nodes) -> Option<(u64, u64)> {
        match nodes {
            Nodes::Numbered(count) => self.numbers().filter(|(source, target)| source.max(target) < count),
            Nodes::Named(names) => {
                Some((names.find(&unquoted(self.source)?)?, names.find(&unquoted(self.target)?)?))
            }
        }
    }
}

fn starts_with_ids(line: &[u8], separator: Separator) -> bool {
    let mut ids = fields(line, separator);
    let mut id = || ids.next().is_some_and(|field| parse_id(field).is_some());
    id() && id()
}

fn next_data_line(lines: &mut Lines) -> Result<Option<Vec<u8>>> {
    while let Some(line) = lines.next()? {
        if !is_blank(line) {
            return Ok(Some(line.to_vec()));
        }
    }
    Ok(None)
}

/// Calls `visit` with every edge of `file`; an error text from it becomes an error at that line.
fn each_edge(
    file: &Path,
    layout: Layout,
    progress: &dyn Progress,
    mut visit: impl FnMut(&Edge) -> std::result::Result<(), &'static str>,
) -> Result<()> {
    let mut lines = Lines::open(file)?;
    let mut header = layout.header;
    progress.begin("reading edge ids", 0, "edges");
    let mut edges = 0u64;
    while let Some(line) = lines.next()? {
        if is_blank(line) || std::mem::take(&mut header) {
            continue;
        }
        if let Err(expected) = layout.parse(line).and_then(|edge| visit(&edge)) {
            let found = line.to_vec();
            return Err(lines.wrong(expected, &found));
        }
        edges += 1;
        if edges.is_multiple_of(1 << 16) {
            progress.tick(1 << 16)?;
        }
    }
    Ok(())
}

/// Finds out, by one or two passes, whether nodes are numbered or named, and how many there are.
fn count_nodes(
    file: &Path,
    layout: Layout,
    progress: &dyn Progress,
    notes: &mut Vec<String>,
) -> Result<Nodes> {
    let (mut numbered, mut largest, mut edges) = (true, None, 0u64);
    each_edge(file, layout, progress, |edge| {
        edges += 1;
        match edge.numbers() {
            Some((source, target)) => largest = largest.max(Some(source.max(target))),
            None => numbered = false,
        }
        Ok(())
    })?;
    if numbered && largest.is_none_or(|largest| is_dense(largest, edges)) {
        return Ok(Nodes::Numbered(largest.map_or(0, |largest| largest + 1)));
    }
    let mut names = Names::default();
    each_edge(file, layout, progress, |edge| {
        for field in [edge.source, edge.target] {
            names.number(&unquoted(field).ok_or("names in UTF-8")?);
        }
        Ok(())
    })?;
    notes.push(naming_note(names.as_slice().len() as u64));
    Ok(Nodes::Named(names))
}

/// A whole pass: checks every line and counts.
fn count_edges(edges: &mut TextEdges, progress: &dyn Progress) -> Result<u64> {
    progress.begin("checking edges", 0, "edges");
    let (mut chunk, mut count) = (EdgeChunk::default(), 0);
    while edges.fill(&mut chunk)? {
        count += chunk.len() as u64;
        progress.tick(chunk.len() as u64)?;
    }
    edges.rewind()?;
    Ok(count)
}

/// Edges parsed from text as they are asked for.
pub(super) struct TextEdges {
    lines: Lines,
    layout: Layout,
    nodes: Nodes,
    header: bool,
    len: u64,
    seen: u64,
}

impl TextEdges {
    /// The edges of `file`, of which there must be `len`.
    pub(super) fn open(file: &Path, layout: Layout, nodes: Nodes, len: u64) -> Result<Self> {
        Ok(Self { lines: Lines::open(file)?, layout, nodes, header: layout.header, len, seen: 0 })
    }

    /// How many edges a packed or plain file of `bytes` can hold at most: four bytes each, packed 1032 to 1.
    pub(super) fn most(bytes: u64) -> u64 {
        bytes.saturating_mul(1032 / 4)
    }

    /// The edges of `file`, checked and counted in a pass.
    pub(super) fn counted(
        file: &Path,
        layout: Layout,
        nodes: Nodes,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let mut edges = Self::open(file, layout, nodes, 0)?;
        edges.len = count_edges(&mut edges, progress)?;
        Ok(edges)
    }

    fn fill(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        while chunk.len() < EdgeChunk::EDGES {
            let Some(line) = self.lines.next()? else { break };
            if is_blank(line) || std::mem::take(&mut self.header) {
                continue;
            }
            let parsed = self.layout.parse(line).map_err(str::to_owned).and_then(|edge| {
                let ids = edge.among(&self.nodes).ok_or_else(|| expected_ids(&self.nodes))?;
                Ok((ids, edge.weight))
            });
            match parsed {
                Ok(((source, target), weight)) => {
                    chunk.sources.push(source);
                    chunk.targets.push(target);
                    if self.layout.weight.is_some() {
                        chunk.weights.push(weight);
                    }
                }
                Err(expected) => {
                    let found = line.to_vec();
                    return Err(self.lines.wrong(expected, &found));
                }
            }
        }
        self.seen += chunk.len() as u64;
        Ok(!chunk.is_empty())
    }
}

fn expected_ids(nodes: &Nodes) -> String {
    match nodes {
        Nodes::Numbered(0) => "no edge, as there are no nodes".into(),
        Nodes::Numbered(count) => format!("two node ids from 0 to {}", count - 1),
        Nodes::Named(_) => "two nodes that the table of nodes has".into(),
    }
}

impl EdgeStream for TextEdges {
    fn len(&self) -> u64 {
        self.len
    }

    fn rewind(&mut self) -> Result<()> {
        self.lines = Lines::open(&self.lines.file)?;
        self.header = self.layout.header;
        self.seen = 0;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        let more = self.fill(chunk)?;
        if self.seen > self.len || (!more && self.seen != self.len) {
            let found = if more { "more".to_owned() } else { self.seen.to_string() };
            return Err(Error::input(&self.lines.file, "", format!("{} edges", self.len), found));
        }
        Ok(more)
    }
}
