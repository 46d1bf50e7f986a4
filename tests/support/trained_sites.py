"""Sites with a model: trained in this process among a few small clients, of which the first is the site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import yaml

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.federation.site.config import SiteConfig, load_site_graph, site_client
from fedquilt.federation.site.state import SiteState
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.npz import write_npz
from fedquilt.graphs.split import NONE
from fedquilt.graphs.validate import PARTS
from fedquilt.methods.base import Method, State
from fedquilt.methods.personal_model import Personal, constants_of, model_facts
from fedquilt.tasks.node_classification import NodeClassification
from fedquilt.training.plan import Plan
from support.federations import make_method, make_task, make_training, ragged_clients

SIZES = (14, 9, 18)


def trained(name: str, rounds: int = 2, sparse: bool = False, **settings: Any) -> tuple[Method, list[Client], State]:
    """A method, the clients it was trained with, and their personal models."""
    clients = ragged_clients(SIZES, sparse)
    method = make_method(name, clients, make_task(clients, epochs=2), **settings)
    training = make_training(method, clients, Plan(rounds))
    training.run()
    return method, clients, training.engine.personal()


def personal_of(method: Method, client: Client, models: State) -> Personal:
    own = {name: tensor[client.id] for name, tensor in models.items()}
    return Personal.restored(own, model_facts(method, client))


def logits_of(method: Method, client: Client, models: State) -> Any:
    """What the method itself says about a client's nodes."""
    return method.logits({name: w[client.id : client.id + 1] for name, w in models.items()}, Cohort([client]))


def grown(client: Client, more: int = 5) -> Client:
    """The client after some unlabelled nodes came, each with edges to two that were there."""
    graph, rng = client.graph, np.random.default_rng(7)
    n = graph.nodes
    new = np.arange(n, n + more)
    edges = [np.stack([rng.permutation(n)[:2], [node, node]]) for node in new]
    fresh = rng.standard_normal((more, graph.features)).astype(np.float32)
    old = graph.x.toarray() if sp.issparse(graph.x) else graph.x
    x = np.concatenate([old, fresh])
    larger = replace(
        graph,
        edges=np.concatenate([graph.edges, *edges], axis=1),
        x=sp.csr_matrix(x) if sp.issparse(graph.x) else x,
        y=np.concatenate([graph.y, np.full(more, -1)]),
    )
    return Client(client.id, larger, np.concatenate([client.split, np.full(more, NONE, dtype=np.int8)]))


def grown_since(method: Method, client: Client) -> Client:
    """The same, with what a model trained on the client remembers of its training graph (`Method.constants`)."""
    later = grown(client)
    for name, value in constants_of(method, client).items():
        later.preset(name, value)
    return later


def as_file(client: Client, named: bool = True) -> Graph:
    """A client's graph as its owner has it in a file: with its split, and with names for nodes, classes and features."""
    graph = client.graph
    return replace(
        graph,
        masks={part: client.split == code for code, part in enumerate(PARTS)},
        ids=np.array([f"node-{n}" for n in range(graph.nodes)]) if named else None,
        class_names=("blue", "green", "red") if named else None,
        feature_names=tuple(f"f{n}" for n in range(graph.features)) if named else None,
    )


def write_site(folder: Path, own: Graph, **fields: Any) -> Path:
    """A site.yaml and the graph it names."""
    write_npz(own, folder / "graph.npz")
    values = {"name": "st-anna", "graph": "graph.npz", "state": "state", **fields}
    (folder / "site.yaml").write_text(yaml.safe_dump(values))
    return folder / "site.yaml"


def make_site(
    folder: Path, name: str = "fedavg", named: bool = True, **settings: Any
) -> tuple[Path, Method, Client, State]:
    """The site.yaml of a site that has its model; the method, the site as a client, and all clients' models."""
    method, clients, models = trained(name, **settings)
    path = write_site(folder, as_file(clients[0], named))
    own = {name: tensor[0] for name, tensor in models.items()}
    client = replace(clients[0], graph=as_file(clients[0], named))
    SiteState(folder / "state" / "run-1").save_model(own, model_facts(method, client) | {"finished": True})
    return path, method, clients[0], models


def client_at(site: SiteConfig, number: int = 0) -> Client:
    """The site as a client of a node classification."""
    return site_client(site, number, load_site_graph(site), NodeClassification(), seed=0)
