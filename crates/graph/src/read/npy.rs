//! One array in NumPy's `.npy` format: what are its type and shape, and where are its numbers?
//!
//! The numbers stay where they are, in a mapping of the file (or, for a member of an `.npz`, in anonymous
//! memory), and are decoded when asked for. Any byte order and either element order is understood. A header is
//! believed only after its size has been compared with the bytes that are really there.

use crate::array::Array;
use crate::{Error, Result};
use bytemuck::Pod;
use memmap2::Mmap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest header accepted; NumPy itself refuses more than 10,000 bytes by default.
const LONGEST_HEADER: usize = 1 << 16;

/// The type of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Signed(usize),
    Unsigned(usize),
    Float(usize),
    /// A byte string of fixed length.
    Bytes(usize),
}

impl Kind {
    /// Bytes per element.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) | Self::Bytes(size) => size,
        }
    }

    pub(super) fn is_integer(self) -> bool {
        matches!(self, Self::Signed(_) | Self::Unsigned(_))
    }

    /// NumPy's word for it.
    fn name(self) -> String {
        match self {
            Self::Bool => "bool".into(),
            Self::Signed(size) => format!("int{}", 8 * size),
            Self::Unsigned(size) => format!("uint{}", 8 * size),
            Self::Float(size) => format!("float{}", 8 * size),
            Self::Bytes(size) => format!("bytes{size}"),
        }
    }

    /// Reads a type code such as `<i8`; the flag says whether it is big-endian.
    fn parse(code: &str) -> Option<(Self, bool)> {
        let (order, rest) = code.split_at_checked(1)?;
        let (letter, size) = rest.split_at_checked(1)?;
        let size: usize = size.parse().ok()?;
        let kind = match (letter, size) {
            ("b", 1) => Self::Bool,
            ("i", 1 | 2 | 4 | 8) => Self::Signed(size),
            ("u", 1 | 2 | 4 | 8) => Self::Unsigned(size),
            ("f", 2 | 4 | 8) => Self::Float(size),
            ("S", 1..=64) => Self::Bytes(size),
            _ => return None,
        };
        matches!(order, "<" | "|" | ">" | "=").then_some((kind, order == ">"))
    }
}

/// What the head of an `.npy` says.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) kind: Kind,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
    /// Bytes before the first element.
    start: usize,
    /// Bytes of all elements.
    pub(super) bytes: usize,
}

impl Header {
    /// Reads the header from the start of `input`; `place` and `file` are for messages.
    pub(super) fn read(input: &mut dyn Read, file: &Path, place: &str) -> Result<Self> {
        let wrong = |expected: &str, found: String| Error::input(file, place, expected, found);
        let mut fixed = [0u8; 8];
        read_fully(input, &mut fixed, file, place)?;
        if &fixed[..6] != b"\x93NUMPY" {
            return Err(wrong(
                "the bytes `\\x93NUMPY` at the start",
                format!("`{}`", fixed[..6].escape_ascii()),
            ));
        }
        let (length, before) = match fixed[6] {
            1 => (usize::from(u16::from_le_bytes(read_array(input, file, place)?)), 10),
            2 | 3 => (u32::from_le_bytes(read_array(input, file, place)?) as usize, 12),
            version => return Err(wrong("npy format version 1, 2 or 3", format!("`{version}`"))),
        };
        if length > LONGEST_HEADER {
            return Err(wrong("a header of at most 65536 bytes", format!("one of `{length}` bytes")));
        }
        let mut text = vec![0; length];
        read_fully(input, &mut text, file, place)?;
        let text = String::from_utf8_lossy(&text);
        Self::parse(&text, before + length).map_err(|(expected, found)| wrong(expected, found))
    }

    fn parse(text: &str, start: usize) -> Result<Self, (&'static str, String)> {
        let shown = || format!("`{}`", text.trim().chars().take(120).collect::<String>());
        let code = value(text, "'descr'").ok_or_else(|| ("a header with a `descr`", shown()))?;
        let known = "a number type (bool, int, uint, float of 1 to 8 bytes)";
        let code = code.strip_prefix('\'').and_then(|c| c.split_once('\'')).ok_or((known, shown()))?.0;
        let (kind, big_endian) = Kind::parse(code).ok_or((known, format!("`{code}`")))?;
        let order =
            value(text, "'fortran_order'").ok_or_else(|| ("a header with a `fortran_order`", shown()))?;
        let shape = value(text, "'shape'")
            .and_then(|shape| shape.strip_prefix('(')?.split_once(')'))
            .and_then(|(sizes, _)| parse_sizes(sizes))
            .ok_or_else(|| ("a header with a `shape` of up to 8 sizes", shown()))?;
        let bytes = shape
            .iter()
            .try_fold(kind.size(), |bytes, &size| bytes.checked_mul(size))
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| ("a shape that fits the machine", format!("`{shape:?}`")))?;
        Ok(Self { kind, big_endian, fortran: order.starts_with("True"), shape, start, bytes })
    }
}

/// What follows `key:` in the text of a header.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(key)?;
    Some(after.trim_start().strip_prefix(':')?.trim_start())
}

fn parse_sizes(text: &str) -> Option<Vec<usize>> {
    let sizes: Option<Vec<usize>> = text
        .split(',')
        .map(str::trim)
        .filter(|size| !size.is_empty())
        .map(|size| size.trim_end_matches('L').parse().ok())
        .collect();
    sizes.filter(|sizes| sizes.len() <= 8)
}

fn read_array<const N: usize>(input: &mut dyn Read, file: &Path, place: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    read_fully(input, &mut bytes, file, place)?;
    Ok(bytes)
}

/// Fills `bytes` from `input`, or says that the file ends too early or cannot be unpacked.
pub(super) fn read_fully(input: &mut dyn Read, bytes: &mut [u8], file: &Path, place: &str) -> Result<()> {
    input.read_exact(bytes).map_err(|error| {
        let found = match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "the end of the file".to_owned(),
            _ => format!("damaged data ({error})"),
        };
        Error::input(file, place, format!("{} more bytes", bytes.len()), found)
            .with_hint("the file is damaged or was not copied to its end")
    })
}

/// An array whose numbers are in a mapping.
#[derive(Debug, Clone)]
pub(super) struct NpyArray {
    /// The file it came from.
    pub(super) file: PathBuf,
    /// What to call it in messages: `array x`.
    pub(super) place: String,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
    big_endian: bool,
    fortran: bool,
    map: Arc<Mmap>,
    start: usize,
    bytes: usize,
}

impl NpyArray {
    /// Maps the `.npy` file `file`.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let map = map_file(file)?;
        let header = Header::read(&mut &map[..], file, "header")?;
        let there = map.len() - header.start;
        if there != header.bytes {
            return Err(Error::input(
                file,
                format!("header, shape {:?} of {}", header.shape, header.kind.name()),
                format!("{} bytes of data", header.bytes),
                format!("{there}"),
            )
            .with_hint("the file is damaged or was not copied to its end"));
        }
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let start = header.start;
        Ok(Self::from_parts(file, &name, header, map, start))
    }

    /// The array described by `header` whose elements begin at byte `start` of `map`.
    pub(super) fn from_parts(file: &Path, name: &str, header: Header, map: Arc<Mmap>, start: usize) -> Self {
        Self {
            file: file.to_path_buf(),
            place: format!("array {name}"),
            kind: header.kind,
            shape: header.shape,
            big_endian: header.big_endian,
            fortran: header.fortran,
            map,
            start,
            bytes: header.bytes,
        }
    }

    /// An error about this array as a whole.
    pub(super) fn wrong(&self, expected: impl Into<String>) -> Error {
        let found = format!("{} of shape {:?}", self.kind.name(), self.shape);
        Error::input(&self.file, &self.place, expected, found)
    }

    /// An error about the element or row `index`, named `what`.
    pub(super) fn wrong_at(
        &self,
        what: &str,
        index: u64,
        expected: impl Into<String>,
        found: impl std::fmt::Display,
    ) -> Error {
        Error::input(&self.file, format!("{}, {what} {index}", self.place), expected, format!("`{found}`"))
    }

    /// NumPy's word for the type of an element.
    pub(super) fn kind_name(&self) -> String {
        self.kind.name()
    }

    /// How many elements there are.
    pub(super) fn len(&self) -> usize {
        self.bytes / self.kind.size()
    }

    /// Rows and columns of a matrix; a vector is a matrix of one column.
    pub(super) fn matrix(&self) -> Result<(usize, usize)> {
        match self.shape[..] {
            [rows] => Ok((rows, 1)),
            [rows, columns] => Ok((rows, columns)),
            _ => Err(self.wrong("an array of one or two dimensions")),
        }
    }

    /// Distance between neighbouring rows and between neighbouring columns, in elements.
    pub(super) fn strides(&self) -> (usize, usize) {
        match self.shape[..] {
            [rows, _] if self.fortran => (1, rows),
            [_, columns] => (columns, 1),
            _ => (1, 1),
        }
    }

    /// Whether elements lie row after row.
    fn row_major(&self) -> bool {
        !self.fortran || self.shape.len() < 2
    }

    /// The elements as they are.
    pub(super) fn raw(&self) -> &[u8] {
        &self.map[self.start..self.start + self.bytes]
    }

    /// Appends `count` elements, every `stride`-th from `first`, as integers (two's complement).
    pub(super) fn push_integers(
        &self,
        first: usize,
        stride: usize,
        count: usize,
        out: &mut Vec<u64>,
    ) -> Result<()> {
        let run = (first, stride, count);
        match self.kind {
            Kind::Bool | Kind::Unsigned(1) => self.decode(run, out, |b: [u8; 1]| u64::from(b[0])),
            Kind::Signed(1) => self.decode(run, out, |b| i8::from_le_bytes(b) as u64),
            Kind::Signed(2) => self.decode(run, out, |b| i16::from_le_bytes(b) as u64),
            Kind::Signed(4) => self.decode(run, out, |b| i32::from_le_bytes(b) as u64),
            Kind::Signed(8) | Kind::Unsigned(8) => self.decode(run, out, u64::from_le_bytes),
            Kind::Unsigned(2) => self.decode(run, out, |b| u64::from(u16::from_le_bytes(b))),
            Kind::Unsigned(4) => self.decode(run, out, |b| u64::from(u32::from_le_bytes(b))),
            _ => return Err(self.wrong("integers")),
        }
        Ok(())
    }

    /// Appends `count` elements, every `stride`-th from `first`, narrowed or widened to `f32`.
    pub(super) fn push_floats(
        &self,
        first: usize,
        stride: usize,
        count: usize,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let run = (first, stride, count);
        match self.kind {
            Kind::Float(4) => self.decode(run, out, f32::from_le_bytes),
            Kind::Float(8) => self.decode(run, out, |b| f64::from_le_bytes(b) as f32),
            Kind::Float(2) => self.decode(run, out, |b| half::f16::from_le_bytes(b).to_f32()),
            Kind::Unsigned(8) => self.decode(run, out, |b| u64::from_le_bytes(b) as f32),
            Kind::Bytes(_) => return Err(self.wrong("numbers")),
            _ => {
                let mut integers = Vec::with_capacity(count);
                self.push_integers(first, stride, count, &mut integers)?;
                out.extend(integers.iter().map(|&value| value as i64 as f32));
            }
        }
        Ok(())
    }

    fn decode<const N: usize, T>(
        &self,
        (first, stride, count): (usize, usize, usize),
        out: &mut Vec<T>,
        convert: impl Fn([u8; N]) -> T,
    ) {
        let bytes = self.raw().get(first * N..).unwrap_or_default();
        let element = |bytes: &[u8]| {
            let mut element = [0; N];
            element.copy_from_slice(&bytes[..N]);
            if self.big_endian {
                element.reverse();
            }
            convert(element)
        };
        if stride == 1 {
            out.extend(bytes.chunks_exact(N).take(count).map(element));
        } else {
            out.extend(bytes.chunks(stride.max(1) * N).take(count).map(element));
        }
    }

    /// The elements in place, when they are already `T`, little-endian, row-major and aligned.
    fn in_place<T: Pod>(&self, kind: Kind) -> Option<Array<T>> {
        let native = cfg!(target_endian = "little") && !self.big_endian && self.row_major();
        (native && self.kind == kind).then(|| Array::mapped(self.map.clone(), self.start, self.len()))?
    }

    /// All elements as `f32`, row after row: in place if possible, else converted.
    pub(super) fn to_f32(&self) -> Result<Array<f32>> {
        match self.in_place(Kind::Float(4)) {
            Some(array) => Ok(array),
            None => Ok(self.converted(Self::push_floats)?.into()),
        }
    }

    /// All elements as `u64` (two's complement), row after row: in place if possible, else converted.
    pub(super) fn to_u64(&self) -> Result<Array<u64>> {
        match self.in_place(Kind::Signed(8)).or_else(|| self.in_place(Kind::Unsigned(8))) {
            Some(array) => Ok(array),
            None => Ok(self.converted(Self::push_integers)?.into()),
        }
    }

    /// All elements as `i64`, row after row: in place if possible, else converted.
    pub(super) fn to_i64(&self) -> Result<Array<i64>> {
        match self.in_place(Kind::Signed(8)) {
            Some(array) => Ok(array),
            None => Ok(bytemuck::cast_vec::<u64, i64>(self.converted(Self::push_integers)?).into()),
        }
    }

    /// The elements as 32-bit integers in place, if that is what they are.
    pub(super) fn as_u32(&self) -> Option<Array<u32>> {
        self.in_place(Kind::Signed(4)).or_else(|| self.in_place(Kind::Unsigned(4)))
    }

    /// The elements as bytes in place, if that is what they are.
    pub(super) fn as_u8(&self) -> Option<Array<u8>> {
        self.in_place(Kind::Unsigned(1)).or_else(|| self.in_place(Kind::Bool))
    }

    fn converted<T>(
        &self,
        push: impl Fn(&Self, usize, usize, usize, &mut Vec<T>) -> Result<()>,
    ) -> Result<Vec<T>> {
        let mut out = Vec::with_capacity(self.len());
        if self.row_major() {
            push(self, 0, 1, self.len(), &mut out)?;
            return Ok(out);
        }
        let (rows, columns) = self.matrix()?;
        for row in 0..rows {
            push(self, row, rows, columns, &mut out)?;
        }
        Ok(out)
    }
}

/// Maps a whole file for reading; an empty file is refused.
pub(super) fn map_file(file: &Path) -> Result<Arc<Mmap>> {
    let opened = File::open(file).map_err(Error::io("open", file))?;
    let length = opened.metadata().map_err(Error::io("open", file))?.len();
    if length == 0 {
        return Err(Error::input(file, "", "an array", "an empty file"));
    }
    // SAFETY: the mapping is read-only and private to us; like every program that maps files we rely on nobody
    // shortening a dataset while it is in use.
    let map = unsafe { Mmap::map(&opened) }.map_err(Error::io("map", file))?;
    Ok(Arc::new(map))
}
