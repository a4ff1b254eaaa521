//! Rates from finished runs: what they did, what they took, and what would have been predicted.

use super::graph;
use crate::commands::session::Folder;
use crate::terminal::table::Table;
use crate::terminal::units;
use archipelago_graph::{Error, Store};
use archipelago_train::cost::{Cluster, Forecast, Measured, Question, Rates, fit};
use archipelago_train::event::{BytesSent, Event, Summary};
use archipelago_train::meter::median;
use archipelago_train::run::RunConfig;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What calibration came to.
pub struct Calibrated {
    /// The rates.
    pub rates: Rates,
    /// Prediction beside measurement.
    pub runs: Vec<Compared>,
}

/// A run as predicted with the rates that were there before, as measured, and as the fitted rates explain it. Only the
/// first is a prediction: the fit has seen the run.
#[derive(Serialize)]
pub struct Compared {
    run: PathBuf,
    strategy: String,
    dataset: String,
    parts: u64,
    edges: f64,
    predicted_secs: f64,
    measured_secs: f64,
    predicted_cpu_secs: f64,
    measured_cpu_secs: f64,
    fitted_secs: f64,
    fitted_cpu_secs: f64,
    predicted_bytes: u64,
    measured_bytes: u64,
    predicted_memory: u64,
    measured_memory: u64,
    predicted_drawn_edges: f64,
    measured_drawn_edges: Option<u64>,
}

/// A finished run.
struct Finished {
    path: PathBuf,
    config: RunConfig,
    store: Store,
    summary: Summary,
    /// Bytes of a median epoch.
    sent: f64,
}

/// Fits rates near `prior` to the runs in these folders.
pub fn calibrate(paths: &[PathBuf], prior: &Rates) -> anyhow::Result<Calibrated> {
    let runs = paths.iter().map(|path| Finished::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let measured = runs.iter().map(|run| run.measured(prior)).collect::<anyhow::Result<Vec<_>>>()?;
    let rates = fit(prior, &measured);
    let runs = runs.iter().map(|run| run.compared(prior, &rates)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(Calibrated { rates, runs })
}

impl Finished {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let folder = Folder::open(path)?;
        let config = folder.config()?;
        let Some(summary) = folder.summary()? else {
            return Err(Error::input(path, "", "a finished run", "no `summary.json` in it")
                .with_hint(format!("finish it with `archi resume {}`", path.display()))
                .into());
        };
        let own = path.join("store");
        let store = Store::open(if own.exists() { &own } else { Path::new(&config.data.path) })?;
        let sent = median_bytes(&path.join("events.jsonl"))?;
        Ok(Self { path: path.to_path_buf(), config, store, summary, sent })
    }

    fn cluster(&self) -> Cluster {
        Cluster {
            workers: self.summary.processes as u32,
            cores: self.summary.threads as u32,
            memory_bytes: u64::MAX,
            network_bytes: 1e12,
            disk_bytes: 1e12,
        }
    }

    fn forecast(&self, rates: &Rates) -> anyhow::Result<Forecast> {
        let facts = graph::of_store(&self.store)?;
        let question = Question { facts: &facts, config: &self.config, cluster: &self.cluster(), rates };
        Ok(question.named(&self.summary.strategy)?)
    }

    /// What it did: as expected, but for what it counted itself.
    fn measured(&self, prior: &Rates) -> anyhow::Result<Measured> {
        let mut work = self.forecast(prior)?.work;
        if let Some(sampling) = self.summary.sampling.filter(|_| work.drawn_edges > 0.0) {
            let share = sampling.edges as f64 / work.drawn_edges;
            work.drawn_edges *= share;
            work.gathered_bytes *= share;
            work.copied_bytes *= share;
        }
        let summary = &self.summary;
        Ok(Measured {
            work,
            processor_secs: summary.epoch_cpu_secs_median,
            secs: summary.epoch_secs_median,
            cores: (summary.processes * summary.threads) as f64,
        })
    }

    fn compared(&self, prior: &Rates, rates: &Rates) -> anyhow::Result<Compared> {
        let (forecast, fitted) = (self.forecast(prior)?, self.forecast(rates)?);
        let summary = &self.summary;
        Ok(Compared {
            run: self.path.clone(),
            strategy: summary.strategy.clone(),
            dataset: summary.dataset.clone(),
            parts: summary.parts,
            edges: self.store.manifest().edges as f64,
            predicted_secs: forecast.seconds.total,
            measured_secs: summary.epoch_secs_median,
            predicted_cpu_secs: prior.processor_secs(&forecast.work).iter().sum(),
            fitted_secs: fitted.seconds.total,
            fitted_cpu_secs: rates.processor_secs(&fitted.work).iter().sum(),
            measured_cpu_secs: summary.epoch_cpu_secs_median,
            predicted_bytes: forecast.bytes_sent.total(),
            measured_bytes: self.sent as u64,
            predicted_memory: forecast.memory.total_bytes,
            measured_memory: summary.peak_rss_bytes,
            predicted_drawn_edges: forecast.work.drawn_edges,
            measured_drawn_edges: summary.sampling.map(|sampling| sampling.edges),
        })
    }
}

/// Bytes that all ranks sent in a median epoch of a log.
fn median_bytes(log: &Path) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(log).map_err(Error::io("read", log))?;
    let mut sent = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let event: Event = serde_json::from_str(text).map_err(|error| {
            Error::input(log, format!("line {}", line + 1), "an event of a run", format!("`{error}`"))
        })?;
        if let Event::Epoch(report) = event {
            sent.push(BytesSent::total(&report.bytes_sent) as f64);
        }
    }
    Ok(median(&sent))
}

impl Calibrated {
    /// For people: prediction beside measurement, and the rates.
    pub fn text(&self) -> String {
        let mut table = Table::new([
            "run",
            "strategy",
            "dataset",
            "epoch",
            "predicted",
            "fitted",
            "cpu",
            "predicted",
            "fitted",
            "sent",
            "predicted",
            "memory",
            "predicted",
        ]);
        for run in &self.runs {
            table.row([
                run.run.display().to_string(),
                run.strategy.clone(),
                run.dataset.clone(),
                units::seconds(run.measured_secs),
                units::seconds(run.predicted_secs),
                units::seconds(run.fitted_secs),
                units::seconds(run.measured_cpu_secs),
                units::seconds(run.predicted_cpu_secs),
                units::seconds(run.fitted_cpu_secs),
                units::bytes(run.measured_bytes),
                units::bytes(run.predicted_bytes),
                units::bytes(run.measured_memory),
                units::bytes(run.predicted_memory),
            ]);
        }
        let rates = &self.rates;
        let short = |rate: f64| units::short(rate as u64);
        format!(
            "{table}\npredicted: with the rates from before; fitted: with those below, which have seen these runs\n\nrates of a core: {} edges drawn/s, {}/s copied, {}/s gathered, {} flop/s, {}/s made into islands, {} a step, {} of the \
             time busy (--json has all of them, for --rates)",
            short(rates.drawn_edges),
            units::bytes(rates.copied_bytes as u64),
            units::bytes(rates.gathered_bytes as u64),
            short(rates.flops),
            units::bytes(rates.island_bytes as u64),
            units::seconds(rates.step_secs),
            units::percent(rates.busy),
        )
    }
}
