//! How much of the link do the collectives reach? One JSON line per operation and size, from the first rank.
//!
//! Started by `benchmarks/exchange` as an MPI job on the shaped cluster. `LINK_MBIT` is the rate of a link. The bound
//! is the bytes that each rank must send over its link: 2·n·(P-1)/P of an all-reduce, n·(P-1)/P of an all-to-all.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark that cannot go on has failed")]

use archipelago_comm::{Comm, Error, Job, Kind, Tag, frames_of, launch};
use std::time::Instant;

const MEGABYTES: [usize; 4] = [1, 4, 16, 64];
const TAG: Tag = Tag::new(7);

/// Replaces numbers by their sum over all ranks; bytes that each rank sends.
fn all_reduce(comm: &Comm, lists: &mut [Vec<f32>]) -> Result<usize, Error> {
    let mut sent = 0;
    for numbers in lists {
        comm.all_reduce_sum_f32(numbers, Kind::Gradients)?;
        sent += 2 * size_of_val(&numbers[..]) * (comm.size() - 1) / comm.size();
    }
    Ok(sent)
}

/// Gives every rank its list; bytes that each rank sends.
fn all_to_all(comm: &Comm, lists: &mut [Vec<f32>]) -> Result<usize, Error> {
    let outgoing = lists.iter_mut().map(std::mem::take).collect();
    for (list, heard) in lists.iter_mut().zip(comm.all_to_all(outgoing, Kind::Embeddings)?) {
        *list = heard;
    }
    Ok(size_of_val(&lists[comm.rank()][..]) * (comm.size() - 1))
}

/// The same as a boundary does it, which sends all of its rows before it reads any; bytes that each rank sends.
fn rows(comm: &Comm, lists: &mut [Vec<f32>]) -> Result<usize, Error> {
    let others = || (1..comm.size()).map(|step| (comm.rank() + step) % comm.size());
    let count = lists[comm.rank()].len();
    for peer in others() {
        for part in frames_of(count, 4) {
            let mut frame = comm.frame(4 * part.len());
            frame.values_mut().copy_from_slice(&lists[peer][part]);
            comm.send(peer, TAG, Kind::Embeddings, frame)?;
        }
    }
    for peer in others() {
        for part in frames_of(count, 4) {
            let frame = comm.receive_exact(peer, TAG, Kind::Embeddings, 4 * part.len())?;
            lists[peer][part].copy_from_slice(frame.values());
        }
    }
    Ok(4 * count * (comm.size() - 1))
}

type Operation = fn(&Comm, &mut [Vec<f32>]) -> Result<usize, Error>;

/// How numbers are laid out for it: all in one list, or a list for each rank.
const OPERATIONS: [(&str, bool, Operation); 3] =
    [("all-reduce", true, all_reduce), ("all-to-all", false, all_to_all), ("rows", false, rows)];

/// Seconds of the slowest rank, sorted over some rounds, and the bytes that each rank sends.
fn measure(
    comm: &Comm,
    operation: Operation,
    mut lists: Vec<Vec<f32>>,
    rounds: usize,
) -> Result<(Vec<f64>, usize), Error> {
    let mut sent = operation(comm, &mut lists)?;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        comm.barrier()?;
        let start = Instant::now();
        sent = operation(comm, &mut lists)?;
        let mut nanos = [start.elapsed().as_nanos() as u64];
        comm.all_reduce_max_u64(&mut nanos, Kind::Control)?;
        seconds.push(nanos[0] as f64 * 1e-9);
    }
    seconds.sort_by(f64::total_cmp);
    Ok((seconds, sent))
}

fn main() {
    let job = Job::join().unwrap();
    let link: f64 =
        std::env::var("LINK_MBIT").ok().and_then(|rate| rate.parse().ok()).unwrap_or(f64::INFINITY);
    launch(&job.config(job.processes().max(2)), |comm| {
        for (name, in_one, operation) in OPERATIONS {
            for megabytes in MEGABYTES {
                // About a second at the rate of the link: what takes milliseconds needs many to tell from noise.
                let rounds = (link / (16.0 * megabytes as f64)).clamp(3.0, 51.0) as usize;
                let lists = if in_one { 1 } else { comm.size() };
                let lists = vec![vec![1.0f32; (megabytes << 18) / lists]; lists];
                let (seconds, sent) = measure(&comm, operation, lists, rounds)?;
                let median = seconds[seconds.len() / 2];
                let rate = sent as f64 * 8e-6 / median;
                if comm.rank() == 0 {
                    let (low, high) = (seconds[0], seconds[seconds.len() - 1]);
                    println!(
                        "{{\"operation\": \"{name}\", \"ranks\": {}, \"megabytes\": {megabytes}, \"link_mbit\": {link}, \
                         \"secs\": {median:.5}, \"secs_low\": {low:.5}, \"secs_high\": {high:.5}, \"mbit\": {rate:.0}, \
                         \"share\": {:.3}}}",
                        comm.size(),
                        rate / link
                    );
                }
            }
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}
