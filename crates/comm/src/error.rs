//! What can go wrong between ranks, in words that name who, with whom, and where in the run.
//!
//! Messages are lowercase, end without a full stop, and carry a remedy after a blank line as `hint: …`.

use crate::comm::Phase;

/// The result of anything in this crate that talks to another rank.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Another rank failed first; this is its message.
    #[error("rank {rank} failed: {message}")]
    Aborted {
        /// The rank that failed first.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A peer kept this rank waiting for too long.
    #[error(
        "rank {rank} waited {seconds:.1} s for rank {peer} in {doing} ({phase}){}\n\nhint: rank {} is slow, \
         stuck, cut off, or in another exchange; raise the deadline if it only needs more time",
        in_turn(.behind), .behind.last().unwrap_or(.peer)
    )]
    Deadline {
        /// Who waited.
        rank: usize,
        /// For whom.
        peer: usize,
        /// For whom that one waits in turn, for whom that one, and so on.
        behind: Vec<usize>,
        /// How long.
        seconds: f64,
        /// For what: a collective or a tagged message.
        doing: String,
        /// At which point of the run.
        phase: Phase,
    },
    /// A peer ended its work while this rank still needs something from it.
    #[error(
        "rank {peer} has finished while rank {rank} waits for it in {doing} ({phase})\n\nhint: every rank must \
         make the same exchanges, also one that has no work left"
    )]
    Finished {
        /// Who waited.
        rank: usize,
        /// Who is gone.
        peer: usize,
        /// For what: a collective or a tagged message.
        doing: String,
        /// At which point of the run.
        phase: Phase,
    },
    /// Two ranks met in different collectives.
    #[error(
        "rank {peer} is in {theirs}, rank {rank} in {ours} ({phase})\n\nhint: every rank must make the same \
         exchanges in the same order and of the same length"
    )]
    Mismatch {
        /// Who noticed.
        rank: usize,
        /// Who is elsewhere.
        peer: usize,
        /// What the peer does.
        theirs: String,
        /// What this rank does.
        ours: String,
        /// At which point of the run.
        phase: Phase,
    },
    /// Two ranks were started with different ideas of the work.
    #[error(
        "rank {rank} differs from rank 0 in `{what}`: expected `{expected}`, found `{found}`\n\nhint: start all \
         processes with the same archi, the same arguments and the same data"
    )]
    Differs {
        /// Who differs.
        rank: usize,
        /// In what.
        what: String,
        /// What it has.
        found: String,
        /// What rank 0 has.
        expected: String,
    },
    /// A message or buffer of another size than agreed.
    #[error("{what}: expected {expected} bytes, found {found}")]
    Length {
        /// Which one.
        what: String,
        /// The agreed size.
        expected: usize,
        /// The size it has.
        found: usize,
    },
    /// A name that is in none of our tables, or not part of this build.
    #[error("unknown {kind} `{name}`; known: {}", .known.join(", "))]
    Unknown {
        /// What was named: `transport`, `codec`.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The names that would have been right.
        known: Vec<&'static str>,
    },
    /// A request that cannot be met.
    #[error("{message}\n\nhint: {hint}")]
    Usage {
        /// What is wrong with it.
        message: String,
        /// What to do instead.
        hint: &'static str,
    },
}

/// Who waits for whom behind the one that is waited for.
fn in_turn(behind: &[usize]) -> String {
    behind.iter().map(|rank| format!(", which waits for rank {rank}")).collect()
}
