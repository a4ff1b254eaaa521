//! One MPI job from start to end: what it says is shown and kept, signals reach it, and its end is explained.

use super::logs;
use super::mpirun::{Mpirun, Sieve, blamed};
use crate::{interrupt, terminal};
use archipelago_graph::Error;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the job is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long mpirun may take to end a job of which a process has failed.
const FAREWELL: Duration = Duration::from_secs(6);

/// Bytes of what a job says that are remembered.
const REMEMBERED: usize = 1 << 16;

/// A job that is about to run.
pub struct Attempt<'a> {
    mpirun: &'a Mpirun,
    command: &'a [String],
    folder: PathBuf,
    processes: usize,
    said: Mutex<Vec<u8>>,
}

impl<'a> Attempt<'a> {
    /// The next attempt to run `command`, with a folder of its own among the `logs`.
    pub fn new(mpirun: &'a Mpirun, command: &'a [String], logs: &Path) -> anyhow::Result<Self> {
        let folder = logs::next_attempt(logs)?;
        Ok(Self { mpirun, command, folder, processes: mpirun.processes(), said: Mutex::default() })
    }

    /// Runs it to its end. Returns its exit code: that of its first process that failed, or one of mpirun's own.
    pub fn run(&self) -> anyhow::Result<u8> {
        let words = ["--log-folder".to_owned(), self.folder.display().to_string()];
        let mut command = self.mpirun.command(words.into_iter().chain(self.command.iter().cloned()))?;
        // A group of its own: Ctrl-C reaches us, and we pass it on in a form that ranks can obey.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let log = logs::path(&self.folder, 0);
        let log = Mutex::new(File::create(&log).map_err(Error::io("create", &log))?);
        let mut job = spawn(&mut command)?;
        let (stdout, stderr) = (job.stdout.take(), job.stderr.take());
        let status = thread::scope(|scope| {
            scope.spawn(|| self.relay(stdout, io::stdout(), &log));
            scope.spawn(|| self.relay(stderr, io::stderr(), &log));
            self.watch(&mut job)
        })?;
        // mpirun itself ends by a signal only when we stop what does not end by itself.
        Ok(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)))
    }

    /// Waits for the end of the job. The first Ctrl-C asks its processes to stop in order. A job that goes on although
    /// a process has failed, as when mpirun waits for a host that is cut off, is stopped.
    fn watch(&self, job: &mut Child) -> io::Result<ExitStatus> {
        let (mut asked, mut failed, mut looks) = (false, None::<Instant>, 0u32);
        loop {
            if let Some(status) = job.try_wait()? {
                return Ok(status);
            }
            if interrupt::requested() && !asked {
                asked = true;
                signal(job.id() as i32, libc::SIGUSR1);
            }
            looks += 1;
            if failed.is_none()
                && looks.is_multiple_of(20)
                && logs::first_error(&self.folder, self.processes).is_some()
            {
                failed = Some(Instant::now());
            }
            if failed.is_some_and(|since| since.elapsed() > FAREWELL) {
                signal(-(job.id() as i32), libc::SIGKILL);
            }
            thread::sleep(LOOK);
        }
    }

    /// Shows and keeps what comes from the job, except for what mpirun says of a failure: we say it better.
    fn relay(&self, from: Option<impl Read>, mut to: impl Write, log: &Mutex<File>) {
        let Some(from) = from else { return };
        let (mut from, mut sieve, mut line) = (BufReader::new(from), Sieve::default(), Vec::new());
        while from.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            self.remember(&line);
            let shown = sieve.sift(std::mem::take(&mut line));
            // A closed terminal or a full disk must not stop the job.
            let _ = to.write_all(&shown).and_then(|()| to.flush());
            let _ = lock(log).write_all(&shown);
        }
        let rest = sieve.rest();
        let _ = to.write_all(&rest).and_then(|()| to.flush());
        let _ = lock(log).write_all(&rest);
    }

    /// Keeps the end of what was said: there mpirun says who failed.
    fn remember(&self, line: &[u8]) {
        let mut said = lock(&self.said);
        said.extend_from_slice(line);
        let old = said.len().saturating_sub(REMEMBERED);
        said.drain(..old);
    }

    /// Says which process failed first, and shows the end of its log. Returns the exit code that goes with it: that of
    /// the process, not one of mpirun's own.
    pub fn explain(&self, code: u8) -> u8 {
        let blamed = blamed(&String::from_utf8_lossy(&lock(&self.said)));
        let died = blamed.clone().filter(|(_, how)| how.starts_with("died"));
        let failed = || Some((logs::first_error(&self.folder, self.processes)?, "failed first".to_owned()));
        let signal = code.checked_sub(128).filter(|signal| (1..=64).contains(signal));
        // Beyond those of signals, and with nobody to blame, it is a code of mpirun's own.
        let code = if blamed.is_none() && code > 128 + 64 { 1 } else { code };
        let error = terminal::red("error");
        let Some((process, how)) = died.or_else(failed).or(blamed) else {
            let what =
                signal.map_or("the job failed".into(), |signal| format!("a process died of signal {signal}"));
            let logs = self.folder.display();
            terminal::say(format_args!("{error}: {what}, and mpirun does not say why; logs are in `{logs}`"));
            return code;
        };
        let log = logs::path(&self.folder, process);
        if process == 0 {
            let log = log.display();
            terminal::say(format_args!("{error}: process 0 {how}; what it said is above, and in `{log}`"));
            return code;
        }
        terminal::say(format_args!("{error}: process {process} {how}; its log, `{}`, ends:", log.display()));
        for line in logs::last_lines(&log) {
            terminal::say(format_args!("  {line}"));
        }
        code
    }
}

/// Signals a child, or its group, that has not been waited for.
fn signal(number: i32, signal: i32) {
    // SAFETY: the number is still its own; a signal touches no memory of ours.
    unsafe { libc::kill(number, signal) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    let program = command.get_program().to_string_lossy().into_owned();
    Ok(command.spawn().map_err(Error::io("start", program))?)
}
