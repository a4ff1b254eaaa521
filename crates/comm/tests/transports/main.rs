//! What every transport must do: on threads of this process, and (with the feature `mpi`) on the processes of real
//! MPI jobs, which run these same tests.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod collectives;
mod failures;
mod messages;
#[cfg(feature = "mpi")]
mod mpi;
mod support;
