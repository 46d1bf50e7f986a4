"""The one judge of how a command ended."""

from __future__ import annotations

import re
from pathlib import Path

from fuzz.processes import CRASHED, Ended

FINE, WRONG_INPUT, LIMIT = 0, 2, 3
# `study run` ends with 1 where cells failed and the report says why.
_FAILED_CELLS = ("study", "run")
_ESCAPES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


class Failed(Exception):  # noqa: N818 - an attempt that found something, not an error
    """An attempt found something: `what` is a word to count by, the text says the rest."""

    def __init__(self, what: str, text: str) -> None:
        super().__init__(text)
        self.what = what


def judge(ended: Ended, statuses: tuple[int, ...] = (FINE, WRONG_INPUT, LIMIT)) -> Ended:
    """Return a command that ended as any command may: with its result, or with one sentence and status 2 or 3."""
    shown = f"`fedquilt {' '.join(ended.command)}` ended with status {ended.status}: {ended.err.strip()[-1500:]}"
    if ended.over:
        raise Failed(f"too much {ended.over}", f"{shown} (killed: {ended.cpu:.0f} s of CPU, {ended.peak_mb:.0f} MB)")
    if ended.status == CRASHED or "Traceback (most recent call last)" in ended.said:
        raise Failed("traceback", shown)
    if "went wrong inside" in ended.said:
        raise Failed("defect told", shown)
    if ended.status < 0:
        raise Failed("ended by a signal", shown)
    escape = _ESCAPES.search(ended.said.replace("\r\n", "\n"))
    if escape:
        raise Failed("raw control character", f"{shown} (it printed {escape[0]!r})")
    if ended.status not in statuses and not (ended.status == 1 and tuple(ended.command[:2]) == _FAILED_CELLS):
        raise Failed("status", shown)
    if ended.status in (WRONG_INPUT, LIMIT):
        last = last_sentence(ended)
        if not last.startswith("fedquilt: ") or last[-1] not in ".?":
            raise Failed("no sentence", shown)
    return ended


def last_sentence(ended: Ended) -> str:
    """The sentence with which a command was refused, and the lines of its details, which are indented."""
    lines = ended.err.rstrip().splitlines()
    start = next((at for at in range(len(lines) - 1, -1, -1) if not lines[at].startswith("  ")), 0)
    return " ".join(line.strip() for line in lines[start:])


def leftovers(folder: Path) -> list[str]:
    """Temporary files in a folder, which no command may leave behind."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ".tmp" in path.name or (path.name.startswith(".") and not path.name.endswith("lock") and path.is_file())
    )


def no_leftovers(folder: Path) -> None:
    """Fail where a command left temporary files."""
    left = leftovers(folder)
    if left:
        raise Failed("leftover", f"left behind: {', '.join(left[:5])}")


def numbers(text: str) -> set[str]:
    """The numbers that a text shows."""
    return set(_NUMBER.findall(text))


def named(path: Path, ended: Ended) -> bool:
    """Whether the last sentence names a file: by its name, or a pair of files by the name both have."""
    sentence = last_sentence(ended)
    return path.name in sentence or (len(path.stem) > 3 and path.stem in sentence)
