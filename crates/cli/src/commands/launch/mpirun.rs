//! The program that starts MPI jobs, in its dialects.

use archipelago_graph::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to start a job here.
pub struct Mpirun {
    program: String,
    dialect: Dialect,
    processes: u32,
    hosts: Option<PathBuf>,
}

enum Dialect {
    OpenMpi,
    Hydra,
}

impl Mpirun {
    /// Asks `program` which implementation it belongs to.
    pub fn find(program: &str, processes: u32, hosts: Option<&Path>) -> anyhow::Result<Self> {
        if cfg!(not(feature = "mpi")) {
            return Err(Error::usage("this archi was built without MPI")
                .with_hint("build it with `cargo build --release -p archipelago --features mpi`; scripts/install-mpi installs what that needs")
                .into());
        }
        let hosts = match hosts {
            Some(file) => Some(file.canonicalize().map_err(Error::io("open", file))?),
            None => None,
        };
        let version = Command::new(program).arg("--version").output().map_err(|cause| {
            Error::usage(format!("cannot run `{program}`: {cause}"))
                .with_hint("on Debian, `apt-get install openmpi-bin` brings it; --mpirun names another one")
        })?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        let dialect = if text.contains("HYDRA") { Dialect::Hydra } else { Dialect::OpenMpi };
        Ok(Self { program: program.into(), dialect, processes, hosts })
    }

    /// How many processes a job has.
    pub fn processes(&self) -> usize {
        self.processes as usize
    }

    /// The command that runs `words` of this archi in every process.
    pub fn command(&self, words: impl Iterator<Item = String>) -> anyhow::Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(["-n", &self.processes.to_string()]);
        let hosts = self.hosts.as_deref();
        match self.dialect {
            // Processes have threads of their own, so they are not tied to one core each.
            Dialect::OpenMpi => {
                command.args(["--bind-to", "none"]);
                match hosts {
                    Some(file) => command.arg("--hostfile").arg(file).args(["--map-by", "node"]),
                    None => command.arg("--oversubscribe"),
                };
                // mpirun's warning about root is for programs that may harm the machine; a container has no other user.
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                // A host that is gone is noticed in seconds, not in minutes.
                let keepalive = [("time", "5"), ("intvl", "2"), ("probes", "3")];
                for (key, value) in keepalive {
                    command.env(format!("OMPI_MCA_oob_tcp_keepalive_{key}"), value);
                }
            }
            Dialect::Hydra => {
                if let Some(file) = hosts {
                    command.arg("-f").arg(file);
                }
            }
        }
        command.arg(std::env::current_exe()?).args(words);
        Ok(command)
    }
}

/// Takes what Open MPI says of a failed process, a block between two lines of dashes, out of what a job says.
#[derive(Default)]
pub struct Sieve {
    block: Vec<u8>,
}

impl Sieve {
    const KNOWN: [&str; 3] = [
        "Primary job  terminated normally",
        "mpirun detected that one or more processes",
        "mpirun noticed that process",
    ];

    /// What to show now that `line` has come.
    pub fn sift(&mut self, line: Vec<u8>) -> Vec<u8> {
        let dashes = line.len() > 60 && line.trim_ascii_end().iter().all(|&byte| byte == b'-');
        if self.block.is_empty() && !dashes {
            return line;
        }
        let closes = dashes && !self.block.is_empty();
        self.block.extend(line);
        if !closes {
            return Vec::new();
        }
        let block = std::mem::take(&mut self.block);
        let text = String::from_utf8_lossy(&block);
        if Self::KNOWN.iter().any(|known| text.contains(known)) { Vec::new() } else { block }
    }

    /// What is left when no more lines will come.
    pub fn rest(self) -> Vec<u8> {
        self.block
    }
}

/// Which process `said`, the words of mpirun, blames, and for what.
pub fn blamed(said: &str) -> Option<(usize, String)> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    if let Some((_, after)) = said.split_once("process rank ") {
        let signal = after.split_once("exited on signal ")?.1;
        return Some((number(after)?, format!("died of signal {}", signal.split('.').next()?.trim())));
    }
    if let Some((_, after)) = said.split_once("=   RANK ") {
        let code = after.split_once("EXIT CODE: ").and_then(|(_, code)| number(code));
        return Some((number(after)?, format!("ended with exit code {}", code.unwrap_or(1))));
    }
    let (_, after) = said.split_once("Process name: [[")?;
    let (_, process) = after.split_once("],")?;
    let (_, code) = after.split_once("Exit code:")?;
    Some((number(process)?, format!("ended with exit code {}", number(code.trim_start())?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_every_mpirun_are_understood() {
        let killed = "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed).";
        assert_eq!(blamed(killed), Some((3, "died of signal 9 (Killed)".into())));
        let exited =
            "The first process to do so was:\n\n  Process name: [[11110,1],12]\n  Exit code:    2\n---";
        assert_eq!(blamed(exited), Some((12, "ended with exit code 2".into())));
        let hydra = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK 1 PID 40 RUNNING AT n1\n=   EXIT CODE: 9\n";
        assert_eq!(blamed(hydra), Some((1, "ended with exit code 9".into())));
        assert_eq!(blamed("all is well"), None);
    }

    #[test]
    fn known_blocks_are_taken_out_and_everything_else_is_shown() {
        let dashes = "-".repeat(74);
        let text = format!(
            "epoch 1\n{dashes}\nmpirun noticed that process rank 1 …\n{dashes}\nerror: no\n{dashes}\nNot enough slots\n{dashes}\n{dashes}\nend"
        );
        let mut sieve = Sieve::default();
        let mut shown: Vec<u8> =
            text.split_inclusive('\n').flat_map(|line| sieve.sift(line.as_bytes().to_vec())).collect();
        shown.extend(sieve.rest());
        let expected = format!("epoch 1\nerror: no\n{dashes}\nNot enough slots\n{dashes}\n{dashes}\nend");
        assert_eq!(String::from_utf8_lossy(&shown), expected);
    }
}
