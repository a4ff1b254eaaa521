//! Links that a user has divided: a text file of `source,target,split` lines.

use super::text::{Separator, WrongRecord, fields, parse_id, records, unquoted};
use crate::Result;
use crate::links::Share;
use std::path::Path;

const EXPECTED: &str = "a source id, a target id and one of `train`, `valid`, `test`";

/// The links of the file at `path`, in its order. Its first line may be a header.
pub fn read_link_file(path: &Path) -> Result<Vec<(u64, u64, Share)>> {
    records(path, is_header, |line, separator| {
        parse(line, separator).ok_or_else(|| WrongRecord::new(EXPECTED, line))
    })
}

fn parse(line: &[u8], separator: Separator) -> Option<(u64, u64, Share)> {
    let mut fields = fields(line, separator);
    let link = (
        parse_id(fields.next()?)?,
        parse_id(fields.next()?)?,
        Share::find(&unquoted(fields.next()?)?.to_ascii_lowercase())?,
    );
    fields.next().is_none().then_some(link)
}

/// Three words, of which none is an id or a share.
fn is_header(line: &[u8], separator: Separator) -> bool {
    let is_word = |field: &[u8]| {
        let word = unquoted(field).unwrap_or_default();
        parse_id(field).is_none() && Share::find(&word).is_none() && !word.is_empty()
    };
    fields(line, separator).count() == 3 && fields(line, separator).all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<Vec<(u64, u64, Share)>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("links.csv");
        fs::write(&file, text).unwrap();
        read_link_file(&file)
    }

    #[test]
    fn links_are_read_whatever_stands_between_their_fields() {
        let expected =
            [(3, 4, Share::Train), (5, 0, Share::Valid), (1, 2, Share::Valid), (7, 7, Share::Test)];
        for separator in [",", ";", "\t", "  ", ", "] {
            let text = "# mine\nsource|target|split\n3|4|train\n5|0|val\n\n1|2|Validation\r\n7|7|\"test\"";
            let text = if separator == "  " { text.replace('"', "") } else { text.to_owned() };
            assert_eq!(read(&text.replace('|', separator)).unwrap(), expected, "{separator:?}");
        }
        assert_eq!(read("1 2 test\n").unwrap(), [(1, 2, Share::Test)]);
        assert_eq!(read("").unwrap(), []);
    }

    #[test]
    fn what_is_no_link_is_an_error_at_its_line() {
        for (text, line) in [
            ("1,2,train\n1,x,test\n", 2),
            ("1,2,trian\n", 1),
            ("1,2\n", 1),
            ("a,b,c\n1,2,test,4\n", 2),
            ("a,b,c\na,b,c\n", 2),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(&format!("links.csv`, line {line}: expected a source id")), "{message}");
        }
    }
}
