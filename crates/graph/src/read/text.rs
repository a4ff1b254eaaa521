//! Text files by line and field: plain, gzip or zstd, without holding the file and without a `String` per line.
//!
//! A line of a packed file is limited, so that a few packed bytes cannot unpack to all memory of the machine.

use crate::{Error, Result};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const BUFFER: usize = 1 << 18;
/// Longest line of a packed file; a line of a plain file is bounded by the file itself.
const LONGEST_PACKED_LINE: u64 = 16 << 20;

/// A text file, line after line.
pub(super) struct Lines {
    pub(super) file: PathBuf,
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The unread part of `buffer`.
    start: usize,
    end: usize,
    longest: u64,
    /// Number of the line that was returned last, from 1.
    pub(super) number: u64,
}

impl Lines {
    /// Opens `file`; whether it is packed is decided by its first bytes.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let opened = File::open(file).map_err(Error::io("open", file))?;
        let length = opened.metadata().map_err(Error::io("open", file))?.len();
        let mut reader = BufReader::with_capacity(1 << 16, opened);
        let magic = reader.fill_buf().map_err(Error::io("read", file))?;
        let (gzip, zstd) = (magic.starts_with(&[0x1f, 0x8b]), magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
        check_ending(file, gzip, zstd)?;
        let input: Box<dyn Read + Send> = match (gzip, zstd) {
            (true, _) => Box::new(flate2::bufread::MultiGzDecoder::new(reader)),
            (_, true) => {
                Box::new(zstd::stream::read::Decoder::with_buffer(reader).map_err(Error::io("read", file))?)
            }
            _ => Box::new(reader),
        };
        let longest = if gzip || zstd { LONGEST_PACKED_LINE } else { length };
        let buffer = vec![0; BUFFER.min(longest as usize + 1)];
        Ok(Self { file: file.to_path_buf(), input, buffer, start: 0, end: 0, longest, number: 0 })
    }

    /// The next line without its end, or `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut searched = self.start;
        loop {
            if let Some(at) = find_newline(&self.buffer[searched..self.end]) {
                let line = self.start..searched + at;
                self.start = line.end + 1;
                self.number += 1;
                return Ok(Some(without_return(&self.buffer[line])));
            }
            let unread = self.end - self.start;
            let more = self.fill()?;
            searched = self.start + unread;
            if !more {
                let line = self.start..self.end;
                self.start = self.end;
                if line.is_empty() {
                    return Ok(None);
                }
                self.number += 1;
                return Ok(Some(without_return(&self.buffer[line])));
            }
        }
    }

    /// Moves the unread part to the front and reads behind it, growing the buffer when a line needs it.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            if self.end as u64 > self.longest {
                let expected = format!("a line of at most {} bytes", self.longest);
                return Err(Error::input(&self.file, self.place(1), expected, "a longer one"));
            }
            self.buffer.resize(2 * self.end, 0);
        }
        let read = self.input.read(&mut self.buffer[self.end..]).map_err(|error| {
            Error::input(&self.file, self.place(1), "readable data", format!("{error}"))
                .with_hint("the file is damaged or was not copied to its end")
        })?;
        self.end += read;
        Ok(read > 0)
    }

    fn place(&self, ahead: u64) -> String {
        format!("line {}", self.number + ahead)
    }

    /// An error about the line that was returned last.
    pub(super) fn wrong(&self, expected: impl Into<String>, found: &[u8]) -> Error {
        Error::input(&self.file, self.place(0), expected, shown(found))
    }
}

/// A few words of a line in backticks, for messages.
pub(super) fn shown(bytes: &[u8]) -> String {
    let short: String = String::from_utf8_lossy(bytes).chars().take(60).collect();
    format!("`{}`", short.escape_debug())
}

fn check_ending(file: &Path, gzip: bool, zstd: bool) -> Result<()> {
    let ending = file.extension().unwrap_or_default();
    let wanted = match ending.to_str() {
        Some("gz") if !gzip => "a gzip file, as its name says",
        Some("zst") if !zstd => "a zstd file, as its name says",
        _ => return Ok(()),
    };
    Err(Error::input(file, "first bytes", wanted, "something else"))
}

/// The first line end, looked for eight bytes at a time: a byte of `x` is zero where it was one, and
/// `(x - 0x01…) & !x & 0x80…` is not zero exactly when some byte of `x` is.
fn find_newline(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    let words = bytes.chunks_exact(8);
    let mut at = 0;
    for word in words {
        let word = word.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        let x = word ^ (ONES * u64::from(b'\n'));
        if x.wrapping_sub(ONES) & !x & (ONES << 7) != 0 {
            break;
        }
        at += 8;
    }
    bytes[at..].iter().position(|&byte| byte == b'\n').map(|rest| at + rest)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// What stands between two fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Separator {
    /// One byte between fields, which may be quoted: comma, semicolon, tab.
    Byte(u8),
    /// Any run of spaces and tabs.
    Blank,
}

impl Separator {
    /// The separator that a line appears to use.
    pub(super) fn guess(line: &[u8]) -> Self {
        [b',', b';', b'\t'].into_iter().find(|byte| line.contains(byte)).map_or(Self::Blank, Self::Byte)
    }
}

/// The fields of a line.
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: Separator,
}

/// Splits `line` at `separator`.
pub(super) fn fields(line: &[u8], separator: Separator) -> Fields<'_> {
    Fields { rest: Some(line), separator }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        match self.separator {
            Separator::Blank => {
                let rest = rest.trim_ascii_start();
                let end = rest.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
                self.rest = (end < rest.len()).then(|| &rest[end..]);
                (end > 0).then(|| &rest[..end])
            }
            Separator::Byte(byte) => {
                let quoted = if rest.first() == Some(&b'"') { closing_quote(rest) } else { 0 };
                let end = rest[quoted..].iter().position(|&b| b == byte).map(|at| quoted + at);
                self.rest = end.map(|end| &rest[end + 1..]);
                Some(rest[..end.unwrap_or(rest.len())].trim_ascii())
            }
        }
    }
}

/// Where the text that is quoted from the first byte on ends.
fn closing_quote(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            (b'"', Some(b'"')) => at += 2,
            (b'"', _) => return at,
            _ => at += 1,
        }
    }
    0
}

/// A field as text, without its quotes; `None` when it is not UTF-8.
pub(super) fn unquoted(field: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(field).ok()?;
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        None => Some(text.into()),
        Some(inner) if inner.contains('"') => Some(inner.replace("\"\"", "\"").into()),
        Some(inner) => Some(inner.into()),
    }
}

/// A non-negative integer in decimal digits.
pub(super) fn parse_id(field: &[u8]) -> Option<u64> {
    let (value, digits) = leading_id(field);
    (digits == field.len() && (1..=19).contains(&digits)).then_some(value)
}

/// The integer that `text` begins with and how many digits it has; right for up to 19 digits.
pub(super) fn leading_id(text: &[u8]) -> (u64, usize) {
    let mut value = 0u64;
    for (at, byte) in text.iter().enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (value, at);
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    (value, text.len())
}

/// A number as `f32`.
pub(super) fn parse_f32(field: &[u8]) -> Option<f32> {
    std::str::from_utf8(field).ok()?.trim().parse().ok()
}

/// Whether a line is empty or a comment.
pub(super) fn is_blank(line: &[u8]) -> bool {
    match line.trim_ascii_start().first() {
        None => true,
        Some(first) => matches!(first, b'#' | b'%'),
    }
}

/// Why a line of a file of records is none.
pub(super) struct WrongRecord {
    /// What should have been there.
    pub expected: String,
    /// What was there.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl WrongRecord {
    pub fn new(expected: impl Into<String>, found: &[u8]) -> Self {
        Self { expected: expected.into(), found: shown(found), hint: None }
    }
}

/// One record per line of the file at `path`, in its order; blank lines and comments are skipped, and so is a first line
/// that is no record but a header.
pub(super) fn records<T>(
    path: &Path,
    is_header: impl Fn(&[u8], Separator) -> bool,
    parse: impl Fn(&[u8], Separator) -> Result<T, WrongRecord>,
) -> Result<Vec<T>> {
    let mut lines = Lines::open(path)?;
    let mut records = Vec::new();
    let mut separator = None;
    while let Some(line) = lines.next()? {
        if is_blank(line) {
            continue;
        }
        let first = separator.is_none();
        let separator = *separator.get_or_insert_with(|| Separator::guess(line));
        match parse(line, separator) {
            Ok(record) => records.push(record),
            Err(_) if first && is_header(line, separator) => {}
            Err(wrong) => {
                let error = Error::input(path, format!("line {}", lines.number), wrong.expected, wrong.found);
                return Err(match wrong.hint {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                });
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_end_is_found_where_it_first_stands(bytes in proptest::collection::vec(8u8..14, 0..40)) {
            prop_assert_eq!(find_newline(&bytes), bytes.iter().position(|&byte| byte == b'\n'));
        }

        #[test]
        fn an_id_is_exactly_a_run_of_digits(text in "[0-9]{0,21}[x -]?") {
            let expected = text.parse::<u64>().ok().filter(|_| text.len() <= 19);
            prop_assert_eq!(parse_id(text.as_bytes()), expected);
        }
    }

    #[test]
    fn quoted_fields_may_hold_the_separator_and_doubled_quotes() {
        let line = br#"a,"b, ""c""", d "#;
        let texts: Vec<_> =
            fields(line, Separator::Byte(b',')).map(|field| unquoted(field).unwrap()).collect();
        assert_eq!(texts, ["a", "b, \"c\"", "d"]);
        let words: Vec<_> = fields(b" 1 \t 22  ", Separator::Blank).collect();
        assert_eq!(words, [b"1".as_slice(), b"22"]);
    }
}
