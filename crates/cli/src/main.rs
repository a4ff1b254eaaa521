//! `archi`: the command line of Archipelago, with nothing added.

use archipelago::Additions;
use std::process::ExitCode;

fn main() -> ExitCode {
    archipelago::run(Additions::default())
}
