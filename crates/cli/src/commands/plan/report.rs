//! A plan as people and machines read it.

use super::calibrate::Calibrated;
use crate::terminal::table::Table;
use crate::terminal::units;
use archipelago_train::cost::{Cluster, Forecast, GraphFacts, Rates, recommended};
use serde_json::{Value, json};

/// What was planned for, and what it came to.
pub struct Plan {
    /// The name of the model.
    pub model: String,
    /// The graph.
    pub facts: GraphFacts,
    /// The machines.
    pub cluster: Cluster,
    /// What every strategy costs.
    pub forecasts: Vec<Forecast>,
    /// Strategies whose cost is not known: those that the program added.
    pub unplanned: Vec<&'static str>,
}

/// For people.
pub fn text(plan: &Plan) -> String {
    let mut texts = vec![heading(plan), table(plan), verdict(plan)];
    texts.extend(refusals(plan));
    texts.extend(unplanned(plan));
    texts.push(evaluation(plan));
    texts.extend(assumptions(plan));
    texts.join("\n\n")
}

fn heading(plan: &Plan) -> String {
    let (facts, cluster) = (&plan.facts, &plan.cluster);
    let on = match facts.parts {
        1 => "in 1 part".to_owned(),
        parts => format!(
            "in {}, {} of the edges cut, {} halo nodes each",
            units::counted(parts.into(), "part"),
            units::percent(facts.cut),
            units::short(facts.halo as u64)
        ),
    };
    format!(
        "{} on {}: {} nodes, {} edges, {}, {}, {} training nodes, {on}\n\
         {} with {} and {} of memory each, network {}/s, disk {}/s",
        plan.model,
        facts.name,
        units::short(facts.nodes as u64),
        units::short(facts.edges as u64),
        units::counted(facts.features as u64, "feature"),
        units::counted(facts.classes as u64, "class"),
        units::short(facts.train as u64),
        units::counted(cluster.workers.into(), "worker"),
        units::counted(cluster.cores.into(), "core"),
        units::bytes(cluster.memory_bytes),
        units::bytes(cluster.network_bytes as u64),
        units::bytes(cluster.disk_bytes as u64),
    )
}

/// One line per strategy: an epoch, and what its seconds are made of.
fn table(plan: &Plan) -> String {
    let mut table = Table::new([
        "strategy", "memory", "parts", "edges", "steps", "sent", "read", "epoch", "draw", "copy", "gather",
        "dense", "islands", "fixed", "wire", "disk",
    ]);
    for forecast in &plan.forecasts {
        let secs = &forecast.seconds;
        let name = if forecast.refused.is_some() {
            format!("({})", forecast.strategy)
        } else {
            forecast.strategy.clone()
        };
        let parts = format!("{} of {}", forecast.ranks, plan.facts.parts);
        table.row([
            name,
            units::bytes(forecast.memory.total_bytes),
            parts,
            units::percent(forecast.coverage),
            units::count(forecast.steps),
            units::bytes(forecast.bytes_sent.total()),
            units::bytes(forecast.disk_bytes),
            units::seconds(secs.total),
            units::seconds(secs.draw),
            units::seconds(secs.copy),
            units::seconds(secs.gather),
            units::seconds(secs.dense),
            units::seconds(secs.islands),
            units::seconds(secs.fixed),
            units::seconds(secs.wire),
            units::seconds(secs.disk),
        ]);
    }
    format!(
        "{table}\nmemory: of a worker; parts: in memory at a time; edges: of a target that it may use; sent, read: by all in an epoch; what overlaps counts \
         once in `epoch`"
    )
}

fn verdict(plan: &Plan) -> String {
    let Some(best) = recommended(&plan.forecasts) else {
        return "recommended: none, as nothing fits; more workers, more memory or more parts would help"
            .to_owned();
    };
    let able = plan.forecasts.iter().filter(|forecast| forecast.refused.is_none()).count();
    let items: Vec<String> =
        best.memory.items.iter().map(|item| format!("{} {}", item.what, units::bytes(item.bytes))).collect();
    let mut text = format!(
        "recommended: `{}`, the shortest epoch ({}, {}) of the {able} that fit {} of memory\n  its memory: {}",
        best.strategy,
        units::seconds(best.seconds.total),
        units::counted(best.steps, "step"),
        units::bytes(plan.cluster.memory_bytes),
        items.join(", "),
    );
    if best.phases > 1 {
        text += &format!(
            "\n  its parts take turns, {} at a time (`--set residency.resident={}`); {} more may hold files of the next",
            best.ranks,
            best.ranks,
            units::bytes(best.file_cache_bytes)
        );
    }
    if best.coverage < 1.0 {
        text +=
            &format!("\n  its islands see {} of the in-edges of their nodes", units::percent(best.coverage));
    }
    text + "\n  an epoch of one strategy may teach more than one of another: compare steps too"
}

fn refusals(plan: &Plan) -> Option<String> {
    let there = plan.cluster.memory_bytes;
    let line = |forecast: &Forecast| {
        let why = forecast.refused.as_ref()?;
        let needed = forecast.memory.total_bytes;
        let short = needed > there && why.contains("memory");
        let why = match short {
            true => format!(
                "needs {} of memory of a worker, which has {}",
                units::bytes(needed),
                units::bytes(there)
            ),
            false => why.clone(),
        };
        Some(format!("  {}: {why}", forecast.strategy))
    };
    let lines: Vec<String> = plan.forecasts.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| format!("cannot run here:\n{}", lines.join("\n")))
}

fn unplanned(plan: &Plan) -> Option<String> {
    let names = || plan.unplanned.join(", ");
    (!plan.unplanned.is_empty()).then(|| format!("not planned, as what they cost is not known: {}", names()))
}

fn evaluation(plan: &Plan) -> String {
    let found = plan.forecasts.first().map(|forecast| forecast.evaluation).unwrap_or_default();
    format!(
        "an exact evaluation, apart: {} with all parts in memory, {} sent",
        units::seconds(found.seconds),
        units::bytes(found.bytes_sent)
    )
}

fn assumptions(plan: &Plan) -> Option<String> {
    let lines: Vec<String> = plan.facts.assumed.iter().map(|line| format!("  {line}")).collect();
    (!lines.is_empty()).then(|| format!("assumed:\n{}", lines.join("\n")))
}

/// For machines.
pub fn json(rates: &Rates, calibrated: Option<&Calibrated>, plan: Option<&Plan>) -> Value {
    let mut value = json!({ "rates": rates });
    if let Some(calibrated) = calibrated {
        value["runs"] = json!(calibrated.runs);
    }
    if let Some(plan) = plan {
        let facts = &plan.facts;
        value["model"] = plan.model.clone().into();
        value["graph"] = json!({
            "name": facts.name,
            "nodes": facts.nodes,
            "edges": facts.edges,
            "features": facts.features,
            "classes": facts.classes,
            "train": facts.train,
            "parts": facts.parts,
            "cut": facts.cut,
            "halo": facts.halo,
            "store_bytes": facts.store_bytes,
            "assumed": facts.assumed,
        });
        value["cluster"] = json!(plan.cluster);
        value["strategies"] = json!(plan.forecasts);
        value["unplanned"] = json!(plan.unplanned);
        value["recommended"] = json!(recommended(&plan.forecasts).map(|best| &best.strategy));
    }
    value
}
