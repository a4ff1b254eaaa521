//! A run that is stopped, in order or not, and resumed is bit for bit the run that never was.

use crate::bench::{Bench, epochs, finish, signal, wait_until};

const EPOCHS: u64 = 120;

/// A store, and the digest of the run that nobody stops.
fn prepared() -> (Bench, String) {
    let bench = Bench::new();
    bench.communities(1500);
    bench.done("partition data --parts 2 --method random --out store");
    bench.done(&format!("{} --out whole", train()));
    let digest = bench.digest("whole");
    (bench, digest)
}

/// Small enough batches that a signal comes in the middle of an epoch.
const MINI_BATCHES: &str =
    "--strategy distdgl --model sage --set train.batch_size=16 --set train.fanouts=[5,3]";

#[test]
fn kill_9_in_the_middle_of_mini_batches_then_resume_gives_the_same_weights() {
    killed_and_resumed(MINI_BATCHES);
}

#[test]
fn kill_9_while_islands_take_turns_then_resume_gives_the_same_weights() {
    for strategy in ["grappa --set residency.sweep_every=2 --set residency.halo=1", "sdt --set agree.every=2"]
    {
        let islands = MINI_BATCHES.replace("distdgl", strategy);
        killed_and_resumed(&format!("{islands} --set residency.resident=2"));
    }
}

/// A run with these settings that is killed after its first checkpoint and resumed ends like one that was not.
fn killed_and_resumed(settings: &str) {
    let bench = Bench::new();
    bench.communities(1500);
    bench.done("partition data --parts 3 --method random --out store");
    let line = format!("train --data store {settings} --epochs 40 --set output.checkpoint_every=3");
    bench.done(&format!("{line} --out whole"));
    let mut child = bench.start(&format!("{line} --out run"));
    let run = bench.path("run");
    wait_until("the first checkpoint", || run.join("checkpoint/last/manifest.json").exists());
    signal(&child, "KILL");
    assert_eq!(child.wait().unwrap().code(), None);
    assert!(!run.join("summary.json").exists(), "the run was over before it could be killed");
    bench.done("resume run");
    assert_eq!(bench.digest("run"), bench.digest("whole"), "{settings}");
    let left = std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".archi-")), "{settings}");
}

fn train() -> String {
    format!("train --data store --epochs {EPOCHS} --set output.checkpoint_every=7")
}

#[test]
fn kill_9_then_resume_gives_the_same_weights() {
    let (bench, digest) = prepared();
    let mut child = bench.start(&format!("{} --out run", train()));
    let run = bench.path("run");
    wait_until("the first checkpoint", || run.join("checkpoint/last/manifest.json").exists());
    signal(&child, "KILL");
    assert_eq!(child.wait().unwrap().code(), None);
    assert!(!run.join("summary.json").exists(), "the run was over before it could be killed");
    let resumed = bench.done("resume run");
    assert!(resumed.stderr.contains("resuming after epoch "), "{}", resumed.stderr);
    assert_eq!(bench.digest("run"), digest);
}

#[test]
fn kill_9_before_the_first_checkpoint_then_resume_starts_again() {
    let bench = Bench::new();
    bench.communities(1500);
    let line = "train --data data --parts 2 --epochs 12 --set output.checkpoint_every=0 --set output.keep_best=false";
    bench.done(&format!("{line} --out whole"));
    let mut child = bench.start(&format!("{line} --out run"));
    wait_until("the run file", || bench.path("run/run.toml").exists());
    signal(&child, "KILL");
    child.wait().unwrap();
    bench.done("resume run");
    assert_eq!(bench.digest("run"), bench.digest("whole"));
}

#[test]
fn ctrl_c_leaves_a_checkpoint_and_exits_130_and_resume_finishes() {
    let (bench, digest) = prepared();
    let child = bench.start(&format!("{} --out run", train()));
    let run = bench.path("run");
    wait_until("the first epoch", || epochs(&run) > 0);
    signal(&child, "INT");
    let stopped = finish(child);
    assert_eq!(stopped.code, Some(130), "{}", stopped.stderr);
    assert!(
        stopped.stderr.contains("stopping after this epoch; press again to stop at once"),
        "{}",
        stopped.stderr
    );
    assert!(stopped.stderr.contains("`archi resume run` continues"), "{}", stopped.stderr);
    assert!(run.join("checkpoint/last").exists() && !run.join("summary.json").exists());
    assert!(bench.done("inspect run").stdout.contains("`archi resume` continues"));
    bench.done("resume run");
    assert_eq!(bench.digest("run"), digest);
}

#[test]
fn two_processes_cannot_work_in_the_same_run() {
    let bench = Bench::new();
    bench.communities(1500);
    bench.done("partition data --parts 2 --method random --out store");
    let child = bench.start("train --data store --epochs 100000 --out run");
    wait_until("the first epoch", || epochs(&bench.path("run")) > 0);
    let second = bench.archi("resume run");
    assert_eq!(second.code, Some(2));
    assert!(second.stderr.contains("another archi is at work in `run`"), "{}", second.stderr);
    signal(&child, "INT");
    assert_eq!(finish(child).code, Some(130));
}
