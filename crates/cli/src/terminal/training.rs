//! A run as it goes on: a bar over its epochs, or a line for some of them when nobody watches.

use super::units;
use archipelago_train::boundary::Gaps;
use archipelago_train::event::{
    BatchFacts, EpochReport, Event, EventLog, Exchange, IslandReport, MemoryNeed, Observer, Sampling,
    Started, Summary,
};
use archipelago_train::metric::Metric;
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};

/// At most about this many epochs leave a line when nobody watches.
const LINES: u64 = 50;

/// Hears of a run's events, shows them, and hands them on to the log.
pub struct Training {
    log: Option<EventLog>,
    shown: Mutex<Shown>,
}

/// What is on the terminal, and what the end of the run will look back to.
#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    epochs: u64,
    stated_bytes: Option<u64>,
}

impl Training {
    /// Shows events, and writes them to `log` if there is one.
    pub fn new(log: Option<EventLog>) -> Self {
        Self { log, shown: Mutex::default() }
    }

    /// Takes the bar off the terminal; fails if an event could not be logged. The memory that the run stated.
    pub fn finish(self) -> archipelago_train::Result<Option<u64>> {
        let shown = self.shown.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = shown.bar {
            bar.finish_and_clear();
        }
        self.log.map_or(Ok(()), EventLog::finish)?;
        Ok(shown.stated_bytes)
    }
}

impl Observer for Training {
    fn event(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.event(event);
        }
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).event(event);
    }
}

impl Shown {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Started(facts) => self.start(facts),
            Event::Resumed { epoch } => self.line(format!("resuming after epoch {epoch}")),
            Event::Epoch(report) => self.epoch(report),
            Event::StoppedEarly { epoch, best_epoch, patience } => self.line(format!(
                "stopped at epoch {epoch}: none of the last {patience} was better than epoch {best_epoch}"
            )),
            Event::Warning { message } => self.line(format!("{}: {message}", super::bold("warning"))),
            Event::Evaluation(_)
            | Event::Checkpoint { .. }
            | Event::Interrupted { .. }
            | Event::Finished(_) => {}
        }
    }

    fn start(&mut self, facts: &Started) {
        self.epochs = facts.epochs;
        self.stated_bytes = Some(facts.memory.total_bytes);
        for line in announcement(facts) {
            self.line(line);
        }
        if super::is_watched() {
            self.bar = Some(epoch_bar(facts.epochs));
        }
    }

    fn epoch(&mut self, report: &EpochReport) {
        let (epoch, every) = (report.epoch, every(self.epochs));
        if let Some(bar) = &self.bar {
            bar.set_position(epoch);
            bar.set_message(figures(report));
        } else if epoch == 1 || epoch == self.epochs || epoch.is_multiple_of(every) {
            let width = self.epochs.to_string().len();
            super::say(format_args!("epoch {epoch:>width$}/{}  {}", self.epochs, figures(report)));
        }
    }

    /// A line that does not disturb the bar.
    fn line(&self, line: String) {
        match &self.bar {
            Some(bar) => bar.suspend(|| super::say(line)),
            None => super::say(line),
        }
    }
}

/// What will run, how batches are drawn, and the memory that it will need.
fn announcement(facts: &Started) -> Vec<String> {
    let links = facts.task == "link";
    let learned = match links {
        true => units::counted(facts.train_nodes, "training link"),
        false => {
            let classes = units::counted(facts.classes, "class");
            format!("{classes}, {}", units::counted(facts.train_nodes, "training node"))
        }
    };
    let mut lines = vec![
        format!(
            "{} by `{}` on {}: {}, {}, {}, {learned}",
            facts.model,
            facts.strategy,
            facts.dataset,
            units::counted(facts.nodes, "node"),
            units::counted(facts.edges, "edge"),
            units::counted(facts.features, "feature"),
        ),
        format!(
            "{}, {}, {}; {}; will need {}",
            units::counted(facts.parts, "part"),
            match facts.ranks {
                ranks if ranks < facts.parts && ranks > 0 => {
                    format!("in turn on {}", units::counted(ranks, "rank"))
                }
                _ => "one rank each".into(),
            },
            units::counted(facts.threads, "thread"),
            units::counted(facts.parameters, "weight"),
            need(&facts.memory),
        ),
    ];
    lines.extend(facts.batches.as_ref().map(|batches| drawn(batches, if links { "link" } else { "node" })));
    lines
}

/// How much memory work will need, and for what.
pub fn need(memory: &MemoryNeed) -> String {
    let items = memory.items.iter().filter(|item| item.bytes > 0);
    let items: Vec<_> = items.map(|item| format!("{} {}", item.what, units::bytes(item.bytes))).collect();
    format!("{} ({})", units::bytes(memory.total_bytes), items.join(", "))
}

/// How large batches of `items` are, and what is sampled for them.
fn drawn(facts: &BatchFacts, item: &str) -> String {
    let fanout = |&fanout: &i64| if fanout < 0 { "all".into() } else { fanout.to_string() };
    format!(
        "batches of {} per part, {} in all, {} per epoch; fan-out {} from the targets outward by `{}` (DGL's \
         order is the reverse)",
        units::counted(facts.batch_size, item),
        units::count(facts.global_batch_size),
        units::counted(facts.steps, "step"),
        facts.fanouts.iter().map(fanout).collect::<Vec<_>>().join(", "),
        facts.sampler,
    )
}

fn figures(report: &EpochReport) -> String {
    let mut text = format!("loss {:.4}", report.loss);
    if let Some(found) = &report.evaluation {
        let metric = match found.metric {
            Metric::Accuracy | Metric::MicroF1 => String::new(),
            metric => units::metric(metric) + " ",
        };
        for (split, score) in [("valid", found.valid), ("test", found.test)] {
            text += &score.map(|score| format!("  {split} {metric}{score:.3}")).unwrap_or_default();
        }
    }
    text + &format!("  {}  {} sent", units::seconds(report.secs), units::bytes(report.bytes_sent.total()))
}

/// Which epochs leave a line: every 1st, 2nd, 5th, 10th, …
fn every(epochs: u64) -> u64 {
    let mut steps = (0..18).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)));
    steps.find(|step| epochs / step <= LINES).unwrap_or(epochs)
}

fn epoch_bar(epochs: u64) -> ProgressBar {
    let bar = ProgressBar::new(epochs);
    if let Ok(style) = ProgressStyle::with_template("epoch {pos}/{len} {wide_bar} {msg}  {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// How a run ended, for the user.
pub fn summary(summary: &Summary, stated_bytes: Option<u64>) -> String {
    let metric = units::metric(summary.metric);
    let sent = summary.bytes_sent;
    let kinds = [
        ("features", sent.features),
        ("embeddings", sent.embeddings),
        ("gradients", sent.gradients),
        ("weights", sent.weights),
        ("control", sent.control),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(kind, bytes)| format!("{kind} {}", units::bytes(*bytes)))
        .collect();
    let stated = stated_bytes.map(|stated| format!(", {} were stated", units::bytes(stated)));
    let mut lines = vec![
        ("last loss", format!("{:.4}", summary.train_loss)),
        (
            "time",
            format!(
                "{} per epoch (median), {} in all",
                units::seconds(summary.epoch_secs_median),
                units::seconds(summary.wall_secs)
            ),
        ),
        (
            "sent",
            if kinds.is_empty() {
                "nothing".into()
            } else {
                units::bytes(sent.total()) + ": " + &kinds.join(", ")
            },
        ),
        ("peak memory", units::bytes(summary.peak_rss_bytes) + &stated.unwrap_or_default()),
        ("weights", format!("sha256 {}", summary.weights_sha256)),
        (
            "test score",
            format!(
                "{} {metric} at epoch {}, the best of {} by validation ({})",
                units::score(summary.test_score),
                summary.best_epoch,
                summary.epochs,
                units::score(summary.valid_score)
            ),
        ),
    ];
    if let Some(sampling) = &summary.sampling {
        lines.insert(2, ("sampling", sampled(sampling)));
    }
    // Of an exact exchange there is nothing more to say than its bytes.
    if let Some(exchange) = summary.exchange.as_ref().filter(|_| summary.strategy != "full") {
        lines.insert(3, ("crossed", crossed(exchange)));
    }
    if let Some(islands) = &summary.islands {
        lines.insert(3, ("islands", landed(islands)));
    }
    super::table::facts(lines)
}

/// What islands took.
fn landed(facts: &IslandReport) -> String {
    let coverage = facts.coverage.map(|share| format!("{} of in-edges covered, ", units::percent(share)));
    format!(
        "{}{} in {}",
        coverage.unwrap_or_default(),
        units::counted(facts.switches, "switch"),
        units::seconds(facts.secs)
    )
}

/// What crossed part borders.
fn crossed(facts: &Exchange) -> String {
    let parts = facts.messages_per_step.len().max(1) as f64;
    let mean = facts.messages_per_step.iter().sum::<f64>() / parts;
    let mut text = format!("{} per part and step", units::counted(mean.round() as u64, "row"));
    if let Some(ratio) = facts.messages_max_over_min {
        text += &format!(" (most over fewest {ratio:.2})");
    }
    let blocks = facts.blocks_sent + facts.blocks_skipped;
    if blocks > 0 {
        text += &format!(", {} of {} skipped", facts.blocks_skipped, units::counted(blocks, "block"));
    }
    match ages(&facts.staleness) {
        ages if ages.is_empty() => text,
        ages => text + ", versions behind: " + &ages,
    }
}

/// Shares of the rows of all layers that are so many versions behind.
fn ages(staleness: &[Vec<u64>]) -> String {
    let bins = staleness.iter().map(Vec::len).max().unwrap_or(0);
    let rows = |bin: usize| staleness.iter().map(|layer| layer.get(bin).copied().unwrap_or(0)).sum::<u64>();
    let all: u64 = (0..bins).map(rows).sum();
    let name = |bin: usize| match (Gaps::first(bin), Gaps::first(bin + 1)) {
        (first, next) if next - first == 1 => first.to_string(),
        (first, next) => format!("{first}-{}", next - 1),
    };
    let share = |bin: usize| format!("{} {}", name(bin), units::percent(rows(bin) as f64 / all as f64));
    // What would read 0.0 % is not worth saying.
    (0..bins).filter(|&bin| 2000 * rows(bin) >= all.max(1)).map(share).collect::<Vec<_>>().join(", ")
}

/// What drawing the batches of the last epoch took.
fn sampled(facts: &Sampling) -> String {
    let rate = units::rate(facts.edges, "edges", facts.draw_secs).unwrap_or_else(|| "no edges".into());
    let share = |share: Option<f64>| units::percent(share.unwrap_or(0.0));
    let remote = match facts.remote_rows {
        0 => "no remote rows".into(),
        rows => format!(
            "{} ({} kept, {} reused)",
            units::counted(rows, "remote row"),
            share(facts.hit_rate),
            share(facts.reuse_rate)
        ),
    };
    format!(
        "{rate}, {remote}, training waited {}, samplers {}, cpu {} busy",
        units::seconds(facts.trainer_stall_secs),
        units::seconds(facts.sampler_stall_secs),
        units::percent(facts.cpu_busy)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_with_what_a_batch_is_and_ends_with_what_drawing_it_took() {
        let fanouts = vec![10, -1];
        let batches = BatchFacts {
            batch_size: 512,
            global_batch_size: 1024,
            steps: 1,
            sampler: "labor".into(),
            fanouts,
        };
        let facts =
            Started { task: "link".into(), train_nodes: 9, batches: Some(batches), ..Started::default() };
        let lines = announcement(&facts);
        assert!(lines[0].ends_with("0 features, 9 training links"), "{}", lines[0]);
        let expected = "batches of 512 links per part, 1,024 in all, 1 step per epoch; fan-out 10, all from the \
                        targets outward by `labor` (DGL's order is the reverse)";
        assert_eq!(lines[2], expected);
        let mut sampling = Sampling { edges: 3_000_000, draw_secs: 1.5, ..Sampling::default() };
        assert!(sampled(&sampling).starts_with("2.00M edges/s, no remote rows, training waited 0.0 ms"));
        (sampling.remote_rows, sampling.hit_rate, sampling.reuse_rate) = (40, Some(0.25), Some(0.5));
        assert!(sampled(&sampling).contains(", 40 remote rows (25.0 % kept, 50.0 % reused), "));
    }

    #[test]
    fn a_run_says_how_parts_take_turns_and_what_islands_took() {
        let facts = Started { parts: 8, ranks: 2, ..Started::default() };
        assert!(announcement(&facts)[1].starts_with("8 parts, in turn on 2 ranks, "));
        let mut facts = IslandReport { coverage: Some(0.5), switches: 1, made: 9, secs: 2.0 };
        assert_eq!(landed(&facts), "50.0 % of in-edges covered, 1 switch in 2.00 s");
        (facts.coverage, facts.switches) = (None, 12);
        assert_eq!(landed(&facts), "12 switches in 2.00 s");
    }

    #[test]
    fn a_run_ends_with_what_crossed_part_borders() {
        let mut facts = Exchange {
            messages_per_step: vec![1000.0, 1100.0],
            messages_max_over_min: Some(1.1),
            ..Exchange::default()
        };
        assert_eq!(crossed(&facts), "1,050 rows per part and step (most over fewest 1.10)");
        (facts.blocks_sent, facts.blocks_skipped) = (3, 1);
        facts.staleness = vec![vec![], vec![60, 0, 10], vec![30]];
        assert_eq!(
            crossed(&facts),
            "1,050 rows per part and step (most over fewest 1.10), 1 of 4 blocks skipped, \
             versions behind: 0 90.0 %, 2-3 10.0 %"
        );
    }

    #[test]
    fn a_long_run_leaves_fifty_lines_at_most_and_a_short_one_a_line_per_epoch() {
        assert_eq!([1, 50, 51, 200, 1000].map(every), [1, 1, 2, 5, 20]);
        assert!((1..5000).all(|epochs| epochs / every(epochs) <= LINES));
    }
}
