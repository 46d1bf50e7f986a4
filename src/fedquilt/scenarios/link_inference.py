"""Link inference: guess the edges of a client's graph from what its model makes of its nodes (FedHERO's Figure 5).

FedHERO's paper says no more than that the attack "aims to infer the underlying graph structure from the learned node
representations", and reports its accuracy. The attack here is the usual one without training (He et al., Stealing Links from
Graph Neural Networks, 2021): nodes with similar representations are joined.

    score(u, v) = cos(h_u, h_v)

It is given every edge of the client and as many pairs that are not joined, and says "edge" for the half with the higher scores,
so that guessing gives 50 %. The area under the ROC curve over the same pairs needs no threshold. What h is depends on what the
attacker has:

    representations   h is the output of the part of the model that is uploaded, computed on the client's own graph: the
                      paper's attack. Somebody must have released them: they are no upload of any method here.
    weights           the same part without edges: all that the server can compute, even if it had the client's features.
    features          the features themselves: what the attacker would guess without any model.

`weights` above `features` is what the uploads reveal about edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.common.random_streams import numpy_stream
from fedquilt.graphs.graph import Graph
from fedquilt.methods.base import Method, State
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.scenarios.edge_noise import draw_unjoined, unjoined_count

VIEWS = ("representations", "weights", "features")
BLOCK = 2**22  # numbers of gathered representations in memory at once


@runtime_checkable
class Represents(Protocol):
    """A method that says what its uploaded weights make of nodes."""

    def representation(self, personal: State, cohort: Cohort) -> Tensor:
        """[R, d]."""


@dataclass(frozen=True)
class Guess:
    """How well links are guessed, mean over clients: 50 is chance.

    Attributes:
        accuracy: percent of pairs that are told right.
        auc: 100 times the area under the ROC curve.
    """

    accuracy: float
    auc: float


def infer_links(method: Method, personal: State, clients: list[Client], seed: int) -> dict[str, Guess]:
    """Attack every client, once for each of `VIEWS`.

    Args:
        method: the method, with its settings.
        personal: the clients' models [M, ...], on the CPU.
        clients: M clients. A client without an edge, or with all of them, is left out.
        seed: for the pairs that are not joined.
    """
    bare = [replace(c, graph=c.graph.with_edges(np.zeros((2, 0), dtype=np.int64))) for c in clients]
    with torch.no_grad():
        seen = representation(method, personal, Cohort(clients))
        without = representation(method, personal, Cohort(bare))
    by_view = {"representations": seen, "weights": without, "features": [_features(c.graph) for c in clients]}
    return {
        view: _mean([guess_links(c.graph, h, seed) for c, h in zip(clients, by_view[view], strict=True)])
        for view in VIEWS
    }


def representation(method: Method, personal: State, cohort: Cohort) -> list[np.ndarray]:
    """What the uploaded weights make of the nodes of each client: [n_m, d].

    The method says so (`Represents`); a backbone's is the output of its second layer; else it is the model's output.
    """
    compute: Callable[[State, Cohort], Tensor] = method.logits
    if isinstance(method, Represents):
        compute = method.representation
    elif isinstance(method, BackboneMethod):
        model = method.model
        compute = lambda weights, rows: model(rows, weights).embedding  # noqa: E731
    return [part.cpu().numpy() for part in cohort.parts_of(compute(personal, cohort))]


def guess_links(graph: Graph, h: np.ndarray, seed: int) -> Guess | None:
    """Guess the links of one graph from representations h [n, d] by their cosine; None where there is nothing to tell apart."""
    count = min(graph.edges.shape[1], unjoined_count(graph))
    if count == 0:
        return None
    rng = numpy_stream(seed, "link inference", graph.nodes, graph.edges.shape[1])
    joined = graph.edges[:, np.sort(rng.choice(graph.edges.shape[1], count, replace=False))]
    pairs = np.concatenate([joined, draw_unjoined(graph, count, rng)], axis=1)
    score, is_link = cosine(h, pairs), np.repeat([True, False], count)
    return Guess(100 * told_right(score, is_link), 100 * area(score, is_link))


def told_right(score: np.ndarray, is_link: np.ndarray) -> float:
    """Share of pairs that are told right if the half with the higher scores is called links; of equal scores, a share is."""
    middle = np.median(score)
    above, equal = score > middle, score == middle
    missing = score.size / 2 - above.sum()  # of those in the middle, so many are called links
    chance = missing / max(equal.sum(), 1)
    called = above + chance * equal
    return float(np.where(is_link, called, 1 - called).mean())


def area(score: np.ndarray, is_link: np.ndarray) -> float:
    """The chance that a link scores higher than a pair that is none, equal scores counting one half."""
    from scipy.stats import rankdata

    links = int(is_link.sum())
    ranks = rankdata(score)[is_link].sum() - links * (links + 1) / 2
    return float(ranks / (links * (score.size - links)))


def cosine(h: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """cos(h_u, h_v) of each pair: [n, d], [2, E] -> [E]; 0 where one of them is zero."""
    h = h.astype(np.float64)
    h = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
    step = max(1, BLOCK // h.shape[1])
    parts = [(h[u] * h[v]).sum(1) for u, v in _blocks(pairs, step)]
    # Equal vectors should score the same, whatever the rounding.
    return np.round(np.concatenate(parts), 9)


def _blocks(pairs: np.ndarray, step: int) -> list[np.ndarray]:
    return [pairs[:, start : start + step] for start in range(0, pairs.shape[1], step)]


def _features(graph: Graph) -> np.ndarray:
    return np.asarray(graph.x if isinstance(graph.x, np.ndarray) else graph.x.toarray())


def _mean(guesses: list[Guess | None]) -> Guess:
    found = [guess for guess in guesses if guess is not None]
    if not found:
        return Guess(float("nan"), float("nan"))
    return Guess(float(np.mean([g.accuracy for g in found])), float(np.mean([g.auc for g in found])))
