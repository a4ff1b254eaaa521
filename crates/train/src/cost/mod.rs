//! What will a run cost? Memory, bytes on the wire and from disk, and seconds of an epoch, before anything is started.
//!
//! Pure functions of numbers, one file for each question, in the order in which answers build on each other: what the
//! [`graph`] and its [`degrees`] are, how many [`rows`] a batch has, what the strategy ([`shape`]) and the model
//! ([`net`]) do, what a rank computes in an [`epoch`], what goes over the [`wire`], what lies in [`memory`], how much
//! [`work`] that is, and how long it takes at given [`rates`]; [`fit()`] finds rates that explain measured runs.
//!
//! All of it are averages over parts and steps. A run states its own need when it has counted its rows
//! ([`crate::memory`]), by the same formulas ([`held`]).

pub mod graph;
pub mod degrees;
pub mod rows;
pub mod shape;
pub mod net;
pub mod epoch;
pub mod wire;
pub mod held;
pub mod extent;
pub mod memory;
pub mod work;
pub mod rates;
pub mod fit;

pub use degrees::Degrees;
pub use fit::{Measured, fit};
pub use graph::GraphFacts;
pub use rates::{Cluster, Rates, Seconds};
pub use shape::Shape;
pub use work::Work;

use crate::event::{BytesSent, MemoryNeed};
use crate::run::RunConfig;
use crate::strategy::{self, strategies};
use crate::{Error, Result};
use epoch::Epoch;
use net::Net;
use rates::Hidden;
use serde::Serialize;

/// What an epoch of one strategy will cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// The name of the strategy.
    pub strategy: String,
    /// Why it cannot run, if it cannot.
    pub refused: Option<String>,
    /// Ranks that compute at a time: parts in memory.
    pub ranks: u64,
    /// Parts that take turns in memory, if they do.
    pub phases: u64,
    /// Steps of an epoch.
    pub steps: u64,
    /// Share of the in-edges of a target that may be used: less than 1 on islands.
    pub coverage: f64,
    /// Memory of a worker.
    pub memory: MemoryNeed,
    /// Memory of a worker that the system may use for files, and take back.
    pub file_cache_bytes: u64,
    /// Bytes that all ranks send in an epoch.
    pub bytes_sent: BytesSent,
    /// Of these, bytes that one worker sends to others.
    pub network_bytes: u64,
    /// Bytes that all workers read from disk in an epoch.
    pub disk_bytes: u64,
    /// Seconds of an epoch.
    pub seconds: Seconds,
    /// An exact evaluation, which is not part of an epoch.
    pub evaluation: Evaluation,
    /// What there is to do in an epoch.
    pub work: Work,
}

/// What an exact evaluation will cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Evaluation {
    /// Bytes that all ranks send.
    pub bytes_sent: u64,
    /// Seconds that it takes.
    pub seconds: f64,
}

/// What is asked: which graph, run, machines and rates.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The graph and its cut.
    pub facts: &'a GraphFacts,
    /// The model and the dials of all strategies.
    pub config: &'a RunConfig,
    /// The machines.
    pub cluster: &'a Cluster,
    /// How fast they are.
    pub rates: &'a Rates,
}

impl Question<'_> {
    /// What every strategy will cost, but for those whose cost is [not known](Self::unplanned).
    pub fn all(&self) -> Result<Vec<Forecast>> {
        let known = strategies().filter(|entry| self.shape(entry.name).is_some());
        known.map(|entry| self.named(entry.name)).collect()
    }

    /// Strategies whose cost is not known, as they do not come with Archipelago.
    pub fn unplanned(&self) -> Vec<&'static str> {
        strategies().map(|entry| entry.name).filter(|name| self.shape(name).is_none()).collect()
    }

    /// What the strategy called `name` will cost.
    pub fn named(&self, name: &str) -> Result<Forecast> {
        strategy::find(name)?;
        let config = self.config.with_strategy(name);
        let parts = self.facts.parts;
        let shape = Shape::of(name, &config, parts).ok_or_else(|| not_known(name))?;
        let refused = strategy::check(&config, parts).err().map(|error| {
            let text = error.to_string();
            text.split("\n\n").next().unwrap_or_default().to_owned()
        });
        let forecast = self.of(&shape, &config)?;
        Ok(Forecast { refused: refused.or_else(|| self.shortage(&forecast)), ..forecast })
    }

    /// What a strategy of this `shape` will cost. Where parts may take turns in memory and nobody said how many are there
    /// at a time, as many are as fit.
    pub fn of(&self, shape: &Shape, config: &RunConfig) -> Result<Forecast> {
        let (parts, workers) = (self.facts.parts, self.cluster.workers);
        if shape.island().is_none() {
            return self.with_ranks(shape, config, parts);
        }
        if shape.resident > 0 {
            return self.with_ranks(shape, config, shape.resident.min(parts));
        }
        let mut ranks = parts;
        loop {
            let forecast = self.with_ranks(shape, config, ranks)?;
            if ranks <= workers || forecast.memory.total_bytes <= self.cluster.memory_bytes {
                return Ok(forecast);
            }
            // As many for each worker; halves, so that the answer comes soon.
            ranks = (ranks.div_ceil(workers) / 2).max(1) * workers;
        }
    }

    fn shape(&self, name: &str) -> Option<Shape> {
        Shape::of(name, &self.config.with_strategy(name), self.facts.parts)
    }

    /// Why it cannot run, if memory is too short.
    fn shortage(&self, forecast: &Forecast) -> Option<String> {
        let (needed, there) = (forecast.memory.total_bytes, self.cluster.memory_bytes);
        (needed > there).then(|| "needs more memory than a worker has".to_owned())
    }

    fn with_ranks(&self, shape: &Shape, config: &RunConfig, ranks: u32) -> Result<Forecast> {
        let (facts, cluster) = (self.facts, self.cluster);
        let net = Net::of(config, facts.features, facts.classes, facts.dense)?;
        let epoch = Epoch::of(facts, &net, shape, config, f64::from(ranks));
        let hosted = (epoch.ranks / f64::from(cluster.workers)).ceil();
        let wire = wire::wire(facts, &net, shape, &epoch, config)?;
        let work = work::work(facts, &net, shape, &epoch, &wire);
        let network = self.network_bytes(wire.sent.total() as f64, epoch.ranks);
        let hidden = Hidden { wire: wire.hidden, disk: if shape.prefetch { 1.0 } else { 0.0 } };
        // Ranks of one worker make up for each other.
        let balance = 1.0 + (facts.balance - 1.0) / hosted.max(1.0);
        let memory = memory::need(facts, &net, shape, &epoch, config, hosted, cluster.workers);
        Ok(Forecast {
            strategy: shape.name.clone(),
            refused: None,
            ranks: epoch.ranks as u64,
            phases: epoch.island.map_or(1, |island| island.per_epoch.ceil() as u64),
            steps: epoch.steps.ceil() as u64,
            coverage: epoch.island.map_or(1.0, |island| island.coverage),
            memory,
            file_cache_bytes: memory::cached(facts, shape, &epoch, hosted) as u64,
            bytes_sent: wire.sent,
            network_bytes: network as u64,
            disk_bytes: work.disk_bytes as u64,
            seconds: self.rates.seconds(&work, cluster, network, balance, hidden),
            evaluation: self.evaluation(&net),
            work,
        })
    }

    /// Bytes that a worker sends to others, of those that all ranks send to each other.
    fn network_bytes(&self, sent: f64, ranks: f64) -> f64 {
        let workers = f64::from(self.cluster.workers).min(ranks);
        if ranks < 2.0 { 0.0 } else { sent / workers * (ranks - ranks / workers) / (ranks - 1.0) }
    }

    fn evaluation(&self, net: &Net) -> Evaluation {
        let sent = wire::evaluation_bytes(self.facts, net);
        let work = work::evaluation(self.facts, net, sent);
        let network = self.network_bytes(sent, f64::from(self.facts.parts));
        let seconds = self.rates.seconds(&work, self.cluster, network, 1.0, Hidden::default()).total;
        Evaluation { bytes_sent: sent as u64, seconds }
    }
}

fn not_known(name: &str) -> Error {
    Error::from(archipelago_graph::Error::usage(format!("what strategy `{name}` costs is not known")))
        .with_hint("plans are of the strategies that come with Archipelago; train an epoch and look")
}

/// Islands that miss more of their edges than this are recommended only where nothing else can run.
pub const LEAST_COVERAGE: f64 = 0.5;

/// The strategy to choose: of those that can run and see most of the edges, the one with the shortest epoch.
pub fn recommended(forecasts: &[Forecast]) -> Option<&Forecast> {
    let can = forecasts.iter().filter(|forecast| forecast.refused.is_none());
    let blind = |forecast: &Forecast| forecast.coverage < LEAST_COVERAGE;
    let order = |a: &&Forecast, b: &&Forecast| {
        blind(a).cmp(&blind(b)).then(a.seconds.total.total_cmp(&b.seconds.total))
    };
    can.min_by(order)
}

#[cfg(test)]
mod tests {
    use super::graph::tests::rmat;
    use super::*;
    use crate::strategy::STRATEGIES;

    const CLUSTER: Cluster = Cluster {
        workers: 2,
        cores: 4,
        memory_bytes: 8_000_000_000,
        network_bytes: 125e6,
        disk_bytes: 500e6,
    };

    fn ask<T>(parts: u32, cluster: &Cluster, ask: impl Fn(&Question<'_>) -> T) -> T {
        let (facts, config, rates) = (rmat(parts), RunConfig::default(), Rates::default());
        ask(&Question { facts: &facts, config: &config, cluster, rates: &rates })
    }

    #[test]
    fn every_strategy_has_a_forecast_and_the_fastest_that_fits_is_recommended() {
        let forecasts = ask(4, &CLUSTER, |question| question.all().unwrap());
        assert_eq!(forecasts.len(), STRATEGIES.len());
        for forecast in &forecasts {
            let sum: u64 = forecast.memory.items.iter().map(|item| item.bytes).sum();
            assert_eq!(sum, forecast.memory.total_bytes, "{}", forecast.strategy);
            assert!(forecast.seconds.total > 0.0 && forecast.seconds.total.is_finite(), "{forecast:?}");
        }
        let mini = forecasts.iter().find(|forecast| forecast.strategy == "mini").unwrap();
        assert!(mini.refused.as_deref().is_some_and(|why| why.contains("expected 1")), "{mini:?}");
        let best = recommended(&forecasts).unwrap();
        let others = forecasts.iter().filter(|other| other.refused.is_none() && other.coverage == 1.0);
        assert!(others.into_iter().all(|other| other.seconds.total >= best.seconds.total));
    }

    #[test]
    fn nothing_is_recommended_where_nothing_fits() {
        let small = Cluster { memory_bytes: 1 << 20, ..CLUSTER };
        let forecasts = ask(4, &small, |question| question.all().unwrap());
        assert!(forecasts.iter().all(|forecast| forecast.refused.is_some()));
        assert!(recommended(&forecasts).is_none());
    }

    #[test]
    fn parts_take_turns_where_memory_is_short_and_are_then_read_in_every_epoch() {
        let of = |cluster: &Cluster| ask(32, cluster, |question| question.named("grappa").unwrap());
        let roomy = of(&CLUSTER);
        assert_eq!((roomy.ranks, roomy.phases), (32, 1));
        let short = of(&Cluster { memory_bytes: 75_000_000, ..CLUSTER });
        assert!(short.ranks < 32 && short.ranks.is_multiple_of(2), "{short:?}");
        assert_eq!(short.phases, 32 / short.ranks);
        // Every part once as a base and once as the swept one.
        let files = 2.0 * rmat(32).store_bytes;
        assert!((short.disk_bytes as f64 / files - 1.0).abs() < 1e-6, "{short:?}");
        assert!(short.memory.total_bytes < roomy.memory.total_bytes);
        assert!(short.file_cache_bytes > 0 && roomy.file_cache_bytes == 0);
    }

    #[test]
    fn between_switches_only_gradients_cross() {
        let grappa = ask(8, &CLUSTER, |question| question.named("grappa").unwrap());
        let numbers = 32 * 64 + 64 + 64 * 16 + 16;
        assert_eq!(grappa.bytes_sent.gradients, grappa.steps * 2 * 7 * 4 * numbers);
        assert_eq!(grappa.bytes_sent.total(), grappa.bytes_sent.gradients);
        let sdt = ask(8, &CLUSTER, |question| question.named("sdt").unwrap());
        assert_eq!((sdt.bytes_sent.gradients, sdt.bytes_sent.weights), (0, 2 * 7 * 4 * numbers));
    }
}
