//! HDRF, highest degree replicated first: an edge goes where its ends are, rather where the less connected one is.
//!
//! Petroni, Querzoni, Daudjee, Kamali, Iacoboni, "HDRF: Stream-Based Partitioning for Power-Law Graphs", CIKM 2015.
//! An edge `(u, v)` goes to the part with the highest `C(p) = g(u, p) + g(v, p) + lambda * balance(p)`, with
//! - `g(v, p) = 1 + (1 - theta(v))` if `v` has a copy in `p`, else 0, and `theta(v) = d(v) / (d(u) + d(v))`;
//! - `balance(p) = (max - load(p)) / (1 + max - min)` over the loads of all parts.
//!
//! Ties: the lower load, then the lower number. With `lambda` at most 1 balance only decides between equals; above 1 it
//! can outweigh the copy of a hub, above 2 any copy, above 3 those of both ends: a path or a stream in breadth-first
//! order is balanced only then. The paper counts degrees on the way (`degrees = online`).
//!
//! The score of P parts is never computed: within the parts where both ends are, those with only `u` and those with
//! only `v`, the least loaded wins, and of parts with neither only the least loaded of all can. So there are at most
//! four candidates, and mostly one: a part with both ends wins at once unless it holds
//! `(1 + max - min) / lambda` edges more than the least loaded one.
//! One pass over the edges after the degrees; memory: 4 bytes and P bits per node.

use super::by_edges::place_each;
use super::loads::Loads;
use super::passes::{DEGREES, Degrees, Passing};
use super::replicas::Replicas;
use super::settings::{Setting, Values};
use super::{ByEdges, EdgePartitioner, EdgeSink, Entry, Memory, Request};
use crate::Result;
use crate::dataset::Dataset;
use crate::progress::Progress;

const LAMBDA: Setting = Setting {
    name: "lambda",
    default: "1.1",
    about: "weight of balanced loads: above 1 they can outweigh the copy of a hub, above 2 any copy",
    values: Values::Number(0.0, 1e6),
};

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "hdrf",
    summary: "edges where their ends have copies, copying hubs first, with balanced loads",
    paper: "Petroni et al., HDRF: Stream-Based Partitioning for Power-Law Graphs, CIKM 2015",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[LAMBDA, DEGREES],
    build: || Box::new(ByEdges(Hdrf)),
};

/// Highest degree replicated first.
#[derive(Debug, Clone, Copy)]
pub struct Hdrf;

impl EdgePartitioner for Hdrf {
    fn place(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
        sink: &mut EdgeSink,
    ) -> Result<()> {
        let lambda = request.number(&ENTRY, LAMBDA.name)?;
        let mut degrees = Degrees::new(dataset, request, &ENTRY, progress)?;
        let mut state = State {
            replicas: Replicas::new(dataset.nodes as usize, request.parts),
            loads: Loads::new(request.parts),
            lambda,
        };
        place_each(dataset, progress, sink, |edge| {
            let [source, target] = edge.ends();
            degrees.prefetch(edge.later(Passing::AHEAD));
            state.replicas.prefetch(edge.later(Passing::AHEAD));
            degrees.meet(source, target);
            let [u, v] = [source, target].map(|node| End { node: node as usize, degree: degrees.of(node) });
            let part = state.choose(u, v);
            state.replicas.add(u.node, part);
            state.replicas.add(v.node, part);
            state.loads.add(part);
            part
        })
    }
}

/// One end of the edge at hand.
#[derive(Clone, Copy)]
struct End {
    node: usize,
    degree: u32,
}

/// What has been placed so far.
struct State {
    replicas: Replicas,
    loads: Loads,
    lambda: f64,
}

impl State {
    /// The part with the highest score.
    #[inline]
    fn choose(&self, u: End, v: End) -> u32 {
        let (words, of) = (self.replicas.words(), |end: End, word| self.replicas.word(end.node, word));
        let both = self.loads.least_of(words, |word| of(u, word) & of(v, word));
        match both {
            Some(part) if self.is_beyond_doubt(part) => part,
            _ => {
                let only_u = self.loads.least_of(words, |word| of(u, word) & !of(v, word));
                let only_v = self.loads.least_of(words, |word| of(v, word) & !of(u, word));
                self.best([both, only_u, only_v], u, v)
            }
        }
    }

    /// Whether no balance can outweigh that `part` has both ends: a second end is worth at least 1.
    #[inline]
    fn is_beyond_doubt(&self, part: u32) -> bool {
        let least = self.loads.of(self.loads.least());
        self.lambda * ((self.loads.of(part) - least) as f64) < self.spread()
    }

    /// The best of the candidates and the least loaded part.
    #[inline]
    fn best(&self, candidates: [Option<u32>; 3], u: End, v: End) -> u32 {
        let mut best = self.loads.least();
        let mut highest = self.score(best, u, v);
        for part in candidates.into_iter().flatten() {
            let score = self.score(part, u, v);
            let tie = score == highest && (self.loads.of(part), part) < (self.loads.of(best), best);
            if score > highest || tie {
                (best, highest) = (part, score);
            }
        }
        best
    }

    #[inline]
    fn score(&self, part: u32, u: End, v: End) -> f64 {
        let degrees = f64::from(u.degree) + f64::from(v.degree);
        let copy =
            |end: End| f64::from(self.replicas.has(end.node, part)) * (2.0 - f64::from(end.degree) / degrees);
        let room = (self.loads.most() - self.loads.of(part)) as f64;
        copy(u) + copy(v) + self.lambda * room / self.spread()
    }

    /// `1 + max - min` of the loads.
    #[inline]
    fn spread(&self) -> f64 {
        (1 + self.loads.most() - self.loads.of(self.loads.least())) as f64
    }
}
