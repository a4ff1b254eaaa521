//! What one rank carries from step to step and a checkpoint must hold: named lists of numbers.

use crate::Result;
use crate::checkpoint::Checkpoint;
use archipelago_comm::{Comm, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Named numbers of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    floats: BTreeMap<String, Vec<f32>>,
    words: BTreeMap<String, Vec<u64>>,
}

impl Memory {
    /// Keeps `values` under `name`.
    pub fn put(&mut self, name: impl Into<String>, values: &[f32]) {
        self.floats.insert(name.into(), values.to_vec());
    }

    /// Keeps whole numbers under `name`.
    pub fn put_words(&mut self, name: impl Into<String>, values: &[u64]) {
        self.words.insert(name.into(), values.to_vec());
    }

    /// The values called `name`, if there are any.
    pub fn get(&self, name: &str) -> Option<&[f32]> {
        self.floats.get(name).map(Vec::as_slice)
    }

    /// The whole numbers called `name`, if there are any.
    pub fn words(&self, name: &str) -> Option<&[u64]> {
        self.words.get(name).map(Vec::as_slice)
    }

    /// All of `other` as well.
    pub fn extend(&mut self, other: Self) {
        self.floats.extend(other.floats);
        self.words.extend(other.words);
    }

    /// Gathers the memory of all ranks at rank 0, which gets a list in rank order. All ranks call together.
    pub fn gather(mut self, comm: &Comm) -> Result<Option<Vec<Self>>> {
        let mut ranks = (comm.rank() == 0).then(|| vec![Self::default(); comm.size()]);
        for name in names_of_all(comm, self.floats.keys())? {
            let values = self.floats.remove(&name).unwrap_or_default();
            let gathered = comm.gather(0, &values, Kind::Weights)?;
            for (rank, values) in ranks.iter_mut().flatten().zip(gathered.into_iter().flatten()) {
                rank.floats.insert(name.clone(), values);
            }
        }
        for name in names_of_all(comm, self.words.keys())? {
            let values = self.words.remove(&name).unwrap_or_default();
            let gathered = comm.gather(0, &values, Kind::Weights)?;
            for (rank, values) in ranks.iter_mut().flatten().zip(gathered.into_iter().flatten()) {
                rank.words.insert(name.clone(), values);
            }
        }
        Ok(ranks)
    }

    /// Writes the memory of `rank` into a checkpoint.
    pub fn write(self, rank: usize, checkpoint: &mut Checkpoint) {
        let named = |name: String| format!("rank.{rank}.{name}");
        checkpoint.floats.extend(self.floats.into_iter().map(|(name, values)| (named(name), values)));
        checkpoint.words.extend(self.words.into_iter().map(|(name, values)| (named(name), values)));
    }

    /// What a checkpoint holds of `rank`.
    pub fn read(rank: usize, checkpoint: &Checkpoint) -> Self {
        let prefix = format!("rank.{rank}.");
        let mine = |name: &String| name.strip_prefix(&prefix).map(str::to_owned);
        Self {
            floats: checkpoint.floats.iter().filter_map(|(n, v)| Some((mine(n)?, v.clone()))).collect(),
            words: checkpoint.words.iter().filter_map(|(n, v)| Some((mine(n)?, v.clone()))).collect(),
        }
    }
}

/// Every name that some rank has: a layer that crosses no border on one rank leaves no memory there.
fn names_of_all<'a>(comm: &Comm, mine: impl Iterator<Item = &'a String>) -> Result<BTreeSet<String>> {
    let text: Vec<u8> = mine.flat_map(|name| format!("{name}\n").into_bytes()).collect();
    let texts = comm.all_gather(&text, Kind::Control)?;
    let names = |text: &Vec<u8>| String::from_utf8_lossy(text).lines().map(str::to_owned).collect::<Vec<_>>();
    Ok(texts.iter().flat_map(names).collect())
}
