"""The coordinator: who is there, the round loop of `fedquilt.training.loop`, and the run folder. It holds no graph.

Started again with the same folder it goes on with the round it was in: its checkpoints are written after every round, and
sites that did the round already give the answer they gave.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from flwr.serverapp import Grid
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from fedquilt.errors import FedquiltError
from fedquilt.federation.coordinator.engine import FlowerSites, Rules
from fedquilt.federation.coordinator.finite_aggregation import Guarded
from fedquilt.federation.coordinator.incidents import Incidents
from fedquilt.federation.coordinator.roster import Introduction, Sites, gather
from fedquilt.federation.site.permits import refused_uploads, usual_methods
from fedquilt.methods.base import Method, RunContext, find_method
from fedquilt.methods.settings import as_dict, resolve_settings
from fedquilt.privacy.dp import BudgetSpentError
from fedquilt.runs.folder import FEDERATION, RunFolder
from fedquilt.runs.result import build_result
from fedquilt.scenarios.robust_aggregation import RobustAverage, check_averages
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task
from fedquilt.training.loop import Plan, Record, Training

ROSTER = "sites.json"
INCIDENTS = "incidents.jsonl"
# What a run that is gone on with cannot change.
SAME = (
    *("method", "settings", "rounds", "epochs", "seed", "sites", "dataset", "partition", "metric", "participation"),
    *("evaluate_every", "patience", "aggregation", "aggregation_trim", "aggregation_clip"),
)


class Order(BaseModel):
    """What `flwr run --run-config` asks of a federation."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    out: Annotated[str, Field(min_length=1)]
    sites: Annotated[int, Field(ge=1)] = 2
    method: str = "quilt"
    settings: dict[str, Any] = {}
    rounds: Annotated[int, Field(ge=1)] = 100
    epochs: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    metric: str = "accuracy"
    dataset: str = "federation"
    partition: str = "sites"
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    evaluate_every: Annotated[int, Field(ge=1, alias="evaluate-every")] = 1
    patience: Annotated[int, Field(ge=0)] = 0
    min_sites: Annotated[int, Field(ge=0, alias="min-sites")] = 0
    timeout: Annotated[float, Field(gt=0)] = 600.0
    tries: Annotated[int, Field(ge=1)] = 3
    wait: Annotated[float, Field(ge=0)] = 600.0
    norm_limit: Annotated[float, Field(gt=1, alias="norm-limit")] = 1000.0
    aggregation: Literal["mean", "median", "trimmed", "clipped"] = "mean"
    aggregation_trim: Annotated[float, Field(gt=0, lt=0.5, alias="aggregation-trim")] = 0.2
    aggregation_clip: Annotated[float, Field(gt=0, alias="aggregation-clip")] = 1.0

    @field_validator("settings", mode="before")
    @classmethod
    def _from_json(cls, value: Any, info: ValidationInfo) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Order:
        """From Flower's run config, or an error that names what is wrong."""
        try:
            order = cls.model_validate(dict(values))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "settings"
            raise FedquiltError(f"The run config's '{where}' is not possible: {first['msg']}.") from None
        except ValueError:
            raise FedquiltError("The run config's 'settings' is not JSON, such as '{\"hidden\": 64}'.") from None
        find_method(order.method)
        find_task(NODE_CLASSIFICATION).metric(order.metric)
        if order.min_sites > order.sites:
            raise FedquiltError(f"min-sites is {order.min_sites} and there are {order.sites} sites; ask for fewer.")
        return order


class Federation:
    """One federated training, from the first hello to the last word."""

    def __init__(self, order: Order, grid: Grid, say: Callable[[str], None] = print) -> None:
        self.order, self.say = order, say
        path = Path(order.out).expanduser()
        self.again = (path / "config.json").is_file()
        # One that was stopped while it waited for its sites has nothing but incidents.
        waited = path.is_dir() and {each.name for each in path.iterdir()} <= {".lock", INCIDENTS}
        self.folder = RunFolder(path) if self.again or waited else RunFolder.create(path, order.method)
        if self.again:
            self._check_same()
        self.incidents = Incidents(path / INCIDENTS)
        self.sites = Sites(grid, self.incidents)

    def run(self) -> dict[str, Any]:
        """Train to the end; what result.json says."""
        with self.folder.lock():
            return self.folder.result or self._run()

    def _check_same(self) -> None:
        """Refuse to go on with another training than the one in the folder."""
        kept, asked = self.folder.config.get("order"), self.order.model_dump()
        if not isinstance(kept, dict):
            raise FedquiltError(f"{self.folder.path} holds a run that was not made with sites; choose another 'out'.")
        for name in SAME:
            if kept.get(name) != asked[name]:
                raise FedquiltError(
                    f"{self.folder.path} holds a run with another {name}; choose another 'out', or ask for the same."
                )

    def _run(self) -> dict[str, Any]:
        method, run, coordinator = self._go_on() if self.again else self._begin()
        training, engine = self._training(method, run, coordinator)
        try:
            training.run()
        except BudgetSpentError as error:  # what was learned so far is what there is
            if training.progress.best.round < 0:
                raise
            self.say(str(error))
        progress = training.progress
        confirmed = engine.finish(progress.next_round)
        for name in sorted(set(self.sites.names) - set(confirmed)):
            self.incidents.note(None, name, "finish", f"Site {name} did not confirm that it has its model.")
        order = self.order
        summary = progress.summary(order.seed, order.metric)
        summary |= {"sites": self.sites.names, "confirmed": confirmed, **spent([*training.records, engine.told])}
        place = self.folder.seed(order.seed)
        if training.similarities:
            arrays = {str(round): s.cpu().numpy() for round, s in training.similarities.items()}
            place.save_arrays("similarity", arrays)
        place.finish(summary)
        self.folder.result = build_result(self.folder.config, [summary])
        return self.folder.result or {}

    def _begin(self) -> tuple[Method, str, int]:
        """Wait for the sites, check that they fit, and write down what is done."""
        order = self.order
        who = gather(self.sites, order.sites, order.wait, order.timeout, self.say)
        method = check_order(order, who)
        self.sites.save(self.folder.path / ROSTER)
        run = secrets.token_hex(8)
        self._write_config(method, run, 0)
        return method, run, 0

    def _go_on(self) -> tuple[Method, str, int]:
        """What an earlier coordinator began in this folder."""
        kept = self.folder.config
        self.sites.load(self.folder.path / ROSTER)
        kind, context = find_method(kept["method"]), RunContext.from_dict(kept[FEDERATION]["task"])
        method = kind(*resolve_settings(kind, context, kept["settings"], None))
        coordinator = kept[FEDERATION]["coordinator"] + 1
        run = kept[FEDERATION]["run"]
        self._write_config(method, run, coordinator)
        self.say(f"Going on with the run in {self.folder.path}.")
        return method, run, coordinator

    def _write_config(self, method: Method, run: str, coordinator: int) -> None:
        order = self.order
        self.folder.config = {
            "method": order.method,
            "dataset": order.dataset,
            "partition": order.partition,
            "clients": method.context.clients,
            "rounds": order.rounds,
            "seeds": [order.seed],
            "metric": order.metric,
            "settings": as_dict(method.settings),
            "order": order.model_dump(),
            FEDERATION: {
                "run": run,
                "coordinator": coordinator,
                "sites": self.sites.names,
                "task": method.context.to_dict(),
            },
        }

    def _training(self, method: Method, run: str, coordinator: int) -> tuple[Training, FlowerSites]:
        order = self.order
        rules = Rules(order.timeout, order.min_sites, order.tries, order.norm_limit)
        if order.aggregation != "mean":
            method.robust = RobustAverage(order.aggregation, order.aggregation_trim, order.aggregation_clip)
        engine = FlowerSites(method, self.sites, rules, run, order.rounds, coordinator)
        plan = Plan(order.rounds, order.participation, order.evaluate_every, order.patience or None, 0.0)
        place = self.folder.seed(order.seed)
        training = Training(method, engine, plan, place, self._tell, aggregate=Guarded(method, engine.left_out))
        engine.best = lambda: training.progress.best.round
        return training, engine

    def _tell(self, record: Record) -> None:
        who = record["participants"]
        there = self.order.sites if who == "all" else len(who)
        figures = "".join(f", {name} {record[name]:.2f}" for name in ("val", "test") if record.get(name) is not None)
        spent = f"epsilon {record['epsilon']:.2f}, " if "epsilon" in record else ""
        self.say(
            f"Round {record['round'] + 1} of {self.order.rounds}: {there} of {len(self.sites.names)} sites{figures}, "
            f"{sum(record['bytes_up'].values()):,} bytes up, {spent}{record['seconds']:.1f} s"
        )


def spent(told: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The largest epsilon of those told, by its name; nothing where no site told any.

    Rounds' records tell it after a restart too, and the engine that of a round which came to nothing.
    """
    every = [float(one["epsilon"]) for one in told if one.get("epsilon") is not None]
    return {"epsilon": max(every)} if every else {}


def check_order(order: Order, sites: Sequence[Introduction]) -> Method:
    """The method as the sites will train it; refused where they do not permit it, or its settings are not possible."""
    first = sites[0]
    sizes = (first.features, first.classes, len(sites))
    context = RunContext(order.dataset, order.partition, order.metric, *sizes, order.epochs or 1, order.seed)
    find_task(context.task).check("the sites have", context.outputs, context.metric)
    kind = find_method(order.method)
    method = kind(*resolve_settings(kind, context, order.settings, order.epochs or None))
    check_permitted(sites, method)
    if order.aggregation != "mean":
        check_averages(method)
    return method


def check_permitted(sites: Sequence[Introduction], method: Method) -> None:
    """Refuse a method that sends what a site does not permit."""
    for site in sites:
        refused = refused_uploads(site.permits, method)
        if refused:
            would = [name for name, other in usual_methods().items() if not _refusing(sites, other)]
            raise FedquiltError(
                f"Site '{site.name}' does not permit '{refused[0].name}' to leave, which {method.name} sends; "
                f"methods that all sites permit: {', '.join(would)}."
            )


def _refusing(sites: Sequence[Introduction], method: Method) -> bool:
    return any(refused_uploads(site.permits, method) for site in sites)
