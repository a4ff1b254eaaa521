//! How many neighbours do nodes have? A few groups of nodes with alike degrees stand for a whole graph.
//!
//! Of a store the groups are a histogram of its in-degrees (one pass over the offsets). Of an R-MAT graph they follow
//! from the generator: a node whose id has `k` ones among `s` bits ends an edge with chance `.76^(s-k) .24^k`, so
//! there are `s` over `k` nodes whose degree is Poisson with mean `edges` times that. Nothing is drawn, so scale 40
//! costs no more than scale 4. Any other graph is taken for one in which all edges fall alike (Poisson).
//!
//! An edge is assumed to begin at a node with chance proportional to that node's degree, whatever its other end.

/// Nodes with alike degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// How many there are.
    pub nodes: f64,
    /// In-edges of each: their number, or its mean.
    pub degree: f64,
}

/// The degrees of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Degrees {
    /// Nodes of every degree.
    pub groups: Vec<Group>,
    /// Whether degrees vary about those of their group as a Poisson number does.
    pub spread: bool,
}

/// Chance that a bit of an end of an R-MAT edge is 0 (Graph 500: a + b = a + c = .76).
const RMAT_ZERO: f64 = 0.76;

impl Degrees {
    /// Those of an R-MAT graph of `2^scale` nodes.
    pub fn rmat(scale: u32, edges: f64) -> Self {
        let mut nodes = 1.0;
        let groups = (0..=scale).map(|ones| {
            let chance = RMAT_ZERO.powi((scale - ones) as i32) * (1.0 - RMAT_ZERO).powi(ones as i32);
            let group = Group { nodes, degree: edges * chance };
            nodes *= f64::from(scale - ones) / f64::from(ones + 1);
            group
        });
        Self { groups: groups.collect(), spread: true }
    }

    /// Those of a graph whose edges fall anywhere.
    pub fn even(nodes: f64, edges: f64) -> Self {
        Self { groups: vec![Group { nodes, degree: edges / nodes.max(1.0) }], spread: true }
    }

    /// Those of nodes with these degrees: one group for each degree below 64, and eight for each power of 2 above.
    pub fn counted(degrees: impl Iterator<Item = u64>) -> Self {
        let mut bins = std::collections::BTreeMap::<u64, (f64, f64)>::new();
        for degree in degrees {
            let step = 1 << degree.checked_ilog2().unwrap_or(0).saturating_sub(3).max(u32::from(degree > 63));
            let bin = bins.entry(if degree < 64 { degree } else { degree / step * step }).or_default();
            *bin = (bin.0 + 1.0, bin.1 + degree as f64);
        }
        let group = |(nodes, edges): (f64, f64)| Group { nodes, degree: edges / nodes };
        Self { groups: bins.into_values().map(group).collect(), spread: false }
    }

    /// All nodes.
    pub fn nodes(&self) -> f64 {
        self.groups.iter().map(|group| group.nodes).sum()
    }

    /// All edges.
    pub fn edges(&self) -> f64 {
        self.groups.iter().map(|group| group.nodes * group.degree).sum()
    }

    /// Edges that are expected to be drawn of a node whose group has this `degree`, if no more than `fanout` may be.
    pub fn drawn(&self, degree: f64, fanout: Option<f64>) -> f64 {
        match fanout {
            None => degree,
            Some(fanout) if self.spread => least_of_poisson(degree, fanout),
            Some(fanout) => degree.min(fanout),
        }
    }

    /// Chance that none of the edges of a node whose group has this `degree` is among a `share` of all edges.
    pub fn missed(&self, degree: f64, share: f64) -> f64 {
        match self.spread {
            true => (-degree * share).exp(),
            false => (1.0 - share).max(0.0).powf(degree),
        }
    }
}

/// The mean of a Poisson number with this `mean` where it is below `limit`, and of `limit` where it is not: the sum of
/// the chances that it is 1 or more, 2 or more, … `limit` or more.
fn least_of_poisson(mean: f64, limit: f64) -> f64 {
    // So far above the limit that it is hardly ever reached from below, or so large that it hardly varies.
    if mean > 600.0 || mean > limit + 12.0 * mean.sqrt() {
        return mean.min(limit);
    }
    let (mut chance, mut below, mut sum) = ((-mean).exp(), 0.0, 0.0);
    for number in 0..limit as u64 {
        below += chance;
        sum += (1.0 - below).max(0.0);
        chance *= mean / (number + 1) as f64;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "found {found}, expected {expected}");
    }

    #[test]
    fn groups_of_an_rmat_graph_hold_all_its_nodes_and_edges() {
        for scale in [1, 10, 24, 36, 40] {
            let edges = 32.0 * 2f64.powi(scale);
            let degrees = Degrees::rmat(scale as u32, edges);
            close(degrees.nodes(), 2f64.powi(scale));
            close(degrees.edges(), edges);
        }
    }

    #[test]
    fn counted_degrees_keep_nodes_and_edges() {
        let list = || (0..5000u64).map(|i| i * i % 3000);
        let degrees = Degrees::counted(list());
        close(degrees.nodes(), 5000.0);
        close(degrees.edges(), list().sum::<u64>() as f64);
        assert!(degrees.groups.len() < 120, "{}", degrees.groups.len());
        assert_eq!(degrees.drawn(7.0, Some(5.0)), 5.0);
        assert_eq!(degrees.drawn(7.0, None), 7.0);
    }

    #[test]
    fn a_fan_out_cuts_poisson_degrees_off() {
        // 1 - exp(-1) of the nodes have a neighbour.
        close(least_of_poisson(1.0, 1.0), 1.0 - (-1f64).exp());
        close(least_of_poisson(0.0, 5.0) + 1.0, 1.0);
        close(least_of_poisson(3.0, 100.0), 3.0);
        close(least_of_poisson(5000.0, 10.0), 10.0);
        close(least_of_poisson(80.0, 10.0), 10.0);
    }
}
