"""What FedHERO's latent graphs are like, measured on a trained run: do they join nodes of one class, and who trained them?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.cohort.draws import client_keys
from fedquilt.common.random_streams import numpy_stream
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.graphs.split import TRAIN, VAL
from fedquilt.methods.base import State
from fedquilt.methods.fedhero import LEARNER, FedHERO
from fedquilt.methods.settings import resolve_settings
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.structure import Latent
from fedquilt.runs.finished import Run
from fedquilt.runs.resolve import ResolvedRun
from fedquilt.training.round_result import mean

NAMES = ("homophily", "unseen", "given", "chance", "self", "edges", "gradient", "shuffled")


def measure_latent_graphs(resolved: ResolvedRun, run: Run) -> dict[str, float | None]:
    """The latent graphs of the best round's models, means over clients, in percent; None where nothing can be said.

    homophily   weight of latent pairs with equal labels, of all pairs of two different training nodes
    unseen      the same of pairs of a validation node and a training node, its latent neighbour: what the learner could not
                learn by heart
    given       share of edges of the given graph with equal labels, of those between training nodes
    chance      share of all pairs of two training nodes with equal labels
    self        weight that nodes give themselves
    edges       weight of latent pairs that are edges of the given graph, of all pairs of two different nodes
    gradient    norm of the learner's gradient of the smoothness terms (eq. 7), of that of the cross-entropy
    shuffled    test metric of the same models over shuffled latent graphs, see `shuffled`
    """
    (seed,) = resolved.config.seeds
    context = resolved.context(seed)
    method = resolved.method(*resolve_settings(resolved.method, context, resolved.config.settings, context.epochs))
    if not isinstance(method, FedHERO):
        raise FedquiltError(f"Method '{method.name}' has no latent graphs; measure them on fedhero only.")
    clients = resolved.clients(seed)[: context.clients]
    cohort, personal = Cohort(clients), {name: w.cpu() for name, w in run.models[seed].items()}
    with torch.no_grad():
        latent = method.latent(personal, cohort)
    by_client = []
    for m, client in enumerate(clients):
        first, nodes = int(cohort.start[m]), cohort.sizes[m]
        by_client.append(describe(client.graph, client.split, *_pairs(latent, first, nodes)))
    found = {name: _mean([one[name] for one in by_client]) for name in by_client[0]}
    found["gradient"] = _mean(gradient_shares(method, personal, cohort, seed))
    metric = resolved.task.metric(context.metric)
    with torch.no_grad():
        outputs = method.outputs(personal, cohort, shuffled(latent, cohort, seed))
        found["shuffled"] = metric.scale * float(mean(metric.function(cohort, outputs, "test")))
    return found


def describe(graph: Graph, split: np.ndarray, u: np.ndarray, v: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """The values of one client, in percent: latent pairs u, v with a weight each, [E]."""
    trains, y = split == TRAIN, graph.y
    other = u != v
    known = other & trains[u] & trains[v]
    unseen = (split[u] == VAL) & trains[v]
    a, b = graph.edges
    both = trains[a] & trains[b]
    counts = np.bincount(y[trains], minlength=graph.classes).astype(float)
    total = counts.sum()
    place = np.minimum(u, v) * graph.nodes + np.maximum(u, v)
    joined = np.isin(place, a * graph.nodes + b)
    return {
        "homophily": _share(weight[known & (y[u] == y[v])].sum(), weight[known].sum()),
        "unseen": _share(weight[unseen & (y[u] == y[v])].sum(), weight[unseen].sum()),
        "given": _share((y[a] == y[b])[both].sum(), both.sum()),
        "chance": _share((counts * (counts - 1)).sum(), total * (total - 1)),
        "self": _share(weight[~other].sum(), weight.sum()),
        "edges": _share(weight[other & joined].sum(), weight[other].sum()),
    }


def shuffled(latent: Latent, cohort: Cohort, seed: int) -> Latent:
    """The latent graph in which another node of the client stands for each latent neighbour: degrees and weights stay."""
    other = np.arange(cohort.rows)
    for m, client in enumerate(cohort.members):
        first, nodes = int(cohort.start[m]), cohort.sizes[m]
        rng = numpy_stream(seed, "client", client.id, "shuffled latent graph")
        other[first : first + nodes] = first + rng.permutation(nodes)
    target = torch.from_numpy(other)[latent.links.target.long()]
    return replace(latent, links=latent.links.retargeted(target))


def gradient_shares(method: FedHERO, personal: State, cohort: Cohort, seed: int) -> list[float]:
    """Of each client, 100 |gradient of eq. 7| / |gradient of the cross-entropy| with respect to the learner, no dropout."""
    leaves = {name: w.detach().clone().requires_grad_() for name, w in personal.items()}
    learner = [w for name, w in leaves.items() if name.startswith(LEARNER)]
    if not learner or not method.settings.train_learner:
        return [float("nan")] * cohort.clients
    error, _, penalty = method.losses(leaves, cohort, Dropout(0.0, client_keys(seed, cohort), 0))
    of_error = _norms(torch.autograd.grad(error, learner, retain_graph=True))
    of_penalty = _norms(torch.autograd.grad(penalty, learner))
    return [_share(p, e) for p, e in zip(of_penalty, of_error, strict=True)]


def _norms(grads: tuple[Tensor, ...]) -> list[float]:
    squares = torch.stack([grad.flatten(1).double().square().sum(1) for grad in grads])
    norms: list[float] = squares.sum(0).sqrt().tolist()
    return norms


def _pairs(latent: Latent, first: int, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs of the client whose nodes are the rows first .. first + nodes - 1, and their weights."""
    u, v = latent.links.source.numpy().astype(np.int64), latent.links.target.numpy().astype(np.int64)
    own = (u >= first) & (u < first + nodes)
    return u[own] - first, v[own] - first, latent.weight.numpy()[own].astype(float)


def _share(part: float, whole: float) -> float:
    return 100 * float(part) / float(whole) if whole else float("nan")


def _mean(values: list[float]) -> float | None:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else None
