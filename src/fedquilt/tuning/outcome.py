"""The outcome of a search: its trials, the best settings, and a config file with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedquilt.common.files import write_text
from fedquilt.reports.names import metric_name
from fedquilt.runs.config import RunConfig

MARK = "# Found by 'fedquilt tune'"
# Options that are always written to the config file; others are written only if they differ from their default.
ALWAYS_WRITTEN = ("method", "dataset", "partition", "clients", "seeds", "rounds", "epochs", "split", "metric")


@dataclass(frozen=True)
class Trial:
    """One trial of a search that has ended.

    Attributes:
        number: 1, 2, ...; the first has the method's defaults.
        settings: the searched settings' values.
        val: the validation metric of the best round, in percent, averaged over the seeds; None unless the trial is done.
        state: "done"; "stopped", because it was worse than the others; or "failed": training diverged, or the settings
            contradict each other.
        why: why a trial failed, as a sentence.
        rounds: the number of rounds at its last report, summed over seeds.
        seconds: its duration.
    """

    number: int
    settings: dict[str, Any]
    val: float | None
    state: Literal["done", "stopped", "failed"]
    why: str | None = None
    rounds: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search.

    Attributes:
        best_settings: the `settings` for `fedquilt.run`: the fixed ones, and the best trial's values.
        best_val: the best trial's validation metric in percent.
        default_val: the validation metric of the method's defaults; None where training with them failed.
        trials: all trials in their order.
        importances: the share of the difference between good and other trials that each setting explains, roughly; the shares
            sum to 1. Empty where there are too few trials.
        folder: the folder of the search, if it has one.
        higher_is_better: the direction of the metric.
    """

    best_settings: dict[str, Any]
    best_val: float
    default_val: float | None
    trials: list[Trial]
    importances: dict[str, float] = field(default_factory=dict)
    folder: Path | None = None
    higher_is_better: bool = True

    @property
    def best(self) -> Trial:
        """The best trial."""
        found = best_of(self.trials, self.higher_is_better)
        assert found is not None
        return found


def best_of(trials: Sequence[Trial], higher_is_better: bool = True) -> Trial | None:
    """Return the trial with the best validation metric, the first of equals; None if no trial is done."""
    return min(
        (trial for trial in trials if trial.val is not None),
        key=lambda trial: (-(trial.val or 0.0) if higher_is_better else trial.val or 0.0, trial.number),
        default=None,
    )


def best_val(trials: Sequence[Trial], higher_is_better: bool = True) -> float:
    """Return the best validation metric; NaN if no trial is done."""
    best = best_of(trials, higher_is_better)
    return math.nan if best is None or best.val is None else best.val


def write_config(
    path: Path, config: RunConfig, settings: Mapping[str, Any], trials: Sequence[Trial], versions: Mapping[str, str]
) -> None:
    """Write a config file for `fedquilt run --config` with the best settings; comments say how they were found.

    Args:
        path: the file.
        config: the resolved configuration of the search. settings: the best ones.
        trials: all trials so far.
        versions: the versions of the packages that results depend on.
    """
    import yaml

    best = best_of(trials, metric_name(config.metric or "").higher_is_better)
    assert best is not None
    default = trials[0].val
    defaults = RunConfig().model_dump()
    values = config.model_dump(exclude={"settings"})
    values = {
        name: v for name, v in values.items() if v is not None and (name in ALWAYS_WRITTEN or v != defaults[name])
    }
    if "epochs" in settings:
        del values["epochs"]
    found = f"Validation {config.metric} {best.val:.2f}" + (
        "" if default is None else f", with the defaults {default:.2f}"
    )
    seeds = (
        f"seed {config.seeds[0]}" if len(config.seeds) == 1 else f"mean over seeds {', '.join(map(str, config.seeds))}"
    )
    lines = [
        f"{MARK}, by validation only; train with it: fedquilt run --config {path.name}",
        f"# {found}: {seeds}, best round; trial {best.number} of {len(trials)}.",
        "# " + ", ".join(f"{name} {version}" for name, version in versions.items()),
        yaml.safe_dump(values | {"settings": dict(settings)}, sort_keys=False, allow_unicode=True),
    ]
    write_text(path, "\n".join(lines))
