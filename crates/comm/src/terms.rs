//! Before ranks work together: do all of them mean the same, and has the first prepared what all need?

use crate::{Comm, Error, Kind, Result, Tag, lock};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The conversation in which rank 0 tells that it is still at work.
const LEAD: Tag = Tag::new(63);
/// How often it does.
const PULSE: Duration = Duration::from_secs(1);

/// A name and a value that must be the same on all ranks.
pub type Fact = (String, String);

impl Comm {
    /// Fails on every rank when some rank's facts are others than those of rank 0, naming the rank and the fact.
    pub fn same_everywhere(&self, facts: &[Fact]) -> Result<()> {
        let mine: Vec<u8> =
            facts.iter().flat_map(|(name, value)| format!("{name}\0{value}\0").into_bytes()).collect();
        let mut length = [mine.len() as u64];
        self.broadcast(0, &mut length, Kind::Control)?;
        let mut first = mine.clone();
        first.resize(length[0] as usize, 0);
        self.broadcast(0, &mut first, Kind::Control)?;
        let text = String::from_utf8_lossy(&first);
        let mut expected = text.split('\0');
        for (name, value) in facts {
            let (wanted_name, wanted) = (expected.next().unwrap_or(""), expected.next().unwrap_or(""));
            if (name.as_str(), value.as_str()) != (wanted_name, wanted) {
                return Err(self.fail(self.differs(name, value, wanted_name, wanted)));
            }
        }
        match expected.next() {
            Some(name) if !name.is_empty() => Err(self.fail(self.differs(name, "", name, ""))),
            _ => self.barrier(),
        }
    }

    fn differs(&self, name: &str, value: &str, wanted_name: &str, wanted: &str) -> Error {
        let (found, expected) = match name == wanted_name {
            true => (value.to_owned(), wanted.to_owned()),
            false => (format!("{name} {value}"), format!("{wanted_name} {wanted}")),
        };
        Error::Differs { rank: self.rank(), what: name.to_owned(), found, expected }
    }

    /// Rank 0 does `work`, which may take long; the others wait for it and get `None`. The deadline bounds the
    /// silence of rank 0, not its work: it gives a sign of life every second.
    pub fn led_by_first<T, E: From<Error>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        if self.rank() != 0 {
            while !self.receive(0, LEAD, Kind::Control)?.is_empty() {}
            return Ok(None);
        }
        let (done, news) = (Mutex::new(false), Condvar::new());
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                let mut finished = lock(&done);
                while !*finished && self.tell_others(1).is_ok() {
                    (finished, _) =
                        news.wait_timeout(finished, PULSE).unwrap_or_else(PoisonError::into_inner);
                }
            });
            let outcome = work();
            *lock(&done) = true;
            news.notify_all();
            outcome
        })?;
        self.tell_others(0)?;
        Ok(Some(outcome))
    }

    /// A frame of `bytes` bytes to every other rank.
    fn tell_others(&self, bytes: usize) -> Result<()> {
        (1..self.size()).try_for_each(|peer| self.send(peer, LEAD, Kind::Control, self.frame(bytes)))
    }
}
