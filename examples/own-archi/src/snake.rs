//! Nodes in descending order of degree, dealt out to the parts in turns that run back and forth like a snake.
//!
//! Part 0 gets the node with most edges and part P - 1 the P-th, which then gets the next one as well: so every part has
//! nodes of all degrees, and nearly the same number of nodes and of edges. There is no locality; where a few hubs have most
//! of the edges it balances what `random` leaves to chance. Nodes of the same degree stand in an order that the seed draws.
//!
//! One pass over the edges. Memory: 20 bytes per node, whatever the edges.

use archipelago::graph::partition::settings::{Setting, Values};
use archipelago::graph::partition::{
    Assignment, Entry, Memory, Partitioner, Request, checked_nodes, each_chunk,
};
use archipelago::graph::progress::Progress;
use archipelago::graph::random::{Key, Purpose};
use archipelago::graph::{Dataset, Result};
use std::cmp::Reverse;

/// The table line of this method.
pub const ENTRY: Entry = Entry {
    name: "snake",
    summary: "nodes by degree, dealt out back and forth: equal shares of nodes and edges, no locality",
    paper: "",
    memory: Memory::Nodes,
    needs_file: false,
    balances: false,
    settings: &[Setting {
        name: "degrees",
        default: "in",
        about: "which edges of a node count: those that it reads, or those that it sends as well",
        values: Values::Words(&["in", "both"]),
    }],
    build: || Box::new(Snake),
};

struct Snake;

impl Partitioner for Snake {
    fn assign(
        &self,
        dataset: &mut Dataset,
        request: &Request,
        progress: &dyn Progress,
    ) -> Result<Assignment> {
        let nodes = checked_nodes(dataset, request)?;
        let both = request.is(&ENTRY, "degrees", "both")?;
        let mut degrees = vec![0u32; nodes];
        each_chunk(dataset, "counting degrees", progress, |chunk| {
            let sources = chunk.sources.iter().filter(|_| both);
            for &node in chunk.targets.iter().chain(sources) {
                degrees[node as usize] = degrees[node as usize].saturating_add(1);
            }
            Ok(())
        })?;
        let luck = Key::new(request.seed, Purpose::Partition);
        let mut order: Vec<u64> = (0..nodes as u64).collect();
        order.sort_unstable_by_key(|&node| (Reverse(degrees[node as usize]), luck.bits(node)));
        let mut part_of = vec![0; nodes];
        for (turn, &node) in order.iter().enumerate() {
            part_of[node as usize] = dealt(turn as u64, request.parts);
        }
        Ok(Assignment { parts: request.parts, part_of })
    }
}

/// The part that is dealt a node in this turn.
fn dealt(turn: u64, parts: u32) -> u32 {
    let (round, place) = (turn / u64::from(parts), (turn % u64::from(parts)) as u32);
    if round.is_multiple_of(2) { place } else { parts - 1 - place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archipelago::graph::progress::Silent;
    use archipelago::graph::quality;
    use archipelago::graph::synthetic::small::uniform;

    #[test]
    fn turns_run_back_and_forth() {
        let turns: Vec<u32> = (0..8).map(|turn| dealt(turn, 3)).collect();
        assert_eq!(turns, [0, 1, 2, 2, 1, 0, 0, 1]);
    }

    #[test]
    fn parts_have_equal_shares_of_nodes_and_of_the_edges_that_count() {
        let mut graph = uniform(1001, 20_000, 3);
        let assignment = Snake.assign(&mut graph, &Request::new(4, 0), &Silent).unwrap();
        assignment.check(1001).unwrap();
        assert_eq!(assignment.sizes().iter().map(|size| size - 250).max(), Some(1));
        let balance = quality::measure(&mut graph, &assignment, &Silent).unwrap().balance_edges;
        assert!(balance < 1.003, "the largest share is {balance} times the mean");
        let other = Snake.assign(&mut graph, &Request::new(4, 1), &Silent).unwrap();
        assert_ne!(assignment, other, "nodes of the same degree stand in an order that the seed draws");
    }
}
