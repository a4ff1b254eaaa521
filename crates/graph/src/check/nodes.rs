//! What the node columns show: numbers that are none, labels, splits.

use super::Findings;
use crate::dataset::{Features, Labels, Splits};

/// Looks for NaN and infinity.
pub(super) fn check_features(features: &Features, findings: &mut Findings) {
    let (values, at): (&[f32], &dyn Fn(usize) -> String) = match features {
        Features::None => {
            findings.warning("the nodes have no features".into());
            return;
        }
        Features::Dense { width, values } => {
            (values, &move |index| format!("node {}, column {}", index / width, index % width))
        }
        Features::Sparse { offsets, columns, values, .. } => (values, &move |index| {
            let row = offsets.partition_point(|&start| start <= index as u64) - 1;
            format!("node {row}, column {}", columns[index])
        }),
    };
    let bad = values.iter().filter(|value| !value.is_finite()).count();
    if let Some(first) = values.iter().position(|value| !value.is_finite()) {
        let value = values[first];
        findings
            .error(format!("{bad} features are NaN or infinite; the first is `{value}` at {}", at(first)));
    }
}

/// Counts nodes without a label and classes without a node.
pub(super) fn check_labels(labels: &Labels, findings: &mut Findings) -> u64 {
    let Labels::Classes { classes, values } = labels else {
        if matches!(labels, Labels::None) {
            findings.warning("the nodes have no labels".into());
        }
        return 0;
    };
    let mut counts = vec![0u64; *classes];
    let mut unlabelled = 0;
    for (node, &class) in values.iter().enumerate() {
        match usize::try_from(class).ok().and_then(|class| counts.get_mut(class)) {
            Some(count) => *count += 1,
            None if class == -1 => unlabelled += 1,
            None => {
                findings.error(format!("the label of node {node} is `{class}`, beyond {classes} classes"))
            }
        }
    }
    if unlabelled > 0 {
        findings.info(format!("{unlabelled} nodes have no label"));
    }
    let empty = counts.iter().filter(|count| **count == 0).count();
    if empty > 0 {
        findings.warning(format!("{empty} of {classes} classes have no node at all"));
    }
    unlabelled
}

/// Looks for overlaps, repetitions, unlabelled members and classes missing from training.
pub(super) fn check_splits(splits: &Splits, labels: &Labels, nodes: u64, findings: &mut Findings) {
    let mut owner = vec![0u8; nodes as usize];
    let mut overlaps = [[0u64; 3]; 3];
    for (split, (name, members)) in splits.named().into_iter().enumerate() {
        let mut outside = 0u64;
        for &node in members {
            match owner.get_mut(node as usize) {
                None => outside += 1,
                Some(0) => owner[node as usize] = split as u8 + 1,
                Some(other) => overlaps[*other as usize - 1][split] += 1,
            }
        }
        if outside > 0 {
            findings.error(format!("the {name} split names {outside} nodes that do not exist"));
        }
        if members.is_empty() {
            findings.warning(format!("the {name} split is empty"));
        }
        check_members(name, members, labels, findings);
    }
    report_overlaps(&overlaps, findings);
    check_training_classes(&splits.train, labels, findings);
}

/// Counts the training nodes that have a label, and says what it means that there are none.
pub(super) fn check_learnable(train: &[u64], labels: &Labels, findings: &mut Findings) -> u64 {
    let learnable = train.iter().filter(|&&node| labels.has(node)).count();
    let lacking = match (labels, train) {
        (Labels::None, []) => "labels and training nodes",
        (Labels::None, _) => "labels",
        (_, []) => "training nodes",
        _ => "labelled training nodes",
    };
    if learnable == 0 {
        let sentence = "`archi train` has no classes to learn; edges it can (`--set train.task=link`)";
        findings.warning(format!("without {lacking} {sentence}"));
        if train.is_empty() && !matches!(labels, Labels::None) {
            findings.info(
                "`archi convert IN OUT --draw-split 60,20,20` draws splits among labelled nodes".into(),
            );
        }
    }
    learnable as u64
}

fn report_overlaps(overlaps: &[[u64; 3]; 3], findings: &mut Findings) {
    let names = ["train", "valid", "test"];
    for (first, row) in overlaps.iter().enumerate() {
        for (second, &count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
            if first == second {
                findings.warning(format!("the {} split names {count} nodes more than once", names[first]));
            } else {
                let (first, second) = (names[first], names[second]);
                findings.error(format!("{count} nodes are in the {first} and the {second} split"));
            }
        }
    }
}

fn check_members(name: &str, members: &[u64], labels: &Labels, findings: &mut Findings) {
    let Labels::Classes { values, .. } = labels else { return };
    let unlabelled = members.iter().filter(|&&node| values.get(node as usize) == Some(&-1)).count();
    if unlabelled > 0 {
        findings.warning(format!("{unlabelled} nodes of the {name} split have no label and are left out"));
    }
}

fn check_training_classes(train: &[u64], labels: &Labels, findings: &mut Findings) {
    let mut seen = vec![false; labels.classes()];
    for &node in train {
        let node = node as usize;
        match labels {
            Labels::None => return,
            Labels::Classes { values, .. } => {
                let class = values.get(node).and_then(|&class| usize::try_from(class).ok());
                if let Some(seen) = class.and_then(|class| seen.get_mut(class)) {
                    *seen = true;
                }
            }
            Labels::Multi { classes, values } => {
                let row = values.get(node * classes..(node + 1) * classes).unwrap_or_default();
                seen.iter_mut().zip(row).for_each(|(seen, &label)| *seen |= label == 1);
            }
        }
    }
    let missing: Vec<String> =
        seen.iter().enumerate().filter(|(_, seen)| !**seen).map(|(class, _)| class.to_string()).collect();
    if !train.is_empty() && !missing.is_empty() {
        let shown = missing[..missing.len().min(8)].join(", ");
        findings.warning(format!("{} classes are missing from the train split: {shown}", missing.len()));
    }
}
