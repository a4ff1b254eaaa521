//! Which part does a cluster of nodes go to?
//!
//! Clusters in descending size, each to the part with the fewest nodes so far (sorted list scheduling: the largest
//! part is at most 4/3 of the best possible one). Ties: the lower cluster, the lower part.

use super::Assignment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The assignment that puts every cluster into one of `parts` parts; `cluster_of` numbers clusters below `clusters`.
pub(super) fn pack(cluster_of: &[u32], clusters: usize, parts: u32) -> Assignment {
    let mut sizes = vec![0u64; clusters];
    cluster_of.iter().for_each(|&cluster| sizes[cluster as usize] += 1);
    let part_of_cluster = schedule(&sizes, parts);
    let part_of = cluster_of.iter().map(|&cluster| part_of_cluster[cluster as usize]).collect();
    Assignment { parts, part_of }
}

/// The part of every cluster when `sizes` are what parts should have equal sums of.
pub(super) fn schedule(sizes: &[u64], parts: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..sizes.len() as u32).collect();
    order.sort_by_key(|&cluster| (Reverse(sizes[cluster as usize]), cluster));
    let mut filled: BinaryHeap<Reverse<(u64, u32)>> = (0..parts).map(|part| Reverse((0, part))).collect();
    let mut part_of_cluster = vec![0u32; sizes.len()];
    for cluster in order {
        if let Some(mut least) = filled.peek_mut() {
            part_of_cluster[cluster as usize] = least.0.1;
            least.0.0 += sizes[cluster as usize];
        }
    }
    part_of_cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_clusters_come_first_and_go_to_the_smallest_part() {
        let cluster_of = [0, 1, 1, 1, 2, 2, 3];
        assert_eq!(pack(&cluster_of, 4, 2).part_of, [1, 0, 0, 0, 1, 1, 0]);
        assert_eq!(pack(&[], 0, 3).part_of, [0u32; 0]);
    }
}
