"""What a run folder holds so far, whether the run is done or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError

COMPARISON = "compare.json"  # the configurations of a comparison's runs, in the order of its table


@dataclass(frozen=True)
class RunSoFar:
    """A run as it stands.

    Attributes:
        folder: where it is.
        config: what it was asked to do.
        result: as in result.json; of unfinished seeds, the best round so far. None before any evaluation.
        records: by seed, the rounds so far.
        clients_test: by seed, each client's test metric at the best round so far.
        unfinished: a sentence for each seed that is not done.
    """

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any] | None
    records: dict[int, list[dict[str, Any]]]
    clients_test: dict[int, list[float | None]]
    unfinished: list[str]

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])


def is_comparison(path: Path) -> bool:
    """Whether a folder holds several runs rather than being one."""
    if (path / "config.json").is_file() or not path.is_dir():
        return False
    return (path / COMPARISON).is_file() or bool(_inner(path))


def runs_of(path: Path) -> list[Path]:
    """The run folders of a comparison, in the order of its table; those not started yet are left out."""
    if (path / COMPARISON).is_file():
        return [path / c["method"] for c in configs_of(path) if (path / c["method"] / "config.json").is_file()]
    return _inner(path)


def configs_of(path: Path) -> list[dict[str, Any]]:
    """The configurations in a comparison's compare.json; none where `api.compare` made the folder."""
    try:
        configs = json.loads((path / COMPARISON).read_bytes())["configs"]
        if not all(isinstance(config["method"], str) for config in configs):
            raise ValueError
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise FedquiltError(f"{path / COMPARISON} cannot be read; resume the runs in {path} one by one.") from None
    return list(configs)


def read_run(path: Path) -> RunSoFar:
    """Read a run folder."""
    from fedquilt.runs.folder import RunFolder
    from fedquilt.runs.result import build_result

    folder = RunFolder.open(path)
    config = folder.config
    summaries, records, clients_test, unfinished = [], {}, {}, []
    for seed in config["seeds"]:
        place = folder.seed(seed)
        records[seed] = place.records()
        summary = place.summary
        if summary is None:
            summary = _so_far(seed, records[seed])
            unfinished.append(f"Seed {seed} is not done: {len(records[seed])} of {config['rounds']} rounds so far.")
        if summary is not None:
            summaries.append(summary)
            clients_test[seed] = summary["clients_test"]
    result = build_result(config, summaries) if summaries else None
    return RunSoFar(path, config, result, records, clients_test, unfinished)


def _so_far(seed: int, records: list[dict[str, Any]]) -> dict[str, Any] | None:
    """A summary of an unfinished seed from its records."""
    measured = [record for record in records if record.get("val") is not None]
    if not measured:
        return None
    best = max(measured, key=lambda record: record["val"])
    seconds = sum(record["seconds"] for record in records)
    return {
        "seed": seed,
        "best_round": best["round"],
        "val": best["val"],
        "test": best["test"],
        "seconds": seconds,
        "seconds_per_round": seconds / len(records),
        "upload_bytes": sum(sum(record["bytes_up"].values()) for record in records),
        "download_bytes": sum(sum(record["bytes_down"].values()) for record in records),
        "clients_test": best["clients"]["test"],
    }


def _inner(path: Path) -> list[Path]:
    return sorted(config.parent for config in path.glob("*/config.json"))
