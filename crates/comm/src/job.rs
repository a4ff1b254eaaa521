//! The processes that this one works with: those that a launcher of MPI jobs started together, or none.
//!
//! Where a launcher has left its marks in the environment, this process is one of a job; a build without MPI then
//! refuses to work as if it were alone, because all processes would do the same work into the same files.

use crate::transport::{TRANSPORTS, threads};
use crate::{Config, Error, Result};
use std::env;

/// What launchers of MPI jobs tell their processes, and, where there is one, the variable with the number of
/// processes: Open MPI, MPICH and Slurm's pmi2, PMIx.
const MARKS: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
];

/// Which process this is, and of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    process: usize,
    processes: usize,
    transport: &'static str,
}

impl Job {
    /// This process alone.
    pub const fn alone() -> Self {
        Self { process: 0, processes: 1, transport: threads::ENTRY.name }
    }

    /// Which process this is, as its launcher says, before the job is joined; `None` outside a job.
    pub fn marked_process() -> Option<usize> {
        MARKS.iter().find_map(|(rank, _)| env::var(rank).ok()?.parse().ok())
    }

    /// The job that this process was started in, joined.
    pub fn join() -> Result<Self> {
        let marked = MARKS.into_iter().find(|(rank, _)| env::var_os(rank).is_some());
        let Some((_, size)) = marked else { return Ok(Self::alone()) };
        let stated: Option<usize> = env::var(size).ok().and_then(|size| size.parse().ok());
        if stated == Some(1) {
            return Ok(Self::alone());
        }
        let joined = TRANSPORTS.iter().find_map(|entry| Some((entry.name, entry.join?)));
        let Some((transport, join)) = joined else {
            let stated = stated.map_or("several".into(), |processes| processes.to_string());
            let message = format!(
                "this is one of {stated} processes of an MPI job, but this archi was built without MPI"
            );
            return Err(Error::Usage {
                message,
                hint: "build it with `cargo build --release -p archipelago --features mpi`",
            });
        };
        let (process, processes) = join()?;
        Ok(Self { process, processes, transport })
    }

    /// Which process this is.
    pub fn process(&self) -> usize {
        self.process
    }

    /// How many there are.
    pub fn processes(&self) -> usize {
        self.processes
    }

    /// Whether this is the process that writes files and speaks to the user.
    pub fn leads(&self) -> bool {
        self.process == 0
    }

    /// `ranks` ranks, spread over the processes in order.
    pub fn config(&self, ranks: usize) -> Config {
        let transport = if self.processes == 1 { threads::ENTRY.name } else { self.transport };
        Config { transport: transport.into(), ..Config::threads(ranks) }
    }
}
