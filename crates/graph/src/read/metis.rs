//! METIS graph files (`.graph`) and partition files (`.part.K`).
//!
//! A `.graph` file has a header `nodes edges [format [constraints]]` and then one line per node with its
//! neighbours, counted from 1; `format` says whether node sizes, node weights and edge weights are there. Every
//! undirected edge stands on the lines of both ends, which is how we hold it. Node sizes and weights are skipped.

use super::npy::NpyArray;
use super::text::{Fields, Lines, Separator, fields, parse_f32, parse_id};
use super::{Format, ReadOptions, name_of};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream, Features, Labels, Splits};
use crate::{Error, Result};
use std::path::Path;

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "metis",
    summary: "a METIS .graph file",
    detect: |path| path.is_file() && path.extension().is_some_and(|e| e == "graph" || e == "metis"),
    open,
};

fn open(path: &Path, _: &ReadOptions) -> Result<Dataset> {
    let edges = MetisEdges::open(path)?;
    let header = edges.header;
    let mut notes = vec!["a METIS graph is undirected: every edge is held in both directions".to_owned()];
    if header.skipped > 0 {
        notes.push(format!("{} sizes and weights per node were not read", header.skipped));
    }
    Ok(Dataset {
        name: name_of(path),
        nodes: header.nodes,
        undirected: true,
        edges: Box::new(edges),
        edge_columns: EdgeColumns { weighted: header.weighted, ..EdgeColumns::default() },
        features: Features::None,
        labels: Labels::None,
        splits: Splits::default(),
        names: None,
        class_names: None,
        notes,
    })
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Header {
    nodes: u64,
    /// Undirected edges.
    edges: u64,
    weighted: bool,
    /// Numbers before the first neighbour of a line.
    skipped: u64,
}

impl Header {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut numbers = fields(line, Separator::Blank);
        let (nodes, edges) = (parse_id(numbers.next()?)?, parse_id(numbers.next()?)?);
        let format = numbers.next().map_or(Some(0), parse_id)?;
        let constraints = numbers.next().map_or(Some(1), parse_id)?;
        let digits = [format / 100, format / 10 % 10, format % 10];
        if digits.iter().any(|&digit| digit > 1) || numbers.next().is_some() || constraints > 1 << 16 {
            return None;
        }
        Some(Self { nodes, edges, weighted: digits[2] == 1, skipped: digits[0] + digits[1] * constraints })
    }

    /// Every node has a line and every edge is named twice: more than that is a damaged header.
    fn fits(&self, bytes: u64) -> bool {
        self.nodes <= bytes && self.edges <= bytes
    }
}

/// Edges parsed line by line.
struct MetisEdges {
    lines: Lines,
    header: Header,
    /// The line of the current node from `at` on is still to be read.
    line: Vec<u8>,
    at: usize,
    /// How many node lines were begun.
    begun: u64,
    seen: u64,
}

impl MetisEdges {
    fn open(path: &Path) -> Result<Self> {
        let bytes = std::fs::metadata(path).map_err(Error::io("open", path))?.len();
        let mut lines = Lines::open(path)?;
        let mut first = Vec::new();
        next_line(&mut lines, &mut first)?;
        let header = Header::parse(&first)
            .ok_or_else(|| lines.wrong("a header `nodes edges [format [constraints]]`", &first))?;
        if !header.fits(bytes) {
            let expected = format!("counts that a file of {bytes} bytes can hold");
            return Err(lines.wrong(expected, &first));
        }
        Ok(Self { lines, header, line: Vec::new(), at: 0, begun: 0, seen: 0 })
    }

    /// Begins the line of the next node; `false` after the last.
    fn begin_line(&mut self) -> Result<bool> {
        if self.begun == self.header.nodes {
            return Ok(false);
        }
        if !next_line(&mut self.lines, &mut self.line)? {
            let expected = format!("{} lines of neighbours", self.header.nodes);
            return Err(Error::input(&self.lines.file, "", expected, format!("{}", self.begun)));
        }
        self.at = 0;
        self.begun += 1;
        for _ in 0..self.header.skipped {
            let number = self.next_field().and_then(|field| parse_id(&self.line[field]));
            if number.is_none() {
                let expected = format!("{} node sizes and weights first", self.header.skipped);
                return Err(self.lines.wrong(expected, &self.line));
            }
        }
        Ok(true)
    }

    /// Where the next field of the line stands.
    fn next_field(&mut self) -> Option<std::ops::Range<usize>> {
        let rest = &self.line[self.at..];
        let skipped = rest.len() - rest.trim_ascii_start().len();
        let field = Fields::next(&mut fields(rest, Separator::Blank))?;
        let start = self.at + skipped;
        self.at = start + field.len();
        Some(start..self.at)
    }

    /// Adds the next edge of the current line; `false` at its end.
    fn next_edge(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        let Some(field) = self.next_field() else { return Ok(false) };
        let nodes = self.header.nodes;
        match parse_id(&self.line[field.clone()]) {
            Some(neighbour) if (1..=nodes).contains(&neighbour) => chunk.targets.push(neighbour - 1),
            _ => {
                let expected = format!("a neighbour from 1 to {nodes}");
                return Err(self.lines.wrong(expected, &self.line[field]));
            }
        }
        chunk.sources.push(self.begun - 1);
        if self.header.weighted {
            let weight = self.next_field().and_then(|field| parse_f32(&self.line[field]));
            chunk
                .weights
                .push(weight.ok_or_else(|| self.lines.wrong("a weight after each neighbour", &self.line))?);
        }
        Ok(true)
    }

    fn check_end(&mut self) -> Result<()> {
        if self.seen != 2 * self.header.edges {
            return Err(Error::input(
                &self.lines.file,
                "header",
                format!("{} edges, half the neighbours named", self.seen as f64 / 2.0),
                format!("`{}`", self.header.edges),
            ));
        }
        while next_line(&mut self.lines, &mut self.line)? {
            if !self.line.trim_ascii().is_empty() {
                return Err(self
                    .lines
                    .wrong(format!("nothing after {} nodes", self.header.nodes), &self.line));
            }
        }
        Ok(())
    }
}

/// Fills `line` with the next line that is no comment (an empty one is a node without neighbours), if any.
fn next_line(lines: &mut Lines, line: &mut Vec<u8>) -> Result<bool> {
    while let Some(next) = lines.next()? {
        if next.first() != Some(&b'%') {
            line.clear();
            line.extend_from_slice(next);
            return Ok(true);
        }
    }
    Ok(false)
}

impl EdgeStream for MetisEdges {
    fn len(&self) -> u64 {
        2 * self.header.edges
    }

    fn rewind(&mut self) -> Result<()> {
        let file = self.lines.file.clone();
        *self = Self::open(&file)?;
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        while chunk.len() < EdgeChunk::EDGES {
            if !self.next_edge(chunk)? && !self.begin_line()? {
                break;
            }
        }
        self.seen += chunk.len() as u64;
        if chunk.is_empty() {
            self.check_end()?;
        }
        Ok(!chunk.is_empty())
    }
}

/// The part of each node from a METIS `.part.K` file (one number per line) or an `.npy` of integers.
pub fn read_part_file(path: &Path, nodes: u64) -> Result<Vec<u32>> {
    let parts = if path.extension().is_some_and(|extension| extension == "npy") {
        read_part_array(path)?
    } else {
        read_part_lines(path)?
    };
    if parts.len() as u64 == nodes {
        return Ok(parts);
    }
    Err(Error::input(path, "", format!("one part for each of {nodes} nodes"), format!("{}", parts.len())))
}

fn read_part_array(path: &Path) -> Result<Vec<u32>> {
    let array = NpyArray::open(path)?;
    if array.matrix()?.1 != 1 || !array.kind.is_integer() {
        return Err(array.wrong("a list of integers"));
    }
    let part = |(node, &part): (usize, &u64)| {
        u32::try_from(part).map_err(|_| array.wrong_at("node", node as u64, "a part from 0", part as i64))
    };
    array.to_u64()?.iter().enumerate().map(part).collect()
}

fn read_part_lines(path: &Path) -> Result<Vec<u32>> {
    let mut lines = Lines::open(path)?;
    let mut parts = Vec::new();
    while let Some(line) = lines.next()? {
        match parse_id(line.trim_ascii()).and_then(|part| u32::try_from(part).ok()) {
            Some(part) => parts.push(part),
            None => {
                let found = line.to_vec();
                return Err(lines.wrong("the number of a part", &found));
            }
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_code_says_what_stands_before_and_between_neighbours() {
        let parse = |line: &str| Header::parse(line.as_bytes()).map(|h| (h.weighted, h.skipped));
        assert_eq!(parse("3 2"), Some((false, 0)));
        assert_eq!(parse("3 2 1"), Some((true, 0)));
        assert_eq!(parse("3 2 011 4"), Some((true, 4)));
        assert_eq!(parse("3 2 100"), Some((false, 1)));
        assert_eq!(parse("3 2 7"), None);
        assert_eq!(parse("3"), None);
    }
}
