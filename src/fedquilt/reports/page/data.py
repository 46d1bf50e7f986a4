"""The content of an HTML report: text, tables, and for each run the numbers of its charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedquilt.errors import unknown

TONES = ("", "best", "exceeded", "reached", "missed", "head", "muted", "diagonal")


@dataclass(frozen=True)
class HeaderCell:
    """A cell of a table's header, over `colspan` columns and `rowspan` rows of the header."""

    text: str
    colspan: int = 1
    rowspan: int = 1


@dataclass(frozen=True)
class PageCell:
    """A cell of a table: its text, a smaller note under it, and its tone.

    `tone` is "best", "exceeded", "reached", "missed", "muted", "head" (names its row), "diagonal" (of a matrix), or "". Each
    has its own sign or font weight, so that colour alone never carries meaning.
    """

    text: str
    note: str = ""
    tone: str = ""

    def __post_init__(self) -> None:
        if self.tone not in TONES:
            raise unknown("tone", self.tone, [tone for tone in TONES if tone])


@dataclass(frozen=True)
class PageTable:
    """A table: a title, a caption that says how to read it, the header's rows, and the rows; `folded` shows the title only."""

    title: str
    caption: str
    headers: tuple[tuple[HeaderCell, ...], ...]
    rows: tuple[tuple[PageCell, ...], ...]
    folded: bool = False


@dataclass(frozen=True)
class PageFacts:
    """Names and values under a title, and optionally a command or the text of a file."""

    title: str
    pairs: tuple[tuple[str, str], ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Curve:
    """The mean over seeds against the round; None where nothing was evaluated.

    `best` is the position of the round with the best validation among those with a test value.
    """

    rounds: tuple[int, ...] = ()
    test: tuple[float | None, ...] = ()
    deviation: tuple[float | None, ...] = ()
    val: tuple[float | None, ...] = ()
    best: int | None = None


@dataclass(frozen=True, eq=False)
class Similarity:
    """The similarity of clients after one round.

    Attributes:
        round: the round; -1 where it is not known (the best round of a seed without records).
        best: whether it is the best round.
        levels: [K, M, M] int16, a matrix for each latent factor: 0 is that factor's `low`, 1000 its `high`, -1 no value.
        low, high: a number for each factor: the range of the values off the diagonal.
        block: how many clients in a row share a row of the matrix; 1 unless there are very many clients.
    """

    round: int
    best: bool
    levels: np.ndarray
    low: tuple[float, ...]
    high: tuple[float, ...]
    block: int = 1


@dataclass(frozen=True)
class Holdings:
    """How many nodes each client holds, and how many of each class where that is known.

    With very many clients, an entry is for `block` clients in a row; with very many classes, the last class is all
    others together. `names` are those of the clients, where they have names.
    """

    sizes: tuple[int, ...]
    classes: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()
    block: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ViewShares:
    """The weights of a method's views of a graph, each row with sum 1.

    Attributes:
        names: of the V views.
        clients: V weights for each client after the last round, None for one that is not known; with very many clients, the
            means over `block` clients in a row.
        rounds, by_round: rounds, and the V weights by everyone's votes after each of them.
        last: the last round, where it is known.
    """

    names: tuple[str, ...]
    clients: tuple[tuple[float, ...] | None, ...]
    block: int = 1
    rounds: tuple[int, ...] = ()
    by_round: tuple[tuple[float, ...], ...] = ()
    last: int | None = None


@dataclass(frozen=True)
class PageSeed:
    """One seed of a run.

    `tests` are the clients' test metrics at the best round, `clients` the clients' numbers. `names` are those of all clients,
    by their numbers, where they have names. `views` are there where the method has several views of a graph.
    """

    seed: int
    best_round: int | None
    clients: tuple[int, ...] = ()
    tests: tuple[float | None, ...] = ()
    similarities: tuple[Similarity, ...] = ()
    holdings: Holdings | None = None
    names: tuple[str, ...] = ()
    views: ViewShares | None = None


@dataclass(frozen=True)
class PageRun:
    """The numbers of one run's charts; `read_page_run` reads them from run folders.

    Attributes:
        label: its name in charts: unique among the runs of a setting, the same for a method in all settings.
        setting: what it was trained on; the page shows one setting at a time.
        method, metric: their names.
        curve: its convergence.
        seeds: what is shown for each seed.
        upload, download: bytes a round over all clients, by the name of the tensor.
        timings: seconds a round, by what was done.
        facts: settings, environment, versions.
        command: the command that runs it again.
    """

    label: str
    setting: str
    method: str
    metric: str = "accuracy"
    curve: Curve = field(default_factory=Curve)
    seeds: tuple[PageSeed, ...] = ()
    upload: Mapping[str, float] = field(default_factory=dict)
    download: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    facts: tuple[PageFacts, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title, lead: the heading, and the main result in a sentence.
        notes: sentences to read before the numbers.
        tables: the results.
        runs: the numbers of the charts; a page may have none.
        facts: facts about the whole page, shown beside those of each run.
        about: when, with what and on what the runs were trained, in a line.
    """

    title: str
    lead: str = ""
    notes: tuple[str, ...] = ()
    tables: tuple[PageTable, ...] = ()
    runs: tuple[PageRun, ...] = ()
    facts: tuple[PageFacts, ...] = ()
    about: str = ""
