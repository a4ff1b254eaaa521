//! A table with one row per node: id, label, split and numbers, from text or Parquet.
//!
//! Ids that are exactly `0..rows` in some order put their rows there; any other ids are names, and rows keep
//! their order. Labels that are not all integers become classes in order of first appearance.

use super::columns::class_labels;
use super::names::{Names, Nodes, naming_note};
use super::text::{Lines, Separator, fields, is_blank, parse_f32, parse_id, unquoted};
use crate::dataset::{Features, Labels, Splits};
use crate::{Error, Result};
use std::path::{Path, PathBuf};

/// What a column of a node table means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The node's id or name.
    Id,
    /// Its class.
    Label,
    /// Its split.
    Split,
    /// One of its features.
    Feature,
}

impl Role {
    /// The role of a column called `name`.
    pub(super) fn of(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "id" | "node" | "node_id" | "nodeid" | "name" => Self::Id,
            "label" | "y" | "class" | "target" => Self::Label,
            "split" | "set" => Self::Split,
            _ => Self::Feature,
        }
    }
}

/// The table while it is read.
#[derive(Default)]
pub(super) struct NodeTable {
    file: PathBuf,
    ids: Names,
    /// Class numbers, or numbers of `label_names` once a label was not an integer.
    labels: Vec<i64>,
    label_names: Option<Names>,
    splits: Splits,
    split_rows: u64,
    /// Row-major `[rows, width]`.
    pub(super) features: Vec<f32>,
    pub(super) width: usize,
    pub(super) rows: u64,
}

/// The table when it has been read.
pub(super) struct NodeColumns {
    pub(super) nodes: Nodes,
    pub(super) features: Features,
    pub(super) labels: Labels,
    pub(super) class_names: Option<Vec<String>>,
    pub(super) splits: Splits,
}

impl NodeColumns {
    /// No columns for these nodes.
    pub(super) fn none(nodes: Nodes) -> Self {
        Self {
            nodes,
            features: Features::None,
            labels: Labels::None,
            class_names: None,
            splits: Splits::default(),
        }
    }
}

impl NodeTable {
    /// An empty table for the contents of `file`.
    pub(super) fn new(file: &Path) -> Self {
        Self { file: file.to_path_buf(), ..Self::default() }
    }

    fn wrong(&self, row: u64, expected: impl Into<String>, found: &str) -> Error {
        Error::input(&self.file, format!("row {row}"), expected, format!("`{}`", found.escape_debug()))
    }

    /// Adds the id of the next row.
    pub(super) fn push_id(&mut self, id: &str) -> Result<()> {
        let row = self.ids.as_slice().len() as u64;
        if self.ids.number(id) < row {
            return Err(self.wrong(row, "an id that no other row has", id));
        }
        Ok(())
    }

    /// Adds the label of the next row; empty = not labelled.
    pub(super) fn push_label(&mut self, label: &str) {
        let integer = label.parse::<i64>().ok();
        match (label, integer, &self.label_names) {
            ("", ..) => self.labels.push(-1),
            (_, Some(class), None) => self.labels.push(class),
            _ => {
                let names = self.label_names.get_or_insert_with(|| name_classes(&mut self.labels));
                self.labels.push(names.number(label) as i64);
            }
        }
    }

    /// Adds the split of the next row; empty = none.
    pub(super) fn push_split(&mut self, split: &str) -> Result<()> {
        let node = self.split_rows;
        match split.to_ascii_lowercase().as_str() {
            "train" | "training" => self.splits.train.push(node),
            "valid" | "val" | "validation" => self.splits.valid.push(node),
            "test" | "testing" => self.splits.test.push(node),
            "" | "none" => {}
            _ => return Err(self.wrong(node, "`train`, `valid`, `test` or nothing", split)),
        }
        self.split_rows += 1;
        Ok(())
    }

    /// Puts rows in order and checks labels.
    pub(super) fn finish(mut self, notes: &mut Vec<String>) -> Result<NodeColumns> {
        let nodes = match self.order() {
            None if self.ids.as_slice().is_empty() => Nodes::Numbered(self.rows),
            None => {
                notes.push(naming_note(self.rows));
                Nodes::Named(std::mem::take(&mut self.ids))
            }
            Some(order) => {
                self.reorder(&order);
                Nodes::Numbered(self.rows)
            }
        };
        if let Some(names) = &self.label_names {
            notes.push(format!(
                "labels are words: numbered by first appearance as {}",
                listed(names.as_slice())
            ));
        }
        let labels = match self.labels.is_empty() {
            true => Labels::None,
            false => class_labels(self.labels.into(), None, &self.file, "label")?,
        };
        let features = match self.width {
            0 => Features::None,
            width => Features::Dense { width, values: self.features.into() },
        };
        let class_names = self.label_names.map(|names| names.as_slice().to_vec());
        Ok(NodeColumns { nodes, features, labels, class_names, splits: self.splits })
    }

    /// The node of each row, when the ids are exactly `0..rows`.
    fn order(&self) -> Option<Vec<u64>> {
        let ids = self.ids.as_slice();
        let order: Vec<u64> = ids.iter().map(|id| parse_id(id.as_bytes())).collect::<Option<_>>()?;
        let in_range = order.iter().all(|&id| id < self.rows);
        (in_range && !order.is_empty()).then_some(order)
    }

    fn reorder(&mut self, order: &[u64]) {
        if order.iter().enumerate().all(|(row, &node)| row as u64 == node) {
            return;
        }
        let mut labels = vec![-1; self.labels.len()];
        let mut features = vec![0.0; self.features.len()];
        for (row, &node) in order.iter().enumerate() {
            let (from, to) = (row * self.width, node as usize * self.width);
            features[to..to + self.width].copy_from_slice(&self.features[from..from + self.width]);
            if let Some(label) = labels.get_mut(node as usize) {
                *label = self.labels[row];
            }
        }
        (self.labels, self.features) = (labels, features);
        for nodes in [&mut self.splits.train, &mut self.splits.valid, &mut self.splits.test] {
            nodes.iter_mut().for_each(|node| *node = order[*node as usize]);
        }
    }
}

/// Turns class numbers seen so far into named classes.
fn name_classes(labels: &mut [i64]) -> Names {
    let mut names = Names::default();
    for label in labels.iter_mut().filter(|label| **label != -1) {
        *label = names.number(&label.to_string()) as i64;
    }
    names
}

fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(8).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > 8 { format!(", … ({} in all)", names.len()) } else { String::new() };
    shown.join(", ") + &more
}

/// Reads `nodes.csv`: a header line, then one line per node.
pub(super) fn read_text(file: &Path, notes: &mut Vec<String>) -> Result<NodeColumns> {
    let mut lines = Lines::open(file)?;
    let mut table = NodeTable::new(file);
    let mut header: Option<(Separator, Vec<Role>)> = None;
    while let Some(line) = lines.next()? {
        if is_blank(line) {
            continue;
        }
        let Some((separator, roles)) = &header else {
            let separator = Separator::guess(line);
            let roles: Vec<Role> =
                fields(line, separator).map(|field| Role::of(&unquoted(field).unwrap_or_default())).collect();
            table.width = roles.iter().filter(|role| **role == Role::Feature).count();
            header = Some((separator, roles));
            continue;
        };
        if let Err((expected, found)) = read_row(line, *separator, roles, &mut table)? {
            return Err(lines.wrong(expected, &found));
        }
        table.rows += 1;
    }
    table.finish(notes)
}

/// One line of a node table; a malformed field is returned as what was expected and what was found.
fn read_row(
    line: &[u8],
    separator: Separator,
    roles: &[Role],
    table: &mut NodeTable,
) -> Result<std::result::Result<(), (String, Vec<u8>)>> {
    let mut row = fields(line, separator);
    for (column, role) in roles.iter().enumerate() {
        let Some(field) = row.next() else {
            return Ok(Err((format!("{} fields, as in the first line", roles.len()), line.to_vec())));
        };
        match (role, unquoted(field), parse_f32(field)) {
            (Role::Feature, _, Some(value)) => table.features.push(value),
            (Role::Feature, ..) => {
                return Ok(Err((format!("a number in column {}", column + 1), field.to_vec())));
            }
            (_, None, _) => return Ok(Err(("text in UTF-8".into(), field.to_vec()))),
            (Role::Id, Some(id), _) => table.push_id(&id)?,
            (Role::Label, Some(label), _) => table.push_label(&label),
            (Role::Split, Some(split), _) => table.push_split(&split)?,
        }
    }
    if row.next().is_some() {
        return Ok(Err((format!("{} fields, as in the first line", roles.len()), line.to_vec())));
    }
    Ok(Ok(()))
}
