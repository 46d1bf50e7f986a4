"""Predictions for pairs of nodes, from the personal models of a finished run whose task predicts edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.node_pairs import number_pairs
from fedquilt.methods.base import Method, State
from fedquilt.methods.personal_model import Personal
from fedquilt.runs.given_pairs import Pairs, known_places, placed
from fedquilt.runs.new_nodes import NewNodes
from fedquilt.runs.predictions import Predictions, finite
from fedquilt.tasks.base import Task
from fedquilt.tasks.link_split import PARTS, negatives

EDGE, NO_EDGE = "edge", "none"  # labels of pairs
NAMES = ("probability",)


def check_pairs(task: Task, pairs: object | None, given: bool) -> None:
    """Refuse pairs for a task that predicts nodes, and a `given` graph without pairs for one that predicts edges."""
    if pairs is not None and not task.splits_edges:
        raise FedquiltError(
            f"The model's task is {task.name}, which predicts nodes, not pairs of them; leave the pairs out."
        )
    if pairs is None and task.splits_edges and given:
        raise FedquiltError(
            f"The model's task is {task.name}, which predicts pairs of nodes; say which, in a csv file with the columns "
            "source and target, with --pairs, or pairs= in Python."
        )


def pairs_for(nodes: NewNodes, personal: Personal, device: torch.device, pairs: Pairs, whose: str) -> Predictions:
    """The predictions of one model for pairs of nodes of a graph that fits it. Messages pass over all edges of the graph."""
    graph = nodes.graph
    found = placed(pairs, known_places(graph.ids, graph.nodes), graph.name)
    values = _probabilities(personal.method.task, personal.logits(graph, device), found, whose)
    return _predictions(personal.method.task, pairs, values, labels=_joined(graph, found), warnings=nodes.warnings)


def own_pairs(
    method: Method, models: State, clients: Sequence[Client], ids: Sequence[np.ndarray], names: list[str] | None
) -> list[Predictions]:
    """Each client's predictions for its own validation and test pairs: edges and negatives.

    Messages pass over the edges that were seen in the part. Models [M, ...] are on the clients' device.

    Args:
        method: that of the run. models: the personal models. clients: whose, in the same order.
        ids: [n] of each client, its nodes' ids. names: the clients', where they have names.
    """
    device = next(iter(models.values())).device
    cohort, task, each = Cohort(clients, device), method.task, []
    with torch.no_grad():
        outputs = {part: cohort.parts_of(method.logits(models, task.seen(cohort, part))) for part in PARTS}
    for place, client in enumerate(clients):
        for part in ("val", "test"):
            for label, found in ((EDGE, client.held_out[part]), (NO_EDGE, client.held_out[negatives(part)])):
                if not found.size:
                    continue
                values = _probabilities(task, outputs[part][place], found, f"client {client.id}")
                pairs = list(zip(*(ids[place][ends].astype(str).tolist() for ends in found), strict=True))
                each.append(
                    _predictions(
                        *(task, pairs, values),
                        labels=np.full(len(values), label),
                        parts=np.full(len(values), part),
                        clients=np.full(len(values), client.id if names is None else names[client.id]),
                    )
                )
    if not each:
        raise FedquiltError("No client has validation or test edges; give the pairs to predict for.")
    return each


def asked_pairs(
    method: Method,
    models: State,
    clients: Sequence[Client],
    ids: Sequence[np.ndarray],
    names: list[str] | None,
    pairs: Pairs,
) -> list[Predictions]:
    """Each client's predictions for those of the pairs of which it has both nodes; refused where no client has a pair.

    Messages pass over all edges of a client, also those that were held out in training. For the arguments see `own_pairs`.
    """
    places = [known_places(own, len(own)) for own in ids]
    known = set().union(*places)
    for pair in pairs:
        for node in (node for node in pair if node not in known):
            raise FedquiltError(
                f"There is no node '{node}' among those of the clients asked; write the ids of their nodes."
            )
        if not any(pair[0] in own and pair[1] in own for own in places):
            raise FedquiltError(
                f"No client that is asked has both '{pair[0]}' and '{pair[1]}', and models see one client's graph each; leave "
                "this pair out."
            )
    device = next(iter(models.values())).device
    cohort, each = Cohort(clients, device), []
    whole = method.task.seen(cohort, None)
    with torch.no_grad():
        outputs = cohort.parts_of(method.logits(models, whole))
    for place, client in enumerate(clients):
        mine = [pair for pair in pairs if pair[0] in places[place] and pair[1] in places[place]]
        if mine:
            found = placed(mine, places[place], client.graph.name)
            values = _probabilities(method.task, outputs[place], found, f"client {client.id}")
            labels = _joined(whole.members[place].graph, found)
            owner = np.full(len(mine), client.id if names is None else names[client.id])
            each.append(_predictions(method.task, mine, values, labels=labels, clients=owner))
    return each


def _probabilities(task: Task, outputs: Tensor, pairs: np.ndarray, whose: str) -> np.ndarray:
    found = task.pair_probabilities(outputs, torch.from_numpy(pairs).to(outputs.device))
    return finite(found.unsqueeze(1).cpu().numpy(), whose)


def _joined(graph: Graph, pairs: np.ndarray) -> np.ndarray:
    """[P] "edge" where the graph joins a pair already, else nothing: whether there is one is what is asked."""
    there = np.isin(number_pairs(np.sort(pairs, axis=0)), number_pairs(graph.edges))
    return np.where(there, EDGE, "")


def _predictions(
    task: Task,
    pairs: Pairs,
    values: np.ndarray,
    *,
    labels: np.ndarray,
    parts: np.ndarray | None = None,
    clients: np.ndarray | None = None,
    warnings: tuple[str, ...] = (),
) -> Predictions:
    sources, targets = (np.array(ends) for ends in zip(*pairs, strict=True))
    return Predictions(task, sources, values, NAMES, warnings, clients, parts, labels, targets)
