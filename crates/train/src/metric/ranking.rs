//! How far up do true links stand among false ones? Ranks, MRR and Hits@k with the conventions of OGB.
//!
//! Where every link has negatives of its own, its rank is the mean of the best and the worst place that ties leave
//! it, so it may be a half. Ranks and wins are counted as whole numbers of halves: counts of parts add up to the counts
//! of the whole, and a score is the same bits for any number of parts. Where all links share one pool of negatives, only
//! the k-th highest of the pool matters. Nothing here communicates.

use super::Metric;

/// How many links have which rank among their own negatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// Links by twice their rank, less the 2 of rank 1.
    counts: Vec<u64>,
}

impl Ranks {
    /// Counts of no links, of which each will have `negatives` negatives.
    pub fn new(negatives: usize) -> Self {
        Self { counts: vec![0; 2 * negatives + 1] }
    }

    /// Counts a link with this score among the scores of its negatives, at most as many as was said. A link without
    /// a number comes last; a negative without one is never higher.
    pub fn add(&mut self, positive: f32, negatives: &[f32]) {
        let higher = |n: &&f32| **n > positive || positive.is_nan();
        let as_high = |n: &&f32| **n >= positive || positive.is_nan();
        let halves = negatives.iter().filter(higher).count() + negatives.iter().filter(as_high).count();
        self.counts[halves] += 1;
    }

    /// The counts as numbers to be summed over ranks; as many on all ranks.
    pub fn counts_mut(&mut self) -> &mut [u64] {
        &mut self.counts
    }

    /// How many links were counted.
    pub fn links(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Mean of 1 / rank; `None` of no links.
    pub fn mrr(&self) -> Option<f64> {
        let reciprocal = |(halves, &links): (usize, &u64)| links as f64 * 2.0 / (halves + 2) as f64;
        self.mean(self.counts.iter().enumerate().map(reciprocal).sum())
    }

    /// Share of links with a rank of at most `first`; `None` of no links.
    pub fn hits(&self, first: u32) -> Option<f64> {
        let within = (2 * first as usize).saturating_sub(1).min(self.counts.len());
        self.mean(self.counts[..within].iter().sum::<u64>() as f64)
    }

    /// The score of a `metric` that is made of ranks.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Mrr => self.mrr(),
            Metric::Hits(first) => self.hits(first),
            Metric::Accuracy | Metric::MicroF1 | Metric::RocAuc => None,
        }
    }

    fn mean(&self, sum: f64) -> Option<f64> {
        let links = self.links();
        (links > 0).then(|| sum / links as f64)
    }
}

/// How often true links score higher than false ones, over all pairs of the two: ROC-AUC without bringing the false
/// ones together. Every rank knows the true ones of all ranks, counts its own false ones, and the counts are summed.
#[derive(Debug, Clone, PartialEq)]
pub struct Wins {
    /// True links whose score is a number, ascending.
    positives: Vec<f32>,
    /// All true links.
    links: u64,
    /// Twice the wins, a tie being half of one; false links.
    counts: [u64; 2],
}

impl Wins {
    /// Counts of no false links against the true links of all ranks, of which these are the scores.
    pub fn new(mut positives: Vec<f32>) -> Self {
        let links = positives.len() as u64;
        positives.retain(|score| !score.is_nan());
        positives.sort_unstable_by(f32::total_cmp);
        Self { positives, links, counts: [0; 2] }
    }

    /// Counts a false link with this score. As in [`Ranks::add`], what is no number never wins.
    pub fn add(&mut self, negative: f32) {
        let lower = self.positives.partition_point(|&positive| positive < negative);
        let no_higher = self.positives.partition_point(|&positive| positive <= negative);
        self.counts[0] += (2 * self.positives.len() - lower - no_higher) as u64;
        self.counts[1] += 1;
    }

    /// The counts as numbers to be summed over ranks.
    pub fn counts_mut(&mut self) -> &mut [u64] {
        &mut self.counts
    }

    /// The share of pairs with the true link higher; `None` unless there are both.
    pub fn area(&self) -> Option<f64> {
        let [halves, negatives] = self.counts;
        let pairs = u128::from(self.links) * u128::from(negatives);
        (pairs > 0).then(|| halves as f64 / (2 * pairs) as f64)
    }
}

/// The `place`-th highest of a pool of negatives, counted from 1; `None` when there are fewer. Moves them about.
pub fn highest(place: u32, pool: &mut [f32]) -> Option<f32> {
    let at = (place as usize).checked_sub(1).filter(|&at| at < pool.len())?;
    let (_, found, _) = pool.select_nth_unstable_by(at, |a, b| b.total_cmp(a));
    Some(*found)
}

/// Share of links that score strictly higher than the `first`-th highest of a `pool` of negatives that all share; 1
/// when the pool has fewer, `None` of no links.
pub fn pooled_hits(first: u32, positives: &[f32], pool: &mut [f32]) -> Option<f64> {
    if positives.is_empty() {
        return None;
    }
    let Some(bar) = highest(first, pool) else { return Some(1.0) };
    let hits = positives.iter().filter(|&&positive| positive > bar).count();
    Some(hits as f64 / positives.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use proptest::prelude::*;

    fn ranks(links: &[(f32, Vec<f32>)], negatives: usize) -> Ranks {
        let mut ranks = Ranks::new(negatives);
        links.iter().for_each(|(positive, negatives)| ranks.add(*positive, negatives));
        ranks
    }

    #[test]
    fn ranks_mrr_and_hits_are_ogbs() {
        let Some(file) = reference::open("metrics_ranking") else { return };
        let (positives, negatives) = (file.f32("pos"), file.f32("neg"));
        let each = negatives.len() / positives.len();
        let links: Vec<_> =
            positives.iter().zip(negatives.chunks(each)).map(|(&p, n)| (p, n.to_vec())).collect();
        for (link, rank) in links.iter().zip(file.f64("rank")) {
            let found = ranks(std::slice::from_ref(link), each);
            assert_eq!(found.counts[(2.0 * rank) as usize - 2], 1, "{link:?} has rank {rank}");
        }
        let all = ranks(&links, each);
        assert!((all.mrr().unwrap() - file.f64("mrr")[0]).abs() < 1e-7);
        for first in [1, 3, 10] {
            let expected = file.f64(&format!("hits_{first}"))[0];
            assert!((all.score(Metric::Hits(first)).unwrap() - expected).abs() < 1e-7, "hits@{first}");
        }
    }

    #[test]
    fn hits_among_shared_negatives_are_ogbs() {
        let Some(file) = reference::open("metrics_ranking") else { return };
        let (positives, mut pool) = (file.f32("shared_pos"), file.f32("shared_neg"));
        for first in [1, 3, 10, 20] {
            let expected = file.f64(&format!("shared_hits_{first}"))[0];
            let found = pooled_hits(first, &positives, &mut pool).unwrap();
            assert!((found - expected).abs() < 1e-7, "hits@{first}: {found} instead of {expected}");
        }
    }

    #[test]
    fn a_tie_for_first_is_no_hit_at_1_and_what_is_no_number_comes_last() {
        let tied = ranks(&[(1.0, vec![1.0, 0.0])], 2);
        assert_eq!((tied.hits(1), tied.hits(2), tied.mrr()), (Some(0.0), Some(1.0), Some(1.0 / 1.5)));
        let lost = ranks(&[(f32::NAN, vec![0.0, f32::NAN])], 2);
        assert_eq!((lost.hits(2), lost.hits(3), lost.hits(u32::MAX)), (Some(0.0), Some(1.0), Some(1.0)));
        assert_eq!(ranks(&[], 2).mrr(), None);
        assert_eq!(pooled_hits(1, &[], &mut [1.0]), None);
        assert_eq!(pooled_hits(2, &[0.0], &mut [1.0]), Some(1.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn wins_of_parts_add_up_to_the_area_under_the_curve(
            positives in prop::collection::vec(-3i8..3, 0..20),
            negatives in prop::collection::vec(-3i8..3, 0..20),
            cut in 0usize..20,
        ) {
            let scores = |list: &[i8]| list.iter().copied().map(f32::from).collect::<Vec<_>>();
            let wins = |negatives: &[i8]| {
                let mut wins = Wins::new(scores(&positives));
                scores(negatives).into_iter().for_each(|negative| wins.add(negative));
                wins
            };
            let (left, right) = negatives.split_at(cut.min(negatives.len()));
            let (mut sum, mut other) = (wins(left), wins(right));
            sum.counts_mut().iter_mut().zip(other.counts_mut()).for_each(|(sum, count)| *sum += *count);
            let true_ones = vec![true; positives.len()];
            let all = [true_ones, vec![false; negatives.len()]].concat();
            let expected = super::super::roc_auc(&scores(&[&positives[..], &negatives].concat()), &all);
            prop_assert_eq!(sum.area(), expected);
        }

        #[test]
        fn ranks_of_parts_add_up_to_the_ranks_of_the_whole(
            links in prop::collection::vec((-3i8..3, prop::array::uniform5(-3i8..3)), 0..40),
            cut in 0usize..40,
        ) {
            let links: Vec<_> = links
                .iter()
                .map(|(positive, negatives)| (f32::from(*positive), negatives.map(f32::from).to_vec()))
                .collect();
            let (left, right) = links.split_at(cut.min(links.len()));
            let (mut sum, other) = (ranks(left, 5), ranks(right, 5));
            sum.counts_mut().iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
            prop_assert_eq!(&sum, &ranks(&links, 5));
            let rank = |(positive, negatives): &(f32, Vec<f32>)| {
                let count = |f: &dyn Fn(&f32) -> bool| negatives.iter().filter(|n| f(n)).count() as f64;
                1.0 + (count(&|n| n > positive) + count(&|n| n >= positive)) / 2.0
            };
            if !links.is_empty() {
                let mean = links.iter().map(|link| 1.0 / rank(link)).sum::<f64>() / links.len() as f64;
                prop_assert!((sum.mrr().unwrap() - mean).abs() < 1e-12);
                let hits = links.iter().filter(|link| rank(link) <= 3.0).count() as f64 / links.len() as f64;
                prop_assert_eq!(sum.hits(3), Some(hits));
            }
        }
    }
}
