//! A folder of its own for every test, and `archi` started in it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No command of a test may take longer.
pub const LIMIT: Duration = Duration::from_secs(50);

/// A workbench.
pub struct Bench {
    folder: TempDir,
}

/// What a command came to.
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts `archi` with these words.
    pub fn start(&self, line: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_archi"))
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("COLUMNS", "100")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Runs `archi` with these words to its end.
    pub fn archi(&self, line: &str) -> Outcome {
        finish(self.start(line))
    }

    /// Runs `archi`, which must succeed.
    pub fn done(&self, line: &str) -> Outcome {
        let outcome = self.archi(line);
        assert_eq!(outcome.code, Some(0), "archi {line}\n{}\n{}", outcome.stdout, outcome.stderr);
        outcome
    }

    /// Command, exit code, stdout and stderr of several commands, without what differs from run to run.
    pub fn transcript(&self, lines: &[&str]) -> String {
        let text: Vec<String> = lines
            .iter()
            .map(|line| {
                let outcome = self.archi(line);
                let shown = |name: &str, text: &str| match text.trim_end() {
                    "" => String::new(),
                    text => format!("--- {name}\n{}\n", settle(text)),
                };
                let code = outcome.code.map_or("killed".to_owned(), |code| code.to_string());
                let (out, err) = (shown("stdout", &outcome.stdout), shown("stderr", &outcome.stderr));
                format!("$ archi {line}\n{out}{err}--- exit code {code}\n")
            })
            .collect();
        text.join("\n").replace(&self.folder.path().display().to_string(), "[FOLDER]")
    }

    /// A small graph with everything a run needs.
    pub fn communities(&self, nodes: u64) {
        self.done(&format!(
            "generate sbm --nodes {nodes} --edges {} --features 16 --classes 4 --out data",
            10 * nodes
        ));
    }

    /// The digest of the final weights of a finished run.
    pub fn digest(&self, run: &str) -> String {
        let summary = std::fs::read_to_string(self.path(run).join("summary.json")).unwrap();
        let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
        summary["weights_sha256"].as_str().unwrap().to_owned()
    }
}

/// Waits for a process, not for ever.
pub fn finish(mut child: Child) -> Outcome {
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (stdout, stderr) = (drain(stdout), drain(stderr));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("archi was still running after {LIMIT:?}: {}", stderr.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Outcome { code: status.code(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn drain(mut pipe: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

/// Waits until `happened`, not for ever.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < LIMIT, "{what} did not happen in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// How many epochs a run has logged.
pub fn epochs(run: &Path) -> usize {
    let log = std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with("{\"event\":\"epoch\"")).count()
}

/// The text with every time, and every amount of memory, replaced: they differ from run to run.
fn settle(text: &str) -> String {
    text.lines().map(settle_line).collect::<Vec<_>>().join("\n")
}

fn settle_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut settled: Vec<String> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let next = words.get(at + 1).copied().unwrap_or_default();
        let unit = next.trim_end_matches([',', ';', ')', ':']);
        if unit == "edges/s" {
            settled.push(next.replacen(unit, "[RATE]", 1));
            at += 2;
            continue;
        }
        let memory = line.contains("memory") && ["B", "kB", "MB", "GB"].contains(&unit);
        if words[at].parse::<f64>().is_ok() && (["s", "ms", "min"].contains(&unit) || memory) {
            let what = if memory { "[BYTES]" } else { "[TIME]" };
            settled.push(next.replacen(unit, what, 1));
            at += 1;
        } else {
            settled.push(words[at].into());
        }
        at += 1;
    }
    settled.join(" ")
}
