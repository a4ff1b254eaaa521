//! What the user sees: text on stderr while work goes on, data on stdout, and nothing else anywhere.

pub mod units;
pub mod table;
pub mod passes;
pub mod training;

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;

/// Writes a line about the work to stderr. A closed stderr is no reason to stop.
pub fn say(line: impl Display) {
    let _ = writeln!(stderr().lock(), "{line}");
}

/// Writes data to stdout.
pub fn print(data: impl Display) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{data}")?;
    Ok(out.flush()?)
}

/// Writes `data` to stdout as JSON.
pub fn print_json(data: &impl serde::Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(data)?)
}

/// Whether somebody watches stderr, so that lines may be redrawn.
pub fn is_watched() -> bool {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    *WATCHED
        .get_or_init(|| stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
}

/// `text`, standing out, where stderr shows it.
pub fn bold(text: &str) -> String {
    styled(text, "1")
}

/// `text`, in the background, where stderr shows it.
pub fn dim(text: &str) -> String {
    styled(text, "2")
}

/// `text`, alarming, where stderr shows it.
pub fn red(text: &str) -> String {
    styled(text, "1;31")
}

fn styled(text: &str, code: &str) -> String {
    if is_watched() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}
