//! The inner product of both rows (Kipf & Welling, 2016): no weights, and no kinds of links.

use super::{Decoder, DecoderShape, Entry, Pairs};
use crate::model::Weight;
use crate::parameters::Names;
use crate::tape::{Tape, Var};

pub(super) const ENTRY: Entry = Entry {
    name: "dot",
    summary: "inner product of both ends",
    paper: "Kipf & Welling, Variational Graph Auto-Encoders, 2016",
    build: |_: &DecoderShape| Box::new(Dot),
};

struct Dot;

impl Decoder for Dot {
    fn weights(&self) -> Vec<Weight> {
        Vec::new()
    }

    fn scores(&self, tape: &mut Tape, _: &Names, rows: Var, links: Pairs<'_>) -> Var {
        tape.pair_scores(rows, links, None)
    }
}
