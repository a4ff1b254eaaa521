//! What every test here needs: the transports there are, and a watchdog.

use archipelago_comm::{Comm, Config, Error, Failure, Job, LaunchError, launch};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The numbers of ranks that every collective is tried with.
pub const RANKS: [usize; 5] = [1, 2, 3, 4, 7];

/// Runs `work`; a test that takes longer than `seconds` is red instead of stuck.
pub fn within(seconds: u64, work: impl FnOnce() + Send + 'static) {
    let (done, waiting) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let late = waiting.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout);
    assert!(!late, "still running after {seconds} s: a deadlock");
    if let Err(panic) = worker.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `ranks` ranks over the transport under test: that of the job this process is in, or threads; none where there are
/// more processes than ranks. The deadline is far beyond any watchdog, so that a test
/// cannot pass because of it.
pub fn configs(ranks: usize) -> impl Iterator<Item = Config> {
    let job = Job::join().expect("this process is alone or in a job");
    let transport = if job.processes() == 1 { "threads" } else { "mpi" };
    let config =
        Config { deadline: Duration::from_secs(3600), transport: transport.into(), ..Config::threads(ranks) };
    (ranks >= job.processes()).then_some(config).into_iter()
}

/// Whether `failure` is `error` of `rank`: the error itself where the rank lives, its words in other processes.
pub fn is_failure_of(failure: &LaunchError<Error>, rank: usize, error: &Error) -> bool {
    let elsewhere = LaunchError::Aborted { rank, message: error.to_string(), code: error.exit_code() };
    *failure == LaunchError::Failed { rank, error: error.clone() } || in_job() && *failure == elsewhere
}

/// Whether these tests run in a job of several processes.
pub fn in_job() -> bool {
    Job::join().is_ok_and(|job| job.processes() > 1)
}

/// Runs `work` on `ranks` ranks over every transport, under a watchdog of a minute, and expects it to succeed.
pub fn on_all_transports(
    ranks: usize,
    work: impl Fn(&Comm) -> Result<(), Error> + Copy + Send + Sync + 'static,
) {
    within(60, move || {
        for config in configs(ranks) {
            launch(&config, |comm| work(&comm)).unwrap_or_else(|error| panic!("{error}"));
        }
    });
}

/// Runs `work` on `ranks` ranks over every transport and gives every failure to `check`; success is a failure.
pub fn fails_on_all_transports(
    ranks: usize,
    work: impl Fn(Comm) -> Result<(), Error> + Copy + Send + Sync + 'static,
    check: impl Fn(LaunchError<Error>) + Send + 'static,
) {
    within(10, move || {
        for config in configs(ranks) {
            check(launch(&config, work).expect_err("the launch succeeded"));
        }
    });
}

/// Pseudo-random bits of (a, b): different data on every rank and place, the same in every run.
pub fn noise(a: usize, b: usize) -> u64 {
    let mut z = ((a as u64) << 32 ^ b as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number of wildly varying size, so that sums in another order have other bits.
pub fn number(rank: usize, i: usize) -> f32 {
    let z = noise(rank, i);
    (z as u32 as f32 / 2f32.powi(31) - 1.0) * 10f32.powi((z >> 60) as i32 - 8)
}
