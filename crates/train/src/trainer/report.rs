//! What a run tells of itself: what is about to run, what an epoch cost on all ranks, what it all came to.
//!
//! All ranks add up together whatever is told of all of them; nothing here changes what is computed.

use super::{Session, threads};
use crate::batch::Loading;
use crate::boundary::Toll;
use crate::event::{
    BatchFacts, BytesSent, Event, Exchange, IslandReport, MemoryNeed, RankHealth, Sampling, Started, Summary,
};
use crate::island::Landing;
use crate::meter::{median, peak_rss_bytes};
use crate::run::BatchKind;
use crate::{Result, evaluate, memory};
use archipelago_comm::{Kind, Meters};
use std::sync::atomic::Ordering;

/// Numbers in what a rank says of the bytes that it sent.
const SENT: usize = 2 * Kind::ALL.len();

/// What came of an epoch on all ranks.
pub(super) struct Closing {
    /// The mean loss.
    pub loss: f64,
    /// Whether the user asked any rank to stop.
    pub stop: bool,
    /// Bytes that all ranks sent.
    pub bytes_sent: BytesSent,
    /// What crossed part borders.
    pub exchange: Option<Exchange>,
}

impl Session<'_> {
    /// What all ranks tell each other at the end of an epoch that began when their meters showed `before`, in one message: its
    /// loss, whether the user asked any of them to stop, and its costs.
    pub(super) fn close(&mut self, loss: f64, toll: &Toll, before: Meters) -> Result<Closing> {
        let stop = u64::from(self.run.stop.load(Ordering::Relaxed));
        let mut mine = vec![loss.to_bits(), stop];
        mine.extend(self.sent_since(before));
        if toll.steps > 0 {
            mine.extend(toll.facts(self.run.config.model.layers));
        }
        let of_ranks = self.worker.comm.all_gather(&mine, Kind::Control)?;
        let mut sent = [0; SENT];
        for told in &of_ranks {
            sent.iter_mut().zip(&told[2..]).for_each(|(sum, more)| *sum += more);
        }
        let bytes_sent = self.count(&sent);
        Ok(Closing {
            loss: of_ranks.iter().map(|told| f64::from_bits(told[0])).sum(),
            stop: of_ranks.iter().any(|told| told[1] > 0),
            bytes_sent,
            exchange: self.exchange(of_ranks.iter().map(|told| &told[2 + SENT..])),
        })
    }

    /// Bytes that this rank sent since `before`, by kind, and those it had sent before that. What was sent between two epochs
    /// counts in the totals only.
    fn sent_since(&mut self, before: Meters) -> [u64; SENT] {
        let now = self.worker.comm.meters();
        let earlier = before - std::mem::replace(&mut self.meters, now);
        let mut sent = [0; SENT];
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            sent[at] = (now - before)[kind].bytes_sent;
            sent[Kind::ALL.len() + at] = earlier[kind].bytes_sent;
        }
        sent
    }

    /// Counts what [`sent_since`](Self::sent_since) came to on all ranks; what was sent in the epoch.
    fn count(&mut self, sent: &[u64; SENT]) -> BytesSent {
        let by_kind = |at: usize| BytesSent {
            features: sent[at],
            embeddings: sent[at + 1],
            gradients: sent[at + 2],
            weights: sent[at + 3],
            control: sent[at + 4],
        };
        self.totals.bytes_sent += by_kind(0);
        self.totals.bytes_sent += by_kind(Kind::ALL.len());
        by_kind(0)
    }

    /// What crossed part borders, by what each rank says; `None` where ranks are alone with their batches, or alone.
    fn exchange<'r>(&mut self, of_ranks: impl Iterator<Item = &'r [u64]>) -> Option<Exchange> {
        let of_ranks: Vec<_> = of_ranks.collect();
        if of_ranks.len() == 1 || of_ranks.iter().any(|facts| facts.is_empty()) {
            return None;
        }
        self.crossed.resize(of_ranks.len(), vec![0; of_ranks[0].len()]);
        for (sums, facts) in self.crossed.iter_mut().zip(&of_ranks) {
            sums.iter_mut().zip(*facts).for_each(|(sum, fact)| *sum += fact);
        }
        Some(Exchange::of(&of_ranks))
    }

    /// How all ranks did since their meters showed `before`, nothing where there is only one; and the processor time of all
    /// processes, of which this one took `cpu_secs`.
    pub(super) fn health(&self, before: Meters, cpu_secs: f64) -> Result<(Vec<RankHealth>, f64)> {
        let comm = &self.worker.comm;
        if comm.size() == 1 {
            return Ok((Vec::new(), cpu_secs));
        }
        let micros = |secs: f64| (secs * 1e6) as u64;
        let waited = (comm.meters() - before).total().seconds_waited;
        let mine =
            [micros(waited), peak_rss_bytes(), if comm.leads_process() { micros(cpu_secs) } else { 0 }];
        let of_ranks = comm.all_gather(&mine, Kind::Control)?;
        let health = of_ranks.iter().enumerate().map(|(rank, facts)| RankHealth {
            rank: rank as u64,
            process: comm.process_of(rank) as u64,
            waited_secs: facts[0] as f64 * 1e-6,
            peak_rss_bytes: facts[1],
        });
        let cpu_micros: u64 = of_ranks.iter().map(|facts| facts[2]).sum();
        Ok((health.collect(), cpu_micros as f64 * 1e-6))
    }

    /// What islands took on all ranks; `None` where ranks do not train on islands.
    pub(super) fn islands(&mut self, landing: &Landing) -> Result<Option<IslandReport>> {
        let comm = &self.worker.comm;
        if self.worker.islands.is_none() {
            return Ok(None);
        }
        let (coverage, secs) = ((landing.coverage * 1e6) as u64, (landing.secs * 1e6) as u64);
        let mut sums = [landing.targets, coverage, landing.switches, landing.made];
        let mut slowest = [secs];
        comm.all_reduce_sum_u64(&mut sums, Kind::Control)?;
        comm.all_reduce_max_u64(&mut slowest, Kind::Control)?;
        let report = IslandReport {
            coverage: (sums[0] > 0).then(|| sums[1] as f64 * 1e-6 / sums[0] as f64),
            switches: sums[2],
            made: sums[3],
            secs: slowest[0] as f64 * 1e-6,
        };
        let before = self.landed.unwrap_or_default();
        self.landed = Some(IslandReport {
            coverage: report.coverage,
            switches: before.switches + report.switches,
            made: before.made + report.made,
            secs: before.secs + report.secs,
        });
        Ok(Some(report))
    }

    /// What drawing batches took on all ranks; `None` where none are drawn.
    pub(super) fn sampling(&mut self, drawn: &Loading, secs: f64, cpu_secs: f64) -> Result<Option<Sampling>> {
        if self.worker.global_batch {
            return Ok(None);
        }
        let comm = &self.worker.comm;
        let micros = |secs: f64| (secs * 1e6) as u64;
        let mut sums = [
            drawn.batches,
            drawn.edges,
            drawn.rows,
            drawn.remote_rows,
            drawn.cached_rows,
            drawn.reused_rows,
            drawn.queue,
            micros(drawn.draw_secs),
            micros(drawn.fetch_secs),
            micros(drawn.sampler_stall_secs),
            micros(drawn.trainer_stall_secs),
        ];
        comm.all_reduce_sum_u64(&mut sums, Kind::Control)?;
        let [batches, edges, rows, remote_rows, cached, reused, queue, drawing, fetching, idle, waited] =
            sums;
        if batches == 0 {
            return Ok(None);
        }
        let share = |rows: u64| (remote_rows > 0).then(|| rows as f64 / remote_rows as f64);
        let (ranks, hosts) = (comm.size() as f64, comm.process_of(comm.size() - 1) as f64 + 1.0);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()) as f64;
        self.sampled = Some(Sampling {
            batches,
            edges,
            rows,
            remote_rows,
            hit_rate: share(cached),
            reuse_rate: share(reused),
            draw_secs: drawing as f64 * 1e-6,
            fetch_secs: fetching as f64 * 1e-6,
            sampler_stall_secs: idle as f64 * 1e-6 / ranks,
            trainer_stall_secs: waited as f64 * 1e-6 / ranks,
            queue_mean: queue as f64 / batches as f64,
            cpu_busy: cpu_secs / (secs * cores * hosts),
        });
        Ok(self.sampled)
    }

    /// Tells what is about to run and how much memory it will take.
    pub(super) fn announce(&mut self) -> Result<()> {
        let active = memory::active_rows(&self.worker)?;
        let (config, manifest) = (&self.run.config, self.run.store.manifest());
        let (kept, reach) = (self.strategy.kept_bytes(&self.worker), self.strategy.reach());
        let need: MemoryNeed = memory::need(&self.worker, manifest, kept, reach)?;
        self.tell(|| {
            Event::Started(Box::new(Started {
                strategy: config.strategy.name.clone(),
                model: config.model.name.clone(),
                dataset: manifest.dataset.clone(),
                nodes: manifest.nodes,
                edges: manifest.edges,
                features: self.worker.part.feature_width() as u64,
                classes: self.worker.part.classes() as u64,
                task: config.train.task.word().into(),
                train_nodes: self.worker.all_targets,
                parts: u64::from(self.run.store.parts()),
                ranks: self.worker.comm.size() as u64,
                processes: self.run.job.processes() as u64,
                threads: threads(config) as u64,
                seed: config.train.seed,
                epochs: config.train.epochs,
                parameters: self.worker.tape.parameters.count() as u64
                    + manifest.nodes * config.model.embedding as u64,
                active_rows: active,
                batches: self.batch_facts(),
                memory: need,
            }))
        });
        Ok(())
    }

    /// How batches are drawn; `None` where all targets make one step.
    fn batch_facts(&self) -> Option<BatchFacts> {
        let (train, ranks) = (&self.run.config.train, self.worker.comm.size() as u64);
        let batch_size = train.batch_size as u64;
        let views = self.worker.index.is_some();
        (!self.worker.global_batch && train.batch == BatchKind::Mini).then(|| BatchFacts {
            batch_size,
            global_batch_size: batch_size.saturating_mul(ranks),
            steps: self.strategy.steps(&self.worker),
            sampler: if views { "all".into() } else { train.sampler.clone() },
            fanouts: if views { vec![-1; self.run.config.model.layers] } else { train.fanouts.clone() },
        })
    }

    /// What the run came to.
    pub(super) fn summary(&mut self) -> Result<Summary> {
        // What was sent since the last epoch: its evaluation, and checkpoints.
        let mut sent = self.sent_since(self.worker.comm.meters());
        self.worker.comm.all_reduce_sum_u64(&mut sent, Kind::Control)?;
        self.count(&sent);
        let config = &self.run.config;
        let best = self.stopping.best();
        let mut peak = [self.totals.peak_rss_bytes.max(peak_rss_bytes())];
        self.worker.comm.all_reduce_max_u64(&mut peak, Kind::Control)?;
        Ok(Summary {
            strategy: config.strategy.name.clone(),
            model: config.model.name.clone(),
            dataset: self.run.store.manifest().dataset.clone(),
            parts: u64::from(self.run.store.parts()),
            processes: self.run.job.processes() as u64,
            threads: threads(config) as u64,
            seed: config.train.seed,
            epochs: self.epoch,
            best_epoch: best.map_or(0, |best| best.epoch),
            valid_score: best.map(|best| best.valid),
            test_score: best.and_then(|best| best.test),
            metric: evaluate::metric(config, &self.worker.part),
            exact_evaluation: true,
            train_loss: self.totals.losses.last().copied().unwrap_or(f64::NAN),
            epoch_secs_median: median(&self.totals.epoch_secs),
            epoch_cpu_secs_median: median(&self.totals.epoch_cpu_secs),
            wall_secs: self.wall_secs(),
            peak_rss_bytes: peak[0],
            bytes_sent: self.totals.bytes_sent,
            sampling: self.sampled,
            exchange: (!self.crossed.is_empty()).then(|| Exchange::of(&self.crossed)),
            islands: self.landed,
            weights_sha256: self.weights_sha256()?,
        })
    }
}
