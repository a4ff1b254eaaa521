//! What can a user set about a method, and what did they set?
//!
//! A method declares its settings in its `ENTRY`; values are text until the method asks for one, and a wrong name or
//! value is refused with what was expected.

use super::{Entry, Request};
use crate::{Error, Result};

/// One thing about a method that can be set.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name users type.
    pub name: &'static str,
    /// Its value unless they do, as they would type it.
    pub default: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// What it may be.
    pub values: Values,
}

/// What a setting may be.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// A number from the first to the second, both included.
    Number(f64, f64),
    /// A whole number from the first to the second, both included.
    Count(u64, u64),
    /// One of these words.
    Words(&'static [&'static str]),
}

impl Request {
    /// The number that `entry` calls `name`.
    pub fn number(&self, entry: &Entry, name: &str) -> Result<f64> {
        let (setting, text) = self.text(entry, name)?;
        text.parse().map_err(|_| wrong(entry, setting, text))
    }

    /// The whole number that `entry` calls `name`.
    pub fn count(&self, entry: &Entry, name: &str) -> Result<u64> {
        let (setting, text) = self.text(entry, name)?;
        text.parse().map_err(|_| wrong(entry, setting, text))
    }

    /// Whether the setting that `entry` calls `name` is `word`.
    pub fn is(&self, entry: &Entry, name: &str, word: &str) -> Result<bool> {
        Ok(self.text(entry, name)?.1 == word)
    }

    fn text<'a>(&'a self, entry: &Entry, name: &str) -> Result<(&'static Setting, &'a str)> {
        let setting = find(entry, name)?;
        let text = self.settings.get(name).map_or(setting.default, String::as_str);
        if allowed(setting, text) { Ok((setting, text)) } else { Err(wrong(entry, setting, text)) }
    }
}

/// Refuses settings that `entry` does not have, and values that they cannot have.
pub(super) fn check(entry: &Entry, request: &Request) -> Result<()> {
    request.settings.keys().try_for_each(|name| request.text(entry, name).map(drop))
}

fn find(entry: &Entry, name: &str) -> Result<&'static Setting> {
    if entry.settings.is_empty() {
        return Err(Error::usage(format!(
            "the partitioner `{}` has no settings, found `{name}`",
            entry.name
        )));
    }
    entry.settings.iter().find(|setting| setting.name == name).ok_or_else(|| Error::Unknown {
        kind: "setting",
        name: name.to_owned(),
        known: entry.settings.iter().map(|setting| setting.name).collect(),
    })
}

fn allowed(setting: &Setting, text: &str) -> bool {
    match setting.values {
        Values::Number(low, high) => text.parse().is_ok_and(|value: f64| (low..=high).contains(&value)),
        Values::Count(low, high) => text.parse().is_ok_and(|value: u64| (low..=high).contains(&value)),
        Values::Words(words) => words.contains(&text),
    }
}

fn wrong(entry: &Entry, setting: &Setting, text: &str) -> Error {
    Error::usage(format!(
        "setting `{}` of the partitioner `{}`: expected {}, found `{text}`",
        setting.name,
        entry.name,
        expected(setting.values)
    ))
}

/// The values that a setting may have, in words.
pub fn expected(values: Values) -> String {
    match values {
        Values::Number(low, high) if high == f64::INFINITY => format!("a number from {low}"),
        Values::Number(low, high) => format!("a number from {low} to {high}"),
        Values::Count(low, u64::MAX) => format!("a whole number from {low}"),
        Values::Count(low, high) => format!("a whole number from {low} to {high}"),
        Values::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
    }
}
