"""overlapping: five clients share a METIS part, each holding a random half of it."""

from __future__ import annotations

from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.partition.groups import groups
from fedquilt.partition.kind import Drawn, register_kind
from fedquilt.partition.metis import cut

COPIES = 5  # clients drawn from one METIS part


@register_kind(
    "overlapping",
    "METIS cuts M/5 parts; five clients each hold a random half of one part",
    clients_per_part=COPIES,
)
def overlapping(graph: Graph, clients: int, seed: int) -> Drawn:
    """FED-PUB's overlapping scenario: five independent random halves of the nodes of each of M/5 METIS parts.

    Clients 5p .. 5p+4 are drawn from part p. A half is rounded down, but a client holds at least one node.
    """
    if clients % COPIES:
        raise FedquiltError(
            f"An overlapping partition draws {COPIES} clients from each part, so {clients} clients do not "
            f"work; use a multiple of {COPIES}."
        )
    parts = clients // COPIES
    nodes = []
    for part, members in enumerate(groups(cut(graph, parts), parts)):
        half = max(1, members.size // 2)
        for client in range(COPIES * part, COPIES * (part + 1)):
            # Each client has its own random stream, so its nodes do not depend on the number of clients before it.
            stream = numpy_stream(seed, "partition", "overlapping", client)
            nodes.append(stream.choice(members, half, replace=False))
    return nodes, {"parts": parts, "copies": COPIES}
