//! Splits a run file, or a `--set`, into single assignments that remember where they stand.

use crate::error::{Error, Place, Result};
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// `section.key = text`, and where that was written.
#[derive(Debug, PartialEq)]
pub(super) struct Assignment {
    /// The name between the brackets.
    pub section: String,
    /// The key; empty for a section without keys.
    pub key: String,
    /// The value as written.
    pub text: String,
    /// Where.
    pub place: Place,
}

/// The assignments of a run file with this `text`, in the order of the file's tables.
pub(super) fn read_file(file: &Path, text: &str) -> Result<Vec<Assignment>> {
    let place = |span: &Range<usize>| Place::File {
        file: file.to_path_buf(),
        line: line_of(text, span.start),
    };
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        Error::config(place(&span), "", format!("is not TOML: {}", error.message()))
    })?;
    let mut assignments = Vec::new();
    for (section, body) in document.get_ref() {
        let DeValue::Table(keys) = body.get_ref() else {
            return Err(Error::config(
                place(&section.span()),
                section.get_ref().as_ref(),
                format!(
                    "expected a section `[{}]`, found `{}`",
                    section.get_ref(),
                    &text[body.span()]
                ),
            )
            .with_hint("every key stands in a section, such as `[train]`"));
        };
        let named = |key: &Spanned<_>, written: &str| (place(&key.span()), written.to_string());
        for (key, value) in keys {
            let (place, text) = named(key, &text[value.span()]);
            assignments.push(Assignment {
                section: section.get_ref().to_string(),
                key: key.get_ref().to_string(),
                text,
                place,
            });
        }
        if keys.is_empty() {
            let (place, text) = named(section, "");
            let section = section.get_ref().to_string();
            assignments.push(Assignment { section, key: String::new(), text, place });
        }
    }
    Ok(assignments)
}

/// The assignment of one `--set section.key=value`.
pub(super) fn read_set(set: &str) -> Result<Assignment> {
    let parts = set
        .split_once('=')
        .and_then(|(path, text)| Some((path.trim().split_once('.')?, text.trim())));
    match parts {
        Some(((section, key), text)) if !section.is_empty() && !key.is_empty() => Ok(Assignment {
            section: section.into(),
            key: key.into(),
            text: text.into(),
            place: Place::Set(set.into()),
        }),
        _ => Err(Error::config(Place::Set(set.into()), "", "expected `section.key=value`")
            .with_hint("such as `--set train.lr=0.005`")),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
}
