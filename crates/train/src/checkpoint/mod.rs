//! Everything a resumed run needs to be bit-identical to the uninterrupted one.
//!
//! `RUN/checkpoint/last` and `RUN/checkpoint/best` are folders: `weights.safetensors` (readable by other tools),
//! `state.safetensors` (the optimiser's moments, running statistics), `state.json` (counters,
//! totals, the resolved run file, what the data was), `memory-R.safetensors` (what rank R remembers from step to step, of
//! the strategies that do) and `manifest.json` (sizes and checksums). How they are
//! replaced without ever being half-written is told in `folder.rs`.

mod folder;
mod tensors;
#[cfg(test)]
mod tests;

pub use tensors::Tensor;

use crate::boundary::Memory;
use crate::embedding;
use crate::error::{Error, Result};
use crate::event::BytesSent;
use crate::optimizer::OptimizerState;
use crate::parameters::Parameters;
use crate::run::RunConfig;
use crate::stopping::Best;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const WEIGHTS: &str = "weights.safetensors";
const TENSORS: &str = "state.safetensors";
const STATE: &str = "state.json";

/// The file of what a rank remembers.
fn memory_file(rank: usize) -> String {
    format!("memory-{rank}.safetensors")
}

/// Which of a run's checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The latest.
    Last,
    /// That of the epoch with the best validation score.
    Best,
}

impl Slot {
    /// The name of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Best => "best",
        }
    }

    /// Its folder in the folder of a run.
    pub fn path(self, run: &Path) -> PathBuf {
        run.join("checkpoint").join(self.name())
    }
}

/// The state of a run between two epochs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    /// Counters, totals and identities.
    pub state: State,
    /// The weights, in sorted name order.
    pub weights: Vec<Tensor>,
    /// Tensors of the model that no gradient moves (running statistics of batch norms), in sorted name order.
    pub buffers: Vec<Tensor>,
    /// What the optimiser remembers.
    pub optimizer: OptimizerState,
    /// What a strategy remembers in floats, by name.
    pub floats: BTreeMap<String, Vec<f32>>,
    /// What a strategy remembers in whole numbers, by name.
    pub words: BTreeMap<String, Vec<u64>>,
}

/// The part of a [`Checkpoint`] that is no tensor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// Epochs done.
    pub epoch: u64,
    /// Optimiser updates done.
    pub step: u64,
    /// The best epoch so far; early stopping counts from it.
    pub best: Option<Best>,
    /// The resolved run file.
    pub run_toml: String,
    /// What the data is: facts such as `nodes` or the digest of a store, by name.
    pub data: BTreeMap<String, String>,
    /// What the summary will add up.
    pub totals: Totals,
}

/// What the summary of a run adds up over its epochs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The loss of every epoch.
    pub losses: Vec<f64>,
    /// Seconds of every epoch.
    pub epoch_secs: Vec<f64>,
    /// Processor seconds of every epoch.
    pub epoch_cpu_secs: Vec<f64>,
    /// Seconds of the run so far, over all its sessions.
    pub wall_secs: f64,
    /// Most memory of a process so far.
    pub peak_rss_bytes: u64,
    /// Bytes sent so far.
    pub bytes_sent: BytesSent,
}

impl Checkpoint {
    /// Writes it into the folder of a `run`; returns where. Killed at any moment, the old one or the new one is
    /// there, whole.
    pub fn save(&self, run: &Path, slot: Slot) -> Result<PathBuf> {
        self.save_with(run, slot, |_| Ok(()))
    }

    /// The same with what `more` writes into its folder.
    pub fn save_with(
        &self,
        run: &Path,
        slot: Slot,
        more: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        folder::replace(run, slot.name(), |new| {
            more(new)?;
            tensors::write_weights(&new.join(WEIGHTS), &self.weights)?;
            tensors::write_state(&new.join(TENSORS), self)?;
            let file = new.join(STATE);
            let text = serde_json::to_vec_pretty(&Stored::of(self)).map_err(std::io::Error::from);
            text.and_then(|text| std::fs::write(&file, text))
                .map_err(archipelago_graph::Error::io("write", &file))?;
            Ok(())
        })
    }

    /// Reads it from the folder of a `run`, checking every byte.
    pub fn load(run: &Path, slot: Slot) -> Result<Self> {
        let folder = slot.path(run);
        let files = folder::read(&folder, &[WEIGHTS, TENSORS, STATE])?;
        let [weights, tensors, state] = &files[..] else {
            return Err(Error::checkpoint(&folder, "is not whole"));
        };
        let file = folder.join(STATE);
        let stored: Stored =
            serde_json::from_slice(state).map_err(|error| Error::checkpoint(&file, error.to_string()))?;
        let mut checkpoint = Self { state: stored.state, ..Self::default() };
        checkpoint.optimizer.steps = stored.optimizer_steps;
        checkpoint.weights = tensors::read_weights(&folder.join(WEIGHTS), weights)?;
        tensors::read_state(&folder.join(TENSORS), tensors, &mut checkpoint)?;
        Ok(checkpoint)
    }

    /// Writes what `rank` remembers into the `folder` of a checkpoint in the making.
    pub fn write_memory(folder: &Path, rank: usize, memory: &Memory) -> Result<()> {
        if memory.is_empty() {
            return Ok(());
        }
        tensors::write_memory(&folder.join(memory_file(rank)), memory)
    }

    /// What `rank` remembered when the last checkpoint of a `run` was written.
    pub fn load_memory(run: &Path, rank: usize) -> Result<Memory> {
        let (folder, name) = (Slot::Last.path(run), memory_file(rank));
        if !folder::lists(&folder, &name)? {
            return Ok(Memory::default());
        }
        let files = folder::read(&folder, &[&name])?;
        tensors::read_memory(&folder.join(&name), &files[0])
    }

    /// Keeps the weights.
    pub fn set_weights(&mut self, parameters: &Parameters) {
        self.weights = parameters.iter().map(Tensor::of).collect();
    }

    /// Keeps the numbers that belong to the model and are not trained.
    pub fn set_buffers(&mut self, buffers: &Parameters) {
        self.buffers = buffers.iter().map(Tensor::of).collect();
    }

    /// Puts the kept weights into `parameters`, which must have the same names and shapes. Embeddings are not among
    /// them: they are dealt out to ranks.
    pub fn restore_weights(&self, parameters: &mut Parameters) -> Result<()> {
        restore(self.weights.iter().filter(|weight| weight.name != embedding::NAME), parameters)
    }

    /// Puts the kept buffers into `buffers`, which must have the same names and shapes.
    pub fn restore_buffers(&self, buffers: &mut Parameters) -> Result<()> {
        restore(self.buffers.iter(), buffers)
    }

    /// Fails, naming what differs, unless a run of `config` on this `data` would go on as if never interrupted.
    pub fn check_resumable(
        &self,
        run: &Path,
        config: &RunConfig,
        data: &BTreeMap<String, String>,
    ) -> Result<()> {
        let file = Slot::Last.path(run);
        let kept = RunConfig::from_toml(&file.join(STATE), &self.state.run_toml)?;
        let mut differences = config.differences(&kept);
        for name in data.keys().chain(self.state.data.keys().filter(|name| !data.contains_key(*name))) {
            let (now, then) = (data.get(name), self.state.data.get(name));
            if now != then {
                let shown = |fact: Option<&String>| fact.map_or("nothing", String::as_str).to_string();
                differences.push(format!("{name} was `{}`, is `{}`", shown(then), shown(now)));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!("is of another run: {}", differences.join("; "));
        Err(Error::checkpoint(file, message)
            .with_hint("give back what the run began with, or start a new one"))
    }
}

/// Puts `kept_tensors` into `parameters`, which must have the same names and shapes.
fn restore<'a>(
    kept_tensors: impl Iterator<Item = &'a Tensor> + Clone,
    parameters: &mut Parameters,
) -> Result<()> {
    let shape = |name: &str, rows, cols| format!("`{name}` [{rows}, {cols}]");
    let kept: Vec<String> = kept_tensors.clone().map(|t| shape(&t.name, t.rows, t.cols)).collect();
    let wanted: Vec<String> = parameters.iter().map(|p| shape(&p.name, p.rows, p.cols)).collect();
    if kept != wanted {
        let message = format!("expected weights {}, found {}", wanted.join(", "), kept.join(", "));
        return Err(Error::checkpoint(WEIGHTS, message).with_hint("the checkpoint is of another model"));
    }
    for (parameter, tensor) in parameters.iter_mut().zip(kept_tensors) {
        parameter.value.copy_from_slice(&tensor.values);
    }
    Ok(())
}

/// `state.json`.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    state: State,
    optimizer_steps: u64,
}

impl Stored {
    fn of(checkpoint: &Checkpoint) -> Self {
        Self { state: checkpoint.state.clone(), optimizer_steps: checkpoint.optimizer.steps }
    }
}

/// Digest of the weights, the embeddings of all nodes among them, in sorted name order as little-endian f32: equal
/// digests mean equal bits.
pub fn weights_sha256(parameters: &Parameters, embeddings: Option<&[f32]>) -> [u8; 32] {
    let weights = parameters.iter().map(|parameter| (parameter.name.as_str(), &parameter.value[..]));
    let mut weights: Vec<_> = weights.chain(embeddings.map(|rows| (embedding::NAME, rows))).collect();
    weights.sort_by_key(|(name, _)| *name);
    let mut digest = Sha256::new();
    weights.iter().for_each(|(_, values)| digest.update(bytemuck::cast_slice::<f32, u8>(values)));
    digest.finalize().into()
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
