//! How ranks agree on weights that they have trained apart: the mean over parts, each weighing its share of the
//! training nodes (SDT-GNN).
//!
//! The mean is summed in part order, whichever rank trained a part, so it is the same bits for any number of ranks.
//! Numbers are cut into one slice per rank; every rank sends each of its parts' slices to the rank that sums them up,
//! and gets the means back. Cost per rank and round: `n (M-1)/M` numbers for each of its parts, and as many once more
//! for the means.

use crate::Result;
use crate::residency::Turns;
use archipelago_comm::{Comm, Kind};

/// The mean over parts of what ranks `hold` (one list per part of theirs, in the order of
/// their turns; all as long), part `p` weighing `shares[p]`.
pub fn average(
    comm: &Comm,
    turns: &Turns,
    hold: &[Vec<f32>],
    shares: &[f64],
    len: usize,
) -> Result<Vec<f32>> {
    let ranks = comm.size();
    let slice = |rank: usize| rank * len / ranks..(rank + 1) * len / ranks;
    let pieces = |rank: usize| hold.iter().flat_map(|list| &list[slice(rank)]).copied().collect::<Vec<f32>>();
    let heard = comm.all_to_all((0..ranks).map(pieces).collect(), Kind::Weights)?;
    let own = slice(comm.rank());
    let mut sums = vec![0f64; own.len()];
    for (part, &share) in shares.iter().enumerate().take(turns.parts()) {
        let (rank, turn) = (part % ranks, part / ranks);
        let piece = &heard[rank][turn * own.len()..][..own.len()];
        if share > 0.0 {
            sums.iter_mut().zip(piece).for_each(|(sum, &value)| *sum += share * f64::from(value));
        }
    }
    let means: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
    Ok(comm.all_gather(&means, Kind::Weights)?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_comm::{Config, launch};
    use archipelago_graph::random::{Key, Purpose};

    /// The mean on so many ranks of lists that only depend on the part.
    fn on_ranks(ranks: usize, parts: usize, len: usize, shares: &[f64]) -> Vec<Vec<f32>> {
        let list = |part: usize| {
            let key = Key::new(3, Purpose::Generate).with(part as u64);
            (0..len as u64).map(|at| key.normal(at) as f32).collect::<Vec<f32>>()
        };
        let turns = Turns::new(parts, ranks);
        launch(&Config::threads(ranks), |comm| {
            let hold: Vec<Vec<f32>> = turns.of_rank(comm.rank()).map(|part| list(part.index())).collect();
            average(&comm, &turns, &hold, shares, len)
        })
        .unwrap_or_else(|failure| panic!("{failure}"))
    }

    #[test]
    fn the_mean_is_weighed_and_the_same_bits_on_any_number_of_ranks() {
        let shares = [0.25, 0.0, 0.5, 0.125, 0.125];
        let expected = on_ranks(1, 5, 103, &shares).remove(0);
        for ranks in 2..=5 {
            assert!(on_ranks(ranks, 5, 103, &shares).iter().all(|found| found == &expected), "{ranks} ranks");
        }
        let alone = on_ranks(1, 1, 7, &[1.0]).remove(0);
        let key = Key::new(3, Purpose::Generate).with(0);
        assert_eq!(alone, (0..7).map(|at| key.normal(at) as f32).collect::<Vec<_>>());
    }
}
