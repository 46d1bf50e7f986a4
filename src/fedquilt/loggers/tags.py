"""What is logged, and under which names: the same in every tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLIENTS_TEST = "clients/test"
# All histograms of percentages have these edges, so that rounds can be compared.
EDGES = [2.0 * edge for edge in range(51)]


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """A round's metrics: val, test, loss/train, loss/val, epsilon, bytes_up/<name>, bytes_down/<name>, timings/<name>, seconds.

    A metric that is undefined, or was not evaluated in this round, is left out. `seconds` is always there, and last.
    """
    named: dict[str, Any] = {
        "val": record.get("val"),
        "test": record.get("test"),
        "loss/train": record.get("train_loss"),
        "loss/val": record.get("val_loss"),
        "epsilon": record.get("epsilon"),
    }
    for group, former in (("bytes_up", ""), ("bytes_down", ""), ("timings", "phases")):
        named |= {f"{group}/{name}": value for name, value in (record.get(group) or record.get(former, {})).items()}
    named["seconds"] = record["seconds"]
    return {tag: float(value) for tag, value in named.items() if value is not None}


def clients_test(record: Mapping[str, Any]) -> list[float]:
    """The clients' test metrics where they are defined; an empty list where the round was not evaluated."""
    return [value for value in record.get("clients", {}).get("test", ()) if value is not None]


def best(summary: Mapping[str, Any]) -> dict[str, float]:
    """The best validation round of a seed, and its validation and test metric."""
    named = {"best/val": summary["val"], "best/test": summary["test"], "best/round": summary["best_round"]}
    return {tag: float(value) for tag, value in named.items() if value is not None}


def hyperparameters(
    options: Mapping[str, Any], settings: Mapping[str, Any], seed: int
) -> dict[str, bool | int | float | str]:
    """All that determines a seed: the run's options, the method's settings as settings/<name>, and the seed."""
    named = {name: value for name, value in options.items() if name not in ("seeds", "settings")} | {"seed": seed}
    named |= {f"settings/{name}": value for name, value in settings.items()}
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in named.items()
        if value is not None
    }
