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
    /// What threads of this rank wait for, so that other arrivals do not wake them; no sender stands for any.
    awaited: Vec<(Option<usize>, Tag)>,
    /// Which senders have finished.
    finished: Vec<bool>,
    aborted: Option<Abort>,
}

impl Mailbox {
    /// An empty mailbox for frames from `senders` ranks.
    pub fn new(senders: usize) -> Self {
        let arrived = (0..senders).map(|_| VecDeque::with_capacity(AHEAD)).collect();
        let finished = vec![false; senders];
        let state = State { arrived, awaited: Vec::with_capacity(AHEAD), finished, aborted: None };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }

    /// Puts a frame in, and wakes whoever waits for it.
    pub fn deliver(&self, from: usize, tag: Tag, frame: Frame) {
        let mut state = lock(&self.state);
        state.arrived[from].push_back((tag, frame));
        let awaited =
            state.awaited.iter().any(|&(who, what)| what == tag && who.is_none_or(|who| who == from));
        drop(state);
        if awaited {
            self.news.notify_all();
        }
    }

    /// Takes the oldest frame with this sender and tag out; waits for it until `deadline`.
    pub fn take(&self, from: usize, tag: Tag, deadline: Instant) -> Result<Frame, Interruption> {
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome(from, tag) {
                return outcome;
            }
            state = self.wait(state, Some(from), tag, deadline)?;
        }
    }

    /// Takes the oldest frame with this tag of the first sender that has one; waits for it until `deadline`.
    pub fn take_any(&self, tag: Tag, deadline: Instant) -> Result<(usize, Frame), Interruption> {
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome_of_any(tag) {
                return outcome;
            }
            state = self.wait(state, None, tag, deadline)?;
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

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        from: Option<usize>,
        tag: Tag,
        deadline: Instant,
    ) -> Result<MutexGuard<'a, State>, Interruption> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Interruption::Expired);
        }
        state.awaited.push((from, tag));
        let (mut state, _) = self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        if let Some(mine) = state.awaited.iter().position(|&awaited| awaited == (from, tag)) {
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
