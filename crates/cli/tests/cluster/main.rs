//! Real MPI jobs of the real binary: on this host, and on a cluster of network namespaces.
//!
//! Needs `mpirun`; what also needs root (namespaces, mounts) says so and passes where that is not to be had. One test
//! at a time: deadlines are short, and a machine that is busy with other jobs would break them.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on has failed")]

#[path = "../archi/bench.rs"]
#[allow(dead_code, reason = "the other tests of the binary use the rest")]
mod bench;
mod faults;
mod jobs;
mod setting;
