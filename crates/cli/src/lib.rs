//! `archi`, the command line of Archipelago, as a library: for programs that bring parts of their own.
//!
//! [`run`] is all of `archi`. A program that first gives it [`Additions`] has the same commands, in which its own models,
//! strategies, samplers and partitioners stand beside the built-in ones: they are listed, suggested, checked, trained with,
//! resumed and evaluated like those. `docs/extending.md` shows how to write them, `examples/own-archi` is such a program.
//!
//! ```no_run
//! use archipelago::Additions;
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     archipelago::run(Additions { models: vec![/* my_layer::ENTRY */], ..Additions::default() })
//! }
//! ```
//!
//! Thin: every command is one file in `commands` that reads its flags, calls the libraries and shows what came of it
//! through `terminal`. Only data goes to stdout; progress, advice and errors go to stderr.

mod commands;
mod terminal;
mod interrupt;
mod failure;

pub use archipelago_comm as comm;
pub use archipelago_graph as graph;
pub use archipelago_train as train;

use archipelago_graph::{partition, sample};
use archipelago_train::{model, strategy};
use clap::Parser;
use std::process::ExitCode;

/// What a program adds to the tables that users choose from. A name that is in a table already is refused.
#[derive(Default)]
pub struct Additions {
    /// Kinds of layers, for `--model`.
    pub models: Vec<model::Entry>,
    /// Ways to train, for `--strategy`. `archi plan` leaves them out: what they cost is not known.
    pub strategies: Vec<strategy::Entry>,
    /// Ways to choose neighbours, for `train.sampler`.
    pub samplers: Vec<sample::Entry>,
    /// Ways to cut a graph, for `archi partition --method`.
    pub partitioners: Vec<partition::Entry>,
}

impl Additions {
    fn add(self) -> archipelago_train::Result<()> {
        model::add(self.models)?;
        strategy::add(self.strategies)?;
        sample::add(self.samplers)?;
        Ok(partition::add(self.partitioners)?)
    }
}

/// Does what the command line of this process says, with what `additions` add, and returns the exit code. To be called
/// once, first thing in `main`.
pub fn run(additions: Additions) -> ExitCode {
    failure::speak_plainly_on_panic();
    let added = additions.add().map_err(anyhow::Error::from);
    match added.and_then(|()| commands::Archi::parse().run()) {
        Ok(code) => code,
        Err(error) => failure::report(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addition_under_a_name_that_is_taken_is_refused_with_both() {
        let gcn = &model::MODELS[0];
        let twin = model::Entry { name: gcn.name, summary: "mine", ..*gcn };
        let refused = Additions { models: vec![twin], ..Additions::default() }.add();
        let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
        let both = format!("expected one model called `gcn`, found two: `{}` and `mine`", gcn.summary);
        assert!(message.starts_with(&both), "{message}");
    }
}
