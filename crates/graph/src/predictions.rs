//! What a model says of every node, or of pairs of nodes, as a file that other tools read.
//!
//! A [`Table`] is in original ids and in the user's order: row `i` is node `i`, or the `i`-th pair. The extension of the file chooses the
//! format, one line each in [`FORMATS`]. Files appear whole or not at all.

use crate::atomic::write_file;
use crate::error::unknown_message;
use crate::{Error, Result};
use npyz::{AutoSerialize, DType, WriteOptions, WriterBuilder};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Rows of a Parquet row group, and of the text that is put together at a time.
const ROWS: usize = 1 << 16;

/// Columns of the same kind.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// The name of the column; of several, each has its number after it: `score_0`, `score_1`, …
    pub name: &'static str,
    /// How many there are; `None` for a single column without a number.
    pub width: Option<usize>,
    /// Row-major `[rows, width]`.
    pub values: Values<'a>,
}

/// The numbers of [`Columns`].
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Classes.
    Int(&'a [i64]),
    /// Classes with a name each.
    Named(&'a [i64], &'a [String]),
    /// 0 or 1 for each label.
    Flag(&'a [u8]),
    /// Scores or embeddings.
    Float(&'a [f32]),
}

/// A column that tells which node a row is about.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The name of the column.
    pub title: &'static str,
    /// The node of every row; without, row `i` is about node `i`.
    pub nodes: Option<&'a [u64]>,
}

impl<'a> Subject<'a> {
    /// Row `i` is about node `i`.
    pub const EVERY_NODE: [Self; 1] = [Self { title: "node", nodes: None }];

    /// Rows are about links from `sources` to `targets`.
    pub fn links(sources: &'a [u64], targets: &'a [u64]) -> [Self; 2] {
        [("source", sources), ("target", targets)].map(|(title, nodes)| Self { title, nodes: Some(nodes) })
    }

    fn node(&self, row: usize) -> u64 {
        self.nodes.map_or(row as u64, |nodes| nodes[row])
    }
}

/// Rows about nodes or links.
#[derive(Debug, Clone)]
pub struct Table<'a> {
    /// How many rows there are.
    pub rows: usize,
    /// What they are about.
    pub subjects: &'a [Subject<'a>],
    /// The user's own name of every node of the graph; without, its id stands for it.
    pub names: Option<&'a [String]>,
    /// What is said of each.
    pub columns: Vec<Columns<'a>>,
}

/// A format that predictions can be written in.
pub struct Format {
    /// The extension that chooses it.
    pub extension: &'static str,
    /// One line on what it holds.
    pub summary: &'static str,
    /// Whether it holds one array only, without node names.
    pub single: bool,
    write: fn(&Table, &Path, &mut dyn Write) -> Result<()>,
}

/// Every format.
pub const FORMATS: &[Format] = &[
    Format {
        extension: "npy",
        summary: "one NumPy array, row i is node i or pair i",
        single: true,
        write: write_npy,
    },
    Format {
        extension: "parquet",
        summary: "a column `node` (or `source` and `target`), then one per number",
        single: false,
        write: write_parquet,
    },
    Format {
        extension: "csv",
        summary: "a line with names, then one line per node or pair",
        single: false,
        write: write_csv,
    },
];

/// The format that the extension of `file` chooses.
pub fn format_of(file: &Path) -> Result<&'static Format> {
    let extension = file.extension().map(|e| e.to_string_lossy().into_owned()).unwrap_or_default();
    FORMATS.iter().find(|format| format.extension == extension).ok_or_else(|| {
        let known: Vec<_> = FORMATS.iter().map(|format| format.extension).collect();
        Error::usage(format!("`{}`: {}", file.display(), unknown_message("extension", &extension, &known)))
    })
}

/// Writes `table` as `file`, in the format that its extension chooses.
pub fn write(table: &Table, file: &Path) -> Result<()> {
    let format = format_of(file)?;
    if format.single && table.columns.len() != 1 {
        let names: Vec<_> = table.columns.iter().map(|columns| columns.name).collect();
        let message = format!("a .{} file holds one array, not {}", format.extension, names.join(" and "));
        return Err(Error::usage(message).with_hint("write them to separate files, or to .parquet or .csv"));
    }
    table.check()?;
    write_file(file, |out| (format.write)(table, file, out))
}

/// What a file of predictions holds, as far as its header tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The names of its columns; the first is `node`, or the first two are `source` and `target`.
    pub titles: Vec<String>,
    /// How many rows it has; text does not say.
    pub rows: Option<u64>,
}

/// Looks at the beginning of `file`; `None` when it is not a .parquet or .csv that [`write()`] may have made.
pub fn look(file: &Path) -> Option<Header> {
    let opened = File::open(file).ok()?;
    let header = match format_of(file).ok()?.extension {
        "parquet" => {
            let reader = SerializedFileReader::new(opened).ok()?;
            let schema = reader.metadata().file_metadata();
            let titles = schema.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
            Header { titles, rows: u64::try_from(schema.num_rows()).ok() }
        }
        "csv" => {
            let mut line = String::new();
            BufReader::new(opened.take(1 << 20)).read_line(&mut line).ok()?;
            Header { titles: line.trim_end().split(',').map(str::to_owned).collect(), rows: None }
        }
        _ => return None,
    };
    let titles: Vec<&str> = header.titles.iter().map(String::as_str).collect();
    matches!(titles[..], ["node", _, ..] | ["source", "target", "score"]).then_some(header)
}

impl Table<'_> {
    /// Refuses columns that do not have every row.
    fn check(&self) -> Result<()> {
        for Subject { title, nodes } in self.subjects {
            if let Some(found) = nodes.map(<[u64]>::len).filter(|&found| found != self.rows) {
                let expected = self.rows;
                return Err(Error::usage(format!("expected {expected} nodes in `{title}`, found {found}")));
            }
        }
        for columns in &self.columns {
            let expected = self.rows * columns.width.unwrap_or(1);
            if columns.values.len() != expected {
                let (name, found) = (columns.name, columns.values.len());
                return Err(Error::usage(format!("expected {expected} numbers in `{name}`, found {found}")));
            }
            columns.check_names()?;
        }
        Ok(())
    }
}

impl Columns<'_> {
    /// Refuses classes that have no name where others do.
    fn check_names(&self) -> Result<()> {
        let Values::Named(values, names) = self.values else { return Ok(()) };
        match values.iter().find(|&&value| value < 0 || value as usize >= names.len()) {
            None => Ok(()),
            Some(value) => {
                let (name, known) = (self.name, names.len());
                Err(Error::usage(format!("expected classes below {known} in `{name}`, found {value}")))
            }
        }
    }

    /// The name of every column.
    fn titles(&self) -> Vec<String> {
        match self.width {
            None => vec![self.name.to_owned()],
            Some(width) => (0..width).map(|at| format!("{}_{at}", self.name)).collect(),
        }
    }
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Int(values) | Self::Named(values, _) => values.len(),
            Self::Flag(values) => values.len(),
            Self::Float(values) => values.len(),
        }
    }

    /// The NumPy type, and the bytes.
    fn raw(&self) -> (DType, &[u8]) {
        match self {
            // An array of NumPy's holds numbers: those that the names stand for.
            Self::Int(values) | Self::Named(values, _) => {
                (i64::default_dtype(), bytemuck::cast_slice(values))
            }
            Self::Flag(values) => (u8::default_dtype(), values),
            Self::Float(values) => (f32::default_dtype(), bytemuck::cast_slice(values)),
        }
    }

    /// The number at `at` as text that reads back as the same number, or its name.
    fn text(&self, at: usize) -> String {
        match self {
            Self::Int(values) => values[at].to_string(),
            Self::Named(values, names) => names[values[at] as usize].clone(),
            Self::Flag(values) => values[at].to_string(),
            Self::Float(values) => values[at].to_string(),
        }
    }
}

fn write_npy(table: &Table, file: &Path, out: &mut dyn Write) -> Result<()> {
    let columns = &table.columns[0];
    let (kind, bytes) = columns.values.raw();
    let shape: Vec<u64> =
        [Some(table.rows), columns.width].iter().flatten().map(|&size| size as u64).collect();
    let header = WriteOptions::new_header_only().dtype(kind).shape(&shape).writer(out);
    header.write_header_only().and_then(|out| out.write_all(bytes)).map_err(Error::io("write", file))
}

fn write_csv(table: &Table, file: &Path, out: &mut dyn Write) -> Result<()> {
    let failed = |error: csv::Error| Error::io("write", file)(std::io::Error::other(error));
    let mut writer = csv::Writer::from_writer(out);
    let titles = table.columns.iter().flat_map(Columns::titles);
    let subjects = table.subjects.iter().map(|subject| subject.title.to_owned());
    writer.write_record(subjects.chain(titles)).map_err(failed)?;
    for row in 0..table.rows {
        for node in table.subjects.iter().map(|subject| subject.node(row)) {
            let name = table.names.map_or_else(|| node.to_string(), |names| names[node as usize].clone());
            writer.write_field(name).map_err(failed)?;
        }
        for columns in &table.columns {
            let width = columns.width.unwrap_or(1);
            for at in row * width..(row + 1) * width {
                writer.write_field(columns.values.text(at)).map_err(failed)?;
            }
        }
        writer.write_record(None::<&[u8]>).map_err(failed)?;
    }
    writer.flush().map_err(Error::io("write", file))
}

fn write_parquet(table: &Table, file: &Path, out: &mut dyn Write) -> Result<()> {
    let failed = |error: ParquetError| Error::io("write", file)(std::io::Error::other(error));
    let schema = Arc::new(parquet_schema(table).map_err(failed)?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    // The writer wants to own what it writes to: a buffer that is emptied after every row group.
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).map_err(failed)?;
    for start in (0..table.rows).step_by(ROWS) {
        let rows = start..table.rows.min(start + ROWS);
        let mut group = writer.next_row_group().map_err(failed)?;
        write_group(table, rows, &mut group).map_err(failed)?;
        group.close().map_err(failed)?;
        out.write_all(writer.inner()).map_err(Error::io("write", file))?;
        writer.inner_mut().clear();
    }
    let rest = writer.into_inner().map_err(failed)?;
    out.write_all(&rest).map_err(Error::io("write", file))
}

fn parquet_schema(table: &Table) -> Result<Type, ParquetError> {
    let column = |name: &str, (physical, logical): (Physical, Option<LogicalType>)| {
        let column = Type::primitive_type_builder(name, physical);
        column.with_repetition(Repetition::REQUIRED).with_logical_type(logical).build().map(Arc::new)
    };
    let words = || (Physical::BYTE_ARRAY, Some(LogicalType::String));
    let mut fields = Vec::new();
    for subject in table.subjects {
        fields.push(match table.names {
            Some(_) => column(subject.title, words())?,
            None => column(subject.title, (Physical::INT64, None))?,
        });
    }
    for columns in &table.columns {
        for title in columns.titles() {
            let kind = match columns.values {
                Values::Int(_) => (Physical::INT64, None),
                Values::Named(..) => words(),
                Values::Flag(_) => (Physical::INT32, None),
                Values::Float(_) => (Physical::FLOAT, None),
            };
            fields.push(column(&title, kind)?);
        }
    }
    Type::group_type_builder("predictions").with_fields(fields).build()
}

fn write_group(
    table: &Table,
    rows: std::ops::Range<usize>,
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
) -> Result<(), ParquetError> {
    for subject in table.subjects {
        let nodes = rows.clone().map(|row| subject.node(row));
        write_column(group, |writer| match (writer, table.names) {
            (ColumnWriter::ByteArrayColumnWriter(writer), Some(names)) => {
                let names: Vec<ByteArray> = nodes.map(|node| names[node as usize].as_str().into()).collect();
                writer.write_batch(&names, None, None)
            }
            (ColumnWriter::Int64ColumnWriter(writer), _) => {
                writer.write_batch(&nodes.map(|node| node as i64).collect::<Vec<_>>(), None, None)
            }
            _ => Ok(0),
        })?;
    }
    for columns in &table.columns {
        let width = columns.width.unwrap_or(1);
        for at in 0..width {
            let of_rows = || rows.clone().map(move |row| row * width + at);
            write_column(group, |writer| match (writer, columns.values) {
                (ColumnWriter::Int64ColumnWriter(writer), Values::Int(values)) => {
                    writer.write_batch(&of_rows().map(|i| values[i]).collect::<Vec<_>>(), None, None)
                }
                (ColumnWriter::ByteArrayColumnWriter(writer), Values::Named(values, names)) => {
                    let names = of_rows().map(|i| names[values[i] as usize].as_str().into());
                    writer.write_batch(&names.collect::<Vec<ByteArray>>(), None, None)
                }
                (ColumnWriter::Int32ColumnWriter(writer), Values::Flag(values)) => writer.write_batch(
                    &of_rows().map(|i| i32::from(values[i])).collect::<Vec<_>>(),
                    None,
                    None,
                ),
                (ColumnWriter::FloatColumnWriter(writer), Values::Float(values)) => {
                    writer.write_batch(&of_rows().map(|i| values[i]).collect::<Vec<_>>(), None, None)
                }
                _ => Ok(0),
            })?;
        }
    }
    Ok(())
}

/// Writes the next column of `group` through `fill`.
fn write_column(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    fill: impl FnOnce(&mut ColumnWriter<'_>) -> Result<usize, ParquetError>,
) -> Result<(), ParquetError> {
    match group.next_column()? {
        None => Ok(()),
        Some(mut column) => {
            fill(column.untyped())?;
            column.close()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::record::RowAccessor;
    use std::fs;

    const SCORES: [f32; 6] = [0.1, -2.5, f32::MIN_POSITIVE, 1.0 / 3.0, 1e30, -0.0];

    fn table(names: Option<&[String]>) -> Table<'_> {
        Table {
            rows: 3,
            subjects: &Subject::EVERY_NODE,
            names,
            columns: vec![
                Columns { name: "class", width: None, values: Values::Int(&[0, 1, 0]) },
                Columns { name: "score", width: Some(2), values: Values::Float(&SCORES) },
            ],
        }
    }

    #[test]
    fn csv_and_parquet_hold_the_same_numbers_bit_for_bit() {
        let folder = tempfile::tempdir().unwrap();
        let (text, parquet) = (folder.path().join("p.csv"), folder.path().join("p.parquet"));
        write(&table(None), &text).unwrap();
        write(&table(None), &parquet).unwrap();
        let text = fs::read_to_string(&text).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("node,class,score_0,score_1"));
        let reader = SerializedFileReader::new(fs::File::open(&parquet).unwrap()).unwrap();
        for (node, (line, row)) in lines.zip(reader.get_row_iter(None).unwrap()).enumerate() {
            let (cells, row): (Vec<&str>, _) = (line.split(',').collect(), row.unwrap());
            assert_eq!((cells[0], row.get_long(0).unwrap()), (node.to_string().as_str(), node as i64));
            assert_eq!(cells[1].parse::<i64>().unwrap(), row.get_long(1).unwrap());
            for column in 0..2 {
                let expected = SCORES[2 * node + column].to_bits();
                assert_eq!(cells[2 + column].parse::<f32>().unwrap().to_bits(), expected);
                assert_eq!(row.get_float(2 + column).unwrap().to_bits(), expected);
            }
        }
    }

    #[test]
    fn a_table_larger_than_a_row_group_is_read_back_whole() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.parquet");
        let flags: Vec<u8> = (0..2 * ROWS + 5).map(|node| u8::from(node % 3 == 0)).collect();
        let columns = vec![Columns { name: "label", width: Some(1), values: Values::Flag(&flags) }];
        let table = Table { rows: flags.len(), subjects: &Subject::EVERY_NODE, names: None, columns };
        write(&table, &file).unwrap();
        let reader = SerializedFileReader::new(fs::File::open(&file).unwrap()).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 3);
        let read: Vec<u8> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_int(1).unwrap() as u8).collect();
        assert_eq!(read, flags);
    }

    #[test]
    fn the_users_own_names_stand_for_the_ids() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a, b".to_owned(), "c".to_owned(), "d".to_owned()];
        for extension in ["csv", "parquet"] {
            write(&table(Some(&names)), &folder.path().join("p").with_extension(extension)).unwrap();
        }
        let text = fs::read_to_string(folder.path().join("p.csv")).unwrap();
        assert!(text.contains("\n\"a, b\",0,0.1,-2.5\n"), "{text}");
        let reader =
            SerializedFileReader::new(fs::File::open(folder.path().join("p.parquet")).unwrap()).unwrap();
        let first = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
        assert_eq!(first.get_string(0).unwrap(), "a, b");
    }

    #[test]
    fn classes_go_by_their_names_but_in_an_array_of_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = |extension| folder.path().join("p").with_extension(extension);
        let (classes, names) = ([1, 0, 1], ["red".to_owned(), "dark, blue".to_owned()]);
        let named = |classes| Columns { name: "class", width: None, values: Values::Named(classes, &names) };
        let table = |classes| Table { columns: vec![named(classes)], ..table(None) };
        for extension in ["csv", "parquet", "npy"] {
            write(&table(&classes), &path(extension)).unwrap();
        }
        let text = fs::read_to_string(path("csv")).unwrap();
        assert_eq!(text, "node,class\n0,\"dark, blue\"\n1,red\n2,\"dark, blue\"\n");
        let reader = SerializedFileReader::new(fs::File::open(path("parquet")).unwrap()).unwrap();
        let read =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().get_string(1).unwrap().to_owned());
        assert_eq!(read.collect::<Vec<_>>(), ["dark, blue", "red", "dark, blue"]);
        assert!(fs::read(path("npy")).unwrap().ends_with(bytemuck::cast_slice(&classes)));
        let refused = write(&table(&[0, 2, 0]), &path("csv")).unwrap_err().to_string();
        assert!(refused.contains("expected classes below 2 in `class`, found 2"), "{refused}");
    }

    #[test]
    fn an_npy_file_begins_its_array_at_a_multiple_of_64_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.npy");
        let scores = Table { columns: table(None).columns.split_off(1), ..table(None) };
        write(&scores, &file).unwrap();
        let bytes = fs::read(&file).unwrap();
        let start = bytes.len() - size_of_val(&SCORES);
        assert_eq!(start % 64, 0);
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&bytes[start..]), SCORES);
        let header = String::from_utf8_lossy(&bytes[10..start]);
        assert!(
            header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, ), }"),
            "{header}"
        );
    }

    #[test]
    fn what_a_file_cannot_hold_is_refused_before_it_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let two = write(&table(None), &folder.path().join("p.npy")).unwrap_err().to_string();
        assert!(two.contains("holds one array, not class and score"), "{two}");
        let unknown = write(&table(None), &folder.path().join("p.parket")).unwrap_err().to_string();
        assert!(unknown.ends_with("hint: did you mean `parquet`?"), "{unknown}");
        let short = Table { rows: 4, ..table(None) };
        assert!(write(&short, &folder.path().join("p.csv")).unwrap_err().to_string().contains("expected 4"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_header_of_what_was_written_tells_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let columns = Columns { name: "score", width: Some(2), values: Values::Float(&[0.0; 6]) };
        let table = Table { rows: 3, subjects: &Subject::EVERY_NODE, names: None, columns: vec![columns] };
        for (name, rows) in [("a.parquet", Some(3)), ("a.csv", None)] {
            let file = folder.path().join(name);
            write(&table, &file).unwrap();
            let titles = ["node", "score_0", "score_1"].map(str::to_owned).to_vec();
            assert_eq!(look(&file), Some(Header { titles, rows }));
        }
        let score = Columns { name: "score", width: None, values: Values::Float(&[0.5, -1.0]) };
        let links =
            Table { rows: 2, subjects: &Subject::links(&[0, 2], &[2, 1]), columns: vec![score], ..table };
        for (name, names, first) in [
            ("ids.csv", None, "0,2,0.5"),
            ("names.csv", Some(&["a", "b", "c"].map(String::from)[..]), "a,c,0.5"),
        ] {
            let file = folder.path().join(name);
            write(&Table { names, ..links.clone() }, &file).unwrap();
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text.lines().nth(1), Some(first));
            assert_eq!(look(&file).unwrap().titles, ["source", "target", "score"]);
        }
        let edges = folder.path().join("edges.csv");
        fs::write(&edges, "source,target\n0,1\n").unwrap();
        assert_eq!(look(&edges), None);
    }
}
