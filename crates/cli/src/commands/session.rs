//! The folder of a run, and training in it: what `train`, `resume`, `evaluate`, `infer` and `quickstart` share.
//!
//! `run.toml` is written first and its lock is held while a process works in the folder; `summary.json` is written
//! last. So a folder with a run file and without a summary is a run that can be resumed, wherever it was killed.

use super::Outcome;
use super::dataset::{Cut, Reading, beside, tell_notes};
use super::team;
use crate::failure::INTERRUPTED;
use crate::terminal::passes::Passes;
use crate::terminal::training::{self, Training};
use crate::terminal::units;
use crate::{interrupt, terminal};
use archipelago_comm::Job;
use archipelago_graph::partition::{Balance, Request};
use archipelago_graph::store::layout;
use archipelago_graph::{Error, Store, atomic};
use archipelago_train::checkpoint::{Checkpoint, Slot};
use archipelago_train::event::{EventLog, Summary};
use archipelago_train::run::RunConfig;
use archipelago_train::{Ending, Run, infer};
use clap::ValueEnum;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long the lock of a process that was killed is waited for.
const DYING: Duration = Duration::from_secs(2);

/// The folder of a run.
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
}

/// Which checkpoint of a run to use.
#[derive(Clone, Copy, ValueEnum)]
pub enum Which {
    /// That of the epoch with the best validation score
    Best,
    /// The latest
    Last,
}

impl Which {
    /// Reads it from the folder of a run; without a best one, the last is the best.
    pub fn load(self, run: &Path) -> archipelago_train::Result<Checkpoint> {
        match self {
            Self::Best => infer::best_or_last(run),
            Self::Last => Checkpoint::load(run, Slot::Last),
        }
    }
}

impl Folder {
    /// A new folder for a run of `config`, whose run file is written.
    pub fn create(path: &Path, config: &RunConfig) -> anyhow::Result<Self> {
        let folder = Self { path: path.to_path_buf() };
        folder.refuse_taken()?;
        fs::create_dir_all(path).map_err(Error::io("create", path))?;
        let file = folder.run_file();
        atomic::write_file(&file, |out| {
            out.write_all(config.to_toml().as_bytes()).map_err(Error::io("write", &file))
        })?;
        Ok(folder)
    }

    /// The folder of a run that was started before.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Self { path: path.to_path_buf() };
        fs::metadata(path).map_err(Error::io("open", path))?;
        if !folder.run_file().is_file() {
            return Err(Error::input(path, "", "the folder of a run", "no `run.toml` in it")
                .with_hint("`archi train --out RUN` makes one")
                .into());
        }
        Ok(folder)
    }

    /// Fails when something is there already, saying how to go on with a run that is.
    pub fn refuse_taken(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        if self.run_file().exists() {
            return Err(Error::usage(format!("`{path}` holds a run already"))
                .with_hint(format!("continue it with `archi resume {path}`, or choose another --out"))
                .into());
        }
        Ok(super::dataset::refuse_existing(&self.path)?)
    }

    fn run_file(&self) -> PathBuf {
        self.path.join("run.toml")
    }

    fn summary_file(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// The resolved run.
    pub fn config(&self) -> archipelago_train::Result<RunConfig> {
        RunConfig::from_sources(Some(&self.run_file()), &[])
    }

    /// What the finished run left, if it is finished.
    pub fn summary(&self) -> anyhow::Result<Option<Summary>> {
        let file = self.summary_file();
        if !file.is_file() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).map_err(Error::io("read", &file))?;
        let summary = serde_json::from_str(&text)
            .map_err(|error| Error::input(&file, "", "the summary of a run", format!("`{error}`")))?;
        Ok(Some(summary))
    }

    /// Keeps other processes out of this folder for as long as the file is held. One that was just killed holds it until
    /// the system has taken its memory back, so it is asked for again for a moment.
    fn lock(&self) -> anyhow::Result<File> {
        let file = self.run_file();
        let held = File::open(&file).map_err(Error::io("open", &file))?;
        let until = Instant::now() + DYING;
        loop {
            match held.try_lock() {
                Ok(()) => return Ok(held),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(DYING / 20),
                Err(TryLockError::WouldBlock) => {
                    let message = format!("another archi is at work in `{}`", self.path.display());
                    return Err(Error::usage(message).into());
                }
                Err(TryLockError::Error(error)) => return Err(Error::io("lock", &file)(error).into()),
            }
        }
    }

    /// The store that the run trains on; cut now if its data is a dataset and that was not done yet.
    pub fn store(&self, config: &RunConfig) -> anyhow::Result<Store> {
        let own = self.path.join("store");
        let data = Path::new(&config.data.path);
        if own.exists() {
            return Ok(Store::open(&own)?);
        }
        if is_store(data) {
            return Ok(Store::open(data)?);
        }
        self.sweep()?;
        cut(config, data, &own)?;
        Ok(Store::open(&own)?)
    }

    /// Removes what a killed process left half-written.
    fn sweep(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.path).map_err(Error::io("list", &self.path))? {
            let path = entry.map_err(Error::io("list", &self.path))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".archi-")) {
                fs::remove_dir_all(&path).map_err(Error::io("remove", &path))?;
            }
        }
        Ok(())
    }

    /// What only one process of a job does: takes the lock, cuts the data if need be, opens the log of events.
    fn prepare(&self, config: &RunConfig) -> anyhow::Result<(Option<File>, Option<EventLog>)> {
        let held = self.lock()?;
        self.store(config)?;
        let log = self.path.join("events.jsonl");
        let log = if config.output.events { Some(EventLog::open(&log)?) } else { None };
        Ok((Some(held), log))
    }

    /// The checkpoint to go on from, which must be of this run; none where there is none yet.
    fn last_checkpoint(&self, run: &Run<'_>) -> anyhow::Result<Option<Checkpoint>> {
        if !Slot::Last.path(&self.path).exists() {
            return Ok(None);
        }
        let checkpoint = Checkpoint::load(&self.path, Slot::Last)?;
        checkpoint.check_resumable(&self.path, &run.config, &run.data_identity())?;
        Ok(Some(checkpoint))
    }

    /// Trains to the end, from the last checkpoint if there is one, and shows the summary. The first process of the
    /// job prepares the folder, and holds its lock; the others wait for it.
    pub fn train(&self, json: bool, job: Job) -> Outcome {
        interrupt::answer_with("stopping after this epoch")?;
        interrupt::obey_usr1();
        let config = Arc::new(self.config()?);
        let deadline = Duration::from_secs(config.exchange.deadline_secs);
        let ((_held, log), store) = team::together(&job, deadline, |comm| {
            team::agree(comm, &config)?;
            let prepared = comm.led_by_first(|| self.prepare(&config))?;
            Ok((prepared.unwrap_or_default(), self.store(&config)?))
        })?;
        let observer = Training::new(log);
        let mut run = Run {
            config,
            store: &store,
            folder: Some(self.path.clone()),
            observer: &observer,
            stop: interrupt::stop_flag(),
            resume: None,
            job,
            operators: None,
        };
        run.resume = team::together(&job, deadline, |_| self.last_checkpoint(&run))?;
        let ending = run.train();
        let stated = observer.finish();
        match ending? {
            Ending::Interrupted { .. } if !job.leads() => Ok(ExitCode::from(INTERRUPTED)),
            Ending::Finished(_) if !job.leads() => Ok(ExitCode::SUCCESS),
            Ending::Interrupted { epoch } => {
                let path = self.path.display();
                terminal::say(format_args!("stopped after epoch {epoch}; `archi resume {path}` continues"));
                Ok(ExitCode::from(INTERRUPTED))
            }
            Ending::Finished(summary) => {
                summary.write(&self.summary_file())?;
                show(&summary, stated?, json)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Prints a summary to stdout.
pub fn show(summary: &Summary, stated_bytes: Option<u64>, json: bool) -> anyhow::Result<()> {
    if json {
        terminal::print_json(summary)
    } else {
        terminal::print(training::summary(summary, stated_bytes))
    }
}

/// Whether `path` is a store.
pub fn is_store(path: &Path) -> bool {
    path.join(layout::MANIFEST).is_file()
}

/// How `config` says to cut a dataset into a store at `out`.
pub fn cut_of(config: &RunConfig, out: &Path) -> archipelago_graph::Result<Cut> {
    let section = &config.data;
    let parts = u32::try_from(section.parts).map_err(|_| Error::usage("more parts than 2^32 - 1"))?;
    let file = (!section.partition_file.is_empty()).then(|| PathBuf::from(&section.partition_file));
    let method = if file.is_some() { None } else { Some(section.partitioner.as_str()) };
    let balance =
        section.partition_balance.iter().map(|kind| Balance::find(kind)).collect::<Result<_, _>>()?;
    let settings = section.partition_settings.clone();
    let request = Request {
        file,
        balance,
        settings,
        scratch: beside(out),
        ..Request::new(parts, section.partition_seed)
    };
    Cut::new(method, request)
}

/// Cuts the dataset at `data` into a store, as `config` says.
fn cut(config: &RunConfig, data: &Path, out: &Path) -> anyhow::Result<()> {
    let given = |text: &String| (!text.is_empty()).then(|| text.clone());
    let section = &config.data;
    let reading = Reading {
        from: (section.format != "auto").then(|| section.format.clone()),
        undirected: section.undirected,
        split: given(&section.split),
        weights: false,
    };
    let cut = cut_of(config, out)?;
    terminal::say(format_args!(
        "cutting `{}` into {} by {}: `{}`",
        data.display(),
        units::counted(cut.request.parts.into(), "part"),
        cut.entry.name,
        out.display()
    ));
    let passes = Passes::default();
    let mut dataset = reading.open(data, &passes)?;
    tell_notes(&dataset);
    cut.write(&mut dataset, out, &passes)?;
    Ok(())
}
