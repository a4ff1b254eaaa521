//! Ctrl-C and SIGTERM: the first asks the work at hand to stop in order, the second ends the program at once.
//!
//! In a job, mpirun answers Ctrl-C by killing its processes, but hands SIGUSR1 on to them: that asks to stop too, and
//! so may a batch system before it ends a job (Slurm: `--signal=USR1@120`).

use crate::failure::INTERRUPTED;
use crate::terminal;
use archipelago_comm::Job;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Set by the first signal; long passes and the epoch loop look at it.
static STOP: AtomicBool = AtomicBool::new(false);

/// What is said to the user who asked to stop; without, there is nothing to wait for.
static ANSWER: Mutex<Option<&'static str>> = Mutex::new(None);

/// The flag that the first signal sets.
pub fn stop_flag() -> &'static AtomicBool {
    &STOP
}

/// Whether the user asked to stop.
pub fn requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// From now on a signal sets the flag, and says `answer` to the user; another one exits.
pub fn answer_with(answer: &'static str) -> anyhow::Result<()> {
    install(Some(answer))
}

/// From now on a signal exits: for commands that write nothing until their last step.
pub fn exit_at_once() -> anyhow::Result<()> {
    install(None)
}

/// From now on SIGUSR1 asks to stop as well.
pub fn obey_usr1() {
    extern "C" fn ask(_: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores into an atomic.
    unsafe { libc::signal(libc::SIGUSR1, ask as *const () as libc::sighandler_t) };
}

fn install(answer: Option<&'static str>) -> anyhow::Result<()> {
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    match ctrlc::set_handler(on_signal) {
        Ok(()) | Err(ctrlc::Error::MultipleHandlers) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn on_signal() {
    let answer = *ANSWER.lock().unwrap_or_else(PoisonError::into_inner);
    match answer {
        // In a job, mpirun sends SIGTERM to what is left of it: nobody asked.
        Some(_) if Job::marked_process().is_some() => STOP.store(true, Ordering::Relaxed),
        Some(answer) if !STOP.swap(true, Ordering::Relaxed) => {
            terminal::say(format_args!("{answer}; press again to stop at once"));
        }
        _ => std::process::exit(i32::from(INTERRUPTED)),
    }
}
