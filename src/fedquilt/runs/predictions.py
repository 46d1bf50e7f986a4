"""Predictions for the nodes of a graph, and the files they are written to: csv, json or parquet, by the ending."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.common.private_files import write_private_bytes
from fedquilt.errors import FedquiltError
from fedquilt.runs.frames import pandas_module
from fedquilt.tasks.base import Task

ENDINGS = (".csv", ".json", ".parquet")


@dataclass(frozen=True, eq=False)
class Predictions:
    """A model's predictions for every node of a graph, or those of several models.

    Attributes:
        task: what was learned; it says how predictions are written.
        ids: [n] the nodes' names, or their positions where they have none.
        values: [n, C] as `Task.predict` gives them, such as class probabilities.
        names: what the C values are called, or their numbers.
        warnings: one sentence for each thing about the graph that is allowed but worth knowing.
        clients: [n] whose model predicted, where there are several.
        parts: [n] the part of the split, train, val or test, or nothing; where the nodes are those of the training.
        labels: [n] the true class, or number; nothing, or NaN, where it is not known; of a pair, "edge" or "none".
        targets: [n] the other node of each pair, where pairs of nodes are predicted; `ids` has the one.
    """

    task: Task
    ids: np.ndarray
    values: np.ndarray
    names: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    clients: np.ndarray | None = None
    parts: np.ndarray | None = None
    labels: np.ndarray | None = None
    targets: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        models = "" if self.clients is None else f" by {len(set(self.clients.tolist()))} clients' models"
        if self.targets is not None:
            return f"<Predictions of {len(self):,} pairs of nodes{models}; see to_frame()>"
        classes = f" in {len(self.names)} classes" if self.task.has_classes else ""
        return f"<Predictions of {len(self):,} nodes{classes}{models}; see to_frame()>"

    @property
    def known(self) -> dict[str, np.ndarray]:
        """The columns beside the predictions: client, target, part and label, as far as they are known."""
        columns = {"client": self.clients, "target": self.targets, "part": self.parts, "label": self.labels}
        return {name: column for name, column in columns.items() if column is not None}

    def rows(self) -> Iterator[list[str]]:
        """The header, then a row a node: client, id, part, label (as far as they are known), and what the task writes."""
        heads = [name for name in ("client",) if name in self.known]
        tails = [name for name in ("target", "part", "label") if name in self.known]
        for place, (first, *rest) in enumerate(
            self.task.prediction_rows(self.ids.tolist(), self.values, self.names), start=-1
        ):
            before, after = (
                [name if place < 0 else _text(self.known[name][place]) for name in names] for names in (heads, tails)
            )
            yield [*before, first, *after, *rest]

    def columns(self) -> dict[str, np.ndarray]:
        """The same by column, numbers as numbers; `pandas.DataFrame` and `pyarrow.table` take it."""
        known = self.known
        out = {"client": known.pop("client")} if "client" in known else {}
        first = "id" if self.targets is None else "source"
        return out | {first: self.ids} | known | self.task.prediction_columns(self.ids, self.values, self.names)

    def to_frame(self) -> Any:
        """A pandas DataFrame with a row a node."""
        return pandas_module().DataFrame(self.columns())

    def write(self, path: Path) -> None:
        """As a file that only its owner may read; it appears complete or not at all. The ending says which kind."""
        check_ending(path)
        write = {".json": self._json, ".parquet": self._parquet}.get(Path(path).suffix.lower(), self._csv)
        try:
            write_private_bytes(Path(path), write())
        except OSError as error:
            raise FedquiltError(f"{path} cannot be written: {error.strerror}; choose another --out.") from error

    def _csv(self) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows())
        return text.getvalue().encode("utf-8")

    def _json(self) -> bytes:
        columns = {name: _without_nan(column) for name, column in self.columns().items()}
        rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        lines = ",\n".join(json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
        return f"[\n{lines}\n]\n".encode()

    def _parquet(self) -> bytes:
        import pyarrow
        import pyarrow.parquet as parquet

        table = pyarrow.table({name: pyarrow.array(_without_nan(column)) for name, column in self.columns().items()})
        sink = io.BytesIO()
        parquet.write_table(table, sink)
        return sink.getvalue()


def _text(value: Any) -> str:
    """A cell of a table; a number that is not known is empty."""
    if isinstance(value, np.floating):
        return "" if np.isnan(value) else f"{value:.9g}"
    return str(value)


def _without_nan(column: np.ndarray) -> list[Any]:
    """The values of a column, None for a number that is not known."""
    values: list[Any] = column.tolist()
    return [None if value != value else value for value in values] if column.dtype.kind == "f" else values


def check_ending(path: Path) -> None:
    """Refuse a file that predictions cannot be written to, before they are computed."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise FedquiltError(f"'{path}' has to end in {' or '.join(ENDINGS)}; rename it.")
    if ending == ".parquet" and find_spec("pyarrow") is None:
        raise FedquiltError(
            f"{path} needs pyarrow to be written; install it with `pip install 'fedquilt[tables]'`, or write a .csv file."
        )


def joined(each: list[Predictions]) -> Predictions:
    """Several clients' predictions, one after the other; all have the same names and the same columns."""
    first = each[0]

    def column(name: str) -> np.ndarray | None:
        return None if getattr(first, name) is None else np.concatenate([getattr(one, name) for one in each])

    return Predictions(
        task=first.task,
        ids=np.concatenate([one.ids for one in each]),
        values=np.concatenate([one.values for one in each]),
        names=first.names,
        warnings=tuple(dict.fromkeys(warning for one in each for warning in one.warnings)),
        clients=column("clients"),
        parts=column("parts"),
        labels=column("labels"),
        targets=column("targets"),
    )


def finite(values: np.ndarray, whose: str) -> np.ndarray:
    """The values; refused where one is not a number."""
    if not np.isfinite(values).all():
        raise FedquiltError(f"The model of {whose} gives no finite numbers; train it again, with a smaller lr.")
    return values
