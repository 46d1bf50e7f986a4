"""Tables with cells, lines and encodings that tables of people have."""

from __future__ import annotations

import random
from collections.abc import Callable

from fuzz.odd_values import ESCAPE


def odd_csv(good: str, rng: random.Random) -> tuple[bytes, str]:
    """A table that was meant to be `good`, and what is odd about it."""
    if rng.random() < 0.5:
        cell = rng.choice(_CELLS)
        return _with_cell(good, cell, rng).encode("utf-8", "surrogatepass"), f"a cell {cell[:20]!r}"
    sort = rng.choice(sorted(_FILES))
    return _FILES[sort](good, rng), sort


_CELLS = [
    *(
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "3e38",
        "-3.4e38",
        "0x10",
        "1_000",
        "１２",
        "1,5",
        '"',
        '""',
        "'",
        '"open',
    ),
    *(
        "\x00",
        ESCAPE,
        "a\ud800b",
        "x" * 200_000,
        "=cmd()",
        "9" * 5000,
        "\r",
        "\u2028",
        "c1\nc2",
        "True",
        "None",
        "-1",
        "+1",
        "1e-400",
    ),
]


def _with_cell(good: str, cell: str, rng: random.Random) -> str:
    lines = good.splitlines()
    row = rng.randrange(len(lines))
    cells = lines[row].split(",")
    cells[rng.randrange(len(cells))] = cell
    lines[row] = ",".join(cells)
    return "\n".join(lines) + "\n"


def _lines(change: Callable[[list[str], random.Random], list[str]]) -> Callable[[str, random.Random], bytes]:
    return lambda good, rng: ("\n".join(change(good.splitlines(), rng)) + "\n").encode()


_FILES: dict[str, Callable[[str, random.Random], bytes]] = {
    "empty": lambda good, rng: b"",
    "only a header": _lines(lambda lines, rng: lines[:1]),
    "no header": _lines(lambda lines, rng: lines[1:]),
    "a line twice": _lines(lambda lines, rng: [*lines, rng.choice(lines)]),
    "a short line": _lines(lambda lines, rng: [*lines, "n1"]),
    "a long line": _lines(lambda lines, rng: [*lines, ",".join(["n1"] * 5000)]),
    "blank lines": _lines(lambda lines, rng: [lines[0], "", "", *lines[1:]]),
    "semicolons": lambda good, rng: good.replace(",", ";").encode(),
    "tabs": lambda good, rng: good.replace(",", "\t").encode(),
    "old Mac line ends": lambda good, rng: good.replace("\n", "\r").encode(),
    "Windows line ends": lambda good, rng: good.replace("\n", "\r\n").encode(),
    "a BOM": lambda good, rng: b"\xef\xbb\xbf" + good.encode(),
    "UTF-16": lambda good, rng: good.encode("utf-16"),
    "latin-1": lambda good, rng: good.replace("n1", "n\u00e9").encode("latin-1"),
    "NUL bytes": lambda good, rng: good.replace("n2", "n\x002").encode(),
    "all NUL": lambda good, rng: bytes(3000),
    "random": lambda good, rng: rng.randbytes(2000),
    "an open quote": lambda good, rng: good.replace("n3", '"n3', 1).encode(),
    "cut short": lambda good, rng: good.encode()[: rng.randrange(len(good))],
    "a column twice": _lines(lambda lines, rng: [line + "," + line.split(",")[-1] for line in lines]),
    "a column less": _lines(lambda lines, rng: [",".join(line.split(",")[1:]) for line in lines]),
    "many columns": _lines(
        lambda lines, rng: [",".join([line, *(f"{n}" for n in range(3000))]) for line in lines[:20]]
    ),
    "a name with escapes": lambda good, rng: good.replace("f0", ESCAPE).replace("source", ESCAPE).encode(),
    "a long name": lambda good, rng: good.replace("n4", "n" * 140_000).encode(),
}
