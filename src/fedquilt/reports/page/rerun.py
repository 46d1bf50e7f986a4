"""What a run's config.json says, for people: its settings and versions, and the command that runs it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.reports.page.data import PageFacts, PageRun

# How an option of the configuration is called on the command line, where that differs.
_OPTIONS = {"evaluate_every": "eval-every", "checkpoint_seconds": "checkpoint-every"}
# Dicts of config.json with a title of their own; others get their name.
_TITLES = {"settings": "Settings asked for"}
_RESOLVED = {"settings": "Method settings", "graph": "Graph"}
_APART = ("resolved", "versions")  # shown in groups of their own
_OWN_GRAPH = "graph.npz"  # a run of a graph from Python keeps a copy under this name


def facts_of(config: Mapping[str, Any], seeds: Sequence[int]) -> tuple[PageFacts, ...]:
    """All that config.json says, in groups: the run, then what was resolved, then the rest; empty values are left out."""
    said = config.get("resolved")
    resolved: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    plain = {name: value for name, value in config.items() if not isinstance(value, Mapping)} | {"seeds": list(seeds)}
    # How strong an attack or a protection would be says nothing where there is none.
    off = [kind for kind, on in (("attack", "attack"), ("dp_", "dp_clip")) if not plain.get(on)]
    if plain.get("aggregation", "mean") == "mean":
        off.append("aggregation")
    plain = {name: value for name, value in plain.items() if not name.startswith(tuple(off))}
    groups = [PageFacts("Run", _pairs(plain))]
    loose = {name: value for name, value in resolved.items() if not isinstance(value, Mapping)}
    for name, value in resolved.items():
        if isinstance(value, Mapping):
            groups.append(PageFacts(_RESOLVED.get(name, _spoken(name)), _pairs(value)))
    for name, value in config.items():
        # What was asked for is part of what it was resolved to.
        if isinstance(value, Mapping) and name not in _APART and not (name == "settings" and "settings" in resolved):
            groups.append(PageFacts(_TITLES.get(name, _spoken(name)), _pairs(value)))
    groups.append(PageFacts("Environment and versions", _pairs(loose) + _pairs(config.get("versions") or {})))
    return tuple(group for group in groups if group.pairs)


def command_of(config: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """The `fedquilt run` that does the same: every option that is not the default."""
    from fedquilt.runs.config import RunConfig

    if config.get("dataset") == _OWN_GRAPH:
        return "fedquilt run --config config.json  # in the folder of this run, which holds its graph"
    words = ["fedquilt", "run"]
    values = {**config, "seeds": list(seeds)}
    for name, field in RunConfig.model_fields.items():
        value = values.get(name)
        if name == "settings" or value is None or (value == field.get_default() and name not in ("method", "dataset")):
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else _value(value)
        words += [f"--{_OPTIONS.get(name, name.replace('_', '-'))}", text]
    for name, value in (values.get("settings") or {}).items():
        words += ["--set", f"{name}={_value(value)}"]
    return shlex.join(words)


def command_of_all(runs: Sequence[PageRun]) -> str:
    """The `fedquilt compare` that does all the runs again; "" where their options differ."""
    rests = set()
    for run in runs:
        start = shlex.join(["fedquilt", "run", "--method", run.method])
        if not run.command.startswith(start):
            return ""
        rests.add(run.command.removeprefix(start))
    methods = [run.method for run in runs]
    if len(rests) != 1 or len(runs) < 2 or len(set(methods)) < len(methods):
        return ""
    return shlex.join(["fedquilt", "compare", "--methods", ",".join(methods)]) + rests.pop()


def _pairs(values: Mapping[str, Any], before: str = "") -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            pairs += _pairs(value, f"{before}{name}.")
        elif value is not None and value != [] and value != "":
            text = ", ".join(map(_value, value)) if isinstance(value, list) else _value(value)
            pairs.append((f"{before}{name}", text))
    return tuple(pairs)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.10g}"
    return json.dumps(value, ensure_ascii=False)


def _spoken(name: str) -> str:
    text = name.replace("_", " ").strip()
    return f"{text[:1].upper()}{text[1:]}"
