"""The seal of a run: fingerprints of all that decides its result, taken when it begins and compared when it is resumed.

<run>/seal.json holds, with a hash over it:

    config    config.json without what may change freely (`FREE`)
    graph     a fingerprint of each part of the graph, as it is after its protocol's preparation
    cuts      by seed, fingerprints of the partition (the nodes of each client), of the split and of the preparation of features
    versions  of the packages that the run began with, or was last accepted with
    plugins   hashes of the plug-in files, by their names; left out where there are none
    accepted  the differences with which the run was resumed all the same (`--anyway`)

A difference is an accident or a careless edit: another file under the graph's name, a number changed by hand in config.json,
another version of the package. The seal has no key: it is no protection from a person who writes a new one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.common.files import plain
from fedquilt.common.plugin_files import read_plugin
from fedquilt.common.sealed import DamagedError, read_facts, write_facts
from fedquilt.common.version import VERSION
from fedquilt.errors import FedquiltError, RefusedError
from fedquilt.runs.compute_version import COMPUTE_VERSION, FIRST, method_version, run_kinds
from fedquilt.runs.config import GIVEN

SEAL = "seal.json"
FORMAT = 1
# Options that say where a run is computed, not what: a run may be resumed with other values of these.
FREE = frozenset({"device", "data", "checkpoint_seconds", "workers", "cohort_size", "threads"})
# Options that a run may be resumed with other values of where the user insists; see `_plan_difference`.
_PLAN = ("rounds", "patience", "seeds")
# Paths of files whose content is sealed; the files may lie elsewhere meanwhile.
_PATHS = ("dataset", "partition", "clients_from")
_LONGEST = 200  # characters of a value in a sentence

Facts = dict[str, Any]
_PARTS = {"config": dict, "graph": dict, "cuts": dict, "versions": dict, "accepted": list}

FIXED, VERSION_KIND, UNSEALED, PLAN, PLUGIN = "fixed", "version", "unsealed", "plan", "plugin"
# Kinds of differences with which a run goes on where the user insists. Never with another graph, partition or split: the run
# would be tested on nodes that it was trained on. Never with other settings: no set of settings would have given its numbers.
ACCEPTABLE = frozenset({VERSION_KIND, UNSEALED, PLAN, PLUGIN})


@dataclass(frozen=True)
class Difference:
    """One difference between a run as it began and as it would go on.

    Attributes:
        what: a clause that names it.
        kind: `FIXED`, or one of `ACCEPTABLE`.
    """

    what: str
    kind: str = FIXED


def versions() -> dict[str, Any]:
    """The versions that a run's numbers may depend on, as config.json stores them."""
    import torch

    return {
        "fedquilt": VERSION,
        "computation": COMPUTE_VERSION,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "seal": FORMAT,
    }


def seal_of(config: Mapping[str, Any], ground: Facts | None = None) -> Facts:
    """The seal of a run that begins: of its config.json, and of its `ground` (`fedquilt.runs.ground`).

    The coordinator of a federation has no graph.
    """
    began = versions() | _method_versions(config)
    facts: Facts = {"config": _sealed_part(config), "graph": {}, "cuts": {}, "versions": began, "accepted": []}
    if hashes := plugin_hashes(config):
        facts["plugins"] = hashes
    return facts | (ground or {})


def plugin_hashes(config: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of a configuration's plug-ins by their file names; one that cannot be read is left out."""
    hashes = {}
    methods = config.get("methods")  # of a comparison, whose runs have the same plug-ins
    paths = mapping(config.get(methods[0])).get("plugins") if methods else config.get("plugins")
    for path in paths if isinstance(paths, list) else []:
        with suppress(FedquiltError):
            file = read_plugin(path)
            hashes[file.path.name] = file.sha256
    return hashes


def plugin_differences(facts: Facts, config: Mapping[str, Any]) -> list[Difference]:
    """How the plug-ins that a configuration names differ from those that the run began with. None of them is executed."""
    before, now = mapping(facts.get("plugins")), plugin_hashes(config)
    found = [
        Difference(f"it was begun with the plug-in {name}, which is not there", FIXED)
        for name in before
        if name not in now
    ]
    found += [Difference(f"the plug-in {name} is new", PLUGIN) for name in now if name not in before]
    changed = [name for name in now if before.get(name, now[name]) != now[name]]
    return found + [Difference(f"the plug-in {name} changed since it began", PLUGIN) for name in changed]


def renewed(facts: Facts, config: Mapping[str, Any], accepted: Sequence[str]) -> Facts:
    """The seal of a run that goes on with differences that were accepted; it says which."""
    now = {
        "config": _sealed_part(config),
        "versions": versions() | _method_versions(config),
        "accepted": [*facts["accepted"], *accepted],
    }
    hashes = plugin_hashes(config)
    return facts | now | ({"plugins": hashes} if hashes else {})


def seal_of_earlier(config: Mapping[str, Any]) -> Facts:
    """What is known of a run that an earlier version began, without a seal: its versions, and nothing to compare with."""
    facts = seal_of(config)
    # Versions of the computation were not declared before the second.
    return facts | {"versions": {"computation": 1, **mapping(config.get("versions"))}}


def write_seal(folder: Path, facts: Facts) -> None:
    """Write the seal of the run in a folder."""
    write_facts(folder / SEAL, facts)


def read_seal(folder: Path, config: Mapping[str, Any] | None = None) -> Facts | None:
    """The seal of the run in a folder; None where an earlier version made the run, which sealed nothing.

    `config` is the content of config.json, which says whether the run has a seal.
    """
    if not (folder / SEAL).exists():
        if config is not None and "seal" in mapping(config.get("versions")):
            raise FedquiltError(
                f"{folder / SEAL} is gone, without which nothing shows that the run in {folder} is still on the same graph and "
                f"settings; put it back from a copy, or {_again(folder)}."
            )
        return None
    try:
        facts = read_facts(folder / SEAL)
        if not all(isinstance(facts[name], kind) for name, kind in _PARTS.items()):
            raise KeyError
    except (DamagedError, KeyError) as error:
        why = str(error) if isinstance(error, DamagedError) else f"{SEAL} lacks a part"
        raise FedquiltError(
            f"The seal of the run in {folder} is damaged: {why}; put {SEAL} back from a copy, or {_again(folder)}."
        ) from error
    return facts


def config_differences(
    facts: Facts, config: Mapping[str, Any], done: Sequence[int] = (), file: str = "config.json"
) -> list[Difference]:
    """How the configuration in a file differs from what was sealed; `done` are the seeds that are finished."""
    before, now = dict(_flat(facts["config"])), dict(_flat(_sealed_part(config)))
    found = []
    for name in dict.fromkeys([*before, *now]):
        was, is_ = before.get(name), now.get(name)
        if was == is_ or (name.rpartition(".")[2] in _PATHS and _is_path(was) and _is_path(is_)):
            continue
        clause = f"{name} was {text(name in before, was)} and is now {text(name in now, is_)} in {file}"
        if name in _PLAN:
            found.append(_plan_difference(name, was, is_, clause, config, done))
        else:
            found.append(Difference(clause))
    return found


def version_differences(facts: Facts) -> list[Difference]:
    """How the versions that a run began with differ from the present ones."""
    before, now = facts["versions"], versions() | _method_versions(facts["config"])
    found = []
    if any(before.get(name) != now.get(name) for name in ("computation", "methods")):
        found.append(Difference("it was begun by a fedquilt whose numbers differ from this one's"))
    for name in ("fedquilt", "torch", "numpy"):
        if name in before and before[name] != now[name]:
            found.append(Difference(f"it was begun with {name} {before[name]} and this is {now[name]}", VERSION_KIND))
    return found


def _method_versions(config: Mapping[str, Any]) -> Facts:
    """The numbers of the computation of a configuration's methods, where one was raised."""
    names = config.get("methods") or [config.get("method")]
    # A comparison has the configuration of each of its methods under the method's name.
    own = {name: mapping(config.get(name)) if config.get("methods") else config for name in names}
    raised = {name: number for name in names if (number := method_version(name, run_kinds(own[name]))) != FIRST}
    return {"methods": raised} if raised else {}


def size_differences(before: Any, now: Mapping[str, Any]) -> list[Difference]:
    """How the sizes of the graph differ from those in config.json, which earlier versions wrote as well."""
    return [
        Difference(f"the graph changed since it began: it has {now[name]} {name}, not {value}")
        for name, value in mapping(before).items()
        if name in now and name != "name" and now[name] != value
    ]


def refuse(
    folder: Path,
    found: Sequence[Difference],
    accept: Collection[str] = (),
    what: str = "run",
    instead: str = "",
) -> list[str]:
    """Refuse to resume a run with these differences, unless all are of a kind to `accept`; returns what was accepted.

    `instead` says what to do, where that is not what a run's user can do.
    """
    if any(difference.kind not in accept for difference in found):
        clauses = "; ".join(difference.what for difference in found)
        fixed = any(difference.kind == FIXED for difference in found)
        put_back = "put back what it began with" if fixed else "insist with --anyway (anyway=True from Python)"
        again = _again(folder) if what == "run" else "start it again in a new folder"
        instead = instead or f"{put_back}, or {again}"
        raise RefusedError(f"The {what} in {folder} cannot be resumed: {clauses}; {instead}.")
    return [difference.what for difference in found]


def unsealed() -> Difference:
    """The difference of a run that an earlier version began, without a seal."""
    return Difference(
        "an earlier fedquilt began it, which sealed nothing, so that it may have another graph or other settings by now",
        UNSEALED,
    )


def _plan_difference(
    name: str, was: Any, is_: Any, clause: str, config: Mapping[str, Any], done: Sequence[int]
) -> Difference:
    """A difference in rounds, patience or seeds, which makes sense as long as finished seeds keep their meaning."""
    if name == "seeds":
        added = isinstance(was, list) and isinstance(is_, list) and is_[: len(was)] == was
        return Difference(
            clause if added else f"{clause} (only more seeds can be added, after the others)", _plan(added)
        )
    if done:
        return Difference(f"{clause} (and seed {done[0]} is finished, with the {name} from before)")
    if config.get("dp_clip") is not None:
        return Difference(f"{clause} (and the noise on its uploads was chosen for the rounds from before)")
    if name == "rounds" and not (isinstance(was, int) and isinstance(is_, int) and is_ > was):
        return Difference(f"{clause} (there can only be more)")
    return Difference(clause, _plan(True))


def _plan(sensible: bool) -> str:
    return PLAN if sensible else FIXED


def _sealed_part(config: Mapping[str, Any]) -> Facts:
    """What is sealed of a config.json: everything but what may change freely and what is about the machine.

    That of a comparison has such a mapping for each method.
    """
    kept = {
        name: _sealed_part(value) if isinstance(value, Mapping) and name not in ("settings", "resolved") else value
        for name, value in plain(config).items()
        if name not in FREE and name != "plugins"  # whose content is sealed apart; the files may lie elsewhere
    }
    if isinstance(kept.get("resolved"), dict):
        kept["resolved"] = {name: value for name, value in kept["resolved"].items() if name != "device"}
    return kept


def _flat(value: Any, *where: str) -> Iterator[tuple[str, Any]]:
    """The values of nested mappings, by the path of their keys."""
    if isinstance(value, Mapping) and (value or not where):
        for name, inner in value.items():
            yield from _flat(inner, *where, str(name))
    else:
        yield ".".join(where), value


def _is_path(value: Any) -> bool:
    """Whether a dataset or partition is a file, such as the copy of a graph in the run's own folder; or a list of files."""
    if isinstance(value, list):
        return all(map(_is_path, value))
    return isinstance(value, str) and (value == GIVEN or "/" in value or value.endswith(".npz"))


def text(known: bool, value: Any) -> str:
    """A value in a sentence."""
    whole = "not set" if not known or value is None else json.dumps(value, ensure_ascii=False)
    return whole if len(whole) <= _LONGEST else whole[: _LONGEST - 3] + "..."


def mapping(value: Any) -> Mapping[str, Any]:
    """A value that should be a mapping; an empty one where it is something else."""
    return value if isinstance(value, Mapping) else {}


def _again(folder: Path) -> str:
    return f"start it again with 'fedquilt run --config {folder / 'config.json'} --out' and a new folder"
