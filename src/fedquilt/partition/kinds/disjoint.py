"""disjoint: one METIS part a client."""

from __future__ import annotations

from fedquilt.graphs.graph import Graph
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, register_kind
from fedquilt.partition.metis import cut


@register_kind("disjoint", "METIS cuts the graph into M parts, one a client", seeded=False)
def disjoint(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's non-overlapping scenario: METIS into M parts. It makes no random choice, so all seeds agree."""
    return groups(cut(graph, clients), clients), {"parts": clients}
