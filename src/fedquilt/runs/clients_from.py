"""Read the clients of a run from files: a folder of tables, an npz file or a site.yaml for each, found by paths or patterns."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedquilt.common.printable import fault_of_text, shown
from fedquilt.datasets.load import load_graph
from fedquilt.errors import FedquiltError, MachineLimitError
from fedquilt.graphs.copies import with_copies
from fedquilt.graphs.federated import FederatedGraph, federated
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.protocol import Protocol
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.graphs.validate import PARTS, first_repeated
from fedquilt.runs.config import KeepCopies, clients_label
from fedquilt.runs.site_data import SITE_YAML, load_site_graph, read_site_data, site_split, unsimulated

_log = logging.getLogger(__name__)
_PATTERN = frozenset("*?[")


def load_clients(given: Sequence[str], keep_copies: KeepCopies | None = None) -> tuple[FederatedGraph, Protocol]:
    """Read the graph of each client; returns them joined, and the protocol of a user's own graph.

    Clients are numbered in the order of their names, as the sites of a federation are. A site is called as its site.yaml says,
    another client as its folder or file.

    Args:
        given: paths or patterns, see `client_paths`.
        keep_copies: see `RunConfig`; None: as a site.yaml says.
    """
    paths = client_paths(given)
    names = dict(zip(paths, client_names(paths), strict=True))
    ordered = sorted(paths, key=lambda path: names[path])
    if len(ordered) == 1:
        _log.warning("There is one client only (%s), so that nothing is shared.", ordered[0])
    graphs, wanted = [], []
    for path in ordered:
        with _named(names[path]):
            graphs.append(_read_client(path, keep_copies))
            site = _site_yaml(path)
            wanted.append(None if site is None else read_site_data(site).prepare)
    label = clients_label([str(path) for path in ordered])
    return federated(label, graphs, [names[path] for path in ordered], wanted), Protocol()


def join_clients(given: Sequence[Any] | Mapping[str, Any]) -> FederatedGraph:
    """Join graphs that are given as objects or paths, a client each: in this order, called by a mapping's keys.

    Without a mapping, clients are called as the graphs where these have distinct names of their own, else by their numbers.
    """
    if not given:
        raise FedquiltError("There is no client in an empty list of graphs; give one graph for each client.")
    names = [str(name) for name in given] if isinstance(given, Mapping) else None
    graphs = []
    for number, source in enumerate(given.values() if isinstance(given, Mapping) else given):
        with _named(names[number] if names else str(number)):
            is_path = isinstance(source, str | os.PathLike)
            graphs.append(_read_client(_absolute(os.fspath(source)), None) if is_path else load_graph(source)[0])
    if names is None:
        own = [graph.name for graph in graphs]
        names = own if first_repeated(own) is None else None
    return federated(clients_label(names or []), graphs, names)


def client_paths(given: Sequence[str]) -> list[Path]:
    """The absolute paths of the clients that are meant by paths and patterns such as 'hospital-*/'; none may come twice."""
    found: list[Path] = []
    for one in given:
        if fault := fault_of_text(one):
            raise FedquiltError(f"The path {shown(one)} of a client has {fault}; rename it.")
        if _PATTERN.isdisjoint(one) or os.path.lexists(os.path.expanduser(one)):
            found.append(_absolute(one))
            continue
        matches = sorted(glob.glob(os.path.expanduser(one), recursive=True))
        if not matches:
            raise FedquiltError(
                f"Nothing matches '{one}', which should name the graphs of the clients; correct it (it is looked up from "
                f"{Path.cwd()})."
            )
        found += [_absolute(match) for match in matches]
    if (twice := first_repeated(map(str, found))) is not None:
        raise FedquiltError(f"{twice} is listed twice among the clients; list each client once.")
    return found


def client_names(paths: Sequence[Path]) -> list[str]:
    """The name of each client: its site.yaml's, else its folder's or file's, with folders above where that is not enough."""
    sites = [_site_yaml(path) for path in paths]
    names = [None if site is None else read_site_data(site).name for site in sites]
    plain = [path for path, name in zip(paths, names, strict=True) if name is None]
    parts = [(*path.parts[1:-1], path.name if path.is_dir() else path.stem) for path in plain]
    # a/graph.npz and b/graph.npz are called a and b.
    while len(parts) > 1 and len({part[-1] for part in parts}) == 1 and min(map(len, parts)) > 1:
        parts = [part[:-1] for part in parts]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(parts) and depth < max(map(len, parts)):
        depth += 1
    short = iter("/".join(part[-depth:]) for part in parts)
    return [next(short) if name is None else name for name in names]


def _absolute(path: str) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # its name is too long, or begins with a ~ of nobody
        raise FedquiltError(f"{shown(path)} is no path of a client's graph ({error}); correct it.") from error


def _site_yaml(path: Path) -> Path | None:
    """The site.yaml of a client, where it has one: it is that file, or a folder that holds one."""
    if path.suffix in (".yaml", ".yml") and path.is_file():
        return path
    return path / SITE_YAML if (path / SITE_YAML).is_file() else None


def _read_client(path: Path, keep_copies: KeepCopies | None) -> Graph:
    """A client's graph. What its site.yaml says of its split becomes the graph's given split."""
    site_yaml = _site_yaml(path)
    if site_yaml is None:
        found = load_graph(path)[0]
        if isinstance(found, FederatedGraph):
            _log.warning("%s says which client holds each node; here it is one client, and that is not used.", path)
        return with_copies(found, keep_copies)
    site = read_site_data(site_yaml)
    if left_out := unsimulated(site_yaml):
        _log.warning(
            "%s says %s, which is not simulated here; see fedquilt rehearse.", site_yaml, " and ".join(left_out)
        )
    if keep_copies is not None:
        site = site.model_copy(update={"keep_copies": keep_copies})
    graph = load_site_graph(site)
    if site.split is None:
        return graph
    split = site_split(site, graph)
    return replace(graph, masks={part: split == code for part, code in zip(PARTS, (TRAIN, VAL, TEST), strict=True)})


@contextmanager
def _named(client: str) -> Iterator[None]:
    """Name the client in an error about its graph."""
    try:
        yield
    except MachineLimitError:
        raise
    except FedquiltError as error:
        raise FedquiltError(f"Client '{client}': {error}") from error
