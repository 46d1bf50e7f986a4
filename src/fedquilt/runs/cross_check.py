"""Compare files of a run that say the same thing twice: a summary with its metrics, result.json with the summaries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedquilt.common.files import plain
from fedquilt.errors import FedquiltError

LATER = ("rounds_run", "retried")  # entries of a seed in result.json that earlier versions did not write
_TOLERANCE = 1e-9  # of two computations of one mean


def check_summary(path: Path, summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]], advice: str) -> None:
    """Refuse a seed's summary.json whose numbers are not those of its metrics.

    Compared is what every version wrote and what the records have: the best round's metrics, each client's too, the bytes and
    the number of rounds. Where the records lack something, nothing is compared with it.
    """
    best = next((record for record in records if record["round"] == summary.get("best_round")), None)
    expected: dict[str, Any] = {"rounds_run": len(records)} if records else {}
    if best is None and records:
        raise FedquiltError(f"{path} names a best round that metrics.jsonl does not have; {advice}.")
    if best is not None:
        clients = best.get("clients")
        expected |= {name: best[name] for name in ("val", "test") if name in best}
        expected |= {"clients_test": clients["test"]} if isinstance(clients, Mapping) and "test" in clients else {}
    for name, part in (("upload_bytes", "bytes_up"), ("download_bytes", "bytes_down")):
        if records and all(part in record for record in records):
            expected[name] = sum(sum(record[part].values()) for record in records)
    for name, value in expected.items():
        if name in summary and not same(summary[name], value):
            said = f"its {name} is {_text(summary[name])}, and by metrics.jsonl it is {_text(value)}"
            raise FedquiltError(f"{path} was changed: {said}; {advice}.")


def check_result(path: Path, result: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Refuse a result.json that does not say what the summaries of its seeds say."""
    expected = {**expected, "seeds": _as_stored(expected.get("seeds"), result.get("seeds"))}
    for name in dict.fromkeys([*expected, *result]):
        if not same(result.get(name), expected.get(name)):
            said = f"its {name} is {_text(result.get(name))}, and by the seeds' summaries it is {_text(expected.get(name))}"
            raise FedquiltError(f"{path} was changed: {said}; delete it and resume the run, which writes it again.")


def _as_stored(expected: Any, stored: Any) -> Any:
    """The expected entries of seeds without those that results of earlier versions lack."""
    if not (isinstance(expected, list) and isinstance(stored, list) and len(expected) == len(stored)):
        return expected
    return [
        {name: value for name, value in one.items() if name not in LATER or name in other}
        if isinstance(one, Mapping) and isinstance(other, Mapping)
        else one
        for one, other in zip(expected, stored, strict=True)
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, numbers up to rounding."""
    one, other = plain(one), plain(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(one == other)


def _text(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
