"""What an HTML report shows: text, tables, and of each run the numbers that its charts need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedquilt.errors import unknown

TONES = ("", "best", "exceeded", "reached", "missed", "head", "muted")


@dataclass(frozen=True)
class HeaderCell:
    """A cell of a table's header, over `colspan` columns and `rowspan` rows of the header."""

    text: str
    colspan: int = 1
    rowspan: int = 1


@dataclass(frozen=True)
class PageCell:
    """A cell of a table: its text, a smaller note under it, and what it stands for.

    `tone` is "best", "exceeded", "reached", "missed", "muted", "head" (names its row), or nothing. Each has a sign
    or a weight of its own, so that nobody has to tell colours apart.
    """

    text: str
    note: str = ""
    tone: str = ""

    def __post_init__(self) -> None:
        if self.tone not in TONES:
            raise unknown("tone", self.tone, [tone for tone in TONES if tone])


@dataclass(frozen=True)
class PageTable:
    """A table: a title, a caption that says how to read it, the header's rows, and the rows."""

    title: str
    caption: str
    headers: tuple[tuple[HeaderCell, ...], ...]
    rows: tuple[tuple[PageCell, ...], ...]


@dataclass(frozen=True)
class PageFacts:
    """Names and values under a title, and a command or a file that belongs to them."""

    title: str
    pairs: tuple[tuple[str, str], ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Curve:
    """The mean over seeds against the round, in percent; None where nothing was measured."""

    rounds: tuple[int, ...] = ()
    test: tuple[float | None, ...] = ()
    deviation: tuple[float | None, ...] = ()
    val: tuple[float | None, ...] = ()


@dataclass(frozen=True, eq=False)
class Similarity:
    """Who resembles whom after one round.

    Attributes:
        round: after which; -1 where that is not known (the best round of a seed without records).
        best: whether it is the best round's.
        levels: [K, M, M] int16, a matrix for each latent factor: 0 is that factor's `low`, 1000 its `high`, -1 no value.
        low, high: a number for each factor: the range of the values off the diagonal.
        block: how many clients in a row share a place of the matrix; 1 unless there are very many.
    """

    round: int
    best: bool
    levels: np.ndarray
    low: tuple[float, ...]
    high: tuple[float, ...]
    block: int = 1


@dataclass(frozen=True)
class Holdings:
    """What each client holds: its nodes, and how many of each class where that is known.

    Where there are very many clients, a place is `block` clients in a row; where there are very many classes, the
    last one is all the others together.
    """

    sizes: tuple[int, ...]
    classes: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    block: int = 1


@dataclass(frozen=True)
class PageSeed:
    """One seed of a run.

    `tests` are the clients' test metrics at the best round, in percent; `clients` their numbers.
    """

    seed: int
    best_round: int | None
    clients: tuple[int, ...] = ()
    tests: tuple[float | None, ...] = ()
    similarities: tuple[Similarity, ...] = ()
    holdings: Holdings | None = None


@dataclass(frozen=True)
class PageRun:
    """What the charts show of one run; `read_page_run` makes it from run folders.

    Attributes:
        label: what to call it in a chart: unique among the runs of a setting, the same for a method in all of them.
        setting: what it was trained on; the page shows one setting at a time.
        method, metric: their names.
        curve: how it converged.
        seeds: what is told seed by seed.
        upload, download: bytes a round over all clients, by the name of what crosses.
        phases: seconds a round, by phase.
        facts: settings, environment, versions.
        command: how to run it again.
    """

    label: str
    setting: str
    method: str
    metric: str = "accuracy"
    curve: Curve = field(default_factory=Curve)
    seeds: tuple[PageSeed, ...] = ()
    upload: Mapping[str, float] = field(default_factory=dict)
    download: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    facts: tuple[PageFacts, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title, lead: what it is about, and the one thing to know.
        notes: sentences to read before the numbers.
        tables: the results.
        runs: what the charts show; none is possible.
        facts: what holds for the whole page, shown beside each run's own.
    """

    title: str
    lead: str = ""
    notes: tuple[str, ...] = ()
    tables: tuple[PageTable, ...] = ()
    runs: tuple[PageRun, ...] = ()
    facts: tuple[PageFacts, ...] = ()
