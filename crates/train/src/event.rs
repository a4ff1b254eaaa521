//! Everything a run reports: one enum, one JSON line each.
//!
//! The trainer speaks to an [`Observer`]; terminal, report and dashboard read events and nothing else. Nothing
//! here prints. A run that was resumed appends to the same log: epochs after a `resumed` event replace those of
//! the same number before it.

use crate::boundary::{Gaps, Toll};
use crate::error::{Error, Result};
use crate::metric::Metric;
use archipelago_comm::{Kind, Meters};
use archipelago_graph::Error as GraphError;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One thing a run reports. Epochs are counted from 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Everything is loaded and checked; the first epoch begins.
    Started(Box<Started>),
    /// The run goes on from a checkpoint.
    Resumed {
        /// The last epoch that the checkpoint holds.
        epoch: u64,
    },
    /// An epoch is over.
    Epoch(Box<EpochReport>),
    /// Scores outside the epoch loop, such as those of the final weights.
    Evaluation(Evaluation),
    /// A checkpoint is on disk.
    Checkpoint {
        /// Its folder.
        path: PathBuf,
        /// The last epoch that it holds.
        epoch: u64,
    },
    /// Patience ran out.
    StoppedEarly {
        /// The last epoch.
        epoch: u64,
        /// The epoch with the best validation score.
        best_epoch: u64,
        /// Epochs without a better one that were allowed.
        patience: u64,
    },
    /// The user stopped the run; a checkpoint was written.
    Interrupted {
        /// The last whole epoch.
        epoch: u64,
    },
    /// Something the user should know that does not stop the run.
    Warning {
        /// What.
        message: String,
    },
    /// The run is over.
    Finished(Box<Summary>),
}

/// The resolved facts of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Started {
    /// The name of the strategy.
    pub strategy: String,
    /// The name of the model.
    pub model: String,
    /// The name of the dataset.
    pub dataset: String,
    /// Nodes of the whole graph.
    pub nodes: u64,
    /// Edges of the whole graph.
    pub edges: u64,
    /// Columns of the node features.
    pub features: u64,
    /// Classes or labels.
    pub classes: u64,
    /// What is predicted: `node` or `link`.
    #[serde(default)]
    pub task: String,
    /// Training nodes, or links to learn from.
    pub train_nodes: u64,
    /// Parts of the graph.
    pub parts: u64,
    /// Ranks: as many as parts, or fewer where parts take turns.
    #[serde(default)]
    pub ranks: u64,
    /// Processes.
    pub processes: u64,
    /// Threads of each process.
    pub threads: u64,
    /// The seed.
    pub seed: u64,
    /// Epochs to come at most.
    pub epochs: u64,
    /// Numbers in all weights together.
    pub parameters: u64,
    /// Rows that each layer computes, from the input on, summed over parts; a step of nodes whose output nobody
    /// needs is not taken.
    pub active_rows: Vec<u64>,
    /// How batches are drawn, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchFacts>,
    /// Memory that the run will need.
    pub memory: MemoryNeed,
}

/// How mini-batches are drawn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BatchFacts {
    /// Targets (nodes or links) of a step in each part.
    pub batch_size: u64,
    /// Targets of a step in all parts together.
    pub global_batch_size: u64,
    /// Steps of an epoch.
    pub steps: u64,
    /// The name of the sampler.
    pub sampler: String,
    /// Neighbours per layer, from the targets outward; -1 for all.
    pub fanouts: Vec<i64>,
}

/// Memory that a run will need on this process, stated before it is taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryNeed {
    /// All together.
    pub total_bytes: u64,
    /// What it is made of.
    pub items: Vec<MemoryItem>,
}

/// One item of a [`MemoryNeed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryItem {
    /// `weights`, `activations`, `halo`, …
    pub what: String,
    /// How much of it.
    pub bytes: u64,
}

impl MemoryNeed {
    /// Adds an item.
    pub fn add(&mut self, what: impl Into<String>, bytes: u64) {
        self.items.push(MemoryItem { what: what.into(), bytes });
        self.total_bytes += bytes;
    }
}

/// What one epoch did and cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Optimiser updates of the whole run so far.
    pub step: u64,
    /// Mean loss over the training nodes of all parts.
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// Seconds by the clock, without evaluation.
    pub secs: f64,
    /// Processor seconds of all processes in that time.
    pub cpu_secs: f64,
    /// Bytes that all ranks sent in this epoch, by kind; without evaluation.
    pub bytes_sent: BytesSent,
    /// What drawing batches took, where they are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// What crossed part borders, where a batch is computed by all parts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// What islands took, where ranks train on islands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub islands: Option<IslandReport>,
    /// How each rank is doing; none where there is only one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<RankHealth>,
    /// Scores, in epochs that were evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<Evaluation>,
}

/// How a rank is doing: who keeps the others waiting, and who runs out of memory.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RankHealth {
    /// The rank.
    pub rank: u64,
    /// The process that it lives in.
    pub process: u64,
    /// Seconds of the epoch in which it waited for messages of other ranks: least where most work was done.
    pub waited_secs: f64,
    /// The most memory that its process has held so far.
    pub peak_rss_bytes: u64,
}

/// What islands took in an epoch, on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct IslandReport {
    /// Mean share of a target's in-edges that were on its island; absent where there were no targets.
    pub coverage: Option<f64>,
    /// Islands that were of other parts than before.
    pub switches: u64,
    /// Islands that were made, those that came back included.
    pub made: u64,
    /// Seconds that making them took, on the slowest rank.
    pub secs: f64,
}

/// What crossed part borders, on all ranks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Exchange {
    /// Rows (and gradients of rows) that each part sent in a step, mean over the steps.
    pub messages_per_step: Vec<f64>,
    /// The most of them over the fewest; absent where some part sent none.
    pub messages_max_over_min: Option<f64>,
    /// Blocks (the rows of one part and layer) that were sent, of the strategies that may skip them.
    pub blocks_sent: u64,
    /// Blocks whose last version served once more.
    pub blocks_skipped: u64,
    /// For each layer how many rows were how many versions behind: 0, 1, 2 to 3, 4 to 7, … Empty where none can be.
    pub staleness: Vec<Vec<u64>>,
}

impl Exchange {
    /// Of the [`Toll::facts`] of all ranks.
    pub fn of(ranks: &[impl AsRef<[u64]>]) -> Self {
        let ranks: Vec<&[u64]> = ranks.iter().map(AsRef::as_ref).collect();
        let sum = |at: usize| ranks.iter().map(|facts| facts[at]).sum::<u64>();
        let bins = |gaps: &[u64]| {
            let used = gaps.iter().rposition(|&rows| rows > 0).map_or(0, |last| last + 1);
            gaps[..used].to_vec()
        };
        let gaps: Vec<u64> = (Toll::COUNTS..ranks[0].len()).map(sum).collect();
        let staleness: Vec<_> = gaps.chunks(Gaps::BINS).map(bins).collect();
        let rows = || ranks.iter().map(|facts| facts[1]);
        let (most, fewest) = (rows().max().unwrap_or(0), rows().min().unwrap_or(0));
        Self {
            messages_per_step: ranks.iter().map(|facts| facts[1] as f64 / facts[0].max(1) as f64).collect(),
            messages_max_over_min: (fewest > 0).then(|| most as f64 / fewest as f64),
            blocks_sent: sum(2),
            blocks_skipped: sum(3),
            staleness: if staleness.iter().all(Vec::is_empty) { Vec::new() } else { staleness },
        }
    }
}

/// What drawing the mini-batches of an epoch took, on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sampling {
    /// Batches, empty ones included.
    pub batches: u64,
    /// Edges in their blocks.
    pub edges: u64,
    /// Rows of features that they read.
    pub rows: u64,
    /// Those of them that another rank owns.
    pub remote_rows: u64,
    /// Share of the remote ones that were kept and not pulled; absent where there are none.
    pub hit_rate: Option<f64>,
    /// Share of the remote ones that the batch before had pulled; absent where there are none.
    pub reuse_rate: Option<f64>,
    /// Processor seconds of the samplers for drawing edges, without the kernel threads that helped them.
    pub draw_secs: f64,
    /// The same for features: asking, giving, copying.
    pub fetch_secs: f64,
    /// Seconds in which samplers had nothing to do, mean over ranks.
    pub sampler_stall_secs: f64,
    /// Seconds in which training waited for a batch, mean over ranks.
    pub trainer_stall_secs: f64,
    /// Batches that waited for training, mean over the moments when one was begun.
    pub queue_mean: f64,
    /// Share of the processors of this machine that the epoch kept busy.
    pub cpu_busy: f64,
}

/// Scores of the weights after an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// What the scores are.
    pub metric: Metric,
    /// On the training nodes; absent where the split is empty or has no score.
    pub train: Option<f64>,
    /// On the validation nodes.
    pub valid: Option<f64>,
    /// On the test nodes.
    pub test: Option<f64>,
    /// Whether every neighbour was used, layer by layer.
    pub exact: bool,
    /// Seconds it took.
    pub secs: f64,
}

/// Bytes sent, by what they carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BytesSent {
    /// Input features of nodes.
    pub features: u64,
    /// Rows computed by a layer.
    pub embeddings: u64,
    /// Gradients of rows or weights.
    pub gradients: u64,
    /// Weights.
    pub weights: u64,
    /// Everything else: counts, requests, scores.
    pub control: u64,
}

impl BytesSent {
    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.features + self.embeddings + self.gradients + self.weights + self.control
    }
}

impl From<&Meters> for BytesSent {
    fn from(meters: &Meters) -> Self {
        let sent = |kind| meters[kind].bytes_sent;
        Self {
            features: sent(Kind::Features),
            embeddings: sent(Kind::Embeddings),
            gradients: sent(Kind::Gradients),
            weights: sent(Kind::Weights),
            control: sent(Kind::Control),
        }
    }
}

impl std::ops::AddAssign for BytesSent {
    fn add_assign(&mut self, other: Self) {
        self.features += other.features;
        self.embeddings += other.embeddings;
        self.gradients += other.gradients;
        self.weights += other.weights;
        self.control += other.control;
    }
}

/// What `summary.json` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The name of the strategy.
    pub strategy: String,
    /// The name of the model.
    pub model: String,
    /// The name of the dataset.
    pub dataset: String,
    /// Parts of the graph.
    pub parts: u64,
    /// Processes.
    pub processes: u64,
    /// Threads of each process.
    pub threads: u64,
    /// The seed.
    pub seed: u64,
    /// Epochs that were trained.
    pub epochs: u64,
    /// The epoch with the best validation score, counted from 1; 0 when none was evaluated.
    pub best_epoch: u64,
    /// The validation score of that epoch.
    pub valid_score: Option<f64>,
    /// The test score of that epoch.
    pub test_score: Option<f64>,
    /// What the scores are.
    pub metric: Metric,
    /// Whether they are of every neighbour, layer by layer.
    pub exact_evaluation: bool,
    /// The loss of the last epoch.
    pub train_loss: f64,
    /// Median seconds of an epoch.
    pub epoch_secs_median: f64,
    /// Median processor seconds of an epoch.
    pub epoch_cpu_secs_median: f64,
    /// Seconds of the whole run.
    pub wall_secs: f64,
    /// Most memory of a process at any time.
    pub peak_rss_bytes: u64,
    /// Bytes that all ranks sent.
    pub bytes_sent: BytesSent,
    /// What drawing the batches of the last epoch took, where they are drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// What crossed part borders since the run was started or last resumed, where a batch is computed by all parts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// Where ranks train on islands: coverage of the last epoch, all else of all epochs since the run was started or
    /// last resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub islands: Option<IslandReport>,
    /// Digest of the final weights: equal digests mean equal bits.
    pub weights_sha256: String,
}

impl Summary {
    /// Writes `summary.json`.
    pub fn write(&self, file: &Path) -> Result<()> {
        archipelago_graph::atomic::write_file(file, |out| {
            let written = serde_json::to_writer_pretty(&mut *out, self).map_err(std::io::Error::from);
            written.and_then(|()| out.write_all(b"\n")).map_err(GraphError::io("write", file))
        })?;
        Ok(())
    }
}

/// Whoever wants to know what a run does.
pub trait Observer: Sync {
    /// Hears of one event, in the order in which they happen.
    fn event(&self, event: &Event);
}

/// An observer that does not care.
impl Observer for () {
    fn event(&self, _: &Event) {}
}

/// `events.jsonl`: one write per event, so that a run that dies leaves whole lines.
#[derive(Debug)]
pub struct EventLog {
    file: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    out: File,
    failed: Option<std::io::Error>,
}

impl EventLog {
    /// Starts a log, or goes on with one; the rest of a line that was cut off by a power loss is removed.
    pub fn open(file: &Path) -> Result<Self> {
        let open = || {
            let mut out = OpenOptions::new().read(true).append(true).create(true).open(file)?;
            cut_half_line(&mut out)?;
            Ok(out)
        };
        let out = open().map_err(GraphError::io("write", file))?;
        Ok(Self { file: file.to_path_buf(), state: Mutex::new(LogState { out, failed: None }) })
    }

    /// The first failure to write, if there was one. A full disk does not stop the epochs.
    pub fn finish(self) -> Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match state.failed {
            Some(source) => Err(Error::Graph(GraphError::io("write", &self.file)(source))),
            None => Ok(()),
        }
    }
}

impl Observer for EventLog {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let written = serde_json::to_vec(event).map_err(std::io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            state.out.write_all(&line)
        });
        if let Err(error) = written {
            state.failed.get_or_insert(error);
        }
    }
}

fn cut_half_line(out: &mut File) -> std::io::Result<()> {
    let mut text = Vec::new();
    out.seek(SeekFrom::Start(0))?;
    out.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    if whole < text.len() { out.set_len(whole as u64) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn summary() -> Summary {
        Summary {
            strategy: "full".into(),
            model: "gcn".into(),
            dataset: "cora".into(),
            parts: 4,
            processes: 1,
            threads: 2,
            seed: 0,
            epochs: 200,
            best_epoch: 17,
            valid_score: Some(0.79),
            test_score: None,
            metric: Metric::Accuracy,
            exact_evaluation: true,
            train_loss: 0.1 + 0.2,
            epoch_secs_median: 0.01,
            epoch_cpu_secs_median: 0.02,
            wall_secs: 2.5,
            peak_rss_bytes: 1 << 30,
            bytes_sent: BytesSent { gradients: 7, ..BytesSent::default() },
            sampling: None,
            exchange: None,
            islands: None,
            weights_sha256: "00ff".into(),
        }
    }

    fn epoch(epoch: u64) -> Event {
        let bytes_sent = BytesSent { embeddings: u64::MAX, ..BytesSent::default() };
        let (loss, lr, secs) = (1.0 / 3.0, 0.01, 0.25);
        Event::Epoch(Box::new(EpochReport {
            epoch,
            step: epoch,
            loss,
            lr,
            secs,
            cpu_secs: secs,
            bytes_sent,
            sampling: None,
            exchange: None,
            islands: None,
            health: Vec::new(),
            evaluation: None,
        }))
    }

    #[test]
    fn an_event_is_one_line_that_says_what_it_is_and_reads_back_as_itself() {
        let mut memory = MemoryNeed::default();
        memory.add("weights", 10);
        memory.add("activations", 32);
        assert_eq!(memory.total_bytes, 42);
        let started = Started { memory, active_rows: vec![5, 3], ..Started::default() };
        let events = [
            (Event::Started(Box::new(started)), "started"),
            (epoch(3), "epoch"),
            (Event::StoppedEarly { epoch: 9, best_epoch: 4, patience: 5 }, "stopped_early"),
            (Event::Finished(Box::new(summary())), "finished"),
        ];
        for (event, name) in events {
            let line = serde_json::to_string(&event).unwrap();
            assert!(line.starts_with(&format!("{{\"event\":\"{name}\",")) && !line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }

    #[test]
    fn what_ranks_say_of_crossing_is_put_together() {
        let mut gaps = Gaps::default();
        gaps.count(1.0, 5);
        let toll = |rows| Toll { steps: 2, rows, sent: 1, skipped: 3, gaps: vec![Gaps::default(), gaps] };
        let found = Exchange::of(&[toll(10).facts(3), toll(40).facts(3)]);
        let expected = Exchange {
            messages_per_step: vec![5.0, 20.0],
            messages_max_over_min: Some(4.0),
            blocks_sent: 2,
            blocks_skipped: 6,
            staleness: vec![vec![], vec![0, 10], vec![]],
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_summary_has_every_key_that_scripts_rely_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("summary.json");
        summary().write(&file).unwrap();
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let keys = "strategy model dataset parts processes threads seed epochs best_epoch valid_score test_score \
                    metric train_loss epoch_secs_median wall_secs peak_rss_bytes bytes_sent weights_sha256";
        for key in keys.split_whitespace() {
            assert!(written.get(key).is_some(), "{key} is missing in {written}");
        }
        for kind in Kind::ALL {
            assert!(written["bytes_sent"][kind.name()].is_u64(), "{} is missing in {written}", kind.name());
        }
        assert_eq!(written["metric"], "accuracy");
    }

    #[test]
    fn a_log_goes_on_where_a_killed_run_left_a_half_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("events.jsonl");
        let log = EventLog::open(&file).unwrap();
        log.event(&epoch(1));
        log.finish().unwrap();
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"event\":\"ep").unwrap();

        let log = EventLog::open(&file).unwrap();
        log.event(&Event::Resumed { epoch: 1 });
        log.finish().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events, [epoch(1), Event::Resumed { epoch: 1 }]);
    }
}
