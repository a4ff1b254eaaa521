//! Pairs of nodes that a user asks about: a text file of `source,target[,type]` lines.

use super::text::{Separator, WrongRecord, fields, parse_id, records, unquoted};
use crate::Result;
use crate::error::nearest;
use crate::links::{Known, Pair};
use std::collections::HashMap;
use std::path::Path;

const EXPECTED: &str = "a source, a target and at most an edge type";

/// What the first two columns of a header may be called.
const HEADERS: [[&str; 4]; 2] = [["source", "src", "from", "u"], ["target", "dst", "to", "v"]];

/// The pairs of the file at `path`, in its order. Its first line may be a header.
pub fn read_pair_file(path: &Path, known: Known<'_>) -> Result<Vec<Pair>> {
    let nodes = Nodes::new(known);
    records(path, is_header, |line, separator| nodes.pair(line, separator))
}

/// How nodes are found.
struct Nodes<'a> {
    known: Known<'a>,
    by_name: Option<HashMap<&'a str, u64>>,
}

impl<'a> Nodes<'a> {
    fn new(known: Known<'a>) -> Self {
        let numbered = |names: &'a [String]| names.iter().map(String::as_str).zip(0..).collect();
        Self { known, by_name: known.names.map(numbered) }
    }

    fn pair(&self, line: &[u8], separator: Separator) -> Result<Pair, WrongRecord> {
        let mut fields = fields(line, separator);
        let (Some(source), Some(target)) = (fields.next(), fields.next()) else {
            return Err(WrongRecord::new(EXPECTED, line));
        };
        let kind = fields.next();
        if fields.next().is_some() {
            return Err(WrongRecord::new(EXPECTED, line));
        }
        let kind = kind.map_or(Ok(0), |field| self.kind(field))?;
        Ok(Pair { source: self.node(source)?, target: self.node(target)?, kind })
    }

    fn node(&self, field: &[u8]) -> Result<u64, WrongRecord> {
        let Some(by_name) = &self.by_name else {
            let nodes = self.known.nodes;
            return parse_id(field)
                .filter(|&id| id < nodes)
                .ok_or_else(|| WrongRecord::new(format!("a node id below {nodes}"), field));
        };
        let name = unquoted(field).unwrap_or_default();
        by_name.get(&*name).copied().ok_or_else(|| {
            let names: Vec<&str> = self.known.names.unwrap_or_default().iter().map(String::as_str).collect();
            let hint = nearest(&name, &names).map(|near| format!("did you mean `{near}`?"));
            WrongRecord { hint, ..WrongRecord::new("the name of a node", field) }
        })
    }

    fn kind(&self, field: &[u8]) -> Result<u32, WrongRecord> {
        let kinds = self.known.kinds.max(1);
        let kind = parse_id(field).filter(|&kind| kind < u64::from(kinds)).map(|kind| kind as u32);
        kind.ok_or_else(|| match self.known.kinds {
            0 => WrongRecord::new("no edge type, or 0, as the edges have no types", field),
            _ => WrongRecord::new(format!("an edge type below {kinds}"), field),
        })
    }
}

fn is_header(line: &[u8], separator: Separator) -> bool {
    let mut fields = fields(line, separator);
    HEADERS.iter().all(|names| {
        let field = fields.next().and_then(unquoted).unwrap_or_default().to_ascii_lowercase();
        names.contains(&&*field)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str, known: Known<'_>) -> Result<Vec<Pair>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pairs.csv");
        fs::write(&file, text).unwrap();
        read_pair_file(&file, known)
    }

    fn pair(source: u64, target: u64, kind: u32) -> Pair {
        Pair { source, target, kind }
    }

    const NUMBERED: Known<'_> = Known { nodes: 10, names: None, kinds: 3 };

    #[test]
    fn pairs_go_by_ids_or_by_names_in_the_order_of_the_file() {
        let text = "# mine\nSource,Target,type\n3,4,2\n\n9,0\n3,4\n";
        let expected = [pair(3, 4, 2), pair(9, 0, 0), pair(3, 4, 0)];
        assert_eq!(read(text, NUMBERED).unwrap(), expected);
        assert_eq!(read(&text.replace(',', "\t"), NUMBERED).unwrap(), expected);
        assert_eq!(read("1 2\n", NUMBERED).unwrap(), [pair(1, 2, 0)]);
        assert_eq!(read("", NUMBERED).unwrap(), []);

        let names = ["anna", "b, c", "7", "u"].map(str::to_owned);
        let named = Known { nodes: 4, names: Some(&names), kinds: 0 };
        assert_eq!(read("\"b, c\",anna\n7,u,0\n", named).unwrap(), [pair(1, 0, 0), pair(2, 3, 0)]);
    }

    #[test]
    fn what_is_no_pair_is_an_error_at_its_line() {
        let names = ["anna", "bert"].map(str::to_owned);
        let named = Known { nodes: 2, names: Some(&names), kinds: 0 };
        for (text, known, message) in [
            ("1,2\n3,10\n", NUMBERED, "line 2: expected a node id below 10, found `10`"),
            ("x,2\n", NUMBERED, "line 1: expected a node id below 10, found `x`"),
            ("1\n", NUMBERED, "line 1: expected a source, a target and at most an edge type, found `1`"),
            ("1,2,1,1\n", NUMBERED, "at most an edge type, found `1,2,1,1`"),
            ("1,2,3\n", NUMBERED, "expected an edge type below 3, found `3`"),
            ("src,dst\nsrc,dst\n", NUMBERED, "line 2: expected a node id below 10, found `src`"),
            ("anna,bret\n", named, "expected the name of a node, found `bret`\n\nhint: did you mean `bert`?"),
            ("anna,0\n", named, "expected the name of a node, found `0`"),
            ("anna,bert,1\n", named, "expected no edge type, or 0, as the edges have no types, found `1`"),
        ] {
            let found = read(text, known).unwrap_err().to_string();
            assert!(found.contains("pairs.csv`, line ") && found.ends_with(message), "{found}");
        }
    }
}
