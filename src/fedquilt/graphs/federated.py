"""`FederatedGraph`: the graphs of several owners as one graph, which knows whose each node is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedquilt.common.printable import fault_of_name
from fedquilt.errors import FedquiltError
from fedquilt.graphs.align import Alignment, alignment_of
from fedquilt.graphs.arrays import Features, as_sparse
from fedquilt.graphs.copies import CopyKind, find_copies
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.label_numbers import joined_numbers, presence
from fedquilt.graphs.preparation import PrepareKind, agreed_kind, suggested_kind
from fedquilt.graphs.validate import PARTS, check_ids, first_repeated


@dataclass(frozen=True, eq=False)
class FederatedGraph(Graph):
    """A graph whose nodes belong to M clients, such as hospitals that each gave a folder of tables.

    Ids are distinct within a client only. `masks` are those of the clients that came with a split: the nodes of another client
    are in none of them. `copies` of different clients have different numbers.

    Attributes:
        owner: [N] int64, the client of each node, 0..M-1; each client has a node.
        client_names: M distinct names; None where clients have numbers only.
        prepare: how each client wants its features to be prepared, None for one that does not say; empty: none says.
    """

    owner: np.ndarray = None  # type: ignore[assignment]  # fields of the base class have defaults, so it needs one
    client_names: tuple[str, ...] | None = None
    prepare: tuple[PrepareKind | None, ...] = ()

    @property
    def clients(self) -> int:
        """M, the number of clients."""
        return int(self.owner.max()) + 1

    @cached_property
    def held(self) -> list[np.ndarray]:
        """The nodes of each client, in rising order."""
        order = np.argsort(self.owner, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.owner))[:-1])

    def suggested_kind(self) -> PrepareKind:
        """How features are prepared unless the run says: as all clients want or suggest it (`agreed_kind`)."""
        wanted = self.prepare or (None,) * self.clients
        kinds = [how or suggested_kind(self.x[nodes]) for how, nodes in zip(wanted, self.held, strict=True)]
        return agreed_kind([(self.title(number), kind) for number, kind in enumerate(kinds)])

    def title(self, client: int) -> str:
        """What errors call a client."""
        return f"Client '{self.client_names[client]}'" if self.client_names else f"Client {client}"

    def plain(self, **changes: Any) -> Graph:
        """The same graph without its clients."""
        return Graph(**{field.name: getattr(self, field.name) for field in fields(Graph)} | changes)

    def subgraph(self, nodes: np.ndarray, name: str | None = None) -> Graph:
        """See `Graph.subgraph`; the result has no clients."""
        return self.plain().subgraph(nodes, name)

    def targets(self) -> Iterator[Graph]:
        """Each client's labels, given split and copies, without features and edges: what a split is drawn from."""
        for number, nodes in enumerate(self.held):
            masks = {part: mask[nodes] for part, mask in (self.masks or {}).items()}
            yield Graph(
                name=self.title(number),
                edges=np.zeros((2, 0), dtype=np.int64),
                x=np.zeros((len(nodes), 0), dtype=np.float32),
                y=self.y[nodes],
                classes=self.classes,
                masks=masks if any(mask.any() for mask in masks.values()) else None,
                copies=None if self.copies is None else self.copies[nodes],
            )

    def validate(self, where: str | None = None, labelled: bool = True) -> None:
        """See `Graph.validate`."""
        self.plain(ids=None).validate(where, labelled)
        self.check_clients(where)

    def check_clients(self, where: str | None = None) -> None:
        """Check whose each node is, and that ids are distinct within a client; `validate` checks all the rest as well."""
        where = where or self.name
        if self.owner.shape != (self.nodes,) or not np.issubdtype(self.owner.dtype, np.integer) or self.owner.min() < 0:
            raise FedquiltError(
                f"{where} does not say whose each of its {self.nodes} nodes is; name a client for each."
            )
        if (np.bincount(self.owner) == 0).any():
            raise FedquiltError(f"{where} has a client without a node; number the clients 0, 1, 2, ...")
        if self.client_names is not None:
            _check_names(self.client_names, self.clients, where)
        for number, nodes in enumerate(self.held):
            if self.ids is not None:
                check_ids(self.ids[nodes], len(nodes), f"{self.title(number)} of {where}")


def with_owners(
    graph: Graph, clients: np.ndarray, order: Sequence[str] | None = None, ids: np.ndarray | None = None
) -> FederatedGraph:
    """The graph with the clients that a column of a table or an array of an npz file names: [N] text or numbers.

    Clients are numbered in the order of their names, numbers in their own, or in the `order` given. Those called 0 to M-1 have
    no names but these numbers.

    Args:
        graph: the graph.
        clients: the client of each node.
        order: the names in the order of the clients' numbers, where that is another.
        ids: [N] names of the nodes, distinct within a client; None: the graph's own.
    """
    found, inverse = np.unique(np.asarray(clients).astype(str), return_inverse=True)
    names = found.tolist()
    if order is not None and sorted(order) == names:
        ranked = list(order)
    else:
        ranked = sorted(names, key=int) if all(name.isdecimal() for name in names) else names
    place = {name: number for number, name in enumerate(ranked)}
    fields_ = {field.name: getattr(graph, field.name) for field in fields(Graph)}
    joined = FederatedGraph(
        **fields_ | ({} if ids is None else {"ids": ids}),
        owner=np.array([place[name] for name in names], dtype=np.int64)[inverse],
        client_names=None if ranked == [str(number) for number in range(len(ranked))] else tuple(ranked),
    )
    joined.check_clients()
    return joined


def with_client_copies(graph: FederatedGraph, keep: CopyKind | str | None) -> FederatedGraph:
    """The graph with the copies that a split is to keep in one part, sought in each client alone; see `with_copies`."""
    if keep is None:
        return graph
    if keep == "never":
        return replace(graph, copies=None)
    copies, used = np.zeros(graph.nodes, dtype=np.int64), 0
    for nodes in graph.held:
        copies[nodes] = used + find_copies(graph.subgraph(nodes), keep)  # type: ignore[arg-type]
        used = int(copies[nodes].max()) + 1
    return replace(graph, copies=copies)


def federated(
    name: str,
    graphs: Sequence[Graph],
    names: Sequence[str] | None = None,
    prepare: Sequence[PrepareKind | None] = (),
) -> FederatedGraph:
    """Join the graphs of several owners, which are valid, a client each, in this order.

    Features with names are brought into the order of the first graph's, classes with names into that of the union of all
    (`fedquilt.graphs.align`). No edge joins two clients. Features are dense where all graphs' are.

    A list is emptied on the way, so that features are in memory once and not twice.
    """
    names = None if names is None else tuple(names)
    if names is not None:
        _check_names(names, len(graphs), name)
    alignment = alignment_of(graphs, names)
    sizes = [graph.nodes for graph in graphs]
    first = np.cumsum([0, *sizes])
    masked, grouped = (any(getattr(graph, part) is not None for graph in graphs) for part in ("masks", "copies"))
    masks = {part: np.zeros(first[-1], dtype=np.bool_) for part in PARTS}
    copies = np.arange(first[-1])
    edges, labels, used = [], [], 0
    numbers = joined_numbers([(graph.y, graph.numbers) for graph in graphs])
    for number, (graph, start) in enumerate(zip(graphs, first, strict=False)):
        nodes = slice(start, first[number + 1])
        edges.append(graph.edges + start)
        labels.append(alignment.labels(number, graph))
        for part, mask in (graph.masks or {}).items():
            masks[part][nodes] = mask
        if grouped:
            own = np.arange(graph.nodes) if graph.copies is None else np.unique(graph.copies, return_inverse=True)[1]
            copies[nodes] = own + used
            used += int(own.max()) + 1
    ids = [graph.ids for graph in graphs]
    joined = FederatedGraph(
        name=name,
        edges=np.concatenate(edges, axis=1),
        edge_weights=_edge_weights(graphs),
        x=_features(graphs, first, alignment),
        y=np.concatenate(labels) if numbers is None else presence(numbers),
        numbers=numbers,
        classes=alignment.classes,
        masks=masks if masked else None,
        ids=None if any(own is None for own in ids) else np.concatenate([np.asarray(own).astype(str) for own in ids]),
        class_names=alignment.class_names,
        copies=copies if grouped else None,
        feature_names=alignment.feature_names,
        encoding=alignment.encoding,
        owner=np.repeat(np.arange(len(sizes)), sizes),
        client_names=names,
        prepare=tuple(prepare) if any(prepare) else (),
    )
    joined.check_clients()
    return joined


def _edge_weights(graphs: Sequence[Graph]) -> np.ndarray | None:
    """[E] float32: the weights of all edges, ones for a graph that has none, as it weighs its edges; None: no graph has any."""
    found = [graph.edge_weights for graph in graphs]
    if all(weights is None for weights in found):
        return None
    sizes = [graph.edges.shape[1] for graph in graphs]
    return np.concatenate([np.ones(n, np.float32) if w is None else w for w, n in zip(found, sizes, strict=True)])


def _features(graphs: Sequence[Graph], first: np.ndarray, alignment: Alignment) -> Features:
    """The features of all graphs, one below the other: dense where all are, or where they are made anew.

    A list of graphs is emptied as their features are taken. The pages of a new array are taken as they are written, so that
    each client's features make room for the next one's.
    """
    width = graphs[0].features if alignment.feature_names is None else len(alignment.feature_names)
    if alignment.recodes or not any(graph.sparse for graph in graphs):
        dense = np.empty((first[-1], width), dtype=np.float32)
        for number, x in enumerate(_taken(graphs, alignment)):
            dense[first[number] : first[number + 1]] = x
        return dense
    filled = [int(np.count_nonzero(graph.x)) if isinstance(graph.x, np.ndarray) else graph.x.nnz for graph in graphs]
    ends = np.cumsum([0, *filled])
    large = max(int(ends[-1]), width) >= 2**31
    data, indices = np.empty(ends[-1], dtype=np.float32), np.empty(ends[-1], dtype=np.int64 if large else np.int32)
    indptr = np.zeros(first[-1] + 1, dtype=indices.dtype)
    for number, x in enumerate(_taken(graphs, alignment)):
        sparse, entries = as_sparse(x), slice(ends[number], ends[number + 1])
        data[entries], indices[entries] = sparse.data, sparse.indices
        indptr[first[number] + 1 : first[number + 1] + 1] = sparse.indptr[1:] + ends[number]
    return sp.csr_matrix((data, indices, indptr), shape=(first[-1], width))


def _taken(graphs: Sequence[Graph], alignment: Alignment) -> Iterator[Features]:
    """Each graph's features in the common order; a graph of a list is given up when the next one is asked for."""
    for number in range(len(alignment.columns)):
        yield alignment.features(number, graphs.pop(0) if isinstance(graphs, list) else graphs[number])


def _check_names(names: Sequence[str], clients: int, where: str) -> None:
    if len(names) != clients:
        raise FedquiltError(f"{where} names {len(names)} clients but has {clients}; give one name for each client.")
    for one in names:
        fault = fault_of_name(one) if one else "no letter"
        if fault:
            raise FedquiltError(f"{where} has a client's name with {fault}; rename it.")
    if (twice := first_repeated(names)) is not None:
        raise FedquiltError(f"Two clients are called '{twice}'; give every client its own name.")
