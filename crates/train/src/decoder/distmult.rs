//! DistMult (Yang et al., ICLR 2015): `sum over c of a_c r_c b_c`, `r` learned for each kind of link.

use super::{Decoder, DecoderShape, Entry, Pairs};
use crate::model::{Start, Weight};
use crate::parameters::Names;
use crate::tape::{Tape, Var};

pub(super) const ENTRY: Entry = Entry {
    name: "distmult",
    summary: "inner product of both ends, weighed by a learned row for each type of edge",
    paper: "Yang et al., ICLR 2015",
    build: |shape| Box::new(DistMult { shape: *shape }),
};

struct DistMult {
    shape: DecoderShape,
}

impl Decoder for DistMult {
    fn weights(&self) -> Vec<Weight> {
        vec![Weight::new("relation", self.shape.kinds.max(1), self.shape.width, Start::Glorot)]
    }

    fn scores(&self, tape: &mut Tape, weights: &Names, rows: Var, links: Pairs<'_>) -> Var {
        tape.pair_scores(rows, links, Some(weights.get("relation")))
    }
}
