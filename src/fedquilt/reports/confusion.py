"""How well each class is found: all metrics, recall and precision by class, and the confusion matrix, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fedquilt.errors import FedquiltError
from fedquilt.reports.names import metric_name
from fedquilt.reports.read_run import StoredRun, StoredSeed
from fedquilt.runs.result import CLIENT_NAMES

# In a table with a column a metric.
_SHORT = {
    "auc": "AUC",
    "balanced-accuracy": "Bal. acc.",
    "average-precision": "Avg. prec.",
    "ece": "ECE",
}
MOST_SHOWN = 20  # classes in a table of a page or a terminal; the most frequent ones are shown


@dataclass(frozen=True, eq=False)
class Confusion:
    """Test nodes by true and by predicted class.

    Attributes:
        names: the C names of the classes, or their numbers.
        labelled, predicted, right: [C] test nodes of a class, those predicted to be of it, and those of both.
        counts: [C, C] true by predicted; None where there are too many classes to store it.
        whose: what was counted, such as "5 clients, 3 seeds".
    """

    names: tuple[str, ...]
    labelled: np.ndarray
    predicted: np.ndarray
    right: np.ndarray
    counts: np.ndarray | None
    whose: str

    @property
    def shown(self) -> list[int]:
        """The classes that are shown: all that occur, or the most frequent where there are very many."""
        occurring = np.flatnonzero(self.labelled + self.predicted)
        if len(occurring) <= MOST_SHOWN:
            return occurring.tolist()
        order = np.argsort(-self.labelled[occurring], kind="stable")[:MOST_SHOWN]
        return sorted(occurring[order].tolist())

    @property
    def left_out(self) -> str:
        """A sentence about the classes that are not shown; "" where all are."""
        left = int(np.count_nonzero(self.labelled + self.predicted)) - len(self.shown)
        return f"The {left} rarest classes are left out." if left else ""


def confusion_of(run: StoredRun, client: int | str | None = None) -> Confusion | None:
    """The counts of a run, summed over its finished seeds and its clients or those of one client; None where it has none.

    A client is meant by its number or its name. One that was held out in a seed counts in the others.
    """
    seeds = [(seed, seed.summary) for seed in run.seeds if seed.summary and seed.summary.get("confusion")]
    if not seeds:
        if client is not None:
            raise FedquiltError(
                f"The run in {run.folder} stored no confusion matrix; train it again with this version."
            )
        return None
    each = [summary["confusion"] for _, summary in seeds]
    names = tuple(run.class_names or map(str, range(len(each[0]["labelled"]))))
    seed_words = _count(len(seeds), "seed")
    if client is not None:
        named = [list(map(str, one.get(CLIENT_NAMES) or [])) for _, one in seeds]
        client = _chosen_client(client, named)
        having = [(seed, known) for (seed, _), known in zip(seeds, named, strict=True) if not known or client in known]
        own = np.sum(
            [_client_counts(seed, known.index(str(client)) if known else client) for seed, known in having], axis=0
        )
        called = f"client {client}" if isinstance(client, int) else client
        whose = f"{called}, {_count(len(having), 'seed')}"
        return Confusion(names, own.sum(1), own.sum(0), own.diagonal(), own, whose)
    labelled, predicted, right = (
        np.sum([np.asarray(one[key]) for one in each], axis=0) for key in ("labelled", "predicted", "right")
    )
    whole = all("counts" in one for one in each)
    counts = np.sum([np.asarray(one["counts"]) for one in each], axis=0) if whole else None
    whose = f"{_count(len(seeds[0][1]['clients_test']), 'client')}, {seed_words}"
    return Confusion(names, labelled, predicted, right, counts, whose)


def class_table(confusion: Confusion) -> Table:
    """A row a class: its test nodes, how many of them are found (recall), and how many of those predicted are right."""
    table = Table(title=f"Classes: {confusion.whose}, test nodes", title_justify="left", title_style="bold")
    table.add_column("Class")
    for heading in ("Test nodes", "Predicted", "Recall %", "Precision %", "F1 %"):
        table.add_column(heading, justify="right")
    for c in confusion.shown:
        right, labelled, predicted = (int(a[c]) for a in (confusion.right, confusion.labelled, confusion.predicted))
        table.add_row(
            Text(confusion.names[c]),
            f"{labelled:,}",
            f"{predicted:,}",
            _share(right, labelled),
            _share(right, predicted),
            _share(2 * right, labelled + predicted),
        )
    return table


def matrix_table(confusion: Confusion) -> Table | None:
    """The matrix: a row a true class, a column a predicted one; what is right is bold. None where it is not stored."""
    if confusion.counts is None:
        return None
    table = Table(title=f"Confusion: {confusion.whose}, test nodes", title_justify="left", title_style="bold")
    table.add_column("True \\ predicted")
    for c in confusion.shown:
        table.add_column(Text(confusion.names[c]), justify="right")
    for true in confusion.shown:
        cells = [f"{int(confusion.counts[true, c]):,}" for c in confusion.shown]
        table.add_row(
            Text(confusion.names[true]),
            *(Text(cell, "bold" if c == true else "") for c, cell in zip(confusion.shown, cells, strict=True)),
        )
    return table


def figures_table(results: Sequence[Mapping[str, Any]]) -> Table | None:
    """All metrics on the test nodes at the best round; None where no run has them.

    Of one run a row a metric; of several a row a run, where the best value of each metric is bold.
    """
    measured = [result for result in results if result.get("figures")]
    if not measured:
        return None
    metrics = list(dict.fromkeys(name for result in measured for name in result["figures"]))
    table = Table(title="All metrics, on test nodes", title_justify="left", title_style="bold")
    if len(results) == 1:
        for heading in ("Metric", "Test", "Better"):
            table.add_column(heading, justify="right" if heading == "Test" else "left")
        for name in metrics:
            known = metric_name(name)
            table.add_row(known.label, _value(measured[0], name), "higher" if known.higher_is_better else "lower")
        return table
    table.add_column("Method")
    for name in metrics:
        heading = _SHORT.get(name) or metric_name(name).heading
        table.add_column(heading if metric_name(name).higher_is_better else f"{heading} ↓", justify="right")
    best = {name: _best(measured, name) for name in metrics}
    for result in measured:
        row = [Text(str(result["method"]))]
        for name in metrics:
            mean = result["figures"].get(name, {}).get("test_mean")
            row.append(Text(_value(result, name), "bold" if mean is not None and mean == best[name] else ""))
        table.add_row(*row)
    return table


def run_tables(run: StoredRun, client: int | str | None = None) -> list[Table]:
    """What `fedquilt show` prints of one run beside its results: all metrics, the classes, the confusion matrix."""
    result, confusion = run.result, confusion_of(run, client)
    figures = None if result is None or client is not None else figures_table([result])
    found = [figures] if confusion is None else [figures, class_table(confusion), matrix_table(confusion)]
    return [table for table in found if table is not None]


def _chosen_client(client: int | str, named: Sequence[Sequence[str]]) -> int | str:
    """The name of the client that is meant by a name or a number, or its number where clients have no names.

    `named` has the names of each seed; a number is that of the first seed.
    """
    if any(str(client) in names for names in named):
        return str(client)
    number = int(client) if str(client).isdecimal() else -1
    if not named[0] and number >= 0:
        return number
    if 0 <= number < len(named[0]):
        return named[0][number]
    known = ", ".join(dict.fromkeys(name for names in named for name in names)) or "their numbers"
    raise FedquiltError(f"The run has no client {client}; choose one of: {known}.")


def _client_counts(seed: StoredSeed, client: Any) -> np.ndarray:
    """[C, C] of one client in one seed, by its number."""
    counts = (seed.folder.load_arrays("confusion") or {}).get("counts")
    if counts is None:
        raise FedquiltError("The run stored no confusion matrix of single clients: there were too many of them.")
    if not 0 <= client < len(counts):
        raise FedquiltError(f"The run has no client {client}; choose one of 0 to {len(counts) - 1}.")
    return np.asarray(counts[client], dtype=np.int64)


def _best(results: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    values = [result["figures"].get(metric, {}).get("test_mean") for result in results]
    known = [value for value in values if value is not None]
    choose = max if metric_name(metric).higher_is_better else min
    return choose(known) if known else None


def _value(result: Mapping[str, Any], metric: str) -> str:
    """A metric of a run: percentages with one decimal place, others with three; with its deviation over several seeds."""
    value = result["figures"].get(metric, {})
    mean, deviation = value.get("test_mean"), value.get("test_std")
    if mean is None:
        return "-"
    digits = 1 if metric_name(metric).percent else 3
    spread = f" ± {deviation:.{digits}f}" if len(result["seeds"]) > 1 and deviation is not None else ""
    return f"{mean:.{digits}f}{spread}"


def _share(part: int, whole: int) -> str:
    return f"{100.0 * part / whole:.1f}" if whole else "-"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
