//! Starting the ranks of this process, and ending them together.
//!
//! Whatever a rank does (an error, a panic, an early return, fewer exchanges than its peers), all ranks end, and the
//! failure that came first is the one returned. Only a rank that computes for ever without ever exchanging cannot
//! be ended from outside.

use crate::comm::LONGEST_WAIT;
use crate::transport::{self, Abort, Transport};
use crate::{Comm, Error};
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How many ranks, over what, and how patient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The number of ranks.
    pub ranks: usize,
    /// The longest time one rank waits for another.
    pub deadline: Duration,
    /// The name of an entry of [`TRANSPORTS`](transport::TRANSPORTS).
    pub transport: String,
    /// The stack of a rank's thread in bytes.
    pub stack: usize,
}

impl Default for Config {
    /// One rank, ten minutes, threads, 16 MB.
    fn default() -> Self {
        Self {
            ranks: 1,
            deadline: Duration::from_secs(600),
            transport: transport::threads::ENTRY.name.into(),
            stack: 16 << 20,
        }
    }
}

impl Config {
    /// This many threads of this process.
    pub fn threads(ranks: usize) -> Self {
        Self { ranks, ..Self::default() }
    }

    /// The same with another deadline.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    fn validate(&self) -> Result<(), Error> {
        if self.ranks == 0 {
            let message = "expected at least 1 rank, found `0`".into();
            return Err(Error::Usage { message, hint: "one rank per part of the graph" });
        }
        if self.deadline.is_zero() {
            let message = "expected a deadline of more than `0` seconds".into();
            return Err(Error::Usage { message, hint: "the default is 600 seconds" });
        }
        Ok(())
    }
}

/// Why a launch did not give a result for every rank.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LaunchError<E> {
    /// A rank returned this error, before any other failure.
    #[error("rank {rank} failed: {error}")]
    Failed {
        /// The rank.
        rank: usize,
        /// What it returned.
        error: E,
    },
    /// A rank panicked, before any other failure.
    #[error("rank {rank} panicked: {message}\n\nhint: this is a defect of the program, please report it")]
    Panicked {
        /// The rank.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// A rank of another process failed, or one of this process ended the exchange and then returned as if it had
    /// not.
    #[error("rank {rank} failed: {message}")]
    Aborted {
        /// The rank.
        rank: usize,
        /// What it said.
        message: String,
        /// The exit code that goes with it.
        code: u8,
    },
    /// The ranks could not be started.
    #[error("{0}")]
    Start(Error),
}

impl<E: Failure> LaunchError<E> {
    /// The error that a rank of this process returned; for every other failure, its words and its exit code.
    pub fn own(self) -> Result<E, (String, u8)> {
        let message = self.to_string();
        match self {
            Self::Failed { error, .. } => Ok(error),
            Self::Aborted { code, .. } => Err((message, code)),
            Self::Start(error) => Err((message, error.exit_code())),
            Self::Panicked { .. } => Err((message, 1)),
        }
    }
}

/// An error that can end a rank: what it says, and the exit code of a program that fails because of it. Both reach
/// all processes.
pub trait Failure: Display {
    /// 2 for bad input, found before anything was started; 1 for what failed while running.
    fn exit_code(&self) -> u8 {
        1
    }
}

impl Failure for Error {
    fn exit_code(&self) -> u8 {
        match self {
            Error::Unknown { .. } | Error::Usage { .. } | Error::Differs { .. } => 2,
            _ => 1,
        }
    }
}

/// Runs `work` once per rank of this process, each on its own thread, and returns the results in rank order, when
/// the ranks of all processes have ended.
///
/// A single rank runs on the caller's thread. If several ranks fail, the failure that came first is returned: the
/// others are most likely its echo.
pub fn launch<T, E, F>(config: &Config, work: F) -> Result<Vec<T>, LaunchError<E>>
where
    T: Send,
    E: Failure + Send,
    F: Fn(Comm) -> Result<T, E> + Sync,
{
    config.validate().map_err(LaunchError::Start)?;
    let ends = transport::connect(config).map_err(LaunchError::Start)?;
    let run = |end: &Arc<dyn Transport>| run_rank(end, config.deadline, &work);
    let outcomes = match ends.as_slice() {
        [only] => vec![run(only)],
        _ => run_threads(&ends, config.stack, &run)?,
    };
    if let Some(end) = ends.first() {
        end.close(Instant::now() + config.deadline.min(LONGEST_WAIT));
    }
    match ends.first().and_then(|end| end.aborted()) {
        Some(first) => Err(first_failure(first, &ends, outcomes)),
        None => outcomes.into_iter().collect(),
    }
}

/// One named thread per rank; an error only when the system does not give us the threads.
fn run_threads<T: Send, E: Send>(
    ends: &[Arc<dyn Transport>],
    stack: usize,
    run: &(impl Fn(&Arc<dyn Transport>) -> Result<T, LaunchError<E>> + Sync),
) -> Result<Vec<Result<T, LaunchError<E>>>, LaunchError<E>> {
    thread::scope(|scope| {
        let mut handles = Vec::with_capacity(ends.len());
        for end in ends {
            let thread = thread::Builder::new().name(format!("rank {}", end.rank())).stack_size(stack);
            match thread.spawn_scoped(scope, || run(end)) {
                Ok(handle) => handles.push(handle),
                Err(cause) => {
                    let message = format!("cannot start the thread of rank {}: {cause}", end.rank());
                    end.abort(Abort::new(end.rank(), message.clone()));
                    return Err(LaunchError::Start(Error::Usage { message, hint: "use fewer ranks" }));
                }
            }
        }
        let join = |(handle, end): (thread::ScopedJoinHandle<'_, _>, &Arc<dyn Transport>)| {
            handle.join().unwrap_or_else(|panic| Err(panicked(end, panic.as_ref())))
        };
        Ok(handles.into_iter().zip(ends).map(join).collect())
    })
}

/// Runs one rank to its end and tells the others how it ended.
fn run_rank<T, E: Failure>(
    end: &Arc<dyn Transport>,
    deadline: Duration,
    work: impl Fn(Comm) -> Result<T, E>,
) -> Result<T, LaunchError<E>> {
    let rank = end.rank();
    let ending = AssertUnwindSafe(|| {
        work(Comm::new(Arc::clone(end), deadline)).map_err(|error| {
            end.abort(Abort { rank, message: error.to_string(), code: error.exit_code() });
            LaunchError::Failed { rank, error }
        })
    });
    let outcome = catch_unwind(ending).unwrap_or_else(|panic| Err(panicked(end, panic.as_ref())));
    end.finish();
    outcome
}

fn panicked<E>(end: &Arc<dyn Transport>, panic: &(dyn Any + Send)) -> LaunchError<E> {
    let message = panic_text(panic);
    end.abort(Abort::new(end.rank(), format!("panicked: {message}")));
    LaunchError::Panicked { rank: end.rank(), message }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// The failure of the rank that ended the exchange; its own, unless it hid it or lives elsewhere.
fn first_failure<T, E>(
    first: Abort,
    ends: &[Arc<dyn Transport>],
    outcomes: Vec<Result<T, LaunchError<E>>>,
) -> LaunchError<E> {
    let culprit = ends.iter().zip(outcomes).find(|(end, _)| end.rank() == first.rank);
    match culprit {
        Some((_, Err(failure))) => failure,
        _ => LaunchError::Aborted { rank: first.rank, message: first.message, code: first.code },
    }
}
