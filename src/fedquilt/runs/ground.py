"""What a run stands on: its graph, partitions and splits, as fingerprints that are sealed and compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedquilt.common.files import plain
from fedquilt.graphs.federated import FederatedGraph
from fedquilt.graphs.fingerprint import array_digest, fingerprints
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.preparation import Preparation
from fedquilt.graphs.protocol import Protocol
from fedquilt.methods.settings import as_dict
from fedquilt.runs.config import RunConfig
from fedquilt.runs.resolve import ResolvedRun, prepared_graph
from fedquilt.runs.seal import Difference, Facts, mapping, text


def ground_of(resolved: ResolvedRun) -> Facts:
    """Fingerprints of what a run stands on: its graph, and the cut of its first seed."""
    first, owners = resolved.config.seeds[0], resolved.owners
    ground = {"graph": fingerprints(resolved.graph), "cuts": {str(first): cut_of(resolved, first)}}
    return ground | ({} if owners is None else {"clients": client_digests(owners)})


def client_digests(graph: FederatedGraph) -> dict[str, str]:
    """By client, a fingerprint of all that a training reads of its nodes, so that a client whose data changed can be named."""
    found = {}
    for number, nodes in enumerate(graph.held):
        name = graph.client_names[number] if graph.client_names else str(number)
        parts = fingerprints(graph.subgraph(nodes))
        found[name] = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
    return found


def cut_of(resolved: ResolvedRun, seed: int) -> dict[str, str]:
    """Fingerprints of the partition, of the split and of the preparation of features of a seed.

    The edges of a client follow from the graph and the nodes of the client; edge noise, where there is any, from the seed.
    """
    partition, split = resolved.cut(seed)
    found = {"partition": array_digest([*partition.nodes]), "split": array_digest([split])}
    if resolved.config.prepare != "none":
        found["preparation"] = preparation_digest(resolved.preparations(seed))
    return found


def preparation_digest(preparations: Sequence[Preparation]) -> str:
    """A fingerprint of how clients prepare their features."""
    kinds = [np.array([how.kind]) for how in preparations]
    columns = [part for how in preparations for part in (how.centre, how.scale) if part is not None]
    return array_digest([*kinds, *columns])


def ground_differences(facts: Facts, resolved: ResolvedRun, settings: bool = True) -> list[Difference]:
    """How the graph, the settings and the cut of the first seed differ from what was sealed; without `settings` not these.

    A cut of another graph is not compared.
    """
    now = ground_of(resolved)
    graph = _clients_difference(facts, now.get("clients")) or _graph_difference(
        facts["graph"], now["graph"], resolved.config.dataset
    )
    if graph is not None:
        return [graph]
    changed = _settings_differences(facts, as_dict(resolved.settings)) if settings else []
    if changed:
        return changed
    return [found for seed, cut in now["cuts"].items() for found in cut_differences(facts, resolved, int(seed), cut)]


def cut_differences(
    facts: Facts, resolved: ResolvedRun, seed: int, cut: Mapping[str, str] | None = None
) -> list[Difference]:
    """How the partition or the split of a seed differ from those it began with; nothing where it did not begin yet."""
    before, now = facts["cuts"].get(str(seed)), cut or cut_of(resolved, seed)
    if before is None:
        return []
    name, file = resolved.source.name, resolved.source.name.endswith(".npz")
    if before.get("partition") != now["partition"]:
        clause = f"the partition {name} changed" if file else f"the {name} partition of seed {seed} comes out otherwise"
        return [Difference(f"{clause}: clients hold other nodes")]
    if before.get("split") != now["split"]:
        return [Difference(f"the split of seed {seed} comes out otherwise: other nodes are trained and tested on")]
    if before.get("preparation") != now.get("preparation"):
        return [
            Difference(f"the features of seed {seed} are prepared otherwise: the weights would mean something else")
        ]
    return []


def graph_differences(facts: Facts, config: RunConfig, given: tuple[Graph, Protocol] | None = None) -> list[Difference]:
    """How the graph differs from what was sealed, also where the run can no longer be cut because of that."""
    graph = prepared_graph(config, given)[0]
    now = client_digests(graph) if isinstance(graph, FederatedGraph) else None
    found = _clients_difference(facts, now) or _graph_difference(facts["graph"], fingerprints(graph), config.dataset)
    return [] if found is None else [found]


def _clients_difference(facts: Facts, now: Mapping[str, str] | None) -> Difference | None:
    """Which clients' data changed; None where none did, or where clients were not sealed one by one."""
    before = mapping(facts.get("clients"))
    if not before or now is None:
        return None
    for verb, names in (
        ("are gone", [name for name in before if name not in now]),
        ("are new", [name for name in now if name not in before]),
        ("have other data", [name for name in now if before.get(name, now[name]) != now[name]]),
    ):
        if names:
            shown = ", ".join(f"'{name}'" for name in names[:5]) + (", ..." if len(names) > 5 else "")
            one = {"are gone": "is gone", "are new": "is new", "have other data": "has other data"}[verb]
            return Difference(
                f"the graphs of the clients changed since it began: {shown} {one if len(names) == 1 else verb}"
            )
    return None


def _graph_difference(before: Mapping[str, str], now: Mapping[str, str], dataset: str) -> Difference | None:
    parts = [name for name in now if before.get(name) != now[name]]
    if not parts:
        return None
    if "nodes" in parts:
        how = f"it has {now['nodes']} nodes, not {before.get('nodes')}"
    else:
        *first, last = parts
        how = (
            f"{', '.join(first)} and {last} differ"
            if first
            else f"its {last} {'differ' if last[-1] == 's' else 'differs'}"
        )
    return Difference(f"the graph {dataset} changed since it began: {how}")


def _settings_differences(facts: Facts, now: Mapping[str, Any]) -> list[Difference]:
    """Settings that come out otherwise, such as a default that was changed; one that is new has no value from before."""
    before = mapping(mapping(facts["config"].get("resolved")).get("settings"))
    return [
        Difference(f"the setting {name} was {text(True, value)} and comes out as {text(name in now, now.get(name))}")
        for name, value in before.items()
        if plain(now.get(name)) != value
    ]
