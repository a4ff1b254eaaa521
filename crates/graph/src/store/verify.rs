//! Is a store still what was written? Recomputes every checksum and every invariant.
//!
//! Reads every byte once for the checksums and once more for the invariants. Memory: one bit per node, and one
//! per halo node of a part.

use super::manifest::{FileEntry, damaged};
use super::{Part, Store, layout};
use crate::progress::Progress;
use crate::quality::{PartQuality, Quality};
use crate::{Error, PartId, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// What was found to be in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Parts.
    pub parts: u32,
    /// Files whose checksum agrees.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nodes, each in exactly one part.
    pub nodes: u64,
    /// Edges.
    pub edges: u64,
}

/// Verifies the store at `path`. The first thing that is wrong is an error that names the file and the place.
pub fn verify(path: &Path, progress: &dyn Progress) -> Result<VerifyReport> {
    let store = Store::open(path)?;
    let manifest = store.manifest();
    let total: u64 = manifest.files(path).map(|(_, entry)| entry.bytes).sum();
    progress.begin("checksums", total, "bytes");
    for (file, entry) in manifest.files(path) {
        check_sum(&file, entry, progress)?;
    }
    store.names()?;
    progress.begin("invariants", u64::from(store.parts()), "parts");
    let mut seen = vec![0u64; (manifest.nodes as usize).div_ceil(64)];
    let mut parts = Vec::new();
    for id in 0..store.parts() {
        parts.push(check_part(&store, PartId(id), &mut seen)?);
        progress.tick(1)?;
    }
    check_quality(&store, Quality::from_parts(parts))?;
    Ok(VerifyReport {
        parts: store.parts(),
        files: manifest.files(path).count() as u64,
        bytes: total,
        nodes: manifest.nodes,
        edges: manifest.edges,
    })
}

pub(super) fn check_sum(path: &Path, entry: &FileEntry, progress: &dyn Progress) -> Result<()> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(Error::io("read", path))?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        progress.tick(count as u64)?;
    }
    let found = format!("{:016x}", hash.digest());
    if found == entry.xxh3 {
        return Ok(());
    }
    Err(damaged(Error::input(path, "", format!("checksum `{}`", entry.xxh3), format!("`{found}`"))))
}

/// The invariants that hold inside one part; its figures.
fn check_part(store: &Store, id: PartId, seen: &mut [u64]) -> Result<PartQuality> {
    let part = store.part(id)?;
    let place = Place { folder: store.path().join(layout::part_folder(id.0)) };
    for (row, &node) in part.original().iter().enumerate() {
        let (word, bit) = (&mut seen[node as usize / 64], 1 << (node % 64));
        if *word & bit != 0 {
            return Err(place.wrong(layout::ORIGINAL, row, "a node of no earlier part", node));
        }
        *word |= bit;
    }
    if let Some(index) = part.halo().iter().position(|node| part.range().contains(node)) {
        return Err(place.wrong(layout::HALO, index, "a node of another part", part.halo()[index]));
    }
    check_lists(&part, &place)?;
    check_order(&part, &place)?;
    for (name, rows) in
        [(layout::TRAIN, part.train()), (layout::VALID, part.valid()), (layout::TEST, part.test())]
    {
        if let Some(at) = rows.windows(2).position(|pair| pair[0] >= pair[1]) {
            return Err(place.wrong(name, at + 1, &format!("a row above {}", rows[at]), rows[at + 1]));
        }
    }
    Ok(figures(&part))
}

/// Sources ascend within every list, and every halo node is the source of some edge.
fn check_lists(part: &Part, place: &Place) -> Result<()> {
    let (sources, owned) = (part.sources(), part.owned());
    let mut used = vec![false; part.halo().len()];
    for list in part.offsets().windows(2) {
        let (start, list) = (list[0] as usize, &sources[list[0] as usize..list[1] as usize]);
        if let Some(at) = list.windows(2).position(|pair| pair[0] > pair[1]) {
            let expected = format!("a row from {}", list[at]);
            return Err(place.wrong(layout::SOURCES, start + at + 1, &expected, list[at + 1]));
        }
        list.iter().filter(|&&row| row as usize >= owned).for_each(|&row| used[row as usize - owned] = true);
    }
    match used.iter().position(|used| !used) {
        None => Ok(()),
        Some(index) => Err(place.wrong(layout::HALO, index, "the source of an edge", part.halo()[index])),
    }
}

/// The stored order of every list is a permutation of it. (Original ids of the halo are not in the part.)
fn check_order(part: &Part, place: &Place) -> Result<()> {
    let Some(order) = part.order() else { return Ok(()) };
    let mut positions = Vec::new();
    for list in part.offsets().windows(2) {
        positions.clear();
        positions.extend_from_slice(&order[list[0] as usize..list[1] as usize]);
        positions.sort_unstable();
        if let Some(at) = positions.iter().zip(0u32..).position(|(&found, expected)| found != expected) {
            return Err(place.wrong(
                layout::ORDER,
                list[0] as usize + at,
                "every position once",
                positions[at],
            ));
        }
    }
    Ok(())
}

fn figures(part: &Part) -> PartQuality {
    PartQuality {
        owned: part.owned() as u64,
        train: part.train().len() as u64,
        valid: part.valid().len() as u64,
        test: part.test().len() as u64,
        in_edges: part.edges() as u64,
        cut_in_edges: part.sources().iter().filter(|&&row| row as usize >= part.owned()).count() as u64,
        halo: part.halo().len() as u64,
    }
}

fn check_quality(store: &Store, found: Quality) -> Result<()> {
    let stated = &store.manifest().quality;
    if *stated == found {
        return Ok(());
    }
    let file = store.path().join(layout::MANIFEST);
    let cut = |quality: &Quality| {
        format!("{} cut edges, replication {}", quality.cut_edges, quality.replication_factor)
    };
    Err(damaged(Error::input(file, "field `quality`", cut(&found), cut(stated))))
}

/// A part's folder, for errors.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn wrong(&self, name: &str, element: usize, expected: &str, found: impl std::fmt::Display) -> Error {
        let place = format!("element {element}");
        damaged(Error::input(self.folder.join(name), place, expected, format!("`{found}`")))
    }
}
