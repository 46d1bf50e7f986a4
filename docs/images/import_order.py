"""Draw docs/images/import-order.svg: the folders of the package from the bottom up, their lines, and who imports whom.

python docs/images/import_order.py
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from tests.test_import_order import ORDER, folder, imports, modules  # noqa: E402

LEFT_OUT = {"__main__", "fedquilt", "errors"}


def main() -> None:
    """Draw it."""
    rooms = [name for name in ORDER if name not in LEFT_OUT]
    lines: Counter[str] = Counter()
    for module, path in modules().items():
        lines[folder(module)] += len(path.read_text(encoding="utf-8").splitlines())
    edges = Counter((folder(m), folder(o)) for m, others in imports().items() for o in others)
    plt.rcParams.update({"font.family": "sans-serif", "svg.hashsalt": "fedquilt", "font.size": 9})
    figure, axes = plt.subplots(figsize=(7.2, 9.2))
    place = {name: y for y, name in enumerate(rooms)}
    for name, y in place.items():
        box = FancyBboxPatch(
            (0, y + 0.14), 2.3, 0.72, boxstyle="round,pad=0,rounding_size=0.12", fc="#eef3f8", ec="#30506d"
        )
        axes.add_patch(box)
        axes.text(0.12, y + 0.5, name, va="center", weight="bold", color="#16304a")
        axes.text(2.2, y + 0.5, f"{lines[name]:,} lines", va="center", ha="right", color="#5a6b7b", fontsize=8)
    for (above, below), count in edges.items():
        if above != below and above in place and below in place:
            height = place[above] - place[below]
            arrow = FancyArrowPatch(
                (2.34, place[above] + 0.5),
                (2.34, place[below] + 0.5),
                connectionstyle=f"arc3,rad=-{min(0.9, 0.25 + 0.02 * height)}",
                arrowstyle="-|>",
                mutation_scale=7,
                lw=0.4 + 0.18 * count**0.5,
                color="#c2410c" if height < 0 else "#30506d",
                alpha=0.35,
            )
            axes.add_patch(arrow)
    axes.set_xlim(-0.1, 6.0)
    axes.set_ylim(-0.1, len(rooms) + 0.1)
    axes.axis("off")
    axes.set_title(
        "Imports point down: an arrow from a folder to one that it imports (width: how often)", loc="left", fontsize=10
    )
    figure.savefig(HERE / "import-order.svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
