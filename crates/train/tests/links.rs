//! Scores of links on all ranks are those of all links together.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::{Config, launch};
use archipelago_graph::links::{Divided, LinkSplit, divide};
use archipelago_graph::random::{Key, Purpose};
use archipelago_graph::{Part, PartId, Store};
use archipelago_train::decoder::{self, DECODERS, DecoderShape, Pairs, Scorer};
use archipelago_train::evaluate_links::{Examination, LinkScores, OwnRows, evaluate_links, in_part_order};
use archipelago_train::index::originals;
use archipelago_train::metric::{Metric, Ranks, roc_auc};
use archipelago_train::ops::Pool;
use archipelago_train::parameters::Parameters;
use archipelago_train::tape::{Input, Matrix, Tape};
use common::{communities, cut};
use std::sync::Arc;
use std::time::Duration;

const WIDTH: usize = 6;
const NEGATIVES: usize = 7;
/// Types of edges that `communities` have.
const KINDS: usize = 4;
const METRICS: [Metric; 4] = [Metric::RocAuc, Metric::Mrr, Metric::Hits(1), Metric::Hits(3)];

/// The row of the node with this original id. Halves, so that scores tie.
fn row(node: u64) -> [f32; WIDTH] {
    let key = Key::new(9, Purpose::Generate).with(node);
    std::array::from_fn(|c| key.below(c as u64, 4) as f32 * 0.5 - 0.5)
}

fn scorer(name: &str) -> (Scorer, Tape) {
    let shape = DecoderShape { width: WIDTH, hidden: 5, kinds: KINDS };
    let decoder = (decoder::find(name).unwrap().build)(&shape);
    let parameters = Parameters::new(decoder::drawn(&*decoder, 2));
    let scorer = Scorer::new(decoder, &parameters);
    (scorer, Tape::new(parameters, Parameters::default(), Pool::new(1)))
}

fn by_global(store: &Store) -> Vec<u64> {
    (0..store.parts()).flat_map(|id| store.part(PartId(id)).unwrap().original().to_vec()).collect()
}

fn divided(part: &Part, originals: &[u64]) -> Divided {
    divide(part, originals, &LinkSplit::drawn(1, 0.1, 0.2), true).unwrap()
}

/// What every rank finds.
fn on_ranks(store: &Store, decoder: &str) -> Vec<LinkScores> {
    let ranks = Config::threads(store.parts() as usize).with_deadline(Duration::from_secs(60));
    launch(&ranks, |comm| {
        let part = store.part(PartId(comm.rank() as u32))?;
        let order: Vec<u32> = (0..part.owned() as u32).rev().collect();
        let computed: Vec<f32> = part.original().iter().rev().flat_map(|&node| row(node)).collect();
        let values = in_part_order(&order, &computed, WIDTH);
        let own = OwnRows { comm: &comm, part: &part, values: &values, width: WIDTH };
        let links = divided(&part, &originals(&part, &comm)?).test;
        let asked = Examination { links: &links, negatives: NEGATIVES, seed: 3 };
        let (scorer, mut tape) = scorer(decoder);
        evaluate_links(&mut tape, &scorer, own, asked)
    })
    .unwrap_or_else(|failure| panic!("{failure}"))
}

/// The same from all rows in one place.
fn in_one_place(store: &Store, decoder: &str) -> [Option<f64>; 4] {
    let ids = by_global(store);
    let nodes = ids.len() as u64;
    let (scorer, mut tape) = scorer(decoder);
    let mut values = tape.arena.take(ids.len() * WIDTH);
    values.copy_from_slice(&ids.iter().flat_map(|&node| row(node)).collect::<Vec<_>>());
    let rows = Input::Dense(Arc::new(Matrix { rows: ids.len(), cols: WIDTH, values: values.into() }));
    let mut score = |source: u64, target: u64, kind: u32| {
        tape.begin_evaluation();
        let rows = tape.constant(&rows, ids.len());
        let pairs = Pairs { left: &[source as u32], right: &[target as u32], kinds: &[kind] };
        let scores = scorer.scores(&mut tape, rows, pairs);
        tape.value(scores)[0]
    };
    let (mut all, mut positive, mut ranks) = (Vec::new(), Vec::new(), Ranks::new(NEGATIVES));
    for id in 0..store.parts() {
        let part = store.part(PartId(id)).unwrap();
        let halo = part.halo().iter().map(|&node| ids[node as usize]);
        let links = divided(&part, &part.original().iter().copied().chain(halo).collect::<Vec<_>>()).test;
        let asked = Examination { links: &links, negatives: NEGATIVES, seed: 3 };
        for &link in &links {
            let true_one = score(link.source, link.target, link.kind);
            let false_ones: Vec<f32> = asked
                .false_targets(link, nodes)
                .map(|target| score(link.source, target, link.kind))
                .collect();
            ranks.add(true_one, &false_ones);
            positive.extend([vec![true], vec![false; NEGATIVES]].concat());
            all.push(true_one);
            all.extend(false_ones);
        }
    }
    METRICS.map(|metric| match metric {
        Metric::RocAuc => roc_auc(&all, &positive),
        _ => ranks.score(metric),
    })
}

#[test]
fn scores_of_links_on_all_ranks_are_those_of_all_links_together() {
    let mut dataset = communities(120, 900, 4);
    for (parts, method) in [(1, "random"), (3, "random"), (5, "hash")] {
        let cut = cut(&mut dataset, parts, method);
        for decoder in DECODERS.iter().map(|entry| entry.name) {
            let found = on_ranks(&cut.store, decoder);
            assert!(found.iter().all(|scores| *scores == found[0]), "ranks differ");
            let scores = METRICS.map(|metric| found[0].score(metric));
            assert_eq!(scores, in_one_place(&cut.store, decoder), "{decoder} on {parts} parts");
            assert!(scores.iter().all(|score| score.is_some_and(|score| score > 0.0 && score < 1.0)));
        }
    }
}

#[test]
fn false_targets_are_other_nodes_and_the_same_whenever_they_are_asked_for() {
    let asked = |seed| Examination { links: &[], negatives: 4000, seed };
    let link = archipelago_graph::Link::new(2, 5, 0);
    let drawn: Vec<u64> = asked(1).false_targets(link, 8).collect();
    assert_eq!(drawn, asked(1).false_targets(link, 8).collect::<Vec<_>>());
    assert_ne!(drawn, asked(2).false_targets(link, 8).collect::<Vec<_>>());
    let count = |node: u64| drawn.iter().filter(|&&other| other == node).count();
    assert_eq!(count(5), 0);
    assert!((0..8).filter(|&node| node != 5).all(|node| (480..670).contains(&count(node))));
}

#[test]
fn no_links_on_any_rank_have_no_score() {
    let mut dataset = communities(20, 60, 2);
    let cut = cut(&mut dataset, 2, "hash");
    let found = launch(&Config::threads(2), |comm| {
        let part = cut.store.part(PartId(comm.rank() as u32))?;
        let values = vec![0.0; part.owned() * WIDTH];
        let own = OwnRows { comm: &comm, part: &part, values: &values, width: WIDTH };
        let (scorer, mut tape) = scorer("mlp");
        evaluate_links(&mut tape, &scorer, own, Examination { links: &[], negatives: 3, seed: 1 })
    });
    for scores in found.unwrap_or_else(|failure| panic!("{failure}")) {
        assert!(METRICS.iter().all(|&metric| scores.score(metric).is_none()));
    }
}
