"""Compare methods: one configuration per method on the same partitions and splits, checked before the first one trains.

A method that fails (training diverges, memory runs out, it needs what the graph lacks) does not end the comparison: the others
go on, compare.json says why under "failed", and `resume` tries it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from fedquilt.common.files import write_json
from fedquilt.common.new_folder import sweep_files
from fedquilt.errors import FedquiltError, UnfitMethodError, unknown
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.loggers.base import check_loggers
from fedquilt.methods.base import find_method
from fedquilt.runs.comparison_folder import COMPARISON, configs_of, failed_in, runs_of, versions_of, write_failed
from fedquilt.runs.config import GIVEN, RunConfig
from fedquilt.runs.execute import Watcher, execute_run, resume_run, save_graph, worker_cluster
from fedquilt.runs.failed_method import FailedMethod, raise_where_all, with_failed
from fedquilt.runs.finished import Run
from fedquilt.runs.folder import RunFolder
from fedquilt.runs.ground import ground_of
from fedquilt.runs.read_config import stored_options
from fedquilt.runs.resolve import ResolvedRun, load_run_graph
from fedquilt.runs.seal import (
    ACCEPTABLE,
    Facts,
    config_differences,
    plugin_differences,
    read_seal,
    refuse,
    renewed,
    seal_of,
    version_differences,
    versions,
    write_seal,
)

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Comparison:
    """A comparison that is checked and can be run. Make it with `create`, or with `open` to resume it.

    Attributes:
        configs: a configuration for each method, in the order of the table; empty where the folder has no compare.json.
        folder: the folder of all runs; None for a comparison in memory.
        given: the graph, where it is loaded already.
        seal: what the comparison stands on; None where it is in memory, or an earlier version began it.
        anyway: resume runs with differences that can be accepted; see `fedquilt.runs.seal`.
        failed: the methods that failed so far, by name.
    """

    configs: list[RunConfig]
    folder: Path | None
    given: tuple[Graph, Protocol] | None = None
    seal: Facts | None = None
    anyway: bool = False
    failed: dict[str, FailedMethod] = field(default_factory=dict)

    @classmethod
    def create(
        cls,
        configs: Sequence[RunConfig],
        out: Path | None = None,
        given: tuple[Graph, Protocol] | None = None,
        new_folder: tuple[Path, str] | None = None,
    ) -> Comparison:
        """Check the runs, make the folder and write compare.json.

        Args:
            configs: see `comparison_configs`.
            out: the folder to write; it must be new or empty. None: in memory, unless there is a `new_folder`.
            given: the graph, where it is loaded already; else it is loaded here, once for all methods.
            new_folder: where `out` is None, the parent and the name of a new folder; where the name is "",
                compare-<dataset>-<partition>-<clients>.
        """
        first = configs[0]
        given = given or load_run_graph(first)
        resolved = check_configs(configs, given)
        if out is None and new_folder is None:
            return cls(list(configs), None, given)
        parent, name = new_folder or (Path("runs"), "")
        asked = list(configs)
        sealed: list[tuple[list[RunConfig], Facts]] = []

        def fill(folder: Path, place: Path) -> None:
            configs = asked
            if first.dataset == GIVEN:
                path = save_graph(folder, place, given[0])
                configs = [config.model_copy(update={"dataset": path}) for config in asked]
            seal = seal_of(_by_method([config.model_dump() for config in configs]), ground_of(resolved))
            write_seal(folder, seal)
            values = {"configs": [config.model_dump() for config in configs], "versions": versions()}
            write_json(folder / COMPARISON, values)
            sealed.append((configs, seal))

        usual = "compare" + resolved.config.name.removeprefix(resolved.config.method)
        folder = RunFolder.create(out, name or usual, parent, fill)
        return cls(sealed[-1][0], folder.path, given, sealed[-1][1])

    @classmethod
    def open(cls, path: Path, anyway: bool = False) -> Comparison:
        """The comparison in a folder, to resume it; refused where it would go on with something else than it began with."""
        stored = configs_of(path)
        seal = read_seal(path, {"versions": versions_of(path)}) if stored else None
        if seal is not None:
            found = config_differences(seal, _by_method(stored), file=COMPARISON)
            if any(not (path / config["method"] / "result.json").is_file() for config in stored):
                found += version_differences(seal) + plugin_differences(seal, _by_method(stored))
            accepted = refuse(path, found, ACCEPTABLE if anyway else (), "comparison")
            if accepted:
                seal = renewed(seal, _by_method(stored), accepted)
                write_seal(path, seal)
        configs = [RunConfig.build(stored_options(config, path)) for config in stored]
        return cls(configs, path, seal=seal, anyway=anyway, failed=failed_in(path))

    def runs(self, watch: Watcher | None = None, log: str | Sequence[str] = ()) -> Iterator[Run]:
        """Train the methods one after the other; runs that began before are resumed. Each run is yielded when it is done.

        A method that fails is in `failed` and not among the runs; an error where all do.
        """
        loggers = check_loggers(log)
        if self.folder is None:
            with worker_cluster(self.configs[0]):
                for config in self.configs:
                    yield from self._tried(config, partial(execute_run, config, None, self.given, watch, log=loggers))
            raise_where_all(self.configs, self.failed)
            return
        with RunFolder(self.folder).lock(), worker_cluster(self.configs[0]) if self.configs else nullcontext():
            sweep_files(self.folder)
            for config in self.configs:
                yield from self._tried(config, partial(self._run, config, watch, loggers))
            raise_where_all(self.configs, self.failed)
            if not self.configs:  # an older version wrote the folder, without compare.json
                for place in runs_of(self.folder):
                    yield resume_run(place, watch, loggers, self.anyway)

    def _run(self, config: RunConfig, watch: Watcher | None, loggers: Sequence[str]) -> Run:
        """The run of one method in the folder, resumed where it began."""
        assert self.folder is not None
        place = self.folder / config.method
        if (place / "config.json").is_file():
            return resume_run(place, watch, loggers, self.anyway, self.seal)
        return execute_run(config, place, self.given, watch, log=loggers, ground=self.seal)

    def _tried(self, config: RunConfig, train: Callable[[], Run]) -> Iterator[Run]:
        """The run of one method; nothing where it fails, which is noted in `failed` and in compare.json."""
        before = dict(self.failed)
        try:
            run = train()
        except Exception as error:
            self.failed[config.method] = FailedMethod.of(config.method, error)
            _log.warning("%s failed: %s", config.method, self.failed[config.method].why)
        else:
            self.failed.pop(config.method, None)
        if self.folder is not None and self.failed != before:
            write_failed(self.folder, {name: one.why for name, one in self.failed.items()})
        if config.method not in self.failed:
            yield run

    def results(self, results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The results of the runs, in the order of the table, with a row for each method that failed."""
        if not self.configs:
            return list(results)
        return with_failed([config.model_dump() for config in self.configs], results, self.failed)


def _by_method(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The configurations as a seal has them, so that a difference is named with its method."""
    return {"methods": [config["method"] for config in configs]} | {config["method"]: config for config in configs}


def comparison_configs(methods: Sequence[str], options: Mapping[str, Any]) -> list[RunConfig]:
    """A configuration for each method. A setting goes to the methods that have it; at least one of them must."""
    if not methods:
        raise FedquiltError("Say which methods to compare, such as local, fedavg and fedpub.")
    for name in methods:
        if list(methods).count(name) > 1:
            raise FedquiltError(f"Method '{name}' is listed twice; list each method once.")
    # Build one first, so that settings which are no names and values are refused with a sentence, and plug-ins are loaded.
    first = RunConfig.build({**options, "method": methods[0]})
    settings = first.settings
    known = {name: {f.name for f in fields(find_method(name).Settings)} for name in methods}
    every_setting = set().union(*known.values())
    for setting in settings:
        if not every_setting:
            raise FedquiltError(f"None of these methods has settings, so leave out '{setting}'.")
        if setting not in every_setting:
            raise unknown("setting of these methods", setting, every_setting)
    able = {name: set(find_method(name).client_settings) for name in methods}
    own = first.client_settings
    for setting in {setting for given in own.values() for setting in given}:
        if setting not in set().union(*able.values()):
            raise FedquiltError(f"None of these methods lets '{setting}' differ between clients; leave it out.")
    return [
        RunConfig.build(
            {
                **options,
                "method": name,
                "settings": {k: v for k, v in settings.items() if k in known[name]},
                "client_settings": {
                    client: {k: v for k, v in given.items() if k in able[name]} for client, given in own.items()
                },
            }
        )
        for name in methods
    ]


def check_configs(configs: Sequence[RunConfig], given: tuple[Graph, Protocol] | None = None) -> ResolvedRun:
    """Find what is wrong with any of a comparison's runs before the first trains; returns the first one, resolved.

    The runs differ in the method and its settings only, so one partition is enough to check. A method that does not fit the
    task or the scenario fails by itself when its turn comes; it is an error here only where none fits.
    """
    resolved: ResolvedRun | None = None
    unfit: list[UnfitMethodError] = []
    for config in configs:
        try:
            if resolved is None:
                resolved = ResolvedRun(config, given)
            else:
                resolved.method_of(config)
        except UnfitMethodError as error:
            unfit.append(error)
    if resolved is None:
        raise unfit[0]
    return resolved
