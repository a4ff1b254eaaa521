//! What is said between the samplers of two ranks: questions, answers, and news.
//!
//! A message is 32-bit words: a head of four (what, step, hop, count), then what it carries. Node ids take one word
//! where the graph has fewer than 2^32 nodes, else two; so everything stays aligned.

use crate::{Error, Result};
use archipelago_comm::{Comm, Frame, Kind, Tag};

/// The conversation of samplers.
pub(super) const TAG: Tag = Tag::new(2);

/// Words of a head.
const HEAD: usize = Head::WORDS;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum What {
    /// Draw in-edges of these rows of yours.
    Ask,
    /// The in-edges that you asked for.
    Told,
    /// Send features of these rows of yours.
    Want,
    /// The features that you wanted.
    Rows,
    /// This rank will ask nothing more in this epoch.
    Done,
    /// Look around: something has changed on this rank.
    Wake,
}

const ALL: [What; 6] = [What::Ask, What::Told, What::Want, What::Rows, What::Done, What::Wake];

/// The head of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub what: What,
    pub step: u32,
    pub hop: u32,
    pub count: u32,
}

impl Head {
    /// Words that a head takes.
    pub const WORDS: usize = 4;

    pub fn new(what: What, step: u32, hop: u32, count: usize) -> Self {
        Self { what, step, hop, count: count as u32 }
    }

    /// The head of a message that arrived, and the words after it.
    pub fn read(frame: &Frame) -> Result<(Self, &[u32])> {
        let words: &[u32] = bytemuck::try_cast_slice(frame.bytes()).map_err(|_| garbled("whole words"))?;
        let (head, rest) = words.split_at_checked(HEAD).ok_or_else(|| garbled("a head"))?;
        let what = *ALL.get(head[0] as usize).ok_or_else(|| garbled("a known kind of message"))?;
        Ok((Self { what, step: head[1], hop: head[2], count: head[3] }, rest))
    }

    /// A message of this head and `words` more, to be filled by `fill`.
    pub fn frame(
        self,
        comm: &Comm,
        words: usize,
        fill: impl FnOnce(&mut [u32]) -> Result<()>,
    ) -> Result<Frame> {
        let mut frame = comm.frame(4 * (HEAD + words));
        let (head, rest) = frame.values_mut::<u32>().split_at_mut(HEAD);
        head.copy_from_slice(&[self.what as u32, self.step, self.hop, self.count]);
        fill(rest)?;
        Ok(frame)
    }

    /// Sends a message of this head and `words`.
    pub fn send(self, comm: &Comm, to: usize, words: &[u32]) -> Result<()> {
        let frame = self.frame(comm, words.len(), |rest| {
            rest.copy_from_slice(words);
            Ok(())
        })?;
        Ok(comm.send(to, TAG, Kind::Control, frame)?)
    }
}

/// What arrived was not a message of this program: a defect, or other code at the other end.
pub(super) fn garbled(expected: &str) -> Error {
    Error::from(archipelago_graph::Error::usage(format!(
        "a message between samplers lacks {expected}: are all processes the same archi?"
    )))
}

/// How node ids are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    wide: bool,
}

impl Ids {
    /// Ids of a graph of so many nodes.
    pub fn of(nodes: u64) -> Self {
        Self { wide: nodes > u64::from(u32::MAX) }
    }

    /// Words per id.
    pub fn words(self) -> usize {
        1 + usize::from(self.wide)
    }

    /// Writes `id` as the `place`-th of `words`.
    pub fn put(self, words: &mut [u32], place: usize, id: u64) {
        match self.wide {
            true => {
                words[2 * place] = id as u32;
                words[2 * place + 1] = (id >> 32) as u32;
            }
            false => words[place] = id as u32,
        }
    }

    /// Reads the `place`-th of `words`.
    pub fn get(self, words: &[u32], place: usize) -> u64 {
        match self.wide {
            true => u64::from(words[2 * place]) | u64::from(words[2 * place + 1]) << 32,
            false => u64::from(words[place]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_as_they_were_written() {
        for (nodes, ids) in [(1 << 20, [0, 5, (1 << 20) - 1]), (1 << 40, [7, 1 << 33, (1 << 40) - 1])] {
            let form = Ids::of(nodes);
            let mut words = vec![0; 3 * form.words()];
            ids.iter().enumerate().for_each(|(place, &id)| form.put(&mut words, place, id));
            ids.iter().enumerate().for_each(|(place, &id)| assert_eq!(form.get(&words, place), id));
        }
    }
}
