"""site.yaml: a site's graph, its private folder, and what may leave it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedquilt.cohort.client import Client
from fedquilt.common.registry import load_plugins
from fedquilt.common.validation import first_problem
from fedquilt.errors import FedquiltError, unknown
from fedquilt.federation.site.permits import DEFAULT_PERMITS, MAX_PERMIT_LETTERS, MAX_PERMITS
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TRAIN
from fedquilt.privacy.dp import DpConfig
from fedquilt.runs.read_config import read_config
from fedquilt.runs.site_data import (
    SITE_YAML,
    SiteData,
    absolute,
    in_file,
    load_site_graph,
    site_split,
    split_name,
)
from fedquilt.tasks.base import Task

# What is said of a site's data is read here too, where all of a site is read.
__all__ = [
    "SITE_YAML",
    "SiteConfig",
    "is_site_name",
    "load_site_graph",
    "read_site",
    "site_client",
    "site_split",
    "split_name",
]

Permit = Annotated[str, Field(min_length=1, max_length=MAX_PERMIT_LETTERS)]
_NAME = re.compile(r"[\w.@+-][\w .@+-]{0,79}")


def is_site_name(name: str) -> bool:
    """Whether a site may have this name: other sites see it, and folders are named after it."""
    return _NAME.fullmatch(name) is not None and bool(name.strip(". ")) and name == name.strip()


class Quota(BaseModel):
    """What a coordinator may take up of a site.

    Attributes:
        runs: the most runs whose folders are kept; for another one the oldest finished run is deleted, but never its ledger.
        days: a finished run is kept for at least so many days.
        gigabytes: the most disk space that all runs and ledgers take together.
        requests: the most requests of each kind that are answered in a day (UTC).
        numbers: the most numbers that a run's weights and its widest layer over 5,000 nodes may have (`Method.size`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    runs: Annotated[int, Field(ge=1, le=100_000)] = 100
    days: Annotated[float, Field(ge=0, le=36_500)] = 7
    gigabytes: Annotated[float, Field(gt=0, le=1e6)] = 10
    requests: Annotated[int, Field(ge=1, le=10**9)] = 20_000
    numbers: Annotated[int, Field(ge=1, le=10**15)] = 1_000_000_000


class SiteConfig(SiteData):
    """A site as its site.yaml describes it.

    Attributes:
        state: the folder for everything private, and for the ledger.
        permits: the tensors that may leave (`fedquilt.federation.site.permits.covers`), or "all".
        dp: differential privacy for what leaves; None: none.
        device: where the site trains and predicts.
        secure_aggregation: "required": uploads leave only masked, as part of a sum over several sites.
        secure_peers: the keys of the other sites (`fedquilt site key`), where only theirs may be in the sum; None: any.
        quota: how much a coordinator may take up of the site.
        settings: settings of the method that this site has in place of the run's, such as {lr: 0.005}, where the method lets
            them differ between clients.
        plugins: Python files of the site's own that register methods and backbones (see `fedquilt docs plugins`). They are
            never sent.
    """

    state: Annotated[str, Field(min_length=1)]
    permits: Annotated[list[Permit], Field(max_length=MAX_PERMITS)] | Literal["all"] = Field(
        default_factory=lambda: list(DEFAULT_PERMITS)
    )
    dp: DpConfig | None = None
    device: str = "cpu"
    secure_aggregation: Literal["allowed", "required"] = "allowed"
    secure_peers: list[str] | None = None
    quota: Quota = Quota()
    settings: dict[str, int | float | str] = Field(default_factory=dict)
    plugins: list[str] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not is_site_name(name):
            raise ValueError(
                "a name has up to 80 letters, digits, spaces (not at its ends) and any of . _ @ + -, such as st-anna"
            )
        return name

    @field_validator("secure_peers")
    @classmethod
    def _are_keys(cls, keys: list[str] | None) -> list[str] | None:
        if not all(re.fullmatch(r"[0-9a-f]{64}", key) for key in keys or []):
            raise ValueError("a key has 64 characters, as 'fedquilt site key' prints them at the other site")
        return keys


def read_site(path: str | os.PathLike[str]) -> SiteConfig:
    """The site that a site.yaml describes, with absolute paths; in the file they are relative to it."""
    path = Path(path).expanduser()
    values = read_config(path, example="name: st-anna")
    for name in values:
        if name not in SiteConfig.model_fields:
            raise in_file(path, unknown("field", name, SiteConfig.model_fields))
    for name, field in SiteConfig.model_fields.items():
        if field.is_required() and values.get(name) is None:
            raise FedquiltError(
                f"{path} does not say '{name}'; a site needs name, graph and state (see 'fedquilt docs sites')."
            )
    try:
        site = SiteConfig(**values)
    except ValidationError as error:
        raise _wrong(path, values, error) from None
    folder = path.resolve().parent
    plugins = load_plugins([absolute(folder, file) for file in site.plugins], named=True)
    paths = {key: absolute(folder, getattr(site, key)) for key in ("graph", "state")}
    return site.model_copy(update={**paths, "plugins": plugins})


def site_client(site: SiteConfig, number: int, graph: Graph, task: Task, seed: int) -> Client:
    """The site as a client of a federation, with its number there."""
    split = np.full(graph.nodes, TRAIN, np.int8) if task.splits_edges else site_split(site, graph)
    return task.client(number, graph, split, seed)


def _wrong(path: Path, values: Any, error: ValidationError) -> FedquiltError:
    """One sentence for the first thing that is wrong."""
    problem = first_problem(error)
    where = [part for part in problem.path if isinstance(part, str) and not part.startswith(("list[", "literal["))]
    if where and where[0] == "permits":
        return FedquiltError(
            f"In {path}, permits has to be 'all' or a list of upload names, such as [weights, counts, figures]."
        )
    if problem.kind == "extra_forbidden":
        fields = (Quota if where[0] == "quota" else DpConfig).model_fields
        return in_file(path, unknown(f"field of {where[0]}", where[-1], fields))
    given: Any = values
    for part in where:
        given = given.get(part) if isinstance(given, dict) else None
    if problem.kind == "string_type" and not isinstance(given, dict | list | None):
        return FedquiltError(
            f"In {path}, {where[0]} has to be text, but YAML reads what stands there as {given!r}; put it in quotes."
        )
    if where == ["dp"] and problem.kind == "model_type":
        problem = replace(problem, text="it has to hold names and values, such as {clip: 1.0, noise: 4.0}")
    if where == ["quota"] and problem.kind == "model_type":
        problem = replace(problem, text="it has to hold names and values, such as {runs: 100, gigabytes: 10}")
    shown = ".".join(where) + (f"={given!r}" if not isinstance(given, dict) and given is not None else "")
    return FedquiltError(problem.sentence(f"In {path}, {shown}"))
