"""Read run folders, of finished runs and of runs that still train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedquilt.errors import FedquiltError
from fedquilt.reports.names import metric_name
from fedquilt.runs.comparison_folder import configs_of, failed_in, is_comparison, runs_of
from fedquilt.runs.failed_method import with_failed
from fedquilt.runs.folder import RunFolder, SeedFolder
from fedquilt.runs.result import build_result

BEST = -1  # the best round's key in similarity.npz; `fedquilt.training.loop` has it too, but imports PyTorch

Record = dict[str, Any]
"""One line of metrics.jsonl: a round."""


@dataclass(frozen=True)
class StoredSeed:
    """What the folder of one seed holds.

    Attributes:
        seed: its number; folder: its folder, for arrays such as similarities.
        records: its rounds so far.
        summary: summary.json, or `summary_so_far` while the seed still trains; None before the first evaluation.
        done: whether the seed is finished.
    """

    seed: int
    folder: SeedFolder
    records: list[Record]
    summary: dict[str, Any] | None
    done: bool


@dataclass(frozen=True)
class StoredRun:
    """What a run folder holds: its path, its config.json, and its seeds in the order of the config."""

    folder: Path
    config: dict[str, Any]
    seeds: list[StoredSeed]

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.config["method"])

    @property
    def evaluated(self) -> list[StoredSeed]:
        """The seeds that were evaluated at least once."""
        return [seed for seed in self.seeds if seed.summary is not None]

    @property
    def result(self) -> dict[str, Any] | None:
        """As in result.json, unfinished seeds with their best round so far; None before any evaluation."""
        summaries = [seed.summary for seed in self.seeds if seed.summary is not None]
        return build_result(self.config | {"dataset": self.graph_name}, summaries) if summaries else None

    @property
    def graph_name(self) -> str:
        """What results call the graph: the name that it had when the run began; of a path at least the last part."""
        name = RunFolder(self.folder).graph_name or str(self.config.get("dataset"))
        return Path(name).stem if "/" in name or name.endswith(".npz") else name

    @property
    def class_names(self) -> list[str] | None:
        """The names of the classes; None where they have none, or no seed is done."""
        found = (((seed.summary or {}).get("confusion") or {}).get("class_names") for seed in self.seeds)
        return next((names for names in found if isinstance(names, list)), None)

    @property
    def unfinished(self) -> list[str]:
        """A sentence for each seed that is not done."""
        return [
            f"Seed {seed.seed} is not done: {len(seed.records)} of {self.config['rounds']} rounds so far."
            for seed in self.seeds
            if not seed.done
        ]


def read_run(path: Path) -> StoredRun:
    """Read a run folder."""
    folder = RunFolder.open(path)
    config = folder.config
    folder.check_config()
    return StoredRun(
        path, config, [_read_seed(folder, seed, config.get("metric")) for seed in config.get("seeds") or folder.seeds()]
    )


def read_runs(path: Path) -> tuple[list[StoredRun], bool]:
    """The runs of a run folder or a comparison's folder, and whether it is a comparison; an error before any evaluation.

    Methods of a comparison that failed are left out; `with_failed_rows` has them.
    """
    several = is_comparison(path)
    failed = failed_in(path) if several else {}
    runs = [read_run(folder) for folder in (runs_of(path) if several else [path]) if folder.name not in failed]
    if not any(run.evaluated for run in runs):
        raise FedquiltError(f"No round in {path} has been evaluated yet; try again later, or 'fedquilt resume {path}'.")
    return runs, several


def with_failed_rows(path: Path, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of a comparison's runs in the order of its table, with a row for each method that failed."""
    failed, configs = failed_in(path), configs_of(path)
    return with_failed(configs, results, failed) if failed else list(results)


def summary_so_far(seed: int, records: Sequence[Record], metric: str | None = None) -> dict[str, Any] | None:
    """The summary of an unfinished seed: its best validation round so far; None before the first evaluation.

    `metric` names the metric, which says whether higher is better.
    """
    evaluated = [record for record in records if record.get("val") is not None]
    if not evaluated:
        return None
    choose = max if metric_name(metric or "accuracy").higher_is_better else min
    best = choose(evaluated, key=lambda record: record["val"])
    seconds = sum(record.get("seconds", 0.0) for record in records)
    return {
        "seed": seed,
        "best_round": best["round"],
        "val": best["val"],
        "test": best.get("test"),
        "seconds": seconds,
        "seconds_per_round": seconds / len(records),
        "upload_bytes": sum(sum(record.get("bytes_up", {}).values()) for record in records),
        "download_bytes": sum(sum(record.get("bytes_down", {}).values()) for record in records),
        "rounds_run": len(records),
        "clients_test": best.get("clients", {}).get("test", []),
    }


def _read_seed(folder: RunFolder, seed: int, metric: str | None) -> StoredSeed:
    place = folder.seed(seed)
    records, summary = place.records(), place.summary
    return StoredSeed(seed, place, records, summary or summary_so_far(seed, records, metric), summary is not None)
