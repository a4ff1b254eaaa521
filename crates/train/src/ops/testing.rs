//! What the tests of the kernels share: small graphs, numbers, comparisons.

use archipelago_graph::random::{Key, Purpose};

/// Widths that are less than, equal to, between and beyond registers and blocks.
pub(crate) const WIDTHS: &[usize] = &[1, 3, 7, 8, 40, 41, 64, 128, 256];

/// A list of neighbours per node.
pub(crate) struct Lists {
    pub offsets: Vec<u64>,
    pub neighbors: Vec<u32>,
}

/// Random sources below `sources` for targets of these degrees; duplicates happen.
pub(crate) fn graph(seed: u64, degrees: &[usize], sources: usize) -> Lists {
    let key = Key::new(seed, Purpose::Generate);
    let mut lists = Lists { offsets: vec![0], neighbors: vec![] };
    for &d in degrees {
        for _ in 0..d.min(sources * d) {
            lists.neighbors.push(key.below(lists.neighbors.len() as u64, sources as u64) as u32);
        }
        lists.offsets.push(lists.neighbors.len() as u64);
    }
    lists
}

impl Lists {
    /// The targets of every source, ascending.
    pub fn transposed(&self, sources: usize) -> Self {
        let mut lists = vec![vec![]; sources];
        for i in 0..self.offsets.len() - 1 {
            for &j in &self.neighbors[self.offsets[i] as usize..self.offsets[i + 1] as usize] {
                lists[j as usize].push(i as u32);
            }
        }
        let mut offsets = vec![0];
        offsets.extend(lists.iter().scan(0, |sum, l| {
            *sum += l.len() as u64;
            Some(*sum)
        }));
        Self { offsets, neighbors: lists.concat() }
    }
}

/// Standard normal numbers.
pub(crate) fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let key = Key::new(seed, Purpose::Generate).with(99);
    (0..len as u64).map(|i| key.normal(i) as f32).collect()
}

/// `found` and `expected` agree to `tolerance`, relative to the larger of 1 and the largest expected magnitude.
#[track_caller]
pub(crate) fn close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    let size = expected.iter().fold(1.0f32, |m, x| m.max(x.abs()));
    for (k, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= tolerance * size || f == e, "element {k}: found {f}, expected {e}");
    }
}

/// The gradient of `loss` at `x` by central differences in f64.
pub(crate) fn differences(x: &[f32], loss: impl Fn(&[f64]) -> f64) -> Vec<f32> {
    let mut at: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
    (0..at.len())
        .map(|k| {
            // Short, so that hardly a step crosses a kink of ReLU and its kin; f64 has digits enough.
            let (middle, step) = (at[k], 1e-7);
            at[k] = middle + step;
            let above = loss(&at);
            at[k] = middle - step;
            let below = loss(&at);
            at[k] = middle;
            ((above - below) / (2.0 * step)) as f32
        })
        .collect()
}

/// Whether no `a + b` is so near to 0 that a step of [`differences`] might cross it.
pub(crate) fn away_from_0(a: &[f32], b: &[f32]) -> bool {
    a.iter().all(|a| b.iter().all(|b| (a + b).abs() > 1e-6))
}

/// As f64.
pub(crate) fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}
