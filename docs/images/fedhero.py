"""Draws fedhero.svg, the figure of FedHERO's section in docs/fidelity.md: `python docs/images/fedhero.py`."""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
NUMBERS = HERE.parent / "results" / "mechanisms" / "fedhero.json"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GRAPHS = {"actor": "Actor", "squirrel": "Squirrel", "chameleon": "Chameleon", "cora": "Cora", "syn": "syn-cora"}
VARIANTS = {
    "base": "learned",
    "frozen": "not trained",
    "knn": "nearest features",
    "random": "random",
    "self": "itself only",
    "share=none": "learned, nothing shared",
}


def value(rows: dict, row: str, name: str) -> float:
    """A number, or NaN where the row was not run."""
    return rows.get(row, {}).get(name, np.nan)


def variants(ax: plt.Axes, rows: dict) -> None:
    """Validation accuracy of each latent graph, relative to a random one."""
    width = 0.8 / (len(VARIANTS) - 1)
    shown = [name for name in VARIANTS if name != "random"]
    for i, name in enumerate(shown):
        heights = [value(rows, f"{graph} {name}", "val") - rows[f"{graph} random"]["val"] for graph in GRAPHS]
        places = np.arange(len(GRAPHS)) + (i - (len(shown) - 1) / 2) * width
        ax.bar(places, heights, width, color=COLOURS[i], label=VARIANTS[name])
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(GRAPHS)), GRAPHS.values())
    ax.set_ylabel("points of validation accuracy")
    ax.set_title("Latent graphs, against random neighbours")
    ax.legend(frameon=False, fontsize=7, loc="upper left")


def homophily(ax: plt.Axes, rows: dict) -> None:
    """Of the learned graph at training and at validation nodes, of the given graph and by chance."""
    shown = {
        "latent.homophily": "latent, training nodes",
        "latent.unseen": "latent, validation nodes",
        "latent.given": "given graph",
        "latent.chance": "chance",
    }
    width = 0.8 / len(shown)
    for i, (name, label) in enumerate(shown.items()):
        places = np.arange(len(GRAPHS)) + (i - (len(shown) - 1) / 2) * width
        ax.bar(places, [value(rows, f"{graph} base", name) for graph in GRAPHS], width, color=COLOURS[i], label=label)
    ax.set_xticks(range(len(GRAPHS)), GRAPHS.values())
    ax.set_ylabel("percent")
    ax.set_title("Neighbours of the same class")
    ax.legend(frameon=False, fontsize=7)


def over_rounds(ax: plt.Axes, rows: dict) -> None:
    """How far the shared learner moves, and how far clients are apart."""
    rounds = [*range(1, 201, 10), 200]
    for colour, (graph, label) in zip(COLOURS, GRAPHS.items(), strict=False):
        found = rows[f"{graph} base"]["diagnostics"]
        ax.plot(rounds, found["learner_change"], color=colour, label=label)
        ax.plot(rounds, found["learner_spread"], color=colour, ls=":")
    ax.set_xlabel("round")
    ax.set_ylabel("relative to the norm")
    ax.set_title("Learner: change since the start (dotted: between clients)")
    ax.legend(frameon=False, fontsize=7)


def links(ax: plt.Axes, rows: dict) -> None:
    """Links that are told right from representations."""
    shown = {"fedavg": "FedAvg", "fedper": "FedPer", "fedpub": "FED-PUB", "base": "FedHERO"}
    width = 0.8 / len(shown)
    for i, (name, label) in enumerate(shown.items()):
        places = np.arange(len(GRAPHS)) + (i - (len(shown) - 1) / 2) * width
        heights = [value(rows, f"{graph} {name}", "links.representations") for graph in GRAPHS]
        ax.bar(places, heights, width, color=COLOURS[i], label=label)
        marks = [value(rows, f"{graph} {name}", "links.weights") for graph in GRAPHS]
        ax.plot(places, marks, "k_", label="without the graph" if i == 0 else None)
    ax.axhline(50, color="black", lw=0.8, ls="--")
    ax.set_ylim(40, 90)
    ax.set_xticks(range(len(GRAPHS)), GRAPHS.values())
    ax.set_ylabel("percent of pairs told right")
    ax.set_title("Link inference (50: chance)")
    ax.legend(frameon=False, fontsize=7, ncols=2)


def main() -> None:
    """The figure."""
    mpl.rcParams.update({"font.size": 9, "svg.hashsalt": "fedhero", "svg.fonttype": "path"})
    rows = json.loads(NUMBERS.read_text(encoding="utf-8"))["ablations"]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    for ax, draw in zip(axes.flat, (variants, homophily, over_rounds, links), strict=True):
        draw(ax, rows)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "fedhero.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
