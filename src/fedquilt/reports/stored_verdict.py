"""The verdict on run folders: of a comparison, or of runs that have the same clients and splits by their seals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedquilt.reports.read_run import StoredRun, read_run
from fedquilt.reports.verdict import Compared, verdict
from fedquilt.runs.comparison_folder import COMPARISON, failed_in, runs_of
from fedquilt.runs.folder import RunFolder


def comparison_verdict(folder: Path) -> list[str]:
    """The verdict on the finished runs in a comparison's folder."""
    failed = failed_in(folder)
    return verdict_of([run for place in runs_of(folder) if (run := read_run(place)).method not in failed])


def verdict_of(runs: Sequence[StoredRun]) -> list[str]:
    """The verdict on runs of different methods on the same clients and splits; none where they are not.

    None either while one of them still trains: its numbers are of other rounds than the others'.
    """
    if any(not seed.done for run in runs for seed in run.seeds) or len({run.method for run in runs}) < len(runs):
        return []
    parents = {run.folder.parent for run in runs}
    together = len(parents) == 1 and (next(iter(parents)) / COMPARISON).is_file()
    if not together and not _same_ground(runs):
        return []
    known = [(run, result) for run in runs if (result := run.result) is not None]
    return verdict(
        [
            Compared(result, {seed.seed: (seed.summary or {}).get("clients_test", []) for seed in run.seeds})
            for run, result in known
        ]
    )


def _same_ground(runs: Sequence[StoredRun]) -> bool:
    """Whether runs of different folders have the same graph, and in every seed the same clients and split, by their seals."""
    seals = [RunFolder(run.folder).seal for run in runs]
    known = [seal for seal in seals if seal is not None]
    first = known[0] if known else None
    return (
        first is not None
        and len(known) == len(runs)
        and all(seal["graph"] == first["graph"] and seal["cuts"] == first["cuts"] for seal in known)
    )
