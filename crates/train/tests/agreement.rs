//! What ranks promise each other about gradients that are rounded on their way: equal weights, the same bits in every
//! run, and about the loss of exact ones.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use archipelago_comm::Kind;
use archipelago_train::strategy;
use common::{TempStore, communities, config, cut, on_ranks, train};

const COMMON: &[&str] = &["model.hidden=32", "train.threads=2", "train.epochs=60", "train.eval_every=60"];

const BATCHES: &[&str] =
    &["strategy.name=distdgl", "train.fanouts=[4,3]", "train.batch_size=8", "train.epochs=8"];

const ROUNDING: [&str; 2] = ["agree.codec=bf16", "agree.codec=int8"];

fn four_parts() -> TempStore {
    cut(&mut communities(400, 4000, 5), 4, "random")
}

#[test]
fn rounded_gradients_lead_to_about_the_loss_of_exact_ones() {
    let cut = four_parts();
    for (way, optimizer) in [(&[][..], "adam"), (&[], "sgd"), (BATCHES, "adam")] {
        let optimizer = format!("train.optimizer={optimizer}");
        let loss = |codec| {
            let sets = [COMMON, way, &["model.dropout=0.0", "train.weight_decay=1e-3", &optimizer, codec]];
            train(&cut.store, &config(&sets.concat())).train_loss
        };
        let exact = loss("agree.codec=f32");
        for codec in ROUNDING {
            let rounded = loss(codec);
            let off = (rounded - exact).abs() / exact;
            assert!(off < 0.05, "{way:?}, {optimizer}, {codec}: loss {rounded}, exactly {exact}");
        }
    }
}

#[test]
fn ranks_hold_equal_weights_after_every_step() {
    let cut = four_parts();
    for (codec, clip) in ROUNDING.into_iter().flat_map(|codec| ["0", "0.05"].map(|clip| (codec, clip))) {
        let clip = format!("agree.clip_local={clip}");
        let config = config(&[COMMON, &[codec, &clip]].concat());
        let ranks = on_ranks(&cut.store, &config, |worker, strategy| {
            let step = |epoch| {
                strategy.epoch(worker, epoch, epoch - 1)?;
                Ok(worker.tape.parameters.clone())
            };
            (1..=10).map(step).collect::<archipelago_train::Result<Vec<_>>>()
        });
        for (step, weights) in ranks.iter().flat_map(|steps| steps.iter().enumerate()) {
            assert_eq!(weights, &ranks[0][step], "{codec}, {clip}, step {}", step + 1);
        }
    }
}

#[test]
fn oracle_8_rounding_depends_on_no_thread_and_differs_by_seed() {
    let cut = four_parts();
    for (codec, way) in ROUNDING.into_iter().flat_map(|codec| [&[][..], BATCHES].map(|way| (codec, way))) {
        let digest = |set: &str| {
            let config = config(&[COMMON, way, &["train.epochs=6", codec, set]].concat());
            train(&cut.store, &config).weights_sha256
        };
        let expected = digest("train.threads=1");
        for threads in ["train.threads=2", "train.threads=4"] {
            assert_eq!(digest(threads), expected, "{codec}, {way:?}, {threads}");
        }
        assert_ne!(digest("train.seed=1"), expected);
    }
}

#[test]
fn an_epoch_sends_the_bytes_of_the_codec() {
    let cut = four_parts();
    let bytes = |codec: &str| {
        let config = config(&[COMMON, &["model.hidden=256", codec]].concat());
        let ranks = on_ranks(&cut.store, &config, |worker, strategy| {
            strategy.epoch(worker, 1, 0)?;
            Ok(worker.comm.meters()[Kind::Gradients].bytes_sent)
        });
        ranks.iter().sum::<u64>() as f64
    };
    let exact = bytes("agree.codec=f32");
    for (codec, share) in ROUNDING.into_iter().zip([0.5, 0.254]) {
        let found = bytes(codec) / exact;
        assert!((found - share).abs() < 0.02, "{codec}: {found} of the bytes, expected {share}");
    }
}

#[test]
fn unknown_codecs_are_refused_by_name_and_known_ones_are_not() {
    for key in ["agree.codec", "exchange.codec"] {
        let message = strategy::check(&config(&[&format!("{key}=bf61")]), 2).err().unwrap().to_string();
        assert!(
            message.contains(&format!("`{key}`: unknown name `bf61`; known: f32, bf16, int8")),
            "{message}"
        );
        assert!(message.ends_with("hint: did you mean `bf16`?"), "{message}");
        for codec in ["f32", "bf16", "int8"] {
            strategy::check(&config(&[&format!("{key}={codec}")]), 2).unwrap();
        }
    }
}
