//! Measurement only; not committed.
#![allow(clippy::unwrap_used, clippy::print_stdout)]
use archipelago_graph::partition::{PARTITIONERS, Request};
use archipelago_graph::progress::Progress;
use archipelago_graph::quality::{EdgeMeter, measure};
use archipelago_graph::read::{ReadOptions, open};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
#[derive(Clone, Copy)]
struct Instant(u64);
impl Instant {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Self(text.split_whitespace().next().unwrap().parse().unwrap())
    }
    fn elapsed(self) -> Duration { Self::now() - self }
}
impl std::ops::Sub for Instant {
    type Output = Duration;
    fn sub(self, other: Self) -> Duration { Duration::from_nanos(self.0 - other.0) }
}

#[derive(Default)]
struct Clock(Mutex<Vec<(String, Instant)>>);
impl Progress for Clock {
    fn begin(&self, name: &str, _: u64, _: &'static str) {
        self.0.lock().unwrap().push((name.to_owned(), Instant::now()));
    }
    fn advance(&self, _: u64) {}
}
impl Clock {
    fn rates(&self, edges: u64) -> String {
        let marks = self.0.lock().unwrap();
        let end = Instant::now();
        (0..marks.len())
            .map(|i| {
                let next = marks.get(i + 1).map_or(end, |m| m.1);
                format!("{} {:.1}M/s", marks[i].0, edges as f64 / (next - marks[i].1).as_secs_f64() / 1e6)
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[test]
#[ignore = "a measurement"]
fn rates() {
    let path = std::env::var("GRAPH").unwrap();
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut dataset = open(Path::new(&path), None, &ReadOptions::default()).unwrap();
    let (nodes, edges) = (dataset.nodes as usize, dataset.edges.len());
    let mut chunk = archipelago_graph::dataset::EdgeChunk::default();
    for _ in 0..2 {
        let start = Instant::now();
        dataset.edges.rewind().unwrap();
        let mut sum = 0;
        while dataset.edges.next_chunk(&mut chunk).unwrap() {
            sum += chunk.sources[0];
        }
        println!("{path}: {nodes} nodes {edges} edges; read {:.1}M/s {sum}", edges as f64 / start.elapsed().as_secs_f64() / 1e6);
    }
    for entry in PARTITIONERS {
        let method = (entry.build)();
        let Some(placer) = method.edges() else { continue };
        if !only.is_empty() && !only.split(',').any(|o| o == entry.name) { continue }
        let list = std::env::var("PARTS").unwrap_or("4,8,16".into());
        for parts in list.split(',').map(|p| p.parse::<u32>().unwrap()) {
            let mut request = Request::new(parts, 1);
            for pair in std::env::var("SET").unwrap_or_default().split(',').filter(|p| !p.is_empty()) {
                let (k, v) = pair.split_once('=').unwrap();
                if entry.settings.iter().any(|s| s.name == k) { request.settings.insert(k.into(), v.into()); }
            }
            let clock = Clock::default();
            placer.place(&mut dataset, &request, &clock, &mut |_, _| Ok(())).unwrap();
            println!("{} P={parts}: {}", entry.name, clock.rates(edges));
            if std::env::var("FAST").is_ok() { continue }
            let mut meter = EdgeMeter::new(nodes, parts);
            placer.place(&mut dataset, &request, &archipelago_graph::progress::Silent, &mut |c, p| { meter.count(c, p); Ok(()) }).unwrap();
            let q = meter.finish();
            let clock = Clock::default();
            let assignment = method.assign(&mut dataset, &request, &clock).unwrap();
            let rates = clock.rates(edges);
            let n = measure(&mut dataset, &assignment, &archipelago_graph::progress::Silent).unwrap();
            println!("   edge rf {:.3} bal {:.3} | node rf {:.3} cut {:.3} bal nodes {:.3} edges {:.3} | assign: {rates}",
                q.replication_factor, q.balance_edges, n.replication_factor, n.cut_fraction, n.balance_nodes, n.balance_edges);
        }
    }
}
