"""The look of all figures: one font, one line weight, one palette that colour-blind readers can tell apart."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.common.files import write_bytes
from fedquilt.common.printable import printable
from fedquilt.errors import FedquiltError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, the colours with most contrast on white first, the yellow last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINE_COLOURS = PALETTE[:7]
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
INK = "#222222"
GREY = "#8C8C8C"
PALE = "#D9D9D9"
HEAT = "viridis"

_RC: Any = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 200,
    "figure.dpi": 100,
    # Text stays text in a paper's PDF and SVG, and the same figure is the same file.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedquilt",
}


@contextmanager
def styled() -> Iterator[None]:
    """Use our settings instead of matplotlib's and the user's for a `with` block."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RC)
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, sizes in inches. It is made without pyplot, so it needs no display and is freed when dropped."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colour(position: int) -> str:
    """The colour of the line at this position."""
    return LINE_COLOURS[position % len(LINE_COLOURS)]


def dash(position: int) -> Any:
    """The dash pattern of the line at this position: another one each time the colours repeat."""
    return DASHES[(position // len(LINE_COLOURS)) % len(DASHES)]


def class_colours(count: int) -> list[Any]:
    """A colour for each of up to 15 classes: the palette, black last, then lighter tints of all but black."""
    from matplotlib.colors import to_rgb

    hues = [to_rgb(colour) for colour in PALETTE if colour != "#000000"]
    tints = [tuple(1 - 0.45 * (1 - channel) for channel in hue) for hue in hues]
    return [*hues, to_rgb("#000000"), *tints][:count]


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure atomically, in the format that the path's suffix names."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise FedquiltError(f"Cannot draw '{path.name}'; its name should end in .png, .pdf or .svg.")
    # A date in the file would make each drawing of the same figure a different file.
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    buffer = io.BytesIO()
    with styled():
        figure.savefig(buffer, format=kind, metadata=undated)
    write_bytes(path, buffer.getvalue())


def class_label(number: int, names: Sequence[str] | None) -> str:
    """A class in a legend: its name, or its number. A dollar is no mathematics, and an underscore hides nothing."""
    if names is None or number >= len(names):
        return str(number)
    text = printable(names[number]).replace("$", "\\$")
    return f"\u200a{text}" if text.startswith("_") else text
