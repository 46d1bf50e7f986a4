"""The configuration of a federation: what `flwr run --run-config` says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from fedquilt.cohort.sampled_neighbours import parse_fan_out
from fedquilt.common.files import write_text
from fedquilt.common.json_text import parse_json
from fedquilt.common.validation import first_problem
from fedquilt.errors import FedquiltError
from fedquilt.federation.protocol import MAX_RANGE
from fedquilt.methods.base import find_method, refuse_pooling
from fedquilt.runs.config import Count, RunConfig, Seed
from fedquilt.runs.options import Option, options_of
from fedquilt.scenarios.kinds import AggregationRule
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task

# Fields that must not change when a run is resumed.
FIXED_FIELDS = (
    *("secure_aggregation", "secure_range"),
    *("method", "settings", "rounds", "epochs", "seed", "sites", "dataset", "partition", "metric", "participation"),
    "prepare",
    *("evaluate_every", "patience", "aggregation", "aggregation_trim", "aggregation_clip", "aggregation_voters"),
    *("class_weights", "batch_nodes", "fan_out", "task", "task_settings"),
)


FEDERATION = "The federation"
USUAL_METRIC = "accuracy"  # of a task without it, the first metric

# Run options that simulate what happens to real sites by itself.
SIMULATED = ("drop_out", "stragglers", "join_late", "join_round", "leave", "leave_round", "upload_delay", "buffer")


def _bounds(name: str) -> Any:
    """The bounds of a run option, for the field of a federation with the same meaning."""
    limits: dict[str, Any] = {}
    for item in RunConfig.model_fields[name].metadata:
        limits |= {key: getattr(item, key) for key in ("gt", "ge", "lt", "le") if hasattr(item, key)}
    return Field(**limits)


def _option(name: str, unset: str = "") -> Option:
    """The help of a run option; `unset` says what 0 means, as Flower's run config knows no None."""
    about = options_of(RunConfig)[name].about
    return replace(about, help=f"{about.help} 0: {unset}." if unset else about.help)


def _own(text: str) -> Option:
    """An option that only a federation has."""
    return Option(FEDERATION, text)


class FederationConfig(BaseModel):
    """One federated training. What it shares with `RunConfig` has the bounds and the help of the field there.

    The settings of the Flower app (`federation/app/pyproject.toml`) are made from these fields by `make options`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    out: Annotated[str, Field(min_length=1), _own("The run folder on the coordinator's machine; required.")]
    sites: Annotated[Count, _own("How many sites there are; training starts when all of them are there.")] = 2
    method: Annotated[str, _option("method")] = "quilt"
    settings: Annotated[dict[str, Any], _own("The method's settings, as JSON.")] = {}
    rounds: Annotated[int, Field(ge=1), _option("rounds")] = 100
    epochs: Annotated[int, Field(ge=0), _option("epochs", "the method's own")] = 0
    seed: Annotated[Seed, _own("What everything random is drawn from.")] = 0
    task: Annotated[str, _option("task")] = NODE_CLASSIFICATION
    task_settings: Annotated[dict[str, Any], Field(alias="task-settings"), _own("The task's settings, as JSON.")] = {}
    metric: Annotated[str, Field(validate_default=True), _option("metric")] = USUAL_METRIC
    class_weights: Annotated[
        str,
        Field(alias="class-weights"),
        _own("Classes in the training loss: none, balanced (by each site's own labels), or weights, such as 1,1,3.5."),
    ] = "none"
    batch_nodes: Annotated[
        int,
        Field(ge=0, le=1_000_000_000, alias="batch-nodes"),
        _own(
            "Sites train on clusters of about so many of their nodes a step (fedquilt docs scale). 0: on all of them."
        ),
    ] = 0
    fan_out: Annotated[
        str,
        Field(alias="fan-out"),
        _own(
            "With batch-nodes, sites train on so many training nodes a step and, at each distance from these, so many drawn "
            "neighbours of a node, such as 10,5. Empty: on clusters."
        ),
    ] = ""
    dataset: Annotated[str, _own("What to call it; a dataset's name brings the method's defaults for it.")] = (
        "federation"
    )
    partition: Annotated[str, _own("What to call the way the graph is cut.")] = "sites"
    prepare: Annotated[
        Literal["", "none", "standard", "rows"],
        _own(
            "How sites prepare their features, each by its own statistics: none, standard or rows (fedquilt docs data). Empty: "
            "as "
            "they suggest."
        ),
    ] = ""
    participation: Annotated[float, _bounds("participation"), _option("participation")] = 1.0
    evaluate_every: Annotated[int, Field(ge=1, alias="evaluate-every"), _option("evaluate_every")] = 1
    patience: Annotated[int, Field(ge=0), _option("patience", "never")] = 0
    min_sites: Annotated[
        int,
        Field(ge=0, alias="min-sites"),
        _own("A round counts with so many sites. 0: all are waited for, bad uploads are done without."),
    ] = 0
    timeout: Annotated[float, Field(gt=0), _own("Seconds that a site has to answer.")] = 600.0
    tries: Annotated[Count, _own("How often a round is asked for before the run stops.")] = 3
    wait: Annotated[float, Field(ge=0), _own("Seconds to wait for all sites at the start.")] = 600.0
    secure_aggregation: Annotated[
        bool,
        Field(alias="secure-aggregation"),
        _own("Sites mask their uploads, and only sums over three or more of them can be read (fedquilt docs privacy)."),
    ] = False
    secure_range: Annotated[
        float,
        Field(ge=1, le=MAX_RANGE, alias="secure-range"),
        _own("With secure-aggregation: the largest size of a weight; larger ones are cut to it, and counted."),
    ] = 64.0
    norm_limit: Annotated[
        float,
        Field(gt=1, alias="norm-limit"),
        _own("An upload with a tensor so many times as long as the median of the other sites' is left out."),
    ] = 30.0
    size_limit: Annotated[
        float,
        Field(ge=1, alias="size-limit"),
        _own("Counts of more than so many times the nodes of the median of the other sites are not believed."),
    ] = 100.0
    aggregation: Annotated[AggregationRule, _option("aggregation")] = "mean"
    aggregation_trim: Annotated[
        float, _bounds("aggregation_trim"), Field(alias="aggregation-trim"), _option("aggregation_trim")
    ] = 0.2
    aggregation_clip: Annotated[
        float, _bounds("aggregation_clip"), Field(alias="aggregation-clip"), _option("aggregation_clip")
    ] = 1.0
    aggregation_voters: Annotated[
        int, _bounds("aggregation_voters"), Field(alias="aggregation-voters"), _option("aggregation_voters")
    ] = 3

    @field_validator("fan_out")
    @classmethod
    def _check_fan_out(cls, value: str, info: ValidationInfo) -> str:
        """Refuse what are no numbers of neighbours, and numbers that no step reads."""
        if value and not info.data.get("batch_nodes"):
            raise ValueError("a step reads a site's whole graph; say batch-nodes too")
        parse_fan_out(value)
        return value

    @field_validator("settings", "task_settings", mode="before")
    @classmethod
    def _parse_settings(cls, value: Any) -> Any:
        return parse_json(value) if isinstance(value, str) else value

    @field_validator("metric")
    @classmethod
    def _usual_metric(cls, value: str, info: ValidationInfo) -> str:
        """The task's first metric in place of the default, where the task does not have that: Flower's config has no None."""
        metrics = find_task(info.data["task"]).metrics
        return next(iter(metrics)) if value == USUAL_METRIC and value not in metrics else value

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> FederationConfig:
        """From Flower's run config; FedquiltError names what is wrong."""
        for name in (name for name in values if name.replace("-", "_") in SIMULATED):
            raise FedquiltError(
                f"The run config's '{name}' simulates what happens to real sites by itself; leave it out, or try it in a run "
                "on one machine (fedquilt docs conditions)."
            )
        try:
            config = cls.model_validate(dict(values))
        except ValidationError as error:
            problem = first_problem(error)
            raise FedquiltError(problem.sentence(f"The run config's '{problem.field or 'settings'}'")) from None
        except ValueError:
            raise FedquiltError(
                "The run config's 'settings' or 'task-settings' is not JSON, such as '{\"hidden\": 64}'."
            ) from None
        refuse_pooling(find_method(config.method))
        task = find_task(config.task, config.task_settings)
        task.metric(config.metric)
        if config.min_sites > config.sites:
            raise FedquiltError(f"min-sites is {config.min_sites} and there are {config.sites} sites; ask for fewer.")
        return config


def app_file() -> Path:
    """The Flower app's pyproject.toml, in the installed package."""
    return Path(str(resources.files("fedquilt") / "federation" / "app" / "pyproject.toml"))


def app_text(text: str) -> str:
    """The text of the Flower app's pyproject.toml with its settings made from `FederationConfig`; the rest stays."""
    heading = "[tool.flwr.app.config]\n"
    lines = []
    for name, option in options_of(FederationConfig).items():
        key = FederationConfig.model_fields[name].alias or name
        default = "{}" if option.default == {} else option.default
        value = json.dumps("" if name == "out" else default)
        lines += [f"# {option.about.help.replace('`', '')}", f"{key} = {value}"]
    return text[: text.index(heading)] + heading + "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(app_file(), app_text(app_file().read_text(encoding="utf-8")))
