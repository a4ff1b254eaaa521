//! Every collective, on every transport of this build, against a sequential computation.

use crate::support::{RANKS, configs, noise, number, on_all_transports, within};
use archipelago_comm::{Config, Error, Kind, Stretches, frames_of, launch};
use std::thread;
use std::time::{Duration, SystemTime};

/// Lengths around the borders between slices, and of the short and the long way of reducing.
const LENGTHS: [usize; 9] = [0, 1, 2, 6, 7, 8, 512, 513, 3001];

#[test]
fn sums_are_those_of_adding_in_rank_order_bit_for_bit() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            let ranks = comm.size();
            for length in LENGTHS {
                let mut sums: Vec<f32> = (0..length).map(|i| number(comm.rank(), i)).collect();
                comm.all_reduce_sum_f32(&mut sums, Kind::Gradients)?;
                let expected = |i| (1..ranks).fold(number(0, i), |sum, rank| sum + number(rank, i));
                assert!(sums.iter().enumerate().all(|(i, sum)| sum.to_bits() == f32::to_bits(expected(i))));

                let wide = |rank, i| f64::from(number(rank, i)) * 1.1;
                let mut sums: Vec<f64> = (0..length).map(|i| wide(comm.rank(), i)).collect();
                comm.all_reduce_sum_f64(&mut sums, Kind::Control)?;
                let expected = |i| (1..ranks).fold(wide(0, i), |sum, rank| sum + wide(rank, i));
                assert!(sums.iter().enumerate().all(|(i, sum)| sum.to_bits() == f64::to_bits(expected(i))));
            }
            Ok(())
        });
    }
}

/// Numbers of four bytes in a whole frame of a long message.
fn whole_frame() -> usize {
    frames_of(1 << 20, 4).next().unwrap().len()
}

#[test]
fn sums_that_are_made_in_stretches_run_in_rank_order_too() {
    // A stretch is a whole frame per rank: ten of them and a rest that is no multiple of the ranks.
    for ranks in [2, 3] {
        on_all_transports(ranks, |comm| {
            let length = 10 * comm.size() * whole_frame() + 7;
            let mut sums: Vec<f32> = (0..length).map(|i| number(comm.rank(), i)).collect();
            comm.all_reduce_sum_f32(&mut sums, Kind::Gradients)?;
            let expected = |i| (1..comm.size()).fold(number(0, i), |sum, rank| sum + number(rank, i));
            assert!(sums.iter().enumerate().all(|(i, sum)| sum.to_bits() == f32::to_bits(expected(i))));
            Ok(())
        });
    }
}

/// Stretches of these lengths, each of which is filled when it is asked for the first time.
struct Computed {
    rank: usize,
    lengths: &'static [usize],
    stretches: Vec<Vec<f32>>,
}

impl Stretches<f32> for Computed {
    fn numbers(&self) -> usize {
        self.lengths.iter().sum()
    }

    fn count(&self) -> usize {
        self.lengths.len()
    }

    fn stretch(&mut self, at: usize) -> &mut [f32] {
        if at == self.stretches.len() {
            self.stretches.push((0..self.lengths[at]).map(|i| number(self.rank, 1000 * at + i)).collect());
        }
        &mut self.stretches[at]
    }
}

#[test]
fn stretches_that_are_computed_one_after_the_other_get_the_sums_of_what_was_there_before() {
    for lengths in [&[3, 0, 7, 1][..], &[513, 0, 1 << 18, 6, 200_000, 1][..], &[40_000; 9][..], &[]] {
        for (ranks, ahead) in
            RANKS.into_iter().flat_map(|ranks| [(ranks, 0), (ranks, 2), (ranks, usize::MAX)])
        {
            on_all_transports(ranks, move |comm| {
                let mut computed = Computed { rank: comm.rank(), lengths, stretches: Vec::new() };
                comm.all_reduce_sum_stretches(&mut computed, ahead, Kind::Gradients)?;
                assert_eq!(computed.stretches.len(), lengths.len(), "each was asked for");
                for (at, sums) in computed.stretches.iter().enumerate() {
                    let mut alone: Vec<f32> =
                        (0..sums.len()).map(|i| number(comm.rank(), 1000 * at + i)).collect();
                    comm.all_reduce_sum_f32(&mut alone, Kind::Gradients)?;
                    assert_eq!(sums, &alone);
                }
                Ok(())
            });
        }
    }
}

#[test]
fn sums_of_counts_wrap_and_maxima_are_maxima() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            let ranks = comm.size();
            for length in LENGTHS {
                let mine: Vec<u64> = (0..length).map(|i| noise(comm.rank(), i)).collect();
                let mut sums = mine.clone();
                comm.all_reduce_sum_u64(&mut sums, Kind::Control)?;
                let expected = |i| (0..ranks).fold(0u64, |sum, rank| sum.wrapping_add(noise(rank, i)));
                assert!(sums.iter().enumerate().all(|(i, &sum)| sum == expected(i)));

                let mut maxima = mine;
                comm.all_reduce_max_u64(&mut maxima, Kind::Control)?;
                let expected = |i| (0..ranks).map(|rank| noise(rank, i)).max();
                assert!(maxima.iter().enumerate().all(|(i, &max)| Some(max) == expected(i)));
            }
            Ok(())
        });
    }
}

#[test]
fn a_broadcast_gives_every_rank_the_values_of_every_root_in_turn() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            for root in 0..comm.size() {
                for length in LENGTHS {
                    let mut values: Vec<f32> = (0..length).map(|i| number(comm.rank(), i)).collect();
                    comm.broadcast(root, &mut values, Kind::Weights)?;
                    assert!(values.iter().enumerate().all(|(i, &x)| x == number(root, i)));
                }
            }
            Ok(())
        });
    }
}

/// Rank r has a list of a length of its own for rank s; many are empty.
fn list(from: usize, to: usize) -> Vec<u64> {
    let length = (noise(from, to) % 3 * 50 * (from as u64 + 1)) as usize;
    (0..length).map(|i| noise(from * 100 + to, i)).collect()
}

#[test]
fn gathers_keep_the_length_and_order_of_every_rank() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            let expected: Vec<Vec<u64>> = (0..comm.size()).map(|rank| list(rank, 0)).collect();
            let mine = list(comm.rank(), 0);
            assert_eq!(comm.all_gather(&mine, Kind::Control)?, expected);
            for root in 0..comm.size() {
                let gathered = comm.gather(root, &mine, Kind::Control)?;
                assert_eq!(gathered, (comm.rank() == root).then(|| expected.clone()));
            }
            Ok(())
        });
    }
}

#[test]
fn all_to_all_is_a_transposition() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            let row = |from| (0..comm.size()).map(|to| list(from, to)).collect::<Vec<_>>();
            let column: Vec<_> = (0..comm.size()).map(|from| list(from, comm.rank())).collect();
            assert_eq!(comm.all_to_all(row(comm.rank()), Kind::Control)?, column);

            // Of no, one, some and many whole frames, and a number more or less.
            let long = |from: usize, to: usize| {
                let whole = whole_frame();
                vec![(7 * from + to) as u32; [0, whole, 7 * whole, 600_000][(from + 2 * to) % 4]]
            };
            let row = (0..comm.size()).map(|to| long(comm.rank(), to)).collect();
            let column: Vec<_> = (0..comm.size()).map(|from| long(from, comm.rank())).collect();
            assert!(comm.all_to_all(row, Kind::Control)? == column, "long lists");

            let letters = vec![vec![comm.rank() as u8; 3]; comm.size()];
            let received = comm.all_to_all(letters, Kind::Control)?;
            assert!(received.iter().enumerate().all(|(from, bytes)| *bytes == [from as u8; 3]));
            Ok(())
        });
    }
}

#[test]
fn nobody_leaves_a_barrier_before_everybody_has_come() {
    // All processes of a test run on one machine, so they share a clock.
    let now = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    for ranks in RANKS {
        on_all_transports(ranks, move |comm| {
            for round in 1..=20 {
                thread::sleep(Duration::from_micros(noise(comm.rank(), round) % 500));
                let came = now();
                comm.barrier()?;
                let left = now();
                let times = comm.all_gather(&[came, left], Kind::Control)?;
                assert!(times.iter().all(|one| times.iter().all(|other| one[0] <= other[1])), "{times:?}");
            }
            Ok(())
        });
    }
}

#[test]
fn the_bits_of_a_sum_do_not_depend_on_who_is_late() {
    within(60, || {
        let run = |config: &Config, delays: usize| {
            launch(config, |comm| {
                let mut all = Vec::new();
                for round in 0..10 {
                    thread::sleep(Duration::from_micros(noise(delays, 10 * comm.rank() + round) % 2000));
                    for length in [40, 2000] {
                        let mut sums: Vec<f32> =
                            (0..length).map(|i| number(comm.rank(), i + round)).collect();
                        comm.all_reduce_sum_f32(&mut sums, Kind::Gradients)?;
                        all.extend(sums.into_iter().map(f32::to_bits));
                    }
                }
                Ok::<_, Error>(all)
            })
            .unwrap()
        };
        for config in configs(4) {
            let first = run(&config, 0);
            assert!(first.iter().all(|bits| *bits == first[0]), "ranks differ");
            for delays in 1..8 {
                assert_eq!(run(&config, delays), first, "delays {delays}");
            }
        }
    });
}

#[test]
fn meters_count_what_a_sum_costs_by_kind_and_nothing_that_stays_at_home() {
    for ranks in RANKS {
        on_all_transports(ranks, |comm| {
            let others = (comm.size() - 1) as u64;
            let before = comm.meters();
            comm.all_reduce_sum_f32(&mut vec![1.0; 7 * 4 * 3 * 1000], Kind::Gradients)?;
            let cost = comm.meters() - before;
            let total = 7 * 4 * 3 * 1000 * 4;
            assert_eq!(cost[Kind::Gradients].bytes_sent, 2 * total * others / comm.size() as u64);
            assert_eq!(cost[Kind::Gradients].messages_sent, 2 * others);
            assert_eq!(cost.total().bytes_sent, cost[Kind::Gradients].bytes_sent);

            let before = comm.meters();
            comm.all_gather(&[7u8; 10], Kind::Features)?;
            comm.barrier()?;
            let cost = comm.meters() - before;
            assert_eq!(cost[Kind::Features].bytes_sent, 10 * others);
            assert_eq!((cost[Kind::Control].bytes_sent, cost[Kind::Control].messages_sent), (0, others));
            Ok(())
        });
    }
}

#[test]
fn meters_tell_how_long_a_rank_waited() {
    on_all_transports(2, |comm| {
        comm.barrier()?;
        let before = comm.meters();
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(200));
        }
        comm.barrier()?;
        let waited = (comm.meters() - before)[Kind::Control].seconds_waited;
        assert_eq!(waited > 0.1, comm.rank() == 0, "rank {} waited {waited} s", comm.rank());
        Ok(())
    });
}
