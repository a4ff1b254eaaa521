//! Where jobs run in these tests: a folder, a job at a time, a cluster that goes away whatever happens.

use crate::bench::{Bench, LIMIT, Outcome, finish};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a rank waits for another in these tests.
pub const DEADLINE: u64 = 5;
/// How long after the deadline all processes must be gone.
pub const GONE: Duration = Duration::from_secs(DEADLINE + 15);

static TURN: Mutex<()> = Mutex::new(());

/// A workbench for jobs. When it is dropped, no process that knows its folder is left.
pub struct Setting {
    pub bench: Bench,
    cluster: Option<Cluster>,
    _turn: MutexGuard<'static, ()>,
}

/// Hosts that are network namespaces.
struct Cluster {
    environment: Vec<(String, String)>,
}

impl Setting {
    /// Jobs on this host, on a store of 4 parts.
    pub fn new(nodes: u64) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let bench = Bench::new();
        bench.communities(nodes);
        bench.done("partition data --parts 4 --method random --out store");
        Self { bench, cluster: None, _turn: turn }
    }

    /// Jobs on 4 hosts of a cluster; none, and a word about it, where this user may not make one.
    pub fn on_cluster(nodes: u64, rate: &str) -> Option<Self> {
        let mut setting = Self::new(nodes);
        if !may("a cluster of network namespaces", "ip link add probe type bridge") {
            return None;
        }
        script(&["up", "4", rate]);
        let environment = script(&["env"]);
        let words = environment.lines().flat_map(split_exports);
        setting.cluster = Some(Cluster { environment: words.collect() });
        Some(setting)
    }

    /// The words that train in `processes` processes.
    pub fn launch(&self, processes: usize, flags: &str, command: &str) -> String {
        let hosts = self.cluster.as_ref().map_or(String::new(), |cluster| {
            let hosts = cluster.environment.iter().find(|(name, _)| name == "ARCHI_HOSTS");
            format!("--hosts {}", hosts.unwrap().1)
        });
        format!("launch -n {processes} {hosts} {flags} -- {command}")
    }

    /// Starts `archi` in the environment of the cluster, if there is one.
    pub fn start(&self, line: &str) -> Child {
        self.program(
            Path::new(env!("CARGO_BIN_EXE_archi")),
            line.split_whitespace().map(String::from).collect(),
        )
    }

    /// Starts any program there.
    pub fn program(&self, program: &Path, words: Vec<String>) -> Child {
        let environment = self.cluster.iter().flat_map(|cluster| cluster.environment.iter().cloned());
        Command::new(program)
            .args(words)
            .current_dir(self.bench.path(""))
            .envs(environment)
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs `archi` there; it must succeed.
    pub fn done(&self, line: &str) -> Outcome {
        let outcome = finish(self.start(line));
        assert_eq!(outcome.code, Some(0), "archi {line}\n{}\n{}", outcome.stdout, outcome.stderr);
        outcome
    }

    /// The processes of a job that train or resume, by their place in it.
    pub fn process(&self, place: usize) -> Option<u32> {
        let mark = format!("OMPI_COMM_WORLD_RANK={place}");
        self.processes().into_iter().find(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes())
        })
    }

    /// Waits for a process of a job, and sends it a signal.
    pub fn signal(&self, place: usize, name: &str) {
        let started = Instant::now();
        let pid = loop {
            if let Some(pid) = self.process(place) {
                break pid;
            }
            assert!(started.elapsed() < LIMIT, "process {place} did not start");
        };
        let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
        assert!(sent.success(), "process {place} was gone before the signal");
    }

    /// All living processes that work in this folder.
    pub fn processes(&self) -> Vec<u32> {
        let folder = self.bench.path("").canonicalize().unwrap();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let here = |pid: &u32| {
            let works = std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
            works && *pid != std::process::id()
        };
        pids.filter(here).collect()
    }

    /// Waits for a job that something has happened to: all of it is gone in time, and it failed.
    pub fn ends_in_time(&self, job: Child, since: Instant) -> Outcome {
        let outcome = finish(job);
        assert!(since.elapsed() < GONE, "took {:?}\n{}", since.elapsed(), outcome.stderr);
        while !self.processes().is_empty() {
            assert!(since.elapsed() < GONE, "left behind: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(20));
        }
        outcome
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        if self.cluster.is_some() {
            let _ = cluster_script().arg("down").status();
        }
    }
}

/// Whether this user may do what `attempt`, in namespaces of its own, does; if not, says what is not tested.
pub fn may(what: &str, attempt: &str) -> bool {
    let done = Command::new("unshare").args(["--net", "--mount", "sh", "-c", attempt]).output();
    let allowed = done.is_ok_and(|done| done.status.success());
    if !allowed {
        eprintln!("not tested: {what} needs root, and the right to make namespaces");
    }
    allowed
}

/// Runs scripts/cluster, which must succeed; what it says.
pub fn script(words: &[&str]) -> String {
    let output = cluster_script().args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Names of its own, so that a developer's cluster is left alone.
fn cluster_script() -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cluster");
    let mut command = Command::new(script);
    command.env("CLUSTER", "artest").env("NET", "10.78.0");
    command
}

/// The assignments of a line `export A=1 B='2 3'`.
fn split_exports(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = line.trim_start_matches("export ");
    while let Some((name, value)) = rest.split_once('=') {
        let (value, after) = match value.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').unwrap(),
            None => value.split_once(' ').unwrap_or((value, "")),
        };
        found.push((name.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    found
}
