"""FED-PUB: Baek et al., Personalized Subgraph Federated Learning, ICML 2023.

Clients whose models do the same thing to the same random graph belong to the same community: the server compares these
functional embeddings and gives each client an average of all models weighted by similarity (eq. 3). Each client keeps a
private mask that selects and scales the weights it received (section 4.2). An L1 term makes masks sparse, so that only
the surviving weights are sent and kept, and a proximal term holds the masked model near the received one (eq. 4).

Where the code and the paper differ, and why:

- *L1.* The paper adds lambda1 ||mu||_1 to the loss. Adam normalises the gradient it is given, so a sum over 200,000 entries
  swamps the cross-entropy whatever its scale (and in the public code the term has no gradient at all). Here it is the
  proximal step of the same term, after Adam's: mu <- sign(mu) max(|mu| - lr lambda1, 0). An entry whose gradient does not
  defend it shrinks; one that matters stays. `l1` is on the paper's scale (Table 5: 0.3 to 0.9 make it sparse).
- *Threshold.* As in the paper, entries with |mu| < lambda1 count as zero at evaluation and in messages; `threshold` can be
  set apart from `l1`. Pruned weights are neither sent nor received.
- *Proximal term.* lambda2 ||theta * mu - theta_received||^2, on the masked weights: that is the model the paper's theta_i
  stands for (section 4.2), and it has a gradient from the first local step on.
- The random graph: the server sends its seed (8 bytes), the clients draw it. The graph is the same for all.
- Masks do not decay: see `fedquilt.nn.optim.adam_step`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from fedquilt.cohort import Client, Cohort
from fedquilt.errors import FedquiltError
from fedquilt.graphs.graph import Graph
from fedquilt.methods.backbone import MODEL, BackboneMethod, weighted_mean
from fedquilt.methods.contract import State, Task, register
from fedquilt.methods.fedavg import TRAIN_NODES
from fedquilt.methods.settings import BackboneSettings, NonNegative, Positive
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights, masked
from fedquilt.nn.models import matrices
from fedquilt.privacy.crossing import Crossing, Message, Sparse, dense
from fedquilt.randomness import derive, numpy_stream

MASK = "mask."
BLOCKS, BLOCK_NODES, P_INSIDE, P_ACROSS = 5, 100, 0.1, 0.01
COMMUNITY = 0.5  # similarity above which two clients are one community, when communities are explicit (Table 11)


@dataclass(frozen=True)
class FedPubSettings(BackboneSettings):
    """FedAvg's settings and FED-PUB's own.

    Attributes:
        tau: how sharply similarity is turned into weights (paper: 3 disjoint, 5 overlapping).
        l1: lambda1, how strongly masks are pushed to zero.
        threshold: mask entries below it count as zero; by default `l1`, as in the paper.
        proximal: lambda2, how strongly the masked model is held near the received one.
        similarity: what is compared (Table 10): function, parameter, gradient, or label (reveals label shares).
        graph: what functional embeddings are computed on (Table 9): sbm, er, one (node), or feature (the client's own).
        communities: implicit (a softmax over all) or explicit (only clients more similar than 0.5, Table 11).
        matching: average by similarity (off: plain averaging; Figure 7).
        masking: private masks (off: none; Figure 7).
    """

    tau: Positive = 3.0
    l1: NonNegative = 0.001
    threshold: NonNegative | None = None
    proximal: NonNegative = 0.001
    similarity: Literal["function", "parameter", "gradient", "label"] = "function"
    graph: Literal["sbm", "er", "one", "feature"] = "sbm"
    communities: Literal["implicit", "explicit"] = "implicit"
    matching: bool = True
    masking: bool = True
    penalty: Literal["mean", "shrink", "metric", "gate"] = "metric"
    cap: float = 5.0
    normalise: bool = True
    maskspeed: float = 1.0


@register("fedpub")
class FedPub(BackboneMethod):
    """State: the received weights as trained since (``model.``), and the private masks (``mask.``)."""

    title = "FED-PUB"
    paper = "Baek et al., ICML 2023"
    Settings = FedPubSettings
    settings: FedPubSettings
    uploads = (
        Crossing(
            MODEL + "*",
            "The client's model after training, without the entries its mask removed: which entries are missing tells "
            "which features and hidden units it does not use.",
        ),
        Crossing("embedding", "The mean output of the client's masked model on a random graph (or on its own)."),
        Crossing("label_share", "How the client's training labels are distributed over the classes."),
        TRAIN_NODES,
    )
    downloads = (
        Crossing(MODEL + "*", "An average of the participants' models, weighted by similarity to this client."),
        Crossing("graph_seed", "The seed of the random graph; it tells nothing about anyone.", shared=True),
    )

    def __init__(self, settings: FedPubSettings, task: Task) -> None:
        super().__init__(settings, task)
        if settings.model != "gcn" and settings.similarity == "function" and settings.graph != "feature":
            raise FedquiltError(
                f"FED-PUB's functional embeddings on random graphs are written for model=gcn, not {settings.model}: "
                "set model=gcn, graph=feature, or another similarity."
            )
        self.threshold = settings.l1 if settings.threshold is None else settings.threshold
        self.maskable = matrices(self.model.shapes()) if settings.masking else ()

    @classmethod
    def defaults(cls, task: Task) -> dict[str, Any]:
        """tau is 5 where clients overlap, 3 where they do not (appendix B.3)."""
        return super().defaults(task) | {"tau": 5.0 if task.partition == "overlapping" else 3.0}

    # -- at the client -------------------------------------------------------------------------------------------

    def private(self, weights: Weights) -> State:
        """Masks of ones: training starts with the received weights as they are."""
        return {MASK + name: torch.ones_like(weights[name]) for name in self.maskable}

    def trained(self, state: State) -> Weights:
        """Weights and masks."""
        return super().trained(state) | {MASK + name: state[MASK + name] for name in self.maskable}

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """Cross-entropy and proximal term at W = theta * mu; then dtheta = dW * mu and dmu = dW * theta."""
        weights = self.weights(state)
        acting = masked(weights, {name: state[MASK + name] for name in self.maskable})
        grads, loss = self.acting_gradients(acting, cohort, dropout)
        out: Weights = {}
        for name, grad in grads.items():
            received = down.get(MODEL + name)
            if received is not None and self.settings.proximal:
                grad.add_(acting[name] - dense(received), alpha=2 * self.settings.proximal)
            if name in self.maskable:
                out[MASK + name] = grad * weights[name]
                if self.settings.penalty == "mean" and self.settings.l1:
                    out[MASK + name].add_(state[MASK + name].sign(), alpha=self.settings.l1 / grad[0].numel())
                grad.mul_(state[MASK + name])
            out[MODEL + name] = grad
        return out, loss

    def after_step(self, state: State) -> None:
        """The proximal step of the L1 term: mu <- sign(mu) max(|mu| - lr lambda1, 0)."""
        shrink = self.settings.lr * self.settings.l1
        if shrink and self.settings.penalty == "shrink":
            for name in self.maskable:
                state[MASK + name].copy_(F.softshrink(state[MASK + name], shrink))
        if shrink and self.settings.penalty in ("metric", "gate"):
            t = float(state["adam.step"][0])
            for name in self.maskable:
                mask = state[MASK + name]
                v = (state["adam.second." + MASK + name] / (1 - 0.999**t)).sqrt_().add_(1e-12)
                amount = (self.settings.l1 / mask[0].numel() / v).sub_(1.0 if self.settings.penalty == "gate" else 0.0).clamp_(0, self.settings.cap).mul_(self.settings.lr)
                mask.copy_(mask.sign() * (mask.abs() - amount).clamp_min_(0))

    def kept(self, state: State, name: str) -> Tensor:
        """Which entries of weight `name` the mask keeps."""
        return state[MASK + name].abs() >= self.threshold

    def personal(self, state: State) -> State:
        """theta * mu with the entries under the threshold set to zero."""
        weights = self.weights(state)
        for name in self.maskable:
            mask = state[MASK + name]
            weights[name] = weights[name] * mask * self.kept(state, name)
        return weights

    def upload(self, state: State, cohort: Cohort, down: Message) -> Message:
        """The surviving weights, and what similarity is computed from."""
        personal = self.personal(state)
        message: Message = {MODEL + n: Sparse(w) if n in self.maskable else w for n, w in personal.items()}
        if not self.settings.matching:
            message["train_nodes"] = cohort.train_count
        elif self.settings.similarity == "function":
            message["embedding"] = self.embed(personal, cohort, down)
        elif self.settings.similarity == "label":
            message["label_share"] = label_share(cohort)
        return message

    @torch.no_grad()
    def embed(self, weights: Weights, cohort: Cohort, down: Message) -> Tensor:
        """The functional embedding: [M, H], the node mean of the second layer's output before its ReLU."""
        if self.settings.graph == "feature":
            return cohort.node_mean(self.model(cohort, weights).embedding)
        seed = int(dense(down["graph_seed"]).item())
        return functional_embedding(random_graph(self.settings.graph, seed, self.task.features, cohort.device), weights)

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """No similarity known yet, a random graph's seed, and (for gradients) the common start."""
        seed = torch.tensor([derive(self.task.seed, "server", "random graph")], dtype=torch.int64)
        server = {"similarity": torch.zeros(self.task.clients, self.task.clients), "graph_seed": seed}
        if self.settings.similarity == "gradient":
            start = self.model.start(self.task.seed, self.task.clients, torch.device("cpu"))
            server |= {"sent." + name: w for name, w in start.items()}
        return server, {"graph_seed": seed}

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """theta_i = sum_j alpha_ij theta_j, alpha_ij = softmax_j(tau S(i, j)), without the entries client i removed."""
        stacks = {name: dense(value) for name, value in uploads.items() if name.startswith(MODEL)}
        message: Message = {"graph_seed": server["graph_seed"]}
        if not self.settings.matching:
            nodes = dense(uploads["train_nodes"])
            mixed = {n: weighted_mean(w, nodes).expand(len(receivers), *w.shape[1:]) for n, w in stacks.items()}
        else:
            server["similarity"][senders.unsqueeze(1), senders] = self.compare(server, uploads, stacks, senders).cpu()
            some = next(iter(stacks.values()))
            alpha = self.attention(server["similarity"][receivers][:, senders]).to(some.device)
            mixed = {n: (alpha @ w.flatten(1)).view(len(receivers), *w.shape[1:]) for n, w in stacks.items()}
            if self.settings.normalise:
                for n, w in stacks.items():
                    if n[6:] in self.maskable:
                        mixed[n] /= (alpha @ (w.flatten(1) != 0).float()).view_as(mixed[n]).clamp_min(1e-9)
        if self.settings.similarity == "gradient":
            for name, w in mixed.items():
                server["sent." + name.removeprefix(MODEL)][receivers] = w.cpu()
        for name, w in mixed.items():
            message[name] = self.pruned(w, stacks[name], senders, receivers) if name[6:] in self.maskable else w
        return message

    def pruned(self, mixed: Tensor, stack: Tensor, senders: Tensor, receivers: Tensor) -> Sparse:
        """The average without the entries the receiver itself removed; a receiver that did not send now gets all."""
        if torch.equal(senders, receivers):
            return Sparse(mixed * (stack != 0))
        for place, client in enumerate(receivers.tolist()):
            sent = torch.nonzero(senders == client).ravel()
            if len(sent):
                mixed[place] *= stack[sent[0]] != 0
        return Sparse(mixed)

    def compare(self, server: State, uploads: Message, stacks: dict[str, Tensor], senders: Tensor) -> Tensor:
        """S(i, j) between the senders, [n, n]."""
        kind = self.settings.similarity
        if kind == "label":
            return 1.0 - jensen_shannon(dense(uploads["label_share"]))
        if kind == "function":
            return cosine([dense(uploads["embedding"])])
        if kind == "parameter":
            return cosine(list(stacks.values()))
        return cosine([w - server["sent." + n.removeprefix(MODEL)][senders].to(w.device) for n, w in stacks.items()])

    def attention(self, similarity: Tensor) -> Tensor:
        """softmax(tau S) over the senders; with explicit communities only over those more similar than 0.5."""
        score = self.settings.tau * similarity
        if self.settings.communities == "explicit":
            member = similarity > COMMUNITY
            # A client that resembles nobody who sent (it did not send itself) falls back to all of them.
            member |= ~member.any(dim=1, keepdim=True)
            score = score.masked_fill(~member, -torch.inf)
        return torch.softmax(score, dim=1)

    def similarity(self, server: State) -> Tensor | None:
        """S as last computed between each pair of clients."""
        return server["similarity"] if self.settings.matching else None


def cosine(stacks: list[Tensor]) -> Tensor:
    """Cosine between clients over all given tensors together: list of [n, ...] -> [n, n], without joining them."""
    product = torch.zeros(())
    for stack in stacks:
        flat = stack.flatten(1)
        product = product.to(flat.device) + flat @ flat.T
    norm = product.diagonal().clamp_min(1e-30).sqrt()
    return product / (norm.unsqueeze(1) * norm)


def jensen_shannon(share: Tensor) -> Tensor:
    """Jensen-Shannon divergence in bits between all pairs of rows: [n, C] -> [n, n], in [0, 1]."""

    def entropy(p: Tensor) -> Tensor:
        return -torch.special.xlogy(p, p).sum(-1) / np.log(2.0)

    middle = (share.unsqueeze(1) + share.unsqueeze(0)) / 2
    own = entropy(share)
    return (entropy(middle) - (own.unsqueeze(1) + own.unsqueeze(0)) / 2).clamp(0.0, 1.0)


def label_share(cohort: Cohort) -> Tensor:
    """[M, C]: how each client's training labels are distributed."""
    ones = F.one_hot(cohort.y[cohort.train], cohort.classes).float() * cohort.train_weight.unsqueeze(1)
    return torch.zeros(cohort.clients, cohort.classes, device=cohort.device).index_add_(0, cohort.client[cohort.train], ones)


@dataclass(frozen=True, eq=False)
class RandomGraph:
    """What a GCN needs of a graph when only the node mean of its second layer is wanted.

    Attributes:
        smoothed: [n, F], the smoothed features A X. averaged: [n], the row (1/n) 1^T A: the mean over nodes of A h is
            ``averaged @ h``, so the second propagation costs one product with a vector.
    """

    smoothed: Tensor
    averaged: Tensor


@lru_cache(maxsize=4)
def random_graph(kind: str, seed: int, features: int, device: torch.device) -> RandomGraph:
    """The random graph of a seed: features N(0, 1); sbm: 5 x 100 nodes, p 0.1 inside and 0.01 across; er: 500 nodes of
    the same mean degree; one: a single node."""
    stream = numpy_stream(seed, "random graph")
    n = 1 if kind == "one" else BLOCKS * BLOCK_NODES
    u, v = np.triu_indices(n, k=1)
    inside = (u // BLOCK_NODES) == (v // BLOCK_NODES)
    p = np.where(inside, P_INSIDE, P_ACROSS)
    if kind == "er":
        p = np.full_like(p, p.mean())
    chosen = stream.random(len(u)) < p
    x = stream.standard_normal((n, features)).astype(np.float32)
    graph = Graph("random", np.stack([u[chosen], v[chosen]]), x, np.zeros(n, dtype=np.int64), 1)
    client = Client(0, graph, np.zeros(n, dtype=np.int8))
    averaged = np.asarray(sp.csr_matrix(client.gcn).mean(axis=0)).ravel()
    return RandomGraph(
        torch.from_numpy(np.asarray(client.smoothed)).to(device),
        torch.from_numpy(averaged.astype(np.float32)).to(device),
    )


def functional_embedding(graph: RandomGraph, weights: Weights) -> Tensor:
    """mean over nodes of A relu(A X W1 + b1) W2 + b2, for all clients: [M, H]."""
    first, bias = weights["conv1.weight"], weights["conv1.bias"]
    hidden = torch.stack([graph.averaged @ torch.relu_(torch.addmm(b, graph.smoothed, w)) for w, b in zip(first, bias, strict=True)])
    return torch.bmm(hidden.unsqueeze(1), weights["conv2.weight"]).squeeze(1) + weights["conv2.bias"]
