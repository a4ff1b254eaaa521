//! What values of the run file are possible, beyond their type.

use super::RunConfig;
use crate::error::{Error, Result};

/// A key, whether its value is possible, and what is expected of it.
type Check = (&'static str, bool, &'static str);

impl RunConfig {
    /// Fails on the first value that cannot be, naming its key, what was found and what was expected.
    pub fn validate(&self) -> Result<()> {
        let checks = [
            self.data_checks(),
            self.model_checks(),
            self.optimizer_checks(),
            self.epoch_checks(),
            self.link_checks(),
            self.boundary_checks(),
            self.island_checks(),
        ];
        for (key, possible, expected) in checks.into_iter().flatten() {
            if !possible {
                let found = self.show(key).unwrap_or_default();
                return Err(Error::config(
                    self.place(key),
                    key,
                    format!("expected {expected}, found `{found}`"),
                ));
            }
        }
        self.check_heads()
    }

    fn data_checks(&self) -> Vec<Check> {
        vec![
            ("data.parts", (1..=u32::MAX as usize).contains(&self.data.parts), "1 part or more"),
            ("data.partition_seed", written(self.data.partition_seed), SEED),
            ("exchange.cache", (0.0..=1.0).contains(&self.exchange.cache), "a share from 0 to 1"),
            ("exchange.deadline_secs", self.exchange.deadline_secs > 0, "1 second or more"),
        ]
    }

    fn model_checks(&self) -> Vec<Check> {
        let model = &self.model;
        let share = |value: f64| (0.0..1.0).contains(&value);
        vec![
            ("model.layers", model.layers > 0, "1 layer or more"),
            ("model.hidden", model.hidden > 0, "1 column or more"),
            ("model.heads", model.heads > 0, "1 head or more"),
            ("model.bases", model.bases > 0, "1 matrix or more"),
            ("model.output_heads", model.output_heads > 0, "1 head or more"),
            ("model.dropout", share(model.dropout), SHARE),
            ("model.input_dropout", share(model.input_dropout), SHARE),
            ("model.attention_dropout", share(model.attention_dropout), SHARE),
        ]
    }

    fn optimizer_checks(&self) -> Vec<Check> {
        let train = &self.train;
        let amount = |value: f64| value.is_finite() && value >= 0.0;
        vec![
            ("train.lr", amount(train.lr) && train.lr > 0.0, "a number above 0"),
            ("train.embedding_lr", train.embedding_lr > 0.0, "a number above 0"),
            ("train.momentum", (0.0..1.0).contains(&train.momentum), SHARE),
            ("train.weight_decay", amount(train.weight_decay), "0 or more"),
            ("train.clip_norm", amount(train.clip_norm), "0 (off) or a number above"),
            ("agree.clip_local", amount(self.agree.clip_local), "0 (off) or a number above"),
            ("train.step_every", train.step_every > 0, "1 epoch or more"),
            (
                "train.step_factor",
                train.step_factor > 0.0 && train.step_factor <= 1.0,
                "above 0 and at most 1",
            ),
            ("train.min_lr", amount(train.min_lr) && train.min_lr <= train.lr, "from 0 to `train.lr`"),
            ("train.warmup_epochs", train.warmup_epochs <= train.epochs, "at most `train.epochs`"),
        ]
    }

    fn epoch_checks(&self) -> Vec<Check> {
        let train = &self.train;
        vec![
            ("train.epochs", train.epochs > 0 && written(train.epochs), "1 epoch or more"),
            ("train.seed", written(train.seed), SEED),
            // Patience is with scores.
            (
                "train.eval_every",
                train.eval_every > 0 || train.patience == 0,
                "1 epoch or more with `train.patience`",
            ),
            ("train.prefetch", train.prefetch > 0, "1 batch or more"),
            ("train.launch_gap_ms", train.launch_gap_ms > 0.0, "a number above 0"),
            ("train.launch_cpu", (0.0..100.0).contains(&train.launch_cpu), "0 or more and below 100"),
            ("train.launch_balance", train.launch_balance > 0.0, "a number above 0"),
            ("train.batch_size", train.batch_size > 0, "1 target or more"),
            (
                "train.fanouts",
                !train.fanouts.is_empty() && train.fanouts.iter().all(|&n| n > 0 || n == -1),
                "one entry per layer, each 1 or more, or -1 for all neighbours",
            ),
        ]
    }

    fn link_checks(&self) -> Vec<Check> {
        let (data, train) = (&self.data, &self.train);
        let share = |value: f64| (0.0..1.0).contains(&value);
        let left = data.link_valid + data.link_test < 1.0;
        let one = "1 false link or more";
        vec![
            ("data.link_valid", share(data.link_valid), SHARE),
            ("data.link_test", share(data.link_test), SHARE),
            // Said of the share that the user wrote.
            ("data.link_valid", left || !self.is_set("data.link_valid"), "edges left to train on"),
            ("data.link_test", left, "edges left to train on"),
            ("train.temperature", train.temperature > 0.0, "a number above 0"),
            ("train.negatives", train.negatives > 0, one),
            ("train.eval_negatives", train.eval_negatives > 0, one),
        ]
    }

    fn boundary_checks(&self) -> Vec<Check> {
        let exchange = &self.exchange;
        let share = |value: f64| (0.0..1.0).contains(&value);
        let rate = exchange.boundary_rate > 0.0 && exchange.boundary_rate <= 1.0;
        vec![
            ("exchange.chunks", exchange.chunks > 0, "1 chunk or more"),
            ("exchange.stale_change", exchange.stale_change >= 0.0, "0 or more"),
            ("exchange.boundary_rate", rate, "above 0 and at most 1"),
            ("exchange.smooth_rows", share(exchange.smooth_rows), SHARE),
            ("exchange.smooth_gradients", share(exchange.smooth_gradients), SHARE),
        ]
    }

    fn island_checks(&self) -> Vec<Check> {
        let (residency, share) = (&self.residency, |value: f64| (0.0..=1.0).contains(&value));
        vec![
            ("agree.every", self.agree.every > 0, "1 epoch or more"),
            ("train.clusters", self.train.clusters > 0, "1 part or more"),
            (
                "train.cluster_count",
                (1..=u32::MAX as usize).contains(&self.train.cluster_count),
                "1 cluster or more",
            ),
            ("agree.in_flight", (1..=64).contains(&self.agree.in_flight), "1 to 64 batches"),
            ("residency.deficit", share(residency.deficit), "a share from 0 to 1"),
            ("residency.deficit_steps", residency.deficit_steps > 0, "1 step or more"),
        ]
    }

    /// Heads share the hidden width evenly.
    fn check_heads(&self) -> Result<()> {
        let (hidden, heads) = (self.model.hidden, self.model.heads);
        if hidden.is_multiple_of(heads) {
            return Ok(());
        }
        let key = if self.is_set("model.hidden") { "model.hidden" } else { "model.heads" };
        let message =
            format!("expected `model.hidden` to be a multiple of `model.heads`, found {hidden} and {heads}");
        let near = hidden.div_ceil(heads).saturating_mul(heads);
        Err(Error::config(self.place(key), key, message)
            .with_hint(format!("`model.hidden` = {near} would do: it is the width of all heads together")))
    }
}

const SHARE: &str = "0 or more and below 1";
const SEED: &str = "a whole number below 2^63";

/// Whether TOML can write it.
fn written(number: u64) -> bool {
    i64::try_from(number).is_ok()
}
