//! How bytes get from one rank to another: the trait, and the table of ways.
//!
//! A transport delivers frames by (sender, tag), in order within a tag, and spreads the news when a rank fails or
//! finishes. It knows nothing of collectives, meters or phases: [`Comm`](crate::Comm) builds those on top, once.
//!
//! To add one: a file with an `ENTRY`, its `mod` line, its line in [`TRANSPORTS`]. A transport between processes
//! (where typically one thread owns the network) feeds the same mailboxes (`mailbox.rs`) from what arrives,
//! puts [`Frame::wire`] on the network, and [`Tag::code`] is its tag.

mod mailbox;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod threads;

use crate::{Config, Error, Frame, Pool, Result, Tag};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One rank's end of the exchange.
pub trait Transport: Send + Sync {
    /// This rank: 0 to [`size`](Self::size) - 1.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Which process of the job `rank` lives in.
    fn process_of(&self, _rank: usize) -> usize {
        0
    }

    /// The buffers that the ranks of this process share.
    fn pool(&self) -> &Arc<Pool>;

    /// Hands `frame` to rank `to`, which may be this one. **Never waits for the receiver**: any number of ranks may
    /// send any amount before anyone receives. Fails only after an abort.
    fn send(&self, to: usize, tag: Tag, frame: Frame) -> Result<(), Interruption>;

    /// The oldest frame with this `tag` from rank `from`; waits for it until `deadline`.
    fn receive(&self, from: usize, tag: Tag, deadline: Instant) -> Result<Frame, Interruption>;

    /// The oldest frame with this `tag` of any rank, and which rank's; waits for it until `deadline`.
    fn receive_any(&self, tag: Tag, deadline: Instant) -> Result<(usize, Frame), Interruption>;

    /// Whose word this rank needs to go on, and from when on that has lasted for long: for those who wait for this rank,
    /// since a wait for a frame of any rank does not say.
    fn need(&self, needed: Option<(usize, Instant)>);

    /// For whom `rank` has been waiting for long, as far as can be known within `patience`. None too when it does not
    /// answer, or when the exchange has been ended.
    fn awaits(&self, rank: usize, patience: Duration) -> Option<usize>;

    /// Ends the exchange for all ranks: everyone who waits or comes to wait gets `reason`. The first reason counts.
    fn abort(&self, reason: Abort);

    /// The reason why the exchange was ended, if it was.
    fn aborted(&self) -> Option<Abort>;

    /// This rank will send nothing more: whoever waits for more from it learns so at once.
    fn finish(&self);

    /// Returns when the ranks of all other processes have finished too, or cannot be waited for any longer. Called
    /// once per process, after the last of its ranks has finished.
    fn close(&self, _deadline: Instant) {}

    /// A recycled buffer for a payload of `bytes` bytes.
    fn frame(&self, bytes: usize) -> Frame {
        self.pool().frame(bytes)
    }
}

/// Why everyone has to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// The rank that failed first.
    pub rank: usize,
    /// What it said.
    pub message: String,
    /// The exit code that goes with it.
    pub code: u8,
}

impl Abort {
    /// The failure of `rank` while running.
    pub fn new(rank: usize, message: impl Into<String>) -> Self {
        Self { rank, message: message.into(), code: 1 }
    }
}

/// Why a frame did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interruption {
    /// Some rank failed.
    Aborted(Abort),
    /// The sender has finished and left nothing more.
    Finished,
    /// The deadline has passed.
    Expired,
}

/// A line of the table of transports.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name users type.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Makes the ends of the ranks that live in this process, in rank order; `None` when it is not in this build.
    pub build: Option<Build>,
    /// Joins a job of several processes, and says which of how many this is; `None` where there is only this one.
    pub join: Option<Join>,
}

/// Makes the ends of the ranks that live in this process.
pub type Build = fn(&Config) -> Result<Vec<Arc<dyn Transport>>>;

/// Which process of how many.
pub type Join = fn() -> Result<(usize, usize)>;

impl Entry {
    /// Whether this build can use it.
    pub fn available(&self) -> bool {
        self.build.is_some()
    }
}

/// All transports.
pub const TRANSPORTS: &[Entry] = &[threads::ENTRY, MPI];

#[cfg(feature = "mpi")]
const MPI: Entry = mpi::ENTRY;

#[cfg(not(feature = "mpi"))]
const MPI: Entry = Entry {
    name: "mpi",
    summary: "ranks are spread over the processes of an MPI job (build with `-p archipelago --features mpi`)",
    build: None,
    join: None,
};

/// The ends of the local ranks over the transport that `config` names.
pub fn connect(config: &Config) -> Result<Vec<Arc<dyn Transport>>> {
    let named = TRANSPORTS.iter().find(|entry| entry.name == config.transport);
    let Some(build) = named.and_then(|entry| entry.build) else {
        let known = TRANSPORTS.iter().filter(|entry| entry.available()).map(|entry| entry.name).collect();
        return Err(Error::Unknown { kind: "transport", name: config.transport.clone(), known });
    };
    build(config)
}
