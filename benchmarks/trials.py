#!/usr/bin/env python3
"""Settings to try, and which were best by validation. Standard library only.

  trials.py draw COUNT SEED WIDEST [OF]  COUNT lines of flags, drawn without repetition; layers at most WIDEST wide; OF: gcn
                                         (nodes, the default) or links
  trials.py usual                        all lines of the grid around the settings of the GCN paper
  trials.py best FILE GRAPH COUNT SEEDS  the COUNT lines with the highest mean validation score over SEEDS, of those that have them
  trials.py show FILE                    a table of all: mean validation and test score
"""
import itertools
import json
import random
import statistics
import sys
from pathlib import Path

# What is searched over for a GCN of two layers: one that tells classes of nodes, and one that tells links.
DIALS = {
    "gcn": {
        "model.hidden": [16, 32, 64, 128, 256],
        "model.dropout": [0.3, 0.5, 0.6, 0.7, 0.8],
        "model.input_dropout": [0.0, 0.3, 0.5, 0.8],
        "train.weight_decay": ["5e-4", "1e-3", "2e-3", "5e-3", "1e-2"],
        "train.weight_decay_layers": ["first", "all"],
        "train.lr": [0.005, 0.01, 0.02],
    },
    "links": {
        "model.hidden": [32, 64, 128],
        "model.dropout": [0.0, 0.2, 0.5],
        "train.weight_decay": ["0", "5e-4"],
        "train.lr": [0.003, 0.01, 0.03],
        "train.fanouts": ["[15,15]", "[-1,-1]"],
        "train.batch_size": [256, 1024, 4096],
    },
}

# What papers on GCN usually try: the settings of Kipf & Welling (16 wide, dropout 0.5 before both layers, decay 5e-4 of the first
# layer's weights, rate 0.01) and their neighbours.
USUAL = {
    "model.hidden": [16, 64],
    "model.dropout": [0.5],
    "model.input_dropout": [0.5],
    "train.weight_decay": ["5e-4", "1e-3"],
    "train.weight_decay_layers": ["first", "all"],
    "train.lr": [0.01, 0.02],
}


def usual():
    choices = [[f"--set {key}={value}" for value in values] for key, values in USUAL.items()]
    return [" ".join(line) for line in itertools.product(*choices)]


def draw(count, seed, widest, of="gcn"):
    source, lines = random.Random(int(seed)), []
    dials = {**DIALS[of], "model.hidden": [width for width in DIALS[of]["model.hidden"] if width <= int(widest)]}
    while len(lines) < int(count):
        line = " ".join(f"--set {key}={source.choice(values)}" for key, values in dials.items())
        if line not in lines:
            lines.append(line)
    return lines


def runs(file):
    """Records by graph and settings, then by seed."""
    found = {}
    for record in map(json.loads, Path(file).read_text().splitlines()):
        found.setdefault((record["graph"], record["settings"]), {})[str(record["seed"])] = record
    return found


def best(file, graph, count, seeds):
    wanted, scores = seeds.split(), {}
    for (of, settings), by_seed in runs(file).items():
        if of == graph and all(seed in by_seed for seed in wanted):
            scores[settings] = statistics.mean(by_seed[seed]["valid"] for seed in wanted)
    # Of equal ones the first that was drawn: sorting is stable.
    return sorted(scores, key=scores.get, reverse=True)[:int(count)]


def show(file):
    rows = ["| graph | settings | seeds | validation, % | test, % |", "|---|---|---|---|---|"]
    mean = lambda by_seed, key: statistics.mean(record[key] for record in by_seed.values())
    found = [(graph, settings, len(by_seed), mean(by_seed, "valid"), mean(by_seed, "test"))
             for (graph, settings), by_seed in runs(file).items()]
    for graph, settings, seeds, valid, test in sorted(found, key=lambda row: (row[0], -row[2], -row[3])):
        rows.append(f"| {graph} | `{settings.replace('--set ', '')}` | {seeds} | {100 * valid:.2f} | {100 * test:.2f} |")
    return rows


if __name__ == "__main__":
    commands = {"draw": draw, "usual": usual, "best": best, "show": show}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    print("\n".join(commands[sys.argv[1]](*sys.argv[2:])))
