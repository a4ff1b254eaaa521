//! One log per process of a job.

use crate::terminal;
use archipelago_graph::Error;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Lines of a log that are shown when its process fails.
const LAST: usize = 10;

/// Where process `process` writes.
pub fn path(folder: &Path, process: usize) -> PathBuf {
    folder.join(format!("rank-{process}.log"))
}

/// The folder for the logs of the next attempt.
pub fn next_attempt(logs: &Path) -> anyhow::Result<PathBuf> {
    let mut attempts = 1..;
    let folder = attempts.find_map(|attempt: u32| {
        let folder = logs.join(format!("attempt-{attempt}"));
        (!folder.exists()).then_some(folder)
    });
    let folder = folder.unwrap_or_else(|| logs.to_path_buf());
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    Ok(std::path::absolute(&folder)?)
}

/// The last lines of a log; none when it cannot be read from this host.
pub fn last_lines(file: &Path) -> Vec<String> {
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The first process whose log holds an error of its own, not the echo of another's.
pub fn first_error(folder: &Path, processes: usize) -> Option<usize> {
    let echo = |line: &str| line.starts_with("error: rank ") && line.contains(" failed: ");
    let own = |line: &String| line.starts_with("error: ") && !echo(line);
    (0..processes).find(|&process| last_lines(&path(folder, process)).iter().any(own))
}

/// The name of this host.
fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map_or("?".into(), |name| name.trim().to_owned())
}

/// From now on this process writes to its log in `folder`. Process 0 does not: `launch` hears it through mpirun, shows
/// it and keeps its log.
pub fn write_own_log(folder: &Path, process: usize) -> anyhow::Result<()> {
    if process == 0 {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let path = path(folder, process);
    let log = File::create(&path).map_err(Error::io("create", &path))?;
    for stream in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: both descriptors are open, and `dup2` replaces the stream as a whole.
        if unsafe { libc::dup2(log.as_raw_fd(), stream) } < 0 {
            return Err(Error::io("write", &path)(std::io::Error::last_os_error()).into());
        }
    }
    terminal::become_log();
    terminal::say(format_args!("process {process}, number {} on `{}`", std::process::id(), host()));
    Ok(())
}
