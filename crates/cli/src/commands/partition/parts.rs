//! How many parts: as many as the user says, or as the memory of the workers asks for.

use crate::terminal;
use crate::terminal::units;
use archipelago_graph::partition::auto::{Auto, RESERVE, Workers, data_bytes};
use archipelago_graph::{Dataset, Error, Result};
use std::str::FromStr;

/// What `--parts` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// As many as the workers' memory asks for.
    Auto,
    /// So many.
    Count(u32),
}

impl FromStr for Parts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count) if count > 0 => Ok(Self::Count(count)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Err("expected a whole number from 1, or `auto`".to_owned()),
        }
    }
}

/// Flags that say what `--parts auto` may count on.
#[derive(clap::Args)]
pub struct Room {
    /// Memory of a worker, for --parts auto; what this machine has free when not given
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// How many workers will train, for --parts auto
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Share of a worker's memory that is kept for training itself, for --parts auto; 2/3 when not given
    #[arg(long, value_name = "SHARE")]
    reserve: Option<f64>,
}

impl Room {
    /// The number of parts for `dataset`, which is explained to the user.
    pub fn choose(&self, dataset: &Dataset) -> Result<Auto> {
        let memory = match self.memory {
            Some(memory) => memory,
            None => available()?,
        };
        let reserve = self.reserve.unwrap_or(RESERVE);
        let workers = Workers { count: self.workers, memory_bytes: memory, reserve };
        let auto = workers.parts_for(data_bytes(dataset), dataset.nodes)?;
        terminal::say(explain(&auto));
        Ok(auto)
    }

    /// Says so when a flag was given that has no say.
    pub fn tell_ignored(&self) {
        if self.memory.is_some() || self.reserve.is_some() || self.workers > 1 {
            terminal::say("note: --memory, --workers and --reserve have a say with `--parts auto` only");
        }
    }
}

/// The number of parts with all that it follows from.
fn explain(auto: &Auto) -> String {
    let rule = if auto.fits() { "the workers, as S <= q (M - T)" } else { "ceil(S / (M - T))" };
    format!(
        "parts: {} = {rule} with S = {} of data, M = {} of memory per worker, T = {} of it kept for training, q = {}",
        units::count(auto.parts.into()),
        units::bytes(auto.data_bytes),
        units::bytes(auto.memory_bytes),
        units::bytes(auto.reserved_bytes),
        units::counted(auto.workers.into(), "worker"),
    )
}

/// Bytes of memory that this machine has free, or that this process may use if that is less.
pub fn available() -> Result<u64> {
    let file = "/proc/meminfo";
    let text = std::fs::read_to_string(file).map_err(Error::io("read", file))?;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(u64::MAX);
    free(&text).map(|free| free.min(limit)).ok_or_else(|| {
        Error::usage("this system does not say how much memory is free").with_hint("say it with --memory")
    })
}

/// The line `MemAvailable:   123 kB`, which counts in 1024 bytes.
fn free(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_a_number_or_auto() {
        assert_eq!(("auto".parse(), "7".parse()), (Ok(Parts::Auto), Ok(Parts::Count(7))));
        for wrong in ["0", "-1", "many", "1.5", "5000000000"] {
            assert!(wrong.parse::<Parts>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_explanation_has_every_input() {
        let explained = |data, memory_bytes, count| {
            let workers = Workers { count, memory_bytes, reserve: 0.5 };
            explain(&workers.parts_for(data, 1000).unwrap())
        };
        assert_eq!(
            explained(12_300_000_000, 4_000_000_000, 2),
            "parts: 7 = ceil(S / (M - T)) with S = 12.3 GB of data, M = 4.0 GB of memory per worker, \
             T = 2.0 GB of it kept for training, q = 2 workers"
        );
        assert!(
            explained(1000, 4000, 1).starts_with("parts: 1 = the workers, as S <= q (M - T) with S = 1.0 kB")
        );
    }

    #[test]
    fn free_memory_is_read_from_what_linux_says() {
        assert_eq!(free("MemTotal: 9 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n"), Some(2 << 20));
        assert_eq!(free("MemTotal: 9 kB\n"), None);
    }
}
