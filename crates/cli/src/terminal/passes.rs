//! Long passes over files as a bar, or as a line now and then when nobody watches.

use super::units;
use crate::interrupt;
use archipelago_graph::progress::Progress;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Passes shorter than this leave no line; longer ones leave one as often as this at most.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows the passes of one command, and stops them when the user asks to.
#[derive(Default)]
pub struct Passes {
    pass: Mutex<Option<Pass>>,
    over: Mutex<Vec<Over>>,
}

/// The pass that is under way.
struct Pass {
    name: String,
    total: u64,
    unit: &'static str,
    done: u64,
    began: Instant,
    advanced: Instant,
    said: Instant,
    bar: Option<ProgressBar>,
}

/// A pass that is over.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Over {
    /// What it was called.
    pub name: String,
    /// What it counted.
    pub unit: &'static str,
    /// How many of them.
    pub done: u64,
    /// How long they took.
    pub secs: f64,
}

impl Passes {
    /// Ends the last pass and takes its bar off the terminal.
    pub fn clear(&self) {
        let pass = lock(&self.pass).take();
        if let Some(pass) = pass {
            let secs = (pass.advanced - pass.began).as_secs_f64();
            lock(&self.over).push(Over { name: pass.name, unit: pass.unit, done: pass.done, secs });
            if let Some(bar) = pass.bar {
                bar.finish_and_clear();
            }
        }
    }

    /// Ends the last pass, and hands over all that have ended since this was last asked.
    pub fn take_over(&self) -> Vec<Over> {
        self.clear();
        std::mem::take(&mut lock(&self.over))
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
        let now = Instant::now();
        let (began, advanced, said) = (now, now, now);
        let pass = Pass { name: name.to_owned(), total, unit, done: 0, began, advanced, said, bar };
        *lock(&self.pass) = Some(pass);
    }

    fn advance(&self, count: u64) {
        if let Some(pass) = lock(&self.pass).as_mut() {
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
        self.advanced = Instant::now();
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        } else if self.advanced - self.said > BETWEEN_LINES {
            self.said = self.advanced;
            super::say(self.line());
        }
    }

    fn line(&self) -> String {
        let mut line = format!("{}: {}", self.name, amount(self.done, self.unit));
        let secs = (self.advanced - self.began).as_secs_f64();
        if self.total > 0 {
            let share = self.done as f64 / self.total as f64;
            line += &format!(" of {}, {}", amount(self.total, self.unit), units::percent(share));
        }
        if let Some(rate) = units::rate(self.done, self.unit, secs) {
            line += &format!(", {rate}");
        }
        if self.done > 0 && self.done < self.total {
            let left = secs / self.done as f64 * (self.total - self.done) as f64;
            line += &format!(", {} left", units::seconds(left));
        }
        line
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn amount(number: u64, unit: &str) -> String {
    if unit == "bytes" { units::bytes(number) } else { format!("{} {unit}", units::count(number)) }
}

fn bar(name: &str, total: u64, unit: &'static str) -> ProgressBar {
    let template = match total {
        0 => "{spinner} {msg} {amount} {rate}",
        _ => "{msg:24} {wide_bar} {amount} {rate} {eta:>4} left",
    };
    let bar = if total == 0 { ProgressBar::new_spinner() } else { ProgressBar::new(total) };
    if let Ok(style) = ProgressStyle::with_template(template) {
        let amount = move |state: &ProgressState, out: &mut dyn Write| {
            let (done, total) = (short(state.pos(), unit), state.len().filter(|&total| total > 0));
            let total = total.map(|total| format!(" of {}", short(total, unit))).unwrap_or_default();
            let _ = write!(
                out,
                "{done}{total}{}",
                if unit == "bytes" { String::new() } else { format!(" {unit}") }
            );
        };
        let rate = move |state: &ProgressState, out: &mut dyn Write| {
            let _ = write!(out, "{}/s", short(state.per_sec() as u64, unit));
        };
        bar.set_style(style.with_key("amount", amount).with_key("rate", rate));
    }
    bar.set_message(name.to_owned());
    bar
}

fn short(number: u64, unit: &str) -> String {
    if unit == "bytes" { units::bytes(number) } else { units::short(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long_still() {
        let began = Instant::now();
        let advanced = began + Duration::from_secs(6);
        let name = "sorting edges".to_owned();
        let (total, unit, done) = (4_000_000, "edges", 3_000_000);
        let mut pass = Pass { name, total, unit, done, began, advanced, said: began, bar: None };
        assert_eq!(
            pass.line(),
            "sorting edges: 3,000,000 edges of 4,000,000 edges, 75.0 %, 500k edges/s, 2.00 s left"
        );
        pass.total = 0;
        assert_eq!(pass.line(), "sorting edges: 3,000,000 edges, 500k edges/s");
    }

    #[test]
    fn passes_that_are_over_are_remembered_once() {
        let passes = Passes::default();
        passes.begin("one", 10, "edges");
        passes.advance(10);
        passes.begin("two", 5, "parts");
        let names = |over: Vec<Over>| over.into_iter().map(|pass| (pass.name, pass.done)).collect::<Vec<_>>();
        assert_eq!(names(passes.take_over()), [("one".to_owned(), 10), ("two".to_owned(), 0)]);
        assert_eq!(passes.take_over(), []);
    }
}
