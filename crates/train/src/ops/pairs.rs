//! What do pairs of rows come to? Inner products, with or without a relation between the two, and products column by
//! column; and what their gradients are.
//!
//! `score_p = sum over c of a_c r_c b_c` with `a = row(left[p])`, `b = row(right[p])`, and `r` the relation of the
//! pair's kind, or 1. A row may be in many pairs, on either side: its gradient is summed by one thread over the
//! [`Incidence`] of the pairs, in pair order, so threads never meet in a row.

use std::ops::Range;

use super::isa::{Simd, kernel};
use super::pool::{Pool, Shared};
use super::reduce::chunked_sum;
use super::rows::{Chunk, Rows, Targets};
use super::{AHEAD, edges_per_task, rows_per_task};

/// Pairs of rows, which may repeat.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pairs<'a> {
    /// One row of each pair.
    pub left: &'a [u32],
    /// The other row of each pair.
    pub right: &'a [u32],
    /// The kind of each pair; empty where all are of kind 0.
    pub kinds: &'a [u32],
}

impl Pairs<'_> {
    /// How many pairs there are.
    pub fn count(&self) -> usize {
        self.left.len()
    }

    #[inline(always)]
    fn kind(&self, p: usize) -> usize {
        if self.kinds.is_empty() { 0 } else { self.kinds[p] as usize }
    }

    fn check(&self) {
        let (count, kinds) = (self.left.len(), self.kinds.len());
        assert!(self.right.len() == count, "a pair has two sides");
        assert!(kinds == 0 || kinds == count, "a kind for each pair, or for none");
    }
}

/// The pairs that each row is in: counted once, so that gradients can be summed row by row.
#[derive(Debug, Clone, Copy)]
pub struct Incidence<'a> {
    offsets: &'a [u64],
    /// Twice the pair, and 1 more where the row is on its right.
    ends: &'a [u32],
}

impl<'a> Incidence<'a> {
    /// Sorts the ends of `pairs` by row, within a row in pair order. `offsets` must have one place more than there
    /// are rows, `ends` two for each pair.
    ///
    /// # Panics
    /// When there are 2^31 pairs or more, or a row that `offsets` has no place for.
    pub fn fill(pairs: Pairs<'_>, offsets: &'a mut [u64], ends: &'a mut [u32]) -> Self {
        pairs.check();
        assert!(ends.len() == 2 * pairs.count() && ends.len() <= u32::MAX as usize, "two ends for each pair");
        offsets.fill(0);
        for &row in pairs.left.iter().chain(pairs.right) {
            offsets[row as usize + 1] += 1;
        }
        (1..offsets.len()).for_each(|row| offsets[row] += offsets[row - 1]);
        // Starts move to the ends of their lists while these are filled, and back afterwards.
        for p in 0..pairs.count() {
            for (side, row) in [pairs.left[p], pairs.right[p]].into_iter().enumerate() {
                let place = &mut offsets[row as usize];
                ends[*place as usize] = 2 * p as u32 + side as u32;
                *place += 1;
            }
        }
        offsets.rotate_right(1);
        offsets[0] = 0;
        Self { offsets, ends }
    }
}

/// Pairs of these rows, and what stands between the two of a pair.
#[derive(Debug, Clone, Copy)]
pub struct PairRows<'a> {
    /// The rows.
    pub rows: Rows<'a>,
    /// The pairs of them.
    pub pairs: Pairs<'a>,
    /// A row of factors for each kind of pair, else 1.
    pub relations: Option<&'a [f32]>,
}

impl PairRows<'_> {
    /// The inner product of each pair.
    pub fn scores(&self, pool: &Pool, out: &mut [f32]) {
        self.pairs.check();
        assert_eq!(out.len(), self.pairs.count(), "a score for each pair");
        let out = Shared::new(out);
        pool.for_ranges(self.pairs.count(), rows_per_task(2 * self.rows.width), |range| {
            // SAFETY: ranges do not overlap.
            score_range(self, range.start, unsafe { out.part(range.start, range.len()) });
        });
    }

    /// The product of each pair, column by column; relations play no role.
    pub fn products(&self, pool: &Pool, out: &mut [f32]) {
        self.pairs.check();
        let width = self.rows.width;
        assert_eq!(out.len(), self.pairs.count() * width, "a row for each pair");
        let out = Shared::new(out);
        pool.for_ranges(self.pairs.count(), rows_per_task(2 * width), |range| {
            // SAFETY: ranges do not overlap.
            let out = unsafe { out.part(range.start * width, range.len() * width) };
            product_range(self, range, out);
        });
    }

    /// The gradient of the rows from those of the [`scores`](Self::scores): written to all rows of `out`, or added.
    pub fn score_gradient(
        &self,
        pool: &Pool,
        incidence: Incidence<'_>,
        scores: &[f32],
        out: &mut [f32],
        accumulate: bool,
    ) {
        assert_eq!(scores.len(), self.pairs.count(), "a gradient for each score");
        self.by_row(pool, incidence, out, |chunk, out| {
            add_scores(self, incidence, scores, chunk, out, accumulate);
        });
    }

    /// The gradient of the rows from those of the [`products`](Self::products): written to all rows of `out`, or
    /// added.
    pub fn product_gradient(
        &self,
        pool: &Pool,
        incidence: Incidence<'_>,
        products: &[f32],
        out: &mut [f32],
        accumulate: bool,
    ) {
        assert_eq!(products.len(), self.pairs.count() * self.rows.width, "a gradient row for each pair");
        self.by_row(pool, incidence, out, |chunk, out| {
            add_products(self, incidence, products, chunk, out, accumulate);
        });
    }

    /// Adds the gradient of the relations from those of the [`scores`](Self::scores) to `out`.
    pub fn relation_gradient(&self, pool: &Pool, scores: &[f32], out: &mut [f32]) {
        // Chunks are so long that their sums take less memory than a product for each pair would.
        let kinds = out.len() / self.rows.width.max(1);
        chunked_sum(pool, self.pairs.count(), (4 * kinds).max(1024), out, true, |range, sum| {
            add_relations(self, scores, range, sum);
        });
    }

    fn by_row(
        &self,
        pool: &Pool,
        incidence: Incidence<'_>,
        out: &mut [f32],
        work: impl Fn(&Chunk, Shared<f32>) + Sync,
    ) {
        let rows = incidence.offsets.len() - 1;
        assert_eq!(out.len(), rows * self.rows.width, "a gradient for each row");
        assert_eq!(incidence.ends.len(), 2 * self.pairs.count(), "the ends of these pairs");
        let out = Shared::new(out);
        let grain = edges_per_task(self.rows.width);
        Targets::All(rows).for_chunks(pool, incidence.offsets, grain, |chunk| work(&chunk, out));
    }

    /// The factors of pair `p`.
    #[inline(always)]
    fn relation(&self, p: usize) -> Option<&[f32]> {
        self.relations.map(|all| &all[self.pairs.kind(p) * self.rows.width..][..self.rows.width])
    }

    /// Pair and partner of the row whose end this is.
    #[inline(always)]
    fn partner(&self, end: u32) -> (usize, &[f32]) {
        let p = (end / 2) as usize;
        let other = if end.is_multiple_of(2) { self.pairs.right[p] } else { self.pairs.left[p] };
        (p, self.rows.row(other as usize))
    }
}

kernel! {
    fn score_range<S>(job: &PairRows<'_>, first: usize, out: &mut [f32]) {
        let (rows, pairs) = (&job.rows, &job.pairs);
        for (score, p) in out.iter_mut().zip(first..) {
            rows.prefetch::<S>(pairs.left, p + AHEAD);
            rows.prefetch::<S>(pairs.right, p + AHEAD);
            let (a, b) = (rows.row(pairs.left[p] as usize), rows.row(pairs.right[p] as usize));
            *score = inner_product::<S>(a, b, job.relation(p));
        }
    }
}

kernel! {
    fn product_range<S>(job: &PairRows<'_>, range: Range<usize>, out: &mut [f32]) {
        let (rows, pairs) = (&job.rows, &job.pairs);
        for (out, p) in out.chunks_exact_mut(rows.width.max(1)).zip(range) {
            rows.prefetch::<S>(pairs.left, p + AHEAD);
            rows.prefetch::<S>(pairs.right, p + AHEAD);
            let (a, b) = (rows.row(pairs.left[p] as usize), rows.row(pairs.right[p] as usize));
            out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a * b);
        }
    }
}

kernel! {
    fn add_scores<S>(job: &PairRows<'_>, incidence: Incidence<'_>, scores: &[f32], chunk: &Chunk, out: Shared<f32>, accumulate: bool) {
        for k in 0..chunk.len() {
            let (row, width) = (chunk.target(k), job.rows.width);
            // SAFETY: rows of different chunks are different.
            let out = unsafe { out.part(row * width, width) };
            if !accumulate {
                out.fill(0.0);
            }
            for &end in &incidence.ends[incidence.offsets[row] as usize..incidence.offsets[row + 1] as usize] {
                let (p, other) = job.partner(end);
                let slope = scores[p];
                match job.relation(p) {
                    None => out.iter_mut().zip(other).for_each(|(o, x)| *o += slope * x),
                    Some(r) => out.iter_mut().zip(other).zip(r).for_each(|((o, x), r)| *o += slope * r * x),
                }
            }
        }
    }
}

kernel! {
    fn add_products<S>(job: &PairRows<'_>, incidence: Incidence<'_>, products: &[f32], chunk: &Chunk, out: Shared<f32>, accumulate: bool) {
        for k in 0..chunk.len() {
            let (row, width) = (chunk.target(k), job.rows.width);
            // SAFETY: rows of different chunks are different.
            let out = unsafe { out.part(row * width, width) };
            if !accumulate {
                out.fill(0.0);
            }
            for &end in &incidence.ends[incidence.offsets[row] as usize..incidence.offsets[row + 1] as usize] {
                let (p, other) = job.partner(end);
                let slopes = &products[p * width..][..width];
                out.iter_mut().zip(other).zip(slopes).for_each(|((o, x), slope)| *o += slope * x);
            }
        }
    }
}

kernel! {
    fn add_relations<S>(job: &PairRows<'_>, scores: &[f32], range: Range<usize>, sum: &mut [f32]) {
        let (rows, pairs) = (&job.rows, &job.pairs);
        for p in range {
            let (a, b) = (rows.row(pairs.left[p] as usize), rows.row(pairs.right[p] as usize));
            let sum = &mut sum[pairs.kind(p) * rows.width..][..rows.width];
            let slope = scores[p];
            sum.iter_mut().zip(a).zip(b).for_each(|((sum, a), b)| *sum += slope * a * b);
        }
    }
}

/// `sum over c of a_c r_c b_c`, lane by lane.
#[inline(always)]
fn inner_product<S: Simd>(a: &[f32], b: &[f32], r: Option<&[f32]>) -> f32 {
    let mut sum = S::splat(0.0);
    let mut c = 0;
    while c < a.len() {
        let n = (a.len() - c).min(S::N);
        // SAFETY: all three rows have `n` more numbers from `c` on.
        let load = |row: &[f32]| unsafe { S::load_first(row[c..c + n].as_ptr(), n) };
        let left = r.map_or_else(|| load(a), |r| S::mul(load(a), load(r)));
        sum = S::fma(left, load(b), sum);
        c += S::N;
    }
    S::sum(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{close, differences, numbers, wide};
    use super::*;
    use archipelago_graph::random::{Key, Purpose};

    struct Case {
        rows: Vec<f32>,
        relations: Vec<f32>,
        left: Vec<u32>,
        right: Vec<u32>,
        kinds: Vec<u32>,
        width: usize,
    }

    impl Case {
        fn new(seed: u64, rows: usize, pairs: usize, kinds: usize, width: usize) -> Self {
            let key = Key::new(seed, Purpose::Generate);
            let draw = |what: u64, bound: usize| {
                (0..pairs as u64).map(|p| key.with(what).below(p, bound as u64) as u32).collect()
            };
            Self {
                rows: numbers(seed, rows * width),
                relations: numbers(seed + 1, kinds * width),
                left: draw(1, rows),
                right: draw(2, rows),
                kinds: draw(3, kinds),
                width,
            }
        }

        fn job(&self, related: bool) -> PairRows<'_> {
            let pairs = Pairs {
                left: &self.left,
                right: &self.right,
                kinds: if related { &self.kinds } else { &[] },
            };
            let relations = related.then_some(&self.relations[..]);
            PairRows { rows: Rows::local(&self.rows, self.width), pairs, relations }
        }

        /// `sum over p and c of weights[p][c] a_c r_c b_c` in f64.
        fn total(
            &self,
            rows: &[f64],
            relations: Option<&[f64]>,
            weights: impl Fn(usize, usize) -> f32,
        ) -> f64 {
            let mut sum = 0.0;
            for p in 0..self.left.len() {
                for c in 0..self.width {
                    let at = |row: u32| rows[row as usize * self.width + c];
                    let r = relations.map_or(1.0, |r| r[self.kinds[p] as usize * self.width + c]);
                    sum += f64::from(weights(p, c)) * at(self.left[p]) * r * at(self.right[p]);
                }
            }
            sum
        }

        fn with_incidence<T>(&self, work: impl FnOnce(Incidence<'_>) -> T) -> T {
            let mut offsets = vec![7; self.rows.len() / self.width + 1];
            let mut ends = vec![7; 2 * self.left.len()];
            work(Incidence::fill(self.job(false).pairs, &mut offsets, &mut ends))
        }

        fn row_gradient(&self, pool: &Pool, slopes: &[f32], related: bool) -> Vec<f32> {
            let mut found = vec![0.5; self.rows.len()];
            let job = self.job(related);
            self.with_incidence(|ends| job.score_gradient(pool, ends, slopes, &mut found, false));
            found
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn scores_and_their_gradients_match_the_definition(
            rows in 1usize..8, pairs in 0usize..30, kinds in 1usize..4,
            width in prop::sample::select(&[1usize, 3, 8, 17][..]), seed in 0u64..1000, related: bool,
        ) {
            let (case, pool) = (Case::new(seed, rows, pairs, kinds, width), Pool::new(2));
            let slopes = numbers(seed + 2, pairs);
            let relations = wide(&case.relations);
            let relations = related.then_some(&relations[..]);
            let job = case.job(related);
            let mut scores = vec![9.0; pairs];
            job.scores(&pool, &mut scores);
            for (p, &score) in scores.iter().enumerate() {
                let one = |q: usize, _| f32::from(p == q);
                prop_assert!((f64::from(score) - case.total(&wide(&case.rows), relations, one)).abs() < 1e-4);
            }
            let weights = |p: usize, _| slopes[p];
            let expected = differences(&case.rows, |rows| case.total(rows, relations, weights));
            close(&case.row_gradient(&pool, &slopes, related), &expected, 1e-5);
            if related {
                let rows = wide(&case.rows);
                let expected = differences(&case.relations, |r| case.total(&rows, Some(r), weights));
                let mut found = vec![0.0; case.relations.len()];
                job.relation_gradient(&pool, &slopes, &mut found);
                close(&found, &expected, 1e-5);
            }
        }

        #[test]
        fn products_and_their_gradient_match_the_definition(
            rows in 1usize..8, pairs in 0usize..30, width in 1usize..10, seed in 0u64..1000,
        ) {
            let (case, pool) = (Case::new(seed, rows, pairs, 1, width), Pool::new(2));
            let slopes = numbers(seed + 2, pairs * width);
            let mut products = vec![9.0; pairs * width];
            case.job(false).products(&pool, &mut products);
            let total: f64 = products.iter().zip(&slopes).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum();
            let weights = |p: usize, c: usize| slopes[p * width + c];
            prop_assert!((total - case.total(&wide(&case.rows), None, weights)).abs() < 1e-3);
            let mut found = vec![1.0; case.rows.len()];
            case.with_incidence(|ends| case.job(false).product_gradient(&pool, ends, &slopes, &mut found, true));
            let mut expected = differences(&case.rows, |rows| case.total(rows, None, weights));
            expected.iter_mut().for_each(|x| *x += 1.0);
            close(&found, &expected, 1e-5);
        }
    }

    #[test]
    fn gradients_are_the_same_bits_for_any_number_of_threads() {
        let case = Case::new(3, 300, 20_000, 3, 40);
        let (slopes, wide_slopes) = (numbers(4, 20_000), numbers(5, 20_000 * 40));
        let run = |threads| {
            let pool = Pool::new(threads);
            let (mut products, mut relations) = (vec![0.0; case.rows.len()], vec![0.0; case.relations.len()]);
            case.with_incidence(|ends| {
                case.job(false).product_gradient(&pool, ends, &wide_slopes, &mut products, false);
            });
            case.job(true).relation_gradient(&pool, &slopes, &mut relations);
            (case.row_gradient(&pool, &slopes, true), products, relations)
        };
        assert_eq!(run(1), run(3));
    }
}
