"""The plain loop over clients with PyTorch Geometric: the usual way to write a simulation, used as the baseline of speed.

Each client has one `torch.nn.Module` and one Adam, with cached GCN normalisation and dense features. A round is local epochs,
an evaluation of every client, and an aggregation. FED-PUB adds masks, functional embeddings and similarity-weighted averages.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from fedquilt.cohort.client import Client
from fedquilt.graphs.split import TEST, TRAIN, VAL
from fedquilt.methods.fedpub import FedPubSettings
from fedquilt.methods.settings import BackboneSettings
from fedquilt.nn.functional_embedding import random_graph


def data_of(client: Client, device: torch.device) -> Data:
    """Convert a client's graph to PyG `Data`, with masks of the labelled nodes of each part."""
    data = client.graph.to_data()
    split = torch.from_numpy(client.split)
    data.train_mask, data.val_mask, data.test_mask = ((split == part) & (data.y >= 0) for part in (TRAIN, VAL, TEST))
    return data.to(device)


class Gcn(nn.Module):
    """Two cached GCN layers and a linear classifier."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(features, hidden, cached=True)
        self.conv2 = GCNConv(hidden, hidden, cached=True)
        self.classifier: nn.Module = nn.Linear(hidden, classes)

    def forward(self, data: Data) -> Tensor:
        """Compute the logits of every node, [N, C]."""
        h = F.dropout(F.relu(self.conv1(data.x, data.edge_index)), 0.5, self.training)
        h = F.dropout(F.relu(self.conv2(h, data.edge_index)), 0.5, self.training)
        return self.classifier(h)


class MaskedLinear(nn.Module):
    """A linear layer whose weight is multiplied by a private mask."""

    def __init__(self, inside: int, out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, inside))
        nn.init.xavier_uniform_(self.weight)
        self.mask = nn.Parameter(torch.ones(out, inside))
        self.bias = nn.Parameter(torch.zeros(out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Apply the linear map with the masked weight."""
        return F.linear(x, self.weight * self.mask, self.bias)


class MaskedGcn(Gcn):
    """`Gcn` with masks on the three weight matrices."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__(features, hidden, classes)
        self.conv1.lin = MaskedLinear(features, hidden, False)
        self.conv2.lin = MaskedLinear(hidden, hidden, False)
        self.classifier = MaskedLinear(hidden, classes, True)


class PlainFedAvg:
    """FedAvg, client by client."""

    model: type[Gcn] = Gcn

    def __init__(self, clients: list[Client], settings: BackboneSettings, device: torch.device) -> None:
        self.data = [data_of(c, device) for c in clients]
        graph = clients[0].graph
        self.models = [self.model(graph.features, settings.hidden, graph.classes).to(device) for _ in clients]
        for model in self.models[1:]:
            model.load_state_dict(self.models[0].state_dict())
        self.optimisers = [torch.optim.Adam(model.parameters(), lr=settings.lr) for model in self.models]
        self.weights = torch.tensor([float(d.train_mask.sum()) for d in self.data], device=device)
        self.epochs = settings.epochs

    def loss(self, client: int, model: Gcn, data: Data) -> Tensor:
        """Compute the loss of a client's local training."""
        return F.cross_entropy(model(data)[data.train_mask], data.y[data.train_mask])

    def advance(self, rounds: int) -> None:
        """Train `rounds` more rounds."""
        for _ in range(rounds):
            self.round()

    def round(self) -> tuple[float, float]:
        """Train one round; return the mean validation and test accuracy."""
        val, test = [], []
        for client, (model, optimiser, data) in enumerate(zip(self.models, self.optimisers, self.data, strict=True)):
            model.train()
            for _ in range(self.epochs):
                optimiser.zero_grad()
                self.loss(client, model, data).backward()
                optimiser.step()
            model.eval()
            with torch.no_grad():
                right = model(data).argmax(1) == data.y
                val.append(float(right[data.val_mask].float().mean()))
                test.append(float(right[data.test_mask].float().mean()))
        self.aggregate()
        return sum(val) / len(val), sum(test) / len(test)

    @torch.no_grad()
    def aggregate(self) -> None:
        """Give everyone the average of all models, weighted by training nodes."""
        share = self.weights / self.weights.sum()
        states = [model.state_dict() for model in self.models]
        mean = {name: sum(s * state[name] for s, state in zip(share, states, strict=True)) for name in states[0]}
        for model in self.models:
            model.load_state_dict(mean)


class PlainFedPub(PlainFedAvg):
    """FED-PUB, client by client: masks, functional embeddings on a random graph, similarity-weighted averages."""

    model = MaskedGcn

    def __init__(self, clients: list[Client], settings: FedPubSettings, device: torch.device) -> None:
        super().__init__(clients, settings, device)
        self.graph = random_graph("sbm", 0, clients[0].graph.features, device)
        self.tau, self.proximal = settings.tau, settings.proximal
        self.lasting, self.limit = settings.lasting, settings.limit
        self.received: list[dict[str, Tensor]] | None = None

    def loss(self, client: int, model: Gcn, data: Data) -> Tensor:
        """Compute the loss with a proximal term, which keeps the masked weights near the received ones."""
        loss = super().loss(client, model, data)
        if self.received is None:
            return loss
        received = self.received[client]
        for name in ("conv1.lin", "conv2.lin", "classifier"):
            layer: Any = model.get_submodule(name)
            loss = loss + self.proximal * (layer.weight * layer.mask - received[f"{name}.weight"]).pow(2).sum()
        return loss

    @torch.no_grad()
    def aggregate(self) -> None:
        """Give each client an average of all models, weighted by the similarity of their outputs on the random graph."""
        embeddings = []
        for model in self.models:
            first = model.conv1.lin
            h = F.relu(self.graph.smoothed @ (first.weight * first.mask).T + model.conv1.bias)
            second = model.conv2.lin
            embeddings.append(self.graph.averaged @ h @ (second.weight * second.mask).T + model.conv2.bias)
        e = F.normalize(torch.stack(embeddings), dim=1)
        alpha = torch.softmax(self.tau * e @ e.T, dim=1)
        names = [name for name, _ in self.models[0].named_parameters() if not name.endswith("mask")]
        sent = []
        for model in self.models:
            named = dict(model.named_parameters())
            sent.append(
                {
                    n: self.limited(named[n] * named[n.replace("weight", "mask")]) if "weight" in n else named[n]
                    for n in names
                }
            )
        self.received = [
            {n: sum(a * state[n] for a, state in zip(row, sent, strict=True)) for n in names} for row in alpha
        ]
        for model, mean in zip(self.models, self.received, strict=True):
            model.load_state_dict(mean, strict=False)
            for name, mask in model.named_parameters():
                if name.endswith("mask"):
                    mask.sub_(1.0).mul_(self.lasting).add_(1.0)

    def limited(self, weight: Tensor) -> Tensor:
        """Scale a matrix down to `limit` times the norm of the common start; 0: no limit."""
        rows, columns = weight.shape
        most = self.limit * (2 * rows * columns / (rows + columns)) ** 0.5
        return weight * (most / weight.norm().clamp_min(most)) if self.limit else weight


# The methods that have a plain loop.
PLAIN: dict[str, type[PlainFedAvg]] = {"fedavg": PlainFedAvg, "fedpub": PlainFedPub}
