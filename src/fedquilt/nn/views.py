"""Several networks side by side, the views of a graph, and their mixture.

Each view v is a network with weights of its own, under names such as ``view.sage.conv1.weight``. Views share nothing: each is
trained by its own loss, as it would be alone. Client m predicts with the mixture of what they say,

whose weights a [M, V] are chosen on validation nodes (`mixture_weights`). What that is, the task says: of classes, log p with

    p = sum_v a_mv softmax(logits_v).

Memory: one view is computed after the other; their outputs, O(R C V), are held together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.device import on_host
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Network, Output, Shapes, common_start, part

MIXTURE = "mixture"  # a [M, V], beside the weights of the views
Mix = Callable[[Sequence[Tensor], Tensor, Tensor], Tensor]  # `Task.mixture`


def prefix_of(view: str) -> str:
    """The beginning of the names of a view's weights."""
    return f"view.{view}."


@dataclass(frozen=True)
class Views:
    """Networks by the names of their views; the mixture is over them in this order.

    Attributes:
        networks: by name.
        beside: weights without a view in their names, by the view that reads them.
        mix: the outputs of a mixture of views (`Task.mixture`).
    """

    networks: Mapping[str, Network]
    beside: Mapping[str, Sequence[str]]
    mix: Mix

    @property
    def feature_weights(self) -> tuple[str, ...]:
        """The weights whose first axis is the features."""
        return tuple(
            prefix_of(view) + name
            for view, network in self.networks.items()
            for name in getattr(network, "feature_weights", ())
        )

    @property
    def ignores_edge_weights(self) -> str:
        """Empty: some view reads the edges, or what the views say that do not."""
        said = [str(getattr(network, "ignores_edge_weights", "")) for network in self.networks.values()]
        return said[0] if all(said) else ""

    def shapes(self) -> Shapes:
        """The weights of all views."""
        return {
            prefix_of(view) + name: shape for view, n in self.networks.items() for name, shape in n.shapes().items()
        }

    def start(self, seed: int, clients: int, device: torch.device) -> Weights:
        """The initial weights: those that each view would have alone."""
        return {
            prefix_of(view) + name: weight
            for view, network in self.networks.items()
            for name, weight in common_start(network.shapes(), seed, clients, device).items()
        }

    def weights_of(self, view: str, weights: Weights) -> Weights:
        """The weights of a view, by their names in its network."""
        return part(weights, prefix_of(view)) | {n: weights[n] for n in self.beside.get(view, ()) if n in weights}

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of the mixture at every row, and the embeddings of all views beside each other, without dropout.

        On a CPU, views that no client gives any weight are not computed; their embeddings are left out.
        """
        mixture = sound(weights[MIXTURE])
        found = {
            place: network(cohort, self.weights_of(view, weights))
            for place, ((view, network), counts) in enumerate(
                zip(self.networks.items(), weighted_views(mixture), strict=True)
            )
            if counts
        }
        logits = self.mixed(cohort, {place: output.logits for place, output in found.items()}, mixture)
        return Output(logits, torch.cat([output.embedding for output in found.values()], dim=1))

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Views are trained one by one, so that nothing is mixed in training."""
        raise NotImplementedError

    def mixed(self, cohort: Cohort, outputs: Mapping[int, Tensor], mixture: Tensor) -> Tensor:
        """The mixture of some views, given by their places: outputs [R, C] each, a [M, V] -> [R, C]."""
        return self._mixed(cohort.client, outputs, mixture)

    def mixed_at(self, cohort: Cohort, outputs: Mapping[int, Tensor], mixture: Tensor, rows: Tensor) -> Tensor:
        """The same at some rows [T] alone, and zeros at the others: [R, C]."""
        at_rows = {place: view[rows] for place, view in outputs.items()}
        some = self._mixed(cohort.at("client", cohort.client, rows), at_rows, mixture)
        return some.new_zeros(cohort.rows, some.shape[1]).index_copy_(0, rows, some)

    def _mixed(self, owner: Tensor, outputs: Mapping[int, Tensor], mixture: Tensor) -> Tensor:
        """The mixture at rows of the clients `owner` [T]."""
        weights = torch.stack([mixture[:, place] for place in outputs], dim=1)  # an index would copy from the host
        return self.mix(list(outputs.values()), weights, owner)


def sound(mixture: Tensor) -> Tensor:
    """A mixture [M, V] without weights below zero, and alike where no view has any: a stored model may say anything."""
    weights = mixture.clamp_min(0.0)
    return torch.where(weights.sum(1, keepdim=True) > 0, weights, 1.0 / mixture.shape[1])


def weighted_views(mixture: Tensor) -> list[bool]:
    """Which views some client gives any weight, where the host can tell: mixture [M, V]; on an accelerator all."""
    return (mixture.amax(0) > 0).tolist() if on_host(mixture) else [True] * mixture.shape[1]


def votes_of(points: Tensor, alive: Tensor, reach: float) -> Tensor:
    """What a client says of its views, from 0 to 1: 1 for its best one, and 1 less for each `reach` points below it.

    Args:
        points: [M, V] the metric on the client's validation nodes with each view, higher is better; NaN: unknown.
        alive: [M, V] bool, the views that are still trained; the others get 0.
        reach: points below the best at which a vote is 0, so that no client can say more than that.
    """
    known = torch.where(alive, points, -torch.inf)
    gap = (known - known.amax(1, keepdim=True)) / reach
    votes = (1.0 + gap).clamp(0.0, 1.0)
    return torch.where(alive, torch.where(gap.isnan().any(1, keepdim=True), 1.0, votes), 0.0)


def mixture_weights(own: Tensor, everyone: Tensor, trust: Tensor, points: float) -> Tensor:
    """Exponential weights: a_mv is proportional to exp(points (e_v + t_m (o_mv - e_v))), [M, V].

    Args:
        own: o [M, V], the client's votes.
        everyone: e [M, V], the average votes as the client knows them; below zero where a view was dropped.
        trust: t [M] from 0 to 1, how much of its own votes a client follows.
        points: what a difference of one vote is worth in the exponent.
    """
    votes = everyone + trust.unsqueeze(1) * (own - everyone)
    return torch.where(everyone < 0, -torch.inf, points * votes).softmax(1)
