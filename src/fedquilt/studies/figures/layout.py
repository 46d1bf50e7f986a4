"""The layout of a study's figures: sizes, panels, titles and one legend."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fedquilt.reports import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12
WIDTH, NARROW = 7.0, 3.5  # inches: two columns of a page, and one
TEXT, SMALL = 8.0, 7.0  # points
OPEN: Any = {"marker": "D", "markerfacecolor": "white", "linestyle": "none"}  # the style of a published number
Item = TypeVar("Item")


def plain(text: str) -> str:
    """Text that Matplotlib shows as it is: dollars are no formula, and a leading underscore does not hide it in a legend."""
    text = " ".join(text.split()).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def level_name(axis: str, label: str) -> str:
    """The label of a level; a number gets the name of its axis."""
    if axis == "clients" and label.isdigit():
        return f"{label} clients"
    name = axis.replace("_", " ")
    return plain(label if number(label) is None else f"{name} = {label}")


def number(label: str) -> float | None:
    """A label as a finite number; None where it is none."""
    try:
        value = float(label)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def split_pages(items: Sequence[Item], most: int = MOST_PANELS) -> Iterator[Sequence[Item]]:
    """Split items into as few pages as possible, of about the same size."""
    if items:
        size = math.ceil(len(items) / math.ceil(len(items) / most))
        yield from (items[first : first + size] for first in range(0, len(items), size))


def column_count(count: int) -> int:
    """How many of `count` panels are side by side."""
    return {1: 1, 2: 2, 4: 2}.get(count, 3)


def new_panels(count: int, columns: int, height: float, below: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in `columns` columns, each `height` inches high, and `below` inches for a legend."""
    rows = math.ceil(count / columns)
    figure = style.new_figure(NARROW if columns == 1 else WIDTH, rows * height + below)
    places = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in places[count:]:
        axes.set_axis_off()
    for axes in places[:count]:
        axes.tick_params(labelsize=SMALL)
    return figure, places[:count]


def caption(all_axes: Sequence[Axes], titles: Sequence[str], columns: int, x: str, y: str) -> None:
    """Set the titles of the panels, and the names of the x axis in the lowest and of the y axis in the leftmost ones."""
    wide = NARROW if columns == 1 else WIDTH / columns
    for place, (axes, title) in enumerate(zip(all_axes, titles, strict=True)):
        axes.set_title(wrapped(title, wide), fontsize=TEXT)
        if place + columns >= len(all_axes):
            axes.set_xlabel(x, fontsize=TEXT)
        if place % columns == 0:
            axes.set_ylabel(wrapped(y, 1.6), fontsize=TEXT)


def wrapped(text: str, inches: float) -> str:
    """Text wrapped to lines of about this length."""
    return textwrap.fill(text, max(12, int(inches / 0.066)))


def legend(figure: Figure, keys: Sequence[Any]) -> None:
    """Draw one legend below all panels, in as many columns as fit."""
    keys = [key for key in keys if key.get_label()]
    if not keys:
        return
    longest = max(len(str(key.get_label())) for key in keys)
    fit = max(1, int((figure.get_figwidth() - 0.2) / (0.45 + 0.062 * longest)))
    figure.legend(
        handles=list(keys),
        loc="outside lower center",
        ncols=math.ceil(len(keys) / math.ceil(len(keys) / fit)),
        fontsize=SMALL + 0.5,
        handlelength=2.2,
        columnspacing=1.2,
        labelspacing=0.35,
    )


def legend_height(labels: Sequence[str], columns: int) -> float:
    """The height of `legend` in inches."""
    if not any(labels):
        return 0.1
    wide = (NARROW if columns == 1 else WIDTH) - 0.2
    fit = max(1, int(wide / (0.45 + 0.062 * max(map(len, labels)))))
    return 0.15 + 0.15 * math.ceil(len(labels) / fit)
