//! Ranks as threads of this process: a frame is handed over by moving it.
//!
//! Cost of a message: one lock of the receiver's mailbox, and one wake-up if the receiver waits for just this one.

use super::mailbox::Mailbox;
use super::{Abort, Entry, Interruption, Transport};
use crate::{Config, Frame, Pool, Result, Tag};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Ranks are threads of this process.
pub const ENTRY: Entry =
    Entry { name: "threads", summary: "ranks are threads of this process", build: Some(build), join: None };

/// One rank's end: its number, and what all ranks share.
struct Threads {
    rank: usize,
    shared: Arc<Shared>,
}

struct Shared {
    mailboxes: Vec<Mailbox>,
    pool: Arc<Pool>,
    aborted: OnceLock<Abort>,
}

fn build(config: &Config) -> Result<Vec<Arc<dyn Transport>>> {
    let ranks = config.ranks;
    let mailboxes = (0..ranks).map(|_| Mailbox::new(ranks)).collect();
    let shared = Arc::new(Shared { mailboxes, pool: Pool::new(), aborted: OnceLock::new() });
    let end = |rank| Arc::new(Threads { rank, shared: Arc::clone(&shared) }) as Arc<dyn Transport>;
    Ok((0..ranks).map(end).collect())
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.shared.mailboxes.len()
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.shared.pool
    }

    fn send(&self, to: usize, tag: Tag, frame: Frame) -> Result<(), Interruption> {
        if let Some(reason) = self.shared.aborted.get() {
            return Err(Interruption::Aborted(reason.clone()));
        }
        self.shared.mailboxes[to].deliver(self.rank, tag, frame);
        Ok(())
    }

    fn receive(&self, from: usize, tag: Tag, deadline: Instant) -> Result<Frame, Interruption> {
        self.shared.mailboxes[self.rank].take(from, tag, deadline)
    }

    fn receive_any(&self, tag: Tag, deadline: Instant) -> Result<(usize, Frame), Interruption> {
        self.shared.mailboxes[self.rank].take_any(tag, deadline)
    }

    fn need(&self, needed: Option<(usize, Instant)>) {
        self.shared.mailboxes[self.rank].need(needed);
    }

    fn awaits(&self, rank: usize, _patience: Duration) -> Option<usize> {
        self.shared.mailboxes[rank].awaits()
    }

    fn abort(&self, reason: Abort) {
        let reason = self.shared.aborted.get_or_init(|| reason);
        for mailbox in &self.shared.mailboxes {
            mailbox.abort(reason);
        }
    }

    fn aborted(&self) -> Option<Abort> {
        self.shared.aborted.get().cloned()
    }

    fn finish(&self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.finish(self.rank);
        }
    }
}
