//! Whatever dies, everything ends in time, the cause is named, and the run goes on from its last checkpoint to the
//! weights of the run that nothing happened to.

use crate::bench::{Outcome, epochs, finish, wait_until};
use crate::setting::{DEADLINE, Setting, may, script};
use archipelago_graph::store::layout::part_folder;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

/// Long enough for something to happen in the middle of it.
const EPOCHS: usize = 150;

fn train(out: &str) -> String {
    let sets = format!("--set output.checkpoint_every=10 --set exchange.deadline_secs={DEADLINE}");
    format!("train --data store --model gcn --epochs {EPOCHS} --threads 1 {sets} --out {out}")
}

/// The same with batches that are drawn across parts.
fn train_in_batches(out: &str) -> String {
    let mini = "--strategy distdgl --set train.batch_size=8 --set train.fanouts=[5,3]";
    format!("{} {mini}", train(out))
}

/// The same in chunks, what others sent being remembered; and with rows that are always under way.
fn train_remembering(out: &str) -> [String; 2] {
    ["--strategy emma --set exchange.chunks=3", "--strategy pipegcn"]
        .map(|strategy| format!("{} {strategy} --set output.checkpoint_every=7", train(out)))
}

/// The digest of the run that nothing happens to.
fn undisturbed(setting: &Setting) -> String {
    setting.done(&train("whole"));
    setting.bench.digest("whole")
}

fn start(setting: &Setting, flags: &str) -> Child {
    setting.start(&setting.launch(4, flags, &train("run")))
}

/// Waits until the run is well under way.
fn under_way(setting: &Setting) {
    wait_until("epoch 25", || epochs(&setting.bench.path("run")) >= 25);
}

/// The run was not over when something happened to it; resumed, it ends in `digest`.
fn resumes(setting: &Setting, failed: &Outcome, digest: &str) {
    assert!(!setting.bench.path("run/summary.json").exists(), "the run was over already\n{}", failed.stderr);
    let resumed = setting.done(&setting.launch(4, "", "resume run"));
    assert!(resumed.stderr.contains("resuming after epoch "), "{}", resumed.stderr);
    assert_eq!(setting.bench.digest("run"), digest);
}

/// A launch that may restart once got over it by itself.
fn recovered(setting: &Setting, outcome: &Outcome, digest: &str) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("restart 1 of 1: archi "), "{}", outcome.stderr);
    assert_eq!(setting.bench.digest("run"), digest);
    assert_eq!(setting.processes(), [0; 0]);
}

#[test]
fn a_process_killed_at_the_start() {
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let job = start(&setting, "--max-restarts 1");
    setting.signal(1, "KILL");
    let outcome = finish(job);
    // mpirun does not always say which process it was, so early.
    assert!(outcome.stderr.contains(" died of signal 9"), "{}", outcome.stderr);
    recovered(&setting, &outcome, &digest);
}

#[test]
fn a_process_killed_in_the_middle_of_an_epoch() {
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let job = start(&setting, "--max-restarts 1");
    under_way(&setting);
    setting.signal(2, "KILL");
    let outcome = finish(job);
    assert!(outcome.stderr.contains("process 2 died of signal 9 (Killed)"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("restart 1 of 1: archi resume "), "{}", outcome.stderr);
    recovered(&setting, &outcome, &digest);
}

#[test]
fn a_process_killed_whose_rank_remembers_what_others_sent() {
    for (whole, command) in train_remembering("whole").iter().zip(train_remembering("run")) {
        let setting = Setting::new(1500);
        setting.done(whole);
        let digest = setting.bench.digest("whole");
        let job = setting.start(&setting.launch(4, "--max-restarts 1", &command));
        under_way(&setting);
        setting.signal(3, "KILL");
        let outcome = finish(job);
        assert!(outcome.stderr.contains("process 3 died of signal 9 (Killed)"), "{}", outcome.stderr);
        recovered(&setting, &outcome, &digest);
    }
}

#[test]
fn a_process_killed_in_the_middle_of_mini_batches() {
    let setting = Setting::new(1500);
    setting.done(&train_in_batches("whole"));
    let digest = setting.bench.digest("whole");
    let job = setting.start(&setting.launch(4, "", &train_in_batches("run")));
    under_way(&setting);
    let since = Instant::now();
    setting.signal(2, "KILL");
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(128 + 9), "{}", outcome.stderr);
    resumes(&setting, &outcome, &digest);

    // A launch that may restart gets over it by itself.
    std::fs::remove_dir_all(setting.bench.path("run")).unwrap();
    let job = setting.start(&setting.launch(4, "--max-restarts 1", &train_in_batches("run")));
    under_way(&setting);
    setting.signal(1, "KILL");
    let outcome = finish(job);
    assert!(outcome.stderr.contains("process 1 died of signal 9 (Killed)"), "{}", outcome.stderr);
    recovered(&setting, &outcome, &digest);
}

#[test]
fn a_process_that_stands_still_in_the_middle_of_mini_batches() {
    let setting = Setting::new(1500);
    setting.done(&train_in_batches("whole"));
    let digest = setting.bench.digest("whole");
    let job = setting.start(&setting.launch(4, "", &train_in_batches("run")));
    under_way(&setting);
    let since = Instant::now();
    setting.signal(3, "STOP");
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: rank 3 is slow, stuck, cut off"), "{}", outcome.stderr);
    resumes(&setting, &outcome, &digest);
}

#[test]
fn without_restarts_the_exit_code_is_that_of_the_process_that_died() {
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let job = start(&setting, "");
    under_way(&setting);
    let since = Instant::now();
    setting.signal(3, "KILL");
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(128 + 9), "{}", outcome.stderr);
    resumes(&setting, &outcome, &digest);
}

#[test]
fn the_process_that_checkpoints_killed_while_it_does() {
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let job = start(&setting, "--max-restarts 1");
    let checkpoints = setting.bench.path("run/checkpoint");
    let half_written = |folder: &Path| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".archi-"))
    };
    let started = Instant::now();
    while !(checkpoints.join("last").exists() && half_written(&checkpoints)) {
        assert!(started.elapsed().as_secs() < 40, "no checkpoint was seen half-written");
    }
    setting.signal(0, "KILL");
    let outcome = finish(job);
    assert!(outcome.stderr.contains("process 0 died of signal 9 (Killed)"), "{}", outcome.stderr);
    recovered(&setting, &outcome, &digest);
}

#[test]
fn a_process_that_stands_still() {
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let job = start(&setting, "");
    under_way(&setting);
    let since = Instant::now();
    setting.signal(3, "STOP");
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: rank 3 is slow, stuck, cut off"), "{}", outcome.stderr);
    resumes(&setting, &outcome, &digest);
}

#[test]
fn a_host_whose_link_is_cut() {
    let Some(setting) = Setting::on_cluster(1500, "1gbit") else { return };
    let digest = undisturbed(&setting);
    let job = start(&setting, "");
    under_way(&setting);
    let since = Instant::now();
    script(&["cut", "2"]);
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("hint: rank 2 is slow, stuck, cut off"), "{}", outcome.stderr);
    script(&["mend", "2"]);
    resumes(&setting, &outcome, &digest);
}

/// A small file system at `folder` while it lives.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn new(folder: &'a Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(folder).status();
        assert!(mounted.unwrap().success());
        Self(folder)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_when_a_checkpoint_is_due() {
    if !may("a full disk", "mount -t tmpfs tmpfs /mnt") {
        return;
    }
    let setting = Setting::new(1500);
    let digest = undisturbed(&setting);
    let folder = setting.bench.path("small");
    let disk = SmallDisk::new(&folder);
    let job = setting.start(&setting.launch(4, "--logs logs", &train("small/run")));
    wait_until("a checkpoint", || folder.join("run/checkpoint/last").exists());
    let since = Instant::now();
    let filled = fs::write(folder.join("filler"), vec![1u8; 4 << 20]);
    assert!(filled.is_err(), "the disk was not full");
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("No space left on device"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("process 0 failed first"), "{}", outcome.stderr);
    fs::remove_file(folder.join("filler")).unwrap();
    let resumed = setting.done(&setting.launch(4, "--logs logs", "resume small/run"));
    assert!(resumed.stderr.contains("resuming after epoch "), "{}", resumed.stderr);
    assert_eq!(setting.bench.digest("small/run"), digest);
    drop(disk);
}

/// A copy of a folder.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

/// Host 2 sees `copy` where the others see `path`. A run that is under way then refuses to be resumed, and a new one to
/// start; each says its cause, and the new one leaves nothing. With the same on all hosts, the first goes on to the weights
/// of the run that nothing happened to.
fn refuses_what_differs_on_a_host(setting: &Setting, path: &Path, copy: &Path, causes: [&[&str]; 2]) {
    let digest = undisturbed(setting);
    let job = start(setting, "");
    under_way(setting);
    setting.signal(1, "KILL");
    let killed = finish(job);
    script(&["own", "2", path.to_str().unwrap(), copy.to_str().unwrap()]);
    for (command, cause) in ["resume run", &train("new")].into_iter().zip(causes) {
        let since = Instant::now();
        let outcome = setting.ends_in_time(setting.start(&setting.launch(4, "", command)), since);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        for words in cause {
            assert!(outcome.stderr.contains(words), "expected `{words}`:\n{}", outcome.stderr);
        }
    }
    assert!(!setting.bench.path("new").exists(), "something was left behind");
    script(&["disown", "2"]);
    resumes(setting, &killed, &digest);
}

#[test]
fn a_store_file_that_is_damaged_on_one_host() {
    let Some(setting) = Setting::on_cluster(1500, "1gbit") else { return };
    let (store, damaged) = (setting.bench.path("store"), setting.bench.path("damaged"));
    copy(&store, &damaged);
    let file = largest_file(&damaged.join(part_folder(2)));
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    refuses_what_differs_on_a_host(&setting, &store, &damaged, [&["checksum", &name]; 2]);
}

fn largest_file(folder: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(folder).unwrap().flatten();
    files.max_by_key(|file| file.metadata().unwrap().len()).unwrap().path()
}

#[test]
fn a_host_with_another_store() {
    let Some(setting) = Setting::on_cluster(1500, "1gbit") else { return };
    setting.done("partition data --parts 4 --method random --seed 9 --out other");
    let (store, other) = (setting.bench.path("store"), setting.bench.path("other"));
    refuses_what_differs_on_a_host(
        &setting,
        &store,
        &other,
        [
            &["`run/checkpoint/last`: is of another run: store digest was "],
            &["rank 2 differs from rank 0 in `store digest`"],
        ],
    );
}

#[test]
fn a_host_with_another_archi() {
    let Some(setting) = Setting::on_cluster(1500, "1gbit") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_archi"));
    let other = setting.bench.path("archi");
    let mut bytes = fs::read(ours).unwrap();
    bytes.push(0);
    fs::write(&other, bytes).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&other).status().unwrap().success());
    refuses_what_differs_on_a_host(&setting, ours, &other, [&["rank 2 differs from rank 0 in `archi`"]; 2]);
}

#[test]
fn a_process_with_another_configuration() {
    let setting = Setting::new(600);
    let archi = env!("CARGO_BIN_EXE_archi");
    let line = format!(
        "--oversubscribe -n 1 {archi} {} : -n 1 {archi} {} --set train.lr=0.5",
        train("run"),
        train("run")
    );
    let since = Instant::now();
    let job = setting.program(Path::new("mpirun"), line.split_whitespace().map(String::from).collect());
    let outcome = setting.ends_in_time(job, since);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let cause = "rank 1 differs from rank 0 in `train.lr`: expected `0.01`, found `0.5`";
    assert!(outcome.stderr.contains(cause), "{}", outcome.stderr);
    assert!(!setting.bench.path("run").exists(), "something was left behind");
}
