"""How much memory a training will need, estimated before it starts.

What clients hold and compute is linear in clients and in their nodes. So two rounds are trained with two small cohorts of
typical clients, whose memory is counted (`fedquilt.devices.memory_meter`); the difference between both is what a client adds.
Clients with many nodes are represented by smaller ones of two sizes. What the server holds is not linear, so each method says
it itself (`Method.server_memory`).

    memory = fixed + 1.2 (M (data + state + models) + s first + s later + server - returned)

with M clients and s of them in a cohort. The first round, the later ones and the server follow one another, but large blocks of
one seldom fit where another's were. What is free at the end of the heap goes back to the system where it is more than 2 GiB
(`fedquilt.devices.allocator`), so only the largest of the three, and 2 GiB of the others, count. Where states are offloaded to
disk, states and models are those of one cohort.
`fedquilt docs scale` has the estimates beside what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from fedquilt.cohort.client import Client
from fedquilt.cohort.sampled_neighbours import most_nodes
from fedquilt.devices import offload
from fedquilt.devices.allocator import TRIM_BYTES
from fedquilt.devices.cuda_graph import without_garbage_collection
from fedquilt.devices.memory_meter import MemoryMeter
from fedquilt.messages.message import Message, declared, each_tensor
from fedquilt.methods.base import Method, RoundSizes, State
from fedquilt.training.device_attendance import LEAST_SHARE
from fedquilt.training.engines.in_process import InProcess
from fedquilt.training.engines.registry import EngineOptions

FIXED = 30 * 10**6  # libraries' pages that the first round touches
SPREAD = 1.2  # freed blocks of other sizes are not always used again
FEW, MORE = 2, 6  # clients of the two small cohorts
LARGEST = 500  # nodes of a client that is tried as it is
NEAR = 1.5  # a part of a graph with its neighbours has about so many times its nodes
NODE_BYTES, EDGE_BYTES = 70, 8  # of a client's clusters and its rows in a cohort


@dataclass(frozen=True)
class ClientMemory:
    """Bytes that one client adds.

    Attributes:
        data: its part of the cohorts' operators and features.
        state: what it keeps between rounds.
        models: its personal model, where that is no part of the state.
        best: the copy of its model in the best round.
        upload: what it sends; `sent` is the part that is no view of its state.
        download: what it is sent, without what all are sent.
        first: what the first round needs on top while it runs; the client's data is prepared in it.
        later: what any later round needs on top.
    """

    data: float
    state: float
    models: float
    best: float
    upload: float
    sent: float
    download: float
    first: float
    later: float


@dataclass(frozen=True)
class MemoryEstimate:
    """An estimate in bytes, of what a training needs beyond what the process has before it.

    Attributes:
        clients: data, states, models and messages of all clients that are in memory.
        working: activations, gradients and the like of the largest cohort.
        server: what the method's server holds.
        returned: what of both is free again, and returned to the system, before the other is needed.
        least: what certainly does not fit in less: states and best models of all clients.
        offloaded: bytes on disk instead of in memory.
        cohort: clients computed at once.
    """

    clients: int
    working: int
    server: int
    returned: int
    least: int
    offloaded: int
    cohort: int

    @property
    def total(self) -> int:
        """All of it."""
        return FIXED + self.clients + self.working + self.server - self.returned


def estimate_memory(
    method: Method,
    clients: Sequence[Client],
    options: EngineOptions,
    participation: float = 1.0,
    changes_uploads: bool = False,
    sits_out: bool | None = None,
) -> MemoryEstimate:
    """Estimate the memory of a training in this process; with workers, that of all processes together.

    Args:
        method: what is trained.
        clients: all of them; none of them is changed.
        options: the engine's.
        participation: the share of the clients that take part in a round.
        changes_uploads: whether uploads are changed on their way, such as by noise, which copies them.
        sits_out: whether clients may not send in a round; None: as `participation` says.
    """
    sits_out = participation < 1 if sits_out is None else sits_out
    each = client_memory(method, clients)
    count = len(clients)
    cohort = min(options.cohort_size or count, -(-count // (options.workers or 1)))
    senders = max(1, round(participation * count))
    # On an accelerator all clients compute, so that rounds can be captured, and their states are kept for those who sit out.
    whole = options.device.type == "cuda" and LEAST_SHARE <= participation < 1
    at_once = (cohort if whole else min(cohort, -(-senders * cohort // count))) * (options.workers or 1)
    several = cohort < count
    disk = several and options.device.type == "cpu" and count * each.state > offload.THRESHOLD_BYTES
    held = count * (each.data if disk else each.data + each.state + each.models + each.best)
    first, later = at_once * each.first, at_once * each.later
    working = first + later
    if disk:
        working += at_once * (each.state + each.models + each.sent)
    else:
        held += senders * (each.upload if several or changes_uploads else each.sent)
        if participation < 1:
            # Else a cohort of those who take part is made for each round.
            working += at_once * (each.state if whole else each.data + each.state)
    newest = method.averages_newest and sits_out
    sizes = RoundSizes(count if newest else senders, senders, round(each.upload), round(each.download))
    server = method.server_memory(sizes)
    if newest:  # those of all clients, and a copy of them until everyone has sent
        server += round((1 if disk else 2) * count * each.upload)
    phases = (first, later, server)
    kept = TRIM_BYTES * (options.workers or 1) if options.device.type == "cpu" else sum(phases)
    returned = max(0, sum(phases) - max(phases) - kept)
    on_disk = count * (each.state + each.best) + (senders + newest * count) * each.upload if disk else 0
    least = 0 if disk else count * (each.state + each.best)
    return MemoryEstimate(
        clients=round(SPREAD * held),
        working=round(SPREAD * working),
        server=round(SPREAD * server),
        returned=round(SPREAD * returned),
        least=round(least),
        offloaded=round(on_disk),
        cohort=cohort,
    )


def client_memory(method: Method, clients: Sequence[Client]) -> ClientMemory:
    """What a client of mean size adds, from trials with few of them."""
    step = method.context.batch_nodes
    if step and max(client.graph.nodes for client in clients) > step:
        return _in_batches(method, clients, step)
    nodes = float(np.mean([client.graph.nodes for client in clients]))
    if nodes <= LARGEST or any(client.held_out for client in clients):
        return _slope(method, _typical(clients, nodes))
    return _of_nodes(method, clients, nodes)


def _in_batches(method: Method, clients: Sequence[Client], step: int) -> ClientMemory:
    """What a client adds that computes about `step` nodes at once: what else is data is made for a step, and freed.

    Its clusters and its place in the cohort stay; a layer and the one before it are computed at all nodes. A part that is
    evaluated has its neighbours with it, and so has a step that draws them.
    """
    drawn = most_nodes(step, method.context.fan_out)
    each = _of_nodes(
        method, clients, float(np.mean([min(client.graph.nodes, max(NEAR * step, drawn)) for client in clients]))
    )
    nodes = float(np.mean([client.graph.nodes for client in clients]))
    edges = float(np.mean([client.graph.edges.shape[1] for client in clients]))
    once = each.data + 8 * nodes * getattr(method.settings, "hidden", 0)
    held = NODE_BYTES * nodes + EDGE_BYTES * edges
    return replace(each, data=held, later=each.later + once)


def _of_nodes(method: Method, clients: Sequence[Client], nodes: float) -> ClientMemory:
    """What a client of so many nodes adds, whose graph is computed at once."""
    small, large = (_slope(method, _made(clients, size)) for size in (LARGEST // 2, LARGEST))
    further = (nodes - LARGEST) / (LARGEST - LARGEST // 2)
    values = {name: value + further * (value - getattr(small, name)) for name, value in vars(large).items()}
    return ClientMemory(**values)


def _typical(clients: Sequence[Client], nodes: float) -> list[Client]:
    """`MORE` clients whose sizes are nearest to the mean; some of them several times where there are fewer."""
    nearest = sorted(clients, key=lambda client: abs(client.graph.nodes - nodes))
    chosen = [nearest[place % len(nearest)] for place in range(MORE)]
    return [replace(client, id=place) for place, client in enumerate(chosen)]


def _made(clients: Sequence[Client], nodes: int) -> list[Client]:
    """`MORE` clients of so many nodes with the degrees, the rows of features and the split of the given ones."""
    rng = np.random.default_rng(0)
    degree = sum(c.graph.edges.shape[1] for c in clients) / sum(c.graph.nodes for c in clients)
    made = []
    for place in range(MORE):
        client = clients[place * len(clients) // MORE]
        rows = rng.integers(0, client.graph.nodes, nodes)
        ends = np.sort(rng.integers(0, nodes, (2, round(degree * nodes))), axis=0)
        edges = np.unique(ends[:, ends[0] != ends[1]], axis=1)
        x = client.graph.x[rows]
        weighted = client.graph.edge_weights is not None
        graph = replace(
            client.graph.with_edges(edges, np.ones(edges.shape[1], dtype=np.float32) if weighted else None),
            x=sp.csr_matrix(x) if sp.issparse(x) else np.ascontiguousarray(x),
            y=client.graph.y[rows],
            ids=None,
            masks=None,
        )
        made.append(Client(place, graph, client.split[rows], settings=client.settings))
    return made


def _slope(method: Method, clients: Sequence[Client]) -> ClientMemory:
    """What each client adds: the difference between a cohort of all of these and one of the first few."""
    _try(method, clients[:1])  # the first time, more is allocated
    few, more = (_try(method, clients[:count]) for count in (FEW, MORE))
    values = {name: (value - getattr(few, name)) / (MORE - FEW) for name, value in vars(more).items()}
    return ClientMemory(**{name: max(0.0, value) for name, value in values.items()})


def _try(method: Method, clients: Sequence[Client]) -> ClientMemory:
    """Train two rounds of each phase with a cohort and count its memory, all of it."""
    settings = method.settings
    if hasattr(settings, "epochs"):  # memory does not depend on them
        settings = replace(settings, epochs=1)
    context = replace(method.context, clients=len(clients), batch_nodes=0)
    own = type(method)(settings, context, method.averaging)
    # A client keeps what was computed of it. A graph of all clients would count as one client's: here it is that of these few.
    clients = [replace(client, pooled=None) for client in clients]
    everyone = torch.tensor([client.id for client in clients])
    server, down = own.server_start()
    meter = MemoryMeter()
    with without_garbage_collection():
        with meter:
            engine = InProcess(own, clients)
            uploads, _ = engine.round(0, everyone, down, evaluate=True)
        first, later = meter.peak - meter.live, 0
        for round in own.example_rounds()[1:]:
            down = own.aggregate(server, uploads, everyone, everyone)
            del uploads
            meter.peak = meter.live
            with meter:
                uploads, _ = engine.round(round, everyone, down, evaluate=True)
            later = max(later, meter.peak - meter.live)
    state, models = engine.state(), engine.personal()
    storages = _storages(state)
    extra = {name: tensor for name, tensor in models.items() if not _storages({name: tensor}) & storages}
    sent = {name: t for name, t in _named(uploads).items() if not _storages({name: t}) & (storages | _storages(models))}
    kept = _bytes(state) + _bytes(extra) + _bytes(sent)
    private = {name: v for name, v in down.items() if not _is_shared(own, name)}
    return ClientMemory(
        data=max(0, meter.live - kept),
        state=_bytes(state),
        models=_bytes(extra),
        best=_bytes(models),
        upload=_bytes(_named(uploads)),
        sent=_bytes(sent),
        download=_bytes(_named(private)),
        first=first,
        later=later,
    )


def _is_shared(method: Method, name: str) -> bool:
    spec = declared(method.downloads, name)
    return spec is not None and spec.shared


def _named(message: Message) -> State:
    return {f"{name}/{i}": t for name, value in message.items() for i, t in enumerate(each_tensor(value))}


def _storages(tensors: State) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}


def _bytes(tensors: State) -> Any:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
