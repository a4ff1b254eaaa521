"""The dataset folder DATA with its edges in another order. Standard library only; holds the edges in memory.

  reorder.py DATA shuffled|sorted|bfs OUT
"""

import array
import collections
import os
import random
import shutil
import sys


def read(path):
    """Header and (sources, destinations) of a little-endian int64 .npy of shape [2, edges]."""
    with open(path, "rb") as file:
        start = file.read(10)
        header = start + file.read(int.from_bytes(start[8:10], "little"))
        numbers = array.array("q")
        numbers.frombytes(file.read())
    half = len(numbers) // 2
    return header, list(zip(numbers[:half], numbers[half:]))


def breadth_first(edges):
    """Edges by the visit of their source, then as they were."""
    lists = collections.defaultdict(list)
    for source, destination in edges:
        lists[source].append(destination)
    seen, out = set(), []
    for root in sorted(lists):
        queue = collections.deque([root] if root not in seen else [])
        seen.add(root)
        while queue:
            node = queue.popleft()
            for other in lists.get(node, ()):
                out.append((node, other))
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
    return out


def shuffled(edges):
    random.Random(1).shuffle(edges)
    return edges


def main(data, order, out):
    header, edges = read(os.path.join(data, "edge_index.npy"))
    edges = {"shuffled": shuffled, "sorted": sorted, "bfs": breadth_first}[order](edges)
    shutil.copytree(data, out)
    with open(os.path.join(out, "edge_index.npy"), "wb") as file:
        file.write(header)
        for end in (0, 1):
            file.write(array.array("q", (edge[end] for edge in edges)).tobytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
