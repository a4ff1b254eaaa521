//! What the processes of a job do before they train: each checks what it can see, and all agree or all fail.

use crate::failure;
use archipelago_comm::terms::Fact;
use archipelago_comm::{Comm, Failure, Job, launch};
use archipelago_train::Error;
use archipelago_train::run::RunConfig;
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

/// An error of a command, which reaches the other processes with its exit code.
struct Fault(anyhow::Error);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Failure for Fault {
    fn exit_code(&self) -> u8 {
        failure::exit_code(&self.0)
    }
}

/// Runs `work` on one rank per process, and returns what came of it in this one.
pub fn together<T: Send>(
    job: &Job,
    deadline: Duration,
    work: impl Fn(&Comm) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<T> {
    let config = job.config(job.processes()).with_deadline(deadline);
    let mut done = launch(&config, |comm| work(&comm).map_err(Fault)).map_err(|failure| {
        failure.own().map_or_else(|(message, code)| Error::Launch { message, code }.into(), |fault| fault.0)
    })?;
    Ok(done.swap_remove(0))
}

/// Refuses a job in which some process would have nothing to do.
pub fn enough_parts(processes: usize, parts: usize) -> anyhow::Result<()> {
    if processes <= parts {
        return Ok(());
    }
    let message = format!("{processes} processes cannot share {parts} parts");
    Err(archipelago_graph::Error::usage(message)
        .with_hint("start fewer processes, or cut the graph into more parts")
        .into())
}

/// Fails on all processes when one has another program, or another value for a key of the run, than the first.
pub fn agree(comm: &Comm, config: &RunConfig) -> anyhow::Result<()> {
    match comm.size() {
        1 => Ok(()),
        _ => Ok(comm.same_everywhere(&terms(config)?)?),
    }
}

/// What all processes must have alike: the program, and every key of the run.
fn terms(config: &RunConfig) -> anyhow::Result<Vec<Fact>> {
    let mut terms = vec![("archi".to_owned(), program()?)];
    let mut section = "";
    let text = config.to_toml();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            terms.push((format!("{section}.{key}"), value.to_owned()));
        }
    }
    Ok(terms)
}

/// The version of this program and a digest of its file.
fn program() -> anyhow::Result<String> {
    let mut digest = DefaultHasher::new();
    digest.write(&std::fs::read(std::env::current_exe()?)?);
    Ok(format!("{} ({:016x})", env!("CARGO_PKG_VERSION"), digest.finish()))
}
