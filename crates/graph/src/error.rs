//! What can go wrong with a user's files, in the user's words.
//!
//! Every message is lowercase, carries values in backticks, says what was expected and what was found, and ends
//! without a full stop; a remedy follows after a blank line as `hint: …`.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of anything in this crate that touches a user's files.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file holds something other than what it must.
    #[error("{}", .0)]
    Input(Box<InputError>),
    /// The operating system refused.
    #[error("cannot {verb} `{}`: {source}", .file.display())]
    Io {
        /// What was tried: `open`, `read`, `write`, …
        verb: &'static str,
        /// On which file or folder.
        file: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// A name that is in none of our tables.
    #[error("{}", unknown_message(.kind, .name, .known))]
    Unknown {
        /// What was named: `partitioner`, `format`, …
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names that would have been right.
        known: Vec<&'static str>,
    },
    /// A request that cannot be met whatever the files hold.
    #[error("{message}{}", hint_suffix(.hint))]
    Usage {
        /// What is wrong with it.
        message: String,
        /// What to do instead.
        hint: Option<String>,
    },
    /// The user asked to stop; nothing half-written was left behind.
    #[error("interrupted")]
    Interrupted,
}

/// A place in a file that holds something unexpected.
#[derive(Debug)]
pub struct InputError {
    /// The file or folder.
    pub file: PathBuf,
    /// Where in it: `line 3`, `array x`, `edge 17`, …; empty when it is the whole file.
    pub place: String,
    /// What should have been there.
    pub expected: String,
    /// What was there.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.file.display())?;
        if !self.place.is_empty() {
            write!(f, ", {}", self.place)?;
        }
        write!(f, ": expected {}, found {}{}", self.expected, self.found, hint_suffix(&self.hint))
    }
}

impl Error {
    /// `file` holds `found` at `place` where `expected` belongs.
    pub fn input(
        file: impl AsRef<Path>,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Input(Box::new(InputError {
            file: file.as_ref().to_path_buf(),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
            hint: None,
        }))
    }

    /// An operating-system error while trying to `verb` the `file`; for use in `map_err`.
    pub fn io(verb: &'static str, file: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.as_ref().to_path_buf();
        move |source| Self::Io { verb, file, source }
    }

    /// A request that cannot be met.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// The same error with a remedy. Errors that carry none of their own are returned unchanged.
    #[must_use]
    pub fn with_hint(mut self, remedy: impl Into<String>) -> Self {
        match &mut self {
            Self::Input(input) => input.hint = Some(remedy.into()),
            Self::Usage { hint, .. } => *hint = Some(remedy.into()),
            _ => {}
        }
        self
    }
}

/// The entry of `known` that a user who typed `name` most likely meant, if any is near.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (likeness(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// From 0 to 1. Names of three letters with two of them swapped are far apart by Jaro and Winkler, but one slip
/// of the finger is one slip of the finger.
fn likeness(name: &str, candidate: &str) -> f64 {
    let slip = name.len() > 2 && strsim::damerau_levenshtein(name, candidate) == 1;
    strsim::jaro_winkler(name, candidate).max(if slip { 0.9 } else { 0.0 })
}

/// The sentence for an unknown `name` of some `kind`: what is known, and the nearest of it.
pub fn unknown_message(kind: &str, name: &str, known: &[&str]) -> String {
    let meant = match nearest(name, known) {
        Some(candidate) => format!("\n\nhint: did you mean `{candidate}`?"),
        None => String::new(),
    };
    format!("unknown {kind} `{name}`; known: {}{meant}", known.join(", "))
}

fn hint_suffix(hint: &Option<String>) -> String {
    hint.as_ref().map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_error_names_file_place_expected_found_and_remedy() {
        let error = Error::input("a/edges.csv", "line 3", "two ids", "`7`").with_hint("add the destination");
        assert_eq!(
            error.to_string(),
            "`a/edges.csv`, line 3: expected two ids, found `7`\n\nhint: add the destination"
        );
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error =
            Error::Unknown { kind: "partitioner", name: "randon".into(), known: vec!["hash", "random"] };
        assert!(error.to_string().ends_with("hint: did you mean `random`?"), "{error}");
        assert_eq!(nearest("gnc", &["sage", "gcn"]), Some("gcn"));
        assert_eq!(nearest("resnet", &["sage", "gcn"]), None);
    }
}
