"""`MixedNetwork`: clients of one cohort with different networks, each kind computed as a cohort of its own.

Its weights are those of all networks that occur, under names such as ``sage-64-2.conv1.weight``, with all clients as leading
axis. A client's rows of another network's weights are zeros that nothing reads or changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.nn import layers
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import Network, Output, Shapes, common_start, part
from fedquilt.nn.module_backbone import ModuleNetwork


@dataclass(frozen=True)
class ProjectedNetwork:
    """A network whose embeddings are mapped to another width by a linear layer of their own.

    Attributes:
        network: which.
        inside, width: of its embeddings, and of what they are mapped to.
    """

    network: Network
    inside: int
    width: int

    @property
    def ignores_edge_weights(self) -> str:
        """What the network says of itself."""
        return str(getattr(self.network, "ignores_edge_weights", ""))

    def shapes(self) -> Shapes:
        """The network's, and the linear layer's."""
        return self.network.shapes() | {"embedding.weight": (self.inside, self.width), "embedding.bias": (self.width,)}

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of every row, without dropout."""
        found = self.network(cohort, weights)
        return Output(
            found.logits, layers.linear(cohort, found.embedding, weights["embedding.weight"], weights["embedding.bias"])
        )

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only, with dropout."""
        found, rows = self.network.training(cohort, weights, dropout), cohort.training
        return Output(
            found.logits, layers.linear(rows, found.embedding, weights["embedding.weight"], weights["embedding.bias"])
        )


class _Part:
    """The clients of a cohort that have one network.

    Attributes:
        label: the network's. cohort: these clients. chosen: [m] int64, their places in the whole cohort.
    """

    def __init__(self, label: str, whole: Cohort, chosen: list[int]) -> None:
        self.label, self.whole = label, whole
        self.cohort = whole if len(chosen) == whole.clients else whole.take(chosen)
        self.chosen = torch.tensor(chosen, device=whole.device)

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The rows of these clients' nodes, in the whole cohort and in theirs."""
        places = [self.whole.start[m] + np.arange(self.whole.sizes[m]) for m in self.chosen.tolist()]
        mine = (torch.from_numpy(index).to(self.whole.device) for index in (np.concatenate(places), self.cohort.taken))
        return next(mine), next(mine)

    @cached_property
    def training_rows(self) -> tuple[Tensor, Tensor]:
        """The same among the training rows."""
        owned = torch.isin(self.whole.client[self.whole.train], self.chosen)
        return self.whole.training.real[owned], self.cohort.training.real


class MixedNetwork:
    """Several networks, of which each client of a cohort has one (`fedquilt.nn.models.Network`)."""

    def __init__(self, networks: Mapping[str, Network], label_of: Callable[[Client], str], seed: int) -> None:
        """`networks` by their labels, first that of clients who say nothing; `label_of` tells which one a client has."""
        self.networks, self.label_of, self.seed = dict(networks), label_of, seed

    @property
    def ignores_edge_weights(self) -> str:
        """Why weights of edges change nothing, where no network uses them."""
        found = [str(getattr(network, "ignores_edge_weights", "")) for network in self.networks.values()]
        return found[0] if all(found) else ""

    @property
    def one_by_one(self) -> bool:
        """Whether clients of some network are computed one after the other."""
        return any(isinstance(network, ModuleNetwork) for network in self.networks.values())

    def shapes(self) -> Shapes:
        """The shapes of all networks' weights."""
        return {f"{label}.{n}": shape for label, net in self.networks.items() for n, shape in net.shapes().items()}

    def start(self, clients: int, device: torch.device) -> Weights:
        """The weights of all networks before training, as of clients that all have the same one: [M, ...]."""
        out: Weights = {}
        for label, network in self.networks.items():
            if isinstance(network, ModuleNetwork):
                weights = network.start(clients, device)
            else:
                weights = common_start(network.shapes(), self.seed, clients, device)
            out |= {f"{label}.{name}": w for name, w in weights.items()}
        return out

    def has(self, label: str, cohort: Cohort) -> Tensor:
        """[M] bool: which clients have the network `label`."""
        return torch.tensor([self.label_of(client) == label for client in cohort.members], device=cohort.device)

    def own_weights(self, weights: Weights, label: str) -> Weights:
        """The weights of one of the networks, by their names there."""
        return part(weights, f"{label}.")

    def __call__(self, cohort: Cohort, weights: Weights) -> Output:
        """Compute the outputs of every row, without dropout."""
        found = [(p.rows, self.networks[p.label](p.cohort, self._taken(p, weights))) for p in self._parts(cohort)]
        return self._joined(cohort, cohort.rows, found, weights)

    def training(self, cohort: Cohort, weights: Weights, dropout: Dropout) -> Output:
        """Compute the outputs at the training nodes only, with dropout."""
        found = []
        for p in self._parts(cohort):
            own = Dropout(dropout.rate, dropout.keys[p.chosen], dropout.step)
            found.append((p.training_rows, self.networks[p.label].training(p.cohort, self._taken(p, weights), own)))
        return self._joined(cohort, cohort.training.rows, found, weights)

    def _parts(self, cohort: Cohort) -> list[_Part]:
        def make(whole: Cohort) -> list[_Part]:
            labels = [self.label_of(client) for client in whole.members]
            places = {label: [m for m, own in enumerate(labels) if own == label] for label in self.networks}
            return [_Part(label, whole, chosen) for label, chosen in places.items() if chosen]

        parts: list[_Part] = cohort.once(("networks", *self.networks), make)
        return parts

    def _taken(self, p: _Part, weights: Weights) -> Weights:
        """The weights of a part's clients, of their network."""
        own = self.own_weights(weights, p.label)
        return own if p.cohort is p.whole else {name: w.index_select(0, p.chosen) for name, w in own.items()}

    def _joined(
        self, cohort: Cohort, rows: int, found: list[tuple[tuple[Tensor, Tensor], Output]], weights: Weights
    ) -> Output:
        """The outputs of all parts in the rows of the whole cohort. Embeddings of different widths are left out: [rows, 0]."""
        # A network that none of these clients has counts for nothing; its gradient is zero, not missing.
        here = {p.label for p in self._parts(cohort)}
        absent = [w for label in self.networks if label not in here for w in self.own_weights(weights, label).values()]
        nothing = sum((w[:0].sum() for w in absent), start=found[0][1].logits.new_zeros(()))
        if len(found) == 1:
            return Output(found[0][1].logits + nothing, found[0][1].embedding)
        logits = _scattered(rows, [(places, output.logits) for places, output in found]) + nothing
        widths = {output.embedding.shape[1] for _, output in found}
        if len(widths) > 1:
            return Output(logits, logits[:, :0])
        return Output(logits, _scattered(rows, [(places, output.embedding) for places, output in found]))


def _scattered(rows: int, parts: list[tuple[tuple[Tensor, Tensor], Tensor]]) -> Tensor:
    """Rows of several tensors at their places in one [rows, ...]; zeros elsewhere."""
    out = parts[0][1].new_zeros(rows, parts[0][1].shape[1])
    for (to, of), values in parts:
        out = out.index_copy(0, to, values.index_select(0, of))
    return out
