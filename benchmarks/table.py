#!/usr/bin/env python3
"""Tables of recorded results (JSON lines). Standard library only.

  table.py accuracy FILE [NAME]   test score per run: mean, spread, seeds
  table.py speed FILE             ours beside the peers: CPU seconds and wall seconds per epoch, memory
  table.py readme                 writes both between the benchmark marks of README.md
"""
import json
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


def readme():
    results = ROOT / "benchmarks" / "results"
    text = (ROOT / "README.md").read_text()
    tables = "\n".join(["<!-- benchmarks:begin -->", *speed(results / "speed.jsonl"), "",
                        *accuracy(results / "accuracy.jsonl"), "<!-- benchmarks:end -->"])
    text = re.sub(r"<!-- benchmarks:begin -->.*<!-- benchmarks:end -->", lambda _: tables, text, flags=re.S)
    (ROOT / "README.md").write_text(text)


if __name__ == "__main__":
    command, *rest = sys.argv[1:] or ["help"]
    if command == "readme":
        readme()
    elif command in ("accuracy", "speed"):
        print("\n".join({"accuracy": accuracy, "speed": speed}[command](*rest)))
    else:
        sys.exit(__doc__)
