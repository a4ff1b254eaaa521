//! `own-archi`: all of `archi`, and beside its models, partitioners, samplers and strategies one more of each.
//!
//! One file for each, as in Archipelago itself: what it is, then a type with the trait, and an `ENTRY` for the table.

mod filtered;
mod latest;
mod snake;
mod tides;

use archipelago::Additions;
use std::process::ExitCode;

fn main() -> ExitCode {
    archipelago::run(Additions {
        models: vec![filtered::ENTRY],
        partitioners: vec![snake::ENTRY],
        samplers: vec![latest::ENTRY],
        strategies: vec![tides::ENTRY],
    })
}
