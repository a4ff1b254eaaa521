//! One array in NumPy's `.npy` format: what are its type and shape, and where are its numbers?
//!
//! The numbers stay where they are, in a mapping of the file (or, for a member of an `.npz`, in anonymous
//! memory), and are decoded when asked for. Any byte order and either element order is understood. A header is
//! believed only after its size has been compared with the bytes that are really there.

mod header;

pub(super) use header::{Header, Kind, read_fully};

use crate::array::{Array, release};
use crate::{Error, Result};
use bytemuck::Pod;
use memmap2::Mmap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// Whether `map` is of the file rather than of what was unpacked from it.
    in_file: bool,
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
        Ok(Self { in_file: true, ..Self::from_parts(file, &name, header, map, start) })
    }

    /// The array described by `header` whose elements, unpacked from `file`, begin at byte `start` of `map`.
    pub(super) fn from_parts(file: &Path, name: &str, header: Header, map: Arc<Mmap>, start: usize) -> Self {
        Self {
            in_file: false,
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

    /// Lets the system take back the memory of elements `first..first + count`, which were read and will not be soon.
    pub(super) fn release(&self, first: usize, count: usize) {
        if self.in_file {
            release(&self.map, self.start + first * self.kind.size(), count * self.kind.size());
        }
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
        let (elements, _) = bytes.as_chunks::<N>();
        let reversed = |mut element: [u8; N]| {
            element.reverse();
            convert(element)
        };
        // Four loops, so that the usual ones have nothing to decide and use wide instructions.
        let run = elements.iter().copied();
        let strided = elements.iter().copied().step_by(stride.max(1)).take(count);
        match (stride, self.big_endian) {
            (1, false) => out.extend(run.take(count).map(convert)),
            (1, true) => out.extend(run.take(count).map(reversed)),
            (_, false) => out.extend(strided.map(convert)),
            (_, true) => out.extend(strided.map(reversed)),
        }
    }

    /// The elements in place, when they are already `T`, little-endian, row-major and aligned.
    fn in_place<T: Pod>(&self, kind: Kind) -> Option<Array<T>> {
        let native = cfg!(target_endian = "little") && !self.big_endian && self.row_major();
        let array = if self.in_file { Array::mapped } else { Array::unpacked };
        (native && self.kind == kind).then(|| array(self.map.clone(), self.start, self.len()))?
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
