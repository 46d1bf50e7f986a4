"""What a comparison runs: a configuration for each method, all of them checked before the first trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fedquilt.errors import FedquiltError, unknown
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.methods.base import find_method
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun


def plan(methods: Sequence[str], values: Mapping[str, Any]) -> list[RunConfig]:
    """A configuration for each method; a setting goes to the methods that have it, and one of them must."""
    if not methods:
        raise FedquiltError("Say which methods to compare, such as local, fedavg and fedpub.")
    for name in methods:
        if list(methods).count(name) > 1:
            raise FedquiltError(f"Method '{name}' is listed twice; list each method once.")
    known = {name: {f.name for f in fields(find_method(name).Settings)} for name in methods}
    # First as a whole, so that settings which are not names and values at all are refused with a sentence.
    settings = RunConfig.build({**values, "method": methods[0]}).settings
    everything = set().union(*known.values())
    for setting in settings:
        if not everything:
            raise FedquiltError(f"None of these methods has settings, so leave out '{setting}'.")
        if setting not in everything:
            raise unknown("setting of these methods", setting, everything)
    return [
        RunConfig.build({**values, "method": name, "settings": {k: v for k, v in settings.items() if k in known[name]}})
        for name in methods
    ]


def check_plan(configs: Sequence[RunConfig], given: tuple[Graph, Protocol] | None = None) -> ResolvedRun:
    """Find what is wrong with any of a comparison's runs before the first trains; the first one, resolved.

    They differ in the method and its settings only, so one cut is enough to check.
    """
    first = ResolvedRun(configs[0], given)
    for config in configs[1:]:
        first.method_of(config)
    return first
