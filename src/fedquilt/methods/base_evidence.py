"""The base class of methods whose server averages weights patch by patch, over the clients that have evidence for a patch.

The weights of a feature are a patch, and those of the classifier for a class. A client's evidence e_mf for a feature is how
many of its training nodes have it, themselves or in a neighbour; for a class, how many are of it:

    W[f] = sum_m e_mf W_m[f] / sum_m e_mf

A plain average lets clients that never saw a feature vote on it with the random numbers they started from.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedquilt.cohort.client import Client
from fedquilt.cohort.cohort import Cohort
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import WEIGHTED_MEAN
from fedquilt.methods.base import State
from fedquilt.methods.base_adam import PREVIOUS
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.fedavg import TRAIN_NODES
from fedquilt.methods.sums import along_axis
from fedquilt.nn.filters import features_of, of_each_once, side_by_side
from fedquilt.tasks.node_classification import training_class_counts

EVIDENCE = FEATURES_SEEN, CLASSES_SEEN = "seen.features", "seen.classes"
EVIDENCE_UPLOADS = (
    TensorSpec(
        FEATURES_SEEN, "For each feature, how many training nodes have it, themselves or in a neighbour.", count=True
    ),
    TensorSpec(CLASSES_SEEN, "How many training nodes of each class the client has.", count=True),
)
FLOOR = 1e-3  # evidence a training node for every patch, so that a patch without other evidence is averaged plainly


class EvidenceMethod(BackboneMethod):
    """A method on a backbone whose server averages by evidence."""

    @abstractmethod
    def evidence_of(self, name: str) -> tuple[str, int] | None:
        """What the weight `name` is averaged by: its first axis is features, or its last classes, or neither."""

    def averages_by_evidence(self) -> bool:
        """Where evidence is sent."""
        return any(self.sends(name) for name in EVIDENCE)

    def evidence(self, cohort: Cohort) -> Message:
        """The evidence that is sent: [M, F] and [M, C]."""
        message: Message = {}
        if self.sends(FEATURES_SEEN):
            message[FEATURES_SEEN] = cohort.once(
                FEATURES_SEEN, lambda c: of_each_once(c, FEATURES_SEEN, features_seen_by)
            )
        if self.sends(CLASSES_SEEN):
            message[CLASSES_SEEN] = cohort.once(CLASSES_SEEN, lambda c: of_each(c, training_class_counts))
        return message

    def averaged(self, server: State, sent: State, counts: State, nodes: Tensor) -> Message:
        """Averages of weights: each patch over those who have evidence for it, what has no patches by training nodes."""
        floor = FLOOR * nodes.unsqueeze(1)
        turned: State = {}  # with patches along the first axis, where there are any
        before: dict[str, Tensor | None] = {}
        seen: dict[str, Tensor | None] = {}
        for name, stack in sent.items():
            evidence, axis = self.evidence_of(name) or (None, 0)
            last = server.get(PREVIOUS + name)
            turned[name] = stack.transpose(1, axis % (stack.dim() - 1) + 1)
            before[name] = None if last is None else last.transpose(0, axis)
            seen[name] = None if evidence is None else counts[evidence]
        trust = self.trust(before, turned, {name: None if e is None else e > 0 for name, e in seen.items()})
        message: Message = {}
        for name in sent:
            who, found = trust.get(name), seen[name]
            if found is None:
                weight = nodes if who is None else nodes * who
                message[name] = self.averaging.average(turned[name], weight, before[name])
            else:
                found = found if who is None else found * who.unsqueeze(1)
                average = self.averaging.average_patches(turned[name], found, floor, before[name])
                message[name] = average.transpose(0, (self.evidence_of(name) or ("", 0))[1]).contiguous()
        self.remember(server, message)
        return message

    def mean_gradients(self, stacks: State, nodes: Tensor, readers: Collection[str]) -> State:
        """The mean of gradients [n, ...] over clients by their training nodes [n]; a robust rule averages each feature's over
        those who have one, in the gradients whose first axis is features, `readers`."""
        if self.averaging is WEIGHTED_MEAN:
            return {name: self.averaging.average(stack, nodes) for name, stack in stacks.items()}
        before: dict[str, Tensor | None] = {name: torch.zeros_like(stack[0]) for name, stack in stacks.items()}
        has = {name: stacks[name].flatten(2).abs().amax(2) > 0 if name in readers else None for name in stacks}
        trust, floor, out = self.trust(before, stacks, has), FLOOR * nodes.unsqueeze(1), {}
        for name, stack in stacks.items():
            weight, some = nodes * trust[name] if name in trust else nodes, has[name]
            if some is None:
                out[name] = self.averaging.average(stack, weight, before[name])
            else:
                out[name] = self.averaging.average_patches(stack, weight.unsqueeze(1) * some, floor, before[name])
        return out

    def evidence_summands(self, uploads: Message) -> State:
        """e_mp W_m[p] for every patch p of a weight, and the evidence itself, of which e_mp is computed: [M, ...] float64."""
        counts = {name: dense(v).double() for name, v in uploads.items() if name in (*EVIDENCE, TRAIN_NODES.name)}
        weights = {name: dense(v).double() for name, v in uploads.items() if name not in counts}
        return {name: w * self.patch_weight(name, counts, w) for name, w in weights.items()} | counts

    def averaged_sums(self, sums: State) -> State:
        """sum_m e_mp W_m[p] / sum_m e_mp; the denominator is that of the summed evidence, in which e is linear."""
        counts = {name: value for name, value in sums.items() if name in (*EVIDENCE, TRAIN_NODES.name)}
        weights = {name: value for name, value in sums.items() if name not in counts}
        return {name: (w / self.patch_weight(name, counts, w)).float() for name, w in weights.items()}

    def patch_weight(self, name: str, counts: State, like: Tensor) -> Tensor:
        """e of the patches of a weight, shaped to multiply it: the evidence with its floor, or the training nodes.

        Counts and weights have a client axis, or are sums over clients.
        """
        nodes, (evidence, _) = counts[TRAIN_NODES.name], self.evidence_of(name) or (None, 0)
        if evidence is None:
            return along_axis(nodes, like, nodes.dim() - 1)
        by_patch = counts[evidence] + FLOOR * nodes.unsqueeze(-1)  # [..., P]
        if evidence == FEATURES_SEEN:
            return along_axis(by_patch, like, nodes.dim())
        return by_patch.view(*nodes.shape, *[1] * (like.dim() - nodes.dim() - 1), by_patch.shape[-1])


def of_each(cohort: Cohort, count: Callable[[Client], np.ndarray]) -> Tensor:
    """What `count` gives for each client, [M, P] float32."""
    return torch.from_numpy(np.stack([count(client) for client in cohort.members]).astype(np.float32)).to(cohort.device)


def features_seen(client: Client) -> np.ndarray:
    """[F]: training nodes that have the feature, themselves or in a neighbour."""
    seen: np.ndarray = features_seen_by([client])[0]
    return seen


def features_seen_by(clients: Sequence[Client]) -> np.ndarray:
    """The same of several clients: [M, F]."""
    trains = [client.training_nodes for client in clients]
    first = np.cumsum([0, *(client.graph.nodes for client in clients[:-1])])
    counts = [len(nodes) for nodes in trains]
    rows = np.concatenate(trains) + np.repeat(first, counts)
    has = (features_of(clients) != 0).astype(np.float32)
    joined = side_by_side(clients)[rows].astype(np.float32)
    joined.data[:] = 1.0  # who is a neighbour, however little the edge weighs
    near = joined @ has + has[rows] > 0
    place = np.ones(rows.size, np.float32), np.arange(rows.size), np.cumsum([0, *counts])
    seen = sp.csr_matrix(place, shape=(len(clients), rows.size)) @ near
    return seen.toarray() if sp.issparse(seen) else np.asarray(seen)
