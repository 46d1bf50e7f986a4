"""A method of a comparison that failed: why, and the row that it has among the others' results."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.common.machine_limits import find_limit
from fedquilt.errors import FedquiltError, MachineLimitError, RefusedError
from fedquilt.runs.config import RunConfig

FAILED = "failed"  # in a row of results, and in compare.json: why there is no result


@dataclass(frozen=True)
class FailedMethod:
    """A method that failed.

    Attributes:
        method: its name.
        why: a sentence.
        error: the error, where it was in this process.
    """

    method: str
    why: str
    error: Exception | None = None

    @classmethod
    def of(cls, method: str, error: Exception) -> FailedMethod:
        """Say why a method failed; an error that ends the whole comparison is raised again.

        That is one that every method would meet (a full disk, too many files) and one that says that the comparison is no
        longer what it began as.
        """
        limit = find_limit(error)
        out_of_memory = limit is not None and limit.kind in ("memory", "accelerator")
        if isinstance(error, RefusedError) or (limit is not None and not out_of_memory):
            raise error
        _free_frames(error)
        if isinstance(error, FedquiltError):
            return cls(method, str(error), error)
        if limit is not None:
            return cls(method, limit.sentence(), error)
        what = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
        return cls(method, f"something went wrong inside: {what}; run it alone with --debug and report it.", error)

    def row(self, config: Mapping[str, Any], others: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """What stands for its result.json: no numbers, and why. The cut and what is measured are as the others have them."""
        shared = others[0] if others else config
        return {
            "method": self.method,
            **{name: shared.get(name) for name in ("dataset", "partition", "clients", "rounds")},
            "metric": shared.get("metric") or "accuracy",
            "test_mean": None,
            "test_std": None,
            "val_mean": None,
            "seeds": [],
            FAILED: self.why,
        }


def _free_frames(error: BaseException | None) -> None:
    """Let go of what the functions that raised an error held: the tensors of a training that ran out of memory."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # errors may name each other
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def with_failed(
    configs: Sequence[Mapping[str, Any]], results: Sequence[dict[str, Any]], failed: Mapping[str, FailedMethod]
) -> list[dict[str, Any]]:
    """The results in the order of the configurations, with a row for each method that failed."""
    found = {str(result["method"]): result for result in results}
    rows = []
    for config in configs:
        method = str(config["method"])
        if method in failed:
            rows.append(failed[method].row(config, results))
        elif method in found:
            rows.append(found[method])
    return rows


def named(failed: Sequence[FailedMethod]) -> str:
    """The methods and why they failed, as one sentence."""
    if len(failed) == 1:
        return f"{failed[0].method} failed: {failed[0].why}"
    whole = "; ".join(f"{one.method}: {one.why.rstrip('.')}" for one in failed)
    return f"{len(failed)} methods failed: {whole}."


def raise_where_all(configs: Sequence[RunConfig], failed: Mapping[str, FailedMethod]) -> None:
    """Raise the first method's error where no method is left: then there is nothing to compare."""
    if configs and all(config.method in failed for config in configs):
        first = failed[configs[0].method]
        if len(failed) == 1 and first.error is not None:
            raise first.error
        limits = [one for one in failed.values() if not isinstance(one.error, MachineLimitError)]
        kind = FedquiltError if limits else MachineLimitError
        raise kind(named(list(failed.values()))) from first.error
