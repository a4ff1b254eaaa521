//! Where frames wait for one rank, and where that rank waits for frames.

use super::{Abort, Interruption};
use crate::{Frame, Tag, lock};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Frames from one sender for which there is room from the start: more than a rank sends ahead in a step of a deep model.
const AHEAD: usize = 16;

/// The frames sent to one rank and not yet received.
pub(super) struct Mailbox {
    state: Mutex<State>,
    news: Condvar,
}

struct State {
    /// By sender, in order of arrival. Short: a search for the tag is cheaper than any index.
    arrived: Vec<VecDeque<(Tag, Frame)>>,
    /// What threads of this rank wait for, so that other arrivals do not wake them.
    awaited: Vec<Wait>,
    /// Whose word this rank needs to go on, and from when on that has lasted for long: what a wait for any sender is for.
    needed: Option<(usize, Instant)>,
    /// For whom a thread of this rank waited in vain.
    given_up: Option<usize>,
    /// Which senders have finished.
    finished: Vec<bool>,
    aborted: Option<Abort>,
}

/// A wait for a frame.
#[derive(Clone, Copy, PartialEq)]
struct Wait {
    /// From whom; no sender stands for any.
    from: Option<usize>,
    tag: Tag,
    /// From when on it has lasted for so long that who waits for this rank may rather wait for the sender.
    halfway: Instant,
}

impl Wait {
    fn new(from: Option<usize>, tag: Tag, deadline: Instant) -> Self {
        let now = Instant::now();
        Self { from, tag, halfway: now + deadline.saturating_duration_since(now) / 2 }
    }
}

impl Mailbox {
    /// An empty mailbox for frames from `senders` ranks.
    pub fn new(senders: usize) -> Self {
        let arrived = (0..senders).map(|_| VecDeque::with_capacity(AHEAD)).collect();
        let finished = vec![false; senders];
        let awaited = Vec::with_capacity(AHEAD);
        let state = State { arrived, awaited, needed: None, given_up: None, finished, aborted: None };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }

    /// Puts a frame in, and wakes whoever waits for it.
    pub fn deliver(&self, from: usize, tag: Tag, frame: Frame) {
        let mut state = lock(&self.state);
        state.arrived[from].push_back((tag, frame));
        let awaited =
            state.awaited.iter().any(|wait| wait.tag == tag && wait.from.is_none_or(|who| who == from));
        drop(state);
        if awaited {
            self.news.notify_all();
        }
    }

    /// The oldest frame with this sender and tag, if it is there, or why there will be none.
    #[cfg(feature = "mpi")]
    pub fn find(&self, from: usize, tag: Tag) -> Option<Result<Frame, Interruption>> {
        lock(&self.state).outcome(from, tag)
    }

    /// Takes the oldest frame with this sender and tag out; waits for it until `deadline`.
    pub fn take(&self, from: usize, tag: Tag, deadline: Instant) -> Result<Frame, Interruption> {
        let wait = Wait::new(Some(from), tag, deadline);
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome(from, tag) {
                return outcome;
            }
            state = self.wait(state, wait, deadline)?;
        }
    }

    /// Takes the oldest frame with this tag of the first sender that has one; waits for it until `deadline`.
    pub fn take_any(&self, tag: Tag, deadline: Instant) -> Result<(usize, Frame), Interruption> {
        let wait = Wait::new(None, tag, deadline);
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome_of_any(tag) {
                return outcome;
            }
            state = self.wait(state, wait, deadline)?;
        }
    }

    /// Everyone who waits here, now or later, gets `reason`.
    pub fn abort(&self, reason: &Abort) {
        lock(&self.state).aborted.get_or_insert_with(|| reason.clone());
        self.news.notify_all();
    }

    /// Nothing more will come from `sender`.
    pub fn finish(&self, sender: usize) {
        lock(&self.state).finished[sender] = true;
        self.news.notify_all();
    }

    /// Says whose word this rank needs to go on, and from when on that has lasted for long.
    pub fn need(&self, needed: Option<(usize, Instant)>) {
        lock(&self.state).needed = needed;
    }

    /// For whom this rank has been waiting for long, or waited in vain.
    pub fn awaits(&self) -> Option<usize> {
        let (state, now) = (lock(&self.state), Instant::now());
        let waits = state.awaited.iter().filter_map(|wait| Some((wait.from?, wait.halfway)));
        let long = waits.chain(state.needed).filter(|&(_, halfway)| halfway <= now);
        long.min_by_key(|&(_, halfway)| halfway).map(|(from, _)| from).or(state.given_up)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wait: Wait,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, State>, Interruption> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            state.given_up = state.given_up.or(wait.from);
            return Err(Interruption::Expired);
        }
        state.awaited.push(wait);
        let (mut state, _) = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = state.awaited.iter().position(|&awaited| awaited == wait) {
            state.awaited.swap_remove(mine);
        }
        Ok(state)
    }
}

impl State {
    /// What a receiver gets now, if anything. An abort overtakes frames: it is better to stop early.
    fn outcome(&mut self, from: usize, tag: Tag) -> Option<Result<Frame, Interruption>> {
        if let Some(reason) = &self.aborted {
            return Some(Err(Interruption::Aborted(reason.clone())));
        }
        let queue = &mut self.arrived[from];
        if let Some(place) = queue.iter().position(|(found, _)| *found == tag) {
            return queue.remove(place).map(|(_, frame)| Ok(frame));
        }
        self.finished[from].then_some(Err(Interruption::Finished))
    }

    /// The same from whomever. Senders that have finished are no reason to stop: others may still write.
    fn outcome_of_any(&mut self, tag: Tag) -> Option<Result<(usize, Frame), Interruption>> {
        if let Some(reason) = &self.aborted {
            return Some(Err(Interruption::Aborted(reason.clone())));
        }
        self.arrived.iter_mut().enumerate().find_map(|(from, queue)| {
            let place = queue.iter().position(|(found, _)| *found == tag)?;
            queue.remove(place).map(|(_, frame)| Ok((from, frame)))
        })
    }
}
