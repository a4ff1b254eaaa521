//! `archi`: the command line of Archipelago.
//!
//! Thin: every command is one file in [`commands`] that reads its flags, calls the libraries and shows what came
//! of it through [`terminal`]. Only data goes to stdout; progress, advice and errors go to stderr.

mod commands;
mod terminal;
mod interrupt;
mod failure;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    failure::speak_plainly_on_panic();
    match commands::Archi::parse().run() {
        Ok(code) => code,
        Err(error) => failure::report(error),
    }
}
