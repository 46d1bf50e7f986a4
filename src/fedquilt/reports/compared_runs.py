"""`ComparedRuns`: what `fedquilt.compare` returns, a list of runs with a table and a figure."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fedquilt.common.console import console_class
from fedquilt.errors import FedquiltError, unknown
from fedquilt.reports.figures import convergence_figure
from fedquilt.reports.names import method_title
from fedquilt.reports.tables import comparison_table
from fedquilt.runs.failed_method import FAILED
from fedquilt.runs.finished import Run
from fedquilt.runs.frames import Row, frame, html_table

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_WIDTH = 130


class ComparedRuns(Sequence[Run]):
    """The runs of a comparison, in its order: a sequence of `Run`, which is also found by its method's name.

    Attributes:
        runs: those that have a result.
        results: in the order of the comparison, each run's result.json, or what is known of one that failed.
        folder: the comparison's folder; None for one in memory.
    """

    def __init__(
        self, runs: Sequence[Run], folder: Path | None = None, results: Sequence[dict[str, Any]] | None = None
    ) -> None:
        self.runs = list(runs)
        self.results = [run.result for run in self.runs] if results is None else list(results)
        self.folder = folder

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    @overload
    def __getitem__(self, which: int | str) -> Run: ...

    @overload
    def __getitem__(self, which: slice) -> list[Run]: ...

    def __getitem__(self, which: int | str | slice) -> Run | list[Run]:
        if not isinstance(which, str):
            return self.runs[which]
        named = {str(run.result["method"]): run for run in self.runs}
        if which not in named:
            raise unknown("run of the method", which, named)
        return named[which]

    @property
    def table(self) -> pandas.DataFrame:
        """A row for each method: test and validation means, deviation over seeds, best round, seconds and megabytes a round."""
        return frame(self._rows()).set_index("method")

    def plot(self) -> Figure:
        """Validation (thin) and test (bold) against the round, a line for each method, as a matplotlib figure."""
        if not self.runs:
            raise FedquiltError("No method of the comparison has a result, so there is nothing to plot.")
        curves = {method_title(run.result["method"]): list(run.records.values()) for run in self.runs}
        return convergence_figure(curves, str(self.runs[0].result["metric"]))

    def _rows(self) -> list[Row]:
        return [_row(result) for result in self.results]

    def __str__(self) -> str:
        out = io.StringIO()
        console_class()(file=out, width=_WIDTH, highlight=False, markup=False).print(comparison_table(self.results))
        return out.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return f"<ComparedRuns: {', '.join(map(repr, self.runs))}>"

    def _repr_html_(self) -> str:
        return html_table(self._rows(), f"{len(self.results)} methods, metrics over seeds")


def _row(result: dict[str, Any]) -> Row:
    """A result in one row; what a run that failed does not have is left out."""
    known: dict[str, Any] = {"method": result["method"]}
    known |= {name: result.get(name) for name in ("test_mean", "test_std", "val_mean")}
    seeds = result.get("seeds") or []
    if seeds:
        rounds = [max(1, seed.get("rounds_run") or result.get("rounds") or 1) for seed in seeds]
        known["best_round"] = sum(seed["best_round"] for seed in seeds) / len(seeds)
        known["seconds_per_round"] = sum(seed["seconds_per_round"] for seed in seeds) / len(seeds)
        for name in ("upload", "download"):
            each = [seed[f"{name}_bytes"] / count / 1e6 for seed, count in zip(seeds, rounds, strict=True)]
            known[f"{name}_mb_per_round"] = sum(each) / len(each)
    return known | ({FAILED: result[FAILED]} if result.get(FAILED) else {})
