//! Splits a run file, or a `--set`, into single assignments that remember where they stand.

use crate::error::{Error, Place, Result};
use std::ops::Range;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// `section.key = text`, and where that was written.
#[derive(Debug, PartialEq)]
pub(super) struct Assignment {
    /// The name between the brackets.
    pub section: String,
    /// The key; empty for the line that opens the section.
    pub key: String,
    /// The value as written.
    pub text: String,
    /// Where.
    pub place: Place,
}

/// The assignments of a run file with this `text`, in the order of its lines.
pub(super) fn read_file(file: &Path, text: &str) -> Result<Vec<Assignment>> {
    let place =
        |span: &Range<usize>| Place::File { file: file.to_path_buf(), line: line_of(text, span.start) };
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        Error::config(place(&span), "", format!("is not TOML: {}", error.message()))
    })?;
    let mut found: Vec<(Range<usize>, Assignment)> = Vec::new();
    let mut add = |section: &str, key: &str, span: Range<usize>, text: &str| {
        let (section, key, text) = (section.to_string(), key.to_string(), text.to_string());
        found.push((span.clone(), Assignment { section, key, text, place: place(&span) }));
    };
    for (section, body) in document.get_ref() {
        let (name, span) = (section.get_ref().as_ref(), section.span());
        let DeValue::Table(keys) = body.get_ref() else {
            let message = format!("expected a section `[{name}]`, found `{}`", &text[body.span()]);
            return Err(Error::config(place(&span), name, message)
                .with_hint("every key stands in a section, such as `[train]`"));
        };
        add(name, "", span, "");
        for (key, value) in keys {
            add(name, key.get_ref(), key.span(), &text[value.span()]);
        }
    }
    found.sort_by_key(|(span, _)| span.start);
    Ok(found.into_iter().map(|(_, assignment)| assignment).collect())
}

/// The assignment of one `--set section.key=value`.
pub(super) fn read_set(set: &str) -> Result<Assignment> {
    let parts =
        set.split_once('=').and_then(|(path, text)| Some((path.trim().split_once('.')?, text.trim())));
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
