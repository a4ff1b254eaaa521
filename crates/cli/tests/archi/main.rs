//! The real binary, as a user meets it: stdout, stderr and exit code, and what it leaves on disk.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod words;
mod data;
mod partitions;
mod plans;
mod mistakes;
mod runs;
mod links;
mod stopping;
mod examples;
