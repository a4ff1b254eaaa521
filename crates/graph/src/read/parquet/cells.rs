//! The cells of a Parquet column, in batches, without Arrow.
//!
//! The `parquet` crate checks much but not all of what a damaged file can claim, and panics on some of it: its
//! calls run behind [`guarded`], which turns a panic into an error that names the file.

use crate::{Error, Result};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::ByteArray;
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use std::borrow::Cow;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Rows read at a time when a whole column is wanted.
const BATCH: usize = 1 << 14;

/// An open file.
pub(super) struct Table {
    pub(super) file: PathBuf,
    reader: SerializedFileReader<File>,
    pub(super) rows: u64,
}

/// Values of some consecutive rows of a column.
pub(super) enum Cells {
    /// From integer and boolean columns.
    Integers(Vec<i64>),
    /// From float and double columns.
    Floats(Vec<f32>),
    /// From string columns.
    Texts(Vec<ByteArray>),
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Integers(cells) => cells.len(),
            Self::Floats(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }

    /// The cell of `row` as text.
    pub(super) fn text(&self, row: usize) -> Cow<'_, str> {
        match self {
            Self::Integers(cells) => cells[row].to_string().into(),
            Self::Floats(cells) => cells[row].to_string().into(),
            Self::Texts(cells) => String::from_utf8_lossy(cells[row].data()),
        }
    }

    /// Numbers as `f32`.
    pub(super) fn into_floats(self, column: &Column, first: u64) -> Result<Vec<f32>> {
        match self {
            Self::Integers(cells) => Ok(cells.into_iter().map(|cell| cell as f32).collect()),
            Self::Floats(cells) => Ok(cells),
            Self::Texts(cells) if cells.is_empty() => Ok(Vec::new()),
            Self::Texts(_) => Err(column.wrong_at(first, "numbers", "text")),
        }
    }

    /// These and `others` in turn.
    pub(super) fn interleaved(self, others: Self) -> Self {
        fn weave<T>(a: Vec<T>, b: Vec<T>) -> Vec<T> {
            a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect()
        }
        match (self, others) {
            (Self::Integers(a), Self::Integers(b)) => Self::Integers(weave(a, b)),
            (a, b) => {
                let texts = |cells: &Self| {
                    (0..cells.len()).map(|row| cells.text(row).as_bytes().to_vec().into()).collect()
                };
                Self::Texts(weave(texts(&a), texts(&b)))
            }
        }
    }
}

/// A column of one row group.
pub(super) struct Column {
    reader: ColumnReader,
    file: PathBuf,
    name: String,
    /// Definition level of a cell that is there.
    present: i16,
    /// Rows handed out so far.
    seen: u64,
}

/// Some rows of a column as the file has them.
struct Batch {
    cells: Cells,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    rows: usize,
}

impl Column {
    /// An error about the whole column.
    pub(super) fn wrong(&self, expected: impl Into<String>, found: impl ToString) -> Error {
        Error::input(&self.file, format!("column {}", self.name), expected, found.to_string())
    }

    /// An error about one row.
    pub(super) fn wrong_at(&self, row: u64, expected: impl Into<String>, found: &str) -> Error {
        let place = format!("column {}, row {row}", self.name);
        Error::input(&self.file, place, expected, format!("`{}`", found.escape_debug()))
    }

    fn read(&mut self, rows: usize) -> Result<Batch> {
        let place = format!("column {}", self.name);
        let (mut definitions, mut repetitions) = (Vec::new(), Vec::new());
        let reader = &mut self.reader;
        let levels = (&mut definitions, &mut repetitions);
        let (cells, rows) =
            guarded(&self.file, &place, || read_cells(reader, rows, levels))?.ok_or_else(|| {
                Error::input(&self.file, &place, "integers, floats, booleans or strings", "another type")
            })?;
        self.seen += rows as u64;
        Ok(Batch { cells, definitions, repetitions, rows })
    }

    /// The next cells, none of which may be null.
    pub(super) fn read_whole(&mut self, rows: usize) -> Result<Cells> {
        let first = self.seen;
        let batch = self.read(rows)?;
        match batch.definitions.iter().position(|&level| level < self.present) {
            Some(row) => Err(self.wrong_at(first + row as u64, "a value", "null")),
            None if batch.cells.len() != batch.rows => {
                Err(self.wrong("one value per row", batch.cells.len()))
            }
            None => Ok(batch.cells),
        }
    }

    /// The next edge types.
    pub(super) fn read_types(&mut self, rows: usize) -> Result<Vec<u32>> {
        let first = self.seen;
        let Cells::Integers(cells) = self.read_whole(rows)? else {
            return Err(self.wrong("integers", "another type"));
        };
        let kind = |(row, &kind): (usize, &i64)| {
            let valid = u32::try_from(kind).ok().filter(|&kind| kind < u32::MAX);
            valid.ok_or_else(|| self.wrong_at(first + row as u64, "an edge type from 0", &kind.to_string()))
        };
        cells.iter().enumerate().map(kind).collect()
    }
}

/// Reads up to `rows` rows; `None` when the type of the column is not one of ours.
fn read_cells(
    reader: &mut ColumnReader,
    rows: usize,
    (definitions, repetitions): (&mut Vec<i16>, &mut Vec<i16>),
) -> ::parquet::errors::Result<Option<(Cells, usize)>> {
    macro_rules! cells {
        ($reader:expr, $kind:expr) => {{
            let mut values = Vec::new();
            let (read, ..) = $reader.read_records(rows, Some(definitions), Some(repetitions), &mut values)?;
            ($kind(values), read)
        }};
    }
    Ok(Some(match reader {
        ColumnReader::Int64ColumnReader(reader) => cells!(reader, Cells::Integers),
        ColumnReader::Int32ColumnReader(reader) => {
            cells!(reader, |values: Vec<i32>| Cells::Integers(values.into_iter().map(i64::from).collect()))
        }
        ColumnReader::BoolColumnReader(reader) => {
            cells!(reader, |values: Vec<bool>| Cells::Integers(values.into_iter().map(i64::from).collect()))
        }
        ColumnReader::FloatColumnReader(reader) => cells!(reader, Cells::Floats),
        ColumnReader::DoubleColumnReader(reader) => {
            cells!(reader, |values: Vec<f64>| Cells::Floats(values.into_iter().map(|v| v as f32).collect()))
        }
        ColumnReader::ByteArrayColumnReader(reader) => cells!(reader, Cells::Texts),
        _ => return Ok(None),
    }))
}

/// Runs a call into the `parquet` crate; its errors and panics become errors about `file`.
fn guarded<T>(file: &Path, place: &str, call: impl FnOnce() -> ::parquet::errors::Result<T>) -> Result<T> {
    let wrong = |found: String| Error::input(file, place, "readable Parquet data", found);
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| wrong(error.to_string())),
        Err(_) => Err(wrong("data that the parquet library cannot decode".into())),
    }
}

/// Every column chunk must lie inside the file: the `parquet` crate panics on negative offsets.
fn check_chunks(file: &Path, metadata: &ParquetMetaData, bytes: u64) -> Result<()> {
    for (group, columns) in metadata.row_groups().iter().enumerate() {
        for chunk in columns.columns() {
            let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
            let end = start.checked_add(chunk.compressed_size());
            let inside = start >= 0 && chunk.compressed_size() >= 0 && chunk.data_page_offset() >= 0;
            if !inside || end.is_none_or(|end| end as u64 > bytes) {
                let place = format!("row group {group}, column {}", chunk.column_path());
                let found = format!("{} bytes from byte {start}", chunk.compressed_size());
                return Err(Error::input(file, place, format!("data inside a file of {bytes} bytes"), found));
            }
        }
    }
    Ok(())
}

impl Table {
    /// Reads the footer of `file`.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let opened = File::open(file).map_err(Error::io("open", file))?;
        let bytes = opened.metadata().map_err(Error::io("open", file))?.len();
        let reader = guarded(file, "footer", || SerializedFileReader::new(opened))?;
        let metadata = reader.metadata();
        check_chunks(file, metadata, bytes)?;
        let rows = metadata
            .row_groups()
            .iter()
            .map(|group| group.num_rows())
            .try_fold(0u64, |sum, rows| u64::try_from(rows).ok().and_then(|rows| sum.checked_add(rows)));
        let claimed = metadata.file_metadata().num_rows();
        match rows {
            Some(rows) if Ok(rows) == u64::try_from(claimed) => {
                Ok(Self { file: file.to_path_buf(), reader, rows })
            }
            _ => Err(Error::input(
                file,
                "footer",
                "row groups that add up to all rows",
                format!("`{claimed}`"),
            )),
        }
    }

    /// How many row groups there are.
    pub(super) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// How many (leaf) columns there are.
    pub(super) fn columns(&self) -> usize {
        self.reader.metadata().file_metadata().schema_descr().num_columns()
    }

    /// The name of the top-level field to which a column belongs.
    pub(super) fn name(&self, column: usize) -> &str {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns()[column].path().parts().first().map_or("", String::as_str)
    }

    /// Whether a column is a list.
    pub(super) fn is_list(&self, column: usize) -> bool {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        schema.columns()[column].max_rep_level() > 0
    }

    /// The first column with one of these names.
    pub(super) fn find(&self, names: &[&str]) -> Option<usize> {
        let named = |column: &usize| names.contains(&self.name(*column).to_ascii_lowercase().as_str());
        (0..self.columns()).find(|column| named(column) && !self.is_list(*column))
    }

    /// Like [`find`](Self::find), or an error that says which columns there are.
    pub(super) fn require(&self, names: &[&str]) -> Result<usize> {
        self.find(names).ok_or_else(|| {
            let known: Vec<_> = (0..self.columns()).map(|column| self.name(column)).collect();
            let found = format!("only: {}", known.join(", "));
            Error::input(&self.file, "schema", format!("a column `{}`", names[0]), found)
        })
    }

    /// Starts to read a column of a row group.
    pub(super) fn column(&self, group: usize, column: usize) -> Result<Column> {
        let name = self.name(column).to_owned();
        let reader = guarded(&self.file, &format!("column {name}"), || {
            self.reader.get_row_group(group)?.get_column_reader(column)
        })?;
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let present = schema.columns()[column].max_def_level();
        Ok(Column { reader, file: self.file.clone(), name, present, seen: 0 })
    }

    /// Visits every batch of a column with the number of its first row.
    fn each_batch(
        &self,
        column: usize,
        mut visit: impl FnMut(&Column, u64, Batch) -> Result<()>,
    ) -> Result<()> {
        let mut first = 0;
        for group in 0..self.groups() {
            let mut column = self.column(group, column)?;
            loop {
                let batch = column.read(BATCH)?;
                let rows = batch.rows as u64;
                if rows == 0 {
                    break;
                }
                if first + rows > self.rows {
                    return Err(column.wrong(format!("{} rows", self.rows), "more"));
                }
                visit(&column, first, batch)?;
                first += rows;
            }
        }
        if first == self.rows {
            return Ok(());
        }
        let place = format!("column {}", self.name(column));
        Err(Error::input(&self.file, place, format!("{} rows", self.rows), first.to_string()))
    }

    /// Visits every cell of a column as text; null is empty.
    pub(super) fn each_text(&self, column: usize, mut visit: impl FnMut(&str) -> Result<()>) -> Result<()> {
        self.each_batch(column, |column, _, batch| {
            let mut cell = 0;
            for row in 0..batch.rows {
                let there = batch.definitions.get(row).is_none_or(|&level| level == column.present);
                if there && cell < batch.cells.len() {
                    visit(&batch.cells.text(cell))?;
                    cell += 1;
                } else {
                    visit("")?;
                }
            }
            Ok(())
        })
    }

    /// The numbers of several plain columns, row after row.
    pub(super) fn read_numbers(&self, columns: &[usize], most: u64) -> Result<Vec<f32>> {
        let width = columns.len();
        let cells = self.rows.checked_mul(width as u64).filter(|&cells| cells <= most / 4);
        let cells = cells.ok_or_else(|| self.too_many(most))?;
        let mut numbers = vec![0.0; cells as usize];
        for (slot, &column) in columns.iter().enumerate() {
            self.each_batch(column, |column, first, batch| {
                if batch.cells.len() != batch.rows {
                    return Err(column.wrong_at(first, "a number in every row", "null"));
                }
                for (row, value) in batch.cells.into_floats(column, first)?.into_iter().enumerate() {
                    numbers[(first as usize + row) * width + slot] = value;
                }
                Ok(())
            })?;
        }
        Ok(numbers)
    }

    /// Width and numbers of a list column whose rows are all equally long.
    pub(super) fn read_list(&self, column: usize, most: u64) -> Result<(usize, Vec<f32>)> {
        let (mut width, mut numbers) = (None, Vec::new());
        self.each_batch(column, |column, first, batch| {
            let rows = batch.rows;
            if batch.definitions.iter().any(|&level| level < column.present) {
                return Err(column.wrong_at(first, "lists of numbers", "null or an empty list"));
            }
            let width = *width.get_or_insert(batch.repetitions.len() / rows);
            let starts = |(at, &level): (usize, &i16)| (level == 0) != (at % width == 0);
            if width == 0 || batch.repetitions.len() != rows * width {
                return Err(column.wrong_at(first, "lists of equal length", "another length"));
            }
            if let Some(at) = batch.repetitions.iter().enumerate().position(starts) {
                let expected = format!("a list of {width} numbers");
                return Err(column.wrong_at(first + (at / width) as u64, expected, "another length"));
            }
            numbers.extend(batch.cells.into_floats(column, first)?);
            if numbers.len() as u64 > most / 4 {
                return Err(self.too_many(most));
            }
            Ok(())
        })?;
        Ok((width.unwrap_or(0), numbers))
    }

    fn too_many(&self, most: u64) -> Error {
        let expected = format!("at most {most} bytes of numbers in a file of this size");
        Error::input(&self.file, "features", expected, "more")
    }
}
