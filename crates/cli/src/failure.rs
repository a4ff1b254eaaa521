//! How a command fails: one message on stderr, and the exit code that goes with it.
//!
//! 2: bad usage or bad input, nothing was started; 1: failed while running; 130: interrupted.

use crate::terminal;
use archipelago_comm::{Error as CommError, Failure, Job};
use archipelago_graph::Error as GraphError;
use archipelago_train::Error as TrainError;
use archipelago_train::error::graph_exit_code;
use std::io::ErrorKind;
use std::process::ExitCode;

/// The exit code of bad usage or bad input.
pub const BAD_INPUT: u8 = 2;
/// The exit code of a command that the user stopped.
pub const INTERRUPTED: u8 = 130;

/// Prints `error` and returns its exit code.
pub fn report(error: anyhow::Error) -> ExitCode {
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    if is_echo(&error) {
        return ExitCode::from(exit_code(&error));
    }
    let message = error.to_string();
    let code = exit_code(&error);
    if code == INTERRUPTED {
        terminal::say("interrupted; nothing half-written was left behind");
    } else {
        terminal::say(format_args!("{}: {message}", terminal::red("error")));
    }
    ExitCode::from(code)
}

/// What another process of the job failed of: the first process tells the user, the others only their logs.
fn is_echo(error: &anyhow::Error) -> bool {
    let elsewhere = matches!(error.downcast_ref(), Some(TrainError::Launch { .. }));
    elsewhere && Job::marked_process().is_some_and(|process| process > 0) && !terminal::is_log()
}

/// Whoever reads our stdout has seen enough, as in `archi list | head -3`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Whether what the user gave is at fault, found before anything was started.
pub fn is_bad_input(error: &anyhow::Error) -> bool {
    let graph = error.downcast_ref::<GraphError>();
    graph.is_some_and(|error| matches!(error, GraphError::Input(_) | GraphError::Usage { .. }))
        || error.downcast_ref::<TrainError>().is_some_and(|error| error.exit_code() == BAD_INPUT)
}

/// The exit code that goes with an error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let graph = error.downcast_ref::<GraphError>().map(graph_exit_code);
    let comm = error.downcast_ref::<CommError>().map(Failure::exit_code);
    let train = error.downcast_ref::<TrainError>().map(Failure::exit_code);
    graph.or(comm).or(train).unwrap_or(1)
}

/// Replaces the backtrace of a panic by a message that a user can act on.
pub fn speak_plainly_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        terminal::say(format_args!(
            "{}: this is a bug in archi{}: {text}\n\nhint: please report it with the command you typed",
            terminal::red("error"),
            place.unwrap_or_default(),
        ));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_every_crate_keep_their_exit_code() {
        let graph = GraphError::usage("no");
        let comm = CommError::Usage { message: "no".into(), hint: "yes" };
        let full_disk = GraphError::io("write", "x")(std::io::Error::other("no space"));
        assert_eq!(exit_code(&graph.into()), BAD_INPUT);
        assert_eq!(exit_code(&comm.into()), BAD_INPUT);
        assert_eq!(exit_code(&full_disk.into()), 1);
        assert_eq!(exit_code(&TrainError::from(GraphError::Interrupted).into()), INTERRUPTED);
        assert_eq!(exit_code(&std::io::Error::other("no space").into()), 1);
    }
}
