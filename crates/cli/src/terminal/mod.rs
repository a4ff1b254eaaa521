//! What the user sees: text on stderr while work goes on, data on stdout, and nothing else anywhere.

pub mod units;
pub mod table;
pub mod picture;
pub mod svg;
pub mod passes;
pub mod training;

use std::fmt::Display;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes a line about the work to stderr, in one piece: whoever relays it is woken by each. A closed stderr is no reason to stop.
pub fn say(line: impl Display) {
    let _ = stderr().lock().write_all(format!("{line}\n").as_bytes());
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

/// Set when what this process says goes into a log of its own.
static LOG: AtomicBool = AtomicBool::new(false);

/// From now on what this process says goes into a log of its own.
pub fn become_log() {
    LOG.store(true, Ordering::Relaxed);
}

/// Whether what this process says goes into a log of its own.
pub fn is_log() -> bool {
    LOG.load(Ordering::Relaxed)
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

/// How stdout shows a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Characters of a line.
    pub width: usize,
    /// Whether it has colours.
    pub colors: bool,
}

impl Canvas {
    /// That of stdout: as wide as the terminal, or as `COLUMNS` says, or 100 characters.
    pub fn stdout() -> Self {
        let written = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let shown = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let plain = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colors = stdout().is_terminal() && !plain && wants_color();
        Self { width: written.or(shown).unwrap_or(100), colors }
    }

    /// `text` in the colour of pictures, where there are colours.
    pub fn paint(self, text: &str) -> String {
        if self.colors && !text.trim().is_empty() { escaped(text, "36") } else { text.to_owned() }
    }
}

fn styled(text: &str, code: &str) -> String {
    if is_watched() && wants_color() { escaped(text, code) } else { text.to_owned() }
}

fn wants_color() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn escaped(text: &str, code: &str) -> String {
    format!("\x1b[{code}m{text}\x1b[0m")
}
