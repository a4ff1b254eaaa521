//! Parquet: `edges.parquet` (columns `src`, `dst`, and `weight`, `type` if wanted) and `nodes.parquet`.
//!
//! Ids are integers or strings, under the same rules as in edge lists. `nodes.parquet` has columns `id`, `label`,
//! `split`, and features: one number per column, or one list column. Edges are streamed row group by row group;
//! the cells of a column come from [`Cells`].

mod cells;

use super::names::{Names, Nodes, is_dense, naming_note};
use super::node_table::{NodeColumns, NodeTable, Role};
use super::{Format, ReadOptions, name_of, npz};
use crate::dataset::{Dataset, EdgeChunk, EdgeColumns, EdgeStream};
use crate::progress::Progress;
use crate::{Error, Result};
use cells::{Cells, Column, Table};
use std::path::{Path, PathBuf};

/// The table line.
pub(super) const FORMAT: Format = Format {
    name: "parquet",
    summary: "a folder with edges.parquet (and nodes.parquet), or one .parquet file of edges",
    detect: |path| edge_file(path).is_file() && edge_file(path).extension().is_some_and(|e| e == "parquet"),
    open,
};

fn edge_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("edges.parquet") } else { path.to_path_buf() }
}

fn open(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let mut notes = Vec::new();
    let mut edges = ParquetEdges::open(&edge_file(path))?;
    let node_file = path.join("nodes.parquet");
    let table = match node_file.is_file() {
        true => read_nodes(&node_file, &mut notes)?,
        false => {
            let nodes = edges.count_nodes(options.progress, &mut notes)?;
            NodeColumns::none(nodes)
        }
    };
    let (nodes, names) = (table.nodes.count(), table.nodes.names());
    edges.nodes = table.nodes;
    let types = edges.count_types(options.progress)?;
    Ok(Dataset {
        name: name_of(path),
        nodes,
        undirected: false,
        edge_columns: EdgeColumns { weighted: edges.weight.is_some(), types, attribute_width: 0 },
        edges: Box::new(edges),
        features: table.features,
        labels: table.labels,
        splits: table.splits,
        names,
        class_names: table.class_names,
        notes,
    })
}

/// Edges decoded as they are asked for.
struct ParquetEdges {
    table: Table,
    nodes: Nodes,
    source: usize,
    target: usize,
    weight: Option<usize>,
    kind: Option<usize>,
    /// The next row group, and the columns of the current one.
    group: usize,
    columns: Option<GroupColumns>,
    seen: u64,
}

/// The columns of one row group that make up edges.
struct GroupColumns {
    source: Column,
    target: Column,
    weight: Option<Column>,
    kind: Option<Column>,
}

impl ParquetEdges {
    fn open(file: &Path) -> Result<Self> {
        let table = Table::open(file)?;
        let source = table.require(&["src", "source", "from", "u", "head"])?;
        let target = table.require(&["dst", "destination", "target", "to", "v", "tail"])?;
        let weight = table.find(&["weight", "w", "edge_weight"]);
        let kind = table.find(&["type", "edge_type", "relation"]);
        Ok(Self {
            table,
            nodes: Nodes::Numbered(0),
            source,
            target,
            weight,
            kind,
            group: 0,
            columns: None,
            seen: 0,
        })
    }

    fn open_group(&self, group: usize) -> Result<GroupColumns> {
        Ok(GroupColumns {
            source: self.table.column(group, self.source)?,
            target: self.table.column(group, self.target)?,
            weight: self.weight.map(|column| self.table.column(group, column)).transpose()?,
            kind: self.kind.map(|column| self.table.column(group, column)).transpose()?,
        })
    }

    /// Whether ids are numbers or names, and how many nodes there are: one or two passes.
    fn count_nodes(&self, progress: &dyn Progress, notes: &mut Vec<String>) -> Result<Nodes> {
        let (mut numbered, mut largest, mut edges) = (true, 0, 0);
        self.each_id_batch(progress, |cells| {
            edges += cells.len() as u64;
            match cells {
                Cells::Integers(ids) => {
                    numbered &= ids.iter().all(|&id| id >= 0);
                    largest = ids.iter().copied().fold(largest, i64::max);
                }
                _ => numbered = false,
            }
        })?;
        if numbered && is_dense(largest as u64, edges / 2) {
            return Ok(Nodes::Numbered(if edges == 0 { 0 } else { largest as u64 + 1 }));
        }
        let mut names = Names::default();
        self.each_id_batch(progress, |cells| {
            for row in 0..cells.len() {
                names.number(&cells.text(row));
            }
        })?;
        notes.push(naming_note(names.as_slice().len() as u64));
        Ok(Nodes::Named(names))
    }

    /// Visits the ids of each batch of edges, sources and destinations in turn, edge by edge interleaved.
    fn each_id_batch(&self, progress: &dyn Progress, mut visit: impl FnMut(&Cells)) -> Result<()> {
        progress.begin("reading edge ids", self.table.rows, "edges");
        for group in 0..self.table.groups() {
            let mut sources = self.table.column(group, self.source)?;
            let mut targets = self.table.column(group, self.target)?;
            loop {
                let (from, to) =
                    (sources.read_whole(EdgeChunk::EDGES)?, targets.read_whole(EdgeChunk::EDGES)?);
                if from.len() != to.len() {
                    return Err(targets.wrong(format!("{} rows in a row group", from.len()), to.len()));
                }
                if from.len() == 0 {
                    break;
                }
                progress.tick(from.len() as u64)?;
                visit(&from.interleaved(to));
            }
        }
        Ok(())
    }

    /// How many edge types there are, by a pass over that column; 0 without one.
    fn count_types(&self, progress: &dyn Progress) -> Result<u32> {
        let Some(kind) = self.kind else { return Ok(0) };
        progress.begin("reading edge types", self.table.rows, "edges");
        let mut bound = 0;
        for group in 0..self.table.groups() {
            let mut column = self.table.column(group, kind)?;
            loop {
                let kinds = column.read_types(EdgeChunk::EDGES)?;
                if kinds.is_empty() {
                    break;
                }
                progress.tick(kinds.len() as u64)?;
                bound = kinds.iter().fold(bound, |bound, &kind| bound.max(kind + 1));
            }
        }
        Ok(bound)
    }
}

/// Appends the nodes that `cells` name to `out`.
fn push_nodes(nodes: &Nodes, cells: &Cells, column: &Column, first: u64, out: &mut Vec<u64>) -> Result<()> {
    for row in 0..cells.len() {
        let node = match (nodes, cells) {
            (Nodes::Numbered(count), Cells::Integers(ids)) => {
                u64::try_from(ids[row]).ok().filter(|id| id < count)
            }
            (Nodes::Numbered(_), _) => None,
            (Nodes::Named(names), cells) => names.find(&cells.text(row)),
        };
        match (node, nodes) {
            (Some(node), _) => out.push(node),
            (None, Nodes::Numbered(count)) => {
                let expected = format!("a node id below {count}");
                return Err(column.wrong_at(first + row as u64, expected, &cells.text(row)));
            }
            (None, Nodes::Named(_)) => {
                let expected = "a node that the table of nodes has";
                return Err(column.wrong_at(first + row as u64, expected, &cells.text(row)));
            }
        }
    }
    Ok(())
}

impl EdgeStream for ParquetEdges {
    fn len(&self) -> u64 {
        self.table.rows
    }

    fn rewind(&mut self) -> Result<()> {
        (self.group, self.columns, self.seen) = (0, None, 0);
        Ok(())
    }

    fn next_chunk(&mut self, chunk: &mut EdgeChunk) -> Result<bool> {
        chunk.clear();
        while chunk.is_empty() {
            if self.columns.is_none() {
                if self.group == self.table.groups() {
                    return self.check_end();
                }
                self.columns = Some(self.open_group(self.group)?);
                self.group += 1;
            }
            let Some(columns) = &mut self.columns else { break };
            columns.fill(&self.nodes, self.seen, chunk)?;
            if chunk.is_empty() {
                self.columns = None;
            }
        }
        self.seen += chunk.len() as u64;
        Ok(true)
    }
}

impl ParquetEdges {
    fn check_end(&self) -> Result<bool> {
        if self.seen == self.table.rows {
            return Ok(false);
        }
        Err(Error::input(&self.table.file, "", format!("{} rows", self.table.rows), self.seen.to_string()))
    }
}

impl GroupColumns {
    /// Adds the next rows of the group to `chunk`; none at its end.
    fn fill(&mut self, nodes: &Nodes, first: u64, chunk: &mut EdgeChunk) -> Result<()> {
        let sources = self.source.read_whole(EdgeChunk::EDGES)?;
        let targets = self.target.read_whole(EdgeChunk::EDGES)?;
        push_nodes(nodes, &sources, &self.source, first, &mut chunk.sources)?;
        push_nodes(nodes, &targets, &self.target, first, &mut chunk.targets)?;
        let rows = sources.len();
        let mut short = (targets.len() != rows).then_some(&self.target);
        if let Some(column) = &mut self.weight {
            chunk.weights = column.read_whole(EdgeChunk::EDGES)?.into_floats(column, first)?;
            short = short.or((chunk.weights.len() != rows).then_some(column));
        }
        if let Some(column) = &mut self.kind {
            chunk.types = column.read_types(EdgeChunk::EDGES)?;
            short = short.or((chunk.types.len() != rows).then_some(column));
        }
        match short {
            None => Ok(()),
            Some(column) => {
                Err(column.wrong(format!("{rows} rows, as in the column of sources"), "another number"))
            }
        }
    }
}

fn read_nodes(file: &Path, notes: &mut Vec<String>) -> Result<NodeColumns> {
    let table = Table::open(file)?;
    let mut nodes = NodeTable::new(file);
    nodes.rows = table.rows;
    let numbers: Vec<usize> = (0..table.columns())
        .filter(|&c| Role::of(table.name(c)) == Role::Feature && !table.is_list(c))
        .collect();
    let list = (0..table.columns()).find(|&c| table.is_list(c));
    if let Some(list) = list
        && !numbers.is_empty()
    {
        let found = format!("the list `{}` and {} other columns", table.name(list), numbers.len());
        return Err(Error::input(file, "", "features in one list column or in plain columns", found));
    }
    for column in 0..table.columns() {
        match Role::of(table.name(column)) {
            Role::Id => table.each_text(column, |id| nodes.push_id(id))?,
            Role::Label => table.each_text(column, |label| {
                nodes.push_label(label);
                Ok(())
            })?,
            Role::Split => table.each_text(column, |split| nodes.push_split(split))?,
            Role::Feature => {}
        }
    }
    let most = npz::most_unpacked(file)?;
    match list {
        Some(column) => (nodes.width, nodes.features) = table.read_list(column, most)?,
        None => (nodes.width, nodes.features) = (numbers.len(), table.read_numbers(&numbers, most)?),
    }
    nodes.finish(notes)
}
