"""A run's rounds and clients as tables: rows of plain values, and pandas' DataFrame of them where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedquilt.errors import FedquiltError
from fedquilt.runs.result import CLIENT_NAMES

if TYPE_CHECKING:
    import pandas

Row = dict[str, Any]
Records = Mapping[int, Sequence[Mapping[str, Any]]]


def pandas_module() -> Any:
    """The module pandas; an error that says what to install where it is missing."""
    try:
        import pandas
    except ImportError as error:
        raise FedquiltError("DataFrames need pandas; install it with: pip install 'fedquilt[pandas]'.") from error
    return pandas


def frame(rows: Sequence[Row]) -> pandas.DataFrame:
    """A DataFrame of the rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pandas_module().DataFrame(rows, columns=columns)


def history_rows(records: Records) -> list[Row]:
    """A row for each seed and round: metrics, losses, bytes over all clients, seconds, and the method's diagnostics.

    Metrics are missing (None) in rounds without an evaluation.
    """
    return [
        {
            "seed": seed,
            "round": record["round"],
            **{name: record.get(name) for name in ("val", "test", "train_loss", "val_loss")},
            "bytes_up": sum(record["bytes_up"].values()),
            "bytes_down": sum(record["bytes_down"].values()),
            "seconds": record["seconds"],
            **{name: record[name] for name in ("epsilon",) if name in record},
            **record.get("diagnostics", {}),
        }
        for seed, rounds in records.items()
        for record in rounds
    ]


def client_rows(result: Mapping[str, Any], records: Records) -> list[Row]:
    """A row for each seed and client: its validation and test metric in the seed's best round, and its name if it has one."""
    best = {seed["seed"]: seed["best_round"] for seed in result["seeds"]}
    names = {seed["seed"]: seed.get(CLIENT_NAMES) for seed in result["seeds"]}
    rows: list[Row] = []
    for seed, rounds in records.items():
        chosen = next((record for record in rounds if record["round"] == best.get(seed) and "clients" in record), None)
        if chosen is None:
            continue
        pairs = zip(chosen["clients"]["val"], chosen["clients"]["test"], strict=True)
        called = names.get(seed)
        rows += [
            {"seed": seed, "client": m}
            | ({"name": called[m]} if called and m < len(called) else {})
            | {"round": chosen["round"], "val": val, "test": test}
            for m, (val, test) in enumerate(pairs)
        ]
    return rows


def html_table(rows: Sequence[Row], caption: str) -> str:
    """The rows as an HTML table, for notebooks."""
    from html import escape

    def cell(value: Any) -> str:
        return "" if value is None else escape(f"{value:.2f}" if isinstance(value, float) else str(value))

    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell(row.get(name))}</td>' for name in names)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
