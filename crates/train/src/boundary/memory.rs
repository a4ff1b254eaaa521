//! What one rank carries from step to step and a checkpoint must hold: named lists of numbers.

use crate::Result;
use archipelago_comm::{Comm, Kind, Tag};
use std::collections::BTreeMap;

/// The conversation in which ranks hand over what they remember.
const HAND_OVER: Tag = Tag::new(5);

/// Named numbers of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// Lists of floats, by name.
    pub floats: BTreeMap<String, Vec<f32>>,
    /// Lists of whole numbers, by name.
    pub words: BTreeMap<String, Vec<u64>>,
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

    /// Hands the memory of every rank to rank 0, one rank after the other, which gives it to `keep`: it never holds more
    /// than that of one other rank, and no rank makes a copy (`own`) before its turn. All ranks call together.
    pub fn hand_over(
        comm: &Comm,
        own: impl FnOnce() -> Result<Self>,
        mut keep: impl FnMut(usize, Self) -> Result<()>,
    ) -> Result<()> {
        if comm.rank() > 0 {
            comm.receive(0, HAND_OVER, Kind::Control)?;
            return own()?.send(comm);
        }
        keep(0, own()?)?;
        for rank in 1..comm.size() {
            comm.send(rank, HAND_OVER, Kind::Control, comm.frame(0))?;
            keep(rank, Self::receive(comm, rank)?)?;
        }
        Ok(())
    }

    fn send(self, comm: &Comm) -> Result<()> {
        let floats =
            self.floats.iter().map(|(name, values)| (name, 'f', bytemuck::cast_slice::<f32, u8>(values)));
        let words =
            self.words.iter().map(|(name, values)| (name, 'w', bytemuck::cast_slice::<u64, u8>(values)));
        let lists: Vec<_> = floats.chain(words).collect();
        let names: String = lists.iter().map(|(name, kind, _)| format!("{kind}{name}\n")).collect();
        for bytes in std::iter::once(names.as_bytes()).chain(lists.iter().map(|(.., bytes)| *bytes)) {
            let mut frame = comm.frame(bytes.len());
            frame.bytes_mut().copy_from_slice(bytes);
            comm.send(0, HAND_OVER, Kind::Weights, frame)?;
        }
        Ok(())
    }

    fn receive(comm: &Comm, from: usize) -> Result<Self> {
        let mut memory = Self::default();
        let names = comm.receive(from, HAND_OVER, Kind::Weights)?;
        for line in String::from_utf8_lossy(names.bytes()).lines() {
            let frame = comm.receive(from, HAND_OVER, Kind::Weights)?;
            match line.split_at(1) {
                ("f", name) => memory.put(name, frame.values()),
                (_, name) => memory.put_words(name, frame.values()),
            }
        }
        Ok(memory)
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.floats.is_empty() && self.words.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_comm::{Config, launch};
    use std::sync::Mutex;

    #[test]
    fn rank_0_is_handed_the_memory_of_every_rank_in_turn() {
        let heard = Mutex::new(Vec::new());
        let memory = |rank: usize| {
            let mut memory = Memory::default();
            memory.put(format!("rows of {rank}"), &vec![0.5; rank * 3]);
            memory.put_words("version", &[rank as u64; 2]);
            memory
        };
        let hand_over = |comm: Comm| {
            Memory::hand_over(
                &comm,
                || Ok(memory(comm.rank())),
                |rank, memory| {
                    heard.lock().unwrap().push((rank, memory));
                    Ok(())
                },
            )
        };
        launch(&Config::threads(3), hand_over).unwrap();
        assert_eq!(*heard.lock().unwrap(), [0, 1, 2].map(|rank| (rank, memory(rank))));
    }
}
