//! One rank's voice: tagged messages with meters, deadlines and a shared end.
//!
//! A [`Comm`] belongs to one rank. Any thread of that rank may send and receive, but the collectives (in
//! `collective.rs`) are numbered and must be called in one order, so normally by one thread. An error of a wait or a
//! check ends the exchange for all ranks: there is no going on after one.

use crate::envelope::Envelope;
use crate::transport::{self, Abort, Interruption, Transport};
use crate::{Config, Error, Failure, Frame, Kind, Meters, Result, Tag, lock};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// No machine waits longer than this; keeps `now + deadline` representable.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 3600);

/// How long a rank gets to say for whom it waits itself.
const ANSWER: Duration = Duration::from_secs(1);

/// Where in the run a rank is. Only for messages to people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Phase {
    /// The epoch.
    pub epoch: usize,
    /// The step in the epoch.
    pub step: usize,
    /// The layer of the model.
    pub layer: usize,
    /// What is being done: `forward`, `backward`, `agree`, …
    pub what: &'static str,
}

impl Phase {
    /// A phase outside the epochs: `set-up`, `evaluate`, …
    pub const fn new(what: &'static str) -> Self {
        Self { epoch: 0, step: 0, layer: 0, what }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.what.is_empty() { "start" } else { self.what };
        write!(f, "phase `{what}`, epoch {}, step {}, layer {}", self.epoch, self.step, self.layer)
    }
}

/// One rank among several.
pub struct Comm {
    transport: Arc<dyn Transport>,
    deadline: Duration,
    meters: Mutex<Meters>,
    phase: Mutex<Phase>,
    /// How many collectives this rank has entered.
    pub(crate) collectives: AtomicU64,
}

impl Comm {
    /// The voice of the rank at this end of a transport; no wait will be longer than `deadline`.
    pub fn new(transport: Arc<dyn Transport>, deadline: Duration) -> Self {
        Self {
            transport,
            deadline: deadline.min(LONGEST_WAIT),
            meters: Mutex::default(),
            phase: Mutex::default(),
            collectives: AtomicU64::new(0),
        }
    }

    /// The voice of a rank that talks to nobody but itself: the only one of its own exchange.
    pub fn alone(deadline: Duration) -> Result<Self> {
        let config = Config::threads(1);
        let end = transport::connect(&config)?.into_iter().next();
        let end = end.ok_or_else(|| Error::Usage {
            message: "an exchange of one rank has no end".into(),
            hint: "this is a defect of the program, please report it",
        })?;
        Ok(Self::new(end, deadline))
    }

    /// This rank: 0 to [`size`](Self::size) - 1.
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// Which process of the job `rank` lives in.
    pub fn process_of(&self, rank: usize) -> usize {
        self.transport.process_of(rank)
    }

    /// Whether this is the first rank of its process: who speaks for what a process has once.
    pub fn leads_process(&self) -> bool {
        self.rank() == 0 || self.process_of(self.rank() - 1) != self.process_of(self.rank())
    }

    /// Says where in the run this rank is; errors will name it.
    pub fn enter(&self, phase: Phase) {
        *lock(&self.phase) = phase;
    }

    /// Where in the run this rank is.
    pub fn phase(&self) -> Phase {
        *lock(&self.phase)
    }

    /// What this rank has sent and waited so far.
    pub fn meters(&self) -> Meters {
        *lock(&self.meters)
    }

    /// A recycled buffer for a payload of `bytes` bytes; its contents are arbitrary.
    pub fn frame(&self, bytes: usize) -> Frame {
        self.transport.frame(bytes)
    }

    /// Gives the free buffers of this process back to the system, e.g. after set-up.
    pub fn trim(&self) {
        self.transport.pool().trim();
    }

    /// Sends `frame` to rank `to`. Does not wait for the receiver.
    pub fn send(&self, to: usize, tag: Tag, kind: Kind, mut frame: Frame) -> Result<()> {
        self.check_rank(to)?;
        frame.address(Envelope::message());
        self.post(to, tag, kind, frame)
    }

    /// The next message with this `tag` from rank `from`.
    pub fn receive(&self, from: usize, tag: Tag, kind: Kind) -> Result<Frame> {
        self.check_rank(from)?;
        self.await_frame(from, tag, kind, &format_args!("a message ({tag})"))
    }

    /// The next message with this `tag` from any rank, and which rank's it is; `None` when none came within `patience`.
    ///
    /// Waiting here is no meeting: whoever serves others cannot know when they will ask. What a rank must get to go
    /// on it waits for with a deadline of its own, see [`deadline`](Self::deadline), [`need`](Self::need) and
    /// [`overdue`](Self::overdue).
    pub fn receive_any(&self, tag: Tag, patience: Duration) -> Result<Option<(usize, Frame)>> {
        let start = Instant::now();
        match self.transport.receive_any(tag, start + patience.min(self.deadline)) {
            Ok(found) => Ok(Some(found)),
            Err(Interruption::Expired) => Ok(None),
            Err(cause) => {
                Err(self.interrupted(cause, self.rank(), &format_args!("a message ({tag})"), start))
            }
        }
    }

    /// The longest time that this rank waits for another.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Says whose word this rank needs since when to go on, or that it needs none: whoever gives up on this rank names that
    /// one instead.
    pub fn need(&self, needed: Option<(usize, Instant)>) {
        self.transport.need(needed.map(|(peer, since)| (peer, since + self.deadline / 2)));
    }

    /// Ends the exchange because rank `peer` did not answer with `what` since `start`.
    pub fn overdue(&self, peer: usize, what: &dyn fmt::Display, start: Instant) -> Error {
        self.interrupted(Interruption::Expired, peer, what, start)
    }

    /// The next message with this `tag` from rank `from`, which must have a payload of `bytes` bytes.
    pub fn receive_exact(&self, from: usize, tag: Tag, kind: Kind, bytes: usize) -> Result<Frame> {
        let frame = self.receive(from, tag, kind)?;
        if frame.len() == bytes {
            return Ok(frame);
        }
        let what = format!("message ({tag}) from rank {from} to rank {} ({})", self.rank(), self.phase());
        Err(self.fail(Error::Length { what, expected: bytes, found: frame.len() }))
    }

    /// Fails when another rank has failed: lets a long computation end early.
    pub fn check(&self) -> Result<()> {
        match self.transport.aborted() {
            Some(Abort { rank, message, .. }) => Err(Error::Aborted { rank, message }),
            None => Ok(()),
        }
    }

    /// Ends the exchange for all ranks with this rank's `message`. Returning an error from the closure given to
    /// [`launch`](crate::launch()) does the same.
    pub fn abort(&self, message: impl Into<String>) {
        self.transport.abort(Abort::new(self.rank(), message));
    }

    /// Ends the exchange for all ranks with this error, and hands it back.
    pub(crate) fn fail(&self, error: Error) -> Error {
        if !matches!(error, Error::Aborted { .. }) {
            let (rank, message) = (self.rank(), error.to_string());
            self.transport.abort(Abort { rank, message, code: error.exit_code() });
        }
        error
    }

    pub(crate) fn check_rank(&self, rank: usize) -> Result<()> {
        let size = self.size();
        if rank < size {
            return Ok(());
        }
        let message = format!("there is no rank {rank} ({})", self.phase());
        Err(self.fail(Error::Usage { message, hint: "ranks count from 0 to the number of ranks - 1" }))
    }

    /// Meters an addressed frame and hands it to the transport.
    pub(crate) fn post(&self, to: usize, tag: Tag, kind: Kind, frame: Frame) -> Result<()> {
        if to != self.rank() {
            let mut meters = lock(&self.meters);
            meters[kind].bytes_sent += frame.len() as u64;
            meters[kind].messages_sent += 1;
        }
        self.transport
            .send(to, tag, frame)
            .map_err(|cause| self.interrupted(cause, to, &"send", Instant::now()))
    }

    /// Waits for a frame; `doing` is what to call it when it does not come.
    pub(crate) fn await_frame(
        &self,
        from: usize,
        tag: Tag,
        kind: Kind,
        doing: &dyn fmt::Display,
    ) -> Result<Frame> {
        let start = Instant::now();
        let outcome = self.transport.receive(from, tag, start + self.deadline);
        lock(&self.meters)[kind].seconds_waited += start.elapsed().as_secs_f64();
        outcome.map_err(|cause| self.interrupted(cause, from, doing, start))
    }

    fn interrupted(
        &self,
        cause: Interruption,
        peer: usize,
        doing: &dyn fmt::Display,
        start: Instant,
    ) -> Error {
        let (rank, phase, doing) = (self.rank(), self.phase(), doing.to_string());
        let seconds = start.elapsed().as_secs_f64();
        let behind = if cause == Interruption::Expired { self.behind(peer) } else { Vec::new() };
        // Someone may have said what is wrong while we asked.
        let cause = self.transport.aborted().map_or(cause, Interruption::Aborted);
        self.fail(match cause {
            Interruption::Aborted(Abort { rank, message, .. }) => Error::Aborted { rank, message },
            Interruption::Finished => Error::Finished { rank, peer, doing, phase },
            Interruption::Expired => Error::Deadline { rank, peer, behind, seconds, doing, phase },
        })
    }

    /// For whom `peer` waits, for whom that one, and so on: all deadlines end at about the same time, and whoever speaks
    /// first has to name the rank at the end of the chain. That may be this rank: what others need of it is not the business
    /// of whoever waits here, but of another of its threads. Empty where other ranks wait for each other in a circle.
    fn behind(&self, peer: usize) -> Vec<usize> {
        let mut chain = vec![peer];
        while let Some(next) = self.transport.awaits(chain[chain.len() - 1], ANSWER) {
            if chain.contains(&next) {
                return Vec::new();
            }
            chain.push(next);
            if next == self.rank() {
                break;
            }
        }
        chain.split_off(1)
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Comm(rank {} of {}, {})", self.rank(), self.size(), self.phase())
    }
}
