//! What a single file of ours, or one that we read, holds.

use super::{Description, named};
use crate::terminal::table::{Table, facts};
use crate::terminal::{training, units};
use archipelago_graph::{Error, predictions};
use archipelago_train::event::{Event, Summary};
use archipelago_train::run::RunConfig;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

pub(super) fn detect_events(path: &Path) -> bool {
    named(path, ".jsonl")
}

pub(super) fn describe_events(path: &Path) -> anyhow::Result<Description> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    let mut last = None;
    for (at, line) in BufReader::new(open(path)?).lines().enumerate() {
        let line = line.map_err(Error::io("read", path))?;
        let event: Event = serde_json::from_str(&line).map_err(|error| {
            Error::input(path, format!("line {}", at + 1), "an event of a run", format!("`{error}`"))
        })?;
        let value: Value = serde_json::from_str(&line)?;
        *kinds.entry(value["event"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        if let Event::Epoch(report) = event {
            last = Some(report);
        }
    }
    let mut text = facts(kinds.iter().map(|(kind, count)| (kind.as_str(), units::count(*count))));
    if let Some(report) = &last {
        text += &format!("\n\n  last: epoch {}, loss {:.4}", report.epoch, report.loss);
    }
    Ok(Description {
        kind: "log of a run's events",
        text,
        facts: json!({ "events": kinds, "last_epoch": last }),
    })
}

pub(super) fn detect_run_file(path: &Path) -> bool {
    named(path, ".toml")
}

pub(super) fn describe_run_file(path: &Path) -> anyhow::Result<Description> {
    let config = RunConfig::from_sources(Some(path), &[])?;
    let written = RunConfig::keys().into_iter().map(|key| format!("{}.{}", key.section, key.name));
    let written: Vec<String> = written.filter(|key| config.is_set(key)).collect();
    let value = |key: &String| config.show(key).unwrap_or_default();
    let text = facts(written.iter().map(|key| (key.as_str(), value(key))));
    let keys: BTreeMap<&String, String> = written.iter().map(|key| (key, value(key))).collect();
    let text = text + "\n\n`archi train FILE --print-config` shows every other key with its default";
    Ok(Description { kind: "run file", text, facts: json!({ "keys": keys }) })
}

pub(super) fn detect_summary(path: &Path) -> bool {
    named(path, "summary.json")
}

pub(super) fn describe_summary(path: &Path) -> anyhow::Result<Description> {
    let summary: Summary = serde_json::from_reader(BufReader::new(open(path)?))
        .map_err(|error| Error::input(path, "", "the summary of a run", format!("`{error}`")))?;
    let text = training::summary(&summary, None);
    Ok(Description { kind: "summary of a run", text, facts: serde_json::to_value(&summary)? })
}

pub(super) fn detect_weights(path: &Path) -> bool {
    named(path, ".safetensors")
}

/// Reads the header only: its length in 8 bytes, then JSON.
pub(super) fn describe_weights(path: &Path) -> anyhow::Result<Description> {
    let mut file = open(path)?;
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(Error::io("read", path))?;
    let length = u64::from_le_bytes(length);
    if length > size.saturating_sub(8) {
        let found = format!("one of {length} bytes in a file of {size}");
        return Err(Error::input(path, "", "a safetensors header", found).into());
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).map_err(Error::io("read", path))?;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&header)
        .map_err(|error| Error::input(path, "", "a safetensors header", format!("`{error}`")))?;
    let mut table = Table::new(["tensor", "type", "shape"]);
    for (name, tensor) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let kind = tensor["dtype"].as_str().unwrap_or_default().to_owned();
        table.row([name.clone(), kind, tensor["shape"].to_string()]);
    }
    Ok(Description { kind: "file of tensors", text: table.to_string(), facts: json!({ "tensors": header }) })
}

pub(super) fn detect_npy(path: &Path) -> bool {
    named(path, ".npy")
}

/// Reads the header only: magic, version, its length in 2 or 4 bytes, then a Python literal.
pub(super) fn describe_npy(path: &Path) -> anyhow::Result<Description> {
    let wrong = |found: &str| Error::input(path, "", "a NumPy array", found);
    let mut start = Vec::new();
    open(path)?.take(1 << 16).read_to_end(&mut start).map_err(Error::io("read", path))?;
    let body = start.strip_prefix(b"\x93NUMPY").ok_or_else(|| wrong("another beginning"))?;
    let (length, rest) = match *body {
        [1, _, a, b, ref rest @ ..] => (u64::from(u16::from_le_bytes([a, b])), rest),
        [2 | 3, _, a, b, c, d, ref rest @ ..] => (u64::from(u32::from_le_bytes([a, b, c, d])), rest),
        _ => return Err(wrong("an unknown version").into()),
    };
    let header = rest.get(..length as usize).ok_or_else(|| wrong("a header that is cut off"))?;
    let header = String::from_utf8_lossy(header);
    let value = |key: &str, end: char| -> Option<String> {
        let after = header.split_once(&format!("'{key}':"))?.1.trim_start();
        Some(after[..after.find(end)? + 1].trim_matches(['\'', ',']).to_owned())
    };
    let (kind, shape) = (value("descr", ','), value("shape", ')'));
    let (kind, shape) = kind.zip(shape).ok_or_else(|| wrong("a header without `descr` and `shape`"))?;
    // Writers differ in spaces and in the last comma.
    let sides: Vec<&str> =
        shape.split(|c: char| !c.is_ascii_digit()).filter(|side| !side.is_empty()).collect();
    let shape = format!("({})", sides.join(", "));
    let text = facts([("type", kind.clone()), ("shape", shape.clone())]);
    Ok(Description { kind: "NumPy array", text, facts: json!({ "descr": kind, "shape": shape }) })
}

pub(super) fn detect_predictions(path: &Path) -> bool {
    predictions::look(path).is_some()
}

/// Names of columns that are numbered stand as one with their number.
pub(super) fn describe_predictions(path: &Path) -> anyhow::Result<Description> {
    let wrong = || Error::input(path, "", "predictions", "something else");
    let predictions::Header { titles, rows } = predictions::look(path).ok_or_else(wrong)?;
    let mut columns: Vec<(&str, usize)> = Vec::new();
    for title in &titles {
        let name =
            title.rsplit_once('_').filter(|(_, at)| at.parse::<u32>().is_ok()).map_or(&**title, |n| n.0);
        match columns.last_mut() {
            Some(last) if last.0 == name => last.1 += 1,
            _ => columns.push((name, 1)),
        }
    }
    let named = |&(name, count): &(&str, usize)| match count {
        1 => name.to_owned(),
        _ => format!("{name} ({count})"),
    };
    let mut lines = vec![("columns", columns.iter().map(named).collect::<Vec<_>>().join(", "))];
    let what = if titles[0] == "node" { "nodes" } else { "pairs" };
    lines.extend(rows.map(|rows| (what, units::count(rows))));
    let facts_json = json!({ "columns": titles, what: rows });
    Ok(Description { kind: "table of predictions", text: facts(lines), facts: facts_json })
}

/// `NAME.part.K`, as METIS calls them.
pub(super) fn detect_parts(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let parts = name.rsplit_once(".part.").map(|(_, parts)| parts.parse::<u32>().is_ok());
    path.is_file() && parts.unwrap_or(false)
}

pub(super) fn describe_parts(path: &Path) -> anyhow::Result<Description> {
    let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
    for (at, line) in BufReader::new(open(path)?).lines().enumerate() {
        let line = line.map_err(Error::io("read", path))?;
        let part = line.trim().parse().map_err(|_| {
            Error::input(
                path,
                format!("line {}", at + 1),
                "the number of a part",
                format!("`{}`", line.trim()),
            )
        })?;
        *sizes.entry(part).or_default() += 1;
    }
    let largest = sizes.values().copied().max().unwrap_or(0);
    let mut table = Table::new(["part", "nodes", ""]);
    for (&part, &size) in &sizes {
        table.row([part.to_string(), units::count(size), units::bar(size, largest, 24)]);
    }
    Ok(Description {
        kind: "file of parts",
        text: table.to_string(),
        facts: json!({ "nodes_per_part": sizes }),
    })
}

fn open(path: &Path) -> anyhow::Result<File> {
    Ok(File::open(path).map_err(Error::io("open", path))?)
}
