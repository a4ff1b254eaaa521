//! Feature rows on their way between parts: written by their owner, read where they arrive.
//!
//! With each row go the original id and the weighted degree of its node, which layers and dropout need. Dense rows
//! are written by the codec of the run; sparse ones as a count, then columns and values of all rows.
//!
//! A codec rounds to the nearest: features never change, so a row is the same numbers whenever it is pulled. Sparse
//! rows stay exact: their numbers are few, and often all the same.

use super::wire::{Ids, garbled};
use crate::Result;
use crate::feature::{self, Scaled};
use crate::run::RunConfig;
use archipelago_comm::{Codec, Frame, Rounding};
use archipelago_graph::Part;

/// How many rows before a row is copied it is asked for.
pub(super) const AHEAD: usize = 4;

/// What rows of this part look like on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowForm {
    pub ids: Ids,
    /// Numbers per row; `None` where rows are sparse.
    pub dense: Option<usize>,
    /// How dense rows are written.
    codec: &'static Codec,
}

impl RowForm {
    /// How the rows of `part` travel. A codec that would make them longer is not used: `int8` of the 1 of a node
    /// without features.
    pub fn of(part: &Part, config: &RunConfig) -> Result<Self> {
        let nodes = part.starts().last().copied().unwrap_or(0);
        let (exact, asked) = (Codec::named("f32")?, Codec::named(&config.exchange.codec)?);
        let dense = feature::dense_width(part);
        let saves = dense.is_some_and(|width| asked.bytes(1, width) < exact.bytes(1, width));
        Ok(Self { ids: Ids::of(nodes), dense, codec: if saves { asked } else { exact } })
    }

    /// Words in front of the values of `count` rows.
    fn facts(self, count: usize) -> usize {
        count * (self.ids.words() + 1)
    }

    /// Words that these rows of `part` take.
    pub fn words(self, features: &Scaled<'_>, rows: &[u32]) -> usize {
        let values = match self.dense {
            Some(width) => self.dense_words(rows.len(), width),
            None => rows.iter().map(|&row| 1 + 2 * features.sparse(row as usize).0.len()).sum(),
        };
        self.facts(rows.len()) + values
    }

    /// Words that the values of `count` dense rows take.
    fn dense_words(self, count: usize, width: usize) -> usize {
        self.codec.bytes(count, width).div_ceil(4)
    }

    /// Writes these rows of `part`.
    pub fn write(self, part: &Part, features: &Scaled<'_>, rows: &[u32], words: &mut [u32]) -> Result<()> {
        let (facts, values) = words.split_at_mut(self.facts(rows.len()));
        let (originals, degrees) = facts.split_at_mut(rows.len() * self.ids.words());
        for (place, &row) in rows.iter().enumerate() {
            self.ids.put(originals, place, part.original()[row as usize]);
            degrees[place] = part.weighted_degree(row as usize).to_bits();
        }
        match self.dense {
            Some(width) if self.codec.exact => {
                let values: &mut [f32] = bytemuck::cast_slice_mut(values);
                for (place, (slot, &row)) in values.chunks_exact_mut(width).zip(rows).enumerate() {
                    rows.get(place + AHEAD)
                        .into_iter()
                        .for_each(|&next| features.expect_dense(u64::from(next)));
                    features.copy_dense(row as usize, slot);
                }
            }
            Some(width) => self.encode_dense(features, rows, width, values)?,
            None => write_sparse(features, rows, values),
        }
        Ok(())
    }

    fn encode_dense(
        self,
        features: &Scaled<'_>,
        rows: &[u32],
        width: usize,
        words: &mut [u32],
    ) -> Result<()> {
        // Rows need not end with a word.
        if let Some(last) = words.last_mut() {
            *last = 0;
        }
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(words);
        let mut values = vec![0.0; width];
        for (slot, &row) in bytes.chunks_exact_mut(self.codec.bytes(1, width)).zip(rows) {
            features.copy_dense(row as usize, &mut values);
            self.codec.encode(&values, width, Rounding::Nearest, slot)?;
        }
        Ok(())
    }
}

fn write_sparse(features: &Scaled<'_>, rows: &[u32], words: &mut [u32]) {
    let (counts, rest) = words.split_at_mut(rows.len());
    let (columns, values) = rest.split_at_mut(rest.len() / 2);
    let mut at = 0;
    for (count, &row) in counts.iter_mut().zip(rows) {
        let (row_columns, row_values, scale) = features.sparse(row as usize);
        columns[at..][..row_columns.len()].copy_from_slice(row_columns);
        for (slot, value) in values[at..].iter_mut().zip(row_values) {
            *slot = (value * scale).to_bits();
        }
        *count = row_columns.len() as u32;
        at += row_columns.len();
    }
}

/// Rows that have arrived.
#[derive(Debug)]
pub(super) struct RowSet {
    words: Words,
    form: RowForm,
    count: usize,
    /// Where the values of sparse rows start; one more than there are rows.
    starts: Vec<u32>,
}

/// Where the words of rows are kept.
#[derive(Debug)]
pub(super) enum Words {
    /// In the message that brought them, after so many other words.
    Message(Frame, usize),
    /// In memory of our own.
    Owned(Vec<u32>),
}

impl Words {
    fn all(&self) -> &[u32] {
        match self {
            Self::Message(frame, skip) => &frame.values::<u32>()[*skip..],
            Self::Owned(words) => words,
        }
    }
}

impl RowSet {
    /// Reads `count` rows; fails when there are more or fewer words than that takes.
    pub fn read(words: Words, form: RowForm, count: usize) -> Result<Self> {
        let given = words.all();
        let facts = form.facts(count);
        let mut starts = Vec::new();
        let expected = match form.dense {
            Some(width) => facts + form.dense_words(count, width),
            None => {
                let counts = given.get(facts..facts + count).ok_or_else(|| garbled("its counts"))?;
                starts.reserve(count + 1);
                starts.push(0);
                let mut sum = 0u32;
                for &more in counts {
                    sum = sum.checked_add(more).ok_or_else(|| garbled("sensible counts"))?;
                    starts.push(sum);
                }
                facts + count + 2 * sum as usize
            }
        };
        if given.len() != expected {
            return Err(garbled("a part of its rows"));
        }
        Ok(Self { words, form, count, starts })
    }

    /// The original id of row `at`.
    pub fn original(&self, at: usize) -> u64 {
        self.form.ids.get(self.words.all(), at)
    }

    /// The weighted degree of row `at` in the whole graph.
    pub fn degree(&self, at: usize) -> f32 {
        f32::from_bits(self.words.all()[self.count * self.form.ids.words() + at])
    }

    /// Copies the numbers of row `at` of dense rows.
    pub fn copy_dense(&self, at: usize, slot: &mut [f32]) {
        let (codec, width) = (self.form.codec, slot.len());
        let values = &self.words.all()[self.form.facts(self.count)..];
        if codec.exact {
            return slot.copy_from_slice(bytemuck::cast_slice(&values[at * width..][..width]));
        }
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let row = codec.bytes(1, width);
        let decoded = codec.decode(&bytes[at * row..][..row], width, slot);
        debug_assert!(decoded.is_ok(), "a row has the length that its codec gives it");
    }

    /// Columns and numbers of row `at` of sparse rows.
    pub fn sparse(&self, at: usize) -> (&[u32], &[f32]) {
        let values = &self.words.all()[self.form.facts(self.count) + self.count..];
        let (columns, values) = values.split_at(values.len() / 2);
        let row = self.starts[at] as usize..self.starts[at + 1] as usize;
        (&columns[row.clone()], bytemuck::cast_slice(&values[row]))
    }
}
