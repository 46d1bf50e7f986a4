"""The search: propose settings, train them without test labels, and compare validation metrics.

The first trial uses the method's defaults, so the best one is never worse than them on validation. A trial's value is the
validation metric of the best round, averaged over the seeds. While it trains, a trial reports a lower bound of its value, in
which seeds that have not started count as 0. The bound never falls, ends at the value, and can be compared between trials after
the same number of rounds. A trial whose bound is below the median of the finished ones is stopped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import optuna
import torch

from fedquilt.common.version import VERSION
from fedquilt.devices.allocator import keep_freed_memory
from fedquilt.errors import FedquiltError
from fedquilt.graphs.fingerprint import fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.protocol import Protocol
from fedquilt.methods.settings import as_dict, build_settings
from fedquilt.partition.fingerprint import fingerprint
from fedquilt.runs.compute_version import run_kinds, run_version
from fedquilt.runs.config import GIVEN, GRAPH_FILE, RunConfig
from fedquilt.runs.execute import worker_cluster
from fedquilt.runs.given_data import GivenData, named_data
from fedquilt.runs.ground import cut_of
from fedquilt.runs.option_files import with_option_signature
from fedquilt.runs.run_options import RunOptions
from fedquilt.tuning import storage
from fedquilt.tuning.history_figure import draw_history
from fedquilt.tuning.outcome import Trial, Tuned, best_of, best_val, write_config
from fedquilt.tuning.progress import SearchClock, SearchProgress, Watch
from fedquilt.tuning.space import Space, parse_space, read_space, usual_space
from fedquilt.tuning.trials import PrunedError, Trials, silenced_optuna
from fedquilt.tuning.validation_only import ValidationOnlyRun, frozen_garbage_collection, train

if TYPE_CHECKING:
    pass

TRIALS = 30
WARM_UP = 3  # no trial is stopped in the first 1/WARM_UP of a seed's rounds, which predict little
# The approximate number of reports for each seed. Each is a line that is synced to disk, which takes milliseconds.
REPORTS = 25

# A space by setting, or a YAML file with one; None: the method's default space.
GivenSpace = Mapping[str, Any] | str | os.PathLike[str] | None


@with_option_signature
def tune(
    method: str = "quilt",
    dataset: GivenData = "patchwork",
    *,
    trials: int = TRIALS,
    timeout: float | None = None,
    into: str | os.PathLike[str] | None = None,
    space: GivenSpace = None,
    watch: Watch | None = None,
    anyway: bool = False,
    **options: Unpack[RunOptions],
) -> Tuned:
    """Search a method's settings by validation only; test labels are removed before anything trains.

    Settings in `settings` are fixed and not searched.

    Args:
        method: its name; see `fedquilt methods`.
        dataset: a name, a path, a `Graph`, or PyTorch Geometric's `Data`; or a list of these, or a dict by name, with the
            graph of each client.
        trials: how many settings to try, the defaults first.
        timeout: no trial but the first starts after this many seconds.
        into: the folder of the search; if it holds this search already, the search is resumed. None: all is kept in memory.
        space: by setting, a list of values or low, high and log; or a YAML file with that. None: the method's default space.
        watch: called after each round and each trial.
        anyway: resume a search that was begun with other versions of the packages.
        **options: the other fields of `RunConfig`; `fedquilt docs options` lists them.
    """
    named, given = named_data(dataset, options)
    config = RunConfig.build({**options, **named, "method": method})
    return Search(config, space, given).run(trials, timeout, None if into is None else Path(into), watch, anyway)


class Search:
    """A resolved search. Its constructor validates everything, before anything is written.

    Attributes:
        config: the resolved configuration; its settings are fixed and not searched.
        space: the settings that are searched, and their values.
        defaults: the method's settings in the first trial.
    """

    def __init__(
        self, config: RunConfig, space: GivenSpace = None, given: tuple[Graph, Protocol] | None = None
    ) -> None:
        self._asked, self._given = config, given
        self._resolved = ValidationOnlyRun(config, given)
        self.config = self._resolved.config
        self._metric = self._resolved.task.metric(self.config.metric or "")
        self.defaults: dict[str, Any] = as_dict(self._resolved.settings)
        self.space = self._space(space)
        for seed in config.seeds:
            self._resolved.check_validation(seed)

    def _space(self, given: GivenSpace) -> Space:
        method = self._resolved.method
        if not self.defaults:
            raise FedquiltError(f"Method '{method.name}' has no settings, so there is nothing to search.")
        if given is None:
            space = usual_space(method, self.defaults)
        else:
            values = given if isinstance(given, Mapping) else read_space(Path(given))
            space = parse_space(method, values, self._checked, self.defaults)
        fixed = {*self._asked.settings, *(["epochs"] if self._asked.epochs is not None else [])}
        space = {name: part for name, part in space.items() if name not in fixed}
        if not space:
            raise FedquiltError(f"Nothing of method '{method.name}' is left to search; fix fewer settings.")
        return space

    def _checked(self, name: str, value: Any) -> Any:
        """Convert a setting's value to the setting's type; raise `FedquiltError` if it is not valid."""
        context = self._resolved.context(self.config.seeds[0])
        return getattr(build_settings(self._resolved.method, context, {name: value}), name)

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the packages that results may depend on."""
        packages = {"torch": torch, "numpy": np, "optuna": optuna}
        return {"fedquilt": VERSION} | {name: str(package.__version__) for name, package in packages.items()}

    def facts(self) -> dict[str, Any]:
        """The content of tune.json, which identifies the search of a folder."""
        graph = self._resolved.facts()["graph"] | {"fingerprint": fingerprint(self._resolved.graph)}
        cuts = {f"the cut of seed {seed}": cut_of(self._resolved, seed) for seed in self.config.seeds}
        space = {name: part.plain() for name, part in self.space.items()}
        return {
            "config": self.config.model_dump(),
            "graph": graph,
            storage.GROUND: {"its graph": fingerprints(self._resolved.graph), **cuts},
            "space": space,
            "computation": run_version(self.config.method, run_kinds(self.config.model_dump())),
            "versions": self.versions,
        }

    def run(
        self,
        trials: int = TRIALS,
        timeout: float | None = None,
        into: Path | None = None,
        watch: Watch | None = None,
        anyway: bool = False,
    ) -> Tuned:
        """Run trials until `trials` have ended or the timeout has passed; see `tune`."""
        if trials < 1:
            raise FedquiltError(f"A search needs at least one trial, not {trials}.")
        if timeout is not None and not timeout > 0:
            raise FedquiltError(f"The timeout is {timeout:g} seconds; give a number above 0.")
        keep_freed_memory()
        with silenced_optuna():
            if into is None:
                return self._run_trials(optuna.storages.InMemoryStorage(), trials, timeout, None, watch)
            with storage.open_journal(into, self.facts(), anyway) as journal:
                if self._given is not None and not (into / GRAPH_FILE).exists():
                    write_npz(self._given[0], into / GRAPH_FILE, private=True)
                return self._run_trials(journal, trials, timeout, into, watch)

    def _run_trials(
        self,
        where: optuna.storages.BaseStorage,
        trials: int,
        timeout: float | None,
        folder: Path | None,
        watch: Watch | None,
    ) -> Tuned:
        tried = Trials(where, self.config.seeds[0], self._metric.higher_is_better)
        ended = tried.ended()
        clock = SearchClock(len(ended) + 1, trials, timeout)
        with worker_cluster(self.config), frozen_garbage_collection():
            while len(ended) < trials and not (ended and clock.over):
                self._run_trial(tried, ended, trials, clock, watch)
                ended = tried.ended()
                if folder is not None:
                    storage.seal_journal(folder)
                    self.write(folder / storage.BEST, ended)
        if best_of(ended, self._metric.higher_is_better) is None:
            raise FedquiltError(f"None of {len(ended)} trials could be trained; the last one: {ended[-1].why}")
        if folder is not None:
            self.write(folder / storage.BEST, ended)  # again: the process may have been killed after a trial
            draw_history(ended, self.config.metric or "", self.title, folder / storage.HISTORY)
        return Tuned(
            best_settings=self.best_settings(ended),
            best_val=best_val(ended, self._metric.higher_is_better),
            default_val=ended[0].val,
            trials=ended,
            importances=tried.importances(),
            folder=folder,
            higher_is_better=self._metric.higher_is_better,
        )

    def _run_trial(
        self, tried: Trials, before: list[Trial], trials: int, clock: SearchClock, watch: Watch | None
    ) -> None:
        """Propose the settings of the next trial, train them, and report the value to Optuna."""
        number, best = len(before) + 1, best_val(before, self._metric.higher_is_better)

        def show(share: float, val: float) -> None:
            if watch is not None:
                watch(SearchProgress(number, trials, share, val, best, clock.left(number, share)))

        if number == 1:
            # A user's space need not contain every default; defaults outside are not part of this trial's settings.
            inside = {name: part for name, part in self.space.items() if part.holds(self.defaults[name])}
            trial = tried.propose(inside, {name: self.defaults[name] for name in inside})
        else:
            trial = tried.propose(self.space)
        show(0.0, math.nan)
        try:
            tried.finish(trial, self._value(tried, trial, show))
        except PrunedError:
            tried.finish(trial, None)
        except FedquiltError as error:
            tried.finish(trial, None, str(error))
        if watch is not None:
            ended = tried.ended()
            watch(
                SearchProgress(
                    number,
                    trials,
                    1.0,
                    math.nan,
                    best_val(ended, self._metric.higher_is_better),
                    clock.left(number, 1.0),
                    ended[-1],
                )
            )

    def _value(self, tried: Trials, trial: optuna.Trial, show: Callable[[float, float], None]) -> float:
        """Train a trial's settings for every seed; return the mean of the best rounds' validation metrics."""
        run = self._resolved.with_settings(self._asked, trial.params)
        rounds, seeds = self.config.rounds, self.config.seeds
        assert rounds is not None
        every = max(1, rounds // REPORTS)
        bests: list[float] = []  # the best metric of each seed that is done, and of the one that trains

        def on_round(round: int, val: float | None) -> None:
            if val is not None and self._metric.better(val, bests[-1]):
                bests[-1] = val
            step = (len(bests) - 1) * rounds + round
            show((step + 1) / (len(seeds) * rounds), sum(bests) / len(bests))
            if round >= rounds // WARM_UP and (round + 1) % every == 0 and math.isfinite(bests[-1]):
                tried.report(trial, sum(bests) / len(seeds), step)

        for seed in seeds:
            bests.append(self._metric.worst)
            train(run, seed, on_round)
        return sum(bests) / len(seeds)

    @property
    def title(self) -> str:
        """The method and the graph, for the title of a figure."""
        return f"{self._resolved.method.title} on {self._resolved.label}"

    def best_settings(self, trials: list[Trial]) -> dict[str, Any]:
        """Return the fixed settings and the best trial's."""
        best = best_of(trials, self._metric.higher_is_better)
        assert best is not None
        return {**self._asked.settings, **best.settings}

    def write(self, path: Path, trials: list[Trial]) -> None:
        """Write the config file of the best trial so far; write nothing if no trial is done."""
        if best_of(trials, self._metric.higher_is_better) is None:
            return
        config = self.config
        if config.dataset == GIVEN:  # the graph is stored in the same folder
            config = config.model_copy(update={"dataset": str((path.parent / GRAPH_FILE).resolve())})
        write_config(path, config, self.best_settings(trials), trials, self.versions)
