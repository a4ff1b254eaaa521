//! Long passes over files as a bar, or as a line now and then when nobody watches.

use super::units;
use crate::interrupt;
use archipelago_graph::progress::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Passes shorter than this leave no line; longer ones leave one as often as this at most.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows the passes of one command, and stops them when the user asks to.
#[derive(Default)]
pub struct Passes {
    pass: Mutex<Option<Pass>>,
}

/// The pass that is under way.
struct Pass {
    name: String,
    total: u64,
    unit: &'static str,
    done: u64,
    said: Instant,
    bar: Option<ProgressBar>,
}

impl Passes {
    /// Takes the bar of the last pass off the terminal.
    pub fn clear(&self) {
        let pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(bar) = pass.and_then(|pass| pass.bar) {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Progress for Passes {
    fn begin(&self, name: &str, total: u64, unit: &'static str) {
        self.clear();
        let bar = super::is_watched().then(|| bar(name, total, unit));
        let pass = Pass { name: name.to_owned(), total, unit, done: 0, said: Instant::now(), bar };
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = Some(pass);
    }

    fn advance(&self, count: u64) {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pass) = pass.as_mut() {
            pass.advance(count);
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

impl Pass {
    fn advance(&mut self, count: u64) {
        self.done += count;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if self.said.elapsed() > BETWEEN_LINES {
            self.said = Instant::now();
            super::say(self.line());
        }
    }

    fn line(&self) -> String {
        let done = amount(self.done, self.unit);
        match self.total {
            0 => format!("{}: {done}", self.name),
            total => format!(
                "{}: {done} of {}, {}",
                self.name,
                amount(total, self.unit),
                units::percent(self.done as f64 / total as f64)
            ),
        }
    }
}

fn amount(number: u64, unit: &str) -> String {
    if unit == "bytes" { units::bytes(number) } else { format!("{} {unit}", units::count(number)) }
}

fn bar(name: &str, total: u64, unit: &'static str) -> ProgressBar {
    let position = if unit == "bytes" { "{bytes}/{total_bytes}" } else { "{human_pos}/{human_len}" };
    let template = match total {
        0 => format!("{{spinner}} {{msg}} {{human_pos}} {unit}"),
        _ => format!("{{msg:24}} {{wide_bar}} {position} {unit} {{eta:>4}}"),
    };
    let bar = if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}
