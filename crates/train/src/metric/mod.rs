//! How good predictions are, in whole numbers that ranks can add.
//!
//! Accuracy and micro-F1 are ratios of [`Counts`]: every rank counts its own nodes, the counts are summed, and the
//! score is the same bits for any number of parts; so are the ranks of links ([`ranking`]). ROC-AUC depends on the
//! order of all scores together, so the scores themselves must be gathered; the count of pairs is then exact too.
//! Nothing here communicates.

pub mod ranking;

pub use ranking::{Ranks, Wins};

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a score is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Metric {
    /// Share of nodes whose class is predicted; for one label per node.
    Accuracy,
    /// 2 TP / (2 TP + FP + FN) over all nodes and labels; for several labels per node.
    MicroF1,
    /// Chance that a positive scores higher than a negative.
    RocAuc,
    /// Mean of 1 over the rank of a link among its own negatives.
    Mrr,
    /// Share of links that are among the first so many of their negatives.
    Hits(u32),
}

impl Metric {
    const PLAIN: [Self; 4] = [Self::Accuracy, Self::MicroF1, Self::RocAuc, Self::Mrr];

    /// The name that users meet.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Accuracy => "accuracy".into(),
            Self::MicroF1 => "micro_f1".into(),
            Self::RocAuc => "roc_auc".into(),
            Self::Mrr => "mrr".into(),
            Self::Hits(first) => format!("hits@{first}").into(),
        }
    }

    /// The metric that users call `name`.
    pub fn find(name: &str) -> Option<Self> {
        let hits = name.strip_prefix("hits@").filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        match hits.and_then(|digits| digits.parse().ok()) {
            Some(first) => (first > 0).then_some(Self::Hits(first)),
            None => Self::PLAIN.into_iter().find(|metric| metric.name() == name),
        }
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.name().into_owned()
    }
}

impl TryFrom<String> for Metric {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::find(&name).ok_or_else(|| {
            let known = Self::PLAIN.map(|metric| format!("`{}`", metric.name())).join(", ");
            format!("expected one of {known}, `hits@10`, found `{name}`")
        })
    }
}

/// What accuracy and micro-F1 are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Nodes whose predicted class is theirs.
    pub correct: u64,
    /// Nodes.
    pub total: u64,
    /// Labels that are predicted and true.
    pub tp: u64,
    /// Labels that are predicted and not true.
    pub fp: u64,
    /// Labels that are true and not predicted.
    #[serde(rename = "fn")]
    pub fn_: u64,
}

impl Counts {
    /// The counts as numbers to be summed over ranks.
    pub fn to_array(self) -> [u64; 5] {
        [self.correct, self.total, self.tp, self.fp, self.fn_]
    }

    /// The counts of a sum over ranks.
    pub fn from_array([correct, total, tp, fp, fn_]: [u64; 5]) -> Self {
        Self { correct, total, tp, fp, fn_ }
    }

    /// Counts one node with one class.
    pub fn add_class(&mut self, logits: &[f32], class: usize) {
        self.correct += u64::from(argmax(logits) == class);
        self.total += 1;
    }

    /// Counts one node with several labels; a label is predicted when its logit is above 0.
    pub fn add_labels(&mut self, logits: &[f32], labels: &[u8]) {
        self.total += 1;
        let mut exact = true;
        for (&logit, &label) in logits.iter().zip(labels) {
            let (predicted, is) = (logit > 0.0, label != 0);
            self.tp += u64::from(predicted && is);
            self.fp += u64::from(predicted && !is);
            self.fn_ += u64::from(!predicted && is);
            exact &= predicted == is;
        }
        self.correct += u64::from(exact);
    }

    /// Share of nodes that are right; `None` of no nodes.
    pub fn accuracy(&self) -> Option<f64> {
        (self.total > 0).then(|| self.correct as f64 / self.total as f64)
    }

    /// 2 TP / (2 TP + FP + FN), with 0/0 = 0; `None` of no nodes.
    pub fn micro_f1(&self) -> Option<f64> {
        let (hits, all) = (2 * self.tp, 2 * self.tp + self.fp + self.fn_);
        (self.total > 0).then(|| if all == 0 { 0.0 } else { hits as f64 / all as f64 })
    }

    /// The score of a `metric` that is made of counts.
    pub fn score(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Accuracy => self.accuracy(),
            Metric::MicroF1 => self.micro_f1(),
            Metric::RocAuc | Metric::Mrr | Metric::Hits(_) => None,
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.correct += other.correct;
        self.total += other.total;
        self.tp += other.tp;
        self.fp += other.fp;
        self.fn_ += other.fn_;
    }
}

/// The place of the largest of `scores`; of equal ones the lowest. 0 of none; NaN never wins.
pub fn argmax(scores: &[f32]) -> usize {
    let mut best = 0;
    for (place, &score) in scores.iter().enumerate().skip(1) {
        if score > scores[best] || scores[best].is_nan() && !score.is_nan() {
            best = place;
        }
    }
    best
}

/// Share of (positive, negative) pairs with the positive higher; an equal pair counts one half. `None` unless there
/// are both. The order of the samples does not matter.
pub fn roc_auc(scores: &[f32], positive: &[bool]) -> Option<f64> {
    let mut samples: Vec<(f32, bool)> = scores.iter().copied().zip(positive.iter().copied()).collect();
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut half_wins, mut positives, mut negatives) = (0u128, 0u128, 0u128);
    for tied in samples.chunk_by(|a, b| a.0 == b.0) {
        let ups = tied.iter().filter(|sample| sample.1).count() as u128;
        let downs = tied.len() as u128 - ups;
        half_wins += ups * (2 * negatives + downs);
        positives += ups;
        negatives += downs;
    }
    let half_pairs = 2 * positives * negatives;
    (half_pairs > 0).then(|| half_wins as f64 / half_pairs as f64)
}

/// Mean of [`roc_auc`] over the columns of two row-major matrices that have both values.
pub fn roc_auc_mean(scores: &[f32], labels: &[u8], columns: usize) -> Option<f64> {
    let column = |c: usize| {
        let scores: Vec<f32> = scores.iter().skip(c).step_by(columns).copied().collect();
        let positive: Vec<bool> = labels.iter().skip(c).step_by(columns).map(|&label| label != 0).collect();
        roc_auc(&scores, &positive)
    };
    let areas: Vec<f64> = (0..columns).filter_map(column).collect();
    (!areas.is_empty()).then(|| areas.iter().sum::<f64>() / areas.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;
    use proptest::prelude::*;

    #[test]
    fn a_metric_is_written_by_its_name_and_read_back() {
        let names = ["accuracy", "micro_f1", "roc_auc", "mrr", "hits@10", "hits@1"];
        for name in names {
            let text = format!("\"{name}\"");
            let metric: Metric = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&metric).unwrap(), text);
        }
        assert_eq!(Metric::find("hits@10"), Some(Metric::Hits(10)));
        for name in ["hits@0", "hits@", "hits@+1", "hits", "hits@ 1", "auc"] {
            assert_eq!(Metric::find(name), None, "{name}");
        }
        let message = serde_json::from_str::<Metric>("\"f1\"").unwrap_err().to_string();
        assert!(message.starts_with("expected one of `accuracy`, "), "{message}");
    }

    #[test]
    fn the_lowest_of_equal_classes_wins_and_nan_never_does() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -1.0, f32::NAN]), 1);
        assert_eq!(argmax(&[]), 0);
    }

    #[test]
    fn scores_of_nothing_are_absent_and_0_over_0_is_0() {
        assert_eq!(Counts::default().accuracy(), None);
        assert_eq!(Counts::default().micro_f1(), None);
        let mut counts = Counts::default();
        counts.add_labels(&[-1.0, 0.0], &[0, 0]);
        assert_eq!(counts.micro_f1(), Some(0.0));
        assert_eq!(roc_auc(&[1.0, 2.0], &[true, true]), None);
    }

    #[test]
    fn accuracy_and_micro_f1_are_scikit_learns_and_ogbs() {
        let Some(file) = reference::open("metrics_classification") else { return };
        let (scores, classes) = (file.f32("scores"), file.f32("y"));
        let mut counts = Counts::default();
        let rows: Vec<&[f32]> = scores.chunks(6).collect();
        let predicted: Vec<f32> = rows.iter().map(|row| argmax(row) as f32).collect();
        assert_eq!(predicted, file.f32("pred"));
        rows.iter().zip(&classes).for_each(|(row, &class)| counts.add_class(row, class as usize));
        assert_eq!(counts.accuracy(), Some(file.f64("accuracy")[0]));

        let labels: Vec<u8> = file.f32("y_multi").iter().map(|&label| label as u8).collect();
        let mut counts = Counts::default();
        for (row, labels) in file.f32("logits_multi").chunks(5).zip(labels.chunks(5)) {
            counts.add_labels(row, labels);
        }
        assert!((counts.micro_f1().unwrap() - file.f64("micro_f1_multi")[0]).abs() < 1e-15);
    }

    #[test]
    fn roc_auc_is_ogbs() {
        let Some(file) = reference::open("metrics_classification") else { return };
        let positive: Vec<bool> = file.f32("y_binary").iter().map(|&label| label != 0.0).collect();
        let found = roc_auc(&file.f32("scores_binary"), &positive).unwrap();
        assert!((found - file.f64("roc_auc_binary")[0]).abs() < 1e-15);
        let labels: Vec<u8> = file.f32("y_multi").iter().map(|&label| label as u8).collect();
        let found = roc_auc_mean(&file.f32("logits_multi"), &labels, 5).unwrap();
        assert!((found - file.f64("roc_auc_multi")[0]).abs() < 1e-15);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_of_parts_add_up_to_the_counts_of_the_whole(
            nodes in prop::collection::vec((prop::array::uniform3(-2i8..2), prop::array::uniform3(0u8..2)), 0..40),
            cut in 0usize..40,
        ) {
            let count = |nodes: &[([i8; 3], [u8; 3])]| {
                let mut counts = Counts::default();
                nodes.iter().for_each(|(logits, labels)| counts.add_labels(&logits.map(f32::from), labels));
                counts
            };
            let (left, right) = nodes.split_at(cut.min(nodes.len()));
            let mut sum = count(left);
            sum += Counts::from_array(count(right).to_array());
            prop_assert_eq!(sum, count(&nodes));
        }

        #[test]
        fn roc_auc_is_the_share_of_pairs_in_any_order(
            samples in prop::collection::vec((-3i8..3, any::<bool>()), 0..30),
        ) {
            let area = |samples: &[(i8, bool)]| {
                let (scores, positive): (Vec<f32>, Vec<bool>) =
                    samples.iter().map(|&(score, is)| (f32::from(score) * 0.5, is)).unzip();
                roc_auc(&scores, &positive)
            };
            let pairs = || samples.iter().filter(|s| s.1).flat_map(|up| {
                samples.iter().filter(|s| !s.1).map(move |down| (up.0, down.0))
            });
            let wins: f64 = pairs().map(|(up, down)| match up.cmp(&down) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            }).sum();
            let expected = (pairs().count() > 0).then(|| wins / pairs().count() as f64);
            prop_assert_eq!(area(&samples), expected);
            let reversed: Vec<_> = samples.iter().rev().copied().collect();
            prop_assert_eq!(area(&reversed), expected);
        }
    }
}
