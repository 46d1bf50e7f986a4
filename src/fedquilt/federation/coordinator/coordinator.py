"""The coordinator of a federation: waits for the sites, runs the round loop, and writes the run folder. It holds no graph.

Started again with the same folder, it resumes: it writes a checkpoint after every round, and sites that trained the round
already repeat their answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from fedquilt.common.new_folder import LOCK, is_leftover
from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.config import FIXED_FIELDS, FederationConfig
from fedquilt.federation.coordinator.engine import FlowerEngine, RoundRules
from fedquilt.federation.coordinator.finite_aggregation import FiniteAggregation
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.coordinator.pending_sum import PendingSum
from fedquilt.federation.coordinator.planning import averaging_of, check_same_widths, plan_method, plan_preparation
from fedquilt.federation.coordinator.roster import Roster, gather
from fedquilt.federation.coordinator.secure_engine import SecureEngine
from fedquilt.federation.coordinator.sum_aggregation import SumAggregation
from fedquilt.graphs.preparation import PrepareKind
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import as_dict, resolve_settings
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.runs.folder import FEDERATION, RunFolder
from fedquilt.runs.result import build_result
from fedquilt.runs.seal import (
    SEAL,
    VERSION_KIND,
    config_differences,
    mapping,
    refuse,
    seal_of,
    version_differences,
    versions,
)
from fedquilt.training.loop import Training
from fedquilt.training.plan import Plan
from fedquilt.training.round import Aggregate
from fedquilt.training.round_store import Record

ROSTER = "sites.json"
INCIDENTS = "incidents.jsonl"
PENDING = "secure-sum"


class Coordinator:
    """One federated training, new or resumed.

    Args:
        say: called with each line of progress.
    """

    def __init__(self, config: FederationConfig, grid: Grid, say: Callable[[str], None] = print) -> None:
        self.config, self.say = config, say
        self.rounds = config.rounds  # those of all phases, once the method is known
        path = Path(config.out).expanduser()
        self.resumed = (path / "config.json").is_file()
        # A coordinator that was stopped before it began to train leaves only these files.
        waited = path.is_dir() and all(
            each.name in (LOCK, INCIDENTS, ROSTER, SEAL) or is_leftover(each.name) for each in path.iterdir()
        )
        self.folder = RunFolder(path) if self.resumed or waited else RunFolder.create(path, config.method)
        if self.resumed:
            self._check_same()
        self.prepare: PrepareKind = "none"  # how sites prepare their features, known when they are there
        self.incidents = Incidents(path / INCIDENTS)
        self.roster = Roster(grid, self.incidents)

    def run(self) -> dict[str, Any]:
        """Train to the end; returns what result.json says."""
        with self.folder.lock():
            self.folder.sweep()
            return self.folder.result or self._run()

    def _check_same(self) -> None:
        """Refuse to resume a training with another configuration."""
        saved, asked = self.folder.config.get("order"), self.config.model_dump()
        if not isinstance(saved, dict):
            raise FedquiltError(f"{self.folder.path} holds a run that was not made with sites; choose another 'out'.")
        for name in FIXED_FIELDS:
            if saved.get(name, FederationConfig.model_fields[name].default) != asked[name]:
                raise FedquiltError(
                    f"{self.folder.path} holds a run with another {name}; choose another 'out', or ask for the same."
                )
        seal = self.folder.seal
        if seal is not None:  # an earlier version sealed nothing
            found = config_differences(seal, _sealed_config(self.folder.config), file=f"{self.folder.path}/config.json")
            # Sites have versions of their own, so that only the computation's counts here.
            found += [each for each in version_differences(seal) if each.kind != VERSION_KIND]
            refuse(self.folder.path, found, instead="put back what it began with, or choose another 'out'")

    def _run(self) -> dict[str, Any]:
        method, run, restarts = self._resume() if self.resumed else self._begin()
        training, engine = self._training(method, run, restarts)
        try:
            training.run()
        except BudgetSpentError as error:  # the run ends with the models of the rounds before
            if training.progress.best.round < 0:
                raise
            self.say(str(error))
        progress = training.progress
        confirmed = engine.finish(progress.next_round)
        for name in sorted(set(self.roster.names) - set(confirmed)):
            self.incidents.add(None, name, "finish", f"Site {name} did not confirm that it has its model.")
        config = self.config
        summary = progress.summary(config.seed, config.metric)
        summary |= {"sites": self.roster.names, "confirmed": confirmed}
        summary |= largest_epsilon([*training.records, engine.reported])
        folder = self.folder.seed(config.seed)
        if training.similarities:
            arrays = {str(round): s.cpu().numpy() for round, s in training.similarities.items()}
            folder.save_arrays("similarity", arrays)
        folder.finish(summary)
        self.folder.result = build_result(self.folder.config, [summary])
        return self.folder.result or {}

    def _begin(self) -> tuple[Method, str, int]:
        """Wait for the sites, check that they fit together, and write the run's configuration."""
        config = self.config
        sites = gather(self.roster, config.sites, config.wait, config.timeout, self.say)
        check_same_widths(sites, config.task)
        method = plan_method(config, sites)
        self.prepare = plan_preparation(config, sites)
        self._note_implausible_sizes()
        self.roster.save(self.folder.path / ROSTER)
        run = secrets.token_hex(8)
        stored = self._config(method, run, 0, versions())
        # config.json comes last: before it, the folder is that of a coordinator which still waits for its sites.
        self.folder.seal = seal_of(_sealed_config(stored))
        self.folder.config = stored
        return method, run, 0

    def _note_implausible_sizes(self) -> None:
        """Add an incident for each site that says it has far more nodes than the others."""
        for number, name in enumerate(self.roster.names):
            said, most = self.roster.sizes.get(name, 0), self.roster.largest_count(number, self.config.size_limit)
            if said > most and name not in self.roster.noisy:
                self.incidents.add(
                    None,
                    name,
                    "size",
                    f"Site {name} says that it has up to {said:,} nodes, more than {self.config.size_limit:g} times the "
                    f"median of the others; counts above {most:,.0f} are left out. If it is right, give a larger size-limit.",
                )

    def _resume(self) -> tuple[Method, str, int]:
        """The method, the run's name and the number of restarts of the training in the folder."""
        saved = self.folder.config
        self.roster.load(self.folder.path / ROSTER)
        kind, context = find_method(saved["method"]), RunContext.from_dict(saved[FEDERATION]["task"])
        method = kind(*resolve_settings(kind, context, saved["settings"], None), averaging_of(self.config))
        restarts = saved[FEDERATION]["coordinator"] + 1
        self.prepare = saved[FEDERATION].get("prepare", "none")  # earlier versions prepared nothing
        run = saved[FEDERATION]["run"]
        self.folder.config = self._config(method, run, restarts, saved.get("versions"))
        self.say(f"Going on with the run in {self.folder.path}.")
        return method, run, restarts

    def _config(self, method: Method, run: str, restarts: int, began_with: Any) -> dict[str, Any]:
        """The content of config.json."""
        config = self.config
        return {
            "method": config.method,
            "dataset": config.dataset,
            "partition": config.partition,
            "clients": method.context.clients,
            "rounds": config.rounds,
            "seeds": [config.seed],
            "metric": config.metric,
            "settings": as_dict(method.settings),
            "order": config.model_dump(),
            FEDERATION: {
                "run": run,
                "coordinator": restarts,
                "sites": self.roster.names,
                "task": method.context.to_dict(),
                "prepare": self.prepare,
            },
            **({} if began_with is None else {"versions": began_with}),
        }

    def _training(self, method: Method, run: str, restarts: int) -> tuple[Training, FlowerEngine]:
        config = self.config
        rules = RoundRules(config.timeout, config.min_sites, config.tries, config.norm_limit, config.size_limit)
        about = (method, self.roster, rules, run, method.total_rounds(config.rounds), restarts)
        if config.secure_aggregation:
            store = PendingSum(self.folder.path / PENDING, run)
            engine: FlowerEngine = SecureEngine(*about, range=config.secure_range, store=store)
        else:
            engine = FlowerEngine(*about)

        def wrap(aggregate: Aggregate) -> Aggregate:
            if config.secure_aggregation:
                return SumAggregation(method, config.secure_range)
            return FiniteAggregation(method, engine.note_unused_upload, aggregate)

        plan = Plan(config.rounds, config.participation, config.evaluate_every, config.patience or None, 0.0)
        training = Training(
            method, engine, plan, self.folder.seed(config.seed), self._report_round, wrap_aggregate=wrap
        )
        self.rounds = training.plan.rounds
        engine.best_round = lambda: training.progress.best.round
        engine.prepare = self.prepare
        return training, engine

    def _report_round(self, record: Record) -> None:
        """Say in one line how a round went."""
        participants = record["participants"]
        count = self.config.sites if participants == "all" else len(participants)
        metrics = "".join(f", {name} {record[name]:.2f}" for name in ("val", "test") if record.get(name) is not None)
        epsilon = f"epsilon {record['epsilon']:.2f}, " if "epsilon" in record else ""
        self.say(
            f"Round {record['round'] + 1} of {self.rounds}: {count} of {len(self.roster.names)} sites{metrics}, "
            f"{sum(record['bytes_up'].values()):,} bytes up, {epsilon}{record['seconds']:.1f} s"
        )


def _sealed_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is sealed of config.json: not the number of restarts, nor the options that may change from one to the next."""
    order = {name: value for name, value in mapping(config.get("order")).items() if name in FIXED_FIELDS}
    federation = {name: value for name, value in mapping(config.get(FEDERATION)).items() if name != "coordinator"}
    return {**config, "order": order, FEDERATION: federation}


def largest_epsilon(reports: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The largest epsilon among records of rounds and what sites reported since; empty where no site reported any.

    The records have it after a restart too; the engine also has that of a round which failed.
    """
    found = [float(report["epsilon"]) for report in reports if report.get("epsilon") is not None]
    return {"epsilon": max(found)} if found else {}
