"""What class weights do on an imbalanced graph, for every method: balanced accuracy, macro F1 and accuracy with and without.

    python -m benchmarks.class_weights

The graph is made: three classes of 86, 10 and 4 in a hundred nodes, of which features tell something and neighbours something
more. The round is chosen by validation balanced accuracy with and without weights, so that only the loss differs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np

import fedquilt
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import methods

SHARES = (0.86, 0.10, 0.04)
NAMES = ("well", "mild", "severe")
SHOWN = ("balanced-accuracy", "macro-f1", "accuracy", "log-loss")


def imbalanced(nodes: int = 1500, seed: int = 0) -> Graph:
    """A graph with a rare and a very rare class: dense standardised features, 4 neighbours a node, 7 in 10 of its own class."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(SHARES), nodes, p=SHARES)
    centres = rng.standard_normal((len(SHARES), 8))
    x = (0.8 * centres[y] + rng.standard_normal((nodes, 8))).astype(np.float32)
    same = [np.flatnonzero(y == c) for c in range(len(SHARES))]
    ends = [
        [u, int(rng.choice(same[y[u]])) if rng.random() < 0.7 else int(rng.integers(nodes))]
        for u in range(nodes)
        for _ in range(2)
    ]
    return Graph.from_arrays("imbalanced", np.array(ends).T, x, y, class_names=NAMES)


def table(names: Sequence[str], graph: Graph, seeds: Sequence[int], rounds: int, clients: int) -> str:
    """The table in Markdown: without weights -> with balanced ones, the mean over seeds."""
    lines = ["| method | " + " | ".join(SHOWN) + " |", "|---" * (len(SHOWN) + 1) + "|"]
    for name in names:
        values: dict[str, list[float]] = {}
        for weights in ("none", "balanced"):
            run = fedquilt.run(
                name,
                graph,
                clients=clients,
                partition="random",
                rounds=rounds,
                seeds=list(seeds),
                metric="balanced-accuracy",
                class_weights=weights,
                prepare="none",  # the features are made on one scale
                device="cpu",
            )
            for metric in SHOWN:
                each = [seed["figures"][metric] for seed in run.result["seeds"]]
                values.setdefault(metric, []).append(statistics.fmean(each))
        digits = {metric: 2 if metric == "log-loss" else 1 for metric in SHOWN}
        cells = [f"{none:.{digits[m]}f} -> {weighted:.{digits[m]}f}" for m, (none, weighted) in values.items()]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--methods", default=",".join(methods()))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=3)
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    print(table(asked.methods.split(","), imbalanced(), seeds, asked.rounds, asked.clients))


if __name__ == "__main__":
    main()
