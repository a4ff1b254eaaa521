//! One launch over a job: the ranks of this process, and what is known of those of others.

use super::super::Abort;
use super::super::mailbox::Mailbox;
use super::route::{Route, What};
use crate::{Frame, Tag, lock};
use std::ops::Range;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long the ranks of other processes get to end in order after a failure.
const GRACE: Duration = Duration::from_secs(3);

/// For whom a rank waits, if for anyone.
type Answer = Option<usize>;

/// What the ranks of this process share, and the owner with them.
pub(super) struct Session {
    /// Its number, the same on all processes.
    pub number: u32,
    /// How many ranks there are in all processes.
    pub ranks: usize,
    processes: usize,
    local: Range<usize>,
    mailboxes: Vec<Mailbox>,
    aborted: OnceLock<Abort>,
    finished: Mutex<Vec<bool>>,
    /// What ranks of other processes said when they were asked for whom they wait.
    answers: Mutex<Vec<Option<Answer>>>,
    answered: Condvar,
    news: Condvar,
}

impl Session {
    /// Session `number` of process `process` of `processes`: ranks in order, evenly spread.
    pub fn new(number: u32, ranks: usize, process: usize, processes: usize) -> Self {
        let first = |process: usize| (process * ranks).div_ceil(processes);
        let local = first(process)..first(process + 1);
        Self {
            number,
            ranks,
            processes,
            mailboxes: local.clone().map(|_| Mailbox::new(ranks)).collect(),
            local,
            aborted: OnceLock::new(),
            finished: Mutex::new(vec![false; ranks]),
            answers: Mutex::new(vec![None; ranks]),
            answered: Condvar::new(),
            news: Condvar::new(),
        }
    }

    /// The ranks of this process.
    pub fn local(&self) -> Range<usize> {
        self.local.clone()
    }

    /// The process that a rank lives in.
    pub fn process_of(&self, rank: usize) -> usize {
        rank * self.processes / self.ranks
    }

    /// Where frames for `rank` wait, if it is one of this process.
    pub fn mailbox(&self, rank: usize) -> Option<&Mailbox> {
        self.local.contains(&rank).then(|| &self.mailboxes[rank - self.local.start])
    }

    /// Why this session ended, if it did before its time.
    pub fn aborted(&self) -> Option<Abort> {
        self.aborted.get().cloned()
    }

    /// Ends it for the ranks of this process.
    pub fn abort(&self, reason: Abort) {
        let reason = self.aborted.get_or_init(|| reason);
        for mailbox in &self.mailboxes {
            mailbox.abort(reason);
        }
        // Whoever waits for all ranks looks at the reason under this lock.
        drop(lock(&self.finished));
        self.news.notify_all();
    }

    /// `rank`, of this process or another, will send nothing more.
    pub fn finish(&self, rank: usize) {
        for mailbox in &self.mailboxes {
            mailbox.finish(rank);
        }
        lock(&self.finished)[rank] = true;
        self.news.notify_all();
    }

    /// Takes in what another process sent. Returns the answer that goes back, if it was a question.
    pub fn take_in(&self, route: Route, frame: Frame) -> Option<Route> {
        let (from, to) = (route.from as usize, route.to as usize);
        match (route.what(), self.mailbox(to), Tag::from_code(route.tag)) {
            (What::Message, Some(mailbox), Some(tag)) => mailbox.deliver(from, tag, frame),
            (What::Message, ..) => {
                let message = format!("sent a message to rank {to}, which is not in this process");
                self.abort(Abort::new(from, message));
            }
            (What::Abort, ..) => {
                let message = String::from_utf8_lossy(frame.bytes()).into_owned();
                self.abort(Abort { rank: from, message, code: route.tag as u8 });
            }
            (What::Finish, ..) => self.finish(from),
            (What::Question, mailbox, _) => {
                let awaited = mailbox.and_then(Mailbox::awaits).map_or(0, |rank| rank as u32 + 1);
                return Some(Route::new(What::Answer, self.number, [to, from], awaited));
            }
            (What::Answer, ..) => self.take_answer(from, (route.tag as usize).checked_sub(1)),
        }
        None
    }

    fn take_answer(&self, rank: usize, answer: Answer) {
        if let Some(place) = lock(&self.answers).get_mut(rank) {
            *place = Some(answer);
        }
        self.answered.notify_all();
    }

    /// What `rank` says for whom it waits; none when it has not answered by `deadline` or the session ends.
    pub fn answer(&self, rank: usize, deadline: Instant) -> Answer {
        let mut answers = lock(&self.answers);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.aborted.get().is_some() || answers[rank].is_some() {
                return answers[rank].take().flatten();
            }
            // An abort may come at any time and ends the wait.
            let left = left.min(GRACE / 30);
            (answers, _) = self.answered.wait_timeout(answers, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns when all ranks of all processes have finished; after a failure, those that do not within a few
    /// seconds are left behind. An error names who did not.
    pub fn wait_for_all(&self, deadline: Instant) -> Result<(), String> {
        let mut until = deadline;
        let mut finished = lock(&self.finished);
        while let Some(late) = finished.iter().position(|&finished| !finished) {
            if self.aborted.get().is_some() {
                until = until.min(Instant::now() + GRACE);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("rank {late} did not end in time"));
            }
            // An abort may come at any time and shortens the wait.
            let left = left.min(GRACE / 4);
            (finished, _) = self.news.wait_timeout(finished, left).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_lives_in_one_process_and_ranks_are_spread_evenly_in_order() {
        for ranks in 1..12 {
            for processes in 1..6 {
                let sessions: Vec<_> = (0..processes).map(|p| Session::new(0, ranks, p, processes)).collect();
                let all: Vec<usize> = sessions.iter().flat_map(Session::local).collect();
                assert_eq!(all, (0..ranks).collect::<Vec<_>>());
                for (process, session) in sessions.iter().enumerate() {
                    assert!(session.local().all(|rank| session.process_of(rank) == process));
                    assert!(session.local().len().abs_diff(ranks / processes) <= 1);
                }
            }
        }
    }
}
