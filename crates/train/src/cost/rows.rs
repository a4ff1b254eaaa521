//! How many rows and edges does a batch have? Nodes that are met along several edges count once.
//!
//! `m` edges that begin at `n` nodes alike meet `n (1 - exp(-m / n))` of them. [`batch_rows`] counts so, all nodes
//! together. [`draw`] counts so for every group of [`Degrees`], and apart for rows of the own part and of others: in
//! graphs with heavy tails a few nodes are met again and again, and these are the ones that have most to draw from.

use super::degrees::Degrees;

/// Rows of the hops of a batch of so many `targets`, from the targets outward, among `nodes` nodes of this `degree`.
pub fn batch_rows(targets: f64, nodes: f64, degree: f64, fanouts: &[i64]) -> Vec<usize> {
    let mut rows = vec![targets.min(nodes)];
    for &fanout in fanouts {
        let last = rows[rows.len() - 1];
        let drawn = last * if fanout < 0 { degree } else { degree.min(fanout as f64) };
        rows.push((last + (nodes - last).max(0.0) * (1.0 - (-drawn / nodes.max(1.0)).exp())).min(nodes));
    }
    rows.into_iter().map(|rows| rows.ceil() as usize).collect()
}

/// Where a batch is drawn: rows near at hand, and rows far away.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ground {
    /// Share of all nodes that are near.
    pub near: f64,
    /// Chance that an edge of a near node begins at a far one.
    pub leads_out: f64,
    /// Chance that an edge of a far node begins at a near one.
    pub leads_in: f64,
    /// Share of the far nodes that edges of near ones can begin at.
    pub border: f64,
    /// Share of the edges of a near node that may be drawn.
    pub usable: f64,
    /// Whether edges of far nodes may be drawn, too.
    pub far_lists: bool,
}

impl Ground {
    /// A whole graph.
    pub const WHOLE: Self =
        Self { near: 1.0, leads_out: 0.0, leads_in: 0.0, border: 1.0, usable: 1.0, far_lists: false };
}

/// The rows from which a hop starts, and the edges that it draws.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hop {
    /// Rows near at hand.
    pub near: f64,
    /// Rows far away.
    pub far: f64,
    /// Edges of near rows.
    pub edges: f64,
    /// Edges of far rows.
    pub far_edges: f64,
}

impl Hop {
    /// All rows.
    pub fn rows(&self) -> f64 {
        self.near + self.far
    }

    /// All edges.
    pub fn all_edges(&self) -> f64 {
        self.edges + self.far_edges
    }
}

/// A batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// From the targets outward; the last one draws nothing, and its rows are those whose features are read.
    pub hops: Vec<Hop>,
    /// For each group of degrees, far rows of the last hop, and how many there are to choose from.
    pub far: Vec<(f64, f64)>,
}

/// A batch of so many `targets`, spread evenly over the near nodes. A fan-out below 0 takes all neighbours.
pub fn draw(degrees: &Degrees, ground: &Ground, targets: f64, fanouts: &[i64]) -> Drawn {
    let (nodes, edges) = (degrees.nodes().max(1.0), degrees.edges().max(1.0));
    let groups = &degrees.groups;
    let share = (targets / (ground.near * nodes)).min(1.0);
    let mut near: Vec<f64> = groups.iter().map(|group| share * ground.near * group.nodes).collect();
    let mut far = vec![0.0; groups.len()];
    let mut hops = Vec::new();
    for (number, &fanout) in fanouts.iter().enumerate() {
        let limit = (fanout >= 0).then_some(fanout as f64);
        let drawn = |rows: &[f64], usable: f64| -> f64 {
            let each = rows.iter().zip(groups);
            each.map(|(rows, group)| rows * degrees.drawn(usable * group.degree, limit)).sum()
        };
        let hop = Hop {
            near: near.iter().sum(),
            far: far.iter().sum(),
            edges: drawn(&near, ground.usable),
            far_edges: if ground.far_lists { drawn(&far, 1.0) } else { 0.0 },
        };
        let to_near = hop.edges * (1.0 - ground.leads_out) + hop.far_edges * ground.leads_in;
        let to_far = hop.edges * ground.leads_out + hop.far_edges * (1.0 - ground.leads_in);
        let border = if number == 0 { ground.border } else { 1.0 };
        let far_share = (1.0 - ground.near) * border;
        for (at, group) in groups.iter().enumerate() {
            let missed =
                |drawn: f64, pool: f64| degrees.missed(group.degree, drawn / (pool * edges).max(1e-9));
            near[at] = met(near[at], ground.near * group.nodes, missed(to_near, ground.near));
            far[at] = met(far[at], far_share * group.nodes, missed(to_far, far_share));
        }
        hops.push(hop);
    }
    hops.push(Hop { near: near.iter().sum(), far: far.iter().sum(), ..Hop::default() });
    let pools = groups.iter().map(|group| (1.0 - ground.near) * group.nodes);
    Drawn { hops, far: far.into_iter().zip(pools).collect() }
}

/// An average batch of an epoch that takes its `share` of targets `most` at a time, the rest at last; and how many batches
/// that makes.
pub fn draw_all(degrees: &Degrees, ground: &Ground, share: f64, most: f64, fanouts: &[i64]) -> (Drawn, f64) {
    let steps = (share / most).ceil().max(1.0);
    let mut drawn = draw(degrees, ground, share.min(most), fanouts);
    if steps < 2.0 {
        return (drawn, steps);
    }
    let rest = draw(degrees, ground, share - (steps - 1.0) * most, fanouts);
    let mean = |whole: &mut f64, rest: f64| *whole += (rest - *whole) / steps;
    for (whole, rest) in drawn.hops.iter_mut().zip(rest.hops) {
        mean(&mut whole.near, rest.near);
        mean(&mut whole.far, rest.far);
        mean(&mut whole.edges, rest.edges);
        mean(&mut whole.far_edges, rest.far_edges);
    }
    for (whole, rest) in drawn.far.iter_mut().zip(rest.far) {
        mean(&mut whole.0, rest.0);
    }
    (drawn, steps)
}

/// Nodes of a pool of `all` that have been met, if `before` had been and each of the others is `missed` with this chance.
fn met(before: f64, all: f64, missed: f64) -> f64 {
    before + (all - before).max(0.0) * (1.0 - missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago_graph::random::{Key, Purpose};
    use std::collections::HashSet;

    #[test]
    fn few_draws_meet_as_many_nodes_and_many_meet_all() {
        let degrees = Degrees::even(1e6, 1e7);
        let few = draw(&degrees, &Ground::WHOLE, 10.0, &[3]);
        assert!((few.hops[1].rows() - 40.0).abs() < 0.1, "{few:?}");
        let all = draw(&degrees, &Ground::WHOLE, 1e6, &[-1, -1]);
        assert_eq!(all.hops.iter().map(|hop| hop.rows().round()).collect::<Vec<_>>(), [1e6; 3]);
        assert!((all.hops[0].edges / 1e7 - 1.0).abs() < 1e-9);
        assert_eq!(batch_rows(10.0, 1e6, 10.0, &[3]), [10, 40]);
        assert_eq!(batch_rows(2e6, 1e6, 10.0, &[-1]), [1_000_000; 2]);
    }

    #[test]
    fn the_last_batch_of_an_epoch_is_what_is_left() {
        let degrees = Degrees::even(1e9, 1e10);
        let (drawn, steps) = draw_all(&degrees, &Ground::WHOLE, 250.0, 100.0, &[3]);
        assert_eq!(steps, 3.0);
        assert!((steps * drawn.hops[0].near - 250.0).abs() < 1e-9, "{drawn:?}");
        assert!((steps * drawn.hops[0].edges - 750.0).abs() < 10.0, "{drawn:?}");
        assert_eq!(draw_all(&degrees, &Ground::WHOLE, 50.0, 100.0, &[3]).1, 1.0);
    }

    #[test]
    fn far_rows_come_over_the_border_only() {
        let degrees = Degrees::even(1000.0, 10_000.0);
        let ground = Ground { near: 0.25, leads_out: 0.5, border: 0.1, ..Ground::WHOLE };
        let drawn = draw(&degrees, &ground, 250.0, &[-1]);
        assert!((drawn.hops[1].near - 250.0).abs() < 1e-9);
        // 1,250 edges begin at 75 nodes.
        assert!((drawn.hops[1].far - 75.0).abs() < 1e-3, "{drawn:?}");
        let none = draw(&degrees, &Ground { leads_out: 0.0, ..ground }, 250.0, &[-1]);
        assert_eq!(none.hops[1].far, 0.0);
    }

    /// Two hops of fan-out 10 from 1,000 nodes of a real R-MAT graph of 2^14 nodes.
    #[test]
    fn a_batch_of_an_rmat_graph_is_as_large_as_expected() {
        let (scale, pairs) = (14u32, 1u64 << 18);
        let key = Key::new(3, Purpose::Generate);
        let mut lists = vec![Vec::new(); 1 << scale];
        for pair in 0..pairs {
            let (mut u, mut v) = (0usize, 0usize);
            for level in 0..scale {
                let chance = key.with(pair).unit(u64::from(level));
                let quadrant = [0.57, 0.76, 0.95].iter().filter(|&&end| chance >= end).count();
                (u, v) = (u << 1 | quadrant >> 1, v << 1 | quadrant & 1);
            }
            lists[u].push(v);
            lists[v].push(u);
        }
        let mut rows: HashSet<usize> = (0..1000).map(|i| 16 * i + key.below(i as u64, 16) as usize).collect();
        let (mut edges, mut sizes) = (0, Vec::new());
        for hop in 0..2 {
            let frontier: Vec<usize> = rows.iter().copied().collect();
            for row in frontier {
                let (list, draws) = (&lists[row], key.with(hop + 7).with(row as u64));
                let mut order: Vec<usize> = (0..list.len()).collect();
                order.sort_by_key(|&at| draws.bits(at as u64));
                edges += order.len().min(10);
                rows.extend(order.iter().take(10).map(|&at| list[at]));
            }
            sizes.push(rows.len() as f64);
        }
        let drawn = draw(&Degrees::rmat(scale, 2.0 * pairs as f64), &Ground::WHOLE, 1000.0, &[10, 10]);
        let expected: f64 = drawn.hops.iter().map(Hop::all_edges).sum();
        assert!((expected / edges as f64 - 1.0).abs() < 0.1, "{expected} edges, found {edges}");
        for (hop, size) in drawn.hops[1..].iter().zip(sizes) {
            assert!((hop.rows() / size - 1.0).abs() < 0.1, "{hop:?}, found {size}");
        }
    }
}
