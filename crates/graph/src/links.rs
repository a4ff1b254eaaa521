//! Edges as things to predict: which of them are trained on, which are held out, and what graph is left?
//!
//! Both directions of a pair and all edges between its two nodes are in the same [`Share`], and which one is a
//! function of the seed and the original ids alone (or of a file that the user gives): every rank can tell for every
//! edge without asking, and the split does not depend on the cut. What is held out leaves the graph in which messages
//! are passed; a self-loop stays there and is never a thing to predict. This module draws no false links and
//! computes no scores.

use crate::random::{Key, Purpose};
use crate::read;
use crate::store::Part;
use crate::{Error, Result};
use bytemuck::{Pod, Zeroable};
use std::path::Path;

/// An edge to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Link {
    /// Global id of its source.
    pub source: u64,
    /// Global id of its target, which the part that lists the link owns.
    pub target: u64,
    /// Its edge type; 0 where edges have none.
    pub kind: u32,
    /// Always 0: links travel as bytes.
    pub padding: u32,
}

impl Link {
    /// The link from `source` to `target`, global ids.
    pub fn new(source: u64, target: u64, kind: u32) -> Self {
        Self { source, target, kind, padding: 0 }
    }
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// To learn from, and to pass messages along.
    Train,
    /// To choose the best epoch by.
    Valid,
    /// To report.
    Test,
}

impl Share {
    /// The share that users call `word`.
    pub fn find(word: &str) -> Option<Self> {
        match word {
            "train" => Some(Self::Train),
            "valid" | "validation" | "val" => Some(Self::Valid),
            "test" => Some(Self::Test),
            _ => None,
        }
    }

    /// The word that users meet.
    pub fn word(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Test => "test",
        }
    }
}

/// Which share each pair of nodes is in.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSplit(Rule);

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    /// Every pair draws.
    Drawn { key: Key, valid: f64, held_out: f64 },
    /// Lower id, higher id, share; ascending. Pairs that are not listed are trained on.
    Given(Vec<(u64, u64, Share)>),
}

impl LinkSplit {
    /// On average these shares of all pairs are held out for validation and test.
    pub fn drawn(seed: u64, valid: f64, test: f64) -> Self {
        Self(Rule::Drawn { key: Key::new(seed, Purpose::Split), valid, held_out: valid + test })
    }

    /// The split that the user gives in the file at `path` (see [`given`]). Pairs that it does not list are trained on.
    pub fn read(path: &Path) -> Result<Self> {
        let mut pairs = given(path)?;
        for (a, b, _) in &mut pairs {
            (*a, *b) = ordered(*a, *b);
        }
        pairs.sort_unstable();
        pairs.dedup();
        match pairs.windows(2).find(|two| (two[0].0, two[0].1) == (two[1].0, two[1].1)) {
            None => Ok(Self(Rule::Given(pairs))),
            Some(two) => {
                let ((a, b, first), second) = (two[0], two[1].2);
                let found = format!("`{a}` and `{b}` in `{}` and in `{}`", first.word(), second.word());
                Err(Error::input(path, "", "each pair of nodes in one split", found)
                    .with_hint("both directions of a pair are in the same split"))
            }
        }
    }

    /// The share of the pair of these original ids, in whichever order.
    pub fn share(&self, a: u64, b: u64) -> Share {
        let (a, b) = ordered(a, b);
        match &self.0 {
            Rule::Drawn { key, valid, held_out } => match key.with(a).with(b).unit(0) {
                draw if draw < *valid => Share::Valid,
                draw if draw < *held_out => Share::Test,
                _ => Share::Train,
            },
            Rule::Given(pairs) => match pairs.binary_search_by_key(&(a, b), |&(a, b, _)| (a, b)) {
                Ok(at) => pairs[at].2,
                Err(_) => Share::Train,
            },
        }
    }
}

fn ordered(a: u64, b: u64) -> (u64, u64) {
    if a <= b { (a, b) } else { (b, a) }
}

/// The links of a text file, one `source,target,split` per line (comma, semicolon, tab or blanks), ids being
/// original ones and splits `train`, `valid` (or `val`, `validation`) and `test`. Comments, a header line and packed
/// files are understood.
pub fn given(path: &Path) -> Result<Vec<(u64, u64, Share)>> {
    read::read_link_file(path)
}

/// Two nodes of which a user asks how likely a link is, in original ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Where the link would come from.
    pub source: u64,
    /// Where it would lead.
    pub target: u64,
    /// Its edge type; 0 where edges have none.
    pub kind: u32,
}

/// What a file of pairs may speak of.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// How many nodes there are: ids are below.
    pub nodes: u64,
    /// The user's own name of every node, by which pairs then go instead of ids.
    pub names: Option<&'a [String]>,
    /// Types of edges; 0 where they have none.
    pub kinds: u32,
}

/// The pairs of a text file in its order, one `source,target` or `source,target,type` per line (comma, semicolon, tab
/// or blanks). Comments, a header line such as `source,target` and packed files are understood.
pub fn asked(path: &Path, known: Known<'_>) -> Result<Vec<Pair>> {
    read::read_pair_file(path, known)
}

/// The links of a part by share, and the part with only those edges that are trained on.
#[derive(Debug)]
pub struct Divided {
    /// The part without what is held out.
    pub graph: Part,
    /// Links to learn from.
    pub train: Vec<Link>,
    /// Links to choose the best epoch by.
    pub valid: Vec<Link>,
    /// Links to report.
    pub test: Vec<Link>,
}

/// Divides the in-edges of `part` by `split`. `originals` has the original id of every row, halo included.
///
/// In an `undirected` graph, where every edge is there in both directions, a pair is listed once: from the lower to
/// the higher original id. Edges between the same two nodes are each listed, as they are each stored.
pub fn divide(part: &Part, originals: &[u64], split: &LinkSplit, undirected: bool) -> Result<Divided> {
    if originals.len() != part.rows() {
        let (rows, found) = (part.rows(), originals.len());
        return Err(Error::usage(format!("expected the original ids of {rows} rows, found {found}")));
    }
    let (offsets, sources, types) = (part.offsets(), part.sources(), part.types());
    let (first, owned, halo) = (part.range().start, part.owned(), part.halo());
    let mut kept = vec![true; part.edges()];
    let mut lists = [Vec::new(), Vec::new(), Vec::new()];
    for row in 0..owned {
        for edge in offsets[row] as usize..offsets[row + 1] as usize {
            let source = sources[edge] as usize;
            let (from, to) = (originals[source], originals[row]);
            if from == to {
                continue;
            }
            let share = split.share(from, to);
            kept[edge] = share == Share::Train;
            if !undirected || from < to {
                let source = source.checked_sub(owned).map_or(first + source as u64, |at| halo[at]);
                let kind = types.map_or(0, |types| types[edge]);
                lists[share as usize].push(Link::new(source, first + row as u64, kind));
            }
        }
    }
    let [train, valid, test] = lists;
    Ok(Divided { graph: part.keeping(|edge| kept[edge]), train, valid, test })
}
