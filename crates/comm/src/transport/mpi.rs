//! Ranks in the processes of an MPI job, several per process if there are more ranks than processes.
//!
//! One thread per process, the *owner* (`mpi/owner.rs`), makes every call of the MPI library (`mpi/library.rs`):
//! ranks hand it frames and go on, so a send never waits for its receiver, and communication proceeds while ranks
//! compute. What leaves for a process queues in its lane (`mpi/lane.rs`). A frame goes out as it is, without a copy, its
//! route (`mpi/route.rs`) written beside its envelope. Ranks of the same process hand frames over by moving them, as on
//! threads.
//!
//! A process joins its job once, but may launch ranks over it several times: each launch is a *session*, numbered
//! alike on all processes, so that what is left of a failed one is told from what belongs to the next.

mod lane;
mod library;
mod owner;
mod route;
mod session;

use super::{Abort, Entry, Interruption, Transport};
use crate::{Config, Error, Frame, Pool, Result, Tag};
use owner::Owner;
use route::{Route, What};
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ranks are spread over the processes of an MPI job.
pub const ENTRY: Entry = Entry {
    name: "mpi",
    summary: "ranks are spread over the processes of an MPI job",
    build: Some(build),
    join: Some(join),
};

/// One rank's end.
struct Mpi {
    rank: usize,
    session: Arc<Session>,
    owner: &'static Owner,
}

/// Which process this is, and of how many.
fn join() -> Result<(usize, usize)> {
    let owner = owner::owner()?;
    Ok((owner.process, owner.processes))
}

fn build(config: &Config) -> Result<Vec<Arc<dyn Transport>>> {
    let owner = owner::owner()?;
    if config.ranks < owner.processes {
        let message = format!("{} processes cannot share {} ranks", owner.processes, config.ranks);
        return Err(Error::Usage { message, hint: "start at most one process per part of the graph" });
    }
    let session = owner.open(config.ranks);
    let end = |rank| Arc::new(Mpi { rank, session: Arc::clone(&session), owner }) as Arc<dyn Transport>;
    Ok(session.local().map(end).collect())
}

impl Mpi {
    fn route(&self, what: What, [from, to]: [usize; 2], tag: u32) -> Route {
        Route::new(what, self.session.number, [from, to], tag)
    }

    /// Tells every other process what became of rank `about`.
    fn tell_all(&self, what: What, about: usize, code: u8, text: &str) {
        for process in (0..self.owner.processes).filter(|&process| process != self.owner.process) {
            let mut frame = self.frame(text.len());
            frame.bytes_mut().copy_from_slice(text.as_bytes());
            self.owner.send(process, self.route(what, [about, 0], code.into()), frame);
        }
    }

    /// Tells every other process why the session ends.
    fn pass_on(&self, reason: &Abort) {
        self.tell_all(What::Abort, reason.rank, reason.code, &reason.message);
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.session.ranks
    }

    fn process_of(&self, rank: usize) -> usize {
        self.session.process_of(rank)
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.owner.pool
    }

    fn send(&self, to: usize, tag: Tag, frame: Frame) -> Result<(), Interruption> {
        if let Some(reason) = self.session.aborted() {
            return Err(Interruption::Aborted(reason));
        }
        match self.session.mailbox(to) {
            Some(mailbox) => mailbox.deliver(self.rank, tag, frame),
            None => {
                let route = self.route(What::Message, [self.rank, to], tag.code());
                self.owner.send(self.process_of(to), route, frame);
            }
        }
        Ok(())
    }

    fn receive(&self, from: usize, tag: Tag, deadline: Instant) -> Result<Frame, Interruption> {
        let Some(mailbox) = self.session.mailbox(self.rank) else { return Err(Interruption::Finished) };
        mailbox.find(from, tag).unwrap_or_else(|| {
            let _attention = self.owner.attend();
            mailbox.take(from, tag, deadline)
        })
    }

    fn receive_any(&self, tag: Tag, deadline: Instant) -> Result<(usize, Frame), Interruption> {
        let Some(mailbox) = self.session.mailbox(self.rank) else { return Err(Interruption::Finished) };
        let _attention = self.owner.attend();
        mailbox.take_any(tag, deadline)
    }

    fn need(&self, needed: Option<(usize, Instant)>) {
        if let Some(mailbox) = self.session.mailbox(self.rank) {
            mailbox.need(needed);
        }
    }

    fn awaits(&self, rank: usize, patience: Duration) -> Option<usize> {
        if let Some(mailbox) = self.session.mailbox(rank) {
            return mailbox.awaits();
        }
        let question = self.route(What::Question, [self.rank, rank], 0);
        self.owner.send(self.process_of(rank), question, self.frame(0));
        self.session.answer(rank, Instant::now() + patience)
    }

    fn abort(&self, reason: Abort) {
        if self.session.aborted().is_none() {
            self.pass_on(&reason);
        }
        self.session.abort(reason);
    }

    fn aborted(&self) -> Option<Abort> {
        self.session.aborted()
    }

    fn finish(&self) {
        // Messages of one process keep their order, those of two do not: whoever hears that this rank has ended must
        // have heard why, also when the word of the rank that failed is still on its way to them.
        if let Some(reason) = self.session.aborted() {
            self.pass_on(&reason);
        }
        self.tell_all(What::Finish, self.rank, 0, "");
        self.session.finish(self.rank);
    }

    fn close(&self, deadline: Instant) {
        if let Err(late) = self.session.wait_for_all(deadline) {
            self.owner.distrust();
            self.abort(Abort::new(self.rank, late));
        }
    }
}
