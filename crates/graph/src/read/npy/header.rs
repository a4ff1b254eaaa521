//! The head of an `.npy` file: of which type and shape is the array, and where does it begin?
//!
//! `npyz` reads it, but is not to be trusted with any bytes at all: it takes the declared length of a header at its
//! word, its parser of Python literals is recursive and tries nested brackets over and over, and the product of the
//! sizes may overflow. [`check_harmless`] therefore refuses, before `npyz` sees them, the headers that no array of
//! numbers has.

use crate::{Error, Result};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar, TypeStr};
use std::io::Read;
use std::path::Path;

/// Longest header accepted; NumPy itself refuses more by default.
const LONGEST_HEADER: usize = 10_000;
/// Opening brackets of a plain header: of the whole, of the shape, and of a unit as in `<M8[ns]`.
const MOST_BRACKETS: usize = 3;
/// Numbers of together so many digits have a product below 10^19, which is below 2^64.
const MOST_DIGITS: usize = 19;
/// NumPy allows more dimensions, graphs need two.
const MOST_DIMENSIONS: usize = 8;

const NUMBER: &str = "a number type (bool, int, uint, float of 1 to 8 bytes)";

/// The type of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::read) enum Kind {
    Bool,
    Signed(usize),
    Unsigned(usize),
    Float(usize),
    /// A byte string of fixed length.
    Bytes(usize),
}

impl Kind {
    /// Bytes per element.
    pub(in crate::read) fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) | Self::Bytes(size) => size,
        }
    }

    pub(in crate::read) fn is_integer(self) -> bool {
        matches!(self, Self::Signed(_) | Self::Unsigned(_))
    }

    /// NumPy's word for it.
    pub(super) fn name(self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Signed(size) => format!("int{}", 8 * size),
            Self::Unsigned(size) => format!("uint{}", 8 * size),
            Self::Float(size) => format!("float{}", 8 * size),
            Self::Bytes(size) => format!("bytes{size}"),
        }
    }

    /// The kind of a type code such as `<i8`, if it is one that is read here.
    fn of(code: &TypeStr) -> Option<Self> {
        let size = code.num_bytes()?;
        match (code.type_char(), size) {
            (TypeChar::Bool, 1) => Some(Self::Bool),
            (TypeChar::Int, 1 | 2 | 4 | 8) => Some(Self::Signed(size)),
            (TypeChar::Uint, 1 | 2 | 4 | 8) => Some(Self::Unsigned(size)),
            (TypeChar::Float, 2 | 4 | 8) => Some(Self::Float(size)),
            (TypeChar::ByteStr, 1..=64) => Some(Self::Bytes(size)),
            _ => None,
        }
    }
}

/// What the head of an `.npy` says.
#[derive(Debug, Clone)]
pub(in crate::read) struct Header {
    pub(in crate::read) kind: Kind,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Vec<usize>,
    /// Bytes before the first element.
    pub(super) start: usize,
    /// Bytes of all elements.
    pub(in crate::read) bytes: usize,
}

/// What was expected of a header and what was found instead.
type Wrong = (&'static str, String);

impl Header {
    /// Reads the header from the start of `input`; `place` and `file` are for messages.
    pub(in crate::read) fn read(input: &mut dyn Read, file: &Path, place: &str) -> Result<Self> {
        let wrong = |(expected, found): Wrong| Error::input(file, place, expected, found);
        let mut head = vec![0; 8];
        read_fully(input, &mut head, file, place)?;
        let width = width_of_length(&head).map_err(wrong)?;
        head.resize(8 + width, 0);
        read_fully(input, &mut head[8..], file, place)?;
        let length = head[8..].iter().rfold(0, |length, &byte| length << 8 | usize::from(byte));
        if length > LONGEST_HEADER {
            return Err(wrong(("a header of at most 10000 bytes", format!("one of `{length}` bytes"))));
        }
        let text = head.len();
        head.resize(text + length, 0);
        read_fully(input, &mut head[text..], file, place)?;
        remove_long_suffixes(&mut head[text..]);
        Self::parse(&head, text).map_err(wrong)
    }

    /// Understands all that lies before the first element; the description begins at byte `text`.
    fn parse(head: &[u8], text: usize) -> Result<Self, Wrong> {
        let text = String::from_utf8_lossy(&head[text..]);
        check_harmless(&text)?;
        let header = NpyHeader::from_reader(head).map_err(|error| unreadable(&text, &error.to_string()))?;
        let DType::Plain(code) = header.dtype() else { return Err((NUMBER, shown(&text))) };
        let kind = Kind::of(&code).ok_or_else(|| (NUMBER, format!("`{code}`")))?;
        if header.shape().len() > MOST_DIMENSIONS {
            return Err(("a header with a `shape` of up to 8 sizes", shown(&text)));
        }
        let (shape, bytes) = fitting(header.shape(), kind)
            .ok_or_else(|| ("a shape that fits the machine", format!("`{:?}`", header.shape())))?;
        let (big_endian, fortran) = (code.endianness() == Endianness::Big, header.order() == Order::Fortran);
        Ok(Self { kind, big_endian, fortran, shape, start: head.len(), bytes })
    }
}

/// The sizes and the bytes of all elements, if an array of such a shape can be addressed.
fn fitting(shape: &[u64], kind: Kind) -> Option<(Vec<usize>, usize)> {
    let shape: Vec<usize> = shape.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let bytes = shape.iter().try_fold(kind.size(), |bytes, &size| bytes.checked_mul(size))?;
    (bytes <= isize::MAX as usize).then_some((shape, bytes))
}

/// Bytes of the number that says how long the header is, by magic and version.
fn width_of_length(head: &[u8]) -> Result<usize, Wrong> {
    let (magic, version) = head.split_at(6);
    if magic != b"\x93NUMPY" {
        return Err(("the bytes `\\x93NUMPY` at the start", format!("`{}`", magic.escape_ascii())));
    }
    match version {
        [1, 0] => Ok(2),
        [2 | 3, 0] => Ok(4),
        _ => Err(("npy format version 1, 2 or 3", format!("`{}.{}`", version[0], version[1]))),
    }
}

/// Python 2 wrote some sizes as `10L`, which Python 3 and `npyz` do not know.
fn remove_long_suffixes(text: &mut [u8]) {
    for at in 1..text.len() {
        if text[at] == b'L' && text[at - 1].is_ascii_digit() {
            text[at] = b' ';
        }
    }
}

/// Refuses a header on which `npyz` could panic, overflow the stack or take very long.
fn check_harmless(text: &str) -> Result<(), Wrong> {
    let count = |wanted: fn(char) -> bool| text.chars().filter(|&letter| wanted(letter)).count();
    if count(|letter| matches!(letter, '(' | '[' | '{')) > MOST_BRACKETS {
        return Err((NUMBER, shown(text)));
    }
    if count(|letter| letter.is_ascii_digit()) > MOST_DIGITS {
        return Err(("a shape that fits the machine", shown(text)));
    }
    // An `x` could only begin a hexadecimal number, whose digits were not all counted.
    if !text.is_ascii() || text.contains(['x', 'X']) {
        return Err(unreadable(text, "unexpected letters"));
    }
    Ok(())
}

/// A header that does not parse; of a long explanation only the first line is shown.
fn unreadable(text: &str, why: &str) -> Wrong {
    let why = why.lines().next().unwrap_or_default();
    ("a header with `descr`, `fortran_order` and `shape`", format!("{} ({why})", shown(text)))
}

/// The beginning of a header, for a message.
fn shown(text: &str) -> String {
    format!("`{}`", text.trim().chars().take(120).collect::<String>())
}

/// Fills `bytes` from `input`, or says that the file ends too early or cannot be unpacked.
pub(in crate::read) fn read_fully(
    input: &mut dyn Read,
    bytes: &mut [u8],
    file: &Path,
    place: &str,
) -> Result<()> {
    input.read_exact(bytes).map_err(|error| {
        let found = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the end of the file".to_owned(),
            _ => format!("damaged data ({error})"),
        };
        Error::input(file, place, format!("{} more bytes", bytes.len()), found)
            .with_hint("the file is damaged or was not copied to its end")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the header of the given version and text.
    fn read(version: u8, text: &[u8]) -> Result<Header> {
        let length = text.len() as u32;
        let width = if version == 1 { 2 } else { 4 };
        let bytes = [b"\x93NUMPY", &[version, 0][..], &length.to_le_bytes()[..width], text].concat();
        Header::read(&mut &bytes[..], Path::new("a.npy"), "header")
    }

    fn described(descr: &str, shape: &str) -> Result<Header> {
        read(1, format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}   \n").as_bytes())
    }

    #[test]
    fn type_order_shape_and_beginning_are_read_in_every_version() {
        for version in [1, 2, 3] {
            let text = b"{'shape': (3, 70), 'descr': '>f4', 'fortran_order': True}";
            let header = read(version, text).unwrap();
            assert_eq!((header.kind, header.big_endian, header.fortran), (Kind::Float(4), true, true));
            assert_eq!((&header.shape[..], header.bytes), (&[3, 70][..], 840));
            assert_eq!(header.start, text.len() + if version == 1 { 10 } else { 12 });
        }
    }

    #[test]
    fn a_scalar_and_sizes_as_python_2_wrote_them_are_read() {
        assert_eq!(described("'|b1'", "()").unwrap().bytes, 1);
        assert_eq!(described("'<u2'", "(10L, 3L)").unwrap().shape, [10, 3]);
        assert_eq!(described("'|S17'", "(5L,)").unwrap().bytes, 85);
    }

    #[test]
    fn types_that_are_no_numbers_are_named() {
        for code in ["'<c16'", "'<U3'", "'|O'", "'<M8[ns]'", "'<f16'", "'|S65'"] {
            let error = described(code, "(3,)").unwrap_err().to_string();
            let shown = code.replace('\'', "`");
            assert!(error.contains("a number type") && error.contains(&shown), "{error}");
        }
        let error = described("[('a', '<i8'), ('b', '<f4')]", "(3,)").unwrap_err().to_string();
        assert!(error.contains("a number type") && error.contains("('a', '<i8')"), "{error}");
    }

    #[test]
    fn sizes_whose_product_overflows_are_refused_without_a_panic() {
        for shape in
            ["(4294967296, 4294967296)", "(0xffffffffffff, 0xffffffffffff)", "(9999999999999999999,)"]
        {
            assert!(described("'<i8'", shape).unwrap_err().to_string().contains("shape"), "{shape}");
        }
        for shape in ["(99999999, 99999999999)", "(-1, 3)", "(1.5,)", "(1e9,)", "3", "(1,1,1,1,1,1,1,1,1)"] {
            assert!(described("'|u1'", shape).unwrap_err().to_string().contains("shape"), "{shape}");
        }
    }

    #[test]
    fn brackets_in_brackets_neither_overflow_the_stack_nor_take_for_ever() {
        for bracket in ["(", "[", "{", "{'descr':", "[1,"] {
            let error = read(2, bracket.repeat(9_000 / bracket.len()).as_bytes()).unwrap_err().to_string();
            assert!(error.len() < 400 && error.contains("a.npy"), "{error}");
        }
    }

    #[test]
    fn long_and_senseless_headers_give_short_messages() {
        let error = read(2, &[b' '; LONGEST_HEADER + 1]).unwrap_err().to_string();
        assert!(error.contains("at most 10000 bytes") && error.contains("`10001`"), "{error}");
        for text in ["'',", "-", "1", "\\", "'", "é", "\n", " "] {
            let error = read(3, text.repeat(9_000 / text.len()).as_bytes()).unwrap_err().to_string();
            assert!(error.len() < 500 && error.contains("a.npy"), "{error}");
        }
        for text in
            ["", "{}", "{1: 2}", "{'descr': '<i8'}", "{'descr': '<i8', 'shape': (), 'fortran_order': 1}"]
        {
            let error = read(1, text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("`descr`, `fortran_order` and `shape`"), "{error}");
        }
    }
}
