//! What can go wrong between a run file and its weights, in the user's words, and the exit code of each.
//!
//! The style of messages is that of [`archipelago_graph::error`].

use archipelago_comm::{Error as CommError, Failure, LaunchError};
use archipelago_graph::Error as GraphError;
use archipelago_graph::error::unknown_message;
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of anything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A dataset, a store or another file of the user.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// Talking to the other ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A run file, a `--set` or a flag asks for something that cannot be.
    #[error("{}", .0)]
    Config(Box<ConfigError>),
    /// A name that is in none of our tables.
    #[error("{}", unknown_message(.kind, .name, .known))]
    Unknown {
        /// What was named: `strategy`, `model`, …
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names that would have been right.
        known: Vec<&'static str>,
    },
    /// A checkpoint that cannot be used.
    #[error("`{}`: {message}{}", .file.display(), hint_suffix(.hint.as_deref()))]
    Checkpoint {
        /// The file or folder at fault.
        file: PathBuf,
        /// What is wrong with it.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A layer that contradicts itself: a mistake of its author.
    #[error("{message}\n\nhint: see `Layer` in the documentation of `archipelago_train::model`")]
    Layer {
        /// What does not fit.
        message: String,
    },
    /// Training left the numbers.
    #[error(
        "{what} is not a finite number in epoch {epoch}, step {step}\n\nhint: lower `train.lr`, set \
         `train.clip_norm`, or look for NaN in the features with `archi check`"
    )]
    NotFinite {
        /// The epoch, counted from 1.
        epoch: u64,
        /// The step, counted from 1 over the whole run.
        step: u64,
        /// What was not finite: `the loss`, `the gradient`, …
        what: String,
    },
    /// The ranks of a run could not be started, one of them panicked, or one in another process failed.
    #[error("{message}")]
    Launch {
        /// What happened.
        message: String,
        /// The exit code that goes with it.
        code: u8,
    },
    /// The user asked to stop; a checkpoint was written before.
    #[error("interrupted")]
    Interrupted,
}

/// A key of the run with a value that it cannot have, and where that value came from.
#[derive(Debug)]
pub struct ConfigError {
    /// Where the value was given.
    pub place: Place,
    /// `section.key`, or the section alone, or nothing when the file is no TOML at all.
    pub key: String,
    /// What was found and what was expected.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Where a value of the run was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a run file.
    File {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// By this `--set`.
    Set(String),
    /// Neither: a default, or a flag of the command.
    Elsewhere,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.place {
            Place::File { file, line } => format!("`{}`, line {line}", file.display()),
            Place::Set(text) => format!("`--set {text}`"),
            Place::Elsewhere => String::new(),
        };
        let key = if self.key.is_empty() { String::new() } else { format!("`{}`", self.key) };
        let comma = if place.is_empty() || key.is_empty() { "" } else { ", " };
        write!(f, "{place}{comma}{key}: {}{}", self.message, hint_suffix(self.hint.as_deref()))
    }
}

impl Error {
    /// A value given at `place` for `key` that cannot be.
    pub fn config(place: Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Config(Box::new(ConfigError { place, key: key.into(), message: message.into(), hint: None }))
    }

    /// A checkpoint `file` that cannot be used.
    pub fn checkpoint(file: impl AsRef<Path>, message: impl Into<String>) -> Self {
        Self::Checkpoint { file: file.as_ref().to_path_buf(), message: message.into(), hint: None }
    }

    /// The same error with a remedy. Errors that carry none of their own are returned unchanged.
    #[must_use]
    pub fn with_hint(self, remedy: impl Into<String>) -> Self {
        let remedy = remedy.into();
        match self {
            Self::Graph(error) => Self::Graph(error.with_hint(remedy)),
            Self::Config(mut error) => {
                error.hint = Some(remedy);
                Self::Config(error)
            }
            Self::Checkpoint { file, message, .. } => Self::Checkpoint { file, message, hint: Some(remedy) },
            other => other,
        }
    }
}

impl Failure for Error {
    /// What the program returns to the shell: 2 for bad usage or input, found before anything was started;
    /// 1 for what failed while running; 130 when the user interrupted.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Graph(error) => graph_exit_code(error),
            Self::Comm(error) => error.exit_code(),
            Self::Launch { code, .. } => *code,
            Self::NotFinite { .. } | Self::Layer { .. } => 1,
            Self::Config(_) | Self::Unknown { .. } | Self::Checkpoint { .. } => 2,
        }
    }
}

/// The exit code of an error about files.
pub fn graph_exit_code(error: &GraphError) -> u8 {
    match error {
        GraphError::Interrupted => 130,
        GraphError::Io { verb, .. } if !reads(verb) => 1,
        _ => 2,
    }
}

impl From<LaunchError<Error>> for Error {
    fn from(failure: LaunchError<Error>) -> Self {
        failure.own().unwrap_or_else(|(message, code)| Self::Launch { message, code })
    }
}

/// Whether an operating-system error of this `verb` is about what the user gave, not about what we leave.
fn reads(verb: &str) -> bool {
    ["open", "read", "list", "map"].iter().any(|reading| verb.starts_with(reading))
}

fn hint_suffix(hint: Option<&str>) -> String {
    hint.map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_error_names_file_line_key_and_remedy() {
        let place = Place::File { file: "run.toml".into(), line: 3 };
        let error =
            Error::config(place, "model.layers", "expected 1 or more, found `0`").with_hint("write 2");
        assert_eq!(
            error.to_string(),
            "`run.toml`, line 3, `model.layers`: expected 1 or more, found `0`\n\nhint: write 2"
        );
    }

    #[test]
    fn bad_input_is_2_a_failure_while_running_1_and_an_interruption_130() {
        let io = |verb| GraphError::io(verb, "x")(std::io::Error::other("no"));
        let not_finite = Error::NotFinite { epoch: 1, step: 1, what: "the loss".into() };
        let codes = [
            (Error::from(GraphError::usage("no")), 2),
            (Error::from(GraphError::input("x", "line 1", "a", "b")), 2),
            (Error::from(io("open")), 2),
            (Error::from(io("write")), 1),
            (Error::config(Place::Elsewhere, "train.lr", "no"), 2),
            (Error::checkpoint("x", "no"), 2),
            (not_finite, 1),
            (Error::from(CommError::Aborted { rank: 1, message: "no".into() }), 1),
            (Error::from(CommError::Usage { message: "no".into(), hint: "yes" }), 2),
            (Error::from(GraphError::Interrupted), 130),
            (Error::Interrupted, 130),
        ];
        for (error, code) in codes {
            assert_eq!(error.exit_code(), code, "{error}");
        }
    }
}
