//! What training on links promises, on one part and on several.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_graph::Store;
use archipelago_train::batch::Batches;
use archipelago_train::batch::launcher::Ahead;
use archipelago_train::batch::operators::Operators;
use archipelago_train::event::Summary;
use archipelago_train::metric::Metric;
use archipelago_train::run::RunConfig;
use common::{communities, config, cut, on_ranks, train};
use std::collections::BTreeSet;
use std::sync::Arc;

const LINKS: &[&str] = &[
    "train.task=link",
    "model.name=gcn",
    "model.hidden=16",
    "model.dropout=0",
    "train.threads=2",
    "train.fanouts=[-1, -1]",
    "train.batch_size=64",
    "train.eval_negatives=20",
    "train.eval_every=5",
];

fn settings(more: &[&str]) -> Arc<RunConfig> {
    config(&[LINKS, more].concat())
}

fn store(parts: u32) -> common::TempStore {
    cut(&mut communities(300, 2400, 5), parts, "random")
}

fn strategy(parts: u32) -> &'static str {
    if parts == 1 { "strategy.name=mini" } else { "strategy.name=distdgl" }
}

/// Pairs of original ids along which messages pass in a batch, and those that it predicts.
type Batch = (BTreeSet<(u64, u64)>, Vec<(u64, u64)>);

/// The batches of an epoch on all ranks.
fn passed_and_predicted(store: &Store, config: &Arc<RunConfig>) -> Vec<Batch> {
    let ranks = on_ranks(store, config, |worker, _| {
        let batches = Batches::agree(worker, Operators::of(&worker.config)?)?;
        let mut found = Vec::new();
        batches.epoch(&Arc::clone(&worker.comm), 1, &mut Ahead(2), |prepared| {
            let mut passed = BTreeSet::new();
            for layout in &prepared.layouts {
                for target in 0..layout.block.targets {
                    let sources = layout.block.incoming.neighbors(target).iter();
                    passed.extend(sources.map(|&s| (layout.nodes[s as usize], layout.nodes[target])));
                }
            }
            let nodes = &prepared.layouts[0].nodes;
            let links = prepared.links.as_ref().unwrap();
            let ends = links.left.iter().zip(&links.right).take(links.positives);
            let predicted = ends.map(|(&u, &v)| (nodes[u as usize], nodes[v as usize])).collect();
            found.push((passed, predicted));
            Ok(())
        })?;
        Ok(found)
    });
    ranks.into_iter().flatten().collect()
}

#[test]
fn no_message_passes_along_a_link_that_the_batch_predicts_in_either_direction() {
    for parts in [1, 3] {
        let cut = store(parts);
        let batches = passed_and_predicted(&cut.store, &settings(&[strategy(parts)]));
        let undirected = cut.store.manifest().undirected;
        let mut predicted_in_all = 0;
        for (passed, predicted) in batches {
            predicted_in_all += predicted.len();
            for (source, target) in predicted {
                assert!(!passed.contains(&(source, target)), "{source} -> {target} on {parts} parts");
                assert!(!undirected || !passed.contains(&(target, source)));
            }
        }
        assert!(predicted_in_all > 500, "{predicted_in_all}");
        let leaking = settings(&[strategy(parts), "train.exclude_targets=false"]);
        let leaks = passed_and_predicted(&cut.store, &leaking);
        assert!(leaks.iter().any(|(passed, predicted)| predicted.iter().any(|link| passed.contains(link))));
    }
}

fn run(parts: u32, more: &[&str]) -> Summary {
    train(&store(parts).store, &settings(&[&[strategy(parts)], more].concat()))
}

#[test]
fn a_leak_makes_training_look_better_than_it_is() {
    let honest = run(1, &["train.epochs=20"]);
    let leaking = run(1, &["train.epochs=20", "train.exclude_targets=false"]);
    assert!(leaking.train_loss < honest.train_loss, "{} {}", leaking.train_loss, honest.train_loss);
    assert!(leaking.test_score < honest.test_score.map(|score| score + 0.02));
}

#[test]
fn held_out_links_are_found_by_every_decoder_loss_and_negative_sampler() {
    let variants: [&[&str]; 5] = [
        &[],
        &["train.decoder=distmult", "train.negative_sampler=degree"],
        &["train.decoder=mlp", "train.negatives=3"],
        &["train.link_loss=contrastive", "train.negatives=5", "train.negative_sampler=in-batch"],
        &["train.fanouts=[5, 5]", "train.sampler=labor"],
    ];
    for variant in variants {
        let summary = run(3, &[&["train.epochs=15"], variant].concat());
        assert_eq!(summary.metric, Metric::RocAuc);
        assert!(summary.test_score > Some(0.6), "{variant:?}: {:?}", summary.test_score);
    }
}

#[test]
fn mrr_and_hits_are_reported_where_they_are_asked_for() {
    let mrr = run(2, &["train.epochs=5", "train.link_metric=mrr"]);
    assert_eq!(mrr.metric, Metric::Mrr);
    assert!(mrr.test_score > Some(0.15) && mrr.test_score < Some(1.0), "{:?}", mrr.test_score);
    let hits = run(2, &["train.epochs=5", "train.link_metric=hits@10"]);
    assert_eq!(hits.metric, Metric::Hits(10));
    assert!(hits.test_score > mrr.test_score);
}

#[test]
fn oracle_8_links_give_the_same_bits_however_their_batches_are_drawn() {
    let digest = |more: &[&str]| run(3, &[&["train.epochs=3"], more].concat()).weights_sha256;
    let expected = digest(&[]);
    for other in [
        &["strategy.name=bytegnn"][..],
        &["train.threads=1", "train.prefetch=4"],
        &["exchange.reuse=false", "exchange.cache=0"],
    ] {
        assert_eq!(digest(other), expected, "{other:?}");
    }
    assert_ne!(digest(&["train.seed=7"]), expected);
}
