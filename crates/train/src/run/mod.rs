//! The run file: everything a user decides about a run, typed, with where each value came from.
//!
//! Values come from the defaults, then the file, then `--set section.key=value`, then flags (which assign fields
//! and call [`RunConfig::validate`]). Anything unknown is an error that names the place and the nearest known
//! name. [`RunConfig::to_toml`] prints the resolved run, which reads back as the same run.

mod setting;
mod sections;
mod source;
mod validate;
#[cfg(test)]
mod tests;

pub use sections::{
    Activation, Aggregator, AgreeSection, Backward, BatchKind, Broadcast, Correction, DataSection,
    DecayedLayers, EmbeddingOptimizer, ExchangeSection, Features, HistoryOf, Init, LinkLossKind, LinkMetric,
    ModelSection, Norm, OptimizerKind, OptimizerMemory, OutputSection, OwnBlock, Placement, Refresh,
    ResidencySection, ScheduleKind, Staleness, StrategySection, SweepEvery, Task, TrainSection, Updates,
};
pub use setting::Key;

use crate::error::{Error, Place, Result};
use crate::strategy;
use archipelago_graph::error::{nearest, unknown_message};
use setting::{Outcome, Section};
use source::Assignment;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A resolved run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunConfig {
    /// The graph, and how it is cut.
    pub data: DataSection,
    /// The layers.
    pub model: ModelSection,
    /// Epochs, steps and the optimiser.
    pub train: TrainSection,
    /// How training uses the parts.
    pub strategy: StrategySection,
    /// What crosses between ranks.
    pub exchange: ExchangeSection,
    /// How ranks agree on weights.
    pub agree: AgreeSection,
    /// Which parts are in memory when.
    pub residency: ResidencySection,
    /// What the run leaves.
    pub output: OutputSection,
    places: Places,
}

/// Where each `section.key` that was written was written. Two runs are equal wherever they were written.
#[derive(Debug, Clone, Default)]
struct Places(BTreeMap<String, Place>);

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl RunConfig {
    /// The names of the sections, in the order of printing.
    pub const SECTIONS: [&'static str; 8] =
        ["data", "model", "train", "strategy", "exchange", "agree", "residency", "output"];

    /// The run of a file (or of the defaults) with these `section.key=value` on top.
    pub fn from_sources(file: Option<&Path>, sets: &[String]) -> Result<Self> {
        let mut config = Self::default();
        if let Some(file) = file {
            let text = fs::read_to_string(file).map_err(archipelago_graph::Error::io("read", file))?;
            config.read(file, &text)?;
        }
        for set in sets {
            config.assign(source::read_set(set)?)?;
        }
        config.fill(strategy::preset(&config.strategy.name));
        config.validate()?;
        Ok(config)
    }

    /// The run of a file with this `text`; the name `file` is for messages only.
    pub fn from_toml(file: &Path, text: &str) -> Result<Self> {
        let mut config = Self::default();
        config.read(file, text)?;
        config.fill(strategy::preset(&config.strategy.name));
        config.validate()?;
        Ok(config)
    }

    /// The same run by another strategy: dials that the user did not turn are where that one wants them.
    #[must_use]
    pub fn with_strategy(&self, name: &str) -> Self {
        let (mut config, usual) = (self.clone(), Self::default());
        let turned = strategy::preset(&self.strategy.name).iter().map(|(path, _)| *path);
        let back: Vec<(&str, String)> =
            turned.map(|path| (path, usual.show(path).unwrap_or_default())).collect();
        let back: Vec<(&str, &str)> = back.iter().map(|(path, text)| (*path, text.as_str())).collect();
        config.fill(&back);
        config.strategy.name = name.to_owned();
        config.fill(strategy::preset(name));
        config
    }

    /// Turns the dials that a strategy's `preset` names, except those that the user turned.
    fn fill(&mut self, preset: &[(&str, &str)]) {
        for (path, text) in preset {
            if self.is_set(path) {
                continue;
            }
            let (name, key) = path.split_once('.').unwrap_or_default();
            let section = self.sections_mut().into_iter().find(|section| section.name() == name);
            let outcome = section.map(|section| section.set(key, text, true));
            debug_assert!(matches!(outcome, Some(Outcome::Set)), "preset {path} = {text}");
        }
    }

    /// The resolved run file: every key with its value, after a line that says what it is.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for section in self.sections() {
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}[{}]\n", section.name());
            for key in section.keys() {
                let value = section.show(key.name).unwrap_or_default();
                text += &format!("# {}\n{} = {value}\n", key.comment(), key.name);
            }
        }
        text
    }

    /// Every key there is, in the order of printing.
    pub fn keys() -> Vec<Key> {
        Self::default().sections().iter().flat_map(|section| section.keys()).collect()
    }

    /// The value of `section.key` as TOML, if there is such a key.
    pub fn show(&self, path: &str) -> Option<String> {
        let (section, key) = path.split_once('.')?;
        self.sections().iter().find(|s| s.name() == section)?.show(key)
    }

    /// Whether the user wrote `section.key`, in the file or by `--set`: a preset leaves such a dial alone.
    pub fn is_set(&self, path: &str) -> bool {
        self.places.0.contains_key(path)
    }

    /// Where `section.key` was written.
    pub fn place(&self, path: &str) -> Place {
        self.places.0.get(path).cloned().unwrap_or(Place::Elsewhere)
    }

    /// Fails unless the text of `section.key` is one of the `known` names of a table.
    pub fn check_name(&self, path: &str, known: &[&str]) -> Result<()> {
        let value = self.show(path).and_then(|text| text.parse::<toml::Value>().ok());
        let name = value.as_ref().and_then(toml::Value::as_str).unwrap_or_default();
        if known.contains(&name) {
            return Ok(());
        }
        Err(Error::config(self.place(path), path, unknown_message("name", name, known)))
    }

    /// What differs from `other` among the keys that move the bits of the result, as sentences.
    ///
    /// Where data and results lie, how many threads compute and how long a rank waits does not move them, nor
    /// does the number of epochs, unless the learning rate depends on it.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        const FREE: [&str; 4] = ["data.path", "train.threads", "exchange.deadline_secs", "exchange.overlap"];
        let mut differences = Vec::new();
        for key in Self::keys() {
            let path = format!("{}.{}", key.section, key.name);
            let free = FREE.contains(&path.as_str())
                || key.section == "output"
                || path == "train.epochs" && self.train.schedule != ScheduleKind::Cosine;
            let (now, then) = (self.show(&path), other.show(&path));
            if !free && now != then {
                let shown = |value: Option<String>| value.unwrap_or_default();
                differences.push(format!("`{path}` was `{}`, is `{}`", shown(then), shown(now)));
            }
        }
        differences
    }

    /// Adds the assignments of a file.
    fn read(&mut self, file: &Path, text: &str) -> Result<()> {
        source::read_file(file, text)?.into_iter().try_for_each(|assignment| self.assign(assignment))
    }

    /// Gives one key its value.
    fn assign(&mut self, assignment: Assignment) -> Result<()> {
        let Assignment { section: name, key, text, place } = assignment;
        let bare = matches!(place, Place::Set(_));
        let path = format!("{name}.{key}");
        let Some(section) = self.sections_mut().into_iter().find(|s| s.name() == name) else {
            return Err(Error::config(place, "", unknown_message("section", &name, &Self::SECTIONS)));
        };
        if key.is_empty() {
            return Ok(());
        }
        match section.set(&key, &text, bare) {
            Outcome::Set => {
                self.places.0.insert(path, place);
                Ok(())
            }
            Outcome::NoSuchKey => Err(unknown_key(place, &name, &key)),
            Outcome::WrongValue(expected, words) => {
                let error = Error::config(place, path, format!("expected {expected}, found `{text}`"));
                Err(match nearest(text.trim_matches('"'), words) {
                    Some(word) => error.with_hint(format!("did you mean `{word}`?")),
                    None => error,
                })
            }
        }
    }

    fn sections(&self) -> [&dyn Section; 8] {
        [
            &self.data,
            &self.model,
            &self.train,
            &self.strategy,
            &self.exchange,
            &self.agree,
            &self.residency,
            &self.output,
        ]
    }

    fn sections_mut(&mut self) -> [&mut dyn Section; 8] {
        [
            &mut self.data,
            &mut self.model,
            &mut self.train,
            &mut self.strategy,
            &mut self.exchange,
            &mut self.agree,
            &mut self.residency,
            &mut self.output,
        ]
    }
}

/// The error for a key that its section does not have: the nearest it has, or the section that has it.
fn unknown_key(place: Place, section: &str, key: &str) -> Error {
    let keys = RunConfig::keys();
    let here: Vec<&str> = keys.iter().filter(|k| k.section == section).map(|k| k.name).collect();
    let elsewhere = keys.iter().find(|k| k.name == key);
    let message = unknown_message("key", key, &here);
    match elsewhere {
        Some(other) => {
            let message = message.split("\n\n").next().unwrap_or_default();
            Error::config(place, format!("[{section}]"), message)
                .with_hint(format!("`{key}` is a key of `[{}]`", other.section))
        }
        None => Error::config(place, format!("[{section}]"), message),
    }
}
