//! The suite again, as MPI jobs of 2 and 3 processes: `mpirun` starts this very test program.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

/// Far more than a job takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn the_suite_passes_on_2_processes() {
    run_suite(2);
}

#[test]
fn the_suite_passes_on_3_processes() {
    run_suite(3);
}

fn run_suite(processes: usize) {
    if crate::support::in_job() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let output = std::fs::File::create(&log).unwrap();
    let mut job = Command::new("mpirun")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .args(["--oversubscribe", "--bind-to", "none", "-n", &processes.to_string()])
        .arg(env::current_exe().unwrap())
        .args(["--test-threads=1", "--color=never", "--skip=mpi::"])
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .expect("mpirun is installed: scripts/install-mpi does it");
    let start = Instant::now();
    let ended = loop {
        match job.try_wait().unwrap() {
            None if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(50)),
            ended => break ended,
        }
    };
    let _ = job.kill();
    let told = std::fs::read_to_string(&log).unwrap();
    let passed = told.contains(" passed; 0 failed;");
    assert!(ended.is_some_and(|status| status.success()) && passed, "{ended:?}\n{told}");
}
