//! What a run has come to, and what a checkpoint holds.

use super::{Description, has_manifest};
use crate::commands::session::Folder;
use crate::terminal::table::{Table, facts};
use crate::terminal::{training, units};
use archipelago_graph::Error;
use archipelago_train::checkpoint::{Checkpoint, Slot};
use serde_json::json;
use std::path::Path;

pub(super) fn detect(path: &Path) -> bool {
    path.join("run.toml").is_file()
}

pub(super) fn describe(path: &Path) -> anyhow::Result<Description> {
    let folder = Folder::open(path)?;
    let config = folder.config()?;
    let summary = folder.summary()?;
    let last = Checkpoint::load(path, Slot::Last).ok().map(|checkpoint| checkpoint.state.epoch);
    let state = match (&summary, last) {
        (Some(_), _) => "finished".to_owned(),
        (None, Some(epoch)) => format!("epoch {epoch} is in a checkpoint; `archi resume` continues"),
        (None, None) => "no checkpoint yet; `archi resume` starts it again".to_owned(),
    };
    let mut text = facts([
        ("data", config.data.path.clone()),
        ("model", config.model.name.clone()),
        ("strategy", config.strategy.name.clone()),
        ("epochs", config.train.epochs.to_string()),
        ("state", state),
    ]);
    if let Some(summary) = &summary {
        text += &format!("\n\n{}", training::summary(summary, None));
    }
    let facts = json!({
        "data": config.data.path,
        "model": config.model.name,
        "strategy": config.strategy.name,
        "epochs": config.train.epochs,
        "finished": summary.is_some(),
        "checkpoint_epoch": last,
        "summary": summary,
    });
    Ok(Description { kind: "run", text, facts })
}

pub(super) fn detect_checkpoint(path: &Path) -> bool {
    has_manifest(path, "archipelago-checkpoint")
}

pub(super) fn describe_checkpoint(path: &Path) -> anyhow::Result<Description> {
    let checkpoint = load(path)?;
    let state = &checkpoint.state;
    let best = state.best.map_or("none evaluated".to_owned(), |best| {
        format!("epoch {}, valid {:.4}, test {}", best.epoch, best.valid, units::score(best.test))
    });
    let mut table = Table::new(["weight", "shape", "numbers"]);
    for tensor in &checkpoint.weights {
        let shape = format!("[{}, {}]", tensor.rows, tensor.cols);
        table.row([tensor.name.clone(), shape, units::count(tensor.values.len() as u64)]);
    }
    let text = facts([
        ("epoch", state.epoch.to_string()),
        ("step", units::count(state.step)),
        ("best so far", best),
        ("last loss", state.totals.losses.last().map_or("-".into(), |loss| format!("{loss:.4}"))),
    ]);
    let weights = checkpoint
        .weights
        .iter()
        .map(|tensor| json!({ "name": tensor.name, "shape": [tensor.rows, tensor.cols] }));
    let facts = json!({
        "epoch": state.epoch,
        "step": state.step,
        "best": state.best,
        "data": state.data,
        "weights": weights.collect::<Vec<_>>(),
    });
    Ok(Description { kind: "checkpoint", text: format!("{text}\n\n{table}"), facts })
}

/// Loads the checkpoint whose folder is `RUN/checkpoint/last`, or the version `last.7` that it points to.
fn load(path: &Path) -> anyhow::Result<Checkpoint> {
    let absolute = std::path::absolute(path)?;
    let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let slot = match name.split('.').next() {
        Some("last") => Slot::Last,
        Some("best") => Slot::Best,
        _ => {
            return Err(Error::input(path, "", "a folder RUN/checkpoint/last or best", format!("`{name}`"))
                .with_hint("inspect it where the run left it")
                .into());
        }
    };
    let run = absolute.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    Ok(Checkpoint::load(run, slot)?)
}
