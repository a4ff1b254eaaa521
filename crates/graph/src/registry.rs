//! Which names can a user choose from? The entries that are built in, and those that the running program added.
//!
//! A seam's table is a constant. A program of one's own adds entries to it once, at the start of its `main`, and from then
//! on nobody can tell them from built-in ones: whoever parses, lists, checks or suggests names asks the [`Registry`]. The
//! first question closes it, so that all who ask are given the same answer in one process: entries that come later are refused
//! instead of being known to some and not to others. Nothing here runs before `main`, and nothing is ever removed.

use crate::{Error, Result};
use std::sync::OnceLock;

/// What every entry of a table tells.
pub trait Listed {
    /// What such an entry is called in messages: `model`, `strategy`, …
    const KIND: &'static str;

    /// The name users type.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn summary(&self) -> &'static str;
}

/// A table: built-in entries, then added ones.
#[derive(Debug)]
pub struct Registry<E: 'static> {
    built_in: &'static [E],
    added: OnceLock<Vec<E>>,
}

impl<E: Listed> Registry<E> {
    /// The table of these entries, open for more.
    pub const fn new(built_in: &'static [E]) -> Self {
        Self { built_in, added: OnceLock::new() }
    }

    /// Adds entries: once, before anyone has asked for any, and under names that nobody else has.
    pub fn add(&'static self, entries: Vec<E>) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        for (at, entry) in entries.iter().enumerate() {
            let mut others = self.built_in.iter().chain(&entries[..at]);
            if let Some(other) = others.find(|other| other.name() == entry.name()) {
                return Err(twice(other, entry));
            }
        }
        self.added.set(entries).map_err(|_| self.closed())
    }

    /// Every entry, in the order in which they are listed to users.
    pub fn entries(&'static self) -> impl Iterator<Item = &'static E> {
        self.built_in.iter().chain(self.added.get_or_init(Vec::new))
    }

    /// The names of all entries.
    pub fn names(&'static self) -> Vec<&'static str> {
        self.entries().map(Listed::name).collect()
    }

    /// The entry called `name`.
    pub fn find(&'static self, name: &str) -> Result<&'static E> {
        self.entries().find(|entry| entry.name() == name).ok_or_else(|| Error::Unknown {
            kind: E::KIND,
            name: name.to_owned(),
            known: self.names(),
        })
    }

    fn closed(&'static self) -> Error {
        let added: Vec<&str> = self.added.get().into_iter().flatten().map(Listed::name).collect();
        let message = match added.as_slice() {
            [] => format!("no {} can be added after one was looked up", E::KIND),
            [..] => format!(
                "expected every {} in one call, found an earlier one with {}",
                E::KIND,
                added.join(", ")
            ),
        };
        Error::usage(message).with_hint("add all of them in one call, at the start of `main`")
    }
}

fn twice<E: Listed>(there: &E, added: &E) -> Error {
    let (kind, name) = (E::KIND, there.name());
    let (there, added) = (there.summary(), added.summary());
    Error::usage(format!("expected one {kind} called `{name}`, found two: `{there}` and `{added}`"))
        .with_hint("give the one that is added another name")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Boat(&'static str, &'static str);

    impl Listed for Boat {
        const KIND: &'static str = "boat";

        fn name(&self) -> &'static str {
            self.0
        }

        fn summary(&self) -> &'static str {
            self.1
        }
    }

    const BOATS: &[Boat] = &[Boat("raft", "logs"), Boat("canoe", "one log")];

    /// A table of its own.
    fn boats() -> &'static Registry<Boat> {
        Box::leak(Box::new(Registry::new(BOATS)))
    }

    fn refused(boats: &'static Registry<Boat>, added: Vec<Boat>) -> String {
        boats.add(added).unwrap_err().to_string()
    }

    #[test]
    fn added_entries_stand_behind_built_in_ones_and_are_found_and_suggested() {
        let boats = boats();
        boats.add(vec![Boat("ketch", "two masts"), Boat("sloop", "one mast")]).unwrap();
        assert_eq!(boats.names(), ["raft", "canoe", "ketch", "sloop"]);
        assert_eq!(boats.find("sloop").unwrap().summary(), "one mast");
        assert_eq!(boats.find("raft").unwrap().summary(), "logs");
        let message = boats.find("skoop").err().unwrap().to_string();
        assert_eq!(
            message,
            "unknown boat `skoop`; known: raft, canoe, ketch, sloop\n\nhint: did you mean `sloop`?"
        );
    }

    #[test]
    fn a_name_that_two_entries_have_is_refused_with_both_and_nothing_is_added() {
        let boats = boats();
        let message = refused(boats, vec![Boat("ketch", "two masts"), Boat("canoe", "of bark")]);
        assert!(
            message.starts_with(
                "expected one boat called `canoe`, found two: `one log` and `of bark`\n\nhint: "
            ),
            "{message}"
        );
        let message = refused(boats, vec![Boat("ketch", "two masts"), Boat("ketch", "two more")]);
        assert!(message.contains("`ketch`, found two: `two masts` and `two more`"), "{message}");
        assert_eq!(boats.names(), ["raft", "canoe"]);
    }

    #[test]
    fn a_table_is_closed_by_the_first_addition_and_by_the_first_question() {
        let boats = boats();
        boats.add(vec![Boat("ketch", "two masts")]).unwrap();
        let message = refused(boats, vec![Boat("sloop", "one mast")]);
        assert!(
            message.starts_with("expected every boat in one call, found an earlier one with ketch\n\nhint: "),
            "{message}"
        );
        assert_eq!(boats.names(), ["raft", "canoe", "ketch"]);

        let boats = self::boats();
        boats.add(Vec::new()).unwrap();
        assert!(boats.find("raft").is_ok());
        let message = refused(boats, vec![Boat("sloop", "one mast")]);
        assert!(
            message.starts_with("no boat can be added after one was looked up\n\nhint: add all"),
            "{message}"
        );
        assert_eq!(boats.names(), ["raft", "canoe"]);
    }
}
