//! How ranks agree on weights: the gradient of a step is the sum over all ranks.
//!
//! Every rank starts from the same weights and makes the same update with the same summed gradient, so weights
//! stay equal bit for bit and are never sent. The sum runs in rank order whatever the timing.
//!
//! A codec that rounds (`agree.codec`) makes messages shorter. The gradient is cut into one slice per rank. Every rank
//! sends its share of a slice, encoded, to the slice's owner; the owner adds the shares, encodes their sum, and sends
//! that to all. What an encoding loses is added to what is encoded in the next step (error feedback: Seide et al.,
//! Interspeech 2014; Karimireddy et al., ICML 2019), so that over the steps nothing is lost. A rank reads its own
//! share and its own sum as they are on the wire, like everybody else: so all ranks hold the same bits.
//!
//! Cost per rank: 2·n·(P-1)/P numbers on the wire, in as many bytes as the codec takes for them; a rounding codec
//! remembers n·(P+1)/P numbers, and has them all before it sends any.

pub mod coverage;
pub mod average;
mod exact;

use crate::ops::reduce::add_to;
use crate::optimizer::limit_norm;
use crate::parameters::put_back;
use crate::run::RunConfig;
use crate::tape::Tape;
use crate::{Error, Result};
use archipelago_comm::{Codec, Comm, Kind, Rounding, Tag};
use archipelago_graph::random::{Key, Purpose};
use exact::ExactSum;

/// The conversation in which shares of a sum go to its owner.
const SHARES: Tag = Tag::new(6);

/// The conversation in which sums go to all ranks.
const SUMS: Tag = SHARES.sequence(1);

/// Numbers that are encoded together, at most: those that share a scale in `int8`.
const LONGEST_ROW: usize = 256;

/// What a rank's encoded shares have lost so far, as a checkpoint calls it.
const LOST: &str = "agree.lost";

/// What its encoded sums have lost so far, as a checkpoint calls it.
const LOST_OF_SUM: &str = "agree.lost_of_sum";

/// Sums gradients over ranks; keeps its buffers from step to step.
#[derive(Debug)]
pub struct SumGradients {
    exact: ExactSum,
    /// The gradients of all weights, one after the other, to be encoded.
    flat: Vec<f32>,
    /// Largest norm of a rank's own gradient; 0 for no limit.
    local_norm: f64,
    /// Nothing where numbers travel as they are.
    encoded: Option<EncodedSum>,
}

impl SumGradients {
    /// What `config` asks for, for a gradient of so many `numbers`.
    pub fn new(config: &RunConfig, comm: &Comm, numbers: usize) -> Result<Self> {
        let codec = Codec::named(&config.agree.codec)?;
        let rounds = comm.size() > 1 && !codec.exact;
        Ok(Self {
            exact: ExactSum::default(),
            flat: Vec::new(),
            local_norm: config.agree.clip_local / (comm.size() as f64).sqrt(),
            encoded: rounds.then(|| EncodedSum::new(codec, config.train.seed, comm, numbers)),
        })
    }

    /// Replaces every gradient by its sum over all ranks, in this `step` of the run.
    ///
    /// Before that, each rank limits the norm of its own gradient to `agree.clip_local` over the square root of the
    /// number of ranks (SANCUS: Peng et al., VLDB 2022), so that no rank outweighs the others.
    ///
    /// A gradient that `tape` [still owes](Tape::backward_owing) is computed while others are on the wire, if it can be.
    pub fn agree(&mut self, comm: &Comm, tape: &mut Tape, step: u64) -> Result<()> {
        if self.local_norm > 0.0 || self.encoded.is_some() || comm.size() == 1 {
            tape.catch_up();
        }
        if self.local_norm > 0.0 {
            limit_norm(&mut tape.parameters, self.local_norm);
        }
        match &mut self.encoded {
            _ if comm.size() == 1 => Ok(()),
            None => self.exact.sum(comm, tape),
            Some(encoded) => {
                self.flat.clear();
                tape.parameters.iter().for_each(|parameter| self.flat.extend_from_slice(&parameter.grad));
                encoded.sum(comm, &mut self.flat, step)?;
                put_back(tape.parameters.iter_mut().map(|parameter| &mut parameter.grad), &self.flat);
                Ok(())
            }
        }
    }

    /// What this rank remembers from step to step, by name; each is as long on every rank. Nothing where numbers
    /// travel as they are.
    pub fn memory(&self) -> Vec<(&'static str, &[f32])> {
        match &self.encoded {
            Some(encoded) => vec![(LOST, &encoded.lost), (LOST_OF_SUM, &encoded.lost_of_sum)],
            None => Vec::new(),
        }
    }

    /// Goes on from what [`memory`](Self::memory) gave under this `name` on this rank.
    pub fn recall(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let slot = match (&mut self.encoded, name) {
            (Some(encoded), LOST) => &mut encoded.lost[..],
            (Some(encoded), LOST_OF_SUM) => &mut encoded.lost_of_sum[..],
            _ => &mut [],
        };
        if slot.len() != values.len() {
            let message = format!("`{name}`: expected `{}` numbers, found `{}`", slot.len(), values.len());
            return Err(Error::checkpoint("memory of a rank", message)
                .with_hint("it is of another model, another number of parts or another `agree.codec`"));
        }
        slot.copy_from_slice(values);
        Ok(())
    }
}

/// The exchange of encoded gradients, as one rank takes part in it. All slices have the same length.
#[derive(Debug)]
struct EncodedSum {
    form: Form,
    /// What the draws of this rank's roundings start from.
    key: Key,
    /// What this rank's shares have lost, slice by slice.
    lost: Vec<f32>,
    /// What the sums of this rank's slice have lost.
    lost_of_sum: Vec<f32>,
    /// The sum of this rank's slice, and one share of it.
    sum: Vec<f32>,
    share: Vec<f32>,
    /// The sum as it is sent.
    bytes: Vec<u8>,
}

impl EncodedSum {
    /// Rows are of one width, as many for every rank, so that no slice is longer than another. The zeros that this
    /// takes at the end are fewer than the rows.
    fn new(codec: &'static Codec, seed: u64, comm: &Comm, numbers: usize) -> Self {
        let rows = numbers.div_ceil(LONGEST_ROW).max(1).next_multiple_of(comm.size());
        let width = numbers.div_ceil(rows);
        let slice = rows / comm.size() * width;
        Self {
            form: Form { codec, width },
            key: Key::new(seed, Purpose::Rounding).with(comm.rank() as u64),
            lost: vec![0.0; rows * width],
            lost_of_sum: vec![0.0; slice],
            sum: vec![0.0; slice],
            share: vec![0.0; slice],
            bytes: vec![0; codec.bytes(rows / comm.size(), width)],
        }
    }

    /// Replaces `values` by their sum over all ranks, and fills them up to whole rows.
    fn sum(&mut self, comm: &Comm, values: &mut Vec<f32>, step: u64) -> Result<()> {
        let [shares, sums] = [0, 1].map(|round| self.key.with(step).with(round));
        values.resize(self.lost.len(), 0.0);
        add_to(&self.lost, values);
        self.send_shares(comm, values, shares)?;
        self.add_shares(comm)?;
        self.send_sum(comm, sums)?;
        self.receive_sums(comm, values)
    }

    fn send_shares(&mut self, comm: &Comm, values: &[f32], key: Key) -> Result<()> {
        let slice = self.sum.len();
        for owner in others_first(comm) {
            let range = owner * slice..(owner + 1) * slice;
            let mut frame = comm.frame(self.bytes.len());
            let (share, lost) = (&values[range.clone()], &mut self.lost[range]);
            self.form.encode(share, key.with(owner as u64), frame.bytes_mut(), lost)?;
            comm.send(owner, SHARES, Kind::Gradients, frame)?;
        }
        Ok(())
    }

    /// Adds the shares of all ranks in rank order, then what earlier sums have lost.
    fn add_shares(&mut self, comm: &Comm) -> Result<()> {
        self.sum.fill(0.0);
        for rank in 0..comm.size() {
            let frame = comm.receive_exact(rank, SHARES, Kind::Gradients, self.bytes.len())?;
            self.form.decode(frame.bytes(), &mut self.share)?;
            add_to(&self.share, &mut self.sum);
        }
        add_to(&self.lost_of_sum, &mut self.sum);
        Ok(())
    }

    fn send_sum(&mut self, comm: &Comm, key: Key) -> Result<()> {
        self.form.encode(&self.sum, key, &mut self.bytes, &mut self.lost_of_sum)?;
        for rank in others_first(comm) {
            let mut frame = comm.frame(self.bytes.len());
            frame.bytes_mut().copy_from_slice(&self.bytes);
            comm.send(rank, SUMS, Kind::Gradients, frame)?;
        }
        Ok(())
    }

    fn receive_sums(&self, comm: &Comm, values: &mut [f32]) -> Result<()> {
        let slice = self.sum.len();
        for owner in 0..comm.size() {
            let frame = comm.receive_exact(owner, SUMS, Kind::Gradients, self.bytes.len())?;
            self.form.decode(frame.bytes(), &mut values[owner * slice..(owner + 1) * slice])?;
        }
        Ok(())
    }
}

/// All ranks, starting with the next, so that not all knock at the same door, and ending with this one.
fn others_first(comm: &Comm) -> impl Iterator<Item = usize> + use<> {
    let (rank, size) = (comm.rank(), comm.size());
    (1..=size).map(move |step| (rank + step) % size)
}

/// How numbers are written: in rows of this width.
#[derive(Debug, Clone, Copy)]
struct Form {
    codec: &'static Codec,
    width: usize,
}

impl Form {
    /// Writes `values` to `bytes`, and to `lost` what is lost by that. Rounding is at random and right on average, so
    /// that what all ranks lose does not add up to one side.
    fn encode(self, values: &[f32], key: Key, bytes: &mut [u8], lost: &mut [f32]) -> Result<()> {
        let random = |place| key.bits(place);
        self.codec.encode(values, self.width, Rounding::Stochastic(&random), bytes)?;
        self.decode(bytes, lost)?;
        lost.iter_mut().zip(values).for_each(|(lost, value)| *lost = value - *lost);
        Ok(())
    }

    fn decode(self, bytes: &[u8], values: &mut [f32]) -> Result<()> {
        Ok(self.codec.decode(bytes, self.width, values)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Pool;
    use crate::optimizer::gradient_norm;
    use crate::parameters::{Parameter, Parameters};
    use archipelago_comm::codec::CODECS;
    use archipelago_comm::{Config, launch};

    /// A weight of so many numbers, and one of seven more; `gradient` gives the number at a place.
    fn weights(numbers: usize, gradient: impl Fn(usize) -> f32) -> Tape {
        let mut weights =
            Parameters::new(vec![Parameter::zeros("bias", 1, 7), Parameter::zeros("weight", 1, numbers)]);
        let places = weights.iter_mut().flat_map(|weight| &mut weight.grad).enumerate();
        places.for_each(|(place, slot)| *slot = gradient(place));
        Tape::new(weights, Parameters::default(), Pool::new(1))
    }

    fn numbers(weights: &Tape) -> Vec<f32> {
        weights.parameters.iter().flat_map(|weight| weight.grad.iter().copied()).collect()
    }

    /// A number that looks random, the same in every run; a few are much larger than the others.
    fn gradient(rank: usize, place: usize) -> f32 {
        let size = if place % 301 == 5 { 40.0 } else { 1.0 };
        size * Key::new(9, Purpose::Generate).with(rank as u64).normal(place as u64) as f32
    }

    fn config(sets: &[&str]) -> RunConfig {
        RunConfig::from_sources(None, &sets.iter().map(|set| set.to_string()).collect::<Vec<_>>()).unwrap()
    }

    fn with_codec(codec: &Codec) -> RunConfig {
        config(&[&format!("agree.codec={}", codec.name)])
    }

    /// Runs `work` on so many ranks, with what agrees on gradients of a weight of so many numbers.
    fn on_ranks<T: Send>(
        ranks: usize,
        config: &RunConfig,
        count: usize,
        work: impl Fn(&Comm, &mut SumGradients) -> Result<T> + Sync,
    ) -> Vec<T> {
        let ended = launch(&Config::threads(ranks), |comm| {
            let mut agreement = SumGradients::new(config, &comm, count + 7)?;
            work(&comm, &mut agreement)
        });
        ended.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The sums that each rank holds after each of so many steps with the same gradient.
    fn sums(ranks: usize, codec: &Codec, count: usize, steps: u64) -> Vec<Vec<Vec<f32>>> {
        on_ranks(ranks, &with_codec(codec), count, |comm, agreement| {
            let step = |step| {
                let mut weights = weights(count, |place| gradient(comm.rank(), place));
                agreement.agree(comm, &mut weights, step)?;
                Ok(numbers(&weights))
            };
            (1..=steps).map(step).collect()
        })
    }

    fn exact_sum(ranks: usize, place: usize) -> f64 {
        (0..ranks).map(|rank| f64::from(gradient(rank, place))).sum()
    }

    #[test]
    fn f32_is_the_sum_in_rank_order_and_remembers_nothing() {
        let found = on_ranks(3, &config(&[]), 1000, |comm, agreement| {
            let mut weights = weights(1000, |place| gradient(comm.rank(), place));
            agreement.agree(comm, &mut weights, 1)?;
            assert!(agreement.memory().is_empty());
            Ok(numbers(&weights))
        });
        let sum = |place| gradient(0, place) + gradient(1, place) + gradient(2, place);
        let expected: Vec<f32> = (0..1007).map(sum).collect();
        assert_eq!(found, [&expected[..]; 3]);
    }

    #[test]
    fn all_ranks_hold_the_same_bits_close_to_the_sum_whatever_the_codec_and_the_shape() {
        for (codec, ranks) in CODECS.iter().flat_map(|codec| [1, 2, 3, 5].map(|ranks| (codec, ranks))) {
            for count in [0, 1, 6, 249, 250, 1000, 5000] {
                let found = sums(ranks, codec, count, 3);
                for other in &found {
                    assert_eq!(other, &found[0], "{} on {ranks} ranks, {count} numbers", codec.name);
                }
                // Of a row the largest number is at most about 200, and each of the roundings loses at most a 127th.
                let bound =
                    if ranks == 1 || codec.exact { 1e-4 } else { 2.0 * (ranks + 1) as f64 * 200.0 / 127.0 };
                for (place, &sum) in found[0][0].iter().enumerate() {
                    let off = (f64::from(sum) - exact_sum(ranks, place)).abs();
                    assert!(off <= bound, "{} on {ranks} ranks: off by {off} at {place}", codec.name);
                }
            }
        }
    }

    #[test]
    fn over_the_steps_nothing_is_lost_but_what_is_remembered() {
        let (ranks, count, steps) = (3, 2000, 40);
        for codec in CODECS.iter().filter(|codec| !codec.exact) {
            let found = on_ranks(ranks, &with_codec(codec), count, |comm, agreement| {
                let mut total = vec![0f64; count + 7];
                for step in 1..=steps {
                    let mut weights = weights(count, |place| gradient(comm.rank(), place));
                    agreement.agree(comm, &mut weights, step)?;
                    total.iter_mut().zip(numbers(&weights)).for_each(|(sum, more)| *sum += f64::from(more));
                }
                let memory: Vec<Vec<f32>> =
                    agreement.memory().into_iter().map(|(_, values)| values.to_vec()).collect();
                Ok((total, memory))
            });
            let slice = found[0].1[1].len();
            for place in 0..count + 7 {
                let shares: f64 = found.iter().map(|(_, memory)| f64::from(memory[0][place])).sum();
                let of_sum = f64::from(found[place / slice].1[1][place % slice]);
                let (arrived, given) = (found[0].0[place], steps as f64 * exact_sum(ranks, place));
                let off = (arrived + shares + of_sum - given).abs();
                assert!(off < 1e-2, "{} at {place}: {arrived} of {given} arrived", codec.name);
                assert!(
                    (arrived / steps as f64 - exact_sum(ranks, place)).abs() < 0.5,
                    "{} at {place}",
                    codec.name
                );
            }
        }
    }

    #[test]
    fn what_was_remembered_and_recalled_goes_on_in_the_same_bits() {
        for codec in CODECS {
            let agreed = |comm: &Comm, agreement: &mut SumGradients, step| {
                let mut weights = weights(700, |place| gradient(comm.rank(), place + step as usize));
                agreement.agree(comm, &mut weights, step)?;
                Ok::<_, Error>(numbers(&weights))
            };
            let config = with_codec(codec);
            on_ranks(4, &config, 700, |comm, agreement| {
                (1..=3).try_for_each(|step| agreed(comm, agreement, step).map(|_| ()))?;
                let mut resumed = SumGradients::new(&config, comm, 707)?;
                agreement.memory().into_iter().try_for_each(|(name, values)| resumed.recall(name, values))?;
                assert_eq!(agreed(comm, agreement, 4)?, agreed(comm, &mut resumed, 4)?);
                Ok(())
            });
        }
    }

    #[test]
    fn a_memory_of_another_shape_is_refused() {
        let int8 = with_codec(Codec::named("int8").unwrap());
        let messages = on_ranks(2, &int8, 1000, |_, agreement| {
            Ok(agreement.recall("agree.lost", &[0.0; 3]).unwrap_err().to_string())
        });
        let expected = "`memory of a rank`: `agree.lost`: expected `1008` numbers, found `3`\n\nhint: ";
        assert!(messages[0].starts_with(expected), "{}", messages[0]);
        on_ranks(2, &config(&[]), 1000, |_, agreement| {
            assert!(agreement.recall("agree.lost", &[0.0; 3]).is_err());
            Ok(())
        });
    }

    #[test]
    fn bytes_on_the_wire_fall_as_the_codec_says() {
        let bytes = |ranks: usize, codec: &Codec| {
            let sent = on_ranks(ranks, &with_codec(codec), 100_000, |comm, agreement| {
                let mut weights = weights(100_000, |place| gradient(comm.rank(), place));
                agreement.agree(comm, &mut weights, 1)?;
                Ok(comm.meters()[Kind::Gradients].bytes_sent)
            });
            sent.into_iter().sum::<u64>() as f64
        };
        for ranks in [2, 4, 7] {
            let [exact, bf16, int8] = [0, 1, 2].map(|codec| bytes(ranks, &CODECS[codec]));
            assert!((bf16 / exact - 0.5).abs() < 0.01, "{ranks} ranks: {bf16} bytes instead of {exact}");
            assert!((int8 / exact - 0.254).abs() < 0.01, "{ranks} ranks: {int8} bytes instead of {exact}");
        }
    }

    #[test]
    fn a_gradient_that_is_not_finite_is_hidden_from_no_rank() {
        for codec in CODECS {
            let norms = on_ranks(3, &with_codec(codec), 500, |comm, agreement| {
                let poisoned = |place| comm.rank() == 1 && place == 77;
                let mut weights = weights(500, |place| if poisoned(place) { f32::NAN } else { 1.0 });
                agreement.agree(comm, &mut weights, 1)?;
                Ok(gradient_norm(&weights.parameters))
            });
            assert!(norms.iter().all(|norm| !norm.is_finite()), "{}: {norms:?}", codec.name);
        }
    }

    /// The gradient of each rank as it is summed: ranks have theirs at places of their own.
    fn limited(ranks: usize, clip_local: &str) -> Vec<Vec<f32>> {
        let config = config(&[&format!("agree.clip_local={clip_local}")]);
        let mut sums = on_ranks(ranks, &config, 1000, |comm, agreement| {
            let own = |place| if place % ranks == comm.rank() { gradient(0, place) } else { 0.0 };
            let mut weights = weights(1000, own);
            agreement.agree(comm, &mut weights, 1)?;
            Ok(numbers(&weights))
        });
        let sum = sums.swap_remove(0);
        (0..ranks).map(|rank| sum.iter().copied().skip(rank).step_by(ranks).collect()).collect()
    }

    #[test]
    fn the_norm_of_a_ranks_own_gradient_is_limited_before_the_sum() {
        for ranks in [1, 4] {
            let free = limited(ranks, "0");
            assert_eq!(limited(ranks, "1e9"), free, "a limit that no gradient reaches");
            let bound = 0.5 / (ranks as f64).sqrt();
            for (own, free) in limited(ranks, "0.5").iter().zip(&free) {
                let norm = own.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                assert!((norm / bound - 1.0).abs() < 1e-6, "norm {norm}, expected {bound}");
                let factor = own[0] / free[0];
                let straight = own.iter().zip(free).all(|(own, free)| (own - factor * free).abs() < 1e-6);
                assert!(straight, "the gradient has turned");
            }
        }
    }
}
