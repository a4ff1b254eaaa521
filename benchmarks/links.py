#!/usr/bin/env python3
"""How well are held-out links told from random pairs? The protocol of Kipf & Welling's graph auto-encoder: 5 % of the edges
for validation, 10 % for testing, and as many random pairs that are no edges; both ends of those are any nodes (archi's own
evaluation keeps the source of a true link, which is harder). Needs numpy.

  links.py ARCHI DATA STORE SEED FLAGS...   trains on the other edges, scores test pairs by `archi infer --links`, and prints a
                                            JSON line with `auc`, and with archi's own as `own_auc` and, of validation, `valid`
"""
import json
import subprocess
import sys
import tempfile

import numpy as np


def split(edges, nodes, random):
    """Edges for validation, edges for testing, and as many pairs that are no edges."""
    known = set((edges[0] * nodes + edges[1]).tolist())
    once = edges[:, edges[0] < edges[1]].T
    random.shuffle(once)
    valid, test = len(once) // 20, len(once) // 10
    pairs = []
    while len(pairs) < test:
        a, b = map(int, random.integers(0, nodes, 2))
        if a != b and a * nodes + b not in known:
            pairs.append((a, b))
    return once[:valid], once[valid:valid + test], pairs


def auc(true, false):
    """The chance that a true link scores higher than a false one; ties count half."""
    false = np.sort(false)
    below, upto = np.searchsorted(false, true, "left"), np.searchsorted(false, true, "right")
    return float((below + upto).sum() / 2 / (len(true) * len(false)))


def main(archi, data, store, seed, *flags):
    arrays = np.load(f"{data}/data.npz")
    valid, test, pairs = split(arrays["edge_index"], len(arrays["y"]), np.random.default_rng(int(seed)))
    with tempfile.TemporaryDirectory() as scratch:
        with open(f"{scratch}/split.csv", "w") as file:
            for name, held in (("valid", valid), ("test", test)):
                file.writelines(f"{a},{b},{name}\n" for a, b in held)
        with open(f"{scratch}/pairs.csv", "w") as file:
            file.writelines(f"{a},{b}\n" for a, b in [*test, *pairs])
        subprocess.run([archi, "train", "--data", store, "--set", f"data.link_split={scratch}/split.csv", "--seed", seed, *flags,
                        "--out", f"{scratch}/run"], check=True, capture_output=True)
        subprocess.run([archi, "infer", f"{scratch}/run", "--links", f"{scratch}/pairs.csv", "--out", f"{scratch}/scores.npy"],
                       check=True, capture_output=True)
        scores, summary = np.load(f"{scratch}/scores.npy").ravel(), json.load(open(f"{scratch}/run/summary.json"))
    print(json.dumps({"seed": int(seed), "auc": auc(scores[:len(test)], scores[len(test):]), "own_auc": summary["test_score"],
                      "valid": summary["valid_score"],
                      "best_epoch": summary["best_epoch"], "epochs": summary["epochs"]}))


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
