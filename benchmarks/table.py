#!/usr/bin/env python3
"""Tables of recorded results (JSON lines). Standard library only.

  table.py accuracy FILE [NAME]   test score per run: mean, spread, seeds
  table.py speed FILE             ours beside the peers: CPU seconds and wall seconds per epoch, memory
  table.py partition FILE         partitioners: cut, replication, time and memory beside METIS
  table.py exchange FILE          share of the link that collectives reach
  table.py samples FILE           scores of mini-batches beside full batches, and of links
  table.py minibatch FILE         mini-batches beside DGL and DistDGL: time, sampling, memory, bytes
  table.py boundaries FILE        strategies that compute one batch together: time to accuracy, bytes, memory
  table.py against FILE           the same strategies: test score beside that of `full`
  table.py graphtheta FILE        batches of all ranks: scores, cost on more parts beside `distdgl`, scaling
  table.py planetoid FILE [GRAPH] GCN on the citation graphs: test score at the best validation score, over seeds
  table.py islands FILE           strategies that train on islands: test score beside that of `distdgl`
  table.py outofcore FILE         a graph larger than memory: epoch time under a limit beside that in memory
  table.py scale FILE             epoch time against edges on R-MAT graphs: measured, predicted, fitted exponent
  table.py curve RUN RATE NAME FACTS   a record for `boundaries` from the folder of a run
  table.py readme                 writes them between the marks of README.md and of pages in docs
"""
import json
import math
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What `../shared/data/README.md` and the papers give for the same settings, per cent.
REFERENCE = {
    "cora-gcn": "82.1 ± 0.6", "cora-gat": "83.0 ± 0.7", "citeseer-gcn": "71.9 ± 0.3", "pubmed-gcn": "78.9 ± 0.4",
    "amazon-gcn": "89.4", "amazon-sage": "91.1", "amazon-alt-gcn": "78.9 ± 0.7",
    "wordnet-gcn": "67.3", "wordnet-sage": "76.0", "wordnet-gat": "70.1",
}


def records(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines() if line.strip()]


def accuracy(file, only=None):
    rows = ["| run | test score, % | seeds | reference, % |", "|---|---|---|---|"]
    by_name = {}
    for record in records(file):
        by_name.setdefault(record["name"], {})[record["seed"]] = 100 * record["test_score"]
    for name, scores in by_name.items():
        if only in (None, name):
            values = list(scores.values())
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            rows.append(f"| {name} | {statistics.mean(values):.1f} ± {spread:.1f} | {len(values)} | {REFERENCE.get(name, '-')} |")
    return rows


def speed(file):
    rows = ["| work | system | CPU s per epoch | of the fastest peer | wall s per epoch | peak memory, MB | sent, MB per epoch | test |",
            "|---|---|---|---|---|---|---|---|"]
    work = {}
    for record in records(file):
        work.setdefault(record["work"], {}).setdefault(record["system"], []).append(record)
    middle = lambda found, key: statistics.median(r[key] for r in found if r.get(key) is not None)
    for name, systems in work.items():
        peers = [middle(found, "cpu") for system, found in systems.items() if system != "archipelago"]
        for system, found in systems.items():
            cpu = middle(found, "cpu")
            ratio = f"{cpu / min(peers):.2f}" if peers else "-"
            low, high = min(r["cpu"] for r in found), max(r["cpu"] for r in found)
            sent = [r["sent_mb_epoch"] for r in found if r.get("sent_mb_epoch")]
            sent = f"{statistics.median(sent):.1f}" if sent else "-"
            rows.append(f"| {name} | {system} | {cpu:.3f} ({low:.3f}–{high:.3f}) | {ratio} | {middle(found, 'wall'):.3f} "
                        f"| {middle(found, 'rss_mb'):.0f} | {sent} | {middle(found, 'test'):.3f} |")
    return rows


def partition(file):
    """One row per graph and method; what differs with the number of parts stands side by side. Medians of the last commit."""
    cuts = {}
    for record in records(file):
        by_parts = cuts.setdefault(record["data"], {}).setdefault(record["method"], {})
        found = by_parts.setdefault(record["parts"], [])
        by_parts[record["parts"]] = [r for r in found if r["commit"] == record["commit"]] + [record]
    rows = []
    for data, methods in cuts.items():
        parts = sorted({count for by_parts in methods.values() for count in by_parts})
        shown = " / ".join(str(count) for count in parts)
        rows += ["", f"{data}, parts {shown}:", "", "| method | cut | replication | seconds | memory, MB | M edges/s of a pass |",
                 "|---|---|---|---|---|---|"]
        for method, by_parts in methods.items():
            def column(form, value):
                cell = lambda found: form % statistics.median(values) if (values := [v for r in found if (v := value(r))]) else "-"
                return " / ".join(cell(by_parts.get(count, [])) for count in parts)
            rows.append(f"| `{method.replace(':', ' ')}` | " + " | ".join([
                column("%.3f", lambda r: r["cut_fraction"]), column("%.2f", lambda r: r["replication_factor"]),
                column("%.2f", lambda r: r["secs"]), column("%.0f", lambda r: r.get("extra_mb", r["rss_mb"])),
                column("%.0f", lambda r: (r.get("edges_per_sec") or 0) / 1e6)]) + " |")
    return rows[1:]


def exchange(file):
    """One row per link, number of hosts and operation; sizes stand side by side, medians over jobs."""
    shares = {}
    for record in records(file):
        key = (record["link_mbit"], record["ranks"], record["operation"])
        shares.setdefault(key, {}).setdefault(record["megabytes"], []).append(record)
    sizes = sorted({size for found in shares.values() for size in found})
    rows = ["| link, Mbit/s | hosts | operation | " + " | ".join(f"{size} MB" for size in sizes) + " | plain TCP |",
            "|---|---|---" + "|---" * len(sizes) + "|---|"]
    for (link, ranks, operation), found in shares.items():
        cells = [median_share([record["share"] for record in found[size]]) for size in sizes]
        plain = [record["tcp_mbit"] / link for size in sizes for record in found[size] if "tcp_mbit" in record]
        cells.append(median_share(plain) if plain else "-")
        rows.append(f"| {link:.0f} | {ranks} | {operation} | " + " | ".join(cells) + " |")
    return rows


def median_share(shares):
    """In percent, with the range where there are several that differ."""
    low, middle, high = (f"{100 * of(shares):.0f}" for of in (min, statistics.median, max))
    return f"{middle} %" if low == high else f"{middle} % ({low}-{high})"


def minibatch(file):
    """One row per work and system, medians; what is drawn per processor second counts edges alone."""
    rows = ["| work | system | CPU s per epoch | wall s | sampling and gathering, s | M edges drawn per s | memory, MB | sent, MB | cache / reuse | CPU busy | test |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    work = {}
    for record in records(file):
        work.setdefault((record["work"], record["system"]), []).append(record)
    for (name, system), found in work.items():
        middle = lambda key, form: form % statistics.median(values) if (values := [r[key] for r in found if r.get(key) is not None]) else "-"
        drawn = [r["edges"] / r["draw"] / 1e6 for r in found if r.get("edges")]
        kept = " / ".join(middle(key, "%.2f") for key in ("hit_rate", "reuse_rate"))
        busy = "-" if "hosts" in name else middle("cpu_busy", "%.2f")
        rows.append(f"| {name} | {system} | {middle('cpu', '%.2f')} | {middle('wall', '%.2f')} | {middle('loading', '%.2f')} | "
                    f"{statistics.median(drawn) if drawn else 0:.1f} | {middle('rss_mb', '%.0f')} | {middle('sent_mb_epoch', '%.0f')} | {kept} | "
                    f"{busy} | {middle('test', '%.3f')} |")
    return rows


def curve(run, rate, name, facts):
    """What a run took until each of its evaluations."""
    events = [json.loads(line) for line in (Path(run) / "events.jsonl").read_text().splitlines()]
    epochs = [event for event in events if event["event"] == "epoch"]
    summary = json.loads((Path(run) / "summary.json").read_text())
    secs, points = 0.0, []
    for epoch in epochs:
        secs += epoch["secs"]
        points.append([epoch["step"], round(secs, 3), epoch["evaluation"]["valid"], epoch["evaluation"]["test"]])
    steps = epochs[-1]["step"]
    # The first epoch also carries features, once.
    rows = [epoch["bytes_sent"]["embeddings"] for epoch in epochs]
    exchange = summary.get("exchange") or {}
    return [json.dumps({"rate_mbit": int(rate), "strategy": name, **json.loads("{" + facts + "}"),
                        "step_secs": secs / steps, "embeddings_mb_per_step": sum(rows) / steps / 1e6,
                        "max_over_min": exchange.get("messages_max_over_min"), "rss_mb": summary["peak_rss_bytes"] / 1e6,
                        "test": summary["test_score"], "valid": summary["valid_score"], "points": points})]


def samples(file):
    """Full batches, mini-batches on one part and on four (from the records of islands); and links."""
    scores = {}
    for record in records(file):
        score = record["auc"] if record["name"] == "links" else record["test_score"]
        scores.setdefault((record["graph"], record["name"]), []).append(100 * score)
    beside = Path(file).parent / "islands.jsonl"
    for record in records(beside if beside.exists() else ROOT / "benchmarks" / "results" / "islands.jsonl"):
        if (record["layers"], record["name"]) == (2, "distdgl"):
            scores.setdefault((record["graph"], "distdgl, 4 parts"), []).append(100 * record["test_score"])
    rows = ["| graph | batches | test score, % | from `full` | from `mini` | seeds |", "|---|---|---|---|---|---|"]
    for (graph, name), found in sorted(scores.items(), key=lambda entry: (entry[0][1] == "links", entry[0][0])):
        mean, spread = statistics.mean(found), statistics.pstdev(found)
        apart = [f"{mean - statistics.mean(scores[graph, other]):+.2f}" if name != other and (graph, other) in scores else "-"
                 for other in ("full", "mini")]
        rows.append(f"| {graph} | {name} | {mean:.2f} ± {spread:.2f} | " + " | ".join(apart) + f" | {len(found)} |")
    return rows


def boundaries(file):
    """One row per rate and strategy: training seconds until 99 % of the best validation score of `full`."""
    rows = ["| link, Mbit/s | strategy | s to 99 % of `full` | of `full` | steps | s per step | MB of rows per step | of `full` | memory, MB | test |",
            "|---|---|---|---|---|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        found.setdefault((record["rate_mbit"], record["strategy"]), []).append(record)
    middle = lambda records, key: statistics.median(record[key] for record in records)
    for (rate, strategy), of_strategy in found.items():
        full = found.get((rate, "full"), of_strategy)
        goal = 0.99 * middle(full, "valid")
        # Steps and seconds at the first evaluation that is good enough; none where no evaluation is.
        reach = lambda of: [next(((p[0], p[1]) for p in record["points"] if p[2] >= goal), None) for record in of]
        reached, of_full = reach(of_strategy), reach(full)
        secs = statistics.median(r[1] for r in reached) if all(reached) else None
        base = statistics.median(r[1] for r in of_full) if all(of_full) else None
        steps = f"{statistics.median(r[0] for r in reached):.0f}" if secs else "-"
        mb, base_mb = (middle(of, "embeddings_mb_per_step") for of in (of_strategy, full))
        rows.append(f"| {rate} | `{strategy}` | {f'{secs:.1f}' if secs else 'not reached'} | {f'{secs / base:.2f}' if secs and base else '-'} | {steps} "
                    f"| {middle(of_strategy, 'step_secs'):.3f} | {mb:.2f} | {mb / base_mb:.2f} | {middle(of_strategy, 'rss_mb'):.0f} "
                    f"| {100 * middle(of_strategy, 'test'):.1f} |")
    return rows


def against(file):
    """One row per graph and strategy: mean test score over seeds, and how far it is from that of `full`."""
    rows = ["| graph | strategy | test score, % | from `full` | seeds | MB of rows per step | of `full` | of `cagnet` |",
            "|---|---|---|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        found.setdefault(record["graph"], {}).setdefault(record["name"], {})[record["seed"]] = record
    for graph, names in found.items():
        scores = {name: {seed: 100 * r["test_score"] for seed, r in seeds.items()} for name, seeds in names.items()}
        bytes_of = {name: statistics.mean(r["embeddings_mb_per_step"] for r in seeds.values()) for name, seeds in names.items()}
        for name, by_seed in scores.items():
            values = list(by_seed.values())
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            # Beside the same seeds.
            base = [score for seed, score in scores.get("full", {}).items() if seed in by_seed]
            off = f"{statistics.mean(values) - statistics.mean(base):+.2f}" if len(base) == len(values) else "-"
            of = lambda base: f"{bytes_of[name] / bytes_of[base]:.2f}" if bytes_of.get(base) else "-"
            rows.append(f"| {graph} | {name} | {statistics.mean(values):.2f} ± {spread:.2f} | {off} | {len(values)} "
                        f"| {bytes_of[name]:.3f} | {of('full')} | {of('cagnet')} |")
    return rows


def graphtheta(file):
    """Three tables: scores, the cost of an epoch on more parts, and that on more hosts."""
    found = {}
    for record in records(file):
        found.setdefault(record["work"], {}).setdefault((record["name"], record["parts"]), []).append(record)
    middle = lambda runs, key: statistics.median(run[key] for run in runs)
    spread = lambda runs, key: f"{min(run[key] for run in runs):.2f} to {max(run[key] for run in runs):.2f}"
    rows = ["| graph | batches | test score, % | seeds | epochs |", "|---|---|---|---|---|"]
    for work, names in found.items():
        for (name, _), runs in names.items() if work.startswith("scores-") else ():
            values = [100 * run["test_score"] for run in runs]
            off = statistics.stdev(values) if len(values) > 1 else 0.0
            rows.append(f"| {work[7:]} | {name} | {statistics.mean(values):.2f} ± {off:.2f} | {len(values)} | {runs[0]['epochs']} |")
    rows += ["", "| graph | computed by | parts | CPU s per epoch | runs | of one part |", "|---|---|---|---|---|---|"]
    for work, names in found.items():
        for (name, parts), runs in names.items() if work.startswith("hybrid-") else ():
            cpu, one = middle(runs, "epoch_cpu_secs_median"), middle(names[(name, 1)], "epoch_cpu_secs_median")
            rows.append(f"| {work[7:]} | {name} | {parts} | {cpu:.2f} ({spread(runs, 'epoch_cpu_secs_median')}) | {len(runs)} | {cpu / one:.2f} |")
    rows += ["", "| graph | link, Mbit/s | hosts | s per epoch | efficiency | CPU s per epoch | of one host | MB sent per epoch | runs |",
             "|---|---|---|---|---|---|---|---|---|"]
    sent = lambda runs: statistics.median(sum(run["bytes_sent"].values()) / run["epochs"] / 1e6 for run in runs)
    for work, names in found.items():
        for (name, hosts), runs in names.items() if work.startswith("scaling-") else ():
            graph, rate = work[8:].split("-")
            # One host uses no link: its runs at all rates are of one kind.
            one = [run for other, of in found.items() if other.startswith(f"scaling-{graph}-")
                   for (_, parts), runs in of.items() if parts == 1 for run in runs]
            secs, cpu = middle(runs, "epoch_secs_median"), middle(runs, "epoch_cpu_secs_median")
            gain = middle(one, "epoch_secs_median") / secs / hosts
            rows.append(f"| {graph} | {rate} | {name} | {secs:.2f} ({spread(runs, 'epoch_secs_median')}) | {100 * gain:.0f} % "
                        f"| {cpu:.2f} | {cpu / middle(one, 'epoch_cpu_secs_median'):.2f} | {sent(runs):.0f} | {len(runs)} |")
    return rows


def planetoid(file, only=None):
    """One row per graph and name: mean over seeds of the test score at the best validation score, and of the latter."""
    rows = ["| graph | strategy | test score, % | validation score, % | seeds |", "|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        found.setdefault((record["graph"], record["name"]), {})[record["seed"]] = record
    for (graph, name), by_seed in found.items():
        if only in (None, graph):
            score = lambda key: [100 * record[key] for record in by_seed.values()]
            shown = lambda values: f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.2f}"
            rows.append(f"| {graph} | {name} | {shown(score('test_score'))} | {shown(score('valid_score'))} | {len(by_seed)} |")
    return rows


def islands(file):
    """One row per graph, number of layers and strategy: mean test score over seeds, and how far it is from that of `distdgl`."""
    rows = ["| graph | layers | strategy | parts | test score, % | from `distdgl` | seeds | coverage | s per epoch |",
            "|---|---|---|---|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        key = (record["name"], record["parts"])
        found.setdefault((record["graph"], record["layers"]), {}).setdefault(key, {})[record["seed"]] = record
    for (graph, layers), strategies in found.items():
        base = {seed: 100 * r["test_score"] for seed, r in strategies.get(("distdgl", 4), {}).items()}
        for (name, parts), runs in strategies.items():
            values = [100 * r["test_score"] for r in runs.values()]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            # Beside the same seeds.
            beside = [base[seed] for seed in runs if seed in base]
            off = f"{statistics.mean(values) - statistics.mean(beside):+.2f}" if len(beside) == len(values) else "-"
            covered = [r["islands"]["coverage"] for r in runs.values() if r.get("islands")]
            coverage = f"{statistics.mean(covered):.2f}" if covered else "-"
            secs = statistics.median(r["epoch_secs_median"] for r in runs.values())
            rows.append(f"| {graph} | {layers} | {name} | {parts} | {statistics.mean(values):.2f} ± {spread:.2f} | {off} "
                        f"| {len(values)} | {coverage} | {secs:.2f} |")
    return rows


def outofcore(file):
    """One row per way: medians over repetitions. Before the epoch a run reads all files once, for their checksums: not counted."""
    rows = ["| run | runs | epoch, s | nodes/s | making islands, s | read in the epoch, GB | GB/s | peak memory, MB | stated, MB | limit, MB |",
            "|---|---|---|---|---|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        found.setdefault(record["name"], []).append(record)
    for name, of_name in found.items():
        middle = lambda key: statistics.median(r[key] for r in of_name)
        spread = f"{middle('epoch_secs'):.1f} ({min(r['epoch_secs'] for r in of_name):.1f}-{max(r['epoch_secs'] for r in of_name):.1f})"
        limit = f"{middle('limit_bytes') / 1e6:.0f}" if name == "limited" else "-"
        read = max(0, middle("read_bytes") - middle("store_bytes")) / 1e9
        rows.append(f"| {name} | {len(of_name)} | {spread} | {middle('train_nodes') / middle('epoch_secs'):,.0f} | {middle('landing_secs'):.1f} "
                    f"| {read:.1f} | {read / middle('epoch_secs'):.2f} "
                    f"| {middle('peak_rss_bytes') / 1e6:.0f} | {middle('stated_bytes') / 1e6:.0f} | {limit} |")
    if {"limited", "in-memory"} <= set(found):
        secs = {name: statistics.median(r["epoch_secs"] for r in of_name) for name, of_name in found.items()}
        rows += ["", f"Throughput under the limit: {secs['in-memory'] / secs['limited']:.2f} of that in memory."]
    return rows


def slope(points):
    """The exponent b of y = a x^b through `points`, by least squares of the logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    x_mean, y_mean = (statistics.mean(column) for column in zip(*logs))
    return sum((x - x_mean) * (y - y_mean) for x, y in logs) / sum((x - x_mean) ** 2 for x, _ in logs)


def scale(file):
    """One row per scale and strategy, medians over repetitions; below, the exponent of each strategy."""
    rows = ["| scale | strategy | edges | epoch, s | predicted, s | CPU s | predicted, CPU s | sent, MB | predicted, MB | memory, MB | predicted, MB |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    found = {}
    for record in records(file):
        found.setdefault((record["strategy"], record["scale"]), []).append(record)
    points = {}
    for (strategy, size), of_size in sorted(found.items()):
        middle = lambda key: statistics.median(r[key] for r in of_size)
        plans = [r["plan"] for r in of_size if r.get("plan")]
        planned = lambda key, unit, form: form % (statistics.median(p[key] for p in plans) / unit) if plans else "-"
        edges, cpu = middle("edges"), middle("epoch_cpu_secs_median")
        points.setdefault(strategy, []).append((edges, cpu, middle("epoch_secs_median")))
        rows.append(f"| {size} | {strategy} | {edges:,.0f} | {middle('epoch_secs_median'):.2f} | {planned('predicted_secs', 1, '%.2f')} "
                    f"| {cpu:.2f} | {planned('predicted_cpu_secs', 1, '%.2f')} | {middle('epoch_bytes_sent') / 1e6:.1f} "
                    f"| {planned('predicted_bytes', 1e6, '%.1f')} | {middle('peak_rss_bytes') / 1e6:.0f} | {planned('predicted_memory', 1e6, '%.0f')} |")
    for strategy, of_strategy in points.items():
        if len(of_strategy) > 1:
            cpu, wall = (slope([(p[0], p[at]) for p in of_strategy]) for at in (1, 2))
            rows += ["", f"`{strategy}`: epoch time grows as edges^{wall:.2f} (CPU seconds: edges^{cpu:.2f}), "
                         f"from {min(of_strategy)[0]:,.0f} to {max(of_strategy)[0]:,.0f} edges."]
    return rows


def between(file, mark, rows):
    """Writes `rows` between the marks called `mark` of `file`."""
    text = file.read_text()
    block = "\n".join([f"<!-- {mark}:begin -->", *rows, f"<!-- {mark}:end -->"])
    text = re.sub(f"<!-- {mark}:begin -->.*<!-- {mark}:end -->", lambda _: block, text, flags=re.S)
    file.write_text(text)


def readme():
    results = ROOT / "benchmarks" / "results"
    between(ROOT / "README.md", "benchmarks",
            [*speed(results / "speed.jsonl"), "", *accuracy(results / "accuracy.jsonl")])
    between(ROOT / "docs" / "partitioning.md", "benchmarks", partition(results / "partition.jsonl"))
    between(ROOT / "docs" / "cluster.md", "exchange", exchange(results / "exchange.jsonl"))
    between(ROOT / "docs" / "mini-batches.md", "minibatch", minibatch(results / "minibatch.jsonl"))
    between(ROOT / "docs" / "mini-batches.md", "samples", samples(results / "samples.jsonl"))
    between(ROOT / "docs" / "boundaries.md", "boundaries", boundaries(results / "boundaries.jsonl"))
    between(ROOT / "docs" / "boundaries.md", "against", against(results / "against.jsonl"))
    between(ROOT / "docs" / "islands.md", "islands", islands(results / "islands.jsonl"))
    between(ROOT / "docs" / "islands.md", "outofcore", outofcore(results / "outofcore.jsonl"))
    between(ROOT / "docs" / "graphtheta.md", "graphtheta", graphtheta(results / "graphtheta.jsonl"))
    between(ROOT / "docs" / "graphtheta.md", "planetoid", planetoid(results / "planetoid.jsonl"))
    between(ROOT / "docs" / "scale.md", "scale", scale(results / "scale.jsonl"))


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["help"]
    if command == "readme":
        readme()
    elif command in (tables := {"accuracy": accuracy, "speed": speed, "partition": partition, "exchange": exchange,
                               "minibatch": minibatch, "samples": samples, "boundaries": boundaries, "against": against, "islands": islands,
                               "planetoid": planetoid, "graphtheta": graphtheta, "scale": scale, "outofcore": outofcore, "curve": curve}):
        print("\n".join(tables[command](*rest)))
    else:
        sys.exit(__doc__)
