//! A sampler of one's own: every node reads some in-edges that follow each other, from a place that is drawn.
//!
//! Cuts a small generated graph in two, trains on both parts, and prints the score. Run it with
//! `cargo run --release -p archipelago-train --example own_sampler`.

use archipelago_comm::Job;
use archipelago_graph::partition::{self, Request};
use archipelago_graph::progress::Silent;
use archipelago_graph::sample::{Drawn, Hop, Lists, Sampler, Scratch};
use archipelago_graph::store::{self, Meta};
use archipelago_graph::synthetic::sbm::{self, SbmOptions};
use archipelago_graph::{Error, Store};
use archipelago_train::batch::operators::Operators;
use archipelago_train::run::RunConfig;
use archipelago_train::{Ending, Result, Run};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// `count` in-edges in a row, in the order of their sources' ids. The place is drawn from `hop.key` and the node's id,
/// so it is a function of seed, epoch, step, hop and node, whichever part the node is in.
struct InARow {
    layers: usize,
    count: usize,
}

impl Sampler for InARow {
    fn hops(&self) -> usize {
        self.layers
    }

    fn draw(&self, lists: &Lists<'_>, rows: &[u32], hop: Hop, _: &mut Scratch, drawn: &mut Drawn) {
        for &row in rows {
            let (degree, start) = (lists.degree(row), hop.key.with(lists.original(row)).bits(0) as usize);
            let count = degree.min(self.count);
            drawn.edges.extend((0..count).map(|i| lists.edge(row, (start + i) % degree)));
            drawn.counts.push(count as u32);
        }
    }
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("own-sampler-{}", std::process::id()));
    let options = SbmOptions { nodes: 2000, edges: 20_000, classes: 5, ..SbmOptions::default() };
    let mut graph = sbm::generate(&options, &Silent)?;
    let assignment = (partition::find("spring")?.build)().assign(&mut graph, &Request::new(2, 0), &Silent)?;
    store::write(&mut graph, &assignment, &Meta::default(), &folder, &Silent)?;

    let sets = ["strategy.name=bytegnn", "model.name=sage", "train.epochs=10", "train.fanouts=[8, 8]"];
    let config = RunConfig::from_sources(None, &sets.map(String::from))?;
    let mut operators = Operators::of(&config)?;
    operators.hop = Arc::new(InARow { layers: 2, count: 8 });
    let run = Run {
        config: Arc::new(config),
        store: &Store::open(&folder)?,
        folder: None,
        observer: &(),
        stop: &AtomicBool::new(false),
        resume: None,
        job: Job::alone(),
        operators: Some(operators),
    };
    if let Ending::Finished(summary) = run.train()? {
        use std::io::Write;
        let score = summary.test_score.unwrap_or_default();
        writeln!(std::io::stdout(), "test accuracy {score:.3}").map_err(Error::io("write", "stdout"))?;
    }
    std::fs::remove_dir_all(&folder).map_err(Error::io("remove", &folder))?;
    Ok(())
}
