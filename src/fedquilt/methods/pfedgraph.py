"""pFedGraph: Ye et al., Personalized Federated Learning with Inferred Collaboration Graphs, ICML 2023.

The server draws a directed graph of who is useful to whom: client i's weights for the others' models are those near the shares
of training nodes (more data is better) that favour clients whose models moved in the same direction. That is a small quadratic
program a client, and each client receives the average with its own weights. In training, a cosine term holds its model near
that average.

    w_i = argmin over w >= 0 with sum 1 of  alpha sum_j (w_j - p_j)^2 - sum_j cos(theta_i - theta_0, theta_j - theta_0) w_j

Where the code and the paper differ, or the paper leaves it open, and why (what was measured is in `fedquilt docs fidelity`):

- *Solver.* The program is the projection of p + cos / (2 alpha) on the simplex, which has an exact solution: all clients' at
  once by sorting (`fedquilt.nn.simplex`), where the public code calls a general solver for every client.
- *Cosines* are of all weights' distance from the common start, as in the public code, which besides rounds those over 0.9 up
  to 1.
- *The cosine term* has no gradient at a round's first step, where the model is the average; with one full-batch epoch a round
  it does nothing at all, as FedProx's.
- *Partial participation.* Averages and cosines are of what everyone sent last (`fedquilt.training.newest_uploads`). A client
  that never sent gets the average by training nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from fedquilt.cohort.cohort import Cohort
from fedquilt.devices.offload import row_chunks
from fedquilt.messages.message import Message, TensorSpec, dense
from fedquilt.methods.averaging import places_among, strangers
from fedquilt.methods.base import STANDING, RoundSizes, State, register
from fedquilt.methods.base_adam import MODEL
from fedquilt.methods.base_backbone import BackboneMethod
from fedquilt.methods.diagnostics import effective_clients, pair_median
from fedquilt.methods.fedavg import TRAIN_NODES, WEIGHTS
from fedquilt.methods.settings import BackboneSettings, NonNegative, Positive
from fedquilt.nn.cross_cosine import cross_cosine
from fedquilt.nn.dropout import Dropout
from fedquilt.nn.layers import Weights
from fedquilt.nn.models import part
from fedquilt.nn.simplex import nearest_shares

COSINE, GRAPH, BEGAN, DIAGNOSTIC = "cosine", "graph", "began.", "diagnostic."
NOTED = ("effective_clients", "own_weight", "edges", "cosine_median")
NOTHING = 1e-30


@dataclass(frozen=True)
class PFedGraphSettings(BackboneSettings):
    """The backbone's settings and pFedGraph's own.

    Attributes:
        alpha: how near weights are held to the shares of training nodes, against the cosines; large: FedAvg, small: alone
            (paper: 0.8).
        pull: lambda, the weight of the cosine between the model in training and the received one.
    """

    alpha: Positive = 0.5
    pull: NonNegative = 0.01


@register("pfedgraph")
class PFedGraph(BackboneMethod):
    """The server keeps the common start, the cosines [M, M] and the collaboration graph [M, M]."""

    title = "pFedGraph"
    paper = "Ye et al., ICML 2023"
    admits = True
    averages_newest = True
    kind_versions = MappingProxyType({"partial": 2})
    newcomers = (
        "A newcomer is given the average by training nodes, trains it for a round, sends the model, and is given "
        "an average of its own: a row of the collaboration graph, over the clients that trained."
    )
    baseline = True
    Settings = PFedGraphSettings
    settings: PFedGraphSettings
    single_uploads = "server compares the clients' models and averages them anew for each receiver"
    searched = (*BackboneMethod.searched, "hidden", "alpha", "pull")
    any_module = True
    uploads = (WEIGHTS, TRAIN_NODES)
    downloads = (
        TensorSpec(
            MODEL + "*",
            "An average of the participants' models, weighted by their training nodes and by whether they moved as this "
            "client's did.",
        ),
    )

    def averages(self) -> bool:
        """For each client by its own weights."""
        return True

    # -- at the client -------------------------------------------------------------------------------------------

    def gradients(self, state: State, cohort: Cohort, dropout: Dropout, down: Message) -> tuple[Weights, Tensor]:
        """The gradient of the task's loss less lambda cos(theta, received)."""
        grads, loss = super().gradients(state, cohort, dropout, down)
        if self.settings.pull and down and dropout.step > 0:  # at a round's first step theta is what was received
            received = {name: dense(value) for name, value in down.items()}
            for name, toward in cosine_gradient({name: state[name] for name in received}, received).items():
                grads[name].sub_(toward, alpha=self.settings.pull)
        return grads, loss

    def upload(self, state: State, personal: State, cohort: Cohort, down: Message) -> Message:
        """The model and the number of training nodes."""
        message: Message = {MODEL + name: w for name, w in personal.items()}
        return message | {TRAIN_NODES.name: cohort.train_count}

    # -- at the server ---------------------------------------------------------------------------------------------

    def server_start(self) -> tuple[State, Message]:
        """The common start; no cosine is known yet; nothing is sent."""
        clients = self.context.clients
        server = {BEGAN + n.removeprefix(MODEL): dense(w).clone() for n, w in self.public_start().items()}
        server |= {COSINE: torch.eye(clients), GRAPH: torch.eye(clients)}
        return server | {DIAGNOSTIC + name: torch.zeros(()) for name in NOTED}, {}

    def server_memory(self, sizes: RoundSizes) -> int:
        """Matrices over all pairs. How far models moved from the start is gone before downloads are made."""
        pairs = 8 * self.context.clients**2 + 28 * sizes.senders * max(sizes.senders, sizes.receivers)
        return super().server_memory(sizes) + pairs

    def aggregate(self, server: State, uploads: Message, senders: Tensor, receivers: Tensor) -> Message:
        """theta_i = sum_j w_ij theta_j over the senders."""
        stacks = {n: dense(value) for n, value in uploads.items() if n.startswith(MODEL)}
        found = moved_cosine(stacks, {n: server[BEGAN + n.removeprefix(MODEL)] for n in stacks})
        server[COSINE][senders.unsqueeze(1), senders] = found
        nodes = dense(uploads[TRAIN_NODES.name])
        weights = self.collaboration(server[COSINE][receivers][:, senders], nodes / nodes.sum())
        server[GRAPH][receivers.unsqueeze(1), senders] = weights
        own = places_among(senders, receivers, self.context.clients)
        self.note(server, weights, own, found)
        return {name: self.averaging.mix(weights, stack, own) for name, stack in stacks.items()}

    def collaboration(self, cosine: Tensor, sizes: Tensor) -> Tensor:
        """Each receiver's weights: cosines [r, n] and shares of training nodes [n] -> [r, n], rows sum to one."""
        return nearest_shares(sizes + cosine / (2.0 * self.settings.alpha))

    # -- clients that come after training ----------------------------------------------------------------------------

    def newcomer_sends(self) -> tuple[str, ...]:
        """The model after a round from the average."""
        return (MODEL + "*",)

    def keeps_uploads(self) -> bool:
        """Averages are made of the clients' models."""
        return True

    def newcomer_state(self, server: State) -> State:
        """The clients' models and training nodes."""
        return part(server, STANDING)

    def newcomer_greeting(self, server: State) -> Message:
        """The average by training nodes."""
        nodes = server[TRAIN_NODES.name]
        return {n: self.averaging.average(stack, nodes) for n, stack in server.items() if n.startswith(MODEL)}

    def newcomer_download(self, server: State, uploads: Message) -> Message:
        """sum_j w_j theta_j over the clients that trained, w the newcomer's row of the collaboration graph."""
        nodes, start = server[TRAIN_NODES.name], self.public_start()
        # In the model's order, not the dict's: a server that was read from a file would sum the cosines in another one.
        stacks = {MODEL + name: server[MODEL + name] for name in self.shapes()}
        began = {name: dense(start[name]).to(nodes.device) for name in stacks}
        moved = [dense(uploads[name]) - began[name] for name in stacks]
        cosine = cross_cosine(moved, [stack - began[name] for name, stack in stacks.items()])
        weights = self.collaboration(cosine, nodes / nodes.sum())
        return {name: self.averaging.mix(weights, stack, strangers(cosine)) for name, stack in stacks.items()}

    # -- what reports show -----------------------------------------------------------------------------------------

    def note(self, server: State, weights: Tensor, own: Tensor, cosine: Tensor) -> None:
        """Store the diagnostics of the round, in place."""
        sent = own >= 0
        mine = weights.gather(1, own.clamp_min(0).unsqueeze(1)).squeeze(1)
        found = {
            "effective_clients": effective_clients(weights),
            "own_weight": torch.where(sent, mine, 0.0).sum() / sent.sum().clamp_min(1),
            "edges": (weights > 0).float().sum(1).mean(),
            "cosine_median": pair_median(cosine),
        }
        for name, value in found.items():
            server[DIAGNOSTIC + name].copy_(value)

    def diagnostics(self, server: State) -> dict[str, Tensor]:
        """Whether the graph is one.

        effective_clients   exp(entropy) of a client's weights; 1: alone, M: everyone's average
        own_weight          a client's weight for its own model, of those who sent
        edges               how many clients have any weight in a client's average
        cosine_median       the median over pairs of senders of the cosine of how their models moved from the start
        """
        return {name: server[DIAGNOSTIC + name] for name in NOTED}

    def similarity(self, server: State) -> Tensor | None:
        """The collaboration graph: row i has client i's weights for the others' models, as last computed."""
        return server[GRAPH]


def moved_cosine(stacks: State, began: State) -> Tensor:
    """The cosine between clients of how far all weights moved: [n, ...] and [...] by name -> [n, n]."""
    count = len(next(iter(stacks.values())))
    product = torch.zeros(count, count, device=next(iter(stacks.values())).device)
    for name, stack in stacks.items():
        moved = torch.cat([(w - began[name]).flatten(1) for _, w in row_chunks(stack)])
        product += moved @ moved.T
    length = product.diagonal().clamp_min(NOTHING).sqrt()
    return product / (length.unsqueeze(1) * length)


def cosine_gradient(weights: Weights, received: Weights) -> Weights:
    """The gradient of each client's cos(w, r) with respect to w, over all tensors together: [M, ...] by name.

    r / (|w| |r|) - cos w / |w|^2; `received` may be one for all clients.
    """
    aligned = {name: value.expand_as(weights[name]) for name, value in received.items()}
    pairs = [(w.flatten(1), aligned[name].flatten(1)) for name, w in weights.items()]
    inner = torch.stack([(w * r).sum(1) for w, r in pairs]).sum(0)
    own = torch.stack([w.square().sum(1) for w, _ in pairs]).sum(0).clamp_min(NOTHING)
    other = torch.stack([r.square().sum(1) for _, r in pairs]).sum(0).clamp_min(NOTHING)
    scale = 1.0 / (own * other).sqrt()
    out: Weights = {}
    for name, w in weights.items():
        shape = (-1, *[1] * (w.dim() - 1))
        out[name] = aligned[name] * scale.view(shape) - w * (inner * scale / own).view(shape)
    return out
