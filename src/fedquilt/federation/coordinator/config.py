"""The configuration of a federation: what `flwr run --run-config` says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedquilt.common.validation import first_problem
from fedquilt.errors import FedquiltError
from fedquilt.methods.base import find_method
from fedquilt.runs.config import Count, Participation, Seed
from fedquilt.scenarios.kinds import AggregationRule
from fedquilt.tasks import NODE_CLASSIFICATION
from fedquilt.tasks.base import find_task

# Fields that must not change when a run is resumed.
FIXED_FIELDS = (
    *("method", "settings", "rounds", "epochs", "seed", "sites", "dataset", "partition", "metric", "participation"),
    *("evaluate_every", "patience", "aggregation", "aggregation_trim", "aggregation_clip"),
)


class FederationConfig(BaseModel):
    """One federated training. `federation/app/pyproject.toml` lists the same fields, with a comment each."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    out: Annotated[str, Field(min_length=1)]
    sites: Count = 2
    method: str = "quilt"
    settings: dict[str, Any] = {}
    rounds: Count = 100
    epochs: Annotated[int, Field(ge=0)] = 0
    seed: Seed = 0
    metric: str = "accuracy"
    dataset: str = "federation"
    partition: str = "sites"
    participation: Participation = 1.0
    evaluate_every: Annotated[Count, Field(alias="evaluate-every")] = 1
    patience: Annotated[int, Field(ge=0)] = 0
    min_sites: Annotated[int, Field(ge=0, alias="min-sites")] = 0
    timeout: Annotated[float, Field(gt=0)] = 600.0
    tries: Count = 3
    wait: Annotated[float, Field(ge=0)] = 600.0
    norm_limit: Annotated[float, Field(gt=1, alias="norm-limit")] = 1000.0
    aggregation: AggregationRule = "mean"
    aggregation_trim: Annotated[float, Field(gt=0, lt=0.5, alias="aggregation-trim")] = 0.2
    aggregation_clip: Annotated[float, Field(gt=0, alias="aggregation-clip")] = 1.0

    @field_validator("settings", mode="before")
    @classmethod
    def _parse_settings(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> FederationConfig:
        """From Flower's run config; FedquiltError names what is wrong."""
        try:
            config = cls.model_validate(dict(values))
        except ValidationError as error:
            problem = first_problem(error)
            raise FedquiltError(problem.sentence(f"The run config's '{problem.field or 'settings'}'")) from None
        except ValueError:
            raise FedquiltError("The run config's 'settings' is not JSON, such as '{\"hidden\": 64}'.") from None
        find_method(config.method)
        find_task(NODE_CLASSIFICATION).metric(config.metric)
        if config.min_sites > config.sites:
            raise FedquiltError(f"min-sites is {config.min_sites} and there are {config.sites} sites; ask for fewer.")
        return config
