"""A run's config.json for readers: its settings and versions, and the command that runs it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedquilt.reports.page.data import PageFacts, PageRun
from fedquilt.reports.read_run import StoredRun
from fedquilt.runs.config import RunConfig
from fedquilt.runs.options import options_of
from fedquilt.runs.read_config import stored_options

# Titles of mappings in config.json; others get their name.
_TITLES = {"settings": "Settings asked for"}
_RESOLVED = {"settings": "Method settings", "graph": "Graph"}
_SEPARATE = ("resolved", "versions")  # shown in groups of their own


def config_of(run: StoredRun) -> dict[str, Any]:
    """The run's config with a dataset that can be loaded: for a graph given as an object, the path of the run's copy."""
    return run.config | stored_options(run.config, run.folder)


def facts_of(config: Mapping[str, Any], seeds: Sequence[int]) -> tuple[PageFacts, ...]:
    """The config in groups: the run's options, then what was resolved, then the rest. Empty values are left out."""
    stored = config.get("resolved")
    resolved: Mapping[str, Any] = stored if isinstance(stored, Mapping) else {}
    plain = {name: value for name, value in config.items() if not isinstance(value, Mapping)} | {"seeds": list(seeds)}
    # The details of an attack, of differential privacy or of an aggregation rule mean nothing without it.
    off = [kind for kind, on in (("attack", "attack"), ("dp_", "dp_clip")) if not plain.get(on)]
    if plain.get("aggregation", "mean") == "mean":
        off.append("aggregation")
    plain = {name: value for name, value in plain.items() if not name.startswith(tuple(off))}
    groups = [PageFacts("Run", _pairs(plain))]
    flat = {name: value for name, value in resolved.items() if not isinstance(value, Mapping)}
    for name, value in resolved.items():
        if isinstance(value, Mapping):
            groups.append(PageFacts(_RESOLVED.get(name, _in_words(name)), _pairs(value)))
    for name, value in config.items():
        # The resolved settings include those in the config.
        if isinstance(value, Mapping) and name not in _SEPARATE and not (name == "settings" and "settings" in resolved):
            groups.append(PageFacts(_TITLES.get(name, _in_words(name)), _pairs(value)))
    groups.append(PageFacts("Environment and versions", _pairs(flat) + _pairs(config.get("versions") or {})))
    return tuple(group for group in groups if group.pairs)


def command_of(config: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """The `fedquilt run` command with every option that is not the default."""
    words = ["fedquilt", "run"]
    values = {**config, "seeds": list(seeds)}
    if values.get("clients_from"):  # these follow from it
        values |= dict.fromkeys(("dataset", "partition", "clients"))
    for name, option in options_of(RunConfig).items():
        value = values.get(name)
        if name == "settings" or value is None or (value == option.default and name not in ("method", "dataset")):
            continue
        if option.type == list[str]:
            words += [word for one in value for word in (option.flag, str(one))]
            continue
        text = ",".join(map(str, value)) if isinstance(value, list) else _value(value)
        words += [option.flag, text]
    for name, value in (values.get("settings") or {}).items():
        words += ["--set", f"{name}={_value(value)}"]
    return shlex.join(words)


def command_of_all(runs: Sequence[PageRun]) -> str:
    """The `fedquilt compare` command for all runs; "" where their options differ."""
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


def _in_words(name: str) -> str:
    text = name.replace("_", " ").strip()
    return f"{text[:1].upper()}{text[1:]}"
