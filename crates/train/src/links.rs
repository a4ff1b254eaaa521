//! The task of predicting links, on one rank: which links it learns from, which are held out, and how a pair of rows
//! becomes a score and a loss.
//!
//! The part that a rank then works on is the graph without what is held out, so no layer, sampler or exact pass can
//! see those edges. What a batch predicts is left out of its own messages besides (see [`batch`](crate::batch)).

use crate::decoder::{self, Decoder, DecoderShape, Scorer};
use crate::evaluate_links::{Examination, OwnRows, evaluate_links};
use crate::metric::Metric;
use crate::parameters::{Parameter, Parameters};
use crate::run::{LinkLossKind, RunConfig};
use crate::tape::{LinkLoss, Tape};
use crate::{Result, index};
use archipelago_comm::Comm;
use archipelago_graph::links::{LinkSplit, divide};
use archipelago_graph::{Link, Part};
use std::path::Path;
use std::sync::Arc;

/// Links of one rank, and what makes scores of them.
pub struct LinkTask {
    /// Links to learn from.
    pub train: Vec<Link>,
    /// Links to choose the best epoch by.
    pub valid: Vec<Link>,
    /// Links to report.
    pub test: Vec<Link>,
    /// Scores of pairs of rows.
    pub scorer: Scorer,
    /// What is made of scores.
    pub loss: LinkLoss,
}

/// The links of a rank, and a decoder, before there is a model.
pub struct LinkShares {
    train: Vec<Link>,
    valid: Vec<Link>,
    test: Vec<Link>,
    decoder: Box<dyn Decoder>,
    weights: Vec<Parameter>,
}

impl LinkShares {
    /// The weights of the decoder, which a model is built beside.
    pub fn take_weights(&mut self) -> Vec<Parameter> {
        std::mem::take(&mut self.weights)
    }

    /// How many links there are to learn from.
    pub fn to_learn(&self) -> usize {
        self.train.len()
    }
}

/// Divides the edges of `part`; the part that is returned has only those that are trained on.
pub fn share_out(part: &Part, comm: &Comm, config: &RunConfig) -> Result<(Arc<Part>, LinkShares)> {
    let data = &config.data;
    let split = match data.link_split.is_empty() {
        true => LinkSplit::drawn(config.train.seed, data.link_valid, data.link_test),
        false => LinkSplit::read(Path::new(&data.link_split))?,
    };
    let divided = divide(part, &index::originals(part, comm)?, &split, part.undirected())?;
    let kinds = part.edge_columns().types.max(1) as usize;
    let shape = DecoderShape { width: config.model.hidden, hidden: config.model.hidden, kinds };
    let decoder = (decoder::find(&config.train.decoder)?.build)(&shape);
    let weights = decoder::drawn(&*decoder, config.train.seed);
    let (train, valid, test) = (divided.train, divided.valid, divided.test);
    let shares = LinkShares { train, valid, test, decoder, weights };
    Ok((Arc::new(divided.graph), shares))
}

impl LinkTask {
    /// The task, once the weights of model and decoder are together in `parameters`.
    pub fn new(shares: LinkShares, parameters: &Parameters, config: &RunConfig) -> Self {
        let LinkShares { train, valid, test, decoder, .. } = shares;
        let loss = match config.train.link_loss {
            LinkLossKind::Bce => LinkLoss::Logistic,
            LinkLossKind::Contrastive => {
                LinkLoss::Contrastive { temperature: config.train.temperature as f32 }
            }
        };
        Self { train, valid, test, scorer: Scorer::new(decoder, parameters), loss }
    }

    /// Scores of the held-out links of all ranks (valid, test) by the final rows of all nodes.
    pub fn evaluate(
        &self,
        tape: &mut Tape,
        own: OwnRows<'_>,
        config: &RunConfig,
        metric: Metric,
    ) -> Result<[Option<f64>; 2]> {
        let (negatives, seed) = (config.train.eval_negatives, config.train.seed);
        let mut scores = [None, None];
        for (score, links) in scores.iter_mut().zip([&self.valid, &self.test]) {
            let found = evaluate_links(tape, &self.scorer, own, Examination { links, negatives, seed })?;
            *score = found.score(metric);
        }
        Ok(scores)
    }
}
